//! The folder of an embedded store that `serve` owns, looked into by a second process: the test.
#![expect(clippy::unwrap_used, reason = "a store that does not answer fails the test")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{Engine as _, Reply};
use tokio::runtime::Runtime;

use crate::conformance::command;

/// An attached store and what runs it.
#[derive(Debug)]
pub(super) struct Folder {
    runtime: Runtime,
    store: EmbeddedStore,
}

impl Folder {
    pub(super) fn of(path: PathBuf) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let store = runtime.block_on(EmbeddedStore::open(&path, EmbeddedOptions::default())).unwrap();
        Self { runtime, store }
    }

    /// One command whose key is the second word.
    pub(super) fn command(&self, words: &[&str]) -> redis::Value {
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let reply = self.runtime.block_on(command(&self.store, bytes[1], &bytes));
        value(reply.unwrap_or_else(|error| panic!("{words:?}: {error}")))
    }

    pub(super) fn keys(&self, pattern: &str) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        let mut cursor = None;
        loop {
            let page = self.runtime.block_on(self.store.scan(pattern.as_bytes(), 1000, cursor)).unwrap();
            keys.extend(page.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
            cursor = page.next;
            if cursor.is_none() {
                return keys;
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.store.close());
    }
}

fn value(reply: Reply) -> redis::Value {
    match reply {
        Reply::Nil => redis::Value::Nil,
        Reply::Int(number) => redis::Value::Int(number),
        Reply::Bytes(bytes) => redis::Value::BulkString(bytes.to_vec()),
        Reply::Array(items) => redis::Value::Array(items.into_iter().map(value).collect()),
    }
}
