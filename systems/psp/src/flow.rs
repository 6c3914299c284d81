//! The way of an operation: claim it, run it once, keep its answer, or give the answer somebody else got.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use quaymaster::Code;
use quaymaster::guard::{Enter, Entered, Leave};
use quaymaster::idempotency::{Begin, Begun};
use quaymaster::limit::Verdict;

use crate::answer::{Answer, Failure, How, Reply};
use crate::app::App;
use crate::hold::Point;
use crate::payments::Lease;

/// What running an operation came to.
#[must_use]
#[derive(Debug)]
pub(crate) enum Ran {
    /// It is done: the answer is kept and every repetition gets it.
    Done(Answer),
    /// Nothing was done: the next one is judged anew.
    Nothing(Reply),
    /// The lock was lost, and somebody with a higher fence may have been here: nothing was written.
    Stale(Reply),
}

/// An operation that must not run twice.
pub(crate) trait Operation: Sync {
    /// Its name in the schema.
    const NAME: &'static str;

    /// The placeholders of its keys.
    fn key(&self) -> Vec<(&'static str, &str)>;

    /// The same for the same request.
    fn fingerprint(&self) -> Vec<u8>;

    /// Runs it under a lease. Safe to run again: it finds what an earlier run did.
    fn run(&self, app: &App, lease: Lease<'_>) -> impl Future<Output = Result<Ran, Failure>> + Send;

    /// The answer of an operation that is done but whose answer nobody kept.
    fn recall(&self, app: &App) -> impl Future<Output = Result<Option<Answer>, Failure>> + Send;
}

/// For an operation that takes no lock, or its own.
pub(crate) const UNLOCKED: Lease<'static> = Lease { fence: None, is_lost: &|| false };

/// Times an operation is tried again because somebody took it over while it ran.
const TAKEN_OVER: usize = 3;

/// Runs an operation inside the guard of its name.
pub(crate) async fn guarded<O: Operation>(app: &App, operation: &O) -> Result<Reply, Failure> {
    let guard = app.quaymaster.guard(O::NAME)?;
    let (key, fingerprint) = (operation.key(), operation.fingerprint());
    let until = Instant::now() + app.wait;
    let mut taken_over = 0;
    loop {
        // One id an attempt: a reply lost on the way is asked for again, and finds this attempt's own claim.
        let id = request_id();
        let sent = Instant::now();
        let enter = Enter { fingerprint: Some(&fingerprint), request_id: Some(&id), ..Enter::default() };
        let pass = match guard.enter(&key, enter).await? {
            Entered::Entered(pass) => pass,
            Entered::Finished(replay) => return replayed(app, operation, replay.response.as_deref()).await,
            Entered::Mismatch => return Ok(mismatch(O::NAME)),
            Entered::Limited(verdicts) => return Ok(limited(&verdicts)),
            Entered::InProgress { retry_after } | Entered::Held { retry_after } => {
                if !rest(until, retry_after).await {
                    return Ok(in_flight(retry_after));
                }
                continue;
            }
        };
        app.hold.at(O::NAME, Point::Entered).await;
        // A fence made up without the store may be ahead of its clock, and would shut out later holders.
        let fence = pass.fence.filter(|_| pass.outage.is_none());
        // Counted from before the store was asked: the lease has not ended there while it lasts here.
        let ends = pass.lock_expires_in.filter(|_| pass.outage.is_none()).map(|lasts| sent + lasts);
        let is_lost = || ends.is_some_and(|ends| Instant::now() >= ends);
        let ran = operation.run(app, Lease { fence, is_lost: &is_lost }).await;
        let response = match &ran {
            Ok(Ran::Done(answer)) => Some(answer.to_bytes()),
            _ => None,
        };
        let leave =
            Leave { response: response.as_deref(), abandon: response.is_none(), request_id: Some(&id) };
        match guard.leave(&key, &pass.token, leave).await {
            Ok(left) => tracing::debug!(operation = O::NAME, ?left, "left"),
            // The claim ends by itself, and whoever comes then finds in SQL what was done here.
            Err(error) => tracing::warn!(operation = O::NAME, %error, "the guard could not be left"),
        }
        match ran? {
            // Also when the claim was lost: the answer is read from SQL, and so is that of whoever took over.
            Ran::Done(answer) => return Ok(Reply::new(answer, How::Ran).under(pass.outage)),
            Ran::Nothing(reply) => return Ok(reply.under(pass.outage)),
            Ran::Stale(reply) if taken_over == TAKEN_OVER => return Ok(reply),
            Ran::Stale(_) => taken_over += 1,
        }
    }
}

/// Runs an operation under the idempotency of its name.
pub(crate) async fn claimed<O: Operation>(app: &App, operation: &O) -> Result<Reply, Failure> {
    let idempotency = app.quaymaster.idempotency(O::NAME)?;
    let (key, fingerprint) = (operation.key(), operation.fingerprint());
    let id = request_id();
    let begin = Begin { fingerprint: Some(&fingerprint), wait: app.wait, request_id: Some(&id) };
    let claim = match idempotency.begin(&key, begin).await? {
        Begun::Started(claim) => claim,
        Begun::Finished(replay) => return replayed(app, operation, replay.response.as_deref()).await,
        Begun::Mismatch => return Ok(mismatch(O::NAME)),
        Begun::InProgress { retry_after } => return Ok(in_flight(retry_after)),
    };
    let ran = operation.run(app, UNLOCKED).await;
    let settled = match &ran {
        Ok(Ran::Done(answer)) => {
            let finished = idempotency.finish(&key, &claim.token, Some(&answer.to_bytes())).await;
            finished.map(|finished| tracing::debug!(operation = O::NAME, ?finished, "settled"))
        }
        _ => {
            let abandoned = idempotency.abandon(&key, &claim.token, Some(&id)).await;
            abandoned.map(|abandoned| tracing::debug!(operation = O::NAME, ?abandoned, "settled"))
        }
    };
    if let Err(error) = settled {
        // The claim ends by itself, and whoever comes then finds in SQL what was done here.
        tracing::warn!(operation = O::NAME, %error, "the claim could not be settled");
    }
    Ok(match ran? {
        Ran::Done(answer) => Reply::new(answer, How::Ran).under(claim.outage),
        Ran::Nothing(reply) | Ran::Stale(reply) => reply.under(claim.outage),
    })
}

/// The answer that was kept, or, where an older program kept only that it is done, what SQL knows of it.
async fn replayed<O: Operation>(app: &App, operation: &O, kept: Option<&[u8]>) -> Result<Reply, Failure> {
    let answer = match kept.and_then(Answer::from_bytes) {
        Some(answer) => Some(answer),
        None => operation.recall(app).await?,
    };
    Ok(match answer {
        Some(answer) => Reply::new(answer, How::Replayed),
        None => Reply::refused(
            StatusCode::CONFLICT,
            Code::IdempotencyDone.name(),
            "this was done by a program that kept no answer, and there is no such payment here",
        ),
    })
}

fn mismatch(operation: &str) -> Reply {
    let detail = format!("{operation}: this id was used for another request");
    Reply::refused(StatusCode::UNPROCESSABLE_ENTITY, Code::IdempotencyOther.name(), detail)
}

pub(crate) fn in_flight(retry_after: Duration) -> Reply {
    let detail = "the same is being done by another call; ask again for its answer";
    Reply::refused(StatusCode::CONFLICT, Code::IdempotencyBusy.name(), detail).after(Some(retry_after))
}

fn limited(verdicts: &[Verdict]) -> Reply {
    let refused: Vec<Option<Duration>> =
        verdicts.iter().filter(|verdict| !verdict.is_allowed()).map(Verdict::retry_after).collect();
    // All must pass: the last one to open decides.
    let wait = refused.iter().copied().collect::<Option<Vec<_>>>().and_then(|waits| waits.into_iter().max());
    let detail = "too many calls; nothing was done and nothing was counted";
    Reply::refused(StatusCode::TOO_MANY_REQUESTS, "limit.limited", detail).after(wait)
}

/// Waits a little before the guard is asked again; false when `until` comes first.
async fn rest(until: Instant, retry_after: Duration) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let nap = retry_after.min(Duration::from_millis(fastrand::u64(20..80)));
    tokio::time::sleep(nap.min(left)).await;
    nap <= left
}

fn request_id() -> String {
    format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..))
}
