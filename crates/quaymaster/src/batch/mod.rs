//! `batch`: items collected until a window ends, then queued as one job.
//!
//! The documented keys hold the open batch of each group: its id, its items as a JSON list that grows in place, when it
//! began and when the last item came. A batch closes a window after its first item, an idle time after its last, or
//! with its last item where the schema bounds them; whatever comes later begins the next one. Closing is a step of its
//! own that queues the documented item and removes the batch's keys: done once, by whichever node sweeps first. Until
//! then a batch that is due stands in an index, so that none is forgotten when a node dies.

pub(crate) mod answer;
mod closing;
mod keys;
pub(crate) mod ops;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use quaymaster_schema::{BatchSpec, QueueSpec, Resource, is_longer};

pub use answer::{Added, Closed, Open, Swept};

use crate::bound::{Bound, Key, key_field};
use crate::throttle::Throttle;
use crate::wrote::in_steps;
use crate::{Code, Error, Result, Retry};
use answer::Told;
use ops::Guess;

/// The page's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/batches.md")]
struct Page;

/// The longest item.
pub const MAX_ITEM_BYTES: usize = 256 << 10;

/// The longest list of a batch; an item that would make it longer begins the next batch.
pub const MAX_LIST_BYTES: usize = 512 << 10;

/// How many batches of one name may be open at once.
pub const MAX_OPEN: usize = 100_000;

/// The longest id of an item.
const ITEM_ID_MAX: usize = 512;

/// How many batches one `list` shows at most.
pub const LIST_MAX: u64 = 1000;

/// How often an add asks again because the open batch was another one.
const TRIES: usize = 16;

/// Groups whose open batch is remembered; a wrong or missing memory costs a round trip.
const REMEMBERED: usize = 10_000;

/// Questions on the way at once.
const AT_ONCE: usize = 16;

/// What is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Add<'a> {
    /// Any JSON; kept as it is written.
    pub item: &'a [u8],
    /// An id that is already in the batch is not added again.
    pub id: Option<&'a str>,
    /// The same id again within ten minutes gets the same answer and adds nothing.
    pub request_id: Option<&'a str>,
}

/// What happened so far in this process, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    added: AtomicU64,
    duplicates: AtomicU64,
    closed: AtomicU64,
    expired: AtomicU64,
    errors: AtomicU64,
    /// Items that its queue dropped and no log line has told of.
    dropped: Throttle,
}

impl Counts {
    /// Items added.
    pub fn added(&self) -> u64 {
        self.added.load(Relaxed)
    }
    /// Items whose id was in the batch already.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Relaxed)
    }
    /// Batches queued by this process.
    pub fn closed(&self) -> u64 {
        self.closed.load(Relaxed)
    }
    /// Batches whose keys expired before anybody queued them.
    pub fn expired(&self) -> u64 {
        self.expired.load(Relaxed)
    }
    /// Calls that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }
}

/// The queue that closed batches go to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    pub(crate) spec: QueueSpec,
}

/// A batch of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Batch {
    pub(crate) bound: Bound,
    spec: BatchSpec,
    to: Target,
    counts: Arc<Counts>,
    /// The batch last seen open, by group.
    current: Arc<Mutex<HashMap<String, String>>>,
}

