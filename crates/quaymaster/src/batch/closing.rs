//! From an open batch to a job in its queue.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use quaymaster_store::Words;

use super::answer::{self, Closed, Closing, Held, Swept};
use super::{AT_ONCE, Batch, keys, ops};
use crate::bound::Key;
use crate::queue::pack::pack;
use crate::queue::tell_dropped;
use crate::wrote::in_steps;
use crate::{Code, Error, Result, Retry, json};

/// Batches looked at in one page of a sweep, and pages in one sweep.
const PAGE: usize = 100;
const PAGES: usize = 20;

/// How often a batch is read again because it changed before it was closed.
const TRIES: usize = 8;

/// How the closing of one batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By us.
    Closed,
    /// By somebody else, or it is not due any more.
    Settled,
    /// Its queue is full; it stays.
    Full,
    /// Its keys had expired.
    Expired,
}

impl Batch {
    /// Closes the open batch of `key` and queues it. While its queue is full it answers `queue.full`: the batch takes
    /// no more items then, and a sweep queues it.
    pub async fn close(&self, key: Key<'_>, request_id: Option<&str>) -> Result<Closed> {
        let closed = in_steps(self.seal(key, request_id)).await;
        if closed.is_err() {
            self.counts.errors.fetch_add(1, Relaxed);
        }
        closed
    }

    async fn seal(&self, key: Key<'_>, request_id: Option<&str>) -> Result<Closed> {
        const OP: &str = ops::CLOSE;
        let by = self.by(OP, key)?;
        let call = ops::seal(&self.bound, key, request_id)?;
        let Some(batch_id) = answer::sealed(OP, self.bound.run(OP, call).await?)? else {
            return Ok(Closed::None);
        };
        self.remember(by, None);
        match self.finish(OP, &batch_id).await? {
            End::Full => {
                let detail = format!(
                    "queue {:?} is full: batch {batch_id:?} takes no more items and is queued by a sweep",
                    self.spec.to
                );
                Err(Error::new(OP, Code::QueueFull, detail))
            }
            End::Closed | End::Settled | End::Expired => Ok(Closed::Closed { batch_id }),
        }
    }

    /// Queues every batch that is due: two thousand at most in one call, which is to be repeated then. Any number of
    /// processes may sweep; each batch is queued once.
    pub async fn sweep(&self) -> Result<Swept> {
        let swept = in_steps(self.sweep_pages()).await;
        if swept.is_err() {
            self.counts.errors.fetch_add(1, Relaxed);
        }
        swept
    }

