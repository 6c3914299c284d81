//! Thresholds: which are exceeded, what is to be done about each, and a log line when that changes.

use std::time::{Duration, Instant};

use quaymaster::Quaymaster;
use quaymaster::schema::Kind;
use quaymaster::store::{Deployment, Health};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Thresholds;
use crate::http::rights::Rights;
use crate::page::latency;

/// How often the log's look is taken.
const EVERY: Duration = Duration::from_secs(15);
/// Under its threshold for so long, it is told to be over; so one that comes and goes does not fill the log.
const CALM: Duration = Duration::from_secs(60);

/// What is to be investigated is logged when it lasts for longer than the minute it is measured over: the calls of a
/// start are slow, and soon forgotten.
const LASTING: Duration = Duration::from_secs(75);

/// Fewer reads of the last minutes say nothing about a cache's hit rate: an empty one begins with misses.
const ENOUGH_READS: u64 = 100;

/// What has a threshold in `[thresholds]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threshold {
    Memory,
    HitRate,
    P95,
    Connections,
}

impl Threshold {
    pub(crate) const ALL: [Self; 4] = [Self::Memory, Self::HitRate, Self::P95, Self::Connections];

    /// Its name in the settings and in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::HitRate => "hit_rate",
            Self::P95 => "p95",
            Self::Connections => "connections",
        }
    }

    /// What is to be done, in two words.
    pub(crate) const fn action(self) -> &'static str {
        match self {
            Self::Memory | Self::Connections => "scale up",
            Self::HitRate | Self::P95 => "investigate",
        }
    }
}

/// One thing beyond its threshold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Exceeded {
    /// `memory`, `hit_rate`, `p95` or `connections`.
    threshold: &'static str,
    /// What exceeds it: `store`, a class of its calls (`single`, `compound`), or a cache (`cache.status`).
    subject: String,
    /// What to do: `scale up` or `investigate`.
    action: &'static str,
    /// How far it is beyond.
    detail: String,
}

impl Exceeded {
    pub(crate) fn new(threshold: Threshold, subject: impl Into<String>, detail: String) -> Self {
        let (threshold, action) = (threshold.name(), threshold.action());
        Self { threshold, subject: subject.into(), action, detail }
    }

    pub(crate) fn is_of(&self, threshold: Threshold) -> bool {
        self.threshold == threshold.name()
    }

    /// As a warning says it.
    pub(crate) fn sentence(&self) -> String {
        format!("{}; {}", self.detail, self.action)
    }
}

/// What of the store is beyond its threshold.
pub(crate) fn of_store(limits: &Thresholds, health: &Health, facts: Option<&Deployment>) -> Vec<Exceeded> {
    let mut out = Vec::new();
    let used = facts
        .and_then(|facts| Some((facts.used_memory_bytes?, facts.max_memory_bytes.filter(|max| *max > 0)?)));
    if let Some((used, max)) = used
        && used as f64 > limits.memory * max as f64
    {
        let percent = used as f64 * 100.0 / max as f64;
        let detail = format!("the store uses {percent:.0} % of its {max} bytes of memory");
        out.push(Exceeded::new(Threshold::Memory, "store", detail));
    }
    out.extend(latency::slow(limits, health));
    if let Some(clients) = facts.and_then(|facts| facts.connected_clients)
        && clients > limits.connections
    {
        let detail = format!("the store has {clients} clients, over {}", limits.connections);
        out.push(Exceeded::new(Threshold::Connections, "store", detail));
    }
    out
}

/// What of a store is beyond its threshold and what to do, a sentence each; for whoever looks once.
pub fn warnings(limits: &Thresholds, health: &Health, facts: &Deployment) -> Vec<String> {
    of_store(limits, health, Some(facts)).iter().map(Exceeded::sentence).collect()
}

/// What is beyond its threshold, the caches of this process that the caller reaches included.
pub(crate) fn exceeded(
    limits: &Thresholds,
    health: &Health,
    facts: Option<&Deployment>,
    quaymaster: &Quaymaster,
    rights: Rights<'_>,
) -> Vec<Exceeded> {
    let mut out = of_store(limits, health, facts);
    let mut caches: Vec<_> =
        quaymaster.caches().filter(|cache| rights.reach(Kind::Cache, cache.name())).collect();
    caches.sort_by_key(|cache| cache.name());
    for cache in caches {
        let reads = cache.counts().recent();
        if let Some(ratio) = reads.hit_ratio().filter(|_| reads.total() >= ENOUGH_READS)
            && ratio < limits.hit_rate
        {
            let (name, total) = (cache.name(), reads.total());
            let detail = format!(
                "cache.{name}: {:.1} % of {total} reads of the last minutes hit, under {:.1} %",
                ratio * 100.0,
                limits.hit_rate * 100.0
            );
            out.push(Exceeded::new(Threshold::HitRate, format!("cache.{name}"), detail));
        }
    }
    out
}

