//! `limit take`, `peek`, `refund`, `reset`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::limit::{Charge, Verdict};
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use utoipa::ToSchema;

use super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID, pairs};
use crate::app::App;
use crate::http::json::{self, Fields, KeyValues, Value};
use crate::http::{problem::Problem, query};

const COST: Arg =
    Arg { name: "cost", holds: ArgType::Positive, required: false, help: "Units; 1 unless given" };

fn refused(answer: &serde_json::Value) -> bool {
    answer["allowed"] == false
}

pub(super) const TAKE: Call = Call {
    kind: Kind::Limit,
    verb: "take",
    effect: Effect::Writes,
    template: "/v1/limit/{name}/take",
    about: "Count a call if it may go ahead",
    args: &[COST, REQUEST_ID],
    said_no: refused,
    run: |app, input| take(app, input).boxed(),
};
pub(super) const PEEK: Call = Call {
    kind: Kind::Limit,
    verb: "peek",
    effect: Effect::Reads,
    template: "/v1/limit/{name}/peek",
    about: "Say what a call of cost 1 would be told",
    args: &[],
    said_no: refused,
    run: |app, input| peek(app, input).boxed(),
};
pub(super) const REFUND: Call = Call {
    kind: Kind::Limit,
    verb: "refund",
    effect: Effect::Writes,
    template: "/v1/limit/{name}/refund",
    about: "Give units back",
    args: &[COST, REQUEST_ID],
    said_no: |_| false,
    run: |app, input| refund(app, input).boxed(),
};
pub(super) const RESET: Call = Call {
    kind: Kind::Limit,
    verb: "reset",
    effect: Effect::Writes,
    template: "/v1/limit/{name}/reset",
    about: "Forget what is counted",
    args: &[REQUEST_ID],
    said_no: |_| false,
    run: |app, input| reset(app, input).boxed(),
};

/// How a limit stands, and whether the call may go ahead.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LimitAnswer {
    /// `take`: whether the call was counted and may go ahead. Otherwise: whether a call of cost 1 would pass.
    pub allowed: bool,
    /// Units per window, after the safety buffer.
    pub limit: u64,
    /// Units counted now.
    pub used: u64,
    /// Units that would still pass.
    pub remaining: u64,
    /// Until nothing that is counted now counts any more.
    pub reset_after_ms: u64,
    /// When the same call can pass: 0 when it may now, null when waiting never helps (cost over limit).
    pub retry_after_ms: Option<u64>,
    /// The policy that answered while the store could not be asked; absent when the store did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage: Option<&'static str>,
}

/// The body of `take` and `refund`.
#[derive(Debug, Default)]
struct ChargeBody<'a> {
    key: KeyValues<'a>,
    cost: Option<u64>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for ChargeBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "cost", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "cost" => self.cost = Some(value.positive(Code::LimitCost)?),
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// The body of `reset`.
#[derive(Debug, Default)]
struct ResetBody<'a> {
    key: KeyValues<'a>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for ResetBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// A value of a placeholder.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) enum KeyValue {
    /// 1 to 512 bytes, without control characters and `{ } * ? [ ]`.
    Text(String),
    /// Written in decimal.
    Integer(i64),
}

/// What `take` and `refund` are given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct LimitCharge {
    /// The placeholders of the limit's key, by name.
    #[schema(example = json!({"psp_id": "PSP001"}))]
    key: BTreeMap<String, KeyValue>,
    /// Units to count or to give back.
    #[schema(minimum = 1, default = 1)]
    cost: Option<u64>,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `reset` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct LimitReset {
    /// The placeholders of the limit's key, by name.
    #[schema(example = json!({"psp_id": "PSP001"}))]
    key: BTreeMap<String, KeyValue>,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Counts a call if it may go ahead.
#[utoipa::path(
    post, path = "/v1/limit/{name}/take", operation_id = "limit.take", tag = "limit",
    params(("name" = String, Path, description = "the limit's name in the schema")),
    request_body = LimitCharge,
    responses((status = 200, body = LimitAnswer, description = "the answer, also when it is no"), crate::page::openapi::Problems),
)]
async fn take(app: &App, input: Input<'_>) -> Answer {
    let limit = app.quaymaster.limit(input.name)?;
    let body: ChargeBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    answer(input, limit.take(&pairs(&body.key), charge(&body)).await)
}

/// What a call of cost 1 would be told; counts nothing.
#[utoipa::path(
    get, path = "/v1/limit/{name}/peek", operation_id = "limit.peek", tag = "limit",
    params(
        ("name" = String, Path, description = "the limit's name in the schema"),
        ("key" = BTreeMap<String, KeyValue>, Query, style = DeepObject,
            description = "one parameter `key.<placeholder>` for every placeholder of the limit's key"),
    ),
    responses((status = 200, body = LimitAnswer, description = "how the limit stands"), crate::page::openapi::Problems),
)]
async fn peek(app: &App, input: Input<'_>) -> Answer {
    let limit = app.quaymaster.limit(input.name)?;
    let key = query::key_values(input.query)?;
    answer(input, limit.peek(&pairs(&key)).await)
}

/// Gives units back, never below zero.
#[utoipa::path(
    post, path = "/v1/limit/{name}/refund", operation_id = "limit.refund", tag = "limit",
    params(("name" = String, Path, description = "the limit's name in the schema")),
    request_body = LimitCharge,
    responses((status = 200, body = LimitAnswer, description = "how the limit stands"), crate::page::openapi::Problems),
)]
async fn refund(app: &App, input: Input<'_>) -> Answer {
    let limit = app.quaymaster.limit(input.name)?;
    let body: ChargeBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    answer(input, limit.refund(&pairs(&body.key), charge(&body)).await)
}

/// Forgets everything counted under the key.
#[utoipa::path(
    post, path = "/v1/limit/{name}/reset", operation_id = "limit.reset", tag = "limit",
    params(("name" = String, Path, description = "the limit's name in the schema")),
    request_body = LimitReset,
    responses((status = 200, body = LimitAnswer, description = "how the limit stands"), crate::page::openapi::Problems),
)]
async fn reset(app: &App, input: Input<'_>) -> Answer {
    let limit = app.quaymaster.limit(input.name)?;
    let body: ResetBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    answer(input, limit.reset(&pairs(&body.key), body.request_id.as_deref()).await)
}

fn charge<'a>(body: &'a ChargeBody<'_>) -> Charge<'a> {
    Charge { cost: body.cost.unwrap_or(1), request_id: body.request_id.as_deref() }
}

fn answer(input: Input<'_>, verdict: quaymaster::Result<Verdict>) -> Answer {
    let verdict = verdict.map_err(Problem::from)?;
    input.under(verdict.quota().outage);
    let answer = LimitAnswer::from(&verdict);
    let mut out = Vec::with_capacity(160);
    // A struct of integers cannot fail to be written into memory.
    let _ = serde_json::to_writer(&mut out, &answer);
    Ok(Bytes::from(out))
}

impl From<&Verdict> for LimitAnswer {
    fn from(verdict: &Verdict) -> Self {
        let quota = verdict.quota();
        Self {
            allowed: verdict.is_allowed(),
            limit: quota.limit,
            used: quota.used,
            remaining: quota.remaining,
            reset_after_ms: millis(quota.reset_after),
            retry_after_ms: verdict.retry_after().map(millis),
            outage: quota.outage.map(quaymaster::Outage::name),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
