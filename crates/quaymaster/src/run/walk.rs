//! Failures and runs by the page.

use std::collections::HashSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use quaymaster_schema::{BucketUnit, Spelling};

use super::answer::{self, Failure, RunState};
use super::ops::{self, Frame};
use super::{AT_ONCE, Items, Run, missing};
use crate::scripts::{run_failures, run_list};
use crate::wrote::in_steps;
use crate::{Code, Error, Result, Retry};

/// The most failures or runs of one page.
pub const PAGE_MAX: u64 = 1000;

/// How far the index may be behind a run's last activity.
const BEHIND_MS: i64 = 60_000;

/// Runs looked at for one page of failures; a page that found too little says where to go on.
const VISITS: usize = 1000;

/// Runs asked for failures to hand out, the last active first.
const RETRY_VISITS: usize = 10_000;

/// Ids read at once.
const IDS: u64 = 1000;

/// A longer lease is a mistake.
pub const LEASE_MAX: Duration = Duration::from_secs(86_400);

/// Of one millisecond, so many failures more than asked for are read at first, to find the place of a cursor.
const SAME_MOMENT: u64 = 128;

/// Which failures are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailuresAsk<'a> {
    /// Only those whose last failure was in this hour, `2024-09-17_14`.
    pub hour: Option<&'a str>,
    /// Only those of this run.
    pub run_id: Option<&'a str>,
    /// How many at most; up to [`PAGE_MAX`].
    pub count: u64,
    /// Where the page before ended.
    pub cursor: Option<&'a str>,
}

impl Default for FailuresAsk<'_> {
    fn default() -> Self {
        Self { hour: None, run_id: None, count: 100, cursor: None }
    }
}

/// A page of failures.
#[must_use = "there may be more"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailuresPage {
    /// By run, and within a run by last failure.
    pub failures: Vec<Failure>,
    /// The cursor of the next page, if there is more.
    pub next: Option<String>,
}

/// What is to be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAsk<'a> {
    /// Only failures of this run; of every run otherwise. What other programs listed is taken over by it, or by a run
    /// that is at work.
    pub run_id: Option<&'a str>,
    /// How many at most; up to [`PAGE_MAX`].
    pub count: u64,
    /// How long nobody else gets them.
    pub lease: Duration,
    /// The same id again within ten minutes gets the same items; only with a `run_id`.
    pub request_id: Option<&'a str>,
}

impl Default for RetryAsk<'_> {
    fn default() -> Self {
        Self { run_id: None, count: 10, lease: Duration::from_secs(300), request_id: None }
    }
}

/// A page of runs.
#[must_use = "there may be more"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunsPage {
    /// The last active first, without their items.
    pub runs: Vec<RunState>,
    /// The cursor of the next page, if there is more.
    pub next: Option<String>,
}

/// A place in the failures of all runs: behind this item.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    failed_ms: i64,
    run_id: String,
    item: String,
}

impl Place {
    fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}\n{}\n{}", self.failed_ms, self.run_id, self.item))
    }

    fn parse(op: &'static str, text: &str) -> Result<Self> {
        let read = || {
            let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
            let mut words = text.splitn(3, '\n');
            let failed_ms = words.next()?.parse().ok()?;
            Some(Self { failed_ms, run_id: words.next()?.to_owned(), item: words.next()?.to_owned() })
        };
        read().ok_or_else(|| cursor(op))
    }

    fn is_before(&self, failed_ms: i64, item: &Bytes) -> bool {
        (self.failed_ms, self.item.as_bytes()) < (failed_ms, &item[..])
    }
}

fn cursor(op: &'static str) -> Error {
    Error::new(op, Code::CursorUnknown, "cursor: the `next` of an earlier answer to this call")
        .field("cursor")
}

fn check_count(op: &'static str, count: u64) -> Result<()> {
    if (1..=PAGE_MAX).contains(&count) {
        return Ok(());
    }
    Err(Error::new(op, Code::RequestInvalid, format!("count: 1 to {PAGE_MAX}, got {count}")).field("count"))
}

