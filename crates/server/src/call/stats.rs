//! `stats record`, `report`, `sweep`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::schema::Kind;
use quaymaster::stats::{ERROR_ONE_IN, Record, Report, ReportAsk, Request};
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::cache::written;
use super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID};
use crate::app::App;
use crate::http::json::{self, Fields, Value};
use crate::http::problem::{Problem, excerpt};
use crate::http::query;

pub(super) const RECORD: Call = Call {
    kind: Kind::Stats,
    verb: "record",
    effect: Effect::Writes,
    template: "/v1/stats/{name}/record",
    about: "Count requests and connections that instances saw",
    args: &[
        Arg {
            name: "requests",
            holds: ArgType::Json,
            required: false,
            help: "A list of {instance, method, path, status, duration_ms, remote?, accepted?}",
        },
        Arg {
            name: "connections",
            holds: ArgType::Json,
            required: false,
            help: "Open connections by instance: {\"0\": 12}",
        },
        REQUEST_ID,
    ],
    said_no: |_| false,
    run: |app, input| record(app, input).boxed(),
};
pub(super) const REPORT: Call = Call {
    kind: Kind::Stats,
    verb: "report",
    effect: Effect::Reads,
    template: "/v1/stats/{name}/report",
    about: "Show what all instances counted",
    args: &[
        Arg {
            name: "hours",
            holds: ArgType::Positive,
            required: false,
            help: "Endpoints over the last so many hours, up to 24; of all time unless given",
        },
        Arg {
            name: "endpoints",
            holds: ArgType::Integer,
            required: false,
            help: "At most so many endpoints, the most used; all unless given",
        },
    ],
    said_no: |_| false,
    run: |app, input| report(app, input).boxed(),
};
pub(super) const SWEEP: Call = Call {
    kind: Kind::Stats,
    verb: "sweep",
    effect: Effect::Writes,
    template: "/v1/stats/{name}/sweep",
    about: "Forget instances that were silent for a day, as every server does by itself",
    args: &[REQUEST_ID],
    said_no: |_| false,
    run: |app, input| sweep(app, input).boxed(),
};

/// What `record` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsRecorded {
    /// Requests counted.
    recorded: u64,
    /// Requests of callers that the schema ignores.
    ignored: u64,
}

/// What `report` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsReport {
    requests: StatsRequests,
    connections: StatsConnections,
    errors: StatsErrors,
    /// The most used in front.
    endpoints: Vec<StatsEndpoint>,
    /// How many endpoints there are, shown or not.
    endpoints_total: u64,
    /// Requests by instance.
    #[schema(example = json!({"0": 512, "1": 498}))]
    instances: BTreeMap<String, u64>,
    /// Processes that flushed within their heartbeat.
    alive: u64,
    /// Since when one was alive without a break: what `max_…` looks back to.
    #[schema(example = "2026-01-24T10:30:00.000000Z")]
    started_at: Option<String>,
    /// Requests by hour, the oldest first; hours without any are not there.
    hourly: Vec<StatsHour>,
    /// A percentile is at most this far from the exact one, relative to it.
    #[schema(example = 0.007_812_5)]
    percentile_error: f64,
    /// When this was true, by the store's clock.
    #[schema(example = "2026-01-24T10:31:00.000000Z")]
    generated_at: String,
}

/// Requests of all instances.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsRequests {
    total: u64,
    /// Those that were not refused.
    accepted: u64,
    /// Requests in the newest second that every instance has flushed.
    speed_per_second: u64,
    /// The most in one second since an instance was alive without a break.
    max_speed_per_second: u64,
}

/// Connections of all instances that are alive.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsConnections {
    current: u64,
    /// The most there were since an instance was alive without a break.
    max_since_startup: u64,
}

/// Responses with a status from 400.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsErrors {
    total: u64,
    #[schema(example = json!({"404": 12, "500": 1}))]
    by_status: BTreeMap<String, u64>,
}

