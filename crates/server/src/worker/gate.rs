//! Holds calls back while a service has said "not now", or cannot be reached.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quaymaster::store::backoff::Backoff;

/// Between calls while nobody can be reached: an outage of the service costs a few jobs an attempt, not all of them.
const UNREACHABLE: Backoff =
    Backoff { base: Duration::from_millis(100), max: Duration::from_secs(2), jitter: 0.25 };

/// When the next call may be made.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    closed_until: Option<Instant>,
    /// Calls in a row that reached nobody.
    unreached: u32,
}

impl Gate {
    /// Ends when calls may be made.
    pub(super) async fn open(&self) {
        loop {
            let until = self.0.lock().closed_until;
            match until.filter(|until| *until > Instant::now()) {
                None => return,
                Some(until) => tokio::time::sleep_until(until.into()).await,
            }
        }
    }

    /// The service asked for a pause.
    pub(super) fn close_for(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut state = self.0.lock();
        state.closed_until = Some(state.closed_until.map_or(until, |known| known.max(until)));
    }

    /// Nobody answered.
    pub(super) fn unreachable(&self) {
        let mut state = self.0.lock();
        state.unreached = state.unreached.saturating_add(1);
        let until = Instant::now() + UNREACHABLE.delay(state.unreached);
        state.closed_until = Some(state.closed_until.map_or(until, |known| known.max(until)));
    }

    /// Somebody answered, whatever it was.
    pub(super) fn reached(&self) {
        self.0.lock().unreached = 0;
    }
}
