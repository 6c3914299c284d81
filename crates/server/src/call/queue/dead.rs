//! `queue dead`, `redrive`, `purge`.

use std::borrow::Cow;
use std::time::Duration;

use quaymaster::queue::{Purge, Redrive};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::{Answer, Call, Input, Needs, No, Reaches, Shows, call, written};
use super::{COUNT, QueueItem, QueueRaw, count_of, owned};
use crate::request::{Holds, MILLIS, REQUEST_ID, Spec, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[DEAD, REDRIVE, PURGE];

const DEAD: Call = call!(
    Queue "queue" "dead", Reads, QueueDeadAsk => QueueDead<'static>, dead, "List dead letters",
    shows: Some(Shows::Values),
);
const REDRIVE: Call = call!(
    Queue "queue" "redrive", Writes, QueueRedrive => QueueRedriven, redrive,
    "Put dead letters back into the queue, oldest first",
    needs: Needs::Operate, reaches: Reaches::Declared,
    no: No::Truth("full", true),
);
const PURGE: Call = call!(
    Queue "queue" "purge", Writes, QueuePurge => QueuePurged, purge, "Delete dead letters, oldest first",
    needs: Needs::Operate,
);

/// How many letters are moved or removed.
const LETTERS: Spec = Spec::integer(0, u64::MAX).about("At most so many; all unless given.");

request! {
    /// What `dead` is given.
    pub(crate) struct QueueDeadAsk<'a> {
        /// At most so many.
        count: u64 = COUNT.default("100"),
        /// From which on; 0 is the oldest.
        offset: u64 = Spec::integer(0, 1 << 53).default("0"),
    }
}

request! {
    /// What `redrive` is given.
    pub(crate) struct QueueRedrive<'a> {
        count: Option<u64> = LETTERS,
        /// Items of the overflow list instead of dead letters.
        overflow: bool = Spec::of(Holds::Truth).default("false"),
        /// The same id again within ten minutes goes on where it was interrupted, or gets the same answer.
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `purge` is given.
    pub(crate) struct QueuePurge<'a> {
        count: Option<u64> = LETTERS,
        /// Only those that died longer ago than this.
        older_than_ms: Option<u64> = MILLIS,
        /// The same id again within ten minutes goes on where it was interrupted, or gets the same answer.
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `dead` answers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueDead<'a> {
    /// Dead letters, the oldest first.
    #[schemars(with = "Vec<QueueLetter>")]
    items: Vec<QueueItem<'a>>,
    /// How many there are in all.
    length: u64,
}

/// What lies in the list of dead letters.
#[derive(Debug, JsonSchema)]
#[serde(untagged)]
pub enum QueueLetter {
    /// A dead letter.
    Dead(QueueDeadItem),
    /// Not even text, from another program.
    Raw(QueueRaw),
    /// Other JSON from another program; a string of text that is not JSON.
    Foreign(#[schemars(with = "serde_json::Value")] Box<RawValue>),
}

impl QueueLetter {
    /// One of the items that `dead` answers.
    pub fn read(item: &RawValue) -> Self {
        // A list would be read as an object's values.
        let object = Some(item.get()).filter(|json| json.starts_with('{'));
        if let Some(letter) = object.and_then(|json| serde_json::from_str(json).ok()) {
            return Self::Dead(letter);
        }
        let raw = object.and_then(|json| serde_json::from_str(json).ok());
        raw.map_or_else(|| Self::Foreign(item.to_owned()), Self::Raw)
    }
}

/// A dead letter, as it lies in the list.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct QueueDeadItem {
    /// The job as it was pushed.
    #[schemars(with = "serde_json::Value")]
    pub original_job: Box<RawValue>,
    /// What the last attempt said.
    pub error: String,
    /// How often it was tried.
    pub attempt_count: u32,
    /// When it first failed, UTC.
    #[serde(default)] // The command line reads letters and does not need this field.
    #[schemars(!default, extend("examples" = ["2026-01-24T10:30:05.000000"]))]
    pub first_failed_at: String,
    /// When it last failed, UTC.
    #[schemars(extend("examples" = ["2026-01-24T10:30:15.000000"]))]
    pub last_failed_at: String,
    /// The queue it came from.
    #[serde(default)] // Nor this one.
    #[schemars(!default)]
    pub queue_name: String,
    /// Its priority, in a priority queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub priority: Option<f64>,
    /// Where the item was not JSON: how `original_job`, a string then, has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "QueueEncoding")]
    pub original_encoding: Option<QueueEncoding>,
}

/// How a string stands for an item that is not JSON.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum QueueEncoding {
    Text,
    Base64,
}

/// What `redrive` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueRedriven {
    /// Dead letters that wait again.
    moved: u64,
    /// Dead letters left where they are: those no worker could be given.
    left: u64,
    /// Whether it ended because the queue is full.
    full: bool,
}

/// What `purge` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueuePurged {
    /// Dead letters that are gone.
    removed: u64,
}

async fn dead(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueueDeadAsk<'_> = input.read()?;
    let page = queue.dead(count_of(request.count), request.offset).await?;
    Ok(written(&QueueDead { items: QueueItem::all(&page.items), length: page.length }))
}

async fn redrive(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueueRedrive<'_> = input.read()?;
    let which =
        Redrive { count: request.count, overflow: request.overflow, request_id: owned(request.request_id) };
    let told = queue.redrive(which, |done| input.done(done)).await?;
    Ok(written(&QueueRedriven { moved: told.moved, left: told.left, full: told.full }))
}

async fn purge(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueuePurge<'_> = input.read()?;
    let older_than = request.older_than_ms.map(Duration::from_millis);
    let which = Purge { count: request.count, older_than, request_id: owned(request.request_id) };
    let removed = queue.purge(which, |done| input.done(done)).await?;
    Ok(written(&QueuePurged { removed }))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_item_of_the_dead_letters_is_told_by_what_it_has() {
        let read = |json: &str| QueueLetter::read(&RawValue::from_string(json.to_owned()).unwrap());
        let letter = r#"{"original_job":{"n": 1.10},"error":"no","attempt_count":3,
            "first_failed_at":"2026-01-24T10:30:05.000000","last_failed_at":"2026-01-24T10:30:15.000000",
            "queue_name":"q","priority":2.5,"original_encoding":"text"}"#;
        let QueueLetter::Dead(told) = read(letter) else { panic!("it is a dead letter") };
        assert_eq!((told.original_job.get(), told.attempt_count), (r#"{"n": 1.10}"#, 3));
        let least = r#"{"original_job":1,"error":"no","attempt_count":3,"last_failed_at":""}"#;
        assert!(matches!(read(least), QueueLetter::Dead(_)), "the command line shows no more than this");
        for raw in [r#"{"raw":"x","reason":"y"}"#, r#"{"raw_base64":"eA==","reason":"y"}"#] {
            assert!(matches!(read(raw), QueueLetter::Raw(_)), "{raw}");
        }
        for foreign in ["[1]", r#"["x","y"]"#, r#""x""#, r#"{"error":"no"}"#] {
            assert!(
                matches!(read(foreign), QueueLetter::Foreign(json) if json.get() == foreign),
                "{foreign}"
            );
        }
    }
}
