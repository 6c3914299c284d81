//! Reads a report together: totals first, then names, counts and sketches in pages that keep every script short.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use quaymaster_store::{Invocation, Reply};

use super::answer::{self, Endpoint, Report, Share};
use super::endpoint::{OVERFLOW, UNMATCHED};
use super::{Stats, ops};
use crate::{Code, Error, Result};

/// Hours that are kept, the current one among them.
pub const MAX_HOURS: u32 = 24;

/// Counters in one page.
const PAGE: usize = 500;

/// Names in one page: all instances there can be. Whoever flushes moves to the front, past a page that was read, so
/// only what is told in one page is told whole.
const NAMES: usize = 10_000;

/// Sketches in one page: at most two thousand buckets each.
const SKETCHES: usize = 24;

/// Pages on the way at once.
const AT_ONCE: usize = 4;

const HOUR_MS: i64 = 3_600_000;

/// What a report is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportAsk {
    /// Endpoints over the last so many hours, the current one among them; of all time unless given.
    pub hours: Option<u32>,
    /// At most so many endpoints, the most used; all unless given.
    pub endpoints: Option<usize>,
}

impl Stats {
    pub(super) async fn read(&self, ask: ReportAsk) -> Result<Report> {
        const OP: &str = ops::REPORT;
        if ask.hours.is_some_and(|hours| hours == 0 || hours > MAX_HOURS) {
            let detail = format!("hours: 1 to {MAX_HOURS}, got {}", ask.hours.unwrap_or(0));
            return Err(Error::new(OP, Code::RequestInvalid, detail).field("hours"));
        }
        let hour_ms = self.bound.engine.now_us().div_euclid(HOUR_MS * 1000) * HOUR_MS;
        let hours: Vec<i64> = (0..i64::from(ask.hours.unwrap_or(MAX_HOURS)))
            .rev()
            .map(|back| hour_ms - back * HOUR_MS)
            .collect();
        let call = ops::report(&self.bound, &self.spec, &hours)?;
        let answer::Totals { mut report, statuses } =
            answer::totals(OP, self.bound.run(OP, call).await?, &hours)?;
        let codes: Vec<String> = statuses.iter().map(u16::to_string).collect();
        let counted = self.counts_of(&["errors_status"], "status_code", &refs(&codes)).await?;
        report.by_status = statuses.into_iter().zip(counted).filter(|(_, count)| *count > 0).collect();

        let mut instances = self.names("instances", ("requests_instance", "instance_id"), i64::MIN).await?;
        instances.push(OVERFLOW.to_owned());
        instances.sort_unstable();
        let counted = self.counts_of(&["requests_instance"], "instance_id", &refs(&instances)).await?;
        report.instances = instances
            .into_iter()
            .zip(counted)
            .filter(|(name, count)| *count > 0 || name != OVERFLOW)
            .collect();

        let since_ms = ask.hours.and_then(|_| hours.first().copied()).unwrap_or(i64::MIN);
        let mut endpoints = self.names("endpoints", ("requests_endpoint", "endpoint"), since_ms).await?;
        endpoints.extend([UNMATCHED.to_owned(), OVERFLOW.to_owned()]);
        let most = ask.endpoints.unwrap_or(usize::MAX);
        report.endpoints = match ask.hours {
            None => self.of_all_time(endpoints, most, &mut report.endpoints_total).await?,
            Some(_) => {
                let found = self.of_hours(endpoints, &hours).await?;
                report.endpoints_total = found.len() as u64;
                found.into_iter().take(most).collect()
            }
        };
        Ok(report)
    }

    /// Counts decide which endpoints are shown; only their sketches are read.
    async fn of_all_time(&self, names: Vec<String>, most: usize, total: &mut u64) -> Result<Vec<Endpoint>> {
        let counted =
            self.counts_of(&["requests_endpoint", "errors_endpoint"], "endpoint", &refs(&names)).await?;
        let mut found: Vec<Endpoint> = names
            .into_iter()
            .zip(counted.chunks(2))
            .filter(|(_, counts)| counts[0] > 0)
            .map(|(name, counts)| Endpoint {
                name,
                count: counts[0],
                errors: counts[1],
                ..Endpoint::default()
            })
            .collect();
        by_use(&mut found);
        *total = found.len() as u64;
        found.truncate(most);
        let names: Vec<String> = found.iter().map(|endpoint| endpoint.name.clone()).collect();
        let shares = self.shares(&names, None).await?;
        for (endpoint, share) in found.iter_mut().zip(shares) {
            measure(endpoint, &share);
        }
        Ok(found)
    }

