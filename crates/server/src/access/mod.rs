//! The access log: a line of JSON for each call, written behind the callers' backs.
//!
//! | file | what it knows |
//! |---|---|
//! | `note` | what becomes known of a request on its way: token, key, outcome |
//! | `line` | how that is written |
//! | `writer` | the file, and a thread that no caller waits for |

mod line;
mod note;
mod writer;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use axum::http::StatusCode;
use quaymaster::schema::{Kind, Schema};
use quaymaster::{Code, Error, Result};

use line::Line;
pub(crate) use note::Note;
pub(crate) use writer::Counts;
use writer::Writer;

use crate::http::auth::Guard;
use crate::http::trace::Trace;

/// `access_log` and `access_log_keys` in `[server]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessConfig {
    /// Where lines go.
    pub to: AccessTo,
    /// Whether they have keys, and not only their digests.
    pub keys: Keys,
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessTo {
    /// Appended to a file.
    File(PathBuf),
    /// To standard output.
    Stdout,
}

impl AccessTo {
    /// `-` is standard output, anything else a file.
    pub fn new(text: &str) -> Self {
        if text == "-" { Self::Stdout } else { Self::File(text.into()) }
    }
}

/// How the access log tells keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// By the first 16 digits of their SHA-256.
    Digest,
    /// As they are, those of `sensitive` resources excepted.
    Plain,
}

/// An access log that is open.
#[derive(Debug)]
pub struct AccessLog {
    writer: Writer,
    keys: Keys,
}

/// A request as its handler left it.
pub(crate) struct Answered<'a> {
    /// Kind and name of its resource; pages have none.
    pub(crate) resource: Option<(Kind, &'a str)>,
    /// Its verb, or the path of a page; `None` where it went nowhere.
    pub(crate) verb: Option<&'a str>,
    pub(crate) status: StatusCode,
    /// Why it was refused, where a problem says so.
    pub(crate) code: Option<Code>,
    pub(crate) took: Duration,
    /// What the caller calls it.
    pub(crate) trace: Trace<'a>,
}

/// Makes an open access log opened anew.
#[derive(Debug, Clone)]
pub struct Reopen(writer::Handle);

impl Reopen {
    /// Opens the file anew, by its name; standard output stays as it is.
    pub fn now(&self) {
        self.0.reopen();
    }
}

impl AccessLog {
    /// Opens it, and starts the thread that writes it.
    pub fn open(config: &AccessConfig) -> Result<Self> {
        let writer = Writer::start(&config.to).map_err(|error| {
            let name = match &config.to {
                AccessTo::File(path) => path.display().to_string(),
                AccessTo::Stdout => "standard output".to_owned(),
            };
            let detail = format!("server.access_log: cannot write to {name}: {error}");
            Error::new("serve", Code::ConfigInvalid, detail).because(error)
        })?;
        Ok(Self { writer, keys: config.keys })
    }

    /// What opens it anew, on a signal.
    pub fn reopener(&self) -> Reopen {
        Reopen(self.writer.handle())
    }

    /// Notes one request.
    pub(crate) fn write(&self, schema: &Schema, guard: &Guard, note: &Note, answered: &Answered<'_>) {
        let line = Line { now: SystemTime::now(), keys: self.keys, schema, guard, note, answered };
        self.writer.push(&line.text());
    }

    pub(crate) fn counts(&self) -> &Counts {
        self.writer.counts()
    }

    /// Writes what waits, for as long as a disk should need.
    pub(crate) async fn close(&self) {
        self.writer.close().await;
    }
}
