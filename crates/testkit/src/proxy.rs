//! A TCP proxy that misbehaves on demand: late, slow, silent, or cut off, switchable while connections live.

#![expect(clippy::expect_used, reason = "a fixture that cannot be set up fails the test that asked for it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::servers::any_port;

/// How a cut looks to both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// An orderly end.
    Fin,
    /// A reset.
    Rst,
}

/// Which way bytes flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Reply,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Weather {
    latency: Duration,
    bytes_per_second: Option<u64>,
    /// Nothing passes, nothing is closed: a cable that is out. What waited passes when it is in again.
    silent: bool,
    /// New connections are closed at once.
    refuse: bool,
    /// Grows with every order to cut what is open.
    cuts: u64,
    kind: Cut,
}

/// Bytes each way may still pass until everything is cut; negative: no such order.
#[derive(Debug)]
struct Budgets {
    request: AtomicI64,
    reply: AtomicI64,
    passed_request: AtomicU64,
    passed_reply: AtomicU64,
}

/// The proxy; dropping it closes everything.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    weather: Arc<watch::Sender<Weather>>,
    budgets: Arc<Budgets>,
    accepting: JoinHandle<()>,
}

impl FaultProxy {
    /// Listens on the test's own address and passes everything on to `upstream`.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(any_port()).await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let fair = Weather {
            latency: Duration::ZERO,
            bytes_per_second: None,
            silent: false,
            refuse: false,
            cuts: 0,
            kind: Cut::Fin,
        };
        let weather = Arc::new(watch::Sender::new(fair));
        let budgets = Arc::new(Budgets {
            request: AtomicI64::new(-1),
            reply: AtomicI64::new(-1),
            passed_request: AtomicU64::new(0),
            passed_reply: AtomicU64::new(0),
        });
        let (shared_weather, shared_budgets) = (Arc::clone(&weather), Arc::clone(&budgets));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Read once: a connection accepted before `refuse` counts as open, so that `cut` ends it too.
                let now = *shared_weather.borrow();
                if now.refuse {
                    continue;
                }
                tokio::spawn(carry(
                    client,
                    upstream,
                    now.cuts,
                    Arc::clone(&shared_weather),
                    Arc::clone(&shared_budgets),
                ));
            }
        });
        Self { address, weather, budgets, accepting }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients connect, as a store URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Everything passes at once again; an order to cut after some bytes is withdrawn.
    pub fn heal(&self) {
        self.budgets.request.store(-1, SeqCst);
        self.budgets.reply.store(-1, SeqCst);
        self.weather.send_modify(|weather| {
            *weather = Weather {
                latency: Duration::ZERO,
                bytes_per_second: None,
                silent: false,
                refuse: false,
                ..*weather
            };
        });
    }

    /// Each piece is held back this long, each way.
    pub fn latency(&self, latency: Duration) {
        self.weather.send_modify(|weather| weather.latency = latency);
    }

    /// No more than this passes each way of each connection.
    pub fn bandwidth(&self, bytes_per_second: u64) {
        self.weather.send_modify(|weather| weather.bytes_per_second = Some(bytes_per_second.max(1)));
    }

    /// Connections are accepted and stay open, and nothing passes.
    pub fn silence(&self) {
        self.weather.send_modify(|weather| weather.silent = true);
    }

    /// New connections are closed as soon as they are accepted.
    pub fn refuse(&self) {
        self.weather.send_modify(|weather| weather.refuse = true);
    }

    /// Cuts every open connection now.
    pub fn cut(&self, kind: Cut) {
        self.weather.send_modify(|weather| {
            weather.kind = kind;
            weather.cuts += 1;
        });
    }

    /// Cuts every open connection once `bytes` more have passed this way: with [`Way::Reply`] and 0, the
    /// server gets the next request and its answer is lost.
    pub fn cut_after(&self, way: Way, bytes: u64, kind: Cut) {
        self.weather.send_modify(|weather| weather.kind = kind);
        self.budget(way).store(i64::try_from(bytes).unwrap_or(i64::MAX), SeqCst);
    }

    /// Bytes that have passed this way so far.
    pub fn passed(&self, way: Way) -> u64 {
        match way {
            Way::Request => self.budgets.passed_request.load(SeqCst),
            Way::Reply => self.budgets.passed_reply.load(SeqCst),
        }
    }

    fn budget(&self, way: Way) -> &AtomicI64 {
        self.budgets.of(way)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.weather.send_modify(|weather| weather.cuts += 1);
    }
}

