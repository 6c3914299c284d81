//! `upload create`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::schema::Kind;
use quaymaster_upload::ingest::{Began, Creation, Request};
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID};
use super::{berth, written};
use crate::app::App;
use crate::http::json::{self, Fields, Value};
use crate::http::problem::Problem;

const fn text(name: &'static str, help: &'static str) -> Arg {
    Arg { name, holds: ArgType::Text, required: false, help }
}

pub(in super::super) const CREATE: Call = Call {
    kind: Kind::Upload,
    verb: "create",
    effect: Effect::Writes,
    template: "/v1/upload/{name}/create",
    about: "Begin an upload",
    args: &[
        Arg { name: "name", holds: ArgType::Text, required: true, help: "The file's name" },
        Arg { name: "size", holds: ArgType::Integer, required: false, help: "Its bytes, if known" },
        text("mime_type", "Its MIME type"),
        text("drive", "The drive"),
        text("connector_id", "The connector; the schema's unless given"),
        text("path", "The relative path"),
        text("parent_id", "The folder's UUID"),
        Arg { name: "custom_metadata", holds: ArgType::Json, required: false, help: "An object of your own" },
        text("client_node_id", "Your own stable id"),
        text("idempotency_key", "The same key and the same request get the same upload"),
        REQUEST_ID,
    ],
    said_no: |_| false,
    run: |app, input| create(app, input).boxed(),
};

/// The longest idempotency key.
const KEY_MAX: usize = 255;

/// The longest `request_id`, as for every call.
const REQUEST_ID_MAX: usize = 128;

#[derive(Debug, Default)]
struct CreateBody<'a> {
    name: Option<Cow<'a, str>>,
    size: Option<u64>,
    mime_type: Option<Cow<'a, str>>,
    drive: Option<Cow<'a, str>>,
    connector_id: Option<Cow<'a, str>>,
    path: Option<Cow<'a, str>>,
    parent_id: Option<Cow<'a, str>>,
    custom_metadata: Option<&'a RawValue>,
    client_node_id: Option<Cow<'a, str>>,
    idempotency_key: Option<Cow<'a, str>>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for CreateBody<'de> {
    const NAMES: &'static [&'static str] = &[
        "name",
        "size",
        "mime_type",
        "drive",
        "connector_id",
        "path",
        "parent_id",
        "custom_metadata",
        "client_node_id",
        "idempotency_key",
        "request_id",
    ];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "name" => self.name = value.optional_text()?,
            "size" => self.size = value.optional_count()?,
            "mime_type" => self.mime_type = value.optional_text()?,
            "drive" => self.drive = value.optional_text()?,
            "connector_id" => self.connector_id = value.optional_text()?,
            "path" => self.path = value.optional_text()?,
            "parent_id" => self.parent_id = value.optional_text()?,
            "custom_metadata" => self.custom_metadata = Some(value.raw()?),
            "client_node_id" => self.client_node_id = value.optional_text()?,
            "idempotency_key" => self.idempotency_key = value.optional_text()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `create` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct UploadCreate {
    /// The file's name.
    #[schema(min_length = 1, example = "report.pdf")]
    name: String,
    /// Its bytes, if known: then more or fewer are refused.
    #[schema(minimum = 0)]
    size: Option<u64>,
    #[schema(example = "application/pdf")]
    mime_type: Option<String>,
    drive: Option<String>,
    /// Letters, digits, `.`, `_` and `-`; the schema's unless given.
    #[schema(max_length = 128)]
    connector_id: Option<String>,
    /// The relative path.
    path: Option<String>,
    /// The folder's UUID.
    parent_id: Option<String>,
    /// An object of your own.
    custom_metadata: Option<BTreeMap<String, serde_json::Value>>,
    /// Your own stable id.
    client_node_id: Option<String>,
    /// The same key and the same request get the same upload.
    #[schema(max_length = 255)]
    idempotency_key: Option<String>,
    /// The same, for callers that name their requests.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `create` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UploadCreated {
    #[schema(example = "6f1c4b1d8e2a4c0f9b7d3e5a1c2b4d6f")]
    upload_id: String,
    /// The document.
    #[schema(example = "550e8400-e29b-41d4-a716-446655440000")]
    node_id: String,
    /// The fewest bytes of a chunk that is not the last; with a `size`, as many as keep it to 10,000 chunks.
    chunk_min_bytes: u64,
    /// The most bytes of a chunk.
    chunk_max_bytes: u64,
    /// `created`, or `existing` when the same key and request made it before.
    outcome: &'static str,
}

