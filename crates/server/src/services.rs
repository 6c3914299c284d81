//! What a call needs, whoever asks: a server, or a command line that runs once.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use quaymaster::{Code, Quaymaster};
use tokio_util::sync::CancellationToken;

use crate::depot::Depot;
use crate::http::problem::Problem;

/// What a call needs.
#[derive(Debug)]
pub struct Services {
    pub(crate) quaymaster: Quaymaster,
    /// Uploads with all their parts.
    pub(crate) depot: Depot,
    /// Calls that wait for something to happen, as `wait_ms` told them to.
    pub(crate) waiting: AtomicUsize,
    /// How many of them there may be.
    pub(crate) max_waiting: usize,
    /// Set once a stop was asked for: not ready any more, still answering.
    pub(crate) stopping: CancellationToken,
}

/// Gives the place of a request back however its future ends.
pub(crate) struct Taken<'a>(pub(crate) &'a AtomicUsize);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Services {
    /// Those of a schema on its store, with its uploads.
    pub fn new(quaymaster: Quaymaster, depot: Depot) -> Self {
        Self::bounded(quaymaster, depot, usize::MAX)
    }

    /// The same where only so many calls may wait at once.
    pub(crate) fn bounded(quaymaster: Quaymaster, depot: Depot, max_waiting: usize) -> Self {
        let (waiting, stopping) = (AtomicUsize::new(0), CancellationToken::new());
        Self { quaymaster, depot, waiting, max_waiting, stopping }
    }

    /// A place for a call that may wait for `wait`, or why it cannot; none is needed for one that does not wait.
    pub(crate) fn wait_place(&self, wait: Duration) -> Result<Option<Taken<'_>>, Problem> {
        if wait.is_zero() {
            return Ok(None);
        }
        let place = Taken(&self.waiting);
        if self.waiting.fetch_add(1, Relaxed) < self.max_waiting {
            return Ok(Some(place));
        }
        let detail = "every place for a call that waits is taken (max_waiting in [server]); ask again without wait_ms, or later";
        Err(Problem::new(Code::ServerBusy, detail))
    }
}
