//! Who owns an upload: claims to complete or to end it, and their leases.

use std::time::Duration;

use super::Ledger;
use super::connection::Session;
use super::facts::{Claim, Fence, Moved, Step, Upload};
use super::rows::after;
use crate::Result;

/// What somebody wants an upload for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Complete,
    Expire,
    Abort,
}

impl Ledger {
    /// Takes the completion of an upload whose parts are all recorded, or takes it over where a lapsed owner left it:
    /// the step of the upload says what is done already.
    pub async fn begin_completion(&self, upload_id: &str, owner: &str, lease: Duration) -> Result<Claim> {
        self.claim("ledger.begin_completion", upload_id, owner, lease, Aim::Complete).await
    }

    /// Takes an upload that is past its deadline, to look at its object and abort its multipart upload.
    ///
    /// One whose parts are all recorded is completed instead, however late: [`Claim::Elsewhere`].
    pub async fn expire(&self, upload_id: &str, owner: &str, lease: Duration) -> Result<Claim> {
        self.claim("ledger.expire", upload_id, owner, lease, Aim::Expire).await
    }

    /// Takes an upload that its client calls off. Too late once its completion began: [`Claim::Elsewhere`].
    pub async fn abort(&self, upload_id: &str, owner: &str, lease: Duration) -> Result<Claim> {
        self.claim("ledger.abort", upload_id, owner, lease, Aim::Abort).await
    }

    async fn claim(
        &self,
        op: &'static str,
        upload_id: &str,
        owner: &str,
        lease: Duration,
        aim: Aim,
    ) -> Result<Claim> {
        self.database.bounded(op, self.try_claim(upload_id, owner, lease, aim)).await
    }

    async fn try_claim(&self, upload_id: &str, owner: &str, lease: Duration, aim: Aim) -> Result<Claim> {
        let mut session = self.database.begin().await?;
        let Some(was) = session.lock(upload_id).await? else {
            session.roll_back().await?;
            return Ok(Claim::Unknown);
        };
        let now_ms = session.now_ms().await?;
        match judge(&mut session, &was, owner, now_ms, aim).await? {
            Judged::Answer(answer) => {
                session.roll_back().await?;
                Ok(answer)
            }
            Judged::Take(step) => {
                let lease_ms = after(now_ms, lease);
                let now = Upload {
                    step,
                    fence: was.fence + 1,
                    owner: owner.to_owned(),
                    lease_ms,
                    due_ms: lease_ms,
                    updated_ms: now_ms,
                    ..was.clone()
                };
                let what = if was.step == step { "taken over" } else { step.name() };
                let from =
                    format!("from {}", if was.step == step { was.owner.as_str() } else { was.step.name() });
                // Whoever let go of it for a reason said so; that it is tried again is no news.
                let again = was.step == step && was.error.is_some() && was.lease_ms == was.updated_ms;
                let moved = if again {
                    session.put(&was, &now).await?;
                    session.commit().await?;
                    Moved::Moved(Box::new(now))
                } else {
                    session.move_on(&was, now, what, &from).await?
                };
                Ok(match moved {
                    Moved::Moved(now) => Claim::Ours(now.fence(), now),
                    Moved::Lost(now) => Claim::Elsewhere(now),
                    Moved::Unknown => Claim::Unknown,
                })
            }
        }
    }

    /// Prolongs a lease. `Lost` means: stop, somebody else has it.
    pub async fn renew(&self, fence: &Fence, lease: Duration) -> Result<Moved> {
        self.database
            .bounded("ledger.renew", async {
                let mut session = self.database.begin().await?;
                let Some(was) = session.lock(&fence.upload_id).await? else {
                    session.roll_back().await?;
                    return Ok(Moved::Unknown);
                };
                if was.fence != fence.number || !was.step.is_owned() {
                    session.roll_back().await?;
                    return Ok(Moved::Lost(Box::new(was)));
                }
                let now_ms = session.now_ms().await?;
                let lease_ms = after(now_ms, lease);
                let now = Upload { lease_ms, due_ms: lease_ms, updated_ms: now_ms, ..was.clone() };
                session.put(&was, &now).await?;
                session.commit().await?;
                Ok(Moved::Moved(Box::new(now)))
            })
            .await
    }

    /// Lets an owned upload go before its lease ends: a sweep that comes `wait` from now finds it.
    pub async fn release(&self, fence: &Fence, wait: Duration, why: &str) -> Result<Moved> {
        self.database
            .bounded("ledger.release", async {
                let mut session = self.database.begin().await?;
                let Some(was) = session.lock(&fence.upload_id).await? else {
                    session.roll_back().await?;
                    return Ok(Moved::Unknown);
                };
                if was.fence != fence.number || !was.step.is_owned() {
                    session.roll_back().await?;
                    return Ok(Moved::Lost(Box::new(was)));
                }
                let now_ms = session.now_ms().await?;
                let error = if why.is_empty() { was.error.clone() } else { Some(why.to_owned()) };
                let now = Upload {
                    lease_ms: now_ms,
                    due_ms: after(now_ms, wait),
                    error,
                    updated_ms: now_ms,
                    ..was.clone()
                };
                // Told once for each reason: what is tried every minute for days has no history of thousands of lines.
                if now.error.is_some() && now.error == was.error {
                    session.put(&was, &now).await?;
                    session.commit().await?;
                    return Ok(Moved::Moved(Box::new(now)));
                }
                session.move_on(&was, now, "released", why).await
            })
            .await
    }
}

/// Whether it was given up for nothing but its deadline.
fn is_late(upload: &Upload) -> bool {
    upload.error.as_deref().is_some_and(crate::complete::is_late)
}

enum Judged {
    Take(Step),
    Answer(Claim),
}

async fn judge(
    session: &mut Session<'_>,
    was: &Upload,
    owner: &str,
    now_ms: i64,
    aim: Aim,
) -> Result<Judged> {
    let elsewhere = || Judged::Answer(Claim::Elsewhere(Box::new(was.clone())));
    if was.step.is_owned() {
        let ending = matches!(was.step, Step::Expiring | Step::Aborting);
        return Ok(if ending != (aim != Aim::Complete) {
            elsewhere()
        } else if was.lease_ms > now_ms && was.owner == owner {
            // The answer to the same claim was lost.
            Judged::Answer(Claim::Ours(was.fence(), Box::new(was.clone())))
        } else if was.lease_ms > now_ms {
            Judged::Answer(Claim::Taken { owner: was.owner.clone(), until_ms: was.lease_ms })
        } else {
            Judged::Take(was.step)
        });
    }
    let sum = session.sum_of_parts(&was.upload_id).await?;
    let all = sum.is_all(was.total_chunks);
    Ok(match (aim, was.step) {
        (Aim::Complete, Step::Open) if all => Judged::Take(Step::Completing),
        (Aim::Complete, Step::Created | Step::Open) => {
            Judged::Answer(Claim::NotYet { durable: sum.count, total: was.total_chunks })
        }
        // Its parts are all there, and only the object store was away: no outage, however long, throws them away.
        (Aim::Expire, Step::Failed) if was.deadline_ms <= now_ms && all && is_late(was) => {
            Judged::Take(Step::Completing)
        }
        (Aim::Expire, Step::Created | Step::Failed) if was.deadline_ms <= now_ms => {
            Judged::Take(Step::Expiring)
        }
        (Aim::Expire, Step::Open) if was.deadline_ms <= now_ms && !all => Judged::Take(Step::Expiring),
        (Aim::Abort, Step::Created | Step::Open | Step::Failed) => Judged::Take(Step::Aborting),
        _ => elsewhere(),
    })
}
