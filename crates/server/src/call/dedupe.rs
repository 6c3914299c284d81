//! `dedupe first`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use quaymaster::dedupe::{First, Seen};
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::cache::{named, readable, stored_text, written};
use super::limit::KeyValue;
use super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID, pairs};
use crate::app::App;
use crate::http::json::{self, Fields, KeyValues, Value};

pub(super) const FIRST: Call = Call {
    kind: Kind::Dedupe,
    verb: "first",
    effect: Effect::Writes,
    template: "/v1/dedupe/{name}/first",
    about: "Say whether nobody was here before",
    args: &[
        Arg {
            name: "value",
            holds: ArgType::Json,
            required: false,
            help: "What later ones are told; 1 unless given",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["first"] == false,
    run: |app, input| first(app, input).boxed(),
};

/// What `first` answers.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct DedupeSeen {
    /// Whether nobody was here before.
    first: bool,
    /// What the first one left, when it was another.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The same in base64, when it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

#[derive(Debug, Default)]
struct FirstBody<'a> {
    key: KeyValues<'a>,
    value: Option<&'a RawValue>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for FirstBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "value", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "value" => self.value = Some(value.raw()?),
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `first` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct DedupeFirst {
    /// The placeholders of the dedupe's key, by name.
    #[schema(example = json!({"sha256_hash": "9f86d0"}))]
    key: BTreeMap<String, KeyValue>,
    /// What later ones are told: a string as it is, other JSON as its text; `1` unless given.
    value: Option<serde_json::Value>,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Says whether nobody was here before.
#[utoipa::path(
    post, path = "/v1/dedupe/{name}/first", operation_id = "dedupe.first", tag = "dedupe",
    params(("name" = String, Path, description = "the dedupe's name in the schema")),
    request_body = DedupeFirst,
    responses((status = 200, body = DedupeSeen, description = "the answer, also when it is no"), crate::page::openapi::Problems),
)]
async fn first(app: &App, input: Input<'_>) -> Answer {
    let dedupe = app.quaymaster.dedupe(input.name)?;
    let body: FirstBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    // `null` is "not given", as it is for every optional field.
    let value = body.value.filter(|value| value.get() != "null").map(stored_text);
    let first = First { value: value.as_deref(), request_id: body.request_id.as_deref() };
    Ok(written(&match dedupe.first(&pairs(&body.key), first).await.map_err(named)? {
        Seen::First => DedupeSeen { first: true, ..DedupeSeen::default() },
        Seen::Duplicate { value } => match readable(&value) {
            Ok(text) => DedupeSeen { value: Some(text), ..DedupeSeen::default() },
            Err(packed) => DedupeSeen { value_base64: Some(packed), ..DedupeSeen::default() },
        },
    }))
}
