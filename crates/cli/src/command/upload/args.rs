//! What `upload put`, `content`, `progress` and `doctor` are given.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use clap::builder::BoolishValueParser;
use quaymaster::schema::Kind;
use quaymaster::upload::Upload;
use quaymaster_server::Field;
use quaymaster_server::command::{self, Command, Fields};
use serde_json::value::to_raw_value;

use super::file::name_of;
use crate::args::Place;
use crate::calls::{Given, arg};
use crate::remote::Remote;

/// Flags that belong to one file or one upload: a variable left behind must not change what becomes of the next one.
#[cfg(test)]
pub(crate) const OF_ONE_CALL: [&str; 3] = ["again", "upload-id", "output"];

/// The call that begins an upload.
pub(super) fn create() -> Option<Command> {
    command::commands().find(|call| call.kind() == Kind::Upload && call.verb() == "create")
}

/// Its fields that `put` is told by flags; the others it knows itself.
pub(crate) fn fields_of_put() -> impl Iterator<Item = &'static Field> {
    let known = |field: &&Field| matches!(field.name, "size" | "idempotency_key" | "request_id");
    create().into_iter().flat_map(Command::fields).filter(move |field| !known(field))
}

/// A flag of `put`.
fn flag_of_put(field: &'static Field) -> clap::Arg {
    match field.name {
        "name" => {
            arg(field).required(false).help("The file's name; its own unless given. Only for a single FILE")
        }
        _ => arg(field),
    }
}

pub(crate) fn commands() -> Vec<clap::Command> {
    vec![
        Put::augment_args(clap::Command::new("put"))
            .args(fields_of_put().map(flag_of_put))
            .about("Upload files; the same command again goes on where it was interrupted")
            .long_about(None),
        Content::augment_args(clap::Command::new("content"))
            .about("Write the bytes of a completed upload to stdout or a file")
            .long_about(None),
        Follow::augment_args(clap::Command::new("progress"))
            .about("Print how far an upload is and every change, a line of JSON each, until it ends")
            .long_about(None),
        Doctor::augment_args(clap::Command::new("doctor"))
            .about("Hold store, objects, rows and events of uploads against each other")
            .long_about(None),
    ]
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Put {
    /// Files.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) remote: Remote,
    #[command(flatten)]
    pub(crate) place: Place,
    /// The upload's name in the schema; may be left out where there is one. With
    /// --server it is needed.
    #[arg(long, env = "QUAYMASTER_RESOURCE", value_name = "NAME")]
    pub(crate) resource: Option<String>,
    /// Chunks sent at once.
    #[arg(long, env = "QUAYMASTER_PARALLEL", value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) parallel: u16,
    /// Bytes of a chunk, as the upload's bounds and the file's size allow.
    #[arg(long, env = "QUAYMASTER_CHUNK_BYTES", value_name = "BYTES", default_value_t = 8 << 20,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) chunk_bytes: u64,
    /// What an upload is begun with, besides what the file itself says.
    #[arg(skip)]
    pub(crate) given: Given,
    /// Upload a file that was uploaded already, and has not changed, as another document.
    #[arg(long)]
    pub(crate) again: bool,
    /// Do not read the content back to compare its SHA-256; every chunk is compared all the same.
    #[arg(long, env = "QUAYMASTER_NO_VERIFY", value_parser = BoolishValueParser::new())]
    pub(crate) no_verify: bool,
}

impl Put {
    /// The fields of `create` for a file, as far as they are known before it is looked at.
    pub(super) fn fields(&self, file: &Path) -> serde_json::Result<Fields> {
        let mut fields = self.given.fields.clone();
        if !fields.contains_key("name") {
            fields.insert("name".to_owned(), to_raw_value(&name_of(file))?);
        }
        Ok(fields)
    }

    /// What the same command does after this one broke off.
    pub(crate) const fn afterwards(&self) -> &'static str {
        if self.again {
            "with --again the same command begins another upload, and what was sent of this one expires by itself"
        } else {
            "the same command goes on where it was"
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Content {
    /// The upload's name in the schema.
    #[arg(value_name = "NAME", id = "NAME")]
    pub(crate) name: String,
    /// The upload's id.
    #[arg(long, value_name = "TEXT", value_parser = upload_id)]
    pub(crate) upload_id: String,
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// The file to write, which gets its name when all of it is there; stdout unless given.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Follow {
    /// The upload's name in the schema.
    #[arg(value_name = "NAME", id = "NAME")]
    pub(crate) name: String,
    /// The upload's id.
    #[arg(long, value_name = "TEXT", value_parser = upload_id)]
    pub(crate) upload_id: String,
    #[command(flatten)]
    pub(crate) remote: Remote,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Doctor {
    /// An upload: its history is told. None: every upload is looked at, and those with findings are listed.
    #[arg(value_name = "UPLOAD_ID")]
    pub(crate) upload_id: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// The upload's name in the schema; may be left out where there is one.
    #[arg(long, env = "QUAYMASTER_RESOURCE", value_name = "NAME")]
    pub(crate) resource: Option<String>,
    /// Put right what can be put right, and abort multipart uploads that nobody will complete. Only by hand: no
    /// environment variable sets it.
    #[arg(long)]
    pub(crate) repair: bool,
}

fn upload_id(text: &str) -> Result<String, String> {
    match Upload::check_id("upload", text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(error.detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::flag;

    #[test]
    fn put_has_a_flag_for_each_field_of_create_that_the_file_does_not_say() {
        let put = commands().into_iter().find(|command| command.get_name() == "put");
        let flags: Vec<_> =
            put.iter().flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_long).collect();
        let create: Vec<_> = create().into_iter().flat_map(Command::fields).collect();
        assert!(create.len() > 8, "{create:?}");
        for field in create {
            let said_by_the_file = ["size", "idempotency_key", "request_id"].contains(&field.name);
            assert_ne!(flags.contains(&flag(field.name).as_str()), said_by_the_file, "{}", field.name);
        }
    }
}
