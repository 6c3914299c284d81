//! What is wrong with an upload: store, objects, rows and outbox held against each other, its history told, and what can
//! be put right put right.

mod orphans;

use std::fmt;

use quaymaster::upload::{Forgotten, State, Status};

use crate::Result;
use crate::complete::Ran;
use crate::ledger::{Happening, Step, Upload};
use crate::uploads::Uploads;

pub use orphans::Orphan;

/// What somebody looks at.
#[derive(Debug, Clone)]
pub struct Report {
    /// The upload.
    pub upload_id: String,
    /// Where it stands; `None` when only the store knows it.
    pub step: Option<Step>,
    /// What the store shows, if it shows anything.
    pub status: Option<Status>,
    /// What does not fit together.
    pub findings: Vec<Finding>,
    /// What was done about it.
    pub repaired: Vec<String>,
    /// What does not fit together after that.
    pub left: Vec<Finding>,
    /// What happened to it, oldest first.
    pub history: Vec<Happening>,
}

/// Whether something is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only looked at.
    Look,
    /// Put right where that is safe.
    Repair,
}

/// Where a look at all uploads goes on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// With those of the ledger, after this one.
    Ledger {
        /// Its id; empty at the beginning.
        after: String,
    },
    /// With those of the store's index, from this place on.
    Store {
        /// The place.
        offset: u64,
    },
}

impl Default for At {
    fn default() -> Self {
        Self::Ledger { after: String::new() }
    }
}

/// What a look at some uploads found.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Those that are not well.
    pub reports: Vec<Report>,
    /// How many of the ledger's were looked at.
    pub looked: u64,
    /// Where to go on; `None` at the end.
    pub next: Option<At>,
}

/// Something that does not fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The store has lost its state.
    StateLost,
    /// The store shows something else than the ledger says.
    StatusDiffers {
        /// The store's.
        store: Status,
        /// The ledger's.
        ledger: &'static str,
    },
    /// The store and the ledger disagree on how many chunks are durable.
    PartsDiffer {
        /// The store's.
        store: u32,
        /// The ledger's.
        ledger: u32,
    },
    /// It waits for somebody who does not come.
    Overdue,
    /// The ledger says that the object is there, and it is not.
    ObjectMissing,
    /// The object is there, and is not what the ledger says.
    ObjectDiffers {
        /// What a look showed.
        found: String,
        /// What the ledger has.
        recorded: String,
    },
    /// The object is there, and the ledger does not say so.
    ObjectUnrecorded,
    /// The row is not what the upload's step says.
    NodeDiffers {
        /// The row's status; `None` when there is no row.
        status: Option<String>,
    },
    /// The outbox has no event of it.
    EventMissing,
    /// It has FAILED, for this reason; `resume` goes on.
    Failed(String),
    /// The store has it and the ledger does not.
    UnknownToLedger,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StateLost => f.write_str("the store has lost its state"),
            Self::StatusDiffers { store, ledger } => {
                write!(f, "the store shows {store}, the ledger says {ledger}")
            }
            Self::PartsDiffer { store, ledger } => {
                write!(f, "the store shows {store} durable chunks, the ledger has {ledger} parts")
            }
            Self::Overdue => f.write_str("it waits for somebody who does not come"),
            Self::ObjectMissing => f.write_str("the ledger says that the object is there, and it is not"),
            Self::ObjectDiffers { found, recorded } => {
                write!(f, "the object is {found}; recorded is {recorded}")
            }
            Self::ObjectUnrecorded => f.write_str("the object is there, and the ledger does not say so"),
            Self::NodeDiffers { status: None } => f.write_str("its row in `nodes` is gone"),
            Self::NodeDiffers { status: Some(status) } => write!(f, "its row in `nodes` is {status}"),
            Self::EventMissing => f.write_str("the outbox has no event of it"),
            Self::Failed(reason) => write!(f, "it has FAILED: {reason}"),
            Self::UnknownToLedger => f.write_str("the store has it and the ledger does not"),
        }
    }
}

impl Uploads {
    /// Looks at one upload from every side; `None` when nobody knows it.
    pub async fn examine(&self, id: &str, mode: Mode) -> Result<Option<Report>> {
        let state = self.inner.store.status(id).await?;
        let Some(upload) = self.of_ours(id).await? else {
            let Some(state) = state else { return Ok(None) };
            let findings = vec![Finding::UnknownToLedger];
            let mut report = report(id, None, Some(&state), findings, Vec::new());
            if mode == Mode::Repair {
                let _ = self.inner.store.expire(id).await?;
                self.clear(id).await?;
                if self.inner.store.forget(id).await? == Forgotten::Forgotten {
                    report.repaired.push("removed from the store".to_owned());
                    report.left.clear();
                }
            }
            return Ok(Some(report));
        };
        let findings = self.findings(&upload, state.as_ref()).await?;
        let history = self.inner.ledger.history(id).await?;
        let mut report = report(id, Some(&upload), state.as_ref(), findings, history);
        if mode == Mode::Repair && !report.findings.is_empty() {
            report.repaired = self.repair(&upload, &report.findings).await?;
            report.left = match self.of_ours(id).await? {
                Some(upload) => {
                    let state = self.inner.store.status(id).await?;
                    self.findings(&upload, state.as_ref()).await?
                }
                None => Vec::new(),
            };
        }
        Ok(Some(report))
    }

