//! Redis and Valkey, 6.2 or newer: one server, a primary found by sentinels, or a cluster.
//!
//! | file | what it knows |
//! |---|---|
//! | `options`, `url` | what may be configured, and its spelling as a URL |
//! | `resp`, `wire` | the protocol, and one connection that many callers share |
//! | `dial`, `tls` | how a connection is made |
//! | `node` | one server: its connections by workload, reconnecting, the breaker |
//! | `sentinel`, `cluster`, `slot` | which server a call goes to |
//! | `call` | one call: sending, repeating, giving up |
//! | `fault` | what servers and networks say, as our codes |
//! | `ready`, `rights` | whether writes succeed now; what the user may run |
//! | `clock`, `pubsub`, `wait`, `piece`, `facts` | the rest of the contract |
//!
//! Connections are named `<client_name>:<workload>:<process id>`. Calls share connections; blocking waits and
//! subscriptions have their own.

mod call;
mod clock;
mod cluster;
mod dial;
mod facts;
mod fault;
mod node;
mod options;
mod others;
mod piece;
mod pubsub;
mod ready;
mod resp;
mod rights;
mod sentinel;
mod slot;
mod tls;
mod url;
mod wait;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::health::Counters;
use crate::redis::call::Route;
use crate::redis::clock::Clock;
use crate::redis::cluster::Cluster;
use crate::redis::dial::{Dialer, Place};
use crate::redis::node::{Node, Origin, Shared};
use crate::redis::pubsub::Hub;
use crate::redis::sentinel::Sentinels;
use crate::redis::wait::Waiters;
use crate::{
    Deployment, Engine, Health, Invocation, KeyFacts, Message, Readiness, Refused, Reply, Result, ScanCursor,
    ScanPage, Topology, Words, Workload,
};

pub use options::{
    Address, BreakerOptions, Credentials, Dedicated, PoolOptions, Pools, RedisOptions, Secret, Target,
    TlsFiles,
};

const CONNECT: &str = "store.connect";

/// A store on Redis or Valkey. Dropping it ends its background work and closes its connections.
#[derive(Debug)]
pub struct RedisStore {
    inner: Arc<Inner>,
    tasks: Mutex<Vec<AbortHandle>>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    route: Route,
    clock: Clock,
    hub: Arc<Hub>,
    waiters: Waiters,
}

impl RedisStore {
    /// Connects and measures the clock; fails within the deadline when the store cannot be reached, and at
    /// once when it does not want us.
    pub async fn connect(options: RedisOptions) -> Result<Self> {
        // Longer than any one step of it may take, so that the step's own error is the one reported.
        let limit = options.deadline + options.deadline / 10;
        match tokio::time::timeout(limit, Self::connect_in_time(options)).await {
            Ok(result) => result,
            Err(_) => Err(fault::Fault::timed_out("the store").before_sending().into_error(CONNECT)),
        }
    }

    async fn connect_in_time(options: RedisOptions) -> Result<Self> {
        let deadline = Instant::now() + options.deadline;
        for credentials in [&options.credentials, &options.sentinel_credentials] {
            credentials.check()?;
        }
        let tls = if options.tls { Some(tls::client_config(&options.tls_files)?) } else { None };
        let dialer =
            Dialer { tls: tls.clone(), credentials: options.credentials.clone(), database: options.database };
        let shared = Arc::new(Shared { options, dialer, counters: Counters::default() });
        let options = &shared.options;
        let single = |origin| Route::Single(Arc::new(Node::new(Arc::clone(&shared), origin)));
        let route = match &options.target {
            Target::Standalone(address) => single(Origin::Fixed(Place::Tcp(address.clone()))),
            Target::Unix(path) => single(Origin::Fixed(Place::Unix(path.clone()))),
            Target::Sentinel { sentinels, service } => single(Origin::Sentinels(Sentinels {
                addresses: sentinels.clone(),
                service: service.clone(),
                dialer: Dialer { tls, credentials: options.sentinel_credentials.clone(), database: 0 },
                name: shared.client_name(Workload::Default),
                timeout: options.pools.default.connect_timeout,
            })),
            Target::Cluster(seeds) => {
                let connecting = Cluster::connect(Arc::clone(&shared), seeds.clone());
                match tokio::time::timeout_at(deadline.into(), connecting).await {
                    Ok(cluster) => Route::Cluster(cluster.map_err(|fault| fault.into_error(CONNECT))?),
                    Err(_) => {
                        return Err(fault::Fault::timed_out("the cluster")
                            .before_sending()
                            .into_error(CONNECT));
                    }
                }
            }
        };
        if let Route::Single(node) = &route {
            node.live(Workload::Default, deadline).await.map_err(|fault| fault.into_error(CONNECT))?;
        }
        let waiters = Waiters::new(options.blocking_connections);
        let hub = Arc::new(Hub::default());
        let inner =
            Arc::new(Inner { shared: Arc::clone(&shared), route, clock: Clock::default(), hub, waiters });
        inner.check_server().await?;
        for _ in 0..3 {
            inner.time_us().await.map_err(|error| error.during(CONNECT))?;
        }
        let tend = tokio::spawn(tend(Arc::clone(&inner))).abort_handle();
        Ok(Self { inner, tasks: Mutex::new(vec![tend]) })
    }

