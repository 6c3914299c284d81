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
use quaymaster::upload::Status;
use quaymaster_upload::complete::Ran;
use quaymaster_upload::ingest::{Resumed, Standing};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::{Answer, Answers, Call, Input, Needs, Operation, Repeat, Shows, call};
use super::chunk::closed;
use super::route::Asked;
use super::{UPLOAD_ID, below, berth_of, unknown, written};
use crate::app::App;
use crate::depot::Berth;
use crate::http::problem::Problem;
use crate::http::query;
use crate::request::{REQUEST_ID_UNUSED, request};
use crate::services::Services;

pub(super) const TEMPLATE: &str = "/v1/upload/{name}/{upload_id}";

pub(in super::super) const CALLS: &[Call] = &[STATUS, ABORT, RESUME];

const STATUS: Call = call!(
    Upload "upload" "status", Reads, UploadAsk => UploadState, status,
    "Show how far an upload has come, and what is to be sent again",
    shows: Some(Shows::Facts),
);
const ABORT: Call = call!(
    Upload "upload" "abort", Writes, UploadNamed => UploadState, abort,
    "Call an upload off, unless its object is there",
    needs: Needs::Operate, repeat: Repeat::Safe,
);
const RESUME: Call = call!(
    Upload "upload" "resume", Writes, UploadNamed => UploadState, resume,
    "Go on with an upload that has FAILED; `resend` says with what",
    needs: Needs::Operate, repeat: Repeat::Safe,
);
pub(super) const SHOW: Operation = Operation {
    shows: STATUS.row.shows,
    ..below(("show", TEMPLATE), STATUS.about, ANSWERS, |app, asked| Box::pin(show(app, asked)).boxed())
};
pub(super) const DELETE: Operation = Operation {
    method: "DELETE",
    needs: Needs::Operate,
    ..below(("delete", TEMPLATE), ABORT.about, ANSWERS, |app, asked| Box::pin(delete(app, asked)).boxed())
};
const ANSWERS: Answers = Answers::Json(|generator| generator.subschema_for::<UploadState>());

/// The schema of an upload's status.
pub(crate) struct UploadPhase;

impl JsonSchema for UploadPhase {
    fn schema_name() -> Cow<'static, str> {
        "UploadPhase".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Status::ALL.iter().map(|status| status.name()).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

/// An upload.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UploadState {
    upload_id: String,
    /// The document.
    node_id: String,
    /// `PENDING`, `UPLOADING`, `COMPLETING`, `COMPLETED`, `FAILED` or `EXPIRED`.
    #[schemars(with = "UploadPhase")]
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
    #[schemars(extend("examples" = ["report.pdf"]))]
    name: String,
    /// The relative path, where it was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    /// The folder's UUID, where it was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    parent_id: String,
    /// The connector; the schema's where none was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    connector_id: String,
    /// The object of the client's own, where it was given, as it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    custom_metadata: Option<Box<RawValue>>,
    /// The client's own stable id, where it was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    client_node_id: String,
    #[schemars(extend("examples" = ["2026-11-16T06:22:01.123000Z"]))]
    created_at: String,
    updated_at: String,
    /// When it becomes EXPIRED, unless it ends before.
    expires_at: String,
    /// The client called it off.
    aborted: bool,
    /// The object's ETag, when completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    final_etag: Option<String>,
    /// The object's size, when completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    final_size: Option<u64>,
    /// What went wrong, when FAILED; why the completion waits, while COMPLETING.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    error_message: Option<String>,
}

request! {
    /// What `status` is asked.
    pub(crate) struct UploadAsk<'a> {
        upload_id: Cow<'a, str> = UPLOAD_ID,
    }
}

request! {
    /// What `abort` and `resume` are given.
    pub(crate) struct UploadNamed<'a> {
        upload_id: Cow<'a, str> = UPLOAD_ID,
        #[expect(dead_code, reason = "it is taken and not needed")]
        request_id: Option<Cow<'a, str>> = REQUEST_ID_UNUSED,
    }
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
    let ran = berth.uploads().await?.abort(id).await?;
    match &ran {
        Ran::Unknown => Err(unknown(id)),
        // Another caller, or the sweep of one that expired; or one of them that died, whose lease has not ended.
        Ran::Taken => {
            Err(Problem::new(Code::UploadEnding, "somebody else is calling the upload off, or it expires"))
        }
        Ran::LetGo(why) => Err(Problem::new(Code::UploadBackend, format!("it is called off later: {why}"))),
        Ran::Ended(_) | Ran::Failed(_) | Ran::NotYet | Ran::Elsewhere(_) => {
            let Some(standing) = berth.uploads().await?.standing(id).await? else { return Err(unknown(id)) };
            let status = standing.state.status;
            match ran {
                _ if standing.state.aborted => Ok(shown(standing)),
                // It was this call that found its object there, and completed it.
                Ran::Ended(_) | Ran::Failed(_) => Err(closed(status, "").may_have_run()),
                _ => Err(closed(status, "")),
            }
        }
    }
}

pub(crate) async fn status(services: &Services, input: Input<'_>) -> Answer {
    let id = input.read::<UploadAsk<'_>>()?.upload_id;
    standing(berth_of(services, input.name, &id)?, &id).await
}

pub(crate) async fn abort(services: &Services, input: Input<'_>) -> Answer {
    let id = input.read::<UploadNamed<'_>>()?.upload_id;
    call_off(berth_of(services, input.name, &id)?, &id).await
}

pub(crate) async fn resume(services: &Services, input: Input<'_>) -> Answer {
    let id = input.read::<UploadNamed<'_>>()?.upload_id;
    let berth = berth_of(services, input.name, &id)?;
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

pub(crate) async fn show(app: &App, asked: Asked<'_>) -> Result<Response<Body>, Problem> {
    query::none(asked.query)?;
    standing(berth_of(&app.services, asked.name, asked.id)?, asked.id).await.map(json_response)
}

pub(crate) async fn delete(app: &App, asked: Asked<'_>) -> Result<Response<Body>, Problem> {
    query::none(asked.query)?;
    call_off(berth_of(&app.services, asked.name, asked.id)?, asked.id).await.map(json_response)
}

fn json_response(body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
