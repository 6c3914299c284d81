//! A store in which somebody else is quick: what is found there has changed when it is acted on.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use quaymaster_store::{Engine, KeyFacts, Result};

use crate::conformance::command;
use crate::passing::passes_on;

/// Passes everything on; after a look at a key it runs what was put down for it.
#[derive(Debug)]
pub struct Meddler {
    inner: Arc<dyn Engine>,
    then: Mutex<HashMap<Vec<u8>, Vec<Vec<String>>>>,
}

impl Meddler {
    /// A store nobody meddles with yet.
    pub fn new(inner: Arc<dyn Engine>) -> Self {
        Self { inner, then: Mutex::default() }
    }

    /// After the next look at `key` this command runs; its second word is the key it is about.
    pub fn after_look(&self, key: &str, words: &[&str]) {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        self.then.lock().entry(key.as_bytes().to_vec()).or_default().push(words);
    }

    /// Commands that nothing has set off.
    pub fn left(&self) -> usize {
        self.then.lock().len()
    }
}

impl Engine for Meddler {
    fn key_facts<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyFacts>>> {
        Box::pin(async move {
            let facts = self.inner.key_facts(key).await?;
            let then = self.then.lock().remove(key).unwrap_or_default();
            for words in then {
                let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                command(&*self.inner, bytes[1], &bytes).await?;
            }
            Ok(facts)
        })
    }
    passes_on!(run now_us rest);
}