impl Run {
    /// What failed and was not processed since: of an hour, of a run, or all of it, by the page.
    pub async fn failures(&self, ask: FailuresAsk<'_>) -> Result<FailuresPage> {
        let page = self.page(ask).await;
        self.noted(page)
    }

    async fn page(&self, ask: FailuresAsk<'_>) -> Result<FailuresPage> {
        const OP: &str = ops::FAILURES;
        check_count(OP, ask.count)?;
        let (from_ms, to_ms) = match ask.hour {
            Some(hour) => {
                let (from, to) = self.hour(OP, hour)?;
                (from, Some(to))
            }
            None => (0, None),
        };
        let place = ask.cursor.map(|text| Place::parse(OP, text)).transpose()?;
        let mut ids = match ask.run_id {
            Some(id) => vec![(id.to_owned(), 0)],
            None => self.ids(OP, from_ms - BEHIND_MS).await?,
        };
        // A walk by id does not lose a run that becomes active meanwhile.
        ids.sort_unstable();
        if let Some(place) = &place {
            ids.retain(|(id, _)| *id >= place.run_id);
        }
        let more = ids.get(VISITS).map(|(id, _)| Place {
            failed_ms: from_ms,
            run_id: id.clone(),
            item: String::new(),
        });
        ids.truncate(VISITS);
        let mut pages = Vec::with_capacity(ids.len());
        for (id, active_ms) in ids {
            let place = place.as_ref().filter(|place| place.run_id == id);
            pages.push(self.failures_of(id, active_ms, place, from_ms, to_ms, ask).boxed());
        }
        let mut pages = stream::iter(pages).buffered(AT_ONCE);
        let mut found = self.listed_elsewhere(ask, place.as_ref(), from_ms).await?;
        let count = usize::try_from(ask.count).unwrap_or(usize::MAX);
        while found.len() <= count
            && let Some(page) = pages.next().await
        {
            found.extend(page?);
        }
        let mut next = more;
        if found.len() > count {
            found.truncate(count);
            next = found.last().map(|(failed_ms, last)| Place {
                failed_ms: *failed_ms,
                run_id: last.run_id.clone(),
                item: last.item.clone(),
            });
        }
        let failures = found.into_iter().map(|(_, failure)| failure).collect();
        Ok(FailuresPage { failures, next: next.map(|place| place.text()) })
    }

    /// What other programs listed stands in front of what failed in runs.
    async fn listed_elsewhere(
        &self,
        ask: FailuresAsk<'_>,
        place: Option<&Place>,
        from_ms: i64,
    ) -> Result<Vec<(i64, Failure)>> {
        if ask.run_id.is_some() || place.is_some_and(|place| !place.run_id.is_empty()) {
            return Ok(Vec::new());
        }
        let mut listed = self.unclaimed(ask.hour.map(|_| from_ms)).await?;
        if let Some(place) = place {
            listed.retain(|(ms, one)| (place.failed_ms, place.item.as_str()) < (*ms, one.item.as_str()));
        }
        Ok(listed)
    }