impl Batch {
    pub(crate) fn new(bound: Bound, spec: BatchSpec, to: Target) -> Self {
        Self { bound, spec, to, counts: Arc::default(), current: Arc::default() }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &BatchSpec {
        &self.spec
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Puts an item into the open batch of `key`, or begins one with it. An item that fills the batch closes it at once.
    pub async fn add(&self, key: Key<'_>, add: Add<'_>) -> Result<Added> {
        let added = in_steps(self.put(key, add)).await;
        match &added {
            Ok(Added { duplicate: true, .. }) => &self.counts.duplicates,
            Ok(_) => &self.counts.added,
            Err(_) => &self.counts.errors,
        }
        .fetch_add(1, Relaxed);
        added
    }

    async fn put(&self, key: Key<'_>, add: Add<'_>) -> Result<Added> {
        const OP: &str = ops::ADD;
        Self::check(OP, &add)?;
        let by = self.by(OP, key)?;
        for _ in 0..TRIES {
            let guess = self.guess(by);
            let call = ops::add(self, key, &add, &guess)?;
            match answer::added(OP, self.bound.run(OP, call).await?)? {
                Told::Added { id, size, sealed, duplicate } => {
                    self.remember(by, (!sealed).then_some(&id));
                    let closed = sealed && self.close_now(&id).await;
                    return Ok(Added { batch_id: id, size, duplicate, closed });
                }
                Told::Elsewhere(id) => {
                    self.check_id(OP, by, &id)?;
                    self.remember(by, Some(&id));
                }
                Told::Foreign(id) => self.adopt(by, &id).await?,
            }
        }
        let detail = format!("another batch was open {TRIES} times in a row");
        Err(Error::new(OP, Code::StoreContended, detail))
    }

    /// Open batches, those that close first in front; `count` is at most [`LIST_MAX`].
    pub async fn list(&self, offset: u64, count: u64) -> Result<Vec<Open>> {
        let listed = self.page(offset, count).await;
        if listed.is_err() {
            self.counts.errors.fetch_add(1, Relaxed);
        }
        listed
    }

    async fn page(&self, offset: u64, count: u64) -> Result<Vec<Open>> {
        const OP: &str = ops::LIST;
        if count == 0 || count > LIST_MAX {
            let detail = format!("count: 1 to {LIST_MAX}, got {count}");
            return Err(Error::new(OP, Code::RequestInvalid, detail).field("count"));
        }
        crate::bound::check_offset(OP, offset)?;
        let found = answer::listed(OP, self.bound.run(OP, ops::list(&self.bound, offset, count)?).await?)?;
        let shown = stream::iter(found).map(|(id, closes_in)| async move {
            let shown = async {
                let told = self.bound.run(OP, ops::show(&self.bound, &id)?).await?;
                answer::shown(OP, told, &id, closes_in)
            };
            match shown.await {
                // One that another program has spoiled must not hide the others.
                Err(error) if error.code.retry() == Retry::Useless => {
                    tracing::warn!(batch = self.name(), id, %error, "an open batch cannot be shown");
                    self.counts.errors.fetch_add(1, Relaxed);
                    Ok(None)
                }
                other => other,
            }
        });
        // One that was closed in between is left out.
        shown.buffered(AT_ONCE).try_filter_map(|open| async { Ok(open) }).try_collect().await
    }

    /// Refuses what no batch could hold.
    pub(crate) fn check(op: &'static str, add: &Add<'_>) -> Result<()> {
        let item = add.item.trim_ascii();
        if item.len() > MAX_ITEM_BYTES {
            let detail = format!("item has {} bytes; the most is {MAX_ITEM_BYTES}", item.len());
            return Err(Error::new(op, Code::RequestTooLarge, detail).field("item"));
        }
        if let Err(why) = crate::json::check(item) {
            let detail = format!("item is not JSON: {why}");
            return Err(Error::new(op, Code::RequestInvalid, detail).field("item").because(why));
        }
        if add.id.is_some_and(|id| id.is_empty() || is_longer(id, ITEM_ID_MAX)) {
            return Err(Error::new(op, Code::RequestInvalid, format!("id: 1 to {ITEM_ID_MAX} characters"))
                .field("id"));
        }
        Ok(())
    }

    /// The value items are grouped by.
    pub(crate) fn by<'k>(&self, op: &'static str, key: Key<'k>) -> Result<&'k str> {
        match key.iter().find(|(name, _)| *name == self.spec.by) {
            Some((_, value)) => Ok(value),
            // The pattern says what is wrong with it.
            None => {
                let mut words = quaymaster_store::Words::default();
                self.bound.bind(op, key, 0, &mut words)?;
                let by = &self.spec.by;
                Err(Error::new(op, Code::KeyMissing, format!("`{by}` has no value")).field(key_field(by)))
            }
        }
    }

    /// The batch that was last seen open, and the id of the next one.
    pub(crate) fn guess(&self, by: &str) -> Guess {
        let fresh = fresh_id();
        let guess = self.current.lock().get(by).cloned().unwrap_or_else(|| fresh.clone());
        Guess { guess, fresh }
    }

    /// Notes which batch is open, if one is.
    pub(crate) fn remember(&self, by: &str, id: Option<&String>) {
        let mut current = self.current.lock();
        match id {
            Some(id) => {
                if current.len() >= REMEMBERED && !current.contains_key(by) {
                    current.clear();
                }
                current.insert(by.to_owned(), id.clone());
            }
            None => drop(current.remove(by)),
        }
    }
}

/// A moment of [`Open`] as answers write it: RFC 3339 in UTC, with microseconds.
pub fn moment(us: i64) -> String {
    crate::moment::document_text(us) + "Z"
}

/// An id of 96 random bits, `3f2a9c04d1b7-8e5566aa0c12`.
fn fresh_id() -> String {
    let mut bytes = [0; 12];
    crate::token::fill(&mut bytes);
    let mut id = String::with_capacity(25);
    for (at, byte) in bytes.iter().enumerate() {
        if at == 6 {
            id.push('-');
        }
        let digit = |four: u8| char::from(b"0123456789abcdef"[usize::from(four)]);
        id.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    id
}
