//! Whether a deployment is safe for what the schema holds: looked at before the first call.

use std::fmt;

pub use quaymaster::rights::Scope;
use quaymaster::schema::{Kind, Outage, Schema};
use quaymaster::store::Topology;
use quaymaster::{Code, Engine, Error, Result};

/// A clock this far off is worth a word: buckets in key names follow it until the store corrects them.
const CLOCK_WARN_US: u64 = 1_000_000;

/// What a finding means for starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Goes on.
    Warn,
    /// Does not start.
    Refuse,
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it means for starting.
    pub level: Level,
    /// `eviction`, `persistence`, `version`, `rights`, `cluster-slots`, `pubsub`, `timeout`, `clock`, `outage`, `seal`.
    pub check: &'static str,
    /// What is wrong and what it can cost.
    pub message: String,
    /// What to do.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.check, self.message, self.fix)
    }
}

/// Whether values marked `sensitive` may be stored readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealKey {
    /// They may, and it is said so.
    Optional,
    /// `require_seal_key = true`
    Required,
}

/// Whether eviction was accepted by whoever started us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// Data the schema holds must not be evicted.
    Refused,
    /// `--accept-eviction`
    Accepted,
}

impl Eviction {
    const fn level(self) -> Level {
        match self {
            Self::Refused => Level::Refuse,
            Self::Accepted => Level::Warn,
        }
    }
}

const EVICTION_FIX: &str = "set maxmemory-policy noeviction, or pass --accept-eviction";

/// Looks at the deployment; the worst finding first. Fails when the store cannot be asked.
pub async fn examine(schema: &Schema, engine: &dyn Engine, eviction: Eviction) -> Result<Vec<Finding>> {
    let facts = engine.deployment().await?;
    let redis = matches!(facts.product.as_str(), "redis" | "valkey");
    let mut findings = Vec::new();
    if redis {
        findings.extend(version(&facts.product, &facts.version, schema.oldest_redis()));
        findings.extend(persistence(facts.persistence.as_deref()));
        if let Some(policy) = &facts.eviction_policy {
            findings.extend(evicts(schema, policy, eviction));
        }
        findings.extend(subscribers(schema, facts.pubsub_buffer));
        findings.extend(idle(schema, facts.idle_timeout_s));
    }
    if engine.topology() == Topology::Cluster {
        findings.extend(schema.cluster_problems().into_iter().map(|problem| Finding {
            level: Level::Refuse,
            check: "cluster-slots",
            message: problem.to_string(),
            fix: "declare `colocate` for the resources it names".into(),
        }));
    }
    findings.extend(clock(engine.health().clock_offset_us));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    Ok(findings)
}

/// Looks whether the store's user may run the scripts of this schema, as far as `scope` goes: one that is refused a
/// command half-way leaves behind what it has written.
pub async fn rights(schema: &Schema, engine: &dyn Engine, scope: Scope<'_>) -> Result<Option<Finding>> {
    let missing = quaymaster::rights::missing(schema, engine, scope).await?;
    Ok(missing.map(|missing| Finding {
        level: Level::Refuse,
        check: "rights",
        message: missing.to_string(),
        fix: format!("allow it: {}; `quaymaster docs` prints the whole rule", missing.rule()),
    }))
}

/// Looks at a store that holds nothing but received chunks of one upload. A restart that forgets them is known, and their
/// senders are asked for them again; eviction takes them while everything else is at work.
pub async fn examine_chunks(upload: &str, engine: &dyn Engine, eviction: Eviction) -> Result<Vec<Finding>> {
    let facts = engine.deployment().await?;
    if !matches!(facts.product.as_str(), "redis" | "valkey") {
        return Ok(Vec::new());
    }
    let evicts = facts.eviction_policy.filter(|policy| policy != "noeviction").map(|policy| Finding {
        level: eviction.level(),
        check: "eviction",
        message: format!(
            "maxmemory-policy {policy} of the store that `chunks` of upload.{upload} names destroys chunks that were \
             acknowledged"
        ),
        fix: EVICTION_FIX.into(),
    });
    // The scripts of uploads ask for no more.
    Ok(version(&facts.product, &facts.version, (6, 0)).into_iter().chain(evicts).collect())
}

