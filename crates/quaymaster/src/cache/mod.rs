//! `cache`: values that may be forgotten, and loading them once.
//!
//! | key | holds |
//! |---|---|
//! | the documented one | the value: a string as it was given, the text of a JSON value, or a hash of fields |
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

use quaymaster_schema::{CacheSpec, CacheType};
use quaymaster_store::{Invocation, Reply};

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
        match self.run(ops::PUT, call).await {
            Ok(told) => answer::stored(ops::PUT, self.spec.holds, told),
            Err(error) => {
                let outage = self.bound.shared.outages.excuse(&self.bound.resource, &error);
                outage.map(Stored::Away).ok_or(error)
            }
        }
    }

    /// The value, if it is there.
    pub async fn get(&self, key: Key<'_>) -> Result<Fetched> {
        let entry = self.entry(key);
        let fetched = match self.run(ops::GET, ops::get(ops::GET, entry)?).await {
            Ok(told) => match self.believed(ops::GET, entry, told)? {
                Some(value) => Fetched::Hit(value),
                None => Fetched::Miss { outage: None },
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
        let shows = self.bound.sealed_only();
        let call = if shows { ops::get(ops::EXISTS, entry)? } else { ops::exists(entry)? };
        let told = match self.run(ops::EXISTS, call).await {
            Ok(told) => told,
            Err(error) => {
                let outage = self.bound.shared.outages.excuse(&self.bound.resource, &error);
                return Ok(Presence::Absent { outage: Some(outage.ok_or(error)?) });
            }
        };
        let there = if shows {
            self.believed(ops::EXISTS, entry, told)?.is_some()
        } else {
            answer::exists(ops::EXISTS, told)?
        };
        Ok(if there { Presence::Present } else { Presence::Absent { outage: None } })
    }

    /// Forgets it, and what somebody is loading in its place.
    pub async fn delete(&self, key: Key<'_>, request_id: Option<&str>) -> Result<Deleted> {
        let told = self.run(ops::DELETE, ops::delete(self.entry(key), request_id)?).await?;
        answer::deleted(ops::DELETE, told)
    }

    fn entry<'a>(&'a self, key: Key<'a>) -> Entry<'a> {
        Entry { bound: &self.bound, holds: self.spec.holds, key, now_us: self.bound.engine.now_us() }
    }

    async fn run(&self, op: &'static str, call: Invocation) -> Result<Reply> {
        self.bound.run(op, call).await.inspect_err(|_| self.counts.error())
    }

    /// What `get` found and is believed.
    fn believed(&self, op: &'static str, entry: Entry<'_>, told: Reply) -> Result<Option<Value>> {
        match answer::got(op, self.spec.holds, told)? {
            Some(held) => self.read(op, entry, held),
            None => Ok(None),
        }
    }

    /// `None` for an entry that is not believed: whoever reads misses it, whoever writes replaces it.
    fn read(&self, op: &'static str, entry: Entry<'_>, held: answer::Held) -> Result<Option<Value>> {
        let value = entry.cover(op)?.read(op, held).inspect_err(|_| self.counts.error())?;
        Ok(match self.spec.holds {
            CacheType::Json => value.map(Value::into_json),
            CacheType::String | CacheType::Hash => value,
        })
    }

    /// How long an entry lives; `None` is for ever.
    fn ttl(&self, op: &'static str, asked: Option<Duration>) -> Result<Option<Duration>> {
        let declared = self.spec.ttl.duration();
        let Some(asked) = asked else { return Ok(declared) };
        let wrong = |code, what: String| Err(Error::new(op, code, what).field("ttl_ms"));
        if asked.as_millis() == 0 {
            return wrong(Code::RequestInvalid, "ttl_ms must be an integer of at least 1".into());
        }
        match declared {
            Some(declared) if asked > declared => {
                let what = format!("ttl_ms must be at most {}, as the schema declares", declared.as_millis());
                wrong(Code::ResourceMismatch, what)
            }
            _ => Ok(Some(asked)),
        }
    }
}
