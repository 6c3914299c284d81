//! `limit take`, `peek`, `refund`, `reset`.

use std::borrow::Cow;

use quaymaster::Code;
use quaymaster::limit::{Charge, Verdict};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Answer, Call, Input, MISMATCH, Needs, No, Policy, Shows, call, millis, pairs, written};
use crate::request::{KEY, KeyValues, REQUEST_ID, Spec, request};
use crate::services::Services;

const REFUSED: No = No::Truth("allowed", false);

pub(super) const CALLS: &[Call] = &[TAKE, PEEK, REFUND, RESET];

const TAKE: Call = call!(
    Limit "limit" "take", Writes, LimitCharge => LimitAnswer, take, "Count a call if it may go ahead",
    no: REFUSED,
    refusals: &[MISMATCH],
);
const PEEK: Call = call!(
    Limit "limit" "peek", Reads, LimitPeek => LimitAnswer, peek, "Say what a call of cost 1 would be told",
    shows: Some(Shows::Facts),
    no: REFUSED,
);
const REFUND: Call = call!(
    Limit "limit" "refund", Writes, LimitCharge => LimitAnswer, refund, "Give units back, never below zero",
    refusals: &[MISMATCH],
);
const RESET: Call = call!(
    Limit "limit" "reset", Writes, LimitReset => LimitAnswer, reset, "Forget what is counted",
    needs: Needs::Operate,
);

request! {
    /// What `take` and `refund` are given.
    pub(crate) struct LimitCharge<'a> {
        /// The placeholders of the limit's key, by name.
        key: KeyValues<'a> = KEY.example(r#"{"psp_id": "PSP001"}"#),
        /// Units to count or to give back.
        cost: u64 = Spec::integer(1, u64::MAX).default("1").code(Code::LimitCost),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `peek` is given.
    pub(crate) struct LimitPeek<'a> {
        /// The placeholders of the limit's key, by name.
        key: KeyValues<'a> = KEY.example(r#"{"psp_id": "PSP001"}"#),
    }
}

request! {
    /// What `reset` is given.
    pub(crate) struct LimitReset<'a> {
        /// The placeholders of the limit's key, by name.
        key: KeyValues<'a> = KEY.example(r#"{"psp_id": "PSP001"}"#),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// How a limit stands, and whether the call may go ahead.
#[derive(Debug, Serialize, JsonSchema)]
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
    #[schemars(with = "Policy")]
    pub outage: Option<&'static str>,
}

async fn take(services: &Services, input: Input<'_>) -> Answer {
    let limit = services.quaymaster.limit(input.name)?;
    let request: LimitCharge<'_> = input.read()?;
    answer(input, limit.take(&pairs(&request.key), charge(&request)).await)
}

async fn peek(services: &Services, input: Input<'_>) -> Answer {
    let limit = services.quaymaster.limit(input.name)?;
    let request: LimitPeek<'_> = input.read()?;
    answer(input, limit.peek(&pairs(&request.key)).await)
}

async fn refund(services: &Services, input: Input<'_>) -> Answer {
    let limit = services.quaymaster.limit(input.name)?;
    let request: LimitCharge<'_> = input.read()?;
    answer(input, limit.refund(&pairs(&request.key), charge(&request)).await)
}

async fn reset(services: &Services, input: Input<'_>) -> Answer {
    let limit = services.quaymaster.limit(input.name)?;
    let request: LimitReset<'_> = input.read()?;
    answer(input, limit.reset(&pairs(&request.key), request.request_id.as_deref()).await)
}

fn charge<'a>(request: &'a LimitCharge<'_>) -> Charge<'a> {
    Charge { cost: request.cost, request_id: request.request_id.as_deref() }
}

fn answer(input: Input<'_>, verdict: quaymaster::Result<Verdict>) -> Answer {
    let verdict = verdict?;
    input.under(verdict.quota().outage);
    Ok(written(&LimitAnswer::from(&verdict)))
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
