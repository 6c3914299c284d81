//! `stats`: requests of many instances, counted into one store.
//!
//! A [`Recorder`] counts in process and adds what it counted to the store once per flush, in one script whose cost does
//! not grow with the request rate. A flush carries its process and a number, so that one whose reply was lost is sent
//! again and counts once. [`Stats::record`] takes the same in batches from programs that have no recorder.
//! [`Stats::report`] reads it together: totals, connections, errors, and percentiles per endpoint that are those of all
//! instances' requests, within the error that [`ERROR_ONE_IN`] states.

mod answer;
mod endpoint;
mod keys;
mod ops;
mod recorder;
mod remote;
mod report;
mod sketch;
mod sum;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use quaymaster_schema::{StatsSpec, is_longer};
use quaymaster_store::Words;

pub use answer::{Endpoint, Recorded, Report, Swept};
pub use endpoint::{MAX_ENDPOINT_BYTES, OVERFLOW, UNMATCHED};
pub use recorder::{Connected, Recorder, Seen, instance_id};
pub use report::{MAX_HOURS, ReportAsk};
pub use sketch::ERROR_ONE_IN;

use crate::bound::{self, Bound};
use crate::wrote::in_steps;
use crate::{Code, Error, Result};
use answer::Flushed;
use ops::Mark;
use remote::Ignored;
use sum::{OfInstance, Piece, Sum};

/// The page's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/stats.md")]
struct Page;

/// The most requests of one `record`.
pub const MAX_REQUESTS: usize = 10_000;

/// The most instances of one `record`.
pub const MAX_INSTANCES: usize = 1000;

/// The most open connections that one instance can tell: the sum over all of them stays a count that the store can hold.
pub const MAX_CONNECTIONS: u64 = 1_000_000_000;

/// The longest name of an instance.
pub const MAX_INSTANCE_CHARS: usize = 128;

/// Instances looked at in one step of a sweep, and steps in one sweep.
const SWEEP_PAGE: usize = 100;
const SWEEP_PAGES: usize = 20;

const HOUR_US: i64 = 3_600_000_000;

/// A request that another program saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The instance that served it.
    pub instance: &'a str,
    /// Its method; one that HTTP does not know counts as `OTHER`.
    pub method: &'a str,
    /// The route's template, `/users/{id}` or `/users/:id`, or `*` for none.
    pub path: &'a str,
    /// The status of its response, 100 to 999.
    pub status: u16,
    /// How long it took.
    pub elapsed: Duration,
    /// Who asked; one that the schema ignores is not counted.
    pub remote: Option<&'a str>,
    /// Whether it was let in; a request with status 429 was not, unless this says so.
    pub accepted: Option<bool>,
}

/// What is recorded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Record<'a> {
    /// At most [`MAX_REQUESTS`].
    pub requests: &'a [Request<'a>],
    /// Open connections by instance: each is a heartbeat too.
    pub connections: &'a [(&'a str, u64)],
    /// The same id again within ten minutes gets the same answer and counts nothing.
    pub request_id: Option<&'a str>,
}

/// What happened so far in this process, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    recorded: AtomicU64,
    ignored: AtomicU64,
    flushes: AtomicU64,
    repeats: AtomicU64,
    failures: AtomicU64,
    kept_out: AtomicU64,
    lost: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    /// Requests in the store.
    pub fn recorded(&self) -> u64 {
        self.recorded.load(Relaxed)
    }
    /// Requests of callers that the schema ignores.
    pub fn ignored(&self) -> u64 {
        self.ignored.load(Relaxed)
    }
    /// Flushes that the store took.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }
    /// Flushes that the store had already: their first reply was lost.
    pub fn repeats(&self) -> u64 {
        self.repeats.load(Relaxed)
    }
    /// Flushes that failed and are kept to be sent again.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }
    /// Endpoints that a flush counted as [`OVERFLOW`], because the cap was reached.
    pub fn kept_out(&self) -> u64 {
        self.kept_out.load(Relaxed)
    }
    /// Requests that were never delivered: the recorder was shut down while the store was away.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
    /// Calls of `record`, `report` and `sweep` that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }
}

/// A stats of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stats {
    bound: Bound,
    spec: StatsSpec,
    ignored: Arc<Ignored>,
    counts: Arc<Counts>,
}

