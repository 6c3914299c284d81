//! What becomes of a job once its handler has ended.

use std::time::Duration;

use super::counts::Counts;
use super::held::Lost;
use super::outcome::{Done, Failure, Fate};
use super::pump::Pump;
use crate::queue::{Ack, Nack, Nacked};
use crate::{Code, Error, Retry, Token};

/// Between attempts to hand a result to a queue that is full.
const FULL: Duration = Duration::from_millis(250);

impl Pump {
    /// The handler said yes.
    pub(super) async fn done(&self, key: u64, lost: &Lost, done: Done) {
        if done.then.is_empty() {
            return self.finished(key);
        }
        let Some(lease) = self.held.lease(key) else { return };
        // The same id every time: a repetition after a lost reply gets the first one's answer.
        let ack = Ack {
            leases: vec![lease],
            then: done.then,
            claim: None,
            request_id: Some(Token::random().as_str().to_owned()),
        };
        let mut failures = 0;
        loop {
            let error = match self.queue.ack(ack.clone()).await {
                Ok(told) => {
                    Counts::add(&self.counts.acked, told.acked as usize);
                    Counts::add(&self.counts.lost, told.lost as usize);
                    return self.settled(key);
                }
                Err(error) => error,
            };
            failures += 1;
            let wait = match error.code {
                // Whoever reads that queue is behind. Waiting here is what slows this one down, too.
                Code::QueueFull => FULL,
                code if code.retry() != Retry::Useless => self.pause(failures),
                _ => return self.failed(key, lost, refused(&error)).await,
            };
            self.away("acked with their result", &error, failures);
            if !self.wait(wait, lost).await {
                return self.gone(key);
            }
        }
    }

    /// The handler said no, or panicked.
    pub(super) async fn failed(&self, key: u64, lost: &Lost, failure: Failure) {
        let delay = match failure.fate {
            Fate::GivenBack => return self.give_back(&[key], Duration::MAX).await,
            Fate::RetryAfter(delay) => Some(delay),
            Fate::Retry | Fate::Dead => None,
        };
        let Some(lease) = self.held.lease(key) else { return };
        let dead = failure.fate == Fate::Dead;
        let request_id = Some(Token::random().as_str().to_owned());
        let nack = Nack { lease, error: failure.error, delay, dead, request_id };
        let mut failures = 0;
        loop {
            let error = match self.queue.nack(nack.clone()).await {
                Ok(told) => {
                    let count = match told {
                        Nacked::Retry { .. } => &self.counts.retried,
                        Nacked::Dead { .. } => &self.counts.dead,
                        Nacked::Lost => &self.counts.lost,
                    };
                    Counts::add(count, 1);
                    return self.settled(key);
                }
                Err(error) => error,
            };
            failures += 1;
            self.away("nacked", &error, failures);
            if error.code.retry() == Retry::Useless || !self.wait(self.pause(failures), lost).await {
                return self.gone(key);
            }
        }
    }

    /// Handlers that did not end in time were cut off: their jobs come again at once, as a failed attempt.
    pub(super) async fn cut_off(&self) -> u64 {
        let keys = self.held.keys();
        let settled = keys.iter().map(|key| async {
            let Some(lease) = self.held.lease(*key) else { return };
            let error = "the worker stopped before the handler ended";
            let nack = Nack { delay: Some(Duration::ZERO), ..Nack::of(lease, error) };
            if let Err(error) = self.queue.nack(nack).await {
                self.away("given back", &error, 1);
            }
            self.settled(*key);
        });
        futures_util::future::join_all(settled).await;
        keys.len() as u64
    }

    /// Waits unless the lease is lost before; whether trying again makes sense.
    async fn wait(&self, pause: Duration, lost: &Lost) -> bool {
        tokio::select! {
            () = lost.lost() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }

    fn settled(&self, key: u64) {
        self.held.remove(&[key]);
        self.freed(1);
    }

    /// The store was not told, and cannot be any more: the job comes again when its lease has ended.
    fn gone(&self, key: u64) {
        Counts::add(&self.counts.lost, 1);
        self.settled(key);
    }
}

/// The store took the result for wrong.
fn refused(error: &Error) -> Failure {
    Failure::new(format!("the result was refused: {} [{}]", error.detail, error.code))
}