/// Logs what begins and ceases to be beyond its threshold, until `stop`.
pub(crate) async fn watch(app: &App, stop: &CancellationToken) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = Told::default();
    while stop.run_until_cancelled(every.tick()).await.is_some() {
        let engine = app.services.quaymaster.engine();
        let facts = app.probe.deployment(&**engine).await.ok();
        let (health, quaymaster) = (engine.health(), &app.services.quaymaster);
        let now = exceeded(&app.thresholds, &health, facts.as_ref(), quaymaster, Rights::owner());
        for change in told.changes(Instant::now(), now) {
            match change {
                Change::Begun(Exceeded { threshold, subject, action, detail }) => {
                    tracing::warn!(threshold, subject, action, "threshold exceeded: {detail}; {action}");
                }
                Change::Over(Exceeded { threshold, subject, .. }) => {
                    tracing::info!(threshold, subject, "under its threshold again");
                }
            }
        }
    }
}

/// What the log says.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Begun(Exceeded),
    Over(Exceeded),
}

/// What is beyond its threshold, and not over.
#[derive(Debug)]
struct Seen {
    one: Exceeded,
    since: Instant,
    last: Instant,
    told: bool,
}

impl Seen {
    /// Whether the log says it: what is to be investigated must last.
    fn is_due(&self, now: Instant) -> bool {
        let lasts = now.duration_since(self.since) >= LASTING;
        !self.told && (lasts || self.one.action == Threshold::Memory.action())
    }
}

/// What was told and is not over, and what may be told soon.
#[derive(Debug, Default)]
struct Told(Vec<Seen>);

impl Told {
    fn changes(&mut self, now: Instant, found: Vec<Exceeded>) -> Vec<Change> {
        for one in found {
            let same =
                |seen: &&mut Seen| seen.one.threshold == one.threshold && seen.one.subject == one.subject;
            match self.0.iter_mut().find(same) {
                Some(seen) => (seen.one, seen.last) = (one, now),
                None => self.0.push(Seen { one, since: now, last: now, told: false }),
            }
        }
        let mut changes = Vec::new();
        for seen in &mut self.0 {
            if seen.is_due(now) {
                seen.told = true;
                changes.push(Change::Begun(seen.one.clone()));
            }
        }
        let calm = |seen: &mut Seen| {
            let since = now.duration_since(seen.last);
            if seen.told { since >= CALM } else { !since.is_zero() }
        };
        let over: Vec<Seen> = self.0.extract_if(.., calm).collect();
        changes.extend(over.into_iter().filter(|seen| seen.told).map(|seen| Change::Over(seen.one)));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_threshold_says_what_its_document_says() {
        let said = Threshold::ALL.map(|threshold| (threshold.name(), threshold.action()));
        let wanted = [
            ("memory", "scale up"),
            ("hit_rate", "investigate"),
            ("p95", "investigate"),
            ("connections", "scale up"),
        ];
        assert_eq!(said, wanted);
    }

    #[test]
    fn the_log_tells_once_that_it_begins_and_once_that_it_is_over() {
        let memory = |percent: u8| Exceeded::new(Threshold::Memory, "store", format!("uses {percent} %"));
        let (mut told, start) = (Told::default(), Instant::now());
        let mut at = |seconds: u64, found: &[Exceeded]| {
            told.changes(start + Duration::from_secs(seconds), found.to_vec())
        };
        assert_eq!(at(0, &[memory(81)]), [Change::Begun(memory(81))]);
        assert_eq!(at(15, &[memory(83)]), [], "it is the same, if more");
        assert_eq!(at(30, &[]), []);
        assert_eq!(at(45, &[memory(82)]), [], "it comes and goes");
        assert_eq!(at(90, &[]), []);
        assert_eq!(at(105, &[]), [Change::Over(memory(82))]);
        assert_eq!(at(120, &[memory(81)]), [Change::Begun(memory(81))]);
    }

    #[test]
    fn what_is_to_be_investigated_is_told_when_it_lasts() {
        let slow = Exceeded::new(Threshold::P95, "single", "slow".into());
        let (mut told, start) = (Told::default(), Instant::now());
        let mut at = |seconds: u64, found: &[Exceeded]| {
            told.changes(start + Duration::from_secs(seconds), found.to_vec())
        };
        for seconds in [0, 15, 30, 45] {
            assert_eq!(at(seconds, std::slice::from_ref(&slow)), [], "the calls of a start");
        }
        assert_eq!(at(60, &[]), []);
        for seconds in [75, 90, 105, 120, 135] {
            assert_eq!(at(seconds, std::slice::from_ref(&slow)), []);
        }
        assert_eq!(at(150, std::slice::from_ref(&slow)), [Change::Begun(slow.clone())]);
    }
}
