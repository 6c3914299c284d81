//! Subscriptions: one connection carries all channels of a store and hands each message to every reader.
//!
//! Readers have a bounded
//! buffer each; what a slow one misses is counted for it and holds up nobody.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::redis::Inner;
use crate::redis::dial::{Dial, Live};
use crate::redis::fault::{Fault, Then};
use crate::redis::resp::words;
use crate::{Code, Error, Message, Result, Words, Workload};

const OP: &str = "event.subscribe";

/// All subscriptions of a store.
#[derive(Debug, Default)]
pub(super) struct Hub {
    channels: Mutex<HashMap<Vec<u8>, Channel>>,
    fault: Mutex<Option<Fault>>,
    /// Something to do: a channel came or lost its last reader, or the connection ended.
    wake: Notify,
    /// Counts rounds after which the states of channels may have changed.
    rounds: watch::Sender<u64>,
    task: Mutex<Option<AbortHandle>>,
}

#[derive(Debug)]
struct Channel {
    readers: broadcast::Sender<Message>,
    state: State,
}

#[derive(Debug)]
enum State {
    Wanted,
    Subscribed,
    /// The server said no, and why.
    Refused(Fault),
}

/// One reader; its end wakes the hub, which then leaves the channel if it was the last.
struct Reader {
    messages: broadcast::Receiver<Message>,
    hub: Weak<Hub>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.wake.notify_one();
        }
    }
}

impl Hub {
    /// A stream of what is published from the moment this returns.
    pub(super) async fn subscribe(inner: &Arc<Inner>, channel: &[u8]) -> Result<BoxStream<'static, Message>> {
        let hub = &inner.hub;
        let until = Instant::now() + inner.shared.options.deadline;
        let mut rounds = hub.rounds.subscribe();
        let messages = {
            let mut channels = hub.channels.lock();
            let entry = channels.entry(channel.to_vec()).or_insert_with(|| Channel {
                readers: broadcast::Sender::new(inner.shared.options.subscriber_buffer.max(1)),
                state: State::Wanted,
            });
            entry.readers.subscribe()
        };
        let reader = Reader { messages, hub: Arc::downgrade(hub) };
        hub.start(inner);
        hub.wake.notify_one();
        while !hub.is_subscribed(channel)? {
            if tokio::time::timeout_at(until.into(), rounds.changed()).await.is_err() {
                let last = hub.fault.lock().take().unwrap_or_else(|| Fault::timed_out("the store"));
                return Err(last.before_sending().into_error(OP));
            }
        }
        Ok(stream::unfold(reader, |mut reader| async {
            let message = match reader.messages.recv().await {
                Ok(message) => message,
                Err(RecvError::Lagged(missed)) => Message::Missed(missed),
                Err(RecvError::Closed) => return None,
            };
            Some((message, reader))
        })
        .boxed())
    }

    fn is_subscribed(&self, channel: &[u8]) -> Result<bool> {
        match self.channels.lock().get(channel).map(|channel| &channel.state) {
            Some(State::Subscribed) => Ok(true),
            Some(State::Wanted) => Ok(false),
            Some(State::Refused(fault)) => Err(fault.clone().into_error(OP)),
            None => Err(Error::new(OP, Code::StoreRefused, "the store was closed")),
        }
    }

    fn start(self: &Arc<Self>, inner: &Arc<Inner>) {
        let mut task = self.task.lock();
        if task.is_none() {
            *task = Some(tokio::spawn(carry(Arc::downgrade(inner), Arc::clone(self))).abort_handle());
        }
    }

    /// Ends every stream.
    pub(super) fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        self.channels.lock().clear();
    }

    fn hand_out(&self, channel: &Bytes, message: Bytes) {
        if let Some(channel) = self.channels.lock().get(channel.as_ref()) {
            // No reader any more is no error: the hub will leave the channel.
            let _ = channel.readers.send(Message::Data(message));
        }
    }

    /// Channels that are wanted but not subscribed, and those nobody reads any more.
    fn work(&self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut channels = self.channels.lock();
        let left: Vec<Vec<u8>> = channels
            .iter()
            .filter(|(_, channel)| channel.readers.receiver_count() == 0)
            .map(|(name, _)| name.clone())
            .collect();
        for name in &left {
            channels.remove(name);
        }
        let wanted = channels
            .iter()
            .filter(|(_, channel)| matches!(channel.state, State::Wanted))
            .map(|(name, _)| name.clone())
            .collect();
        (wanted, left)
    }

    fn settle(&self, name: &[u8], state: State) {
        if let Some(channel) = self.channels.lock().get_mut(name) {
            channel.state = state;
        }
    }

    fn round(&self, fault: Option<Fault>) {
        *self.fault.lock() = fault;
        self.rounds.send_modify(|count| *count += 1);
    }
}

