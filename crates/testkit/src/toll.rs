//! A store that counts what it is asked, and loses replies or sends calls twice when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use futures_util::future::BoxFuture;
use quaymaster_store::{Code, Engine, Error, Invocation, Repeat, Reply, Result};

use crate::passing::passes_on;

/// Passes everything on and counts the scripts.
#[derive(Debug)]
pub struct Toll {
    inner: Arc<dyn Engine>,
    runs: AtomicU64,
    words: AtomicU64,
    lose: AtomicBool,
    lose_in: AtomicU64,
    twice: AtomicBool,
    away: AtomicBool,
}

impl Toll {
    /// In front of `inner`.
    pub fn new(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            runs: AtomicU64::new(0),
            words: AtomicU64::new(0),
            lose: AtomicBool::new(false),
            lose_in: AtomicU64::new(0),
            twice: AtomicBool::new(false),
            away: AtomicBool::new(false),
        })
    }

    /// Scripts run since the last time this was asked.
    pub fn runs(&self) -> u64 {
        self.runs.swap(0, SeqCst)
    }

    /// The most that one script was given or has answered since the last time this was asked, in words.
    pub fn most_words(&self) -> u64 {
        self.words.swap(0, SeqCst)
    }

    /// From now on every call that says it may be sent again is, and the second answer is told.
    pub fn send_twice(&self) {
        self.twice.store(true, SeqCst);
    }

    /// From now on scripts are refused before they run, or run again.
    pub fn away(&self, away: bool) {
        self.away.store(away, SeqCst);
    }

    /// The next script runs, and nobody hears what it said.
    pub fn lose_next_reply(&self) {
        self.lose.store(true, SeqCst);
    }

    /// The same for the script after the next `answered` ones.
    pub fn lose_after(&self, answered: u64) {
        self.lose_in.store(answered + 1, SeqCst);
    }
}

impl Engine for Toll {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        self.runs.fetch_add(1, SeqCst);
        let now = self.lose_in.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) == Ok(1);
        let lose = self.lose.swap(false, SeqCst) || now;
        let id = call.script.id;
        if self.away.load(SeqCst) {
            let refused = Error::new(id, Code::StoreRefused, "the store is away on purpose");
            return Box::pin(std::future::ready(Err(refused)));
        }
        self.words.fetch_max(call.args.len() as u64, SeqCst);
        let again = (self.twice.load(SeqCst) && call.repeat == Repeat::Safe).then(|| call.clone());
        Box::pin(async move {
            if let Some(again) = again {
                self.inner.run(again).await?;
            }
            let reply = self.inner.run(call).await;
            if let Ok(Reply::Array(parts)) = &reply {
                self.words.fetch_max(parts.len() as u64, SeqCst);
            }
            if lose { Err(Error::new(id, Code::StoreLost, "the reply was lost on purpose")) } else { reply }
        })
    }
    passes_on!(now_us key_facts rest);
}
