//! `stats record`, `report`, `sweep`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use quaymaster::Code;
use quaymaster::stats::{
    ERROR_ONE_IN, MAX_HOURS, MAX_INSTANCE_CHARS, MAX_REQUESTS, Record, Report, ReportAsk, Request,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Answer, Call, Input, Repeat, Shows, call, written};
use crate::http::problem::{Problem, excerpt};
use crate::request::read::{Nested, integer};
use crate::request::{Holds, REQUEST_ID, REQUEST_ID_UNUSED, Spec, request};
use crate::services::Services;

pub(super) const CALLS: &[Call] = &[RECORD, REPORT, SWEEP];

const RECORD: Call = call!(
    Stats "stats" "record", Writes, StatsRecord => StatsRecorded, record,
    "Count requests and connections that instances saw",
);
const REPORT: Call = call!(
    Stats "stats" "report", Reads, StatsAsk => StatsReport, report, "Show what all instances counted",
    shows: Some(Shows::Facts),
);
const SWEEP: Call = call!(
    Stats "stats" "sweep", Writes, StatsSweep => StatsSwept, sweep,
    "Forget instances that were silent for a day, as every server does by itself",
    repeat: Repeat::Safe,
);

/// The longest request; what lasts longer is no duration.
const MAX_DURATION_MS: f64 = 1e15;

/// An instance's name can be a part of a key.
const INSTANCE: &str =
    r#"{"pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f{}*?\\[\\]]+$", "not": {"const": "overflow"}}"#;

/// Connections by instance.
const CONNECTIONS: &str = r#"{
    "propertyNames": {
        "minLength": 1, "maxLength": 128,
        "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f{}*?\\[\\]]+$", "not": {"const": "overflow"}
    },
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 1000000000}
}"#;

request! {
    /// What `record` is given: requests, connections, or both.
    pub(crate) struct StatsRecord<'a> {
        /// Requests that instances served.
        requests: Option<Vec<Nested<StatsRequest<'a>>>> = Spec::of(Holds::Objects(StatsRequest::SHAPE, MAX_REQUESTS)),
        /// Open connections by instance; each is a heartbeat too.
        connections: Option<&'a RawValue> = Spec::of(Holds::Counts).also(CONNECTIONS).example(r#"{"0": 12}"#),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// A request that an instance served.
    pub(crate) struct StatsRequest<'a> {
        /// The instance's name.
        instance: Cow<'a, str> = Spec::text_of(1, MAX_INSTANCE_CHARS).required("").also(INSTANCE).example(r#""0""#),
        /// The HTTP method.
        method: Cow<'a, str> = Spec::text_of(1, usize::MAX).required("").example(r#""GET""#),
        /// The route's template, with `{id}` or `:id` for what changes; `*` for none.
        path: Cow<'a, str> = Spec::text().required("").also(r#"{"pattern": "^(/|[*]$)"}"#).example(r#""/api/users/{id}""#),
        /// The HTTP status.
        status: u64 = Spec::integer(100, 999).required("").example("200"),
        /// How long it took; fractions count to the microsecond.
        duration_ms: f64 = Spec::of(Holds::Number).required("").also(r#"{"minimum": 0, "maximum": 1e15}"#).example("12.5"),
        /// Who asked; an address that the schema ignores is not counted.
        remote: Option<Cow<'a, str>> = Spec::text().example(r#""192.168.1.100""#),
        /// Whether it was let in; unless given, a request with status 429 was not.
        accepted: Option<bool> = Spec::of(Holds::Truth),
    }
}

request! {
    /// What `report` is asked.
    pub(crate) struct StatsAsk<'a> {
        /// Endpoints over the last so many hours; of all time unless given.
        hours: Option<u64> = Spec::integer(1, MAX_HOURS as u64),
        /// At most so many endpoints, the most used; all unless given.
        endpoints: Option<u64> = Spec::integer(0, u32::MAX as u64),
    }
}

