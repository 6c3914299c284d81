//! `event`: messages to whoever listens now, over the store's own pub/sub.
//!
//! A message is JSON, published as it was given: a foreign `SUBSCRIBE` sees the same bytes. Nothing is kept. Whoever
//! does not listen at the moment misses it, and whoever listens and falls behind is told how many it missed. What must
//! not be lost belongs in a queue.

pub(crate) mod keys;
mod ops;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::stream::BoxStream;
use quaymaster_schema::{EventSpec, Resource};

pub use quaymaster_store::Message;
pub use status::{MAX_REPORTED, Told};

use crate::bound::{Bound, Key};
use crate::scripts::event_publish;
use crate::{Code, Error, Result};

/// The page's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/events.md")]
struct Page;

/// The longest message that is published.
pub const MAX_BYTES: usize = 1 << 20;

/// What happened so far in this process, for metrics.
#[derive(Debug, Default)]
pub struct Counts {
    published: AtomicU64,
    subscribed: AtomicU64,
    statuses: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    /// Messages published.
    pub fn published(&self) -> u64 {
        self.published.load(Relaxed)
    }
    /// Subscriptions begun.
    pub fn subscribed(&self) -> u64 {
        self.subscribed.load(Relaxed)
    }
    /// Statuses published, which are messages too.
    pub fn statuses(&self) -> u64 {
        self.statuses.load(Relaxed)
    }
    /// Calls that failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }
}

/// An event of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Event {
    bound: Bound,
    spec: EventSpec,
    /// The queues whose depths its status tells.
    queues: Arc<Vec<Arc<Resource>>>,
    counts: Arc<Counts>,
}

impl Event {
    pub(crate) fn new(bound: Bound, spec: EventSpec, queues: Vec<Arc<Resource>>) -> Self {
        Self { bound, spec, queues: Arc::new(queues), counts: Arc::default() }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &EventSpec {
        &self.spec
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Publishes `data`, any JSON, as it is; answers how many got it, as the store counts them: on a cluster those of
    /// one node alone.
    pub async fn publish(&self, key: Key<'_>, data: &[u8]) -> Result<u64> {
        self.publish_as(key, data, None).await
    }

    /// The same; the same `request_id` again within ten minutes publishes nothing and gets the first answer.
    pub async fn publish_as(&self, key: Key<'_>, data: &[u8], request_id: Option<&str>) -> Result<u64> {
        let receivers = self.send(key, data, request_id).await;
        self.count(&receivers, &self.counts.published);
        receivers
    }

    async fn send(&self, key: Key<'_>, data: &[u8], request_id: Option<&str>) -> Result<u64> {
        const OP: &str = ops::PUBLISH;
        check_data(OP, data)?;
        let call = ops::publish(&self.bound, key, data, request_id)?;
        match event_publish::Reply::read(OP, self.bound.run(OP, call).await?)? {
            event_publish::Reply::Published { receivers } => Ok(u64::try_from(receivers).unwrap_or(0)),
            event_publish::Reply::Refused { why } => {
                Err(Error::new(OP, Code::StorePermission, String::from_utf8_lossy(&why).into_owned()))
            }
            event_publish::Reply::Conflict => {
                let detail = "request_id was already used for something else";
                Err(Error::new(OP, Code::RequestReused, detail).field("request_id"))
            }
        }
    }

    /// What is published from now on. The stream outlives the store's outages and says [`Message::Missed`] where
    /// something may be missing: with 0 where nobody knows how much.
    pub async fn subscribe(&self, key: Key<'_>) -> Result<BoxStream<'static, Message>> {
        let listening = async {
            let channel = keys::channel(ops::SUBSCRIBE, &self.bound, key)?;
            let messages = self.bound.engine.subscribe(&channel).await;
            messages.map_err(|error| error.during(ops::SUBSCRIBE))
        }
        .await;
        self.count(&listening, &self.counts.subscribed);
        listening
    }

    /// The channel's name, as foreign subscribers use it.
    pub fn channel(&self, key: Key<'_>) -> Result<Vec<u8>> {
        keys::channel(ops::SUBSCRIBE, &self.bound, key)
    }

    fn count<T>(&self, answer: &Result<T>, done: &AtomicU64) {
        if answer.is_ok() { done } else { &self.counts.errors }.fetch_add(1, Relaxed);
    }
}

/// Refuses what is too long or not JSON.
pub(crate) fn check_data(op: &'static str, data: &[u8]) -> Result<()> {
    if data.len() > MAX_BYTES {
        let detail = format!("data has {} bytes; the most is {MAX_BYTES}", data.len());
        return Err(Error::new(op, Code::RequestTooLarge, detail).field("data"));
    }
    crate::json::check(data).map_err(|why| {
        let detail = format!("data is not JSON: {why}");
        Error::new(op, Code::RequestInvalid, detail).field("data").because(why)
    })
}
