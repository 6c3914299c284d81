//! `cache put`, `get`, `exists`, `delete`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use quaymaster::Code;
use quaymaster::cache::{Deleted, Fetched, Presence, Put, Stored, Value as Entry, When};
use quaymaster::schema::CacheType;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Answer, Call, Input, MISMATCH, Needs, No, Policy, Shows, call, pairs, written};
use crate::http::problem::Problem;
use crate::request::{Holds, JSON, KEY, KeyValues, REQUEST_ID, Spec, request};
use crate::services::Services;

pub(super) const CALLS: &[Call] = &[PUT, GET, EXISTS, DELETE];

const PUT: Call = call!(
    Cache "cache" "put", Writes, CachePut => CacheStored, put, "Keep a value in place of what was there",
    no: No::Truth("stored", false),
    refusals: &[MISMATCH],
);
const GET: Call = call!(
    Cache "cache" "get", Reads, CacheAsk => CacheFetched, get, "Look a value up",
    shows: Some(Shows::Values),
    no: No::Truth("hit", false),
);
const EXISTS: Call = call!(
    Cache "cache" "exists", Reads, CacheAsk => CachePresence, exists, "Say whether there is a value",
    shows: Some(Shows::Facts),
    no: No::Truth("exists", false),
);
const DELETE: Call = call!(
    Cache "cache" "delete", Writes, CacheDelete => CacheDeleted, delete, "Forget a value",
    needs: Needs::Operate,
    no: No::Truth("deleted", false),
);

const CACHE_KEY: Spec = KEY.example(r#"{"psp_id": "PSP001"}"#);

request! {
    /// What `put` is given.
    pub(crate) struct CachePut<'a> {
        /// The placeholders of the cache's key, by name.
        key: KeyValues<'a> = CACHE_KEY,
        /// The value: of a json cache any JSON. Of a string cache a string is stored as it is, other JSON as its text;
        /// of a hash cache an object of fields, each stored the same way.
        value: &'a RawValue = JSON.required(""),
        /// How long it lives; at most the declared ttl, which it is unless given.
        ttl_ms: Option<u64> = Spec::integer(1, u64::MAX),
        /// Leave an entry that is there as it is; the answer is then no.
        if_absent: bool = Spec::of(Holds::Truth).default("false"),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `get` and `exists` are asked.
    pub(crate) struct CacheAsk<'a> {
        /// The placeholders of the cache's key, by name.
        key: KeyValues<'a> = CACHE_KEY,
    }
}

request! {
    /// What `delete` is given.
    pub(crate) struct CacheDelete<'a> {
        /// The placeholders of the cache's key, by name.
        key: KeyValues<'a> = CACHE_KEY,
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `put` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CacheStored {
    /// Whether the value is there now; not when `if_absent` found one, or the store could not be asked.
    stored: bool,
    /// The policy that answered while the store could not be asked; absent when the store did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Policy")]
    outage: Option<&'static str>,
}

/// What `get` answers.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct CacheFetched {
    /// Whether there is a value.
    hit: bool,
    /// A string cache's text, a json cache's JSON (a string where another program left text that is not JSON), or a
    /// hash cache's fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Value")]
    value: Option<CacheValue>,
    /// What of it is not UTF-8, in base64: the string, or those fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CacheText")]
    value_base64: Option<CacheText>,
    /// The policy that answered while the store could not be asked; absent when the store did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Policy")]
    outage: Option<&'static str>,
}

/// What an entry holds.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum CacheValue {
    /// Of a json cache.
    Json(Box<RawValue>),
    /// Of the others.
    Text(CacheText),
}

/// A string, or fields and their strings.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum CacheText {
    /// Of a string cache.
    Text(String),
    /// Of a hash cache.
    Fields(BTreeMap<String, String>),
}

/// What `exists` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CachePresence {
    /// Whether there is a value.
    exists: bool,
    /// The policy that answered while the store could not be asked; absent when the store did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Policy")]
    outage: Option<&'static str>,
}

/// What `delete` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CacheDeleted {
    /// Whether there was a value.
    deleted: bool,
}

async fn put(services: &Services, input: Input<'_>) -> Answer {
    let cache = services.quaymaster.cache(input.name)?;
    let request: CachePut<'_> = input.read()?;
    let value = entry(cache.spec().holds, request.value)?;
    let put = Put {
        ttl: request.ttl_ms.map(Duration::from_millis),
        when: if request.if_absent { When::Absent } else { When::Always },
        request_id: request.request_id.as_deref(),
    };
    let stored = cache.put(&pairs(&request.key), &value, put).await?;
    Ok(written(&match stored {
        Stored::Stored => CacheStored { stored: true, outage: None },
        Stored::Present => CacheStored { stored: false, outage: None },
        Stored::Away(policy) => CacheStored { stored: false, outage: input.under(Some(policy)) },
    }))
}

async fn get(services: &Services, input: Input<'_>) -> Answer {
    let cache = services.quaymaster.cache(input.name)?;
    let request: CacheAsk<'_> = input.read()?;
    Ok(written(&match cache.get(&pairs(&request.key)).await? {
        Fetched::Hit(value) => fetched(cache.spec().holds, value),
        Fetched::Miss { outage } => CacheFetched { outage: input.under(outage), ..CacheFetched::default() },
    }))
}

async fn exists(services: &Services, input: Input<'_>) -> Answer {
    let cache = services.quaymaster.cache(input.name)?;
    let request: CacheAsk<'_> = input.read()?;
    Ok(written(&match cache.exists(&pairs(&request.key)).await? {
        Presence::Present => CachePresence { exists: true, outage: None },
        Presence::Absent { outage } => CachePresence { exists: false, outage: input.under(outage) },
    }))
}

async fn delete(services: &Services, input: Input<'_>) -> Answer {
    let cache = services.quaymaster.cache(input.name)?;
    let request: CacheDelete<'_> = input.read()?;
    let deleted = cache.delete(&pairs(&request.key), request.request_id.as_deref()).await?;
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
        CacheType::Json => Ok(Entry::Bytes(Bytes::copy_from_slice(value.get().as_bytes()))),
        CacheType::Hash => {
            let fields: BTreeMap<String, &RawValue> = serde_json::from_str(value.get()).map_err(|_| {
                let detail = "value must be an object of fields: the cache's type is hash";
                Problem::new(Code::ResourceMismatch, detail).field("value")
            })?;
            Ok(Entry::fields(fields.into_iter().map(|(field, value)| (field, stored_text(value)))))
        }
    }
}

fn fetched(holds: CacheType, value: Entry) -> CacheFetched {
    let mut answer = CacheFetched { hit: true, ..CacheFetched::default() };
    match value {
        Entry::Bytes(bytes) => match readable(&bytes) {
            Ok(text) => answer.value = Some(plain(holds, text)),
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
            answer.value = Some(CacheValue::Text(CacheText::Fields(plain)));
            answer.value_base64 = (!packed.is_empty()).then_some(CacheText::Fields(packed));
        }
    }
    answer
}

/// The text of an entry, or the JSON that it is.
fn plain(holds: CacheType, text: String) -> CacheValue {
    match holds {
        CacheType::String | CacheType::Hash => CacheValue::Text(CacheText::Text(text)),
        // A json cache gives JSON text; a string is what its reader would have made of anything else.
        CacheType::Json => serde_json::from_str(&text)
            .map_or_else(|_| CacheValue::Text(CacheText::Text(text.clone())), CacheValue::Json),
    }
}

/// The text, or its base64 where it is none.
pub(super) fn readable(bytes: &Bytes) -> Result<String, String> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| STANDARD.encode(bytes))
}
