//! `upload put`, `content`, `progress` and `doctor`; the other verbs of uploads are calls like any other.

pub(crate) mod args;
mod bar;
pub(crate) mod content;
pub(crate) mod doctor;
mod file;
mod looking;
mod patience;
pub(crate) mod progress;
pub(crate) mod put;
mod reading;
mod remote;
mod telling;
mod way;

use quaymaster::schema::{Kind, Schema};
use quaymaster::{Code, Error};

/// What a shell gives for a command that was interrupted.
const INTERRUPTED: u8 = 130;

/// The upload that is meant: the one named, or the only one there is. One that lacks its variables is there, too: what
/// is meant does not depend on the environment.
fn resource(schema: &Schema, named: Option<String>) -> Result<String, Error> {
    let wrong = |code, detail: String| Err(Error::new("upload", code, detail));
    let declared = schema.resources().filter(|found| found.kind == Kind::Upload);
    let left_out = schema.all_left_out().filter_map(|(label, _)| label.strip_prefix("upload."));
    let known: Vec<&str> = declared.map(|found| found.name.as_str()).chain(left_out).collect();
    match (named, &known[..]) {
        (Some(name), _) if known.contains(&name.as_str()) => Ok(name),
        (Some(name), _) => wrong(
            Code::ResourceUnknown,
            format!("--resource {name:?}: the schema's uploads are {}", known.join(", ")),
        ),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => wrong(Code::ResourceUnknown, "the schema declares no upload".to_owned()),
        (None, _) => wrong(
            Code::RequestInvalid,
            format!("the schema has several uploads: name one of {} with --resource", known.join(", ")),
        ),
    }
}
