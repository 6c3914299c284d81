//! What `upload put`, `content`, `progress` and `doctor` are given.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap::builder::BoolishValueParser;
use quaymaster::upload::Upload;
use serde_json::value::RawValue;

use crate::args::Place;
use crate::remote::Remote;

/// Flags that belong to one file or one upload: a variable left behind must not change what becomes of the next one.
#[cfg(test)]
pub(crate) const OF_ONE_CALL: [&str; 11] = [
    "name",
    "path",
    "client-node-id",
    "custom-metadata",
    "mime-type",
    "drive",
    "connector-id",
    "parent-id",
    "again",
    "upload-id",
    "output",
];

pub(crate) fn commands() -> Vec<clap::Command> {
    vec![
        Put::augment_args(clap::Command::new("put"))
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
    /// The upload's name in the schema; may be left out where there is one.
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
    /// What the file is called in the upload; its own name unless given. Only for a single FILE.
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// The relative path.
    #[arg(long, value_name = "TEXT")]
    pub(crate) path: Option<String>,
    /// Your own stable id.
    #[arg(long, value_name = "TEXT")]
    pub(crate) client_node_id: Option<String>,
    /// An object of your own.
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub(crate) custom_metadata: Option<String>,
    /// The files' MIME type.
    #[arg(long, value_name = "TEXT")]
    pub(crate) mime_type: Option<String>,
    /// The drive.
    #[arg(long, value_name = "TEXT")]
    pub(crate) drive: Option<String>,
    /// The connector; the schema's unless given.
    #[arg(long, value_name = "TEXT")]
    pub(crate) connector_id: Option<String>,
    /// The folder's UUID.
    #[arg(long, value_name = "TEXT")]
    pub(crate) parent_id: Option<String>,
    /// Upload a file that was uploaded already, and has not changed, as another document.
    #[arg(long)]
    pub(crate) again: bool,
    /// Do not read the content back to compare its SHA-256; every chunk is compared all the same.
    #[arg(long, env = "QUAYMASTER_NO_VERIFY", value_parser = BoolishValueParser::new())]
    pub(crate) no_verify: bool,
}

impl Put {
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

/// A JSON object, as it was typed.
fn object(text: &str) -> Result<String, String> {
    let text = text.trim();
    match serde_json::from_str::<&RawValue>(text) {
        Ok(_) if text.starts_with('{') => Ok(text.to_owned()),
        Ok(_) => Err("must be a JSON object".to_owned()),
        Err(error) => Err(format!("is no JSON: {error}")),
    }
}