/// One endpoint.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsEndpoint {
    /// `METHOD /template`; `unmatched` for requests without a route, `overflow` for endpoints over the cap.
    #[schema(example = "GET /api/users/:id")]
    endpoint: String,
    count: u64,
    errors: u64,
    avg_ms: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
}

/// Requests of one hour.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsHour {
    /// The hour's start in epoch milliseconds.
    #[schema(example = 1_672_531_200_000_i64)]
    hour_ms: i64,
    count: u64,
}

/// What `sweep` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsSwept {
    /// Instances forgotten.
    left: u64,
}

#[derive(Debug, Default)]
struct RecordBody<'a> {
    requests: Option<Vec<&'a RawValue>>,
    connections: Option<&'a RawValue>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for RecordBody<'de> {
    const NAMES: &'static [&'static str] = &["requests", "connections", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "requests" => self.requests = value.optional_raws()?,
            "connections" => self.connections = Some(value.raw()?),
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct RequestBody<'a> {
    instance: Option<Cow<'a, str>>,
    method: Option<Cow<'a, str>>,
    path: Option<Cow<'a, str>>,
    status: Option<u64>,
    duration_ms: Option<f64>,
    remote: Option<Cow<'a, str>>,
    accepted: Option<bool>,
}

impl<'de> Fields<'de> for RequestBody<'de> {
    const NAMES: &'static [&'static str] =
        &["instance", "method", "path", "status", "duration_ms", "remote", "accepted"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "instance" => self.instance = value.optional_text()?,
            "method" => self.method = value.optional_text()?,
            "path" => self.path = value.optional_text()?,
            "status" => self.status = value.optional_count()?,
            "duration_ms" => self.duration_ms = value.optional_number()?,
            "remote" => self.remote = value.optional_text()?,
            _ => self.accepted = value.optional_truth()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct SweepBody;

impl<'de> Fields<'de> for SweepBody {
    const NAMES: &'static [&'static str] = &["request_id"];

    fn read<A: MapAccess<'de>>(&mut self, _: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        value.optional_text().map(drop)
    }
}

/// What `record` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct StatsRecord {
    /// At most 10,000.
    requests: Option<Vec<StatsRequest>>,
    /// Open connections by instance; each is a heartbeat too.
    #[schema(example = json!({"0": 12}))]
    connections: Option<BTreeMap<String, u64>>,
    /// The same id again within ten minutes gets the same answer and counts nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// A request that an instance served.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct StatsRequest {
    #[schema(example = "0", min_length = 1, max_length = 128)]
    instance: String,
    #[schema(example = "GET")]
    method: String,
    /// The route's template, with `{id}` or `:id` for what changes; `*` for none.
    #[schema(example = "/api/users/{id}")]
    path: String,
    #[schema(minimum = 100, maximum = 999, example = 200)]
    status: u16,
    /// How long it took; fractions count to the microsecond.
    #[schema(minimum = 0, example = 12.5)]
    duration_ms: f64,
    /// Who asked; an address that the schema ignores is not counted.
    #[schema(example = "192.168.1.100")]
    remote: Option<String>,
    /// Whether it was let in; unless given, a request with status 429 was not.
    accepted: Option<bool>,
}

/// What `sweep` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct StatsSweep {
    /// Taken and not needed: an instance leaves once.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Counts requests and connections that instances saw.
#[utoipa::path(
    post, path = "/v1/stats/{name}/record", operation_id = "stats.record", tag = "stats",
    params(("name" = String, Path, description = "the stats' name in the schema")),
    request_body = StatsRecord,
    responses((status = 200, body = StatsRecorded, description = "how many were counted"),
        crate::page::openapi::Problems),
)]
async fn record(app: &App, input: Input<'_>) -> Answer {
    let stats = app.quaymaster.stats(input.name)?;
    let body: RecordBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let given = body.requests.unwrap_or_default();
    let mut bodies = Vec::with_capacity(given.len());
    for (at, raw) in given.into_iter().enumerate() {
        bodies.push(json::nested::<RequestBody<'_>>(raw, &format!("requests[{at}]"))?);
    }
    let requests =
        bodies.iter().enumerate().map(|(at, body)| one(at, body)).collect::<Result<Vec<_>, Problem>>()?;
    let connections = match body.connections.map(RawValue::get) {
        None | Some("null") => BTreeMap::new(),
        Some(text) => serde_json::from_str::<BTreeMap<Cow<'_, str>, u64>>(text).map_err(|_| {
            let detail = "connections must be an object of integers of at least 0, by instance";
            Problem::new(Code::RequestInvalid, detail).field("connections")
        })?,
    };
    let connections: Vec<(&str, u64)> =
        connections.iter().map(|(name, open)| (name.as_ref(), *open)).collect();
    let record =
        Record { requests: &requests, connections: &connections, request_id: body.request_id.as_deref() };
    let done = stats.record(record).await?;
    Ok(written(&StatsRecorded { recorded: done.recorded, ignored: done.ignored }))
}