    /// Looks at up to `count` uploads from there on; those with findings, and where to go on: first at all that the
    /// ledger has, then at those that the store alone knows.
    pub async fn examine_page(&self, at: &At, count: u32, mode: Mode) -> Result<Page> {
        match at {
            At::Ledger { after } => {
                let page = self.inner.ledger.page(after, count).await?;
                let last = page.last().filter(|_| page.len() == count as usize);
                let next =
                    last.map_or(At::Store { offset: 0 }, |last| At::Ledger { after: last.upload_id.clone() });
                let mut found = Page { looked: page.len() as u64, next: Some(next), ..Page::default() };
                for upload in page.iter().filter(|upload| upload.resource == self.inner.store.name()) {
                    let report = self.examine(&upload.upload_id, mode).await?;
                    found.reports.extend(report.filter(|report| !report.findings.is_empty()));
                }
                Ok(found)
            }
            At::Store { offset } => {
                let ids = self.inner.store.page(*offset, count as usize).await?;
                let mut found = Page::default();
                let mut stay = 0;
                for id in &ids {
                    let report = match self.of_ours(id).await? {
                        Some(_) => None,
                        None => self.examine_stranger(id, mode).await?,
                    };
                    stay += u64::from(report.as_ref().is_none_or(|report| !report.left.is_empty()));
                    found.reports.extend(report);
                }
                if ids.len() == count as usize {
                    // What was removed is not in front of the next page any more.
                    found.next = Some(At::Store { offset: offset + stay });
                }
                Ok(found)
            }
        }
    }

    /// One that the store alone knows. It may be another ledger's, whose database this node was not given: what goes on
    /// there is removed only by whoever names it.
    async fn examine_stranger(&self, id: &str, mode: Mode) -> Result<Option<Report>> {
        let state = self.inner.store.status(id).await?;
        let goes_on = state.is_some_and(|state| !state.is_ended() && state.deadline_ms > state.now_ms);
        self.examine(id, if goes_on { Mode::Look } else { mode }).await
    }

    async fn findings(&self, upload: &Upload, state: Option<&State>) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        let id = &upload.upload_id;
        let parts = self.inner.ledger.parts(id).await?;
        match state {
            // One whose beginning was not finished has none yet; the same request finishes it, or it expires.
            None if !upload.step.is_over() && upload.step != Step::Created => found.push(Finding::StateLost),
            None => {}
            Some(state) => {
                let (store, ledger) = (state.status, upload.step.status());
                let begins = matches!(upload.step, Step::Created | Step::Open)
                    && matches!(store, Status::Pending | Status::Uploading);
                // The store's COMPLETED comes just before the ledger's.
                let ends = upload.step == Step::Announced && store == Status::Completed;
                if !begins && !ends && store.name() != ledger {
                    found.push(Finding::StatusDiffers { store, ledger });
                }
                let (shown, kept) = (state.receipt.durable_chunks, parts.len() as u32);
                if shown != kept {
                    found.push(Finding::PartsDiffer { store: shown, ledger: kept });
                }
            }
        }
        if self.inner.ledger.is_due(upload).await? {
            found.push(Finding::Overdue);
        }
        if upload.step == Step::Failed {
            found.push(Finding::Failed(upload.error.clone().unwrap_or_default()));
        }
        self.object_findings(upload, &mut found).await?;
        let node = self.inner.ledger.node(&upload.node_id).await?.map(|node| node.status);
        let active = matches!(upload.step, Step::Recorded | Step::Announced | Step::Done);
        if node.is_none() || active && node.as_deref() != Some("ACTIVE") {
            found.push(Finding::NodeDiffers { status: node });
        }
        // Told events are pruned only when their upload is forgotten.
        if active && self.inner.ledger.event_of(id).await?.is_none() {
            found.push(Finding::EventMissing);
        }
        Ok(found)
    }

    async fn object_findings(&self, upload: &Upload, found: &mut Vec<Finding>) -> Result<()> {
        let head = self.inner.objects.head(&upload.object_key).await?;
        let ours = head.filter(|head| head.token.as_deref() == Some(&upload.token));
        let recorded = upload.final_size.map(|size| (size, upload.final_etag.clone().unwrap_or_default()));
        match (ours, recorded) {
            (None, Some(_)) => found.push(Finding::ObjectMissing),
            (Some(head), Some((size, etag))) => {
                let seen = head.etag.unwrap_or_default();
                if (head.size, &seen) != (size, &etag) {
                    found.push(Finding::ObjectDiffers {
                        found: format!("{} bytes, {seen}", head.size),
                        recorded: format!("{size} bytes, {etag}"),
                    });
                }
            }
            // While it is completed, the ledger is about to say so.
            (Some(_), None) if upload.step != Step::Completing => found.push(Finding::ObjectUnrecorded),
            (Some(_) | None, None) => {}
        }
        Ok(())
    }

    async fn repair(&self, upload: &Upload, findings: &[Finding]) -> Result<Vec<String>> {
        let mut done = Vec::new();
        let shown = |finding: &Finding| {
            matches!(
                finding,
                Finding::StateLost | Finding::StatusDiffers { .. } | Finding::PartsDiffer { .. }
            )
        };
        if findings.iter().any(shown) && self.reconcile(upload).await? {
            done.push("the store shows what the ledger says".to_owned());
        }
        if findings.contains(&Finding::Overdue) {
            let ran = match self.complete(&upload.upload_id).await? {
                Ran::Elsewhere(_) | Ran::NotYet => self.expire(&upload.upload_id).await?,
                ran => ran,
            };
            done.push(format!("gone on with: {ran:?}"));
        }
        Ok(done)
    }
}

fn report(
    id: &str,
    upload: Option<&Upload>,
    state: Option<&State>,
    findings: Vec<Finding>,
    history: Vec<Happening>,
) -> Report {
    Report {
        upload_id: id.to_owned(),
        step: upload.map(|upload| upload.step),
        status: state.map(|state| state.status),
        left: findings.clone(),
        findings,
        repaired: Vec::new(),
        history,
    }
}
