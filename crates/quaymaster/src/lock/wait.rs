//! Waiting for a lock: woken by its release or its lease's end, in the order of arrival.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use quaymaster_schema::Outage;
use tokio::time::Instant;

use super::answer::{self, Told};
use super::ops::{self, Queue};
use super::{Acquire, Acquired, Lock, keys};
use crate::bound::Key;
use crate::outage::is_outage;
use crate::wake::{Wake, Woken};
use crate::{Error, Result, Token};

/// A waiter asks again at least so often; the store gives it three times as long before it counts as dead.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What a hint carries: the end of the token whose turn it is.
const HINT_CHARS: usize = 8;

pub(super) async fn acquire(
    lock: &Lock,
    key: Key<'_>,
    token: &Token,
    ttl: Duration,
    how: Acquire<'_>,
) -> Result<Acquired> {
    let until = Instant::now() + how.wait;
    let mut attempt = Attempt { lock, key, token, only_ours: how.request_id.is_none(), state: State::Asking };
    // Who finds the lock free pays for no subscription.
    let mut told = attempt.ask(ttl, Queue::No).await?;
    let mut wake: Option<Wake> = None;
    loop {
        let (left, place, owner) = match told {
            Told::Ours(lease) => {
                attempt.end();
                return Ok(Acquired::Ours(lease));
            }
            Told::Held { left, place, owner } => (left, place, owner),
        };
        if Instant::now() >= until {
            attempt.leave().await;
            return Ok(Acquired::Held { retry_after: left, owner });
        }
        match &mut wake {
            // Listening comes before the question, so that a release in between is heard.
            None => {
                let channel = keys::channel(ops::ACQUIRE, &lock.bound, key)?;
                wake = match Wake::on(&*lock.bound.engine, &channel).await {
                    Ok(wake) => Some(wake),
                    Err(error) => return attempt.known(error.during(ops::ACQUIRE), left, owner),
                };
                attempt.join();
            }
            Some(wake) => turn(wake, token, nap(left, place), until).await,
        }
        told = match attempt.ask(ttl, Queue::Join).await {
            Err(error) => return attempt.known(error, left, owner),
            Ok(told) => told,
        };
    }
}

/// How long to sleep without a hint. The head asks when the lease ends. The others need not, and are spread
/// so that they do not come all at once.
fn nap(left: Duration, place: i64) -> Duration {
    if place == 0 {
        // The lease's last millisecond still belongs to its holder.
        return (left + Duration::from_millis(1)).min(ASK_AGAIN);
    }
    ASK_AGAIN.mul_f64(0.7 + 0.3 * fastrand::f64())
}

/// Sleeps until it may be our turn: a hint for us, hints that were missed, the end of `nap` or of the wait.
async fn turn(wake: &mut Wake, token: &Token, nap: Duration, until: Instant) {
    let end = (Instant::now() + nap).min(until);
    let text = token.as_str().as_bytes();
    let name = &text[text.len().saturating_sub(HINT_CHARS)..];
    loop {
        match wake.wait(end.saturating_duration_since(Instant::now())).await {
            Woken::Hint(hint) if &hint[..] != name => {}
            Woken::Hint(_) | Woken::Missed | Woken::Time => return,
        }
    }
}

/// How far an attempt has come: what must be put right when its future is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Asking,
    Waiting,
    Ended,
}

/// One attempt to get the lock. Dropped half-way it leaves the queue, and gives back the lock that it may
/// just have been granted.
struct Attempt<'a> {
    lock: &'a Lock,
    key: Key<'a>,
    token: &'a Token,
    /// Nobody else can derive this token: the lease under it may be given back.
    only_ours: bool,
    state: State,
}

impl Attempt<'_> {
    async fn ask(&self, ttl: Duration, queue: Queue) -> Result<Told> {
        let Lock { bound, spec, .. } = self.lock;
        let call = ops::acquire(bound, spec, self.key, self.token, ttl, queue)?;
        answer::acquired(ops::ACQUIRE, bound.run(ops::ACQUIRE, call).await?, self.token)
    }

    /// What is known stays known: somebody has it, and no policy hands it out beside them.
    fn known(&self, error: Error, retry_after: Duration, owner: Option<String>) -> Result<Acquired> {
        if is_outage(error.code) && self.lock.bound.resource.on_outage == Outage::Allow {
            return Ok(Acquired::Held { retry_after, owner });
        }
        Err(error)
    }

    fn join(&mut self) {
        self.lock.counts.waiting.fetch_add(1, Relaxed);
        self.state = State::Waiting;
    }

    fn end(&mut self) {
        if self.state == State::Waiting {
            self.lock.counts.waiting.fetch_sub(1, Relaxed);
        }
        self.state = State::Ended;
    }

    /// Gives up. Whether it can be told does not change the answer: a waiter that does not ask is dropped.
    async fn leave(&mut self) {
        if self.state == State::Waiting
            && let Ok(call) = ops::leave(&self.lock.bound, self.key, self.token)
        {
            let _ = self.lock.bound.run(ops::LEAVE, call).await;
        }
        self.end();
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let state = self.state;
        self.end();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let Lock { bound, spec, .. } = self.lock;
        let release = (state != State::Ended && self.only_ours)
            .then(|| ops::release(bound, spec, self.key, self.token, None));
        let leave = (state == State::Waiting).then(|| ops::leave(bound, self.key, self.token));
        let calls: Vec<_> = release.into_iter().chain(leave).flatten().collect();
        if calls.is_empty() {
            return;
        }
        let engine = bound.engine.clone();
        runtime.spawn(async move {
            for call in calls {
                let _ = engine.run(call).await;
            }
        });
    }
}
