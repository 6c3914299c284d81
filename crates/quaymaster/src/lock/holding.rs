//! A lease that renews itself, and tells its holder the moment it is lost.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use quaymaster_schema::Outage;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Acquire, Acquired, Lock, Released, Renewed, ops};
use crate::bound::Key;
use crate::{Code, Error, Result, Token};

/// The answer of `hold`.
#[must_use = "without the holding nothing is locked"]
#[derive(Debug)]
pub enum Hold {
    /// The lock is ours until the holding is released, dropped or lost.
    Ours(Holding),
    /// Somebody else has it, or is next.
    Held {
        /// When asking again can help.
        retry_after: Duration,
        /// The holder, if it gave its name.
        owner: Option<String>,
    },
}

/// A lock we hold, renewed every third of its lease by a task of its own.
///
/// It is lost when the store says so, or when the lease would have ended by this process's clock, counted
/// from before the last renewal that was confirmed was sent: whichever comes first. The clock decides also
/// in a process that was stopped and goes on, before anything was asked. Dropping it gives the lock back as
/// far as the store can be reached; [`Holding::release`] tells whether it was ours to the end.
#[derive(Debug)]
#[must_use = "dropping it gives the lock back"]
pub struct Holding {
    lock: Lock,
    key: Vec<(String, String)>,
    token: Token,
    fence: u64,
    outage: Option<Outage>,
    state: Arc<State>,
    renewer: JoinHandle<()>,
    runtime: Handle,
    released: bool,
}

#[derive(Debug)]
struct State {
    began: Instant,
    /// When the lease ends by our clock, in microseconds after `began`.
    ends_us: AtomicU64,
    lost: watch::Sender<bool>,
}

impl State {
    /// The lease begins anew: it lasts `ttl` from `sent`.
    fn confirm(&self, sent: Instant, ttl: Duration) {
        let ends = sent.saturating_duration_since(self.began) + ttl;
        self.ends_us.store(u64::try_from(ends.as_micros()).unwrap_or(u64::MAX), SeqCst);
    }

    fn ends(&self) -> Instant {
        self.began + Duration::from_micros(self.ends_us.load(SeqCst))
    }

    fn is_lost(&self) -> bool {
        *self.lost.borrow() || Instant::now() >= self.ends()
    }
}

pub(super) async fn hold(lock: &Lock, key: Key<'_>, how: Acquire<'_>) -> Result<Hold> {
    if how.request_id.is_some() {
        let detail = "request_id: a holding is not shared; use acquire";
        return Err(Error::new(ops::ACQUIRE, Code::RequestInvalid, detail).field("request_id"));
    }
    // A wait that ends in the lock ends with an attempt sent later than this: what is counted from here
    // would end too early. So the lock is renewed at once when it was waited for.
    let mut sent = Instant::now();
    let mut lease = match lock.acquire(key, how).await? {
        Acquired::Held { retry_after, owner } => return Ok(Hold::Held { retry_after, owner }),
        Acquired::Ours(lease) => lease,
    };
    // From here on the lease is ours: whoever drops this future, or fails below, gives it back.
    let mut unheld = Unheld { lock, key, token: Some(lock.in_store(key, &lease.token)) };
    if sent.elapsed() > lease.expires_in / 3 && lease.outage.is_none() {
        let again = Instant::now();
        match lock.renew(key, &lease.token, how.ttl).await? {
            Renewed::Ours(renewed) => (sent, lease) = (again, renewed),
            Renewed::Lost => return Ok(Hold::Held { retry_after: Duration::from_millis(1), owner: None }),
        }
    }
    let state = Arc::new(State { began: sent, ends_us: AtomicU64::new(0), lost: watch::Sender::new(false) });
    state.confirm(sent, lease.expires_in);
    let key: Vec<(String, String)> =
        key.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let renewing = Renewing {
        lock: lock.clone(),
        key: key.clone(),
        token: lease.token.clone(),
        ttl: lease.expires_in,
        state: state.clone(),
    };
    let renewer = tokio::spawn(renewing.run(sent));
    unheld.token = None;
    Ok(Hold::Ours(Holding {
        lock: lock.clone(),
        key,
        token: lease.token,
        fence: lease.fence,
        outage: lease.outage,
        state,
        renewer,
        runtime: Handle::current(),
        released: false,
    }))
}

