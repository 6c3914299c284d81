//! `upload status`, `abort`, `resume`; and the same by `GET` and `DELETE …/<upload_id>`.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::run::moment;
use quaymaster::schema::Kind;
use quaymaster_upload::complete::Ran;
use quaymaster_upload::ingest::{Resumed, Standing};
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::{Answer, Call, Effect, Input, REQUEST_ID};
use super::chunk::closed;
use super::route::{Asked, Route};
use super::{UPLOAD_ID, berth_of, unknown, written};
use crate::app::App;
use crate::depot::Berth;
use crate::http::json::{self, Fields, Value};
use crate::http::problem::Problem;
use crate::http::query;

pub(super) const TEMPLATE: &str = "/v1/upload/{name}/{upload_id}";

pub(in super::super) const STATUS: Call = Call {
    kind: Kind::Upload,
    verb: "status",
    effect: Effect::Reads,
    template: "/v1/upload/{name}/status",
    about: "Show how far an upload has come, and what is to be sent again",
    args: &[UPLOAD_ID],
    said_no: |_| false,
    run: |app, input| status(app, input).boxed(),
};
pub(in super::super) const ABORT: Call = Call {
    kind: Kind::Upload,
    verb: "abort",
    effect: Effect::Writes,
    template: "/v1/upload/{name}/abort",
    about: "Call an upload off, unless its object is there",
    args: &[UPLOAD_ID, REQUEST_ID],
    said_no: |_| false,
    run: |app, input| abort(app, input).boxed(),
};
pub(in super::super) const RESUME: Call = Call {
    kind: Kind::Upload,
    verb: "resume",
    effect: Effect::Writes,
    template: "/v1/upload/{name}/resume",
    about: "Go on with an upload that has FAILED",
    args: &[UPLOAD_ID, REQUEST_ID],
    said_no: |_| false,
    run: |app, input| resume(app, input).boxed(),
};
pub(super) const SHOW: Route = Route {
    method: "GET",
    template: TEMPLATE,
    effect: Effect::Reads,
    answer: |app, asked| Box::pin(show(app, asked)).boxed(),
};
pub(super) const DELETE: Route = Route {
    method: "DELETE",
    template: TEMPLATE,
    effect: Effect::Writes,
    answer: |app, asked| Box::pin(delete(app, asked)).boxed(),
};

/// An upload.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UploadState {
    upload_id: String,
    /// The document.
    node_id: String,
    /// `PENDING`, `UPLOADING`, `COMPLETING`, `COMPLETED`, `FAILED` or `EXPIRED`.
    #[schema(example = "UPLOADING")]
    status: &'static str,
    /// Chunks received; the durable ones are among them.
    received_chunks: u32,
    /// Chunks that are in the object store.
    durable_chunks: u32,
    /// How many there are; null until the last one has come.
    total_chunks: Option<u32>,
    is_last_received: bool,
    /// Chunks to send again, or still to be sent of those that are known to exist.
    resend: Vec<u32>,
    /// Chunks received and not yet durable, as ranges from and to.
    received: Vec<[u32; 2]>,
    /// Durable chunks, as ranges from and to.
    durable: Vec<[u32; 2]>,
    bytes_received: u64,
    bytes_durable: u64,
    /// The size as announced.
    expected_size: Option<u64>,
    /// The object's key.
    s3_key: String,
    drive: String,
    mime_type: String,
    /// The file's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false, example = "report.pdf")]
    name: String,
    /// The relative path, where it was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    path: String,
    /// The folder's UUID, where it was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    parent_id: String,
    /// The connector; the schema's where none was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    connector_id: String,
    /// The object of the client's own, where it was given, as it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, serde_json::Value>>)]
    custom_metadata: Option<Box<RawValue>>,
    /// The client's own stable id, where it was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    client_node_id: String,
    #[schema(example = "2026-11-16T06:22:01.123000Z")]
    created_at: String,
    updated_at: String,
    /// When it becomes EXPIRED, unless it ends before.
    expires_at: String,
    /// The client called it off.
    aborted: bool,
    /// The object's ETag, when completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    final_etag: Option<String>,
    /// The object's size, when completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    final_size: Option<u64>,
    /// What went wrong, when FAILED; why the completion waits, while COMPLETING.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
}

/// What `abort` and `resume` are given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct UploadNamed {
    upload_id: String,
    /// Taken and not needed: doing it twice is doing it once.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

#[derive(Debug, Default)]
struct NamedBody<'a> {
    upload_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for NamedBody<'de> {
    const NAMES: &'static [&'static str] = &["upload_id", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        let text = value.optional_text()?;
        if name == "upload_id" {
            self.upload_id = text;
        }
        Ok(())
    }
}

