//! `cache`: values that may be forgotten, and loading them once.
//!
//! | key | holds |
//! |---|---|
//! | the documented one | the value: a string as it was given, or a hash of fields |
//! | `{…}:load` | `token deadline`: who loads it now |
//!
//! `put` and `delete` end a load in progress: what the loader has read may be older than what was put, so
//! its value is not kept. A cache whose values are `sensitive` holds them sealed once there is a key; where one is
//! required, an entry that is not sealed is a miss.
//!
//! While the store cannot be asked, `on_outage = "miss"` answers reads with a miss and puts with
//! [`Stored::Away`]. A `delete` fails under either policy: an entry that was to be gone and is served again
//! afterwards would be wrong, not forgotten.

mod answer;
mod counts;
mod keys;
mod load;
mod ops;
#[cfg(test)]
mod tests;
pub(crate) mod value;

use std::sync::Arc;
use std::time::Duration;

use quaymaster_schema::CacheSpec;
use quaymaster_store::{Invocation, Parts};

pub use answer::{Deleted, Fetched, Presence, Stored};
pub use counts::{Counts, Reads};
pub use load::{Load, LoadError, Loaded};
pub use value::{MAX_BYTES, MAX_FIELDS, Value};

use crate::bound::{Bound, Key};
use crate::{Code, Error, Result};
use load::Flights;
use ops::Entry;

/// The Rust of its page compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/caches.md")]
struct Page;

/// Whether an entry that is there is written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// It is.
    #[default]
    Always,
    /// It stays, and the answer is [`Stored::Present`].
    Absent,
}

/// How a value is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Put<'a> {
    /// How long it lives; at most what the schema declares, which is also the default.
    pub ttl: Option<Duration>,
    /// Whether an entry that is there is written over.
    pub when: When,
    /// The same id again within ten minutes gets the same answer and changes nothing.
    pub request_id: Option<&'a str>,
}

/// A cache of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cache {
    bound: Bound,
    spec: CacheSpec,
    counts: Arc<Counts>,
    flights: Arc<Flights>,
}

impl Cache {
    pub(crate) fn new(bound: Bound, spec: CacheSpec) -> Self {
        Self { bound, spec, counts: Arc::default(), flights: Arc::default() }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &CacheSpec {
        &self.spec
    }

    /// Answers given so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Keeps `value` in place of what was there, all fields of it.
    pub async fn put(&self, key: Key<'_>, value: &Value, put: Put<'_>) -> Result<Stored> {
        value::check(ops::PUT, self.spec.holds, value)?;
        let ttl = self.ttl(ops::PUT, put.ttl)?;
        let call = ops::put(self.entry(key), value, ttl, put.when, put.request_id)?;
        let mut told = match self.run(ops::PUT, call).await {
            Ok(told) => told,
            Err(error) => {
                let outage = self.bound.shared.outages.excuse(&self.bound.resource, &error);
                return outage.map(Stored::Away).ok_or(error);
            }
        };
        match &told.bytes()?[..] {
            b"stored" => Ok(Stored::Stored),
            b"present" => Ok(Stored::Present),
            other => Err(unexpected(ops::PUT, other)),
        }
    }

    /// The value, if it is there.
    pub async fn get(&self, key: Key<'_>) -> Result<Fetched> {
        let entry = self.entry(key);
        let fetched = match self.run(ops::GET, ops::get(entry)?).await {
            Ok(mut told) => match &told.bytes()?[..] {
                b"hit" => match self.read(ops::GET, entry, &mut told)? {
                    Some(value) => Fetched::Hit(value),
                    None => Fetched::Miss { outage: None },
                },
                b"miss" => Fetched::Miss { outage: None },
                other => return Err(unexpected(ops::GET, other)),
            },
            // Another program's: it can be put again.
            Err(error) if error.code == Code::KeyWrongType => Fetched::Miss { outage: None },
            Err(error) => {
                let outage = self.bound.shared.outages.excuse(&self.bound.resource, &error);
                Fetched::Miss { outage: Some(outage.ok_or(error)?) }
            }
        };
        match &fetched {
            Fetched::Hit(_) => self.counts.hit(),
            Fetched::Miss { .. } => self.counts.miss(),
        }
        Ok(fetched)
    }

    /// Whether it is there. Counts neither as hit nor as miss.
    pub async fn exists(&self, key: Key<'_>) -> Result<Presence> {
        let entry = self.entry(key);
        // Whether an entry is believed shows only in what it holds.
        let call = if self.bound.sealed_only() { ops::get(entry)? } else { ops::exists(entry)? };
        let mut told = match self.run(ops::EXISTS, call).await {
            Ok(told) => told,
            Err(error) => {
                let outage = self.bound.shared.outages.excuse(&self.bound.resource, &error);
                return Ok(Presence::Absent { outage: Some(outage.ok_or(error)?) });
            }
        };
        match &told.bytes()?[..] {
            b"present" => Ok(Presence::Present),
            b"hit" if self.read(ops::EXISTS, entry, &mut told)?.is_some() => Ok(Presence::Present),
            b"absent" | b"hit" | b"miss" => Ok(Presence::Absent { outage: None }),
            other => Err(unexpected(ops::EXISTS, other)),
        }
    }

    /// Forgets it, and what somebody is loading in its place.
    pub async fn delete(&self, key: Key<'_>, request_id: Option<&str>) -> Result<Deleted> {
        let mut told = self.run(ops::DELETE, ops::delete(self.entry(key), request_id)?).await?;
        match &told.bytes()?[..] {
            b"deleted" => Ok(Deleted::Deleted),
            b"absent" => Ok(Deleted::Absent),
            other => Err(unexpected(ops::DELETE, other)),
        }
    }

    fn entry<'a>(&'a self, key: Key<'a>) -> Entry<'a> {
        Entry { bound: &self.bound, holds: self.spec.holds, key, now_us: self.bound.engine.now_us() }
    }

    async fn run(&self, op: &'static str, call: Invocation) -> Result<Parts> {
        let reply = self.bound.run(op, call).await.inspect_err(|_| self.counts.error())?;
        reply.parts(op)
    }

    /// `None` for an entry that is not believed: whoever reads misses it, whoever writes replaces it.
    fn read(&self, op: &'static str, entry: Entry<'_>, told: &mut Parts) -> Result<Option<Value>> {
        let value = entry.cover(op)?.read(op, told.any());
        value.inspect_err(|_| self.counts.error())
    }

    /// How long an entry lives; `None` is for ever.
    fn ttl(&self, op: &'static str, asked: Option<Duration>) -> Result<Option<Duration>> {
        let declared = self.spec.ttl.duration();
        let Some(asked) = asked else { return Ok(declared) };
        let wrong = |what: String| Err(Error::new(op, Code::RequestInvalid, what));
        if asked.as_millis() == 0 {
            return wrong("ttl_ms must be an integer of at least 1".into());
        }
        match declared {
            Some(declared) if asked > declared => {
                wrong(format!("ttl_ms must be at most {}, as the schema declares", declared.as_millis()))
            }
            _ => Ok(Some(asked)),
        }
    }
}

fn unexpected(op: &'static str, word: &[u8]) -> Error {
    if word == b"conflict" {
        return Error::new(
            op,
            Code::RequestInvalid,
            "request_id was already used for another verb on this entry",
        );
    }
    Error::new(op, Code::StoreReply, format!("unknown status {:?}", String::from_utf8_lossy(word)))
}
