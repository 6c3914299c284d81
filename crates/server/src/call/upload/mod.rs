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

use quaymaster::Code;
use quaymaster::schema::Kind;
use quaymaster::upload::Upload;

pub(crate) use route::{Answer, Asked, Found, ROUTES, find};

use super::{Answers, Handler, Operation, written};
use crate::depot::Berth;
use crate::http::problem::{Problem, excerpt};
use crate::request::{Field, Spec};
use crate::services::Services;

/// What an upload's id looks like.
const LOOKS: &str = r#"{"pattern": "^[A-Za-z0-9_-]+$"}"#;

const UPLOAD_ID: Spec = Spec::text_of(1, 64).required("").also(LOOKS).about("The upload's id.");

/// The same, in a path.
const IN_PATH: Field = Field { name: "upload_id", about: "", spec: UPLOAD_ID };

/// An operation below an upload.
const fn below(
    (verb, template): (&'static str, &'static str),
    about: &'static str,
    answers: Answers,
    answer: route::Answer,
) -> Operation {
    let operation = Operation::get((Kind::Upload, verb, template), about, answers, Handler::Upload(answer));
    Operation { path: &[IN_PATH], ..operation }
}

/// The upload resource of this name.
fn berth<'a>(services: &'a Services, name: &str) -> Result<&'a Berth, Problem> {
    let known = services.quaymaster.upload(name)?;
    services.depot.berth(known.name()).ok_or_else(|| {
        Problem::new(Code::UploadBackend, "this server was started without a place for uploads")
    })
}

/// The same, for an upload whose id may be one.
fn berth_of<'a>(services: &'a Services, name: &str, id: &str) -> Result<&'a Berth, Problem> {
    let berth = berth(services, name)?;
    Upload::check_id("upload", id)?;
    Ok(berth)
}

fn unknown(id: &str) -> Problem {
    Problem::new(Code::UploadUnknown, format!("there is no upload {}", excerpt(id)))
}
