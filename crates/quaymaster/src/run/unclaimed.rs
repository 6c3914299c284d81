//! What other programs pushed to the hour's list of failures: no run of ours knows it until one takes it over.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::answer::{self, Failure};
use super::ops::{self, Frame};
use super::{AT_ONCE, MAX_ITEM_CHARS, MAX_ITEMS, Outcome, Run, StartAsk, is_longer, keys, missing};
use crate::scripts::{run_known, run_take_over, run_unclaimed};
use crate::{Code, Error, Result, Retry};

/// Entries read at once, and of one list: the newest.
const PAGE: u64 = 1000;
const PAGES: u64 = 10;

/// Hours before this one whose lists are looked at, however long they are kept.
const HOURS_MAX: i64 = 25;

/// Runs looked at for one that is at work.
const LOOKS: usize = 10;

const HOUR_US: i64 = 3_600_000_000;

/// Why an item failed that another program listed.
pub(super) const WHY: &str = "listed by another program";

/// One id of an hour's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unclaimed {
    pub(super) item: String,
    /// How often it is in the list, and how often of them because of us.
    pub(super) seen: u64,
    pub(super) held: u64,
}

/// What other programs put into the list of one hour.
#[derive(Debug)]
struct Hour {
    /// A moment in it.
    at_us: i64,
    start_ms: i64,
    items: Vec<Unclaimed>,
}

impl Run {
    /// Failures that other programs listed, in the hour that begins at `only`, by moment and item. They are of no run.
    pub(super) async fn unclaimed(&self, only: Option<i64>) -> Result<Vec<(i64, Failure)>> {
        let mut found = Vec::new();
        for hour in self.unclaimed_hours(ops::FAILURES, only).await? {
            found.extend(hour.items.into_iter().map(|one| {
                let failure = Failure {
                    item: one.item,
                    error: WHY.to_owned(),
                    error_cut: false,
                    attempts: one.seen - one.held,
                    last_failed_us: hour.start_ms * 1000,
                    run_id: String::new(),
                };
                (hour.start_ms, failure)
            }));
        }
        found.sort_unstable_by(|(one_ms, one), (two_ms, two)| (one_ms, &one.item).cmp(&(two_ms, &two.item)));
        Ok(found)
    }