/// A lease that nobody holds yet. Dropped with its token it is given back.
struct Unheld<'a> {
    lock: &'a Lock,
    key: Key<'a>,
    token: Option<Token>,
}

impl Drop for Unheld<'_> {
    fn drop(&mut self) {
        let (Some(token), Ok(runtime)) = (self.token.take(), Handle::try_current()) else { return };
        give_back(self.lock, self.key, &token, &runtime);
    }
}

/// Releases in the background, as far as the store can be reached.
fn give_back(lock: &Lock, key: Key<'_>, token: &Token, runtime: &Handle) {
    let Ok(call) = ops::release(&lock.bound, &lock.spec, key, token, None) else { return };
    let engine = lock.bound.engine.clone();
    runtime.spawn(async move { engine.run(call).await });
}

impl Holding {
    /// The fence of this lease; see [`super::Lease::fence`].
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Proves that the lease is ours.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Set when a policy answered for a store that could not be asked.
    pub fn outage(&self) -> Option<Outage> {
        self.outage
    }

    /// Whether the lease has ended, as far as can be known here. `false` is a matter of the moment: what
    /// must not happen twice is fenced by [`Holding::fence`].
    pub fn is_lost(&self) -> bool {
        self.state.is_lost()
    }

    /// Ends when the lease is lost; for a `select!` beside the work.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lost = self.state.lost.subscribe();
        async move {
            // The sender goes only with the holding, and then there is nothing left to lose.
            let _ = lost.wait_for(|lost| *lost).await;
        }
    }

    /// Gives the lock back; tells whether it was ours until now.
    pub async fn release(mut self) -> Result<Released> {
        self.renewer.abort();
        self.released = true;
        let key: Vec<(&str, &str)> = self.key.iter().map(|(name, value)| (&**name, &**value)).collect();
        let answer = self.lock.release(&key, &self.token, None).await;
        // Not known whether it ran: the drop tries once more, and changes nothing if it did.
        self.released = answer.is_ok();
        answer
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.renewer.abort();
        if self.released {
            return;
        }
        let key: Vec<(&str, &str)> = self.key.iter().map(|(name, value)| (&**name, &**value)).collect();
        give_back(&self.lock, &key, &self.lock.in_store(&key, &self.token), &self.runtime);
    }
}

/// The task that renews.
struct Renewing {
    lock: Lock,
    key: Vec<(String, String)>,
    token: Token,
    ttl: Duration,
    state: Arc<State>,
}

impl Renewing {
    async fn run(self, mut sent: Instant) {
        loop {
            tokio::time::sleep_until((sent + self.ttl / 3).into()).await;
            let Some(confirmed) = self.renew().await else { break };
            sent = confirmed;
        }
        tracing::warn!(lock = self.lock.name(), "a lease was lost while its holder was at work");
        self.state.lost.send_replace(true);
    }

    /// Renews until it is confirmed; `None` when the lease was lost before. Answers when the confirmed call
    /// was sent.
    async fn renew(&self) -> Option<Instant> {
        let key: Vec<(&str, &str)> = self.key.iter().map(|(name, value)| (&**name, &**value)).collect();
        loop {
            if self.state.is_lost() {
                return None;
            }
            let sent = Instant::now();
            let call = self.lock.renew(&key, &self.token, Some(self.ttl));
            match tokio::time::timeout_at(self.state.ends().into(), call).await {
                Ok(Ok(Renewed::Ours(lease))) if lease.outage.is_none() => {
                    self.state.confirm(sent, lease.expires_in);
                    return Some(sent);
                }
                Ok(Ok(Renewed::Lost)) | Err(_) => return None,
                // The store may come back before the lease ends. What a policy says meanwhile confirms nothing.
                Ok(Ok(Renewed::Ours(_)) | Err(_)) => {
                    let pause = Instant::now() + self.ttl / 10;
                    tokio::time::sleep_until(pause.min(self.state.ends()).into()).await;
                }
            }
        }
    }
}
