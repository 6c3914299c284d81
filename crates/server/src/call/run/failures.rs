//! `run failures`, `retry`.

use std::borrow::Cow;
use std::time::Duration;

use futures_util::FutureExt as _;
use quaymaster::run::{Failure, FailuresAsk, RetryAsk, moment};
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use utoipa::ToSchema;

use super::super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID};
use super::{number, written};
use crate::app::App;
use crate::http::json::{self, Fields, Value};
use crate::http::query;

const OF_RUN: Arg =
    Arg { name: "run_id", holds: ArgType::Text, required: false, help: "Only those of this run" };

pub(in super::super) const FAILURES: Call = Call {
    kind: Kind::Run,
    verb: "failures",
    effect: Effect::Reads,
    template: "/v1/run/{name}/failures",
    about: "List what failed and was not processed since",
    args: &[
        Arg {
            name: "hour",
            holds: ArgType::Text,
            required: false,
            help: "Only those that last failed in this hour, YYYY-MM-DD_HH in UTC",
        },
        OF_RUN,
        Arg {
            name: "count",
            holds: ArgType::Positive,
            required: false,
            help: "At most so many, up to 1000; 100 unless given",
        },
        Arg { name: "cursor", holds: ArgType::Text, required: false, help: "The `next` of the page before" },
    ],
    said_no: |_| false,
    run: |app, input| failures(app, input).boxed(),
};
pub(in super::super) const RETRY: Call = Call {
    kind: Kind::Run,
    verb: "retry",
    effect: Effect::Writes,
    template: "/v1/run/{name}/retry",
    about: "Take failures for another try; nobody else gets them until the lease ends",
    args: &[
        OF_RUN,
        Arg {
            name: "count",
            holds: ArgType::Positive,
            required: false,
            help: "At most so many, up to 1000; 10 unless given",
        },
        Arg {
            name: "lease_ms",
            holds: ArgType::Positive,
            required: false,
            help: "How long nobody else gets them; five minutes unless given",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["items"].as_array().is_some_and(Vec::is_empty),
    run: |app, input| retry(app, input).boxed(),
};

/// A page of failures.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunFailures {
    /// By run, and within a run by last failure.
    items: Vec<RunFailureItem>,
    /// The `cursor` of the next page, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// An item that failed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunFailureItem {
    item: String,
    /// Why; cut to 4 KiB.
    #[schema(example = "HTTP 500")]
    error: String,
    /// `true` when the error was longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    error_cut: bool,
    /// How often it failed.
    attempts: u64,
    /// When it last failed.
    #[schema(example = "2026-11-16T06:22:05.000001Z")]
    last_failed_at: String,
    run_id: String,
}

#[derive(Debug, Default)]
struct RetryBody<'a> {
    run_id: Option<Cow<'a, str>>,
    count: Option<u64>,
    lease_ms: Option<u64>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for RetryBody<'de> {
    const NAMES: &'static [&'static str] = &["run_id", "count", "lease_ms", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "run_id" => self.run_id = value.optional_text()?,
            "count" => self.count = value.optional_count()?,
            "lease_ms" => self.lease_ms = value.optional_count()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `retry` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct RunRetry {
    /// Only failures of this run; of every run unless given.
    #[schema(min_length = 1, max_length = 512)]
    run_id: Option<String>,
    /// At most so many; 10 unless given.
    #[schema(minimum = 1, maximum = 1000)]
    count: Option<u64>,
    /// How long nobody else gets them; five minutes unless given.
    #[schema(minimum = 1, maximum = 86_400_000)]
    lease_ms: Option<u64>,
    /// The same id again within ten minutes gets the same items; only with a `run_id`.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

fn listed(failures: Vec<Failure>) -> Vec<RunFailureItem> {
    let item = |failure: Failure| RunFailureItem {
        item: failure.item,
        error: failure.error,
        error_cut: failure.error_cut,
        attempts: failure.attempts,
        last_failed_at: moment(failure.last_failed_us),
        run_id: failure.run_id,
    };
    failures.into_iter().map(item).collect()
}

/// What failed and was not processed since.
#[utoipa::path(
    get, path = "/v1/run/{name}/failures", operation_id = "run.failures", tag = "run",
    params(
        ("name" = String, Path, description = "the run's name in the schema"),
        ("hour" = Option<String>, Query, description = "only those that last failed in this hour, `2026-11-16_06`"),
        ("run_id" = Option<String>, Query, description = "only those of this run"),
        ("count" = Option<u64>, Query, description = "at most so many; 100 unless given", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "the `next` of the page before"),
    ),
    responses((status = 200, body = RunFailures, description = "a page of them"), crate::page::openapi::Problems),
)]
pub(crate) async fn failures(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let [hour, run_id, count, cursor] = query::named(input.query, ["hour", "run_id", "count", "cursor"])?;
    let ask = FailuresAsk {
        hour: hour.as_deref(),
        run_id: run_id.as_deref(),
        count: number(count.as_deref(), "count", 100)?,
        cursor: cursor.as_deref(),
    };
    let page = run.failures(ask).await?;
    Ok(written(&RunFailures { items: listed(page.failures), next: page.next }))
}

/// Hands failures out for another try.
#[utoipa::path(
    post, path = "/v1/run/{name}/retry", operation_id = "run.retry", tag = "run",
    params(("name" = String, Path, description = "the run's name in the schema")),
    request_body = RunRetry,
    responses((status = 200, body = RunFailures, description = "what nobody else gets until the lease ends"),
        crate::page::openapi::Problems),
)]
pub(crate) async fn retry(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let body: RetryBody<'_> = json::read_or_empty(input.body, app.bounds.max_json_depth)?;
    let usual = RetryAsk::default();
    let ask = RetryAsk {
        run_id: body.run_id.as_deref(),
        count: body.count.unwrap_or(usual.count),
        lease: body.lease_ms.map_or(usual.lease, Duration::from_millis),
        request_id: body.request_id.as_deref(),
    };
    Ok(written(&RunFailures { items: listed(run.retry(ask).await?), next: None }))
}
