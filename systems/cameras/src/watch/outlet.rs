//! From an image to a job: de-duplicated and queued in one step.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use quaymaster::queue::{Push, PushDedupe, Queue};
use quaymaster::store::backoff::Backoff;
use quaymaster::{Code, Error, Retry};

use super::stamp::Mark;
use crate::item::{Image, hex};

/// The resource that knows images by their content.
const DEDUPE: &str = "image";

/// Waits for room in a full queue.
const FULL: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(2), jitter: 0.25 };

/// The waits between the pushes of one image: longer and longer, and from the first on for another reason.
#[derive(Debug)]
struct Waits {
    backoff: Backoff,
    tries: u32,
}

impl Waits {
    fn after(&mut self, code: Code) -> Duration {
        // A store that is away is left alone for the documented waits.
        let backoff = if code == Code::QueueFull { FULL } else { Backoff::default() };
        self.tries = if self.backoff == backoff { self.tries.saturating_add(1) } else { 1 };
        self.backoff = backoff;
        backoff.delay(self.tries)
    }
}

/// What became of an image.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    /// It is a job now.
    Queued,
    /// The same content was queued lately, or this very file before.
    Duplicate,
}

/// The way into the detection queue.
#[derive(Debug)]
pub(crate) struct Outlet {
    queue: Queue,
    /// Ends the pushes' ids, since the ledger was told to forget.
    again: Option<u64>,
    /// Whether images wait; said once when it begins and once when it ends.
    held_up: AtomicBool,
}

impl Outlet {
    pub(crate) fn new(queue: Queue, again: Option<u64>) -> Self {
        Self { queue, again, held_up: AtomicBool::new(false) }
    }

    /// The push's own id.
    fn id(&self, mark: Mark) -> String {
        self.again.map_or_else(|| mark.to_string(), |again| format!("{mark}-{again}"))
    }

    /// Queues the image, waiting for as long as the queue is full or the store is away. May be dropped at any
    /// point and repeated: the mark makes it one job.
    pub(crate) async fn hand_over(
        &self,
        image: &Image,
        sha256: &[u8; 32],
        mark: Mark,
    ) -> Result<Handed, Error> {
        let payload = serde_json::to_vec(image).map_err(|error| {
            Error::new("watch", Code::RequestInvalid, "the image cannot be written as JSON").because(error)
        })?;
        let push = Push {
            id: Some(self.id(mark)),
            dedupe: Some(PushDedupe {
                name: DEDUPE.to_owned(),
                key: vec![("sha256_hash".to_owned(), hex(sha256))],
                value: Some(image.file_path.clone().into()),
            }),
            ..Push::one(payload)
        };
        let mut waits = Waits { backoff: FULL, tries: 0 };
        loop {
            let error = match self.queue.push(push.clone()).await {
                Ok(pushed) => {
                    if self.held_up.swap(false, Relaxed) {
                        tracing::info!("images are queued again");
                    }
                    return Ok(if pushed.duplicate { Handed::Duplicate } else { Handed::Queued });
                }
                Err(error) => error,
            };
            if error.code.retry() == Retry::Useless {
                return Err(error);
            }
            if !self.held_up.swap(true, Relaxed) {
                tracing::warn!(code = %error.code, detail = error.detail, "images wait in their folder");
            }
            tokio::time::sleep(waits.after(error.code)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_goes_away_while_the_queue_is_full_is_asked_after_the_documented_waits() {
        let mut waits = Waits { backoff: FULL, tries: 0 };
        let least_ms = [100, 200, 400, 800, 1600, 2000, 2000];
        for least in least_ms.map(Duration::from_millis) {
            let wait = waits.after(Code::QueueFull);
            assert!((least..=least.mul_f64(1.25)).contains(&wait), "{wait:?}");
        }
        for least in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            let wait = waits.after(Code::StoreRefused);
            assert!((least..=least.mul_f64(1.25)).contains(&wait), "{wait:?}");
        }
        assert!(waits.after(Code::QueueFull) < Duration::from_millis(200), "it is looked for soon again");
    }
}
