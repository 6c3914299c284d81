//! `queue range`, `trim`: items of a priority queue by their score.

use std::borrow::Cow;

use bytes::Bytes;
use quaymaster::queue::{Item, Scores, Trim};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::{Answer, Call, Input, Needs, Shows, call, written};
use super::{COUNT, QueueRaw, count_of, owned, raw};
use crate::request::{Holds, REQUEST_ID, Spec, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[RANGE, TRIM];

const RANGE: Call = call!(
    Queue "queue" "range", Reads, QueueRangeAsk => QueueRange, range,
    "List the items of a priority queue by score, lowest first",
    shows: Shows::Values,
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
        /// At most so many; 100 unless given.
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
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes what is written by hand")]
pub(crate) struct QueueRange {
    /// Items with their scores, the lowest first; fewer than `count` where they are large.
    items: Vec<QueueScored>,
    /// How many there are between the two scores.
    length: u64,
}

/// An item of a priority queue.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what is written by hand")]
pub(crate) enum QueueScored {
    /// One that workers can be given.
    Payload {
        /// Its score; null where another program gave it an infinite one.
        priority: Option<f64>,
        /// What was pushed; text of another program that is not JSON is a string.
        payload: serde_json::Value,
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

/// An item and its score; the payload is JSON already.
fn write_scored(out: &mut Vec<u8>, score: f64, item: &Item) {
    out.extend_from_slice(b"{\"priority\":");
    // A score that is not finite is null.
    let _ = serde_json::to_writer(&mut *out, &score);
    match item {
        Item::Json(json) => {
            out.extend_from_slice(b",\"payload\":");
            out.extend_from_slice(json);
        }
        Item::Raw { bytes, reason } => {
            out.extend_from_slice(b",\"item\":");
            let _ = serde_json::to_writer(&mut *out, &raw(bytes, reason));
        }
    }
    out.push(b'}');
}

async fn range(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueueRangeAsk<'_> = input.read()?;
    let scores = Scores { min: request.min, max: request.max };
    let page = queue.range(scores, count_of(request.count), request.offset).await?;
    let mut out = b"{\"items\":[".to_vec();
    for (at, (score, item)) in page.items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_scored(&mut out, *score, item);
    }
    out.extend_from_slice(format!("],\"length\":{}}}", page.length).as_bytes());
    Ok(Bytes::from(out))
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
