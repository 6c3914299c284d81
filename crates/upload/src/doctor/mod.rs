//! What is wrong with an upload: store, objects, rows and outbox held against each other, its history told, and what can
//! be put right put right.
//!
//! Uploads go on while they are looked at, and what is held against each other is read one after the other: a chunk that
//! became durable in between looks like a difference. So whatever is found is looked for once more after a pause, and
//! only what is found both times is told and put right.
//!
//! What cannot be read of one upload is a finding of that one. What may pass may be true of all of them, and ends the
//! look: a million uploads are not asked one by one of a store that is away.

mod look;
mod orphans;
mod repair;

use std::fmt;
use std::time::Duration;

use quaymaster::upload::{Status, Upload as Store};

use crate::ledger::{Happening, Step};
use crate::uploads::Uploads;
use crate::{Error, Result, Trouble};
use look::Look;

pub use orphans::Orphan;

/// Between two looks: longer than a chunk or a move is on its way from the ledger to the store, and than what is due
/// waits for a sweep, which comes by every second. Paid once for a page, and only where something was found.
const PAUSE: Duration = Duration::from_millis(1500);

/// Keys of the store that one page walks over.
const KEYS: usize = 1000;

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
    /// With states that other programs wrote, from this place of a walk over the store's keys on.
    States {
        /// The place; empty at the beginning.
        from: Vec<u8>,
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
    /// Another program began it, and for this reason it is not gone on with here.
    Foreign(String),
    /// Something of it cannot be read, for this reason; what else there is to find is found nevertheless.
    Unreadable(String),
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
            Self::Foreign(why) => write!(f, "another program began it: {why}"),
            Self::Unreadable(reason) => write!(f, "it cannot be read: {reason}"),
        }
    }
}

impl Uploads {
    /// Looks at one upload from every side, twice where something is found; `None` when nobody knows it.
    pub async fn examine(&self, id: &str, mode: Mode) -> Result<Option<Report>> {
        self.examine_with(id, mode, &pause).await
    }

    /// The same with another pause between two looks.
    pub async fn examine_with(&self, id: &str, mode: Mode, pause: &impl AsyncFn()) -> Result<Option<Report>> {
        Store::check_id("upload.doctor", id)?;
        let looks = self.look_again(self.look_at(id).await?.into_iter().collect(), pause).await?;
        let looks = looks.into_iter().map(|look| (look, mode)).collect();
        Ok(self.treat(looks, pause).await?.pop())
    }

    /// Looks at up to `count` uploads from there on; those with findings, and where to go on: first at all that the
    /// ledger has, then at those that the store alone knows, then at those that another program began.
    pub async fn examine_page(&self, at: &At, count: u32, mode: Mode) -> Result<Page> {
        self.examine_page_with(at, count, mode, &pause).await
    }

    /// The same with another pause between two looks.
    pub async fn examine_page_with(
        &self,
        at: &At,
        count: u32,
        mode: Mode,
        pause: &impl AsyncFn(),
    ) -> Result<Page> {
        match at {
            At::Ledger { after } => {
                let page = self.inner.ledger.page_of_ids(after, count).await?;
                let last = page.last().filter(|_| page.len() == count as usize);
                let next =
                    last.map_or(At::Store { offset: 0 }, |(last, _)| At::Ledger { after: last.clone() });
                let ours = page.iter().filter(|(_, resource)| resource == self.inner.store.name());
                let ids: Vec<&str> = ours.map(|(id, _)| id.as_str()).collect();
                let reports = self.examine_all(&ids, mode, pause).await?;
                Ok(Page { reports, looked: page.len() as u64, next: Some(next) })
            }
            At::Store { offset } => {
                let ids = self.inner.store.page(*offset, count as usize).await?;
                let mut strangers = Vec::new();
                for id in &ids {
                    if !matches!(readable(self.of_ours(id).await)?, Ok(Some(_))) {
                        strangers.push(id.as_str());
                    }
                }
                let reports = self.examine_all(&strangers, mode, pause).await?;
                // What was removed, by whomever, is not in front of the next page any more.
                let left = reports.iter().filter(|report| !report.left.is_empty()).count();
                let stay = ids.len() - strangers.len() + left;
                let more = ids.len() == count as usize;
                let behind = At::States { from: Vec::new() };
                let next = if more { At::Store { offset: offset + stay as u64 } } else { behind };
                Ok(Page { reports, looked: 0, next: Some(next) })
            }
            At::States { .. } if !self.inner.store.meets_others() => Ok(Page::default()),
            At::States { from } => {
                let from = (!from.is_empty()).then(|| from.clone());
                let page = self.inner.store.states(KEYS, from).await?;
                let mut foreign = Vec::new();
                for id in &page.ids {
                    if matches!(
                        readable(self.inner.store.foreign(id).await.map_err(Error::from))?,
                        Ok(Some(_))
                    ) {
                        foreign.push(id.as_str());
                    }
                }
                let reports = self.examine_all(&foreign, mode, pause).await?;
                Ok(Page { reports, looked: 0, next: page.next.map(|from| At::States { from }) })
            }
        }
    }

    /// Those of them that are not well.
    async fn examine_all(&self, ids: &[&str], mode: Mode, pause: &impl AsyncFn()) -> Result<Vec<Report>> {
        let mut sick = Vec::new();
        for id in ids {
            sick.extend(self.look_at(id).await?.filter(Look::is_sick));
        }
        let looks = self.look_again(sick, pause).await?.into_iter().filter(Look::is_sick);
        // One that the store alone knows may be another ledger's, whose database this node was not given: what goes on
        // there is removed only by whoever names it.
        let looks = looks.map(|look| {
            let mode = if look.goes_on { Mode::Look } else { mode };
            (look, mode)
        });
        self.treat(looks.collect(), pause).await
    }

    /// Tells of each, puts right what is to be, and looks at what is left then.
    async fn treat(&self, looks: Vec<(Look, Mode)>, pause: &impl AsyncFn()) -> Result<Vec<Report>> {
        let (mut reports, mut treated) = (Vec::with_capacity(looks.len()), Vec::new());
        for (look, mode) in looks {
            let mut report = self.report(&look).await?;
            if mode == Mode::Repair {
                report.repaired = self.repair(&look).await?;
            }
            if !report.repaired.is_empty() {
                report.left.clear();
                treated.extend(self.look_at(&look.id).await?);
            }
            reports.push(report);
        }
        for look in self.look_again(treated, pause).await? {
            if let Some(report) = reports.iter_mut().find(|report| report.upload_id == look.id) {
                report.left = look.findings;
            }
        }
        Ok(reports)
    }

    async fn report(&self, look: &Look) -> Result<Report> {
        let mut findings = look.findings.clone();
        let mut history = Vec::new();
        if look.upload.is_some() {
            match readable(self.inner.ledger.history(&look.id).await)? {
                Ok(told) => history = told,
                Err(unreadable) => findings.push(unreadable),
            }
        }
        Ok(Report {
            upload_id: look.id.clone(),
            step: look.upload.as_ref().map(|upload| upload.step),
            status: look.status,
            left: findings.clone(),
            findings,
            repaired: Vec::new(),
            history,
        })
    }
}

async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// What was read of one upload, or the finding that it cannot be; an error where it may be so of every one.
fn readable<T>(read: Result<T>) -> Result<Result<T, Finding>> {
    match read {
        Ok(read) => Ok(Ok(read)),
        Err(error) if error.trouble() == Trouble::Never => Ok(Err(Finding::Unreadable(error.to_string()))),
        Err(error) => Err(error),
    }
}
