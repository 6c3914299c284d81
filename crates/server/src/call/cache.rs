//! `cache put`, `get`, `exists`, `delete`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::cache::{Deleted, Fetched, Presence, Put, Stored, Value as Entry, When};
use quaymaster::schema::{CacheType, Kind};
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::limit::KeyValue;
use super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID, pairs};
use crate::app::App;
use crate::http::json::{self, Fields, KeyValues, Value};
use crate::http::{problem::Problem, query};

pub(super) const PUT: Call = Call {
    kind: Kind::Cache,
    verb: "put",
    effect: Effect::Writes,
    template: "/v1/cache/{name}/put",
    about: "Keep a value in place of what was there",
    args: &[
        Arg {
            name: "value",
            holds: ArgType::Json,
            required: true,
            help: "The value; of a hash cache an object of its fields",
        },
        Arg {
            name: "ttl_ms",
            holds: ArgType::Positive,
            required: false,
            help: "How long it lives; at most the declared ttl, which it is unless given",
        },
        Arg {
            name: "if_absent",
            holds: ArgType::Flag,
            required: false,
            help: "Leave an entry that is there as it is; the answer is then no",
        },
        REQUEST_ID,
    ],
    said_no: |answer| answer["stored"] == false,
    run: |app, input| put(app, input).boxed(),
};
pub(super) const GET: Call = Call {
    kind: Kind::Cache,
    verb: "get",
    effect: Effect::Reads,
    template: "/v1/cache/{name}/get",
    about: "Look a value up",
    args: &[],
    said_no: |answer| answer["hit"] == false,
    run: |app, input| get(app, input).boxed(),
};
pub(super) const EXISTS: Call = Call {
    kind: Kind::Cache,
    verb: "exists",
    effect: Effect::Reads,
    template: "/v1/cache/{name}/exists",
    about: "Say whether there is a value",
    args: &[],
    said_no: |answer| answer["exists"] == false,
    run: |app, input| exists(app, input).boxed(),
};
pub(super) const DELETE: Call = Call {
    kind: Kind::Cache,
    verb: "delete",
    effect: Effect::Writes,
    template: "/v1/cache/{name}/delete",
    about: "Forget a value",
    args: &[REQUEST_ID],
    said_no: |answer| answer["deleted"] == false,
    run: |app, input| delete(app, input).boxed(),
};

/// What `put` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CacheStored {
    /// Whether the value is there now; not when `if_absent` found one, or the store could not be asked.
    stored: bool,
    /// The outage policy that answered because the store could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<&'static str>,
}

/// What `get` answers.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct CacheFetched {
    /// Whether there is a value.
    hit: bool,
    /// A string cache's text, or a hash cache's fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<CacheText>,
    /// What of it is not UTF-8, in base64: the string, or those fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<CacheText>,
    /// The outage policy that answered because the store could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<&'static str>,
}

/// A string, or fields and their strings.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum CacheText {
    /// Of a string cache.
    Text(String),
    /// Of a hash cache.
    Fields(BTreeMap<String, String>),
}

/// What `exists` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CachePresence {
    /// Whether there is a value.
    exists: bool,
    /// The outage policy that answered because the store could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<&'static str>,
}

/// What `delete` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CacheDeleted {
    /// Whether there was a value.
    deleted: bool,
}

#[derive(Debug, Default)]
struct PutBody<'a> {
    key: KeyValues<'a>,
    value: Option<&'a RawValue>,
    ttl_ms: Option<u64>,
    if_absent: Option<bool>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for PutBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "value", "ttl_ms", "if_absent", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            "value" => self.value = Some(value.raw()?),
            "ttl_ms" => self.ttl_ms = value.optional_count()?,
            "if_absent" => self.if_absent = value.optional_truth()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct DeleteBody<'a> {
    key: KeyValues<'a>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for DeleteBody<'de> {
    const NAMES: &'static [&'static str] = &["key", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "key" => self.key = value.key_values()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `put` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct CachePut {
    /// The placeholders of the cache's key, by name.
    #[schema(example = json!({"psp_id": "PSP001"}))]
    key: BTreeMap<String, KeyValue>,
    /// A string cache: a string is stored as it is, other JSON as its text. A hash cache: an object of fields,
    /// each stored the same way.
    value: serde_json::Value,
    /// How long it lives; at most the declared ttl, which it is unless given.
    #[schema(minimum = 1)]
    ttl_ms: Option<u64>,
    /// Whether an entry that is there stays as it is.
    #[schema(default = false)]
    if_absent: Option<bool>,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `delete` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct CacheDelete {
    /// The placeholders of the cache's key, by name.
    #[schema(example = json!({"psp_id": "PSP001"}))]
    key: BTreeMap<String, KeyValue>,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// Keeps a value in place of what was there.
#[utoipa::path(
    post, path = "/v1/cache/{name}/put", operation_id = "cache.put", tag = "cache",
    params(("name" = String, Path, description = "the cache's name in the schema")),
    request_body = CachePut,
    responses((status = 200, body = CacheStored, description = "the answer, also when it is no"), crate::page::openapi::Problems),
)]
async fn put(app: &App, input: Input<'_>) -> Answer {
    let cache = app.quaymaster.cache(input.name)?;
    let body: PutBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let Some(value) = body.value else {
        return Err(Problem::new(Code::RequestInvalid, "value is missing").field("value"));
    };
    let value = entry(cache.spec().holds, value)?;
    let put = Put {
        ttl: body.ttl_ms.map(Duration::from_millis),
        when: if body.if_absent == Some(true) { When::Absent } else { When::Always },
        request_id: body.request_id.as_deref(),
    };
    let stored = cache.put(&pairs(&body.key), &value, put).await.map_err(named)?;
    Ok(written(&match stored {
        Stored::Stored => CacheStored { stored: true, outage: None },
        Stored::Present => CacheStored { stored: false, outage: None },
        Stored::Away(policy) => CacheStored { stored: false, outage: input.under(Some(policy)) },
    }))
}

/// Looks a value up.
#[utoipa::path(
    get, path = "/v1/cache/{name}/get", operation_id = "cache.get", tag = "cache",
    params(
        ("name" = String, Path, description = "the cache's name in the schema"),
        ("key" = BTreeMap<String, KeyValue>, Query, style = DeepObject,
            description = "one parameter `key.<placeholder>` for every placeholder of the cache's key"),
    ),
    responses((status = 200, body = CacheFetched, description = "the value, or a miss"), crate::page::openapi::Problems),
)]
async fn get(app: &App, input: Input<'_>) -> Answer {
    let cache = app.quaymaster.cache(input.name)?;
    let key = query::key_values(input.query)?;
    Ok(written(&match cache.get(&pairs(&key)).await? {
        Fetched::Hit(value) => fetched(value),
        Fetched::Miss { outage } => CacheFetched { outage: input.under(outage), ..CacheFetched::default() },
    }))
}

