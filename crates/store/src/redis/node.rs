//! One server and the connections to it, by workload. A connection that is lost is made again by the
//! node's supervisor, one dial at a time, with the backoff of the options.
//!
//! The breaker is consulted only where a connection is missing: a node that cannot be used always loses its
//! connections, so the way of a healthy call does not pass it. The supervisor's next dial, which ends with a
//! PING, is the probe that closes it again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::health::Counters;
use crate::redis::dial::{Dial, Dialer, Live, Place};
use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::options::RedisOptions;
use crate::redis::resp::words;
use crate::redis::sentinel::Sentinels;
use crate::{Code, Workload};

/// What every node of a store shares.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: RedisOptions,
    pub(super) dialer: Dialer,
    pub(super) counters: Counters,
}

impl Shared {
    /// The name of a connection, `quaymaster:queue:4711`; spaces are not allowed in one.
    pub(super) fn client_name(&self, workload: Workload) -> String {
        let prefix: String =
            self.options.client_name.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
        format!("{prefix}:{}:{}", workload.name(), std::process::id())
    }
}

/// How a node is found.
#[derive(Debug)]
pub(super) enum Origin {
    /// Always there.
    Fixed(Place),
    /// Where the sentinels say.
    Sentinels(Sentinels),
}

#[derive(Debug, Default)]
struct Link {
    current: ArcSwapOption<Live>,
    wanted: AtomicBool,
}

/// A server; dropping it closes its connections.
#[derive(Debug)]
pub(super) struct Node {
    core: Arc<Core>,
    supervisor: AbortHandle,
}

#[derive(Debug)]
struct Core {
    shared: Arc<Shared>,
    origin: Origin,
    links: [Box<[Link]>; Workload::ALL.len()],
    wake: Notify,
    /// Counts dials that ended, well or not.
    dials: watch::Sender<u64>,
    fault: Mutex<Option<Fault>>,
    failures: AtomicU32,
    /// A connection was given up right after it was made: a replica answers every dial and no write.
    hasty: AtomicBool,
    closed: AtomicBool,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.supervisor.abort();
        self.core.drop_links();
    }
}

