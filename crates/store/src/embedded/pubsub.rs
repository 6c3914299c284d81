//! Channels in process. Each subscriber has a bounded mailbox: a slow one misses messages and is told how
//! many, in their place; a publisher never waits.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::Stream;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::Message;

/// A mailbox holds this many messages …
const MAX_MESSAGES: usize = 1024;
/// … and this many bytes, whichever is reached first (one message of any length always fits).
const MAX_BYTES: usize = 8 << 20;

/// All channels that somebody listens to.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    channels: Mutex<HashMap<Bytes, Vec<Arc<Mailbox>>>>,
}

#[derive(Debug, Default)]
struct Mailbox {
    state: Mutex<Letters>,
}

#[derive(Debug, Default)]
struct Letters {
    waiting: VecDeque<Message>,
    bytes: usize,
    /// Lost since the last message that fitted.
    missed: u64,
    reader: Option<Waker>,
}

impl Hub {
    /// How many listen to `channel` now.
    pub(crate) fn subscribers(&self, channel: &[u8]) -> usize {
        self.channels.lock().get(channel).map_or(0, Vec::len)
    }

    /// Hands `message` to everybody who listens now.
    pub(crate) fn publish(&self, channel: &[u8], message: &Bytes) {
        for mailbox in self.channels.lock().get(channel).into_iter().flatten() {
            mailbox.deliver(message);
        }
    }

    pub(crate) fn subscribe(self: &Arc<Self>, channel: &[u8]) -> Subscription {
        let (channel, mailbox) = (Bytes::copy_from_slice(channel), Arc::<Mailbox>::default());
        self.channels.lock().entry(channel.clone()).or_default().push(Arc::clone(&mailbox));
        Subscription { hub: Arc::clone(self), channel, mailbox }
    }
}

impl Mailbox {
    fn deliver(&self, message: &Bytes) {
        let reader = {
            let mut letters = self.state.lock();
            let full = letters.waiting.len() >= MAX_MESSAGES
                || (!letters.waiting.is_empty() && letters.bytes + message.len() > MAX_BYTES);
            if full {
                letters.missed += 1;
            } else {
                let missed = std::mem::take(&mut letters.missed);
                if missed > 0 {
                    letters.waiting.push_back(Message::Missed(missed));
                }
                letters.bytes += message.len();
                letters.waiting.push_back(Message::Data(message.clone()));
            }
            letters.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// One subscriber's messages; dropping it ends the subscription. Never ends by itself.
#[derive(Debug)]
pub(crate) struct Subscription {
    hub: Arc<Hub>,
    channel: Bytes,
    mailbox: Arc<Mailbox>,
}

impl Stream for Subscription {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut letters = self.mailbox.state.lock();
        if let Some(message) = letters.waiting.pop_front() {
            if let Message::Data(data) = &message {
                letters.bytes -= data.len();
            }
            return Poll::Ready(Some(message));
        }
        let missed = std::mem::take(&mut letters.missed);
        if missed > 0 {
            return Poll::Ready(Some(Message::Missed(missed)));
        }
        letters.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = self.hub.channels.lock();
        if let Some(mailboxes) = channels.get_mut(&self.channel) {
            mailboxes.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
            if mailboxes.is_empty() {
                channels.remove(&self.channel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt as _, StreamExt as _};

    fn data(number: usize) -> Message {
        Message::Data(Bytes::from(number.to_string()))
    }

    #[test]
    fn a_slow_reader_learns_how_many_it_missed_and_where() {
        let hub = Arc::<Hub>::default();
        let mut slow = hub.subscribe(b"c");
        for number in 0..MAX_MESSAGES + 5 {
            hub.publish(b"c", &Bytes::from(number.to_string()));
        }
        let mut next = || slow.next().now_or_never().flatten();
        assert_eq!(next(), Some(data(0)));
        hub.publish(b"c", &Bytes::from_static(b"7"));
        for number in 1..MAX_MESSAGES {
            assert_eq!(next(), Some(data(number)));
        }
        assert_eq!(next(), Some(Message::Missed(5)));
        assert_eq!(next(), Some(data(7)));
        assert_eq!(next(), None);
    }

    #[test]
    fn large_messages_are_bounded_by_bytes_and_one_always_fits() {
        let hub = Arc::<Hub>::default();
        let mut reader = hub.subscribe(b"c");
        let large = Bytes::from(vec![0; MAX_BYTES + 1]);
        for _ in 0..3 {
            hub.publish(b"c", &large);
        }
        assert_eq!(reader.next().now_or_never().flatten(), Some(Message::Data(large)));
        assert_eq!(reader.next().now_or_never().flatten(), Some(Message::Missed(2)));
        assert_eq!(reader.next().now_or_never(), None);
    }

    #[test]
    fn a_dropped_subscription_is_not_counted() {
        let hub = Arc::<Hub>::default();
        let (one, two) = (hub.subscribe(b"c"), hub.subscribe(b"c"));
        assert_eq!((hub.subscribers(b"c"), hub.subscribers(b"d")), (2, 0));
        drop(one);
        assert_eq!(hub.subscribers(b"c"), 1);
        drop(two);
        assert_eq!(hub.subscribers(b"c"), 0);
        assert!(hub.channels.lock().is_empty());
    }
}