    /// One more than `ask` wants of one run, behind `place`.
    async fn failures_of(
        &self,
        id: String,
        active_ms: i64,
        place: Option<&Place>,
        from_ms: i64,
        to_ms: Option<i64>,
        ask: FailuresAsk<'_>,
    ) -> Result<Vec<(i64, Failure)>> {
        const OP: &str = ops::FAILURES;
        let from_ms = place.map_or(from_ms, |place| place.failed_ms.max(from_ms));
        let wanted = ask.count + 1;
        let mut read = wanted + place.map_or(0, |_| SAME_MOMENT);
        loop {
            let call = ops::failures(self, &[(&self.spec.id, &id)], from_ms, to_ms, read)?;
            let rows = match run_failures::Reply::read(OP, self.bound.run(OP, call).await?)? {
                run_failures::Reply::Failures { failures } => failures,
                run_failures::Reply::Missing if ask.run_id.is_some() => return Err(missing(OP, &id)),
                run_failures::Reply::Missing => {
                    self.settle(OP, &id, active_ms, "gone", 0).await?;
                    return Ok(Vec::new());
                }
            };
            let (mut found, seen) = (Vec::new(), rows.len() as u64);
            for run_failures::FailuresRow { item, failed_ms, record } in rows {
                if place.is_none_or(|place| place.is_before(failed_ms, &item)) {
                    found.push((failed_ms, answer::failure(&id, &item, &record)));
                }
            }
            // So many of one moment stand before the place that the page is not full, and not all was read.
            if seen < read || found.len() as u64 >= wanted {
                return Ok(found);
            }
            read = read.saturating_mul(4);
        }
    }

    /// The milliseconds of a documented hour.
    fn hour(&self, op: &'static str, text: &str) -> Result<(i64, i64)> {
        let bad = || {
            let detail = format!("hour: {} in UTC, got {text:?}", BucketUnit::Hour.format());
            Error::new(op, Code::RequestInvalid, detail).field("hour")
        };
        let row = self.bound.resource.key("failed").ok_or_else(bad)?;
        let key = row.pattern.text().replace("{hour}", text);
        let bucket = row.pattern.parse_as(key.as_bytes(), Spelling::Single).and_then(|parsed| parsed.bucket);
        bucket.map(|bucket| (bucket.start_ms, bucket.end_ms)).ok_or_else(bad)
    }

    /// Ids and last activity of the runs that were active since `since_ms`.
    pub(super) async fn ids(&self, op: &'static str, since_ms: i64) -> Result<Vec<(String, i64)>> {
        let mut from = "+inf".to_owned();
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let mut skip = 0;
        loop {
            let page = self.ids_page(op, &from, since_ms, skip, IDS).await?;
            let last = page.last().map(|(_, active_ms)| active_ms.to_string());
            let full = page.len() as u64 == IDS;
            let before = found.len();
            found.extend(page.into_iter().filter(|(id, _)| seen.insert(id.clone())));
            match last {
                Some(last) if full => {
                    // All of one millisecond: go on behind what is known of it.
                    skip = if found.len() == before { skip + IDS } else { 0 };
                    from = last;
                }
                _ => return Ok(found),
            }
        }
    }

    async fn ids_page(
        &self,
        op: &'static str,
        from: &str,
        since_ms: i64,
        skip: u64,
        count: u64,
    ) -> Result<Vec<(String, i64)>> {
        let call = ops::list(op, self, from, since_ms, skip, count)?;
        let run_list::Reply::Runs { runs } = run_list::Reply::read(op, self.bound.run(op, call).await?)?;
        Ok(runs.iter().map(|run| (answer::text(&run.id), run.active_ms)).collect())
    }

    /// Runs, the last active first, by the page.
    pub async fn list(&self, count: u64, cursor: Option<&str>) -> Result<RunsPage> {
        let page = self.list_page(count, cursor).await;
        self.noted(page)
    }

    async fn list_page(&self, count: u64, cursor: Option<&str>) -> Result<RunsPage> {
        const OP: &str = ops::LIST;
        check_count(OP, count)?;
        let (from, skip) = match cursor {
            Some(text) => {
                let (ms, skip) = text.split_once('-').ok_or_else(|| self::cursor(OP))?;
                let ms: i64 = ms.parse().map_err(|_| self::cursor(OP))?;
                (ms.to_string(), skip.parse::<u32>().map_err(|_| self::cursor(OP))?.into())
            }
            None => ("+inf".to_owned(), 0),
        };
        let ids = self.ids_page(OP, &from, 0, skip, count + 1).await?;
        let shown: Vec<&(String, i64)> =
            ids.iter().take(usize::try_from(count).unwrap_or(usize::MAX)).collect();
        let next = (ids.len() > shown.len()).then(|| shown.last().map(|(_, ms)| *ms)).flatten().map(|ms| {
            let same = shown.iter().filter(|(_, other)| *other == ms).count() as u64;
            format!("{ms}-{}", if from == ms.to_string() { skip + same } else { same })
        });
        let looks: Vec<_> =
            shown.into_iter().map(|(id, active_ms)| self.look_listed(id, *active_ms).boxed()).collect();
        let mut looks = stream::iter(looks).buffered(AT_ONCE);
        let mut runs = Vec::new();
        while let Some(run) = looks.next().await {
            runs.extend(run?);
        }
        Ok(RunsPage { runs, next })
    }

