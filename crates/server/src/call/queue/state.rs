//! `queue pressure`, `pause`, `resume`, `peek`.

use std::borrow::Cow;
use std::time::Duration;

use quaymaster::schema::Overflow;
use quaymaster::{Code, Error};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::{Answer, Call, Input, Needs, Repeat, Shows, call, millis, written};
use super::{COUNT, QueueItem, count_of};
use crate::request::{REQUEST_ID_UNUSED, Spec, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[PRESSURE, PAUSE, RESUME, PEEK];

const PRESSURE: Call = call!(
    Queue "queue" "pressure", Reads, QueueAsked => QueuePressure, pressure, "Say how full the queue is",
    shows: Some(Shows::Facts),
);
const PAUSE: Call = call!(
    Queue "queue" "pause", Writes, QueueSwitch => QueuePaused, pause,
    "Give no more jobs to claims; pushes and acks go on",
    needs: Needs::Operate,
    repeat: Repeat::Safe,
);
const RESUME: Call = call!(
    Queue "queue" "resume", Writes, QueueSwitch => QueuePaused, resume, "Give jobs to claims again",
    needs: Needs::Operate,
    repeat: Repeat::Safe,
);
const PEEK: Call = call!(
    Queue "queue" "peek", Reads, QueuePeek => QueuePeeked<'static>, peek, "Look at the jobs that are next",
    shows: Some(Shows::Values),
);

request! {
    /// What `pressure` is given.
    pub(crate) struct QueueAsked<'a> {
        /// How long to wait for the store, at most its `deadline`, which it is unless given.
        timeout_ms: Option<u64> = Spec::integer(1, u64::MAX).code(Code::RequestInvalid),
    }
}

request! {
    /// What `pause` and `resume` are given: pausing twice is pausing once.
    pub(crate) struct QueueSwitch<'a> {
        #[expect(dead_code, reason = "it is taken and not needed")]
        request_id: Option<Cow<'a, str>> = REQUEST_ID_UNUSED,
    }
}

request! {
    /// What `peek` is given.
    pub(crate) struct QueuePeek<'a> {
        /// At most so many.
        count: u64 = COUNT.default("10"),
    }
}

/// What a full queue does with the next item.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QueueOverflow {
    Reject,
    Dlq,
    DropOldest,
}

impl From<Overflow> for QueueOverflow {
    fn from(policy: Overflow) -> Self {
        match policy {
            Overflow::Reject => Self::Reject,
            Overflow::Dlq => Self::Dlq,
            Overflow::DropOldest => Self::DropOldest,
        }
    }
}

/// What `pressure` answers. Nothing of it is counted by walking a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueuePressure {
    /// Jobs that wait to be claimed.
    pub(crate) current_length: u64,
    /// How many may; null for any number.
    pub(crate) max_size: Option<u64>,
    /// `current_length` of `max_size`; 0 without one.
    pub(crate) fill_ratio: f64,
    /// Whether that is over the declared `pressure_at`.
    pub(crate) is_at_pressure_threshold: bool,
    /// Whether the next push would not fit.
    pub(crate) is_full: bool,
    /// What happens to a push that does not fit: it is refused, or the oldest are moved to the overflow list or dropped.
    pub(crate) overflow_policy: QueueOverflow,
    /// Jobs claimed and not settled.
    pub(crate) leased: u64,
    /// Jobs that come later: delayed pushes and retries.
    pub(crate) delayed: u64,
    /// Dead letters.
    pub(crate) dead: u64,
    /// Items in the overflow list.
    pub(crate) overflowed: u64,
    /// About how long the oldest has waited; null when that is not known, as of items other programs pushed.
    pub(crate) oldest_age_ms: Option<u64>,
    /// Whether claims get nothing.
    pub(crate) paused: bool,
}

impl From<quaymaster::queue::Pressure> for QueuePressure {
    fn from(told: quaymaster::queue::Pressure) -> Self {
        Self {
            current_length: told.current_length,
            max_size: told.max_size,
            fill_ratio: told.fill_ratio,
            is_at_pressure_threshold: told.is_at_pressure_threshold,
            is_full: told.is_full,
            overflow_policy: told.overflow_policy.into(),
            leased: told.leased,
            delayed: told.delayed,
            dead: told.dead,
            overflowed: told.overflowed,
            oldest_age_ms: told.oldest_age.map(millis),
            paused: told.paused,
        }
    }
}

/// What `pause` and `resume` answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueuePaused {
    /// Whether claims get nothing now.
    paused: bool,
}

/// What `peek` answers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct QueuePeeked<'a> {
    /// Payloads, the next one first; text that is not JSON as a string, and what no
    /// worker can be given as `{"raw" or "raw_base64", "reason"}`.
    #[schemars(with = "Vec<serde_json::Value>")]
    items: Vec<QueueItem<'a>>,
}

async fn pressure(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueueAsked<'_> = input.read()?;
    let timeout = request.timeout_ms.map_or(Duration::MAX, Duration::from_millis);
    let told = tokio::time::timeout(timeout, queue.pressure()).await.unwrap_or_else(|_| {
        let detail = format!("no answer within timeout_ms, {}", millis(timeout));
        Err(Error::new("queue.pressure", Code::StoreTimedOut, detail).field("timeout_ms"))
    });
    Ok(written(&QueuePressure::from(told?)))
}

async fn pause(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let _: QueueSwitch<'_> = input.read()?;
    queue.pause().await?;
    Ok(written(&QueuePaused { paused: true }))
}

async fn resume(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let _: QueueSwitch<'_> = input.read()?;
    queue.resume().await?;
    Ok(written(&QueuePaused { paused: false }))
}

async fn peek(services: &Services, input: Input<'_>) -> Answer {
    let queue = services.quaymaster.queue(input.name)?;
    let request: QueuePeek<'_> = input.read()?;
    let items = queue.peek(count_of(request.count)).await?;
    Ok(written(&QueuePeeked { items: QueueItem::all(&items) }))
}