    async fn of_hours(&self, names: Vec<String>, hours: &[i64]) -> Result<Vec<Endpoint>> {
        let shares = self.shares(&names, Some(hours)).await?;
        let mut found: Vec<Endpoint> = names
            .into_iter()
            .zip(shares)
            .filter(|(_, share)| share.sketch.count() > 0)
            .map(|(name, share)| {
                let mut endpoint = Endpoint {
                    name,
                    count: share.sketch.count(),
                    errors: share.errors,
                    ..Endpoint::default()
                };
                measure(&mut endpoint, &share);
                endpoint
            })
            .collect();
        by_use(&mut found);
        Ok(found)
    }

    /// The names in an index that were used since a moment; `of` is a key that they are part of.
    async fn names(&self, role: &str, of: (&str, &str), since_ms: i64) -> Result<Vec<String>> {
        let mut all = Vec::new();
        loop {
            let call = ops::names(&self.bound, role, all.len(), NAMES)?;
            let page = answer::names(ops::REPORT, self.bound.run(ops::REPORT, call).await?)?;
            let (found, fresh) = (page.len(), page.into_iter().filter(|(_, last_ms)| *last_ms >= since_ms));
            let before = all.len();
            all.extend(fresh.map(|(name, _)| name));
            if found < NAMES || all.len() - before < found {
                // An index that changed between two pages may have told a name twice.
                all.sort_unstable();
                all.dedup();
                all.retain(|name| self.is_name(ops::REPORT, of.0, of.1, name));
                return Ok(all);
            }
        }
    }

    async fn counts_of(&self, roles: &[&str], placeholder: &str, values: &[&str]) -> Result<Vec<u64>> {
        let pages = values.chunks((PAGE / roles.len()).max(1));
        let calls =
            pages.map(|some| ops::counts(&self.bound, roles, placeholder, some)).collect::<Result<_>>()?;
        let read = |reply| answer::counts(ops::REPORT, reply);
        self.run_all(calls).await?.into_iter().map(read).try_fold(Vec::new(), joined)
    }

    async fn shares(&self, names: &[String], hours: Option<&[i64]>) -> Result<Vec<Share>> {
        let per = hours.map_or(1, <[i64]>::len);
        let pages: Vec<&[String]> = names.chunks((SKETCHES / per).max(1)).collect();
        let calls =
            pages.iter().map(|some| ops::sketches(&self.bound, &refs(some), hours)).collect::<Result<_>>()?;
        let replies = self.run_all(calls).await?.into_iter().zip(pages);
        let read = |(reply, some): (Reply, &[String])| answer::shares(ops::REPORT, reply, some.len(), per);
        replies.map(read).try_fold(Vec::new(), joined)
    }

    /// The replies in the order of the calls.
    async fn run_all(&self, calls: Vec<Invocation>) -> Result<Vec<Reply>> {
        let run = |call: Invocation| self.bound.run(ops::REPORT, call);
        stream::iter(calls).map(run).buffered(AT_ONCE).try_collect().await
    }
}

fn joined<T>(mut all: Vec<T>, page: Result<Vec<T>>) -> Result<Vec<T>> {
    all.extend(page?);
    Ok(all)
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn by_use(endpoints: &mut [Endpoint]) {
    endpoints.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
}

fn measure(endpoint: &mut Endpoint, share: &Share) {
    endpoint.avg_us = share.sum_us.checked_div(share.sketch.count()).unwrap_or(0);
    endpoint.p50_us = share.sketch.percentile_us(50);
    endpoint.p95_us = share.sketch.percentile_us(95);
    endpoint.p99_us = share.sketch.percentile_us(99);
}