    /// A run of the index; `None` when it is gone, and the index is told so.
    async fn look_listed(&self, id: &str, active_ms: i64) -> Result<Option<RunState>> {
        const OP: &str = ops::LIST;
        match self.look(id, Items::Without).await {
            Ok(run) => Ok(Some(run)),
            Err(error) if error.code == Code::RunMissing => {
                self.settle(OP, id, active_ms, "gone", 0).await.map(|()| None)
            }
            // One that another program has spoiled is not shown; the others are.
            Err(error) if error.code.retry() == Retry::Useless => {
                tracing::warn!(run = self.name(), id, %error, "a run cannot be listed");
                Ok(None)
            }
            Err(error) => Err(error.during(OP)),
        }
    }

    /// Hands out failures for another try, each to one caller until its lease ends. They stay listed until they are
    /// processed.
    pub async fn retry(&self, ask: RetryAsk<'_>) -> Result<Vec<Failure>> {
        let handed = in_steps(self.hand_out(ask)).await;
        self.noted(handed)
    }

    async fn hand_out(&self, ask: RetryAsk<'_>) -> Result<Vec<Failure>> {
        const OP: &str = ops::RETRY;
        check_count(OP, ask.count)?;
        if ask.lease.as_millis() == 0 || ask.lease > LEASE_MAX {
            let detail = format!("lease: up to {} s, and more than nothing", LEASE_MAX.as_secs());
            return Err(Error::new(OP, Code::RequestInvalid, detail).field("lease"));
        }
        if ask.run_id.is_none() && ask.request_id.is_some() {
            let detail = "request_id: only for the failures of one run; name it by `run_id`";
            return Err(Error::new(OP, Code::RequestInvalid, detail).field("request_id"));
        }
        self.take_over(ask.run_id).await?;
        if let Some(id) = ask.run_id {
            return self.hand_out_of(id, ask, ask.count).await;
        }
        let mut handed = Vec::new();
        for (id, active_ms) in self.ids(OP, 0).await?.into_iter().take(RETRY_VISITS) {
            let wanted = ask.count - handed.len() as u64;
            if wanted == 0 {
                break;
            }
            match self.hand_out_of(&id, ask, wanted).await {
                Ok(found) => handed.extend(found),
                Err(error) if error.code == Code::RunMissing => {
                    self.settle(OP, &id, active_ms, "gone", 0).await?;
                }
                Err(error) if error.code.retry() == Retry::Useless => {
                    tracing::warn!(run = self.name(), id, %error, "a run's failures cannot be handed out");
                }
                // What is handed out already must reach its caller; the rest is there for the next one.
                Err(error) if handed.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(handed)
    }

    async fn hand_out_of(&self, id: &str, ask: RetryAsk<'_>, count: u64) -> Result<Vec<Failure>> {
        const OP: &str = ops::RETRY;
        let build = |frame: Frame<'_>, _| ops::retry(frame, count, ask.lease);
        let ((beat, items), _) = self.ask(OP, id, ask.request_id, true, build, answer::retried).await?;
        self.beat(OP, id, beat > 0, beat).await;
        Ok(items.iter().map(|row| answer::failure(id, &row.item, &row.record)).collect())
    }
}
