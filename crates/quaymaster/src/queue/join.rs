//! Pushes of one process that come while others are under way go together, in one script.
//!
//! The first few pushes are sent as they come. What comes while those are on their way waits for the first of them to
//! return and is sent as one push of many items: one script, one round trip, whatever the number of callers. Each
//! caller is answered for its own item. Only plain pushes are joined, and only into queues that reject when full, where
//! a push is taken whole or not at all; when the items of many callers do not fit together, each is sent alone.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use quaymaster_schema::Overflow;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::keys::Place;
use super::ops::{self, Marks};
use super::{Push, Pushed, tell};
use crate::{Code, Error, Result};

/// Pushes on their way at once before further ones wait to be joined: enough that a few callers never wait for each
/// other on a slow link.
const ALONE: usize = 4;

/// The most items of one joined push, and their bytes; an item with more bytes than a tenth of that is not joined.
const ITEMS: usize = 1000;
const BYTES: usize = 1 << 20;

/// What is under way of one queue.
#[derive(Debug)]
pub(super) struct Join {
    state: Mutex<State>,
    /// Where the queue was made, and joined pushes are sent from. Whoever gives up its turn may be about to block its
    /// thread, as handlers of workers do, and must not take what others push along.
    home: Option<Handle>,
}

impl Join {
    /// At home where it is made.
    pub(super) fn here() -> Self {
        Self { state: Mutex::default(), home: Handle::try_current().ok() }
    }
}

#[derive(Debug, Default)]
struct State {
    under_way: usize,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    item: Bytes,
    told: oneshot::Sender<Told>,
}

/// What a waiting caller hears.
#[derive(Debug)]
enum Told {
    Answer(Result<Pushed>),
    /// Nothing was sent for it: it sends its item by itself.
    Alone,
}

/// Whether this push may go together with others.
pub(super) fn may_join(place: &Place, push: &Push) -> bool {
    let plain =
        push.delay.is_none() && push.id.is_none() && push.dedupe.is_none() && push.request_id.is_none();
    let rejects = place.spec.overflow == Overflow::Reject || place.spec.max_size.is_none();
    let small = push.payloads.len() == 1 && push.payloads[0].len() <= BYTES / 10;
    plain && small && rejects && place.is_fifo()
}

/// Sends one item, alone or with others.
pub(super) async fn push(join: &Arc<Join>, place: &Arc<Place>, item: Bytes) -> Result<Pushed> {
    let waits = {
        let mut state = join.state.lock();
        if state.under_way < ALONE {
            state.under_way += 1;
            None
        } else {
            let (told, hears) = oneshot::channel();
            state.waiting.push_back(Waiting { item: item.clone(), told });
            Some(hears)
        }
    };
    let Some(hears) = waits else {
        // Also when the caller goes away in the middle.
        let _turn = Turn { join: join.clone(), place: place.clone() };
        return send(place, &[item]).await;
    };
    // A caller whose time is over, or who goes away, takes its item along unless that is on its way already.
    match tokio::time::timeout(place.bound.engine.deadline(), hears).await {
        Ok(Ok(Told::Answer(answer))) => answer,
        Ok(Ok(Told::Alone)) => send(place, &[item]).await,
        Ok(Err(_)) => {
            Err(Error::new(ops::PUSH, Code::StoreLost, "the push it went with ended without an answer"))
        }
        Err(_) => Err(Error::new(ops::PUSH, Code::StoreTimedOut, "pushes before it took too long")),
    }
}

async fn send(place: &Place, items: &[Bytes]) -> Result<Pushed> {
    let marks = Marks { id: None, first: None, request_id: None };
    let call = ops::push(place, items, 0.0, std::time::Duration::ZERO, marks)?;
    match tell::pushed(ops::PUSH, place.name(), place.bound.run(ops::PUSH, call).await?)? {
        Ok(pushed) => Ok(pushed),
        Err(_) => Err(Error::new(ops::PUSH, Code::StoreReply, "a push without a bucket was called stale")),
    }
}

/// The right to have a push under way; it goes over to what waits when it is given up.
struct Turn {
    join: Arc<Join>,
    place: Arc<Place>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let runtime = self.join.home.clone().or_else(|| Handle::try_current().ok());
        let mut state = self.join.state.lock();
        let (items, callers) = take(&mut state.waiting);
        match runtime {
            // Taken before it is spawned: a runtime that ends drops the task, and with it the turn, once for each.
            Some(runtime) if !items.is_empty() => {
                drop(state);
                let turn = Turn { join: self.join.clone(), place: self.place.clone() };
                runtime.spawn(fly(turn, Load { items, callers, sent: false }));
            }
            _ => {
                state.under_way -= 1;
                // Nobody is left to carry them.
                let left = state.waiting.drain(..).map(|waiting| waiting.told);
                for told in callers.into_iter().chain(left) {
                    let _ = told.send(Told::Alone);
                }
            }
        }
    }
}

/// What goes together.
struct Load {
    items: Vec<Bytes>,
    callers: Vec<oneshot::Sender<Told>>,
    sent: bool,
}

impl Drop for Load {
    /// Where a runtime has ended before anything was sent, each sends its own.
    fn drop(&mut self) {
        if !self.sent {
            for told in self.callers.drain(..) {
                let _ = told.send(Told::Alone);
            }
        }
    }
}

/// Sends these together; what came meanwhile goes with the turn.
async fn fly(turn: Turn, mut load: Load) {
    load.sent = true;
    let sent = send(&turn.place, &load.items).await;
    let callers = std::mem::take(&mut load.callers);
    let count = callers.len() as u64;
    match sent {
        Ok(pushed) => {
            for (place, told) in callers.into_iter().enumerate() {
                // As if each had been added by itself, one after the other.
                let behind = count - 1 - place as u64;
                let queue_length = pushed.queue_length.saturating_sub(behind);
                let _ = told.send(Told::Answer(Ok(Pushed { accepted: 1, queue_length, ..pushed })));
            }
        }
        // All of them are too many; some of them may fit.
        Err(error) if error.code == Code::QueueFull && count > 1 => {
            for told in callers {
                let _ = told.send(Told::Alone);
            }
        }
        Err(error) => {
            for told in callers {
                let _ = told.send(Told::Answer(Err(error.clone())));
            }
        }
    }
}

/// As much as goes into one push, the longest waiting first, without those whose callers have gone.
fn take(waiting: &mut VecDeque<Waiting>) -> (Vec<Bytes>, Vec<oneshot::Sender<Told>>) {
    let (mut items, mut callers, mut bytes) = (Vec::new(), Vec::new(), 0);
    while items.len() < ITEMS && bytes < BYTES {
        let Some(Waiting { item, told }) = waiting.pop_front() else { break };
        if !told.is_closed() {
            bytes += item.len();
            items.push(item);
            callers.push(told);
        }
    }
    (items, callers)
}