    async fn sweep_pages(&self) -> Result<Swept> {
        const OP: &str = ops::SWEEP;
        let mut swept = Swept::default();
        let mut spoiled = 0;
        for _ in 0..PAGES {
            let (due, next) = self.due(spoiled).await?;
            swept.next = next;
            if due.is_empty() {
                return Ok(swept);
            }
            let finish = |id: String| async move { self.finish(OP, &id).await };
            let mut ends = stream::iter(due).map(finish).buffer_unordered(AT_ONCE);
            while let Some(end) = ends.next().await {
                match end {
                    Ok(End::Closed) => swept.closed += 1,
                    Ok(End::Full) => swept.waiting += 1,
                    Ok(End::Expired) => swept.expired += 1,
                    Ok(End::Settled) => {}
                    // One that another program has spoiled must not keep the others; the next sweep tries it again.
                    Err(error) if error.code.retry() == Retry::Useless => {
                        if spoiled == 0 {
                            tracing::warn!(batch = self.name(), %error, "a batch that is due cannot be queued");
                        }
                        self.counts.errors.fetch_add(1, Relaxed);
                        spoiled += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        swept.next = Some(Duration::ZERO);
        Ok(swept)
    }

    /// Those that are due, but for the first `skip`; and when the next one is.
    async fn due(&self, skip: usize) -> Result<(Vec<String>, Option<Duration>)> {
        const OP: &str = ops::SWEEP;
        answer::due(OP, self.bound.run(OP, ops::due(self, PAGE, skip)?).await?)
    }

    /// Queues a batch that has just taken its last item. Whatever keeps it from being queued, a sweep tries again.
    pub(crate) async fn close_now(&self, id: &str) -> bool {
        matches!(self.finish(ops::ADD, id).await, Ok(End::Closed | End::Settled))
    }

    /// Reads, renders, and closes what was read; again when it changed in between.
    async fn finish(&self, op: &'static str, id: &str) -> Result<End> {
        for _ in 0..TRIES {
            let Some(held) = answer::held(op, self.bound.run(op, ops::read(op, &self.bound, id)?).await?)?
            else {
                return self.forget(op, id).await;
            };
            let item = self.render(id, &held);
            let call = ops::close(op, self, &held.by, id, held.items.len(), &item)?;
            return match answer::closing(op, self.bound.run(op, call).await?)? {
                Closing::Closed { dropped } => {
                    self.counts.closed.fetch_add(1, Relaxed);
                    tell_dropped(&self.counts.dropped, &self.spec.to, dropped);
                    Ok(End::Closed)
                }
                Closing::Settled => Ok(End::Settled),
                Closing::Full => Ok(End::Full),
                Closing::Changed => continue,
            };
        }
        Ok(End::Settled)
    }

    /// The keys of a batch are gone: queued by somebody else, or expired.
    async fn forget(&self, op: &'static str, id: &str) -> Result<End> {
        let told = self.bound.run(op, ops::forget(op, &self.bound, id)?).await?;
        if !answer::forgotten(op, told)? {
            return Ok(End::Settled);
        }
        self.counts.expired.fetch_add(1, Relaxed);
        tracing::warn!(batch = self.name(), id, "a batch expired before anybody queued it");
        Ok(End::Expired)
    }

    /// The documented item. A list that another program has spoiled goes along as text: a job that fails is seen,
    /// and one that is never queued is not.
    fn render(&self, id: &str, held: &Held) -> Bytes {
        let list = held.items.trim_ascii();
        let sound = list.starts_with(b"[") && json::check(list).is_ok();
        let mut held = Cow::Borrowed(held);
        if !sound {
            let mut text = String::new();
            json::push_text(&mut text, &String::from_utf8_lossy(list));
            held.to_mut().items = text.into();
        }
        let item = answer::item(&self.spec.by, &self.spec.items_as, id, &held);
        pack(&Bytes::from(item), self.to.spec.compress_over)
    }

    /// Takes over an open batch that another program began, as it does where Quaymaster comes in its place.
    pub(crate) async fn adopt(&self, by: &str, id: &str) -> Result<()> {
        const OP: &str = ops::ADD;
        self.check_id(OP, by, id)?;
        let Some(held) = answer::held(OP, self.bound.run(OP, ops::read(OP, &self.bound, id)?).await?)? else {
            return Ok(());
        };
        let malformed = || {
            let mut key = Words::default();
            let named = [("batch_id", id)];
            let items = keys::of(OP, &self.bound, "items", &named);
            match items.and_then(|items| items.spell(OP, self.bound.engine.topology(), &mut key)) {
                Ok(()) => answer::malformed(OP, &first(&key)),
                Err(error) => error,
            }
        };
        let list = std::str::from_utf8(&held.items).map_err(|_| malformed())?.trim();
        let items: Vec<serde::de::IgnoredAny> = serde_json::from_str(list).map_err(|_| malformed())?;
        let list = if items.is_empty() { "[]" } else { list };
        let call = ops::adopt(self, by, id, held.items.len(), list, items.len())?;
        answer::adopted(OP, self.bound.run(OP, call).await?)
    }

    /// Refuses an open batch whose id no key can be spelled with, or that could not be read back from a record.
    pub(crate) fn check_id(&self, op: &'static str, by: &str, id: &str) -> Result<()> {
        let sound = keys::bind_own(op, &self.bound, id, &mut Words::default()).is_ok();
        if sound && !id.contains(char::is_whitespace) {
            return Ok(());
        }
        let mut current = Words::default();
        self.bound.bind(op, &[(&self.spec.by, by)], 0, &mut current)?;
        Err(answer::malformed(op, &first(&current)))
    }
}

fn first(keys: &Words) -> String {
    String::from_utf8_lossy(keys.word(0).unwrap_or_default()).into_owned()
}