/// Keeps the connection and its subscriptions until the store is gone.
async fn carry(inner: Weak<Inner>, hub: Arc<Hub>) {
    let mut attempt = 0;
    let mut known: Vec<Vec<u8>> = Vec::new();
    loop {
        if hub.channels.lock().is_empty() {
            hub.wake.notified().await;
            continue;
        }
        let Some(store) = inner.upgrade() else { return };
        store.shared.counters.connect_attempt();
        let fault = match connect(&store, &hub).await {
            Ok(live) => {
                drop(store);
                let fault = serve(&inner, &hub, &live, &mut known, &mut attempt).await;
                // From here to the next subscription messages pass unseen, and readers will be told.
                let mut channels = hub.channels.lock();
                for (name, channel) in channels.iter_mut() {
                    if matches!(channel.state, State::Subscribed) {
                        channel.state = State::Wanted;
                        known.push(name.clone());
                    }
                }
                fault
            }
            Err(fault) => {
                store.shared.counters.connect_failure();
                fault
            }
        };
        attempt += 1;
        let Some(store) = inner.upgrade() else { return };
        // No longer than the commands' connections wait: what is published while they are back and this one is not
        // passes unheard.
        let options = &store.shared.options;
        let pause = options.backoff.delay(attempt).min(options.breaker.cool_down);
        drop(store);
        tracing::debug!(code = %fault.code, detail = %fault.detail, "subscriptions lost their connection");
        hub.round(Some(fault));
        tokio::time::sleep(pause).await;
    }
}

async fn connect(store: &Inner, hub: &Arc<Hub>) -> Result<Live, Fault> {
    let place = store.route.node(None)?.place().await?;
    let (messages, ended) = (Arc::downgrade(hub), Arc::downgrade(hub));
    let pushes = move |channel: &Bytes, message: Bytes| {
        if let Some(hub) = messages.upgrade() {
            hub.hand_out(channel, message);
        }
    };
    let dial = Dial {
        place: &place,
        name: &store.shared.client_name(Workload::PubSub),
        timeout: store.shared.options.pools.pubsub.connect_timeout,
        pushes: Some(Box::new(pushes)),
    };
    let ended = move || {
        if let Some(hub) = ended.upgrade() {
            hub.wake.notify_one();
        }
    };
    store.shared.dialer.dial(dial, ended).await
}

/// Subscribes and leaves as asked until the connection ends; says why it ended.
async fn serve(
    inner: &Weak<Inner>,
    hub: &Arc<Hub>,
    live: &Live,
    known: &mut Vec<Vec<u8>>,
    attempt: &mut u32,
) -> Fault {
    loop {
        let Some(store) = inner.upgrade() else { return Fault::timed_out("a store that is gone") };
        let options = store.shared.options.clone();
        drop(store);
        let (wanted, left) = hub.work();
        let until = Instant::now() + options.pools.pubsub.response_timeout;
        // One channel a command, so that each has one confirmation.
        let orders = wanted.iter().map(|name| (b"SUBSCRIBE".as_slice(), name));
        let orders = orders.chain(left.iter().map(|name| (b"UNSUBSCRIBE".as_slice(), name)));
        let orders: Vec<Words> =
            orders.map(|(verb, name)| words([verb, name])).chain([words(["PING"])]).collect();
        let mut answers = join_all(orders.iter().map(|order| live.send(order, until))).await.into_iter();
        for name in &wanted {
            match answers.next() {
                Some(Ok(_)) => hub.settle(name, State::Subscribed),
                Some(Err(fault)) if fault.then == Then::Redial => return fault,
                Some(Err(fault)) => hub.settle(name, State::Refused(fault)),
                None => {}
            }
        }
        if let Some(Err(fault)) =
            answers.find(|answer| answer.as_ref().is_err_and(|fault| fault.then == Then::Redial))
        {
            return fault;
        }
        *attempt = 0;
        for name in known.drain(..) {
            if let Some(channel) = hub.channels.lock().get(&name) {
                let _ = channel.readers.send(Message::Missed(0));
            }
        }
        hub.round(None);
        let _ = tokio::time::timeout(options.refresh, hub.wake.notified()).await;
        if live.wire.is_closed() {
            return Fault::timed_out(&live.place.to_string());
        }
    }
}