impl Budgets {
    fn of(&self, way: Way) -> &AtomicI64 {
        match way {
            Way::Request => &self.request,
            Way::Reply => &self.reply,
        }
    }

    /// How many of `wanted` bytes may pass, and whether the connection is cut after them.
    fn spend(&self, way: Way, wanted: usize) -> (usize, bool) {
        let budget = self.of(way).load(SeqCst);
        let passes = if budget < 0 { wanted } else { wanted.min(budget as usize) };
        match way {
            Way::Request => self.passed_request.fetch_add(passes as u64, SeqCst),
            Way::Reply => self.passed_reply.fetch_add(passes as u64, SeqCst),
        };
        if budget < 0 {
            return (passes, false);
        }
        // One cut per order: what comes afterwards passes again.
        let cut = wanted > passes || budget as usize == passes;
        self.of(way).store(if cut { -1 } else { budget - passes as i64 }, SeqCst);
        (passes, cut)
    }
}

async fn carry(
    client: TcpStream,
    upstream: SocketAddr,
    cuts: u64,
    weather: Arc<watch::Sender<Weather>>,
    budgets: Arc<Budgets>,
) {
    let mut seen = weather.subscribe();
    if seen.wait_for(|now| !now.silent || now.cuts > cuts).await.is_err() {
        return;
    }
    let (mut client, Ok(mut server)) = (client, TcpStream::connect(upstream).await) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut end = weather.subscribe();
    let cut = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let requests = pump(client_read, server_write, Way::Request, weather.subscribe(), &budgets);
        let replies = pump(server_read, client_write, Way::Reply, weather.subscribe(), &budgets);
        tokio::select! {
            _ = end.wait_for(|now| now.cuts > cuts) => true,
            ended = requests => matches!(ended, Ended::Cut),
            ended = replies => matches!(ended, Ended::Cut),
        }
    };
    let kind = weather.borrow().kind;
    if cut && kind == Cut::Rst {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

enum Ended {
    Closed,
    Cut,
}

async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    way: Way,
    mut weather: watch::Receiver<Weather>,
    budgets: &Budgets,
) -> Ended {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(length) = from.read(&mut buffer).await else { return Ended::Closed };
        if length == 0 {
            return Ended::Closed;
        }
        let now = *weather.borrow_and_update();
        if !now.latency.is_zero() {
            tokio::time::sleep(now.latency).await;
        }
        if let Some(rate) = now.bytes_per_second {
            tokio::time::sleep(Duration::from_secs_f64(length as f64 / rate as f64)).await;
        }
        if weather.wait_for(|now| !now.silent).await.is_err() {
            return Ended::Closed;
        }
        let (passes, cut) = budgets.spend(way, length);
        if to.write_all(&buffer[..passes]).await.is_err() {
            return Ended::Closed;
        }
        if cut {
            return Ended::Cut;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_slips_in_while_new_connections_are_refused_and_open_ones_cut() {
        let listener = TcpListener::bind(any_port()).await.expect("a port");
        let upstream = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok(accepted) = listener.accept().await {
                open.push(accepted);
            }
        });
        for _ in 0..200 {
            let proxy = FaultProxy::start(upstream).await;
            let address = proxy.address();
            let clients: Vec<_> = (0..4).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
            tokio::task::yield_now().await;
            proxy.refuse();
            proxy.cut(Cut::Fin);
            for client in clients {
                let Ok(mut client) = client.await.expect("a task") else { continue };
                let read = tokio::time::timeout(Duration::from_secs(30), client.read_u8()).await;
                assert!(read.expect("a connection outlived the cut").is_err(), "nothing was sent");
            }
        }
    }
}