    /// Makes what other programs listed failures of `id`; of a run that is at work when none is named, and of a new one
    /// where there is none.
    pub(super) async fn take_over(&self, id: Option<&str>) -> Result<()> {
        let hours = self.unclaimed_hours(ops::RETRY, None).await?;
        if hours.iter().all(|hour| hour.items.is_empty()) {
            return Ok(());
        }
        let id = match id {
            Some(id) => id.to_owned(),
            None => self.taker().await?,
        };
        for hour in &hours {
            for items in hour.items.chunks(MAX_ITEMS) {
                if !self.take_page(&id, hour, items).await? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The run that takes over what is of no run: the last active that is at work, else the last active.
    async fn taker(&self) -> Result<String> {
        const OP: &str = ops::RETRY;
        let ids = self.ids(OP, 0).await?;
        for (id, _) in ids.iter().take(LOOKS) {
            match self.look(id, super::Items::Without).await {
                Ok(run) if !run.over => return Ok(id.clone()),
                Ok(_) => {}
                Err(error) if error.code == Code::RunMissing || error.code.retry() == Retry::Useless => {}
                Err(error) => return Err(error.during(OP)),
            }
        }
        match ids.into_iter().next() {
            Some((id, _)) => Ok(id),
            None => self.new_taker().await,
        }
    }

    async fn new_taker(&self) -> Result<String> {
        const OP: &str = ops::RETRY;
        let begun = self.begin_fresh(StartAsk::default()).await.map_err(|error| error.during(OP))?;
        let begun = begun.ok_or_else(|| Error::new(OP, Code::StoreClock, "no free id was found"))?;
        debug_assert_eq!(begun.outcome, Outcome::Started, "its id is new");
        Ok(begun.run.run_id)
    }

    /// `false` when the run takes no more: there is none, or it is full.
    async fn take_page(&self, id: &str, hour: &Hour, items: &[Unclaimed]) -> Result<bool> {
        const OP: &str = ops::RETRY;
        let frame = Frame { op: OP, run: self, id, request_id: None, pulse: None };
        for first in [true, false] {
            let call = ops::take_over(frame, hour.at_us, items)?;
            match run_take_over::Reply::read(OP, self.bound.run(OP, call).await?)? {
                run_take_over::Reply::Taken { .. } => break,
                // Another program began it; the call that follows says so if there is none at all.
                run_take_over::Reply::Missing if first => match self.look(id, super::Items::Without).await {
                    Ok(_) => {}
                    Err(error) if error.code == Code::RunMissing => return Ok(false),
                    Err(error) => return Err(error.during(OP)),
                },
                run_take_over::Reply::Missing => return Err(missing(OP, id)),
                run_take_over::Reply::Malformed { key } => return Err(answer::malformed(OP, &key)),
                run_take_over::Reply::Full => {
                    tracing::warn!(run = self.name(), id, "the run lists as many failures as a run may");
                    return Ok(false);
                }
            }
        }
        if !self.is_whole() {
            let told = self.bound.run(OP, ops::known(self, hour.at_us, items)?).await?;
            if let run_known::Reply::Malformed { key } = run_known::Reply::read(OP, told)? {
                return Err(answer::malformed(OP, &key));
            }
        }
        Ok(true)
    }

    /// This hour, or all whose lists are kept.
    async fn unclaimed_hours(&self, op: &'static str, only: Option<i64>) -> Result<Vec<Hour>> {
        let moments: Vec<i64> = match only {
            Some(start_ms) => vec![start_ms.saturating_mul(1000)],
            None => {
                let now_us = self.bound.engine.now_us();
                let kept = i64::try_from(self.spec.hour_ttl.as_secs() / 3600).unwrap_or(HOURS_MAX);
                (0..=(kept + 1).min(HOURS_MAX)).map(|back| now_us - back * HOUR_US).collect()
            }
        };
        let reads: Vec<_> = moments.into_iter().map(|at_us| self.unclaimed_of(op, at_us).boxed()).collect();
        stream::iter(reads).buffered(AT_ONCE).try_collect().await
    }

    async fn unclaimed_of(&self, op: &'static str, at_us: i64) -> Result<Hour> {
        let start_ms = keys::hour(op, &self.bound, at_us)?.1.start_ms;
        let items = match self.read_list(op, at_us).await {
            Ok(items) => items,
            // The list is a view that others write: one that is spoiled hides no failure of a run.
            Err(error) if error.code.retry() == Retry::Useless => {
                tracing::warn!(run = self.name(), %error, "an hour's list of failures cannot be read");
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        Ok(Hour { at_us, start_ms, items })
    }

    /// The ids of a list that stand there more often than because of us: of its newest entries.
    async fn read_list(&self, op: &'static str, at_us: i64) -> Result<Vec<Unclaimed>> {
        let (mut seen, mut order) = (HashMap::<Bytes, (u64, u64)>::new(), Vec::new());
        for page in 0..PAGES {
            let call = ops::unclaimed(op, self, at_us, page * PAGE, (page + 1) * PAGE - 1)?;
            let run_unclaimed::Reply::Page { items } =
                run_unclaimed::Reply::read(op, self.bound.run(op, call).await?)?;
            let read = items.len() as u64;
            for run_unclaimed::ItemsRow { item, known } in items {
                let held = answer::counted(known);
                let counts = seen.entry(item.clone()).or_insert_with(|| {
                    order.push(item);
                    (0, held)
                });
                counts.0 += 1;
            }
            if read < PAGE {
                break;
            }
        }
        let unclaimed = order.into_iter().filter_map(|item| {
            let (seen, held) = seen.get(&item).copied().filter(|(seen, held)| seen > held)?;
            // What no item can be is nothing that anybody could process.
            let item = String::from_utf8(item.to_vec()).ok()?;
            let sound = !item.is_empty() && !is_longer(&item, MAX_ITEM_CHARS);
            sound.then_some(Unclaimed { item, seen, held })
        });
        Ok(unclaimed.collect())
    }
}
