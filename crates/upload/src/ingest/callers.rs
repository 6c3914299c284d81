//! Who has how much of the room for bytes that are coming in, on this node: one caller with many chunks must not keep
//! everybody else out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// While others wait, a caller with several chunks has at most this share of the room.
const SHARE: u64 = 4;

/// Whoever was sent away for lack of room waits for so long: twice the longest time it is told to stay away.
const WAITS: Duration = Duration::from_secs(10);

/// So many that wait are remembered.
const MOST_WAITING: usize = 1024;

/// Callers with chunks on their way in.
#[derive(Debug)]
pub(crate) struct Callers {
    /// The whole room.
    room: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Arc<str>, u64>,
    waiting: HashMap<Arc<str>, Instant>,
}

/// What one chunk has of its caller's share; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    callers: Arc<Callers>,
    /// `None`: a caller that needs no bound.
    who: Option<Arc<str>>,
    held: u64,
}

impl Callers {
    pub(crate) fn new(room: u64) -> Self {
        Self { room, state: Mutex::default() }
    }

    pub(crate) fn share(self: &Arc<Self>, who: Option<&str>) -> Share {
        Share { callers: Arc::clone(self), who: who.map(Arc::from), held: 0 }
    }
}

impl Share {
    /// What is reserved for the chunk.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Whether the chunk may have `bytes` in all. One chunk alone always may: else nobody could send a large one.
    pub(crate) fn may_have(&self, bytes: u64) -> bool {
        let Some(who) = &self.who else { return true };
        let state = self.callers.state.lock();
        let rest = state.held.get(who).map_or(0, |held| held.saturating_sub(self.held));
        if rest == 0 || rest.saturating_add(bytes) <= self.callers.room / SHARE {
            return true;
        }
        !state.waiting.iter().any(|(other, since)| other != who && since.elapsed() < WAITS)
    }

    /// The chunk has `bytes` in all from now on.
    pub(crate) fn has(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.held, bytes);
        let Some(who) = &self.who else { return };
        let mut state = self.callers.state.lock();
        state.waiting.remove(who);
        let held = state.held.entry(Arc::clone(who)).or_default();
        *held = (*held + bytes).saturating_sub(before);
        if *held == 0 {
            state.held.remove(who);
        }
    }

    /// There was no room for it.
    pub(crate) fn waits(&self) {
        let Some(who) = &self.who else { return };
        let mut state = self.callers.state.lock();
        if state.waiting.len() >= MOST_WAITING {
            state.waiting.retain(|_, since| since.elapsed() < WAITS);
        }
        if state.waiting.len() < MOST_WAITING {
            state.waiting.insert(Arc::clone(who), Instant::now());
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.held == 0 {
            return;
        }
        let Some(who) = self.who.take() else { return };
        let mut state = self.callers.state.lock();
        if let Some(held) = state.held.get_mut(&who) {
            *held = held.saturating_sub(self.held);
            if *held == 0 {
                state.held.remove(&who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_quarter_while_others_wait_and_all_of_it_otherwise() {
        let callers = Arc::new(Callers::new(400));
        let mut first = callers.share(Some("a"));
        assert!(first.may_have(400));
        first.has(90);
        let second = callers.share(Some("a"));
        assert!(second.may_have(300), "nobody waits");
        second.waits();
        assert!(second.may_have(300), "nobody else waits");
        let mut other = callers.share(Some("b"));
        other.waits();
        assert!(second.may_have(10) && !second.may_have(11));
        assert!(first.may_have(400), "one chunk alone may be as large as it likes");
        assert!(callers.share(None).may_have(400), "nobody that has to be told from others");
        other.has(50);
        assert!(second.may_have(300), "it waits no longer");
    }

    #[test]
    fn what_was_held_is_given_back() {
        let callers = Arc::new(Callers::new(400));
        let mut shares: Vec<Share> = (0..3).map(|_| callers.share(Some("a"))).collect();
        for (share, bytes) in shares.iter_mut().zip([100, 50, 30]) {
            share.has(bytes);
            share.has(bytes + 1);
        }
        callers.share(Some("b")).waits();
        assert!(!shares[0].may_have(20));
        shares.truncate(1);
        assert!(shares[0].may_have(400));
        drop(shares);
        assert!(callers.state.lock().held.is_empty());
    }

    #[test]
    fn those_that_wait_are_bounded() {
        let callers = Arc::new(Callers::new(400));
        for number in 0..2 * MOST_WAITING {
            callers.share(Some(&number.to_string())).waits();
        }
        assert_eq!(callers.state.lock().waiting.len(), MOST_WAITING);
    }
}
