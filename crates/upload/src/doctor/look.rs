//! One look at an upload, and another one after a pause.

use quaymaster::upload::{State, Status};

use super::{Finding, readable};
use crate::ledger::{Step, Upload};
use crate::uploads::Uploads;
use crate::{Error, Result};

/// What a look at an upload showed.
pub(super) struct Look {
    pub(super) id: String,
    /// As the ledger has it; `None` when the store alone knows it, or its row cannot be read.
    pub(super) upload: Option<Upload>,
    /// What the store shows, if it shows anything.
    pub(super) status: Option<Status>,
    pub(super) findings: Vec<Finding>,
    /// Whether the store alone knows it, and it goes on there.
    pub(super) goes_on: bool,
}

impl Look {
    pub(super) fn is_sick(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Whether a second look may show that all is well: what has FAILED stays so until somebody comes.
    fn may_pass(&self) -> bool {
        self.findings.iter().any(|finding| !matches!(finding, Finding::Failed(_)))
    }

    /// With what was found before and is found again. Other numbers are another finding: that upload moves.
    fn confirming(mut self, before: &Self) -> Self {
        let due = |look: &Self| look.upload.as_ref().map(|upload| upload.due_ms);
        let same_due = due(&self) == due(before);
        self.findings.retain(|finding| match finding {
            // Somebody came for it, and it waits again.
            Finding::Overdue if !same_due => false,
            // Why may be said in other words each time.
            Finding::Foreign(_) => before.findings.iter().any(|was| matches!(was, Finding::Foreign(_))),
            Finding::Unreadable(_) => before.findings.iter().any(|was| matches!(was, Finding::Unreadable(_))),
            finding => before.findings.contains(finding),
        });
        self
    }
}

impl Uploads {
    /// `None` when nobody knows it.
    pub(super) async fn look_at(&self, id: &str) -> Result<Option<Look>> {
        let shown = readable(self.inner.store.status(id).await.map_err(Error::from))?;
        let upload = match readable(self.of_ours(id).await)? {
            Ok(Some(upload)) => upload,
            Ok(None) => {
                let foreign = readable(self.look_at_foreign(id).await)?;
                return Ok(match foreign {
                    Ok(None) => stranger(id, shown),
                    Ok(Some(foreign)) => Some(unread(id, Finding::Foreign(foreign))),
                    Err(unreadable) => Some(unread(id, unreadable)),
                });
            }
            Err(unreadable) => return Ok(Some(unread(id, unreadable))),
        };
        let mut status = None;
        let mut findings = match shown {
            Ok(state) => {
                status = state.as_ref().map(|state| state.status);
                told(self.shown_findings(&upload, state.as_ref()).await)?
            }
            Err(unreadable) => vec![unreadable],
        };
        findings.extend(told(self.step_findings(&upload).await)?);
        findings.extend(told(self.object_findings(&upload).await)?);
        findings.extend(told(self.node_findings(&upload).await)?);
        findings.extend(told(self.event_findings(&upload).await)?);
        Ok(Some(Look { id: id.to_owned(), upload: Some(upload), status, findings, goes_on: false }))
    }

    /// What is said of an upload that another program began and that is not gone on with here.
    async fn look_at_foreign(&self, id: &str) -> Result<Option<String>> {
        let store = &self.inner.store;
        let foreign = if store.meets_others() { store.foreign(id).await? } else { None };
        let Some(foreign) = foreign else { return Ok(None) };
        let waits = |_| "nobody has come by yet; `serve`, `worker` or --repair goes on with it".to_owned();
        Ok(Some(self.judge(id, &foreign).await?.map_or_else(|why| why, waits)))
    }

    /// Those that may not be well once more, after a pause, with what is found both times; without those that are gone by
    /// then.
    pub(super) async fn look_again(&self, looks: Vec<Look>, pause: &impl AsyncFn()) -> Result<Vec<Look>> {
        if !looks.iter().any(Look::may_pass) {
            return Ok(looks);
        }
        pause().await;
        let mut again = Vec::with_capacity(looks.len());
        for before in looks {
            if before.may_pass() {
                again.extend(self.look_at(&before.id).await?.map(|now| now.confirming(&before)));
            } else {
                again.push(before);
            }
        }
        Ok(again)
    }

