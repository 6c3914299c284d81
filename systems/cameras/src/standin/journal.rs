//! What a stand-in did, a line of JSON each, for whoever wants to count.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

/// An open journal, or none.
#[derive(Debug)]
pub(crate) struct Journal(Option<File>);

impl Journal {
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(Some(file.with_context(|| format!("cannot open {}", path.display()))?)))
    }

    /// One write a line: several processes may share the file.
    pub(crate) fn write(&self, line: &Value) -> std::io::Result<()> {
        match &self.0 {
            Some(file) => (&*file).write_all(format!("{line}\n").as_bytes()),
            None => Ok(()),
        }
    }
}