    fn stop(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        self.inner.hub.stop();
        self.inner.waiters.clear();
        match &self.inner.route {
            Route::Single(node) => node.close(),
            Route::Cluster(cluster) => cluster.close(),
        }
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    async fn time_us(&self) -> Result<i64> {
        let (sent_us, sent) = (clock::node_us(), Instant::now());
        let reply = self.ask("store.time", &resp::words(["TIME"]), None).await?;
        let trip = sent.elapsed();
        let store_us = facts::time(&reply)?;
        self.clock.sample(sent_us, trip, store_us);
        Ok(store_us)
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        match &self.route {
            Route::Single(node) => vec![Arc::clone(node)],
            Route::Cluster(cluster) => {
                cluster.table().masters.iter().map(|(_, node)| Arc::clone(node)).collect()
            }
        }
    }
}

/// Keeps the clock's offset, and every connection, fresh: a connection that a firewall forgot is found here
/// and not by a call.
async fn tend(inner: Arc<Inner>) {
    let period = inner.shared.options.refresh.max(Duration::from_millis(10));
    let mut every = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        if let Err(error) = inner.time_us().await {
            tracing::debug!(%error, "the store's clock was not measured");
        }
        for node in inner.nodes() {
            node.tend().await;
        }
    }
}

impl Engine for RedisStore {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        Box::pin(async move { self.inner.run(&call).await })
    }

    fn time_us(&self) -> BoxFuture<'_, Result<i64>> {
        Box::pin(self.inner.time_us())
    }

    fn now_us(&self) -> i64 {
        self.inner.clock.now_us()
    }

    fn deadline(&self) -> Duration {
        self.inner.shared.options.deadline
    }

    fn topology(&self) -> Topology {
        match self.inner.route {
            Route::Single(_) => Topology::Single,
            Route::Cluster(_) => Topology::Cluster,
        }
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8]) -> BoxFuture<'a, Result<BoxStream<'static, Message>>> {
        Box::pin(Hub::subscribe(&self.inner, channel))
    }

    fn wait_for_item<'a>(&'a self, key: &'a [u8], limit: Duration) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.inner.wait_for_item(key, limit))
    }

    fn key_facts<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyFacts>>> {
        Box::pin(self.inner.key_facts(key))
    }

    fn write_piece<'a>(
        &'a self,
        key: &'a [u8],
        offset: u64,
        piece: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.inner.write_piece(key, offset, piece, ttl))
    }

    fn read_piece<'a>(&'a self, key: &'a [u8], offset: u64, length: usize) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(self.inner.read_piece(key, offset, length))
    }

    fn scan<'a>(
        &'a self,
        pattern: &'a [u8],
        count: usize,
        cursor: Option<ScanCursor>,
    ) -> BoxFuture<'a, Result<ScanPage>> {
        Box::pin(self.inner.scan(pattern, count, cursor))
    }

    fn health(&self) -> Health {
        let nodes = self.inner.nodes();
        let (clock_offset_us, clock_error_us) = self.inner.clock.offset();
        Health {
            connected: nodes.iter().any(|node| node.is_up()),
            breaker_open: nodes.iter().any(|node| node.breaker_open()),
            clock_offset_us,
            clock_error_us,
            ..self.inner.shared.counters.snapshot()
        }
    }

    fn ready(&self, patience: Duration) -> BoxFuture<'_, Result<Readiness>> {
        Box::pin(self.inner.ready(patience))
    }

    fn refused<'a>(&'a self, commands: &'a [Words]) -> BoxFuture<'a, Result<Option<Refused>>> {
        Box::pin(self.inner.refused(commands))
    }

    fn deployment(&self) -> BoxFuture<'_, Result<Deployment>> {
        Box::pin(self.inner.deployment())
    }

    fn other_processes(&self) -> BoxFuture<'_, Result<Option<Vec<String>>>> {
        Box::pin(self.inner.other_processes())
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.stop();
        Box::pin(std::future::ready(Ok(())))
    }
}
