//! What follows from an ack: the fields of other calls, with the call's own id in `call`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use quaymaster::Code;
use quaymaster::queue::Then;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::limit::KeyValue;
use super::{owned, verbatim};
use crate::http::json::{self, Fields, KeyValues, Value};
use crate::http::problem::{Problem, unknown};

const CALLS: [&str; 3] = ["batch.add", "event.publish", "queue.push"];

#[derive(Debug, Default)]
struct ThenBody<'a> {
    call: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    key: Option<KeyValues<'a>>,
    item: Option<&'a RawValue>,
    id: Option<Cow<'a, str>>,
    data: Option<&'a RawValue>,
    payload: Option<&'a RawValue>,
    priority: Option<f64>,
    delay_ms: Option<u64>,
}

impl<'de> Fields<'de> for ThenBody<'de> {
    const NAMES: &'static [&'static str] =
        &["call", "name", "key", "item", "id", "data", "payload", "priority", "delay_ms"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "call" => self.call = value.optional_text()?,
            "name" => self.name = value.optional_text()?,
            "key" => self.key = Some(value.key_values()?),
            "item" => self.item = Some(value.raw()?),
            "id" => self.id = value.optional_text()?,
            "data" => self.data = Some(value.raw()?),
            "payload" => self.payload = Some(value.raw()?),
            "priority" => self.priority = value.optional_number()?,
            _ => self.delay_ms = value.optional_count()?,
        }
        Ok(())
    }
}

impl ThenBody<'_> {
    /// Fields that are there, of those that not every call has.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("key", self.key.is_some()),
            ("item", self.item.is_some()),
            ("id", self.id.is_some()),
            ("data", self.data.is_some()),
            ("payload", self.payload.is_some()),
            ("priority", self.priority.is_some()),
            ("delay_ms", self.delay_ms.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, there)| there.then_some(name))
    }
}

/// One call made in the ack's own step.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct QueueThen {
    /// `batch.add`, `event.publish` or `queue.push`.
    #[schema(example = "event.publish")]
    call: String,
    /// The batch, event or queue, by its name in the schema.
    #[schema(example = "security_events")]
    name: String,
    /// `batch.add`: the placeholders of the batch's key, by name.
    key: Option<BTreeMap<String, KeyValue>>,
    /// `batch.add`: the item.
    item: Option<serde_json::Value>,
    /// `batch.add`: an id already in the batch is not added again.
    id: Option<String>,
    /// `event.publish`: the message.
    data: Option<serde_json::Value>,
    /// `queue.push`: the job.
    payload: Option<serde_json::Value>,
    /// `queue.push`: as for `push`.
    priority: Option<f64>,
    /// `queue.push`: as for `push`.
    #[schema(minimum = 0)]
    delay_ms: Option<u64>,
}

/// Reads all of them; a refusal names its place, `then[0].item`.
pub(super) fn read(values: &[&RawValue]) -> Result<Vec<Then>, Problem> {
    values.iter().enumerate().map(|(at, value)| one(value, &format!("then[{at}]"))).collect()
}

fn one(value: &RawValue, path: &str) -> Result<Then, Problem> {
    let body: ThenBody<'_> = json::nested(value, path)?;
    let wrong = |field: &str, detail: String| {
        Problem::new(Code::RequestInvalid, detail).field(format!("{path}.{field}"))
    };
    let missing = |field: &str| wrong(field, format!("{path}.{field} is missing"));
    let call = body.call.as_deref().ok_or_else(|| missing("call"))?;
    let fields: &[&str] = match call {
        "batch.add" => &["key", "item", "id"],
        "event.publish" => &["data"],
        "queue.push" => &["payload", "priority", "delay_ms"],
        other => return Err(wrong("call", format!("{path}.call: {}", unknown("call", other, &CALLS)))),
    };
    if let Some(stray) = body.given().find(|name| !fields.contains(name)) {
        let detail = format!("{path}.{stray} is no field of {call}; there are {}", fields.join(", "));
        return Err(Problem::new(Code::RequestField, detail).field(format!("{path}.{stray}")));
    }
    let name = body.name.ok_or_else(|| missing("name"))?.into_owned();
    Ok(match call {
        "batch.add" => Then::BatchAdd {
            name,
            key: body
                .key
                .unwrap_or_default()
                .into_iter()
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
            item: verbatim(body.item.ok_or_else(|| missing("item"))?),
            id: owned(body.id),
        },
        "event.publish" => Then::Publish { name, data: verbatim(body.data.ok_or_else(|| missing("data"))?) },
        _ => Then::Push {
            name,
            payload: verbatim(body.payload.ok_or_else(|| missing("payload"))?),
            priority: body.priority,
            delay: body.delay_ms.map(Duration::from_millis),
        },
    })
}
