//! `berth take`.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Answer, Call, Input, No, call, pairs, written};
use crate::request::{KEY, KeyValues, REQUEST_ID, request};
use crate::services::Services;

pub(super) const CALLS: &[Call] = &[TAKE];

const TAKE: Call = call!(
    Berth "berth" "take", Writes, BerthTake => BerthTaken, take, "Take the berth, unless a ship lies there",
    no: No::Truth("taken", false),
);

request! {
    /// What `take` is given.
    pub(crate) struct BerthTake<'a> {
        /// The placeholders of the berth's key, by name.
        key: KeyValues<'a> = KEY.example(r#"{"id": "a"}"#),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `take` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BerthTaken {
    /// Whether the berth is yours.
    taken: bool,
}

async fn take(services: &Services, input: Input<'_>) -> Answer {
    let berth = services.quaymaster.berth(input.name)?;
    let request: BerthTake<'_> = input.read()?;
    let taken = berth.take(&pairs(&request.key), request.request_id.as_deref()).await?;
    Ok(written(&BerthTaken { taken }))
}