impl Node {
    pub(super) fn new(shared: Arc<Shared>, origin: Origin) -> Self {
        let links = Workload::ALL.map(|workload| {
            (0..shared.options.pools.of(workload).size.max(1)).map(|_| Link::default()).collect()
        });
        let core = Arc::new(Core {
            shared,
            origin,
            links,
            wake: Notify::new(),
            dials: watch::Sender::new(0),
            fault: Mutex::new(None),
            failures: AtomicU32::new(0),
            hasty: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        let supervisor = tokio::spawn(supervise(Arc::clone(&core))).abort_handle();
        Self { core, supervisor }
    }

    /// A connection of this workload; waits for one until `until`, unless the breaker is open.
    pub(super) async fn live(&self, workload: Workload, until: Instant) -> Result<Arc<Live>, Fault> {
        let core = &self.core;
        let pool = core.links_of(workload);
        // The least busy one. Callers answered together then write together, on the connection they were
        // answered on, while the server works on the others: half as many reads and writes as in turn.
        let mut best: Option<Arc<Live>> = None;
        for link in pool {
            match link.usable() {
                Some(live) => {
                    let busy = live.wire.in_flight();
                    if best.as_ref().is_none_or(|best| busy < best.wire.in_flight()) {
                        best = Some(live);
                    }
                }
                None => core.want(link),
            }
        }
        match best {
            Some(live) => Ok(live),
            None => core.wait_for(&pool[0], until).await,
        }
    }

    /// A connection, if there is one already.
    pub(super) fn live_now(&self, workload: Workload) -> Option<Arc<Live>> {
        self.core.links_of(workload).iter().find_map(Link::usable)
    }

    /// A call on this connection failed in a way that makes the connection worthless.
    pub(super) fn lose(&self, live: &Arc<Live>, fault: &Fault) {
        let core = &self.core;
        // These are properties of the server, not of the connection: every other one leads to it as well.
        let whole_server = matches!(fault.code, Code::StoreReadOnly | Code::StoreLoading);
        let mut was_current = false;
        for link in core.links.iter().flatten() {
            let current = link.current.load();
            if current.as_ref().is_some_and(|current| whole_server || Arc::ptr_eq(current, live)) {
                link.current.store(None);
                was_current = true;
            }
        }
        // One lost connection fails many calls at once and is one failure; every unanswered call is its own.
        if was_current || fault.code == Code::StoreTimedOut {
            core.failures.fetch_add(1, Relaxed);
            *core.fault.lock() = Some(fault.clone());
        }
        if was_current && live.wire.age() < core.shared.options.backoff.base {
            core.hasty.store(true, Relaxed);
        }
        core.wake.notify_one();
    }

    /// The same for a fault that a look at the server found. Another connection to the same address would lead to the
    /// same server; sentinels may name another one.
    pub(super) fn lose_found(&self, live: &Arc<Live>, fault: &Fault) {
        if fault.then == Then::Redial && matches!(self.core.origin, Origin::Sentinels(_)) {
            self.lose(live, fault);
        }
    }

    /// Something was answered.
    pub(super) fn answered(&self) {
        if self.core.failures.load(Relaxed) != 0 {
            self.core.failures.store(0, Relaxed);
        }
    }

    /// Whether calls without a connection fail at once.
    pub(super) fn breaker_open(&self) -> bool {
        self.core.breaker_open()
    }

    /// Whether any connection is up.
    pub(super) fn is_up(&self) -> bool {
        self.core.links.iter().flatten().any(|link| link.usable().is_some())
    }

    /// All connections that are up.
    pub(super) fn all_live(&self) -> Vec<Arc<Live>> {
        self.core.links.iter().flatten().filter_map(Link::usable).collect()
    }

    /// Pings every connection, and asks the sentinels whether the primary is still the primary.
    pub(super) async fn tend(&self) {
        let core = &self.core;
        let timeout = core.shared.options.pools.default.response_timeout;
        let primary = match &core.origin {
            Origin::Sentinels(sentinels) => sentinels.primary().await.ok().map(Place::Tcp),
            Origin::Fixed(_) => None,
        };
        join_all(self.all_live().into_iter().map(|live| {
            let primary = &primary;
            async move {
                if primary.as_ref().is_some_and(|primary| *primary != live.place) {
                    let detail = format!("the sentinels name another primary than {}", live.place);
                    self.lose(&live, &Fault::new(Code::StoreReadOnly, Ran::No, Then::Redial, detail));
                    return;
                }
                let asked = Instant::now();
                if let Err(fault) = live.send(&words(["PING"]), asked + timeout).await
                    && fault.then == Then::Redial
                    && !live.wire.heard_since(asked)
                {
                    self.lose(&live, &fault);
                }
            }
        }))
        .await;
    }

    /// Where it is; with sentinels this asks them.
    pub(super) async fn place(&self) -> Result<Place, Fault> {
        self.core.place().await
    }

    /// Closes all connections; those in use end with their last call.
    pub(super) fn close(&self) {
        self.supervisor.abort();
        self.core.drop_links();
    }
}

impl Link {
    fn usable(&self) -> Option<Arc<Live>> {
        self.current.load_full().filter(|live| !live.wire.is_closed())
    }
}

impl Core {
    /// The connections that carry calls of this workload.
    fn links_of(&self, workload: Workload) -> &[Link] {
        &self.links[self.shared.options.pools.serving(workload) as usize]
    }

    fn breaker_open(&self) -> bool {
        self.failures.load(Relaxed) >= self.shared.options.breaker.failures.max(1)
    }

    fn drop_links(&self) {
        self.closed.store(true, Relaxed);
        self.dials.send_modify(|count| *count += 1);
        for link in self.links.iter().flatten() {
            link.wanted.store(false, Relaxed);
            link.current.store(None);
        }
    }

    /// Has a connection made where none is.
    fn want(&self, link: &Link) {
        if !link.wanted.swap(true, Relaxed) {
            self.wake.notify_one();
        }
    }

    async fn wait_for(&self, link: &Link, until: Instant) -> Result<Arc<Live>, Fault> {
        let mut dials = self.dials.subscribe();
        link.wanted.store(true, Relaxed);
        self.wake.notify_one();
        if self.breaker_open() {
            let cause = self.fault.lock().as_ref().map(|fault| fault.detail.clone()).unwrap_or_default();
            return Err(Fault::new(Code::StoreBreaker, Ran::No, Then::Report, cause));
        }
        loop {
            if self.closed.load(Relaxed) {
                return Err(Fault::new(Code::StoreRefused, Ran::No, Then::Report, "the store was closed"));
            }
            if let Some(live) = link.usable() {
                return Ok(live);
            }
            let waited = tokio::time::timeout_at(until.into(), dials.changed()).await;
            let last = self.fault.lock().clone();
            match (waited, last) {
                (Ok(_), Some(fault)) if fault.then == Then::Report || self.breaker_open() => {
                    return Err(fault.before_sending());
                }
                (Ok(_), _) => {}
                (Err(_), Some(fault)) => return Err(fault.before_sending()),
                (Err(_), None) => return Err(Fault::timed_out("the store while connecting").before_sending()),
            }
        }
    }

    async fn place(&self) -> Result<Place, Fault> {
        match &self.origin {
            Origin::Fixed(place) => Ok(place.clone()),
            Origin::Sentinels(sentinels) => sentinels.primary().await.map(Place::Tcp),
        }
    }

    fn missing(&self) -> Vec<(Workload, usize)> {
        let mut missing = Vec::new();
        for workload in Workload::ALL {
            for (index, link) in self.links[workload as usize].iter().enumerate() {
                if link.wanted.load(Relaxed) && link.usable().is_none() {
                    missing.push((workload, index));
                }
            }
        }
        missing
    }

    async fn dial(self: &Arc<Self>, workload: Workload, index: usize) -> Result<(), Fault> {
        self.shared.counters.connect_attempt();
        let result = self.connect(workload).await;
        match result {
            Ok(live) => {
                self.links[workload as usize][index].current.store(Some(Arc::new(live)));
                *self.fault.lock() = None;
                self.failures.store(0, Relaxed);
                self.dials.send_modify(|count| *count += 1);
                Ok(())
            }
            Err(fault) => {
                self.shared.counters.connect_failure();
                *self.fault.lock() = Some(fault.clone());
                self.failures.fetch_add(1, Relaxed);
                self.dials.send_modify(|count| *count += 1);
                Err(fault)
            }
        }
    }

    async fn connect(self: &Arc<Self>, workload: Workload) -> Result<Live, Fault> {
        let place = self.place().await?;
        let core: Weak<Core> = Arc::downgrade(self);
        let ended = move || {
            if let Some(core) = core.upgrade() {
                core.wake.notify_one();
            }
        };
        let dial = Dial {
            place: &place,
            name: &self.shared.client_name(workload),
            timeout: self.shared.options.pools.of(workload).connect_timeout,
            pushes: None,
        };
        let live = self.shared.dialer.dial(dial, ended).await?;
        if let Origin::Sentinels(sentinels) = &self.origin {
            sentinels.check_role(&live).await?;
        }
        Ok(live)
    }
}

/// Makes missing connections until the node is dropped.
async fn supervise(core: Arc<Core>) {
    let mut attempt = 0;
    loop {
        let missing = core.missing();
        let Some(((workload, index), rest)) = missing.split_first() else {
            core.wake.notified().await;
            continue;
        };
        if core.hasty.swap(false, Relaxed) {
            tokio::time::sleep(core.shared.options.backoff.delay(1)).await;
        }
        match core.dial(*workload, *index).await {
            Ok(()) => {
                attempt = 0;
                join_all(rest.iter().map(|(workload, index)| core.dial(*workload, *index))).await;
            }
            Err(fault) => {
                attempt += 1;
                let mut pause = core.shared.options.backoff.delay(attempt);
                if core.breaker_open() {
                    pause = pause.min(core.shared.options.breaker.cool_down);
                }
                // Whoever looks whether the store can be used says once that it cannot.
                tracing::debug!(attempt, code = %fault.code, pause_ms = pause.as_millis() as u64, detail = %fault.detail,
                    "the store cannot be reached");
                tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
            }
        }
    }
}