request! {
    /// What `sweep` is given.
    pub(crate) struct StatsSweep<'a> {
        #[expect(dead_code, reason = "it is taken and not needed")]
        request_id: Option<Cow<'a, str>> = REQUEST_ID_UNUSED,
    }
}

/// What `record` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StatsRecorded {
    /// Requests counted.
    recorded: u64,
    /// Requests of callers that the schema ignores.
    ignored: u64,
}

/// What `report` answers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct StatsReport {
    pub requests: StatsRequests,
    pub connections: StatsConnections,
    pub errors: StatsErrors,
    /// The most used in front.
    pub endpoints: Vec<StatsEndpoint>,
    /// How many endpoints there are, shown or not.
    pub endpoints_total: u64,
    /// Requests by instance.
    #[schemars(extend("examples" = [{"0": 512, "1": 498}]))]
    pub instances: BTreeMap<String, u64>,
    /// Processes that flushed within their heartbeat.
    pub alive: u64,
    /// Since when one was alive without a break: what `max_…` looks back to.
    #[schemars(extend("examples" = ["2026-01-24T10:30:00.000000Z"]))]
    pub started_at: Option<String>,
    /// Requests by hour, the oldest first; hours without any are not there.
    pub hourly: Vec<StatsHour>,
    /// A percentile is at most this far from the exact one, relative to it.
    #[serde(default)] // The command line reads this answer and does not need the field.
    #[schemars(!default, extend("examples" = [0.007_812_5]))]
    pub percentile_error: f64,
    /// When this was true, by the store's clock.
    #[schemars(extend("examples" = ["2026-01-24T10:31:00.000000Z"]))]
    pub generated_at: String,
}

/// Requests of all instances.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct StatsRequests {
    pub total: u64,
    /// Those that were not refused.
    pub accepted: u64,
    /// Requests in the newest second that every instance has flushed.
    pub speed_per_second: u64,
    /// The most in one second since an instance was alive without a break.
    pub max_speed_per_second: u64,
}

/// Connections of all instances that are alive.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct StatsConnections {
    pub current: u64,
    /// The most there were since an instance was alive without a break.
    pub max_since_startup: u64,
}

/// Responses with a status from 400.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct StatsErrors {
    pub total: u64,
    #[schemars(extend("examples" = [{"404": 12, "500": 1}]))]
    pub by_status: BTreeMap<String, u64>,
}

/// One endpoint.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct StatsEndpoint {
    /// `METHOD /template`; `unmatched` for requests without a route, `overflow` for endpoints over the cap.
    #[schemars(extend("examples" = ["GET /api/users/:id"]))]
    pub endpoint: String,
    pub count: u64,
    pub errors: u64,
    pub avg_ms: f64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
}

/// Requests of one hour.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct StatsHour {
    /// The hour's start in epoch milliseconds.
    #[schemars(extend("examples" = [1_672_531_200_000_i64]))]
    pub hour_ms: i64,
    pub count: u64,
}

/// What `sweep` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StatsSwept {
    /// Instances forgotten.
    left: u64,
}

async fn record(services: &Services, input: Input<'_>) -> Answer {
    let stats = services.quaymaster.stats(input.name)?;
    let asked: StatsRecord<'_> = input.read()?;
    let given = asked.requests.unwrap_or_default();
    let requests = given.iter().enumerate().map(|(at, Nested(one))| request_of(at, one));
    let requests = requests.collect::<Result<Vec<_>, Problem>>()?;
    let connections = match asked.connections.map(RawValue::get) {
        None => BTreeMap::new(),
        Some(text) => counts(text).ok_or_else(|| {
            let detail = "connections must be an object of integers of at least 0, by instance";
            Problem::new(Code::RequestInvalid, detail).field("connections")
        })?,
    };
    let connections: Vec<(&str, u64)> =
        connections.iter().map(|(name, open)| (name.as_ref(), *open)).collect();
    let record =
        Record { requests: &requests, connections: &connections, request_id: asked.request_id.as_deref() };
    let done = stats.record(record).await?;
    Ok(written(&StatsRecorded { recorded: done.recorded, ignored: done.ignored }))
}