/// Tells of what is no reason to refuse a store; an error is, and then it is all that is told.
pub(crate) fn weigh(findings: &[Finding]) -> Result<()> {
    if let Some(refusal) = refusal(findings) {
        return Err(refusal);
    }
    for finding in findings.iter().filter(|finding| finding.level == Level::Warn) {
        tracing::warn!(check = finding.check, "{}; {}", finding.message, finding.fix);
    }
    Ok(())
}

/// The error that refused findings amount to.
pub fn refusal(findings: &[Finding]) -> Option<Error> {
    let refused: Vec<String> =
        findings.iter().filter(|finding| finding.level == Level::Refuse).map(ToString::to_string).collect();
    (!refused.is_empty()).then(|| Error::new("store.examine", Code::StoreUnsafe, refused.join("\n")))
}

fn version(product: &str, version: &str, oldest: (u32, u32)) -> Option<Finding> {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next()?, numbers.next().unwrap_or(0));
    ((major, minor) < oldest).then(|| Finding {
        level: Level::Refuse,
        check: "version",
        message: format!("{product} {version} lacks commands the scripts of this schema need"),
        fix: format!("use {}.{} or newer", oldest.0, oldest.1),
    })
}

fn persistence(persistence: Option<&str>) -> Option<Finding> {
    let (message, fix) = match persistence? {
        "none" => (
            "the store keeps nothing on disk: a restart forgets every count, lock and job",
            "set appendonly yes",
        ),
        "rdb" => (
            "the store saves snapshots only: a crash forgets everything since the last one",
            "set appendonly yes",
        ),
        _ => return None,
    };
    Some(Finding { level: Level::Warn, check: "persistence", message: message.into(), fix: fix.into() })
}

pub(crate) fn evicts(schema: &Schema, policy: &str, eviction: Eviction) -> Option<Finding> {
    let losses = schema.eviction_losses(policy);
    if losses.is_empty() {
        return None;
    }
    // One line per resource, however many keys it has.
    let mut all: Vec<String> =
        losses.iter().map(|loss| format!("{}.{} ({})", loss.kind, loss.name, loss.loss)).collect();
    all.dedup();
    let mut named: Vec<String> = all.iter().take(5).cloned().collect();
    if all.len() > named.len() {
        named.push(format!("and {} more", all.len() - named.len()));
    }
    Some(Finding {
        level: eviction.level(),
        check: "eviction",
        message: format!("maxmemory-policy {policy} destroys what the schema holds: {}", named.join("; ")),
        fix: EVICTION_FIX.into(),
    })
}

/// What the documents give subscribers, which is also what Redis does by default: 32 MiB, and 8 MiB for a minute.
const PUBSUB_BUFFER: [u64; 3] = [32 << 20, 8 << 20, 60];

/// What the documents set, in seconds.
const IDLE_TIMEOUT_S: u64 = 300;

/// Whether anybody listens to what this schema publishes for programs.
fn publishes(schema: &Schema) -> bool {
    schema.resources().any(|resource| matches!(resource.kind, Kind::Event | Kind::Upload))
}

fn subscribers(schema: &Schema, buffer: Option<[u64; 3]>) -> Option<Finding> {
    let buffer = buffer.filter(|_| publishes(schema))?;
    // A bound of 0 is none; the seconds belong to the bound before them.
    let [hard, soft, seconds] = buffer;
    let below = |bound: u64, least: u64| bound != 0 && bound < least;
    let tight = below(hard, PUBSUB_BUFFER[0])
        || below(soft, PUBSUB_BUFFER[1])
        || (soft != 0 && seconds < PUBSUB_BUFFER[2]);
    tight.then(|| Finding {
        level: Level::Warn,
        check: "pubsub",
        message: format!(
            "client-output-buffer-limit pubsub {hard} {soft} {seconds} cuts off readers of events and progress that are \
             behind for a moment: they miss messages"
        ),
        fix: "set client-output-buffer-limit \"pubsub 32mb 8mb 60\", or more".into(),
    })
}