fn one<'a>(at: usize, body: &'a RequestBody<'_>) -> Result<Request<'a>, Problem> {
    let wrong = |name: &str, what: String| {
        let field = format!("requests[{at}].{name}");
        Problem::new(Code::RequestInvalid, format!("{field} {what}")).field(field)
    };
    let missing = |name: &str| wrong(name, "is missing".to_owned());
    let status = body.status.ok_or_else(|| missing("status"))?;
    let status = u16::try_from(status)
        .ok()
        .filter(|status| (100..=999).contains(status))
        .ok_or_else(|| wrong("status", format!("must be 100 to 999, got {status}")))?;
    let ms = body.duration_ms.ok_or_else(|| missing("duration_ms"))?;
    let elapsed = Duration::try_from_secs_f64(ms / 1000.0)
        .map_err(|_| wrong("duration_ms", format!("must be a number of at least 0, got {ms}")))?;
    Ok(Request {
        instance: body.instance.as_deref().ok_or_else(|| missing("instance"))?,
        method: body.method.as_deref().ok_or_else(|| missing("method"))?,
        path: body.path.as_deref().ok_or_else(|| missing("path"))?,
        status,
        elapsed,
        remote: body.remote.as_deref(),
        accepted: body.accepted,
    })
}

/// What all instances counted.
#[utoipa::path(
    get, path = "/v1/stats/{name}/report", operation_id = "stats.report", tag = "stats",
    params(
        ("name" = String, Path, description = "the stats' name in the schema"),
        ("hours" = Option<u32>, Query, description = "endpoints over the last so many hours; of all time unless given",
            minimum = 1, maximum = 24),
        ("endpoints" = Option<u64>, Query, description = "at most so many endpoints, the most used; all unless given"),
    ),
    responses((status = 200, body = StatsReport, description = "the report"), crate::page::openapi::Problems),
)]
async fn report(app: &App, input: Input<'_>) -> Answer {
    let stats = app.quaymaster.stats(input.name)?;
    let [hours, endpoints] = query::named(input.query, ["hours", "endpoints"])?;
    let number = |name: &'static str, text: Option<Cow<'_, str>>| match text {
        None => Ok(None),
        Some(text) => text.parse::<u32>().map(Some).map_err(|_| {
            let detail = format!("{name} must be an integer of at least 0, got {}", excerpt(&text));
            Problem::new(Code::RequestInvalid, detail).field(name)
        }),
    };
    let endpoints = number("endpoints", endpoints)?.map(|count| count as usize);
    let ask = ReportAsk { hours: number("hours", hours)?, endpoints };
    Ok(written(&shown(stats.report(ask).await?)))
}

/// Forgets instances that were silent for a day.
#[utoipa::path(
    post, path = "/v1/stats/{name}/sweep", operation_id = "stats.sweep", tag = "stats",
    params(("name" = String, Path, description = "the stats' name in the schema")),
    request_body = StatsSweep,
    responses((status = 200, body = StatsSwept, description = "what was done"), crate::page::openapi::Problems),
)]
async fn sweep(app: &App, input: Input<'_>) -> Answer {
    let stats = app.quaymaster.stats(input.name)?;
    let SweepBody = json::read(input.body, app.bounds.max_json_depth)?;
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
