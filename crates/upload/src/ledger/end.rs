//! Uploads that fail, go on, or end without an object.

use std::time::Duration;

use super::Ledger;
use super::connection::Arg;
use super::facts::{Fence, Moved, Reopen, Step, Upload};
use super::rows::after;
use crate::{Result, names};

/// Whoever has to go on with an upload that failed gets at least so long to do so, however near its deadline was.
const TIME_TO_GO_ON: Duration = Duration::from_secs(3600);

const KEEP_OWNER: &str =
    "INSERT INTO quaymaster_nodes (node_id, resource) VALUES ($1, $2) ON CONFLICT DO NOTHING";

/// Who gives an upload up.
enum Who<'a> {
    Anybody,
    Owner(&'a Fence),
    Sender { multipart_id: &'a str, number: u32 },
}

impl Ledger {
    /// Gives an upload up, for this reason; it can be reopened until its deadline, and for an hour at least.
    ///
    /// Without a fence only one that nobody owns. With the owner's, a completion before its row and event are there: an
    /// upload whose object is proved is finished, unless its row was removed meanwhile.
    pub async fn fail(&self, upload_id: &str, fence: Option<&Fence>, reason: &str) -> Result<Moved> {
        self.give_up(upload_id, fence.map_or(Who::Anybody, Who::Owner), reason).await
    }

    /// The same by whoever could not send the part `number` to this multipart upload. `Lost`, and nothing is given up,
    /// when the upload has another one by now, or somebody else was luckier with the part.
    pub async fn fail_part(
        &self,
        upload_id: &str,
        multipart_id: &str,
        number: u32,
        reason: &str,
    ) -> Result<Moved> {
        self.give_up(upload_id, Who::Sender { multipart_id, number }, reason).await
    }

    async fn give_up(&self, upload_id: &str, who: Who<'_>, reason: &str) -> Result<Moved> {
        self.database
            .bounded("ledger.fail", async {
                let mut session = self.database.begin().await?;
                let Some(was) = session.lock(upload_id).await? else {
                    session.roll_back().await?;
                    return Ok(Moved::Unknown);
                };
                let ours = match who {
                    Who::Anybody => matches!(was.step, Step::Created | Step::Open),
                    Who::Owner(fence) => {
                        matches!(was.step, Step::Completing | Step::Proved) && was.fence == fence.number
                    }
                    Who::Sender { multipart_id, number } => {
                        was.step == Step::Open
                            && was.multipart_id.as_deref() == Some(multipart_id)
                            && !session.has_part(upload_id, number).await?
                    }
                };
                let same = was.step == Step::Failed && was.error.as_deref() == Some(reason);
                if !ours {
                    session.roll_back().await?;
                    return Ok(if same { Moved::Moved(Box::new(was)) } else { Moved::Lost(Box::new(was)) });
                }
                let now_ms = session.now_ms().await?;
                let deadline_ms = was.deadline_ms.max(after(now_ms, TIME_TO_GO_ON));
                let now = Upload {
                    step: Step::Failed,
                    lease_ms: now_ms,
                    deadline_ms,
                    due_ms: deadline_ms,
                    error: Some(reason.to_owned()),
                    final_etag: None,
                    final_size: None,
                    updated_ms: now_ms,
                    ..was.clone()
                };
                session.mark_node(&now, "FAILED").await?;
                session.move_on(&was, now, "failed", reason).await
            })
            .await
    }

    /// Goes on with a failed upload; its deadline is then at least `time_limit` away.
    pub async fn reopen(&self, upload_id: &str, how: Reopen, time_limit: Duration) -> Result<Moved> {
        self.database
            .bounded("ledger.reopen", async {
                let mut session = self.database.begin().await?;
                let Some(was) = session.lock(upload_id).await? else {
                    session.roll_back().await?;
                    return Ok(Moved::Unknown);
                };
                if was.step != Step::Failed {
                    session.roll_back().await?;
                    let open = matches!(was.step, Step::Created | Step::Open);
                    return Ok(if open { Moved::Moved(Box::new(was)) } else { Moved::Lost(Box::new(was)) });
                }
                let now_ms = session.now_ms().await?;
                let deadline_ms = was.deadline_ms.max(after(now_ms, time_limit));
                let mut now = Upload {
                    deadline_ms,
                    due_ms: deadline_ms,
                    error: None,
                    updated_ms: now_ms,
                    ..was.clone()
                };
                match (how, &was.multipart_id) {
                    (Reopen::Keep, Some(_)) => {
                        now.step = Step::Open;
                        // All parts may be there: then a sweep completes it.
                        if session.sum_of_parts(upload_id).await?.is_all(was.total_chunks) {
                            now.due_ms = now_ms;
                        }
                    }
                    (Reopen::Keep, None) => now.step = Step::Created,
                    (Reopen::Afresh, _) => {
                        now.step = Step::Created;
                        now.multipart_id = None;
                        // What the former one left, or still makes, is not this one's object.
                        now.token = names::unique("ledger.reopen")?;
                        session.delete_parts(upload_id).await?;
                    }
                }
                session.mark_node(&now, "PENDING").await?;
                let how = if how == Reopen::Afresh { "from the beginning" } else { "with its parts" };
                session.move_on(&was, now, "reopened", how).await
            })
            .await
    }

    /// The object is there after all: an upload that was about to end goes on to be completed, by the same owner.
    pub async fn rescue(&self, fence: &Fence) -> Result<Moved> {
        self.leave(fence, "ledger.rescue", None).await
    }

    /// Nothing of it is left in the object store: `expiring` becomes `expired`, `aborting` becomes `aborted`.
    pub async fn ended(&self, fence: &Fence, keep: Duration) -> Result<Moved> {
        self.leave(fence, "ledger.ended", Some(keep)).await
    }

    async fn leave(&self, fence: &Fence, op: &'static str, keep: Option<Duration>) -> Result<Moved> {
        self.database
            .bounded(op, async {
                let mut session = self.database.begin().await?;
                let Some(was) = session.lock(&fence.upload_id).await? else {
                    session.roll_back().await?;
                    return Ok(Moved::Unknown);
                };
                let to = match (keep, was.step) {
                    (None, Step::Expiring | Step::Aborting) => Step::Completing,
                    (Some(_), Step::Expiring) => Step::Expired,
                    (Some(_), Step::Aborting) => Step::Aborted,
                    (_, step) => {
                        session.roll_back().await?;
                        let repeated = if keep.is_some() {
                            matches!(step, Step::Expired | Step::Aborted)
                        } else {
                            step == Step::Completing
                        };
                        let ours = repeated && was.fence == fence.number;
                        return Ok(if ours {
                            Moved::Moved(Box::new(was))
                        } else {
                            Moved::Lost(Box::new(was))
                        });
                    }
                };
                if was.fence != fence.number {
                    session.roll_back().await?;
                    return Ok(Moved::Lost(Box::new(was)));
                }
                let now_ms = session.now_ms().await?;
                let mut now = Upload { step: to, updated_ms: now_ms, ..was.clone() };
                if let Some(keep) = keep {
                    now.lease_ms = now_ms;
                    now.due_ms = after(now_ms, keep);
                    let status = if to == Step::Expired { "EXPIRED" } else { "ABORTED" };
                    session.mark_node(&now, status).await?;
                }
                let what = if keep.is_some() { to.name() } else { "rescued" };
                session.move_on(&was, now, what, "").await
            })
            .await
    }

    /// Removes what is over and was kept long enough: the upload, its parts, its history. The node stays, and the
    /// event too: others may still read it.
    pub async fn forget(&self, upload_id: &str) -> Result<Moved> {
        self.database
            .bounded("ledger.forget", async {
                let mut session = self.database.begin().await?;
                let Some(was) = session.lock(upload_id).await? else {
                    session.roll_back().await?;
                    return Ok(Moved::Unknown);
                };
                if !was.step.is_over() || was.due_ms > session.now_ms().await? {
                    session.roll_back().await?;
                    return Ok(Moved::Lost(Box::new(was)));
                }
                let id = [Arg::Text(upload_id)];
                // An older build created it and did not say whose the node is.
                let owner = [Arg::Text(&was.node_id), Arg::Text(&was.resource)];
                session.execute(KEEP_OWNER, &owner).await?;
                session.delete_parts(upload_id).await?;
                session.execute("DELETE FROM quaymaster_upload_events WHERE upload_id = $1", &id).await?;
                session.execute("DELETE FROM quaymaster_uploads WHERE upload_id = $1", &id).await?;
                session.commit().await?;
                Ok(Moved::Moved(Box::new(was)))
            })
            .await
    }
}
