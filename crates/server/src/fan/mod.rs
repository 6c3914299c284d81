//! From one subscription per channel to everybody who listens: server-sent events and WebSockets.
//!
//! The first reader of a channel subscribes to it, the last one leaves it. In between a task puts what the store
//! carries into the channel's [`ring`], from which every reader takes at its own pace.

mod encode;
mod ring;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use parking_lot::{Mutex, RwLock};
use quaymaster::Code;
use quaymaster::event::{Event, Message};
use tokio::sync::watch;

pub(crate) use encode::missed as missed_text;
pub(crate) use ring::Entry;

use crate::http::problem::Problem;
use ring::{Place, Ring};

/// Messages put into a ring at once, when so many have come.
const CHUNK: usize = 256;

/// All channels that somebody listens to.
#[derive(Debug)]
pub(crate) struct Fan {
    channels: Mutex<HashMap<Vec<u8>, Arc<Slot>>>,
    most: usize,
    pub(crate) counts: Counts,
}

/// What is counted about readers.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) readers: AtomicUsize,
    /// Messages that came from the store.
    pub(crate) messages: AtomicU64,
    /// Messages that readers were too slow for.
    pub(crate) missed: AtomicU64,
    /// Readers cut because they took nothing for too long.
    pub(crate) cut: AtomicU64,
    /// Readers refused because every place was taken.
    pub(crate) refused: AtomicU64,
}

/// The place of a channel, there or about to be.
#[derive(Debug, Default)]
struct Slot(tokio::sync::Mutex<Option<Arc<Channel>>>);

/// A channel that is subscribed to.
#[derive(Debug)]
pub(crate) struct Channel {
    ring: RwLock<Ring>,
    /// The ring's end; its receivers are the readers. Ends with the subscription.
    end: Mutex<Option<watch::Sender<u64>>>,
    /// Tells the numbers of this subscription from those of every other.
    pub(crate) origin: String,
}

/// One who listens. Its end gives its place back, and the channel up if it was the last.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) channel: Arc<Channel>,
    place: Place,
    end: watch::Receiver<u64>,
    fan: Arc<Fan>,
}

impl Fan {
    /// A fan for `most` readers at once.
    pub(crate) fn new(most: usize) -> Self {
        Self { channels: Mutex::default(), most, counts: Counts::default() }
    }

    /// Listens to an event's channel from now on.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        event: &Event,
        key: &[(&str, &str)],
    ) -> Result<Reader, Problem> {
        let name = event.channel(key)?;
        let seat = Seat::take(self)?;
        let slot = self.channels.lock().entry(name.clone()).or_default().clone();
        let mut held = slot.0.lock().await;
        if let Some(channel) = &*held
            && let Some(reader) = channel.reader(self)
        {
            seat.keep();
            return Ok(reader);
        }
        let messages = match event.subscribe(key).await {
            Ok(messages) => messages,
            Err(error) => {
                drop(held);
                self.tidy(&name, &slot);
                return Err(error.into());
            }
        };
        let (end, _) = watch::channel(0);
        let origin = format!("{:08x}", fastrand::u32(..));
        let channel = Arc::new(Channel { ring: RwLock::default(), end: Mutex::new(Some(end)), origin });
        let Some(reader) = channel.reader(self) else {
            return Err(Problem::new(Code::Internal, "a channel ended before it began"));
        };
        *held = Some(channel.clone());
        drop(held);
        tokio::spawn(carry(self.clone(), name, slot, channel, messages));
        seat.keep();
        Ok(reader)
    }

    /// A place for somebody who reads something else.
    pub(crate) fn seat(self: &Arc<Self>) -> Result<Seated, Problem> {
        Seat::take(self)?.keep();
        Ok(Seated(self.clone()))
    }

    /// Drops a slot that nobody is about to use.
    fn tidy(&self, name: &[u8], slot: &Arc<Slot>) {
        let mut channels = self.channels.lock();
        // One count is the map's, one is ours; whoever else holds it will subscribe again.
        if Arc::strong_count(slot) <= 2 {
            channels.remove(name);
        }
    }
}

