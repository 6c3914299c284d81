//! `dedupe first`.

use std::borrow::Cow;

use quaymaster::dedupe::{First, Seen};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::cache::{readable, stored_text};
use super::{Answer, Call, Input, No, call, pairs, written};
use crate::request::{JSON, KEY, KeyValues, REQUEST_ID, request};
use crate::services::Services;

pub(super) const CALLS: &[Call] = &[FIRST];

const FIRST: Call = call!(
    Dedupe "dedupe" "first", Writes, DedupeFirst => DedupeSeen, first, "Say whether nobody was here before",
    no: No::Truth("first", false),
);

request! {
    /// What `first` is given.
    pub(crate) struct DedupeFirst<'a> {
        /// The placeholders of the dedupe's key, by name.
        key: KeyValues<'a> = KEY.example(r#"{"sha256_hash": "9f86d0"}"#),
        /// What later ones are told: a string as it is, other JSON as its text; 1 unless given.
        value: Option<&'a RawValue> = JSON,
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `first` answers.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct DedupeSeen {
    /// Whether nobody was here before.
    first: bool,
    /// What the first one left, when it was another.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    value: Option<String>,
    /// The same in base64, when it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    value_base64: Option<String>,
}

async fn first(services: &Services, input: Input<'_>) -> Answer {
    let dedupe = services.quaymaster.dedupe(input.name)?;
    let request: DedupeFirst<'_> = input.read()?;
    // `null` is "not given", as it is for every optional field.
    let value = request.value.filter(|value| value.get() != "null").map(stored_text);
    let first = First { value: value.as_deref(), request_id: request.request_id.as_deref() };
    Ok(written(&match dedupe.first(&pairs(&request.key), first).await? {
        Seen::First => DedupeSeen { first: true, ..DedupeSeen::default() },
        Seen::Duplicate { value } => match readable(&value) {
            Ok(text) => DedupeSeen { value: Some(text), ..DedupeSeen::default() },
            Err(packed) => DedupeSeen { value_base64: Some(packed), ..DedupeSeen::default() },
        },
    }))
}
