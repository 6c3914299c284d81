//! `batch add`, `list`, `close`, `sweep`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use quaymaster::batch::{Add, Closed, LIST_MAX, Open};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Answer, Call, Input, Needs, No, Reaches, Repeat, Shows, call, millis, pairs, written};
use crate::request::{JSON, KEY, KeyValues, REQUEST_ID, REQUEST_ID_UNUSED, Spec, request};
use crate::services::Services;

pub(super) const CALLS: &[Call] = &[ADD, LIST, CLOSE, SWEEP];

const ADD: Call = call!(
    Batch "batch" "add", Writes, BatchAdd => BatchAdded, add,
    "Put an item into the open batch, or begin one with it",
    reaches: Reaches::Declared,
    no: No::Truth("duplicate", true),
    refusals: &[(429, "too many batches are open")],
);
const LIST: Call = call!(
    Batch "batch" "list", Reads, BatchAsk => BatchList, list, "Show the batches that are open",
    shows: Some(Shows::Facts),
);
const CLOSE: Call = call!(
    Batch "batch" "close", Writes, BatchClose => BatchClosed, close, "Close the open batch and queue it",
    needs: Needs::Operate, reaches: Reaches::Declared,
    no: No::Words("outcome", &["none"]),
    refusals: &[(429, "its queue is full: the batch takes no more items, and a sweep queues it")],
);
const SWEEP: Call = call!(
    Batch "batch" "sweep", Writes, BatchSweep => BatchSwept, sweep,
    "Queue the batches that are due, as every server does by itself",
    reaches: Reaches::Declared, repeat: Repeat::Safe,
);

const GROUP_KEY: Spec = KEY.example(r#"{"camera_id": "front_door"}"#);

request! {
    /// What `add` is given.
    pub(crate) struct BatchAdd<'a> {
        /// What the batch is grouped by: the one placeholder of its key.
        key: KeyValues<'a> = GROUP_KEY,
        /// Any JSON of at most 256 KiB.
        item: &'a RawValue = JSON.required("").example("1"),
        /// An id that is already in the batch is not added again.
        id: Option<Cow<'a, str>> = Spec::text_of(1, 512),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `list` is asked.
    pub(crate) struct BatchAsk<'a> {
        /// At most so many, up to 1000.
        count: u64 = Spec::integer(1, LIST_MAX).default("100"),
        /// After so many others.
        offset: u64 = Spec::integer(0, 1 << 53).default("0"),
    }
}

request! {
    /// What `close` is given.
    pub(crate) struct BatchClose<'a> {
        /// What the batch is grouped by: the one placeholder of its key.
        key: KeyValues<'a> = GROUP_KEY,
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `sweep` is given.
    pub(crate) struct BatchSweep<'a> {
        #[expect(dead_code, reason = "a batch is queued once, however often it is swept")]
        request_id: Option<Cow<'a, str>> = REQUEST_ID_UNUSED,
    }
}

/// What `add` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BatchAdded {
    /// The batch the item is in.
    #[schemars(extend("examples" = ["3f2a9c04d1b7-8e5566aa0c12"]))]
    batch_id: String,
    /// How many items it has now.
    size: u64,
    /// `true` when the item's id was in the batch already: nothing was added.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
    /// `true` when this item was the last one of the batch, which is queued.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
}

/// What `list` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BatchList {
    /// Those that close first in front.
    batches: Vec<BatchOpen>,
}

/// A batch that is open.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BatchOpen {
    /// The batch.
    #[schemars(extend("examples" = ["3f2a9c04d1b7-8e5566aa0c12"]))]
    batch_id: String,
    /// What it is grouped by.
    #[schemars(extend("examples" = [{"camera_id": "front_door"}]))]
    key: BTreeMap<String, String>,
    /// How many items it has.
    size: u64,
    /// When its first item came.
    #[schemars(extend("examples" = ["2026-01-24T10:30:00.000000Z"]))]
    started_at: String,
    /// When its last item came.
    #[schemars(extend("examples" = ["2026-01-24T10:30:04.000000Z"]))]
    last_activity: String,
    /// When it closes if nothing comes; 0 for one that waits to be queued.
    closes_in_ms: u64,
}

/// What `close` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum BatchClosed {
    /// The batch takes no more items and is queued.
    Closed {
        /// The batch that was open.
        #[schemars(extend("examples" = ["3f2a9c04d1b7-8e5566aa0c12"]))]
        batch_id: String,
    },
    /// No batch was open.
    None,
}

/// What `sweep` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BatchSwept {
    /// Batches queued.
    closed: u64,
    /// Batches that found their queue full, and wait.
    waiting: u64,
    /// Batches whose keys had expired before anybody queued them.
    expired: u64,
}

async fn add(services: &Services, input: Input<'_>) -> Answer {
    let batch = services.quaymaster.batch(input.name)?;
    let request: BatchAdd<'_> = input.read()?;
    let item = request.item.get().as_bytes();
    let add = Add { item, id: request.id.as_deref(), request_id: request.request_id.as_deref() };
    let added = batch.add(&pairs(&request.key), add).await?;
    Ok(written(&BatchAdded {
        batch_id: added.batch_id,
        size: added.size,
        duplicate: added.duplicate,
        closed: added.closed,
    }))
}

async fn list(services: &Services, input: Input<'_>) -> Answer {
    let batch = services.quaymaster.batch(input.name)?;
    let request: BatchAsk<'_> = input.read()?;
    let open = batch.list(request.offset, request.count).await?;
    let by = &batch.spec().by;
    let batches = open.into_iter().map(|open| shown(by, open)).collect();
    Ok(written(&BatchList { batches }))
}

async fn close(services: &Services, input: Input<'_>) -> Answer {
    let batch = services.quaymaster.batch(input.name)?;
    let request: BatchClose<'_> = input.read()?;
    Ok(written(&match batch.close(&pairs(&request.key), request.request_id.as_deref()).await? {
        Closed::Closed { batch_id } => BatchClosed::Closed { batch_id },
        Closed::None => BatchClosed::None,
    }))
}

async fn sweep(services: &Services, input: Input<'_>) -> Answer {
    let batch = services.quaymaster.batch(input.name)?;
    let _: BatchSweep<'_> = input.read()?;
    let swept = batch.sweep().await?;
    Ok(written(&BatchSwept { closed: swept.closed, waiting: swept.waiting, expired: swept.expired }))
}

fn shown(by: &str, open: Open) -> BatchOpen {
    BatchOpen {
        batch_id: open.batch_id,
        key: BTreeMap::from([(by.to_owned(), open.by)]),
        size: open.size,
        started_at: quaymaster::batch::moment(open.started_us),
        last_activity: quaymaster::batch::moment(open.last_us),
        closes_in_ms: millis(open.closes_in),
    }
}
