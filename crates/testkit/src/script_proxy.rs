//! A proxy in front of Redis that understands its protocol: it changes, eats or holds back the replies of scripts.
//!
//! One request after the other passes on each connection, so that a trick falls on exactly one script. Everything but
//! scripts passes untouched.

#![expect(clippy::expect_used, reason = "a fixture that cannot be set up fails the test that asked for it")]

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::servers::any_port;

/// What happens to a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trick {
    /// The server runs it, and this is said in place of its reply.
    Say(&'static [u8]),
    /// The server runs it, and the connection ends without a reply.
    Eat,
    /// The server runs it, and the reply waits until [`ScriptProxy::heal`].
    Delay,
    /// It does not reach the server: this is said at once.
    Refuse(&'static [u8]),
    /// It does not reach the server: the connection ends, and nobody listens until [`ScriptProxy::heal`].
    Leave,
}

/// Which scripts a trick is for.
#[derive(Debug, Clone)]
struct Order {
    trick: Trick,
    /// It is for scripts with this among their keys or arguments; for any if it is empty.
    part: String,
    /// Scripts that still pass before it.
    after: u64,
    /// Whether it is for all scripts from then on.
    all: bool,
}

#[derive(Debug, Default)]
struct State {
    order: Option<Order>,
    /// Scripts that the server has run.
    scripts: u64,
    /// Replies changed, eaten, held back or given in the server's place.
    played: u64,
    /// New connections are closed at once.
    away: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Grows with every heal: what is held back passes then.
    healed: watch::Sender<u64>,
}

/// The proxy; dropping it closes everything.
#[derive(Debug)]
pub struct ScriptProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl ScriptProxy {
    /// Listens on the test's own address and passes everything on to `upstream`.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(any_port()).await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared { state: Mutex::default(), healed: watch::Sender::new(0) });
        let accepted = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if !accepted.state.lock().away {
                    let shared = Arc::clone(&accepted);
                    open.spawn(async move {
                        let _ = carry(client, upstream, &shared).await;
                    });
                }
            }
        });
        Self { address, shared, accepting }
    }

    /// Where clients connect, as a store URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The script after the next `after` ones meets `trick`; those behind it pass.
    pub fn play(&self, trick: Trick, after: u64) {
        self.shared.state.lock().order = Some(Order { trick, part: String::new(), after, all: false });
    }

    /// The next script with `part` among its keys or arguments meets `trick`; all others pass.
    pub fn play_on(&self, trick: Trick, part: &str) {
        let part = part.to_owned();
        self.shared.state.lock().order = Some(Order { trick, part, after: 0, all: false });
    }

    /// Every script from now on meets `trick`.
    pub fn play_all(&self, trick: Trick) {
        self.shared.state.lock().order = Some(Order { trick, part: String::new(), after: 0, all: true });
    }

    /// Everything passes again, also what was held back.
    pub fn heal(&self) {
        let mut state = self.shared.state.lock();
        (state.order, state.away) = (None, false);
        drop(state);
        self.shared.healed.send_modify(|healed| *healed += 1);
    }

    /// Scripts that the server has run since the last time this was asked.
    pub fn scripts(&self) -> u64 {
        std::mem::take(&mut self.shared.state.lock().scripts)
    }

    /// How often a trick was played since the last time this was asked.
    pub fn played(&self) -> u64 {
        std::mem::take(&mut self.shared.state.lock().played)
    }
}

impl Drop for ScriptProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    /// The trick for the script at hand; `run` once the server has run it.
    fn trick(&self, request: &[u8], run: bool) -> Option<Trick> {
        let mut state = self.state.lock();
        let order = state.order.as_mut()?;
        let part = order.part.as_bytes();
        if !part.is_empty() && !request.windows(part.len()).any(|words| words == part) {
            return None;
        }
        let before = matches!(order.trick, Trick::Refuse(_) | Trick::Leave);
        if before == run {
            // Those that pass count once the server has run them.
            if run && order.after > 0 {
                order.after -= 1;
            }
            return None;
        }
        if order.after > 0 {
            if run {
                order.after -= 1;
            }
            return None;
        }
        let (trick, all) = (order.trick, order.all);
        if !all {
            state.order = None;
        }
        state.away |= trick == Trick::Leave;
        state.played += 1;
        Some(trick)
    }
}

async fn carry(client: TcpStream, upstream: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut client, mut server) = (BufReader::new(client), BufReader::new(server));
    loop {
        let mut request = Vec::new();
        read_frame(&mut client, &mut request).await?;
        if shared.state.lock().away {
            return Ok(());
        }
        let name = first_word(&request);
        let is_script = name == b"EVALSHA" || name == b"EVAL";
        let mut healed = shared.healed.subscribe();
        healed.mark_unchanged();
        match if is_script { shared.trick(&request, false) } else { None } {
            Some(Trick::Refuse(said)) => {
                client.write_all(said).await?;
                continue;
            }
            Some(_) => return Ok(()),
            None => {}
        }
        server.write_all(&request).await?;
        if name.ends_with(b"SUBSCRIBE") {
            // Messages come unasked from now on.
            tokio::io::copy_bidirectional(&mut client, &mut server).await?;
            return Ok(());
        }
        let mut reply = Vec::new();
        read_frame(&mut server, &mut reply).await?;
        // A server that does not know the script has not run it.
        if is_script && !reply.starts_with(b"-NOSCRIPT") {
            shared.state.lock().scripts += 1;
            match shared.trick(&request, true) {
                Some(Trick::Say(said)) => reply = said.to_vec(),
                Some(Trick::Delay) => {
                    let _ = healed.changed().await;
                }
                Some(_) => return Ok(()),
                None => {}
            }
        }
        client.write_all(&reply).await?;
    }
}

/// Appends one whole value of the protocol to `out`.
async fn read_frame(from: &mut BufReader<TcpStream>, out: &mut Vec<u8>) -> std::io::Result<()> {
    let mut values = 1;
    while values > 0 {
        values -= 1;
        let start = out.len();
        if from.read_until(b'\n', out).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&out[start..]).trim_end().to_owned();
        let count = || line.get(1..).and_then(|text| text.parse::<i64>().ok()).unwrap_or(-1);
        match line.as_bytes().first() {
            Some(b'$') if count() >= 0 => {
                let at = out.len();
                out.resize(at + usize::try_from(count()).unwrap_or(0) + 2, 0);
                from.read_exact(&mut out[at..]).await?;
            }
            Some(b'*') => values += count().max(0),
            _ => {}
        }
    }
    Ok(())
}

/// A command's name, in capitals.
fn first_word(request: &[u8]) -> Vec<u8> {
    request.split(|byte| *byte == b'\n').nth(2).unwrap_or_default().trim_ascii().to_ascii_uppercase()
}
