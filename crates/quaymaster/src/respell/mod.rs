//! `respell`: gives keys that an earlier version named their names of today.
//!
//! Earlier versions named a side key `{ha:stats}:beats`; today the schema's prefix stands in front of the brace,
//! `ha:{ha:stats}:beats`, so that `ha:*` finds every key of the schema. The hash tag, and with it the slot, is the same.
//! Schemas without a prefix have no such keys.
//!
//! | store | what happens |
//! |---|---|
//! | embedded | [`prepare`] renames when the store is opened, once for each schema |
//! | Redis | [`prepare`] refuses a store with old names; [`Quaymaster::respell`] renames them while no server runs |
//!
//! A rename keeps type, content and TTL. Nothing is ever overwritten: where both names hold something, both stay and the
//! report says so. Every rename stands for itself, so that a run that was interrupted is simply repeated.

mod ops;
mod prepare;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use quaymaster_schema::Schema;
use quaymaster_store::{Engine, Reply, Topology};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

pub use crate::clean::Mode;
pub use prepare::{Depth, prepare};

use crate::rights::{self, Scope};
use crate::{Code, Error, Quaymaster, Result};

const OP: &str = "respell.scan";

/// Keys that are listed one by one; the rest are counted.
pub const LISTED: usize = 1_000;

/// Finds the names of earlier versions: all of them begin with a hash tag.
const OLD: &[u8] = b"{*";
/// Keys of one page of the scan.
const PAGE: usize = 1_000;
/// Renames of one call where all keys lie in one keyspace.
const PAIRS: usize = 100;
/// Calls on their way at once.
const AT_ONCE: usize = 16;

/// What to do.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Whether anything is changed.
    pub mode: Mode,
    /// Stops after the page under way when cancelled.
    pub stop: CancellationToken,
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// It has its old name; a run that changes something renames it.
    Old,
    /// It has its new name now.
    Renamed,
    /// Something lies under the new name already; both were left alone.
    Taken,
}

/// One key with an old name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name in earlier versions.
    pub old: String,
    /// Its name today.
    pub new: String,
    /// What became of it.
    pub what: What,
}

/// What was found.
#[must_use = "a name that was taken is left for somebody to decide"]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Keys beginning with a hash tag that were looked at.
    pub examined: u64,
    /// Those of them with an old name that can be renamed.
    pub old: u64,
    /// How many were renamed.
    pub renamed: u64,
    /// Old names whose new name holds something already.
    pub taken: u64,
    /// Whether all keys of the store were looked at.
    pub complete: bool,
    /// The first keys, one by one.
    pub findings: Vec<Finding>,
}

impl Report {
    fn add(&mut self, pair: &Pair, what: What) {
        match what {
            What::Old => self.old += 1,
            What::Renamed => {
                self.old += 1;
                self.renamed += 1;
            }
            What::Taken => self.taken += 1,
        }
        if self.findings.len() < LISTED {
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            self.findings.push(Finding { old: text(&pair.old), new: text(&pair.new), what });
        }
    }
}

/// A key's old name and its new one.
#[derive(Debug)]
struct Pair {
    old: Bytes,
    new: Vec<u8>,
}

impl Quaymaster {
    /// Finds keys that an earlier version named, and renames them if `ask` says so. No server of an earlier version may
    /// run meanwhile. `told` hears after every page what was found so far.
    pub async fn respell(&self, ask: Ask, told: impl FnMut(&Report)) -> Result<Report> {
        walk(self.schema(), self.engine(), &ask, told).await
    }

    /// Makes sure that no key has the name of an earlier version (see [`prepare`]), and that the store's user may run the
    /// scripts of the schema, where the store tells: one that is refused a command half-way leaves behind what it has
    /// written. Call it once, before the first use.
    pub async fn prepare(&self) -> Result<()> {
        if let Some(missing) = rights::missing(self.schema(), &**self.engine(), Scope::Schema).await? {
            let detail = format!("{missing}; allow it: {}", missing.rule());
            return Err(Error::new("store.rights", Code::StoreUnsafe, detail));
        }
        prepare(self.schema(), self.engine(), Depth::Scan).await
    }
}

/// Walks over the keys that begin with a tag.
async fn walk(
    schema: &Schema,
    engine: &Arc<dyn Engine>,
    ask: &Ask,
    mut told: impl FnMut(&Report),
) -> Result<Report> {
    let mut report = Report::default();
    if !schema.has_prefixes() {
        report.complete = true;
        return Ok(report);
    }
    let mut cursor = None;
    loop {
        let page = engine.scan(OLD, PAGE, cursor.take()).await.map_err(|error| error.during(OP))?;
        report.examined += page.keys.len() as u64;
        let old = page.keys.into_iter();
        let pairs: Vec<Pair> =
            old.filter_map(|old| schema.respelled(&old).map(|new| Pair { old, new })).collect();
        settle(engine, ask.mode, &pairs, &mut report).await?;
        told(&report);
        match page.next {
            None => {
                report.complete = true;
                break;
            }
            Some(_) if ask.stop.is_cancelled() => break,
            next => cursor = next,
        }
    }
    Ok(report)
}

/// Renames the keys of a page, or only looks whether their new names are free.
async fn settle(engine: &Arc<dyn Engine>, mode: Mode, pairs: &[Pair], report: &mut Report) -> Result<()> {
    if mode == Mode::Look {
        for pair in pairs {
            let there = engine.key_facts(&pair.new).await.map_err(|error| error.during(OP))?.is_some();
            report.add(pair, if there { What::Taken } else { What::Old });
        }
        return Ok(());
    }
    // On a cluster a call reaches one slot.
    let size = if engine.topology() == Topology::Single { PAIRS } else { 1 };
    // Boxed one by one: a closure over borrowed pairs would make the whole walk no task of its own.
    let mut calls: Vec<BoxFuture<'_, (&[Pair], Result<Reply>)>> = Vec::new();
    for chunk in pairs.chunks(size) {
        let call = engine.run(ops::rename(chunk)?);
        calls.push(Box::pin(async move { (chunk, call.await) }));
    }
    let mut calls = futures_util::stream::iter(calls).buffer_unordered(AT_ONCE);
    while let Some((chunk, reply)) = calls.next().await {
        let reply = reply.map_err(|error| error.during(ops::RENAME))?;
        for (pair, outcome) in chunk.iter().zip(ops::renamed(reply, chunk.len())?) {
            match outcome {
                // It ended by itself.
                0 => {}
                1 => report.add(pair, What::Renamed),
                2 => report.add(pair, What::Taken),
                other => {
                    let detail = format!("a rename was answered with {other}");
                    return Err(Error::new(ops::RENAME, Code::StoreReply, detail));
                }
            }
        }
    }
    Ok(())
}
