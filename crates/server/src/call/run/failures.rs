//! `run failures`, `retry`.

use std::borrow::Cow;
use std::time::Duration;

use quaymaster::run::{Failure, FailuresAsk, LEASE_MAX, PAGE_MAX, RetryAsk, moment};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::{Answer, Call, Input, No, Shows, call, written};
use super::{CURSOR, ID};
use crate::request::{REQUEST_ID, Spec, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[FAILURES, RETRY];

const FAILURES: Call = call!(
    Run "run" "failures", Reads, RunFailuresAsk => RunFailures, failures,
    "List what failed and was not processed since",
    shows: Some(Shows::Values),
);
const RETRY: Call = call!(
    Run "run" "retry", Writes, RunRetry => RunFailures, retry,
    "Take failures for another try; nobody else gets them until the lease ends",
    no: No::Empty("items"),
);

const COUNT: Spec = Spec::integer(1, PAGE_MAX);

/// An hour that there is: months have their days, and only leap years a 29 February.
const HOUR: &str = concat!(
    r#"{"pattern": "^("#,
    "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))",
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29",
    r#")_([01][0-9]|2[0-3])$"}"#,
);

request! {
    /// What `failures` is given.
    pub(crate) struct RunFailuresAsk<'a> {
        /// Only those that last failed in this hour, YYYY-MM-DD_HH in UTC.
        hour: Option<Cow<'a, str>> = Spec::text()
            .also(HOUR)
            .example(r#""2026-11-16_06""#),
        /// Only those of this run.
        run_id: Option<Cow<'a, str>> = ID,
        /// At most so many.
        count: u64 = COUNT.default("100"),
        cursor: Option<Cow<'a, str>> = CURSOR,
    }
}

request! {
    /// What `retry` is given.
    pub(crate) struct RunRetry<'a> {
        /// Only failures of this run; of every run unless given. What other programs listed is taken over by it, or by
        /// a run that is at work.
        run_id: Option<Cow<'a, str>> = ID,
        /// At most so many.
        count: u64 = COUNT.default("10"),
        /// How long nobody else gets them.
        lease_ms: u64 = Spec::integer(1, LEASE_MAX.as_millis() as u64).default("300000"),
        /// The same id again within ten minutes gets the same items; only with a `run_id`.
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
    also r#"{
        "if": {"properties": {"request_id": {"type": "null"}}},
        "else": {"required": ["run_id"], "properties": {"run_id": {"type": "string"}}}
    }"#;
}

/// A page of failures.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunFailures {
    /// What other programs listed first, then by run, and within a run by last failure.
    items: Vec<RunFailureItem>,
    /// The `cursor` of the next page, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    next: Option<String>,
}

/// An item that failed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunFailureItem {
    /// The item.
    item: String,
    /// Why; cut to 4 KiB.
    #[schemars(extend("examples" = ["HTTP 500"]))]
    error: String,
    /// There, and `true`, when the error was longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    error_cut: bool,
    /// How often it failed.
    attempts: u64,
    /// When it last failed.
    #[schemars(extend("examples" = ["2026-11-16T06:22:05.000001Z"]))]
    last_failed_at: String,
    /// The run it failed in; empty for what another program listed and no run has taken over.
    run_id: String,
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

async fn failures(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunFailuresAsk<'_> = input.read()?;
    let ask = FailuresAsk {
        hour: request.hour.as_deref(),
        run_id: request.run_id.as_deref(),
        count: request.count,
        cursor: request.cursor.as_deref(),
    };
    let page = run.failures(ask).await?;
    Ok(written(&RunFailures { items: listed(page.failures), next: page.next }))
}

async fn retry(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunRetry<'_> = input.read()?;
    let ask = RetryAsk {
        run_id: request.run_id.as_deref(),
        count: request.count,
        lease: Duration::from_millis(request.lease_ms),
        request_id: request.request_id.as_deref(),
    };
    Ok(written(&RunFailures { items: listed(run.retry(ask).await?), next: None }))
}
