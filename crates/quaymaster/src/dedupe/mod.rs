//! `dedupe`: of any number of callers with the same key one is the first.
//!
//! The documented key holds what the first one left, `1` unless it left something else, and lives as long as
//! the schema declares. A key that another program made by `SET … NX` counts. A time bucket in the key is
//! judged by the store's clock: nobody is first in a bucket that is over.

mod ops;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use quaymaster_schema::DedupeSpec;

use crate::bound::{Bound, Key};
use crate::cache::value::Cover;
use crate::scripts::dedupe_first::Reply;
use crate::{Code, Error, Result};

/// The longest value.
pub const MAX_BYTES: usize = 64 << 10;

/// How often a key is rendered again because the store's time moved past its bucket.
const STALE_TRIES: usize = 4;

/// What the first one leaves, and how a repetition of the call is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct First<'a> {
    /// What later ones are told; `1` unless given.
    pub value: Option<&'a [u8]>,
    /// The same id again within ten minutes gets the same answer.
    pub request_id: Option<&'a str>,
}

/// The answer of `first`.
#[must_use = "a duplicate must not go ahead"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Nobody was here before.
    First,
    /// Somebody was.
    Duplicate {
        /// What they left.
        value: Bytes,
    },
}

impl Seen {
    /// Whether nobody was here before.
    pub fn is_first(&self) -> bool {
        matches!(self, Self::First)
    }
}

/// Answers given so far by this process, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    first: AtomicU64,
    duplicates: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    /// Those who were the first.
    pub fn first(&self) -> u64 {
        self.first.load(Relaxed)
    }
    /// Those who were not.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Relaxed)
    }
    /// Calls that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }
}

/// A dedupe of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dedupe {
    bound: Bound,
    spec: DedupeSpec,
    counts: Arc<Counts>,
}

impl Dedupe {
    pub(crate) fn new(bound: Bound, spec: DedupeSpec) -> Self {
        Self { bound, spec, counts: Arc::default() }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &DedupeSpec {
        &self.spec
    }

    /// Answers given so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether nobody was here before; leaves the value when it is so.
    pub async fn first(&self, key: Key<'_>, first: First<'_>) -> Result<Seen> {
        let seen = self.ask(key, first).await;
        match &seen {
            Ok(Seen::First) => &self.counts.first,
            Ok(Seen::Duplicate { .. }) => &self.counts.duplicates,
            Err(_) => &self.counts.errors,
        }
        .fetch_add(1, Relaxed);
        seen
    }

    async fn ask(&self, key: Key<'_>, first: First<'_>) -> Result<Seen> {
        const OP: &str = ops::FIRST;
        let value = Bytes::copy_from_slice(first.value.unwrap_or(b"1"));
        if value.len() > MAX_BYTES {
            let detail = format!("value has {} bytes; the most is {MAX_BYTES}", value.len());
            return Err(Error::new(OP, Code::RequestTooLarge, detail).field("value"));
        }
        let mut now_us = self.bound.engine.now_us();
        for _ in 0..STALE_TRIES {
            let cover = Cover::of(OP, &self.bound, key, now_us)?;
            let stored = cover.close(OP, b"", &value)?;
            let call = ops::first(&self.bound, key, &stored, self.spec.ttl, first.request_id, now_us)?;
            match Reply::read(OP, self.bound.run(OP, call).await?)? {
                Reply::First => return Ok(Seen::First),
                Reply::Duplicate { value } => {
                    // The documented `1` of another program says nothing that could be false.
                    if value != "1" && cover.refuses(&value) {
                        let detail = "what the first one left is not sealed, and require_seal_key is set";
                        return Err(Error::new(OP, Code::KeyMalformed, detail));
                    }
                    return Ok(Seen::Duplicate { value: cover.open(OP, b"", value)? });
                }
                Reply::Stale { now_ms } => now_us = now_ms * 1000,
                Reply::Conflict => {
                    let detail = "request_id was already used for another verb on this key";
                    return Err(Error::new(OP, Code::RequestReused, detail).field("request_id"));
                }
            }
        }
        Err(Error::new(OP, Code::StoreClock, format!("the bucket changed {STALE_TRIES} times in a row")))
    }
}
