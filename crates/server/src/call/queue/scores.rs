//! `queue range`, `trim`: items of a priority queue by their score.

use std::borrow::Cow;

use quaymaster::queue::{Item, Scores, Trim};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::{Answer, Call, Input, Needs, Shows, call, written};
use super::{COUNT, QueueRaw, as_raw_json, count_of, owned, raw};
use crate::request::{Holds, REQUEST_ID, Spec, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[RANGE, TRIM];

const RANGE: Call = call!(
    Queue "queue" "range", Reads, QueueRangeAsk => QueueRange<'static>, range,
    "List the items of a priority queue by score, lowest first",
    shows: Some(Shows::Values),
    refusals: &[(422, "the queue's order is fifo")],
);
const TRIM: Call = call!(
    Queue "queue" "trim", Writes, QueueTrim => QueueTrimmed, trim,
    "Delete items of a priority queue by score, lowest first",
    needs: Needs::Operate,
    refusals: &[(422, "the queue's order is fifo")],
);

const MIN: Spec = Spec::of(Holds::Number).about("The lowest score, included; any unless given.");

request! {
    /// What `range` is given.
    pub(crate) struct QueueRangeAsk<'a> {
        min: Option<f64> = MIN,
        /// The highest score, included; any unless given.
        max: Option<f64> = Spec::of(Holds::Number),
        /// At most so many.
        count: u64 = COUNT.default("100"),
        /// How many of them are passed over.
        offset: u64 = Spec::integer(0, 1 << 53).default("0"),
    }
}

request! {
    /// What `trim` is given.
    pub(crate) struct QueueTrim<'a> {
        min: Option<f64> = MIN,
        /// The highest score that is deleted: with timestamps as scores, what is older.
        max: f64 = Spec::of(Holds::Number).required("it says up to where").example("1769250600"),
        /// At most so many; all unless given.
        count: Option<u64> = Spec::integer(0, u64::MAX),
        /// The same id again within ten minutes goes on where it was interrupted, or gets the same answer.
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `range` answers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueRange<'a> {
    /// Items with their scores, the lowest first; fewer than `count` where they are large.
    items: Vec<QueueScored<'a>>,
    /// How many there are between the two scores.
    length: u64,
}

/// An item of a priority queue.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum QueueScored<'a> {
    /// One that workers can be given.
    Payload {
        /// Its score; null where another program gave it an infinite one.
        priority: Option<f64>,
        /// What was pushed; text of another program that is not JSON is a string.
        #[schemars(with = "serde_json::Value")]
        payload: Cow<'a, RawValue>,
    },
    /// One that no worker can be given.
    Raw {
        /// Its score; null where another program gave it an infinite one.
        priority: Option<f64>,
        /// The item, and why not.
        item: QueueRaw,
    },
}

/// What `trim` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueTrimmed {
    /// Items that are gone.
    removed: u64,
}

fn scored(score: f64, item: &Item) -> QueueScored<'_> {
    let priority = Some(score).filter(|score| score.is_finite());
    match item {
        Item::Json(bytes) => QueueScored::Payload { priority, payload: as_raw_json(bytes) },
        Item::Raw { bytes, reason } => QueueScored::Raw { priority, item: raw(bytes, reason) },
    }
}

async fn range(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueueRangeAsk<'_> = input.read()?;
    let scores = Scores { min: request.min, max: request.max };
    let page = queue.range(scores, count_of(request.count), request.offset).await?;
    let items = page.items.iter().map(|(score, item)| scored(*score, item)).collect();
    Ok(written(&QueueRange { items, length: page.length }))
}

async fn trim(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueueTrim<'_> = input.read()?;
    let which = Trim {
        min: request.min,
        max: request.max,
        count: request.count,
        request_id: owned(request.request_id),
    };
    let removed = queue.trim(which, |done| input.done(done)).await?;
    Ok(written(&QueueTrimmed { removed }))
}