/// An object of whole numbers from 0.
fn counts(text: &str) -> Option<BTreeMap<Cow<'_, str>, u64>> {
    let read: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(text).ok()?;
    let counted = |value: &RawValue| integer(value.get()).and_then(|number| u64::try_from(number).ok());
    read.into_iter().map(|(name, value)| Some((name, counted(value)?))).collect()
}

fn request_of<'a>(at: usize, given: &'a StatsRequest<'_>) -> Result<Request<'a>, Problem> {
    let wrong = |name: &str, what: String| {
        let field = format!("requests[{at}].{name}");
        Problem::new(Code::RequestInvalid, format!("{field} {what}")).field(field)
    };
    let status = u16::try_from(given.status)
        .ok()
        .filter(|status| (100..=999).contains(status))
        .ok_or_else(|| wrong("status", format!("must be 100 to 999, got {}", given.status)))?;
    let ms = given.duration_ms;
    let elapsed =
        Duration::try_from_secs_f64(ms / 1000.0).ok().filter(|_| ms <= MAX_DURATION_MS).ok_or_else(|| {
            wrong("duration_ms", format!("must be a number from 0 to {MAX_DURATION_MS:e}, got {ms}"))
        })?;
    Ok(Request {
        instance: &given.instance,
        method: &given.method,
        path: &given.path,
        status,
        elapsed,
        remote: given.remote.as_deref(),
        accepted: given.accepted,
    })
}

async fn report(services: &Services, input: Input<'_>) -> Answer {
    let stats = services.quaymaster.stats(input.name)?;
    let asked: StatsAsk<'_> = input.read()?;
    let hours = asked.hours.map(|hours| u32::try_from(hours).unwrap_or(u32::MAX));
    let endpoints = asked.endpoints.map(|count| {
        u32::try_from(count).map(|count| count as usize).map_err(|_| {
            let detail =
                format!("endpoints must be an integer of at least 0, got {}", excerpt(&count.to_string()));
            Problem::new(Code::RequestInvalid, detail).field("endpoints")
        })
    });
    let endpoints = endpoints.transpose()?;
    Ok(written(&shown(stats.report(ReportAsk { hours, endpoints }).await?)))
}

async fn sweep(services: &Services, input: Input<'_>) -> Answer {
    let stats = services.quaymaster.stats(input.name)?;
    let _: StatsSweep<'_> = input.read()?;
    Ok(written(&StatsSwept { left: stats.sweep().await?.left }))
}

/// Whole microseconds as milliseconds.
fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// A report as it is answered.
pub(crate) fn shown(report: Report) -> StatsReport {
    StatsReport {
        requests: StatsRequests {
            total: report.total,
            accepted: report.accepted,
            speed_per_second: report.speed_per_second,
            max_speed_per_second: report.max_speed_per_second,
        },
        connections: StatsConnections {
            current: report.connections,
            max_since_startup: report.connections_max,
        },
        errors: StatsErrors {
            total: report.errors,
            by_status: report
                .by_status
                .into_iter()
                .map(|(status, count)| (status.to_string(), count))
                .collect(),
        },
        endpoints: report
            .endpoints
            .into_iter()
            .map(|found| StatsEndpoint {
                endpoint: found.name,
                count: found.count,
                errors: found.errors,
                avg_ms: ms(found.avg_us),
                p50_ms: ms(found.p50_us),
                p95_ms: ms(found.p95_us),
                p99_ms: ms(found.p99_us),
            })
            .collect(),
        endpoints_total: report.endpoints_total,
        instances: report.instances.into_iter().collect(),
        alive: report.alive,
        started_at: report.started_us.map(quaymaster::batch::moment),
        hourly: report.hourly.into_iter().map(|(hour_ms, count)| StatsHour { hour_ms, count }).collect(),
        percentile_error: 1.0 / f64::from(ERROR_ONE_IN),
        generated_at: quaymaster::batch::moment(report.now_us),
    }
}
