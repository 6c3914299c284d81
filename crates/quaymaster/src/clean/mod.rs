//! `clean`: finds what the schema's keys have left behind, and puts it right when told to.
//!
//! | what | found by | put right by |
//! |---|---|---|
//! | the key of a time bucket that ended longer ago than the key may live | its name | deleting it |
//! | a key that should end and does not | its missing TTL | giving it the declared one |
//! | a member of an index whose key is gone | looking for the key | taking it out |
//! | a number from which no call can go on: the last one of a queue's jobs, the last fence of a lock | reading it | taking it away; a fence only when its lock is named |
//!
//! Keys that no pattern of the schema makes, keys of another type than declared and keys that another program owns
//! are never touched. The scan is slow on purpose, can be stopped at every page and goes on where it was; every change
//! checks in the store once more what was found before.

mod judge;
mod log;
mod ops;
mod scan;
#[cfg(test)]
mod tests;

use quaymaster_schema::Kind;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{Quaymaster, Result};

/// Keys looked at in a second, unless told.
pub const RATE: u32 = 5_000;

/// Findings that are listed one by one; the rest are counted.
pub const LISTED: usize = 1_000;

/// Whether anything is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing is.
    #[default]
    Look,
    /// What is found is put right.
    Apply,
}

/// What to clean, and how fast.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Whether anything is changed.
    pub mode: Mode,
    /// Only this resource; all unless given. An unusable fence is removed only when its lock is named here: rows may hold
    /// higher fences than the next one.
    pub only: Option<(Kind, String)>,
    /// Keys looked at in a second, on average; at least 1.
    pub rate: u32,
    /// Stops after about so many keys of the store.
    pub most: Option<u64>,
    /// Goes on where a report ended: its [`Report::next`].
    pub from: Option<String>,
    /// Stops after the page under way when cancelled.
    pub stop: CancellationToken,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            mode: Mode::Look,
            only: None,
            rate: RATE,
            most: None,
            from: None,
            stop: CancellationToken::new(),
        }
    }
}

/// What is wrong with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Its time bucket ended longer ago than it may live.
    Stale,
    /// It should end by itself and does not.
    Immortal,
    /// A member of an index names a key that is not there.
    Dangling,
    /// It holds something else than the schema says; `clean` leaves it alone.
    OtherType,
    /// Its number is none, or too high for a next one: calls answer `key.malformed`.
    Unusable,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The key, as the store spells it.
    pub key: String,
    /// The resource it belongs to, `run.courtlistener`.
    pub resource: String,
    /// Which of its keys it is.
    pub role: &'static str,
    /// What is wrong.
    pub what: What,
    /// The member of an index, or the field that holds the number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Whether it was put right. What somebody changed meanwhile is left alone.
    pub done: bool,
}

/// What was found.
#[must_use = "a report that ends early says where to go on"]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Keys of the store that were looked at.
    pub examined: u64,
    /// Those of them that the schema makes.
    pub declared: u64,
    /// Keys of buckets long over.
    pub stale: u64,
    /// Keys that should end and do not.
    pub immortal: u64,
    /// Members of indexes that name nothing.
    pub dangling: u64,
    /// Keys of another type than declared; left alone.
    pub other_type: u64,
    /// Numbers from which no call can go on.
    pub unusable: u64,
    /// How many findings were put right.
    pub done: u64,
    /// The first findings, one by one.
    pub findings: Vec<Finding>,
    /// Where to go on; nothing when all was seen.
    pub next: Option<String>,
}

impl Report {
    /// Everything that was found, whether it can be put right or not.
    pub fn found(&self) -> u64 {
        self.stale + self.immortal + self.dangling + self.other_type + self.unusable
    }

    fn note(&mut self, finding: Finding) {
        match finding.what {
            What::Stale => self.stale += 1,
            What::Immortal => self.immortal += 1,
            What::Dangling => self.dangling += 1,
            What::OtherType => self.other_type += 1,
            What::Unusable => self.unusable += 1,
        }
        self.done += u64::from(finding.done);
        if self.findings.len() < LISTED {
            self.findings.push(finding);
        }
    }
}

impl Quaymaster {
    /// Looks for what the schema's keys have left behind; changes nothing unless `ask` says so. `told` hears after
    /// every page how many keys were looked at.
    pub async fn clean(&self, ask: Ask, told: impl FnMut(&Report)) -> Result<Report> {
        scan::run(self, ask, told).await
    }
}