impl Stats {
    pub(crate) fn new(bound: Bound, spec: StatsSpec) -> Self {
        let ignored = Arc::new(Ignored::new(&spec.ignore_remote));
        Self { bound, spec, ignored, counts: Arc::default() }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &StatsSpec {
        &self.spec
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether requests from this address are not counted.
    pub fn ignores(&self, remote: IpAddr) -> bool {
        self.ignored.has(remote)
    }

    /// Counts what another program saw. A batch that is too large for one script is counted in several; with a
    /// `request_id` it may be sent again after a failure, and each part counts once.
    pub async fn record(&self, record: Record<'_>) -> Result<Recorded> {
        self.failing(in_steps(self.put(record)).await)
    }

    /// What all instances counted.
    pub async fn report(&self, ask: ReportAsk) -> Result<Report> {
        self.failing(self.read(ask).await)
    }

    /// Forgets instances that have not flushed for a day, two thousand at most.
    pub async fn sweep(&self) -> Result<Swept> {
        self.failing(in_steps(self.forget()).await)
    }

    /// Counts in this process and flushes by itself. Must be called inside a tokio runtime; dropping the last clone
    /// flushes what is left, and [`Recorder::shutdown`] waits for it.
    pub fn recorder(&self, instance: impl Into<String>) -> Recorder {
        Recorder::start(self.clone(), instance.into())
    }

    fn failing<T>(&self, done: Result<T>) -> Result<T> {
        if done.is_err() {
            self.counts.errors.fetch_add(1, Relaxed);
        }
        done
    }

    async fn put(&self, record: Record<'_>) -> Result<Recorded> {
        const OP: &str = ops::RECORD;
        check(&record)?;
        let now_us = self.bound.engine.now_us();
        let mut sum = Sum { hour_ms: now_us.div_euclid(HOUR_US) * (HOUR_US / 1000), ..Sum::default() };
        let mut instances: BTreeMap<&str, (u64, Option<u64>)> = BTreeMap::new();
        let mut done = Recorded::default();
        for request in record.requests {
            if request.remote.is_some_and(|remote| self.ignored.has_text(remote)) {
                done.ignored += 1;
                continue;
            }
            done.recorded += 1;
            instances.entry(request.instance).or_default().0 += 1;
            let method = endpoint::method_index_of(request.method);
            let name = endpoint::name(method, request.path, self.spec.fold_ids);
            let accepted = request.accepted.unwrap_or(request.status != 429);
            sum.count(name, request.status, micros(request.elapsed), accepted, now_us);
        }
        for (instance, open) in record.connections {
            instances.entry(instance).or_default().1 = Some(*open);
        }
        if instances.is_empty() {
            return Ok(done);
        }
        if instances.len() > MAX_INSTANCES {
            let detail = format!("{} instances; at most {MAX_INSTANCES} in one call", instances.len());
            return Err(Error::new(OP, Code::RequestTooLarge, detail));
        }
        let instances = instances
            .into_iter()
            .map(|(name, (requests, open))| OfInstance {
                name: name.to_owned(),
                process: format!("- {name}"),
                requests,
                connections: open.map(|open| (open, open)),
            })
            .collect();
        for (number, piece) in sum.cut(instances, &unique()).iter_mut().enumerate() {
            let id = record
                .request_id
                .map(|id| if number == 0 { id.to_owned() } else { format!("{id}~{number}") });
            self.send(OP, piece, id.as_deref().map_or(Mark::None, Mark::Request)).await?;
        }
        self.counts.recorded.fetch_add(done.recorded, Relaxed);
        self.counts.ignored.fetch_add(done.ignored, Relaxed);
        Ok(done)
    }

    /// Sends one piece. An hour that the store has not begun becomes the store's own, and a name that is another
    /// key's, which would be refused for ever, another name.
    async fn send(&self, op: &'static str, piece: &mut Piece, mark: Mark<'_>) -> Result<()> {
        for _ in 0..2 {
            let call = match ops::flush(op, &self.bound, &self.spec, piece, mark) {
                Err(error) if error.code == Code::KeyValue && self.rename(piece) => {
                    ops::flush(op, &self.bound, &self.spec, piece, mark)?
                }
                call => call?,
            };
            match answer::flushed(op, self.bound.run(op, call).await?)? {
                Flushed::Added { kept_out } => {
                    self.counts.kept_out.fetch_add(kept_out, Relaxed);
                    return Ok(());
                }
                Flushed::Repeat => {
                    self.counts.repeats.fetch_add(1, Relaxed);
                    return Ok(());
                }
                Flushed::Ahead { now_ms } => {
                    piece.hour_ms = now_ms.div_euclid(HOUR_US / 1000) * (HOUR_US / 1000);
                }
            }
        }
        Err(Error::new(op, Code::StoreClock, "the store's clock goes backwards"))
    }

    /// Counts what no key of ours may be named after as overflow; whether there was any.
    fn rename(&self, piece: &mut Piece) -> bool {
        let mut words = quaymaster_store::Words::default();
        let mut refused = |role, placeholder, name: &str| {
            keys::bind(ops::FLUSH, &self.bound, role, &[(placeholder, name)], &mut words).is_err()
        };
        let mut renamed = false;
        for entry in &mut piece.endpoints {
            if keys::ENDPOINT.iter().any(|role| refused(role, "endpoint", &entry.name)) {
                OVERFLOW.clone_into(&mut entry.name);
                renamed = true;
            }
        }
        for instance in &mut piece.instances {
            if refused("requests_instance", "instance_id", &instance.name) {
                instance.name.push('-');
                renamed = true;
            }
        }
        renamed
    }

    async fn forget(&self) -> Result<Swept> {
        const OP: &str = ops::SWEEP;
        let mut swept = Swept::default();
        for _ in 0..SWEEP_PAGES {
            let call = ops::silent(&self.bound, SWEEP_PAGE)?;
            let mut silent = answer::silent(OP, self.bound.run(OP, call).await?)?;
            // A name that no key can be spelled with is none of ours; it must not keep the others.
            silent.retain(|name| self.is_name(OP, "requests_instance", "instance_id", name));
            if silent.is_empty() {
                break;
            }
            let call = ops::leave(&self.bound, &silent)?;
            swept.left += answer::left(OP, self.bound.run(OP, call).await?)?;
        }
        Ok(swept)
    }
}

impl Stats {
    /// Whether a key can be spelled with a name that an index has; another program may have put any there.
    fn is_name(&self, op: &'static str, role: &str, placeholder: &str, name: &str) -> bool {
        let bound = keys::bind(op, &self.bound, role, &[(placeholder, name)], &mut Words::default());
        if let Err(error) = &bound {
            tracing::warn!(stats = self.name(), name, %error, "a name in the index is passed over");
        }
        bound.is_ok()
    }
}

/// Whole microseconds, rounded to the nearest.
#[inline]
fn micros(elapsed: Duration) -> u64 {
    let of_second = u64::from((elapsed.subsec_nanos() + 500) / 1000);
    elapsed.as_secs().saturating_mul(1_000_000).saturating_add(of_second).min(sketch::MAX_US)
}

/// 48 random bits, hexadecimal.
fn unique() -> String {
    let mut bytes = [0; 8];
    crate::token::fill(&mut bytes[2..]);
    format!("{:012x}", u64::from_be_bytes(bytes))
}

fn check(record: &Record<'_>) -> Result<()> {
    const OP: &str = ops::RECORD;
    let wrong = |field: String, what: &str| {
        Err(Error::new(OP, Code::RequestInvalid, format!("{field}{what}")).field(field))
    };
    if let Some(id) = record.request_id {
        bound::check_request_id(OP, id)?;
    }
    if record.requests.len() > MAX_REQUESTS {
        let detail = format!("{} requests; at most {MAX_REQUESTS} in one call", record.requests.len());
        return Err(Error::new(OP, Code::RequestTooLarge, detail).field("requests"));
    }
    for (at, request) in record.requests.iter().enumerate() {
        if !(100..=999).contains(&request.status) {
            return wrong(format!("requests[{at}].status"), &format!(": 100 to 999, got {}", request.status));
        }
        if !(request.path.starts_with('/') || request.path == "*") {
            return wrong(format!("requests[{at}].path"), ": must begin with `/`, or be `*`");
        }
        if request.method.is_empty() {
            return wrong(format!("requests[{at}].method"), " is empty");
        }
        check_instance(OP, request.instance)?;
    }
    for (instance, open) in record.connections {
        check_instance(OP, instance)?;
        if *open > MAX_CONNECTIONS {
            let what = format!(": at most {MAX_CONNECTIONS} of one instance, got {open}");
            return wrong("connections".into(), &what);
        }
    }
    Ok(())
}

/// Refuses a name of an instance that could not be part of a key.
fn check_instance(op: &'static str, name: &str) -> Result<()> {
    let usable = |c: char| !c.is_control() && !matches!(c, '{' | '}' | '*' | '?' | '[' | ']');
    if name.is_empty() || is_longer(name, MAX_INSTANCE_CHARS) || !name.chars().all(usable) || name == OVERFLOW
    {
        let detail = format!(
            "instance: 1 to {MAX_INSTANCE_CHARS} characters without control characters and {{ }} * ? [ ], and not \
             {OVERFLOW:?}"
        );
        return Err(Error::new(op, Code::RequestInvalid, detail).field("instance"));
    }
    Ok(())
}
