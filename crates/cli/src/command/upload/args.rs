//! What `upload put` and `upload doctor` are given.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap::builder::BoolishValueParser;

use crate::args::Place;

pub(crate) fn commands() -> Vec<clap::Command> {
    vec![
        Put::augment_args(clap::Command::new("put"))
            .about("Upload files; the same command again goes on where it was interrupted")
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
    /// The server to send them to; without it they go straight to the store. A token is read from QUAYMASTER_TOKEN.
    #[arg(long, env = "QUAYMASTER_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,
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
    /// The files' MIME type.
    #[arg(long, env = "QUAYMASTER_MIME_TYPE", value_name = "TEXT")]
    pub(crate) mime_type: Option<String>,
    /// The drive.
    #[arg(long, env = "QUAYMASTER_DRIVE", value_name = "TEXT")]
    pub(crate) drive: Option<String>,
    /// The connector; the schema's unless given.
    #[arg(long, env = "QUAYMASTER_CONNECTOR_ID", value_name = "TEXT")]
    pub(crate) connector_id: Option<String>,
    /// The folder's UUID.
    #[arg(long, env = "QUAYMASTER_PARENT_ID", value_name = "TEXT")]
    pub(crate) parent_id: Option<String>,
    /// Upload a file that was uploaded already, and has not changed, as another document.
    #[arg(long, env = "QUAYMASTER_AGAIN", value_parser = BoolishValueParser::new())]
    pub(crate) again: bool,
    /// Do not read the content back to compare its SHA-256; every chunk is compared all the same.
    #[arg(long, env = "QUAYMASTER_NO_VERIFY", value_parser = BoolishValueParser::new())]
    pub(crate) no_verify: bool,
    /// Print JSON.
    #[arg(long, env = "QUAYMASTER_JSON", value_parser = BoolishValueParser::new())]
    pub(crate) json: bool,
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
    /// Put right what can be put right, and abort multipart uploads that nobody will complete.
    #[arg(long, env = "QUAYMASTER_REPAIR", value_parser = BoolishValueParser::new())]
    pub(crate) repair: bool,
    /// Print JSON.
    #[arg(long, env = "QUAYMASTER_JSON", value_parser = BoolishValueParser::new())]
    pub(crate) json: bool,
}