fn required(id: Option<Cow<'_, str>>) -> Result<Cow<'_, str>, Problem> {
    id.ok_or_else(|| Problem::new(Code::RequestInvalid, "upload_id is missing").field("upload_id"))
}

fn shown(standing: Standing) -> Bytes {
    let Standing { state, said, resend } = standing;
    let pairs = |ranges: Vec<RangeInclusive<u32>>| {
        ranges.into_iter().map(|range| [*range.start(), *range.end()]).collect()
    };
    let at = |ms: i64| moment(ms.saturating_mul(1000));
    let receipt = state.receipt;
    written(&UploadState {
        status: state.status.name(),
        received_chunks: receipt.received_chunks,
        durable_chunks: receipt.durable_chunks,
        total_chunks: receipt.total_chunks,
        is_last_received: receipt.total_chunks.is_some(),
        resend: resend.into_iter().flatten().collect(),
        received: pairs(state.received()),
        durable: pairs(state.durable()),
        bytes_received: state.bytes_received,
        bytes_durable: state.bytes_durable,
        expected_size: state.expected_size,
        created_at: at(state.created_ms),
        updated_at: at(state.updated_ms),
        expires_at: at(state.deadline_ms),
        aborted: state.aborted,
        final_etag: state.final_etag,
        final_size: state.final_size,
        error_message: state.error,
        upload_id: state.upload_id,
        node_id: state.node_id,
        s3_key: state.key,
        drive: state.drive,
        mime_type: state.mime_type,
        name: said.name,
        path: said.path,
        parent_id: said.parent_id,
        connector_id: said.connector_id,
        // What another program may have put in its place is not shown.
        custom_metadata: RawValue::from_string(said.custom_metadata).ok(),
        client_node_id: said.client_node_id,
    })
}

async fn standing(berth: &Berth, id: &str) -> Answer {
    match berth.uploads().await?.standing(id).await? {
        Some(standing) => Ok(shown(standing)),
        None => Err(unknown(id)),
    }
}

async fn call_off(berth: &Berth, id: &str) -> Answer {
    match berth.uploads().await?.abort(id).await? {
        Ran::Unknown => Err(unknown(id)),
        // Another caller, or the sweep of one that expired; or one of them that died, whose lease has not ended.
        Ran::Taken => {
            Err(Problem::new(Code::UploadEnding, "somebody else is calling the upload off, or it expires"))
        }
        Ran::LetGo(why) => Err(Problem::new(Code::UploadBackend, format!("it is called off later: {why}"))),
        Ran::Ended(_) | Ran::Failed(_) | Ran::NotYet | Ran::Elsewhere(_) => {
            let Some(standing) = berth.uploads().await?.standing(id).await? else { return Err(unknown(id)) };
            if standing.state.aborted { Ok(shown(standing)) } else { Err(closed(standing.state.status, "")) }
        }
    }
}

/// How far an upload has come.
#[utoipa::path(
    get, path = "/v1/upload/{name}/status", operation_id = "upload.status", tag = "upload",
    params(
        ("name" = String, Path, description = "the upload's name in the schema"),
        ("upload_id" = String, Query, description = "the upload"),
    ),
    responses((status = 200, body = UploadState, description = "the upload"), crate::page::openapi::Problems),
)]
pub(crate) async fn status(app: &App, input: Input<'_>) -> Answer {
    let [id] = query::named(input.query, ["upload_id"])?;
    let id = required(id)?;
    standing(berth_of(app, input.name, &id)?, &id).await
}

/// Calls an upload off.
#[utoipa::path(
    post, path = "/v1/upload/{name}/abort", operation_id = "upload.abort", tag = "upload",
    params(("name" = String, Path, description = "the upload's name in the schema")),
    request_body = UploadNamed,
    responses((status = 200, body = UploadState, description = "it is called off"), crate::page::openapi::Problems),
)]
pub(crate) async fn abort(app: &App, input: Input<'_>) -> Answer {
    let body: NamedBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let id = required(body.upload_id)?;
    call_off(berth_of(app, input.name, &id)?, &id).await
}

/// Goes on with an upload that has FAILED.
#[utoipa::path(
    post, path = "/v1/upload/{name}/resume", operation_id = "upload.resume", tag = "upload",
    params(("name" = String, Path, description = "the upload's name in the schema")),
    request_body = UploadNamed,
    responses((status = 200, body = UploadState, description = "it goes on, or has not stopped; `resend` says with what"),
        crate::page::openapi::Problems),
)]
pub(crate) async fn resume(app: &App, input: Input<'_>) -> Answer {
    let body: NamedBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let id = required(body.upload_id)?;
    let berth = berth_of(app, input.name, &id)?;
    match berth.uploads().await?.resume(&id).await? {
        Resumed::Open(standing) => Ok(shown(*standing)),
        Resumed::Unknown => Err(unknown(&id)),
        Resumed::Ended(status) => match berth.uploads().await?.standing(&id).await? {
            // It has not failed: there is nothing to go on with, and nothing wrong.
            Some(standing) if !standing.state.is_ended() || standing.state.final_size.is_some() => {
                Ok(shown(standing))
            }
            Some(standing) => Err(closed(status, standing.state.error.as_deref().unwrap_or_default())),
            None => Err(unknown(&id)),
        },
    }
}

/// How far an upload has come.
#[utoipa::path(
    get, path = "/v1/upload/{name}/{upload_id}", operation_id = "upload.show", tag = "upload",
    params(
        ("name" = String, Path, description = "the upload's name in the schema"),
        ("upload_id" = String, Path, description = "the upload"),
    ),
    responses((status = 200, body = UploadState, description = "the upload"), crate::page::openapi::Problems),
)]
pub(crate) async fn show(app: &App, asked: Asked<'_>) -> Result<Response<Body>, Problem> {
    query::none(asked.query)?;
    standing(berth_of(app, asked.name, asked.id)?, asked.id).await.map(json_response)
}

/// Calls an upload off.
#[utoipa::path(
    delete, path = "/v1/upload/{name}/{upload_id}", operation_id = "upload.delete", tag = "upload",
    params(
        ("name" = String, Path, description = "the upload's name in the schema"),
        ("upload_id" = String, Path, description = "the upload"),
    ),
    responses((status = 200, body = UploadState, description = "it is called off"), crate::page::openapi::Problems),
)]
pub(crate) async fn delete(app: &App, asked: Asked<'_>) -> Result<Response<Body>, Problem> {
    query::none(asked.query)?;
    call_off(berth_of(app, asked.name, asked.id)?, asked.id).await.map(json_response)
}

fn json_response(body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
