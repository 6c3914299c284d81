//! What a handler says about its job.

use std::time::Duration;

use crate::queue::Then;

/// The job is done. `()` is one too.
#[derive(Debug, Clone, Default)]
pub struct Done {
    pub(super) then: Vec<Then>,
}

impl Done {
    /// Done, and this follows from it: in the ack's own step, all of it or nothing, and only if the lease is still
    /// ours.
    pub fn then(then: Vec<Then>) -> Self {
        Self { then }
    }
}

impl From<()> for Done {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// The job is not done. Any error is one (`?` makes it); it is a failed attempt under the queue's `retry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub(super) error: String,
    pub(super) fate: Fate,
}

/// What becomes of a job that is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Tried again after the queue's own backoff.
    Retry,
    /// Tried again after so long.
    RetryAfter(Duration),
    /// Not tried again.
    Dead,
    /// As if it had not been claimed.
    GivenBack,
}

impl Failure {
    /// A failed attempt; the text goes into the dead letter if it was the last one.
    pub fn new(error: impl Into<String>) -> Self {
        Self { error: error.into(), fate: Fate::Retry }
    }

    /// The same, with a delay of the handler's choice instead of the queue's backoff.
    pub fn after(self, delay: Duration) -> Self {
        Self { fate: Fate::RetryAfter(delay), ..self }
    }

    /// The same, and no other attempt can help: the job is dead-lettered at once.
    pub fn dead(self) -> Self {
        Self { fate: Fate::Dead, ..self }
    }

    /// Not begun: the job goes back as if it had not been claimed, and no attempt is counted.
    pub fn not_begun() -> Self {
        Self { error: String::new(), fate: Fate::GivenBack }
    }

    /// What went wrong.
    pub fn error(&self) -> &str {
        &self.error
    }
}

impl<E: std::error::Error> From<E> for Failure {
    /// The error and what caused it, in one line.
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let next = error.to_string();
            // Many errors repeat their cause's words.
            if !text.contains(&next) {
                text.push_str(": ");
                text.push_str(&next);
            }
            cause = error.source();
        }
        Self::new(text)
    }
}
