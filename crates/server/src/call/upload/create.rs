//! `upload create`.

use std::borrow::Cow;

use quaymaster::Code;
use quaymaster_upload::ingest::{Began, Creation, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::{Answer, Call, Input, MISMATCH, call};
use super::{berth, written};
use crate::command::Fields;
use crate::http::problem::Problem;
use crate::request::{Holds, REQUEST_ID, Request as _, Spec, read, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[CREATE];

const CREATE: Call = call!(
    Upload "upload" "create", Writes, UploadCreate => UploadCreated, create, "Begin an upload; send its chunks then",
    refusals: &[MISMATCH],
);

request! {
    /// What `create` is given.
    pub(crate) struct UploadCreate<'a> {
        /// The file's name.
        name: Cow<'a, str> = Spec::text_of(1, 65_536).required("").also(NO_NUL).example(r#""report.pdf""#),
        /// The document's UUID, in lower case: of its row in `nodes`, which is made where it is not there; a random one unless given.
        node_id: Option<Cow<'a, str>> = Spec::text_of(36, 36).also(r#"{"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}"#).example(r#""550e8400-e29b-41d4-a716-446655440000""#),
        /// Its bytes, if known: then more or fewer are refused.
        size: Option<u64> = Spec::integer(0, u64::MAX),
        /// Its MIME type.
        mime_type: Option<Cow<'a, str>> = Spec::text_of(0, 4096).also(r#"{"pattern": "^[ -~]*$"}"#).example(r#""application/pdf""#),
        /// The drive.
        drive: Option<Cow<'a, str>> = Spec::text_of(0, 4096).also(NO_NUL),
        /// The connector: letters, digits, `.`, `_` and `-`; the schema's unless given.
        connector_id: Option<Cow<'a, str>> = Spec::text_of(1, 128).also(r#"{"pattern": "^[A-Za-z0-9._-]+$", "not": {"enum": [".", ".."]}}"#),
        /// The relative path.
        path: Option<Cow<'a, str>> = Spec::text_of(0, 65_536).also(NO_NUL),
        /// The folder's UUID.
        parent_id: Option<Cow<'a, str>> = Spec::text_of(0, 65_536).also(NO_NUL),
        /// An object of your own.
        custom_metadata: Option<&'a RawValue> = Spec::of(Holds::Map),
        /// Your own stable id.
        client_node_id: Option<Cow<'a, str>> = Spec::text_of(0, 65_536).also(NO_NUL),
        /// The same key and the same request get the same upload.
        idempotency_key: Option<Cow<'a, str>> = Spec::text_of(1, KEY_MAX).also(NO_NUL),
        /// The same, for callers that name their requests.
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// Databases keep no text with a NUL.
const NO_NUL: &str = r#"{"pattern": "^[^\\u0000]*$"}"#;

/// The longest idempotency key.
const KEY_MAX: usize = 255;

/// What `create` answers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UploadCreated {
    /// The upload: for its chunks and everything after.
    #[schemars(extend("examples" = ["6f1c4b1d8e2a4c0f9b7d3e5a1c2b4d6f"]))]
    pub upload_id: String,
    /// The document.
    #[schemars(extend("examples" = ["550e8400-e29b-41d4-a716-446655440000"]))]
    pub node_id: String,
    /// The fewest bytes of a chunk that is not the last; with a `size`, as many as keep it to 10,000 chunks.
    pub chunk_min_bytes: u64,
    /// The most bytes of a chunk.
    pub chunk_max_bytes: u64,
    /// `created`, or `existing` when the same key and request made it before.
    #[serde(default)] // The command line reads this answer and does not need the field.
    #[schemars(!default, extend("enum" = ["created", "existing"]))]
    pub outcome: Cow<'static, str>,
}

pub(crate) async fn create(services: &Services, input: Input<'_>) -> Answer {
    let berth = berth(services, input.name)?;
    let request = request_of(input.read()?)?;
    let (began, outcome) = match berth.uploads().await?.create(&request).await? {
        Creation::New(began) => (began, "created"),
        Creation::Existing(began) => (began, "existing"),
        Creation::Mismatch => {
            let detail = "the idempotency key was used for an upload with another name, size or metadata";
            return Err(Problem::new(Code::UploadMismatch, detail).field("idempotency_key"));
        }
        Creation::NodeTaken => {
            let detail = "this document has an upload already, or belongs to another upload resource; finish or abort that \
                          upload, or name another node_id";
            return Err(Problem::new(Code::UploadNode, detail).field("node_id"));
        }
    };
    let Began { upload_id, node_id, chunk_min_bytes, chunk_max_bytes } = began;
    let outcome = Cow::Borrowed(outcome);
    berth.remember(&upload_id, &node_id);
    Ok(written(&UploadCreated { upload_id, node_id, chunk_min_bytes, chunk_max_bytes, outcome }))
}

/// What an upload is begun with, from the fields of `create`.
pub fn upload_request(fields: &Fields) -> quaymaster::Result<Request> {
    let read = read::named(UploadCreate::SHAPE, &[], fields).and_then(UploadCreate::of).and_then(request_of);
    read.map_err(|problem| problem.into_error("upload.create"))
}

fn request_of(body: UploadCreate<'_>) -> Result<Request, Problem> {
    let wrong = |field: &'static str, detail: String| Problem::new(Code::RequestInvalid, detail).field(field);
    if body.name.is_empty() {
        return Err(wrong("name", "name is missing".into()));
    }
    let custom_metadata = body.custom_metadata.map(RawValue::get);
    if custom_metadata.is_some_and(|text| !text.starts_with('{')) {
        return Err(wrong("custom_metadata", "custom_metadata must be an object".into()));
    }
    // A key and a request's id are different names, whatever they say.
    let key = body.idempotency_key.map(|key| ("idempotency_key", "k:", key));
    if let Some((field, _, key)) = &key
        && !(1..=KEY_MAX).contains(&key.chars().count())
    {
        return Err(wrong(field, format!("{field} has 1 to {KEY_MAX} characters")));
    }
    let key = key.or_else(|| body.request_id.map(|id| ("request_id", "r:", id)));
    if let Some((field, ..)) = key.as_ref().filter(|(_, _, key)| key.contains('\0')) {
        return Err(wrong(field, format!("{field}: must not contain NUL")));
    }
    let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
    Ok(Request {
        node_id: owned(body.node_id),
        name: body.name.into_owned(),
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