fn idle(schema: &Schema, timeout_s: Option<u64>) -> Option<Finding> {
    let timeout_s = timeout_s.filter(|seconds| (1..IDLE_TIMEOUT_S).contains(seconds) && publishes(schema))?;
    Some(Finding {
        level: Level::Warn,
        check: "timeout",
        message: format!(
            "timeout {timeout_s} closes connections that are quiet for {timeout_s} s: they are made again"
        ),
        fix: format!("set timeout {IDLE_TIMEOUT_S}, or 0 for never"),
    })
}

fn clock(offset_us: i64) -> Option<Finding> {
    (offset_us.unsigned_abs() > CLOCK_WARN_US).then(|| Finding {
        level: Level::Warn,
        check: "clock",
        message: format!("the store's clock is {:+.1} s from this node's", offset_us as f64 / 1e6),
        fix: "synchronise both; until then every call corrects for it".into(),
    })
}

/// Limits that would count in a database while the store is away, where none is configured: told, not refused.
pub(crate) fn outage(schema: &Schema) -> Option<Finding> {
    let declared: Vec<String> = schema
        .resources()
        .filter(|resource| resource.on_outage == Outage::Database)
        .map(|resource| format!("{}.{}", resource.kind, resource.name))
        .collect();
    (!declared.is_empty()).then(|| Finding {
        level: Level::Warn,
        check: "outage",
        message: format!("on_outage = \"database\" and no database is configured: {}", declared.join(", ")),
        fix: "set database in [store]; until then their calls answer 503 while the store is away".into(),
    })
}

/// The variable that holds the keys for values marked `sensitive`.
pub const SEAL_KEY: &str = "QUAYMASTER_SEAL_KEY";

/// Values marked `sensitive` where there is no key to seal them with.
pub fn unsealed(schema: &Schema) -> Option<Finding> {
    let readable: Vec<String> = schema
        .resources()
        .filter(|resource| resource.sensitive)
        .map(|resource| format!("{}.{}", resource.kind, resource.name))
        .collect();
    (!readable.is_empty()).then(|| Finding {
        level: Level::Warn,
        check: "seal",
        message: format!(
            "values marked `sensitive` are stored readable, for there is no seal key: {}",
            readable.join(", ")
        ),
        fix: format!("set {SEAL_KEY} to base64 of 32 bytes: `head -c 32 /dev/urandom | base64`"),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::expect_used, reason = "tests")]

    use quaymaster::schema::{Source, load};

    use super::*;

    #[test]
    fn versions_before_6_2_are_refused_for_queues_and_before_6_0_for_everything() {
        for (text, with_queues, without) in [
            ("5.0", true, true),
            ("6.0.16", true, false),
            ("6.2.14", false, false),
            ("7.0.15", false, false),
            ("10.1", false, false),
        ] {
            let refused = |schema: &str| {
                let source = Source { name: "x.toml", text: schema };
                let schema = load(&[source], &|_| None).schema.expect("it is right");
                version("redis", text, schema.oldest_redis()).is_some()
            };
            let limit =
                "[limit.a]\nkey = \"a:{b}\"\nalgorithm = \"sliding_log\"\nlimit = 1\nwindow = \"1s\"\n";
            let head = "[schema]\nname = \"x\"\nowner = \"x\"\n";
            assert_eq!(refused(&format!("{head}{limit}")), without, "{text}");
            assert_eq!(refused(&format!("{head}{limit}[queue.jobs]\n")), with_queues, "{text}");
        }
    }

    #[test]
    fn only_a_store_that_forgets_is_warned_about() {
        assert!(persistence(Some("none")).is_some() && persistence(Some("rdb")).is_some());
        assert!(persistence(Some("everysec")).is_none() && persistence(None).is_none());
    }

    #[test]
    fn a_clock_far_off_is_told_in_either_direction() {
        assert!(clock(900_000).is_none());
        assert!(clock(2_000_000).is_some() && clock(-2_000_000).is_some() && clock(i64::MIN).is_some());
    }
}