    async fn shown_findings(&self, upload: &Upload, state: Option<&State>) -> Result<Vec<Finding>> {
        let Some(state) = state else {
            // One whose beginning was not finished has none yet; the same request finishes it, or it expires.
            let lost = !upload.step.is_over() && upload.step != Step::Created;
            return Ok(if lost { vec![Finding::StateLost] } else { Vec::new() });
        };
        let mut found = Vec::new();
        let (store, ledger) = (state.status, upload.step.status());
        let begins = matches!(upload.step, Step::Created | Step::Open)
            && matches!(store, Status::Pending | Status::Uploading);
        // The store's COMPLETED comes just before the ledger's.
        let ends = upload.step == Step::Announced && store == Status::Completed;
        if !begins && !ends && store.name() != ledger {
            found.push(Finding::StatusDiffers { store, ledger });
        }
        let kept = self.inner.ledger.parts(&upload.upload_id).await?.len() as u32;
        let shown = state.receipt.durable_chunks;
        if shown != kept {
            found.push(Finding::PartsDiffer { store: shown, ledger: kept });
        }
        Ok(found)
    }

    async fn step_findings(&self, upload: &Upload) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        if self.inner.ledger.is_due(upload).await? {
            found.push(Finding::Overdue);
        }
        if upload.step == Step::Failed {
            found.push(Finding::Failed(upload.error.clone().unwrap_or_default()));
        }
        Ok(found)
    }

    async fn object_findings(&self, upload: &Upload) -> Result<Vec<Finding>> {
        let head = self.inner.objects.head(&upload.object_key).await?;
        let ours = head.filter(|head| {
            // One that another program began has no token, and is known by its ETag once that is recorded.
            let known = upload.is_adopted() && upload.final_etag.is_some() && head.etag == upload.final_etag;
            known || head.token.as_deref().unwrap_or_default() == upload.token && !upload.is_adopted()
        });
        let recorded = upload.final_size.map(|size| (size, upload.final_etag.clone().unwrap_or_default()));
        Ok(match (ours, recorded) {
            (None, Some(_)) => vec![Finding::ObjectMissing],
            (Some(head), Some((size, etag))) => {
                let seen = head.etag.unwrap_or_default();
                if (head.size, &seen) == (size, &etag) {
                    return Ok(Vec::new());
                }
                let found = format!("{} bytes, {seen}", head.size);
                vec![Finding::ObjectDiffers { found, recorded: format!("{size} bytes, {etag}") }]
            }
            // While it is completed, the ledger is about to say so.
            (Some(_), None) if upload.step != Step::Completing => vec![Finding::ObjectUnrecorded],
            (Some(_) | None, None) => Vec::new(),
        })
    }

    async fn node_findings(&self, upload: &Upload) -> Result<Vec<Finding>> {
        let status = self.inner.ledger.node(&upload.node_id).await?.map(|node| node.status);
        let differs = status.is_none() || is_active(upload) && status.as_deref() != Some("ACTIVE");
        Ok(if differs { vec![Finding::NodeDiffers { status }] } else { Vec::new() })
    }

    async fn event_findings(&self, upload: &Upload) -> Result<Vec<Finding>> {
        // Told events are pruned only when their upload is forgotten.
        let missing = is_active(upload) && self.inner.ledger.event_of(&upload.upload_id).await?.is_none();
        Ok(if missing { vec![Finding::EventMissing] } else { Vec::new() })
    }
}

/// Whether its row is to be ACTIVE, with an event.
fn is_active(upload: &Upload) -> bool {
    matches!(upload.step, Step::Recorded | Step::Announced | Step::Done)
}

/// The findings, or the one that says why there are none.
fn told(found: Result<Vec<Finding>>) -> Result<Vec<Finding>> {
    Ok(readable(found)?.unwrap_or_else(|unreadable| vec![unreadable]))
}

/// One that the ledger does not know.
fn stranger(id: &str, shown: Result<Option<State>, Finding>) -> Option<Look> {
    match shown {
        Ok(state) => state.map(|state| Look {
            id: id.to_owned(),
            upload: None,
            status: Some(state.status),
            findings: vec![Finding::UnknownToLedger],
            goes_on: !state.is_ended() && state.deadline_ms > state.now_ms,
        }),
        Err(unreadable) => Some(unread(id, unreadable)),
    }
}

/// One of which nothing is known but that it cannot be read.
fn unread(id: &str, unreadable: Finding) -> Look {
    Look { id: id.to_owned(), upload: None, status: None, findings: vec![unreadable], goes_on: false }
}
