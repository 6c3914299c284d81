//! `upload`: what its calls and routes share.
//!
//! `create`, `status`, `abort`, `resume` and `events` are calls like any other. Chunks, content and progress are not
//! JSON in and JSON out: they have paths of their own below the upload's, [`ROUTES`].

pub(crate) mod chunk;
pub(crate) mod content;
pub(crate) mod create;
mod disposition;
pub(crate) mod events;
pub(crate) mod progress;
mod route;
pub(crate) mod state;

use bytes::Bytes;
use quaymaster::Code;
use quaymaster::upload::Upload;
use serde::Serialize;

pub(super) use create::CREATE;
pub(super) use events::{EVENTS, FOLLOW};
pub(crate) use route::{Asked, Found, ROUTES, Route, find};
pub(super) use state::{ABORT, RESUME, STATUS};

use super::{Arg, ArgType};
use crate::app::App;
use crate::depot::Berth;
use crate::http::problem::{Problem, excerpt};

const UPLOAD_ID: Arg =
    Arg { name: "upload_id", holds: ArgType::Text, required: true, help: "The upload's id" };

/// The upload resource of this name.
fn berth<'a>(app: &'a App, name: &str) -> Result<&'a Berth, Problem> {
    let known = app.quaymaster.upload(name)?;
    app.depot.berth(known.name()).ok_or_else(|| {
        Problem::new(Code::UploadBackend, "this server was started without a place for uploads")
    })
}

/// The same, for an upload whose id may be one.
fn berth_of<'a>(app: &'a App, name: &str, id: &str) -> Result<&'a Berth, Problem> {
    let berth = berth(app, name)?;
    Upload::check_id("upload", id)?;
    Ok(berth)
}

fn unknown(id: &str) -> Problem {
    Problem::new(Code::UploadUnknown, format!("there is no upload {}", excerpt(id)))
}

fn written(answer: &impl Serialize) -> Bytes {
    // A struct of texts and numbers cannot fail to be written into memory.
    Bytes::from(serde_json::to_vec(answer).unwrap_or_default())
}