/// Says whether there is a value.
#[utoipa::path(
    get, path = "/v1/cache/{name}/exists", operation_id = "cache.exists", tag = "cache",
    params(
        ("name" = String, Path, description = "the cache's name in the schema"),
        ("key" = BTreeMap<String, KeyValue>, Query, style = DeepObject,
            description = "one parameter `key.<placeholder>` for every placeholder of the cache's key"),
    ),
    responses((status = 200, body = CachePresence, description = "whether there is one"), crate::page::openapi::Problems),
)]
async fn exists(app: &App, input: Input<'_>) -> Answer {
    let cache = app.quaymaster.cache(input.name)?;
    let key = query::key_values(input.query)?;
    Ok(written(&match cache.exists(&pairs(&key)).await? {
        Presence::Present => CachePresence { exists: true, outage: None },
        Presence::Absent { outage } => CachePresence { exists: false, outage: input.under(outage) },
    }))
}

/// Forgets a value.
#[utoipa::path(
    post, path = "/v1/cache/{name}/delete", operation_id = "cache.delete", tag = "cache",
    params(("name" = String, Path, description = "the cache's name in the schema")),
    request_body = CacheDelete,
    responses((status = 200, body = CacheDeleted, description = "whether there was one"), crate::page::openapi::Problems),
)]
async fn delete(app: &App, input: Input<'_>) -> Answer {
    let cache = app.quaymaster.cache(input.name)?;
    let body: DeleteBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let deleted = cache.delete(&pairs(&body.key), body.request_id.as_deref()).await?;
    Ok(written(&CacheDeleted { deleted: deleted == Deleted::Deleted }))
}

/// JSON as an entry holds it: a string as it is, anything else as its text.
pub(super) fn stored_text(value: &RawValue) -> Bytes {
    match serde_json::from_str::<String>(value.get()) {
        Ok(text) => text.into(),
        Err(_) => Bytes::copy_from_slice(value.get().as_bytes()),
    }
}

fn entry(holds: CacheType, value: &RawValue) -> Result<Entry, Problem> {
    match holds {
        CacheType::String => Ok(Entry::Bytes(stored_text(value))),
        CacheType::Hash => {
            let fields: BTreeMap<String, &RawValue> = serde_json::from_str(value.get()).map_err(|_| {
                let detail = "value must be an object of fields: the cache's type is hash";
                Problem::new(Code::RequestInvalid, detail).field("value")
            })?;
            Ok(Entry::fields(fields.into_iter().map(|(field, value)| (field, stored_text(value)))))
        }
    }
}

fn fetched(value: Entry) -> CacheFetched {
    let mut answer = CacheFetched { hit: true, ..CacheFetched::default() };
    match value {
        Entry::Bytes(bytes) => match readable(&bytes) {
            Ok(text) => answer.value = Some(CacheText::Text(text)),
            Err(packed) => answer.value_base64 = Some(CacheText::Text(packed)),
        },
        Entry::Fields(fields) => {
            let (mut plain, mut packed) = (BTreeMap::new(), BTreeMap::new());
            for (field, value) in fields {
                let field = String::from_utf8_lossy(&field).into_owned();
                match readable(&value) {
                    Ok(text) => drop(plain.insert(field, text)),
                    Err(text) => drop(packed.insert(field, text)),
                }
            }
            answer.value = Some(CacheText::Fields(plain));
            answer.value_base64 = (!packed.is_empty()).then_some(CacheText::Fields(packed));
        }
    }
    answer
}

/// The text, or its base64 where it is none.
pub(super) fn readable(bytes: &Bytes) -> Result<String, String> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| STANDARD.encode(bytes))
}

/// The problem with its field named, where the error is about `value` or `ttl_ms`.
pub(super) fn named(error: quaymaster::Error) -> Problem {
    let field = ["value", "ttl_ms"]
        .into_iter()
        .find(|field| error.detail.strip_prefix(field).is_some_and(|rest| rest.starts_with(' ')));
    let problem = Problem::from(error);
    match field {
        Some(field) => problem.field(field),
        None => problem,
    }
}

pub(super) fn written(answer: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(64);
    // Strings and truths cannot fail to be written into memory.
    let _ = serde_json::to_writer(&mut out, answer);
    Bytes::from(out)
}