/// Begins an upload.
#[utoipa::path(
    post, path = "/v1/upload/{name}/create", operation_id = "upload.create", tag = "upload",
    params(("name" = String, Path, description = "the upload's name in the schema")),
    request_body = UploadCreate,
    responses((status = 200, body = UploadCreated, description = "send its chunks now"), crate::page::openapi::Problems),
)]
pub(crate) async fn create(app: &App, input: Input<'_>) -> Answer {
    let berth = berth(app, input.name)?;
    let body: CreateBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let request = request(body)?;
    let (began, outcome) = match berth.uploads().await?.create(&request).await? {
        Creation::New(began) => (began, "created"),
        Creation::Existing(began) => (began, "existing"),
        Creation::Mismatch => {
            let detail = "the idempotency key was used for an upload with another name, size or metadata";
            return Err(Problem::new(Code::UploadMismatch, detail).field("idempotency_key"));
        }
    };
    let Began { upload_id, node_id, chunk_min_bytes, chunk_max_bytes } = began;
    berth.remember(&upload_id, &node_id);
    Ok(written(&UploadCreated { upload_id, node_id, chunk_min_bytes, chunk_max_bytes, outcome }))
}

/// It is no part of a key here, and the same rules hold: a caller that names its requests names all of them alike.
fn check_request_id(id: &str) -> Result<(), Problem> {
    let usable = |c: char| !c.is_control() && !matches!(c, '{' | '}' | '*' | '?' | '[' | ']');
    if (1..=REQUEST_ID_MAX).contains(&id.len()) && id.chars().all(usable) {
        return Ok(());
    }
    let detail = format!(
        "request_id: 1 to {REQUEST_ID_MAX} bytes without control characters and {{ }} * ? [ ], got {} bytes",
        id.len()
    );
    Err(Problem::new(Code::RequestInvalid, detail).field("request_id"))
}

fn request(body: CreateBody<'_>) -> Result<Request, Problem> {
    let wrong = |field: &'static str, detail: String| Problem::new(Code::RequestInvalid, detail).field(field);
    let name = body.name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| wrong("name", "name is missing".into()))?;
    let custom_metadata = body.custom_metadata.map(RawValue::get).filter(|text| *text != "null");
    if custom_metadata.is_some_and(|text| !text.starts_with('{')) {
        return Err(wrong("custom_metadata", "custom_metadata must be an object".into()));
    }
    // A key and a request's id are different names, whatever they say.
    if let Some(id) = &body.request_id {
        check_request_id(id)?;
    }
    let key = body.idempotency_key.map(|key| ("idempotency_key", "k:", key));
    if let Some((field, _, key)) = &key
        && !(1..=KEY_MAX).contains(&key.len())
    {
        return Err(wrong(field, format!("{field} has 1 to {KEY_MAX} bytes")));
    }
    let key = key.or_else(|| body.request_id.map(|id| ("request_id", "r:", id)));
    if let Some((field, ..)) = key.as_ref().filter(|(_, _, key)| key.contains('\0')) {
        return Err(wrong(field, format!("{field}: must not contain NUL")));
    }
    let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
    Ok(Request {
        name: name.into_owned(),
        size: body.size,
        mime_type: owned(body.mime_type),
        drive: owned(body.drive),
        connector_id: owned(body.connector_id),
        path: owned(body.path),
        parent_id: owned(body.parent_id),
        custom_metadata: custom_metadata.map(str::to_owned),
        client_node_id: owned(body.client_node_id),
        idempotency_key: key.map(|(_, mark, key)| format!("{mark}{key}")),
    })
}