/// The place of a reader that takes from no channel of ours.
#[derive(Debug)]
pub(crate) struct Seated(Arc<Fan>);

impl Drop for Seated {
    fn drop(&mut self) {
        self.0.counts.readers.fetch_sub(1, Relaxed);
    }
}

/// A reader's place while it is not a reader yet.
struct Seat<'a>(Option<&'a Fan>);

impl<'a> Seat<'a> {
    fn take(fan: &'a Fan) -> Result<Self, Problem> {
        let seat = Self(Some(fan));
        if fan.counts.readers.fetch_add(1, Relaxed) >= fan.most {
            fan.counts.refused.fetch_add(1, Relaxed);
            return Err(Problem::new(Code::ServerBusy, "every place for a subscriber is taken"));
        }
        Ok(seat)
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Some(fan) = self.0 {
            fan.counts.readers.fetch_sub(1, Relaxed);
        }
    }
}

impl Channel {
    /// A reader that begins now; its place among all readers is taken already. `None` when the channel has ended.
    fn reader(self: &Arc<Self>, fan: &Arc<Fan>) -> Option<Reader> {
        let end = self.end.lock().as_ref()?.subscribe();
        let place = self.ring.read().now();
        Some(Reader { channel: self.clone(), place, end, fan: fan.clone() })
    }

    fn put(&self, messages: Vec<Message>) {
        let end = {
            let mut ring = self.ring.write();
            for message in messages {
                ring.push(message);
            }
            ring.end()
        };
        if let Some(told) = &*self.end.lock() {
            told.send_replace(end);
        }
    }

    /// How many messages came since the one of this number.
    pub(crate) fn since(&self, number: u64) -> u64 {
        self.ring.read().since(number)
    }
}

impl Reader {
    /// Waits until there is something to take; false when nothing will come any more.
    pub(crate) async fn ready(&mut self) -> bool {
        loop {
            let end = *self.end.borrow_and_update();
            if !self.place.is_at(end) {
                return true;
            }
            if self.end.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Takes what is there, at most a bounded batch; answers how many were missed in front of it, if some were.
    pub(crate) fn take(&mut self, batch: &mut Vec<Arc<Entry>>) -> Option<u64> {
        let missed = self.channel.ring.read().take(&mut self.place, batch);
        if let Some(missed) = missed {
            self.fan.counts.missed.fetch_add(missed, Relaxed);
        }
        missed
    }

    /// Counts this reader as one that was cut.
    pub(crate) fn cut(&self) {
        self.fan.counts.cut.fetch_add(1, Relaxed);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.fan.counts.readers.fetch_sub(1, Relaxed);
    }
}

/// Carries messages into the ring until nobody listens, or the subscription ends with its store.
async fn carry(
    fan: Arc<Fan>,
    name: Vec<u8>,
    slot: Arc<Slot>,
    channel: Arc<Channel>,
    messages: BoxStream<'static, Message>,
) {
    let Some(end) = channel.end.lock().clone() else { return };
    let mut messages = messages.ready_chunks(CHUNK);
    loop {
        tokio::select! {
            chunk = messages.next() => match chunk {
                Some(chunk) => {
                    fan.counts.messages.fetch_add(chunk.len() as u64, Relaxed);
                    channel.put(chunk);
                }
                None => break,
            },
            () = end.closed() => {
                let mut held = slot.0.lock().await;
                // Whoever came while we waited for the slot is served by this subscription.
                if end.receiver_count() == 0 {
                    *held = None;
                    break;
                }
            }
        }
    }
    // Readers see the end, and those who come later subscribe anew.
    channel.end.lock().take();
    drop(end);
    fan.tidy(&name, &slot);
}

#[cfg(test)]
mod tests;
