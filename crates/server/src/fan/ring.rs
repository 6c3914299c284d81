//! The last messages of a channel, kept once for all who listen to it. A reader is a place in it: who falls so far
//! behind that its place is gone is told how many it missed, and holds up nobody. No I/O.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use quaymaster::event::Message;
use tokio_tungstenite::tungstenite;

use super::encode;

/// A channel keeps so many messages …
pub(crate) const MOST_MESSAGES: usize = 1024;
/// … and so many bytes of them, whichever is reached first; one of any length always fits.
pub(crate) const MOST_BYTES: usize = 8 << 20;

/// A reader takes so many messages and bytes at a time; one of any length always.
const TAKE_MESSAGES: usize = 64;
const TAKE_BYTES: usize = 256 << 10;

/// One message, encoded once for everybody.
#[derive(Debug)]
pub(crate) struct Entry {
    message: Message,
    /// Messages published before this one, as far as they are known.
    before: u64,
    sse: OnceLock<Bytes>,
    frame: OnceLock<tungstenite::Message>,
}

impl Entry {
    fn bytes(&self) -> usize {
        match &self.message {
            Message::Data(data) => data.len(),
            Message::Missed(_) => 0,
        }
    }

    /// How many messages it stands for.
    fn weight(&self) -> u64 {
        match &self.message {
            Message::Data(_) => 1,
            Message::Missed(missed) => *missed,
        }
    }

    /// As a server-sent event.
    pub(crate) fn sse(&self, origin: &str) -> Bytes {
        let after = self.before + self.weight();
        self.sse.get_or_init(|| encode::sse(&self.message, origin, after)).clone()
    }

    /// As a WebSocket message.
    pub(crate) fn frame(&self) -> tungstenite::Message {
        self.frame.get_or_init(|| encode::frame(&self.message)).clone()
    }
}

/// Where a reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the entry it reads next.
    next: u64,
    /// Messages published before that.
    before: u64,
}

/// The last messages of a channel.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    /// The number of the oldest entry.
    first: u64,
    /// Messages published so far.
    published: u64,
}

impl Ring {
    pub(crate) fn push(&mut self, message: Message) {
        let entry = Entry { message, before: self.published, sse: OnceLock::new(), frame: OnceLock::new() };
        self.published += entry.weight();
        self.bytes += entry.bytes();
        self.entries.push_back(Arc::new(entry));
        while self.entries.len() > MOST_MESSAGES || (self.bytes > MOST_BYTES && self.entries.len() > 1) {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.bytes -= oldest.bytes();
            self.first += 1;
        }
    }

    /// The number of the entry that comes next.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Where a reader that begins now is.
    pub(crate) fn now(&self) -> Place {
        Place { next: self.end(), before: self.published }
    }

    /// How many messages were published since the one with this number.
    pub(crate) fn since(&self, published: u64) -> u64 {
        self.published.saturating_sub(published)
    }

    /// Puts what comes next for a reader into `batch`, and moves its place on. Answers how many it has missed in front
    /// of that, if it has: 0 when nobody knows.
    pub(crate) fn take(&self, place: &mut Place, batch: &mut Vec<Arc<Entry>>) -> Option<u64> {
        let mut missed = None;
        if place.next < self.first {
            let before = self.entries.front().map_or(self.published, |oldest| oldest.before);
            missed = Some(before.saturating_sub(place.before));
            *place = Place { next: self.first, before };
        }
        let from = (place.next - self.first) as usize;
        let mut bytes = 0;
        for entry in self.entries.iter().skip(from).take(TAKE_MESSAGES) {
            bytes += entry.bytes();
            if bytes > TAKE_BYTES && !batch.is_empty() {
                break;
            }
            batch.push(entry.clone());
            *place = Place { next: place.next + 1, before: entry.before + entry.weight() };
        }
        missed
    }
}

impl Place {
    /// Whether nothing comes before the entry with this number.
    pub(crate) fn is_at(self, end: u64) -> bool {
        self.next >= end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str) -> Message {
        Message::Data(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn read(ring: &Ring, place: &mut Place) -> (Option<u64>, Vec<Message>) {
        let mut batch = Vec::new();
        let missed = ring.take(place, &mut batch);
        (missed, batch.iter().map(|entry| entry.message.clone()).collect())
    }

    #[test]
    fn every_reader_gets_everything_from_where_it_began() {
        let mut ring = Ring::default();
        let mut early = ring.now();
        ring.push(data("1"));
        let mut late = ring.now();
        ring.push(data("2"));
        assert_eq!(read(&ring, &mut early), (None, vec![data("1"), data("2")]));
        assert_eq!(read(&ring, &mut late), (None, vec![data("2")]));
        assert_eq!(read(&ring, &mut late), (None, vec![]));
        assert_eq!(early, late);
        assert!(late.is_at(ring.end()));
    }

    #[test]
    fn who_falls_behind_is_told_how_many_it_missed_and_goes_on_with_the_oldest_there_is() {
        let mut ring = Ring::default();
        let (mut slow, mut quick) = (ring.now(), ring.now());
        for number in 0..MOST_MESSAGES + 10 {
            ring.push(data(&number.to_string()));
            assert_eq!(read(&ring, &mut quick).0, None, "one slow reader costs another nothing");
        }
        let (missed, first) = read(&ring, &mut slow);
        assert_eq!((missed, &first[0]), (Some(10), &data("10")));
        let mut seen = first.len();
        while let (None, batch) = read(&ring, &mut slow) {
            if batch.is_empty() {
                break;
            }
            assert!(batch.len() <= TAKE_MESSAGES);
            seen += batch.len();
        }
        assert_eq!(seen, MOST_MESSAGES);
    }

    #[test]
    fn what_the_store_has_missed_counts_for_those_who_miss_the_notice() {
        let mut ring = Ring::default();
        let mut slow = ring.now();
        ring.push(Message::Missed(7));
        ring.push(Message::Missed(0));
        for number in 0..MOST_MESSAGES {
            ring.push(data(&number.to_string()));
        }
        let (missed, first) = read(&ring, &mut slow);
        assert_eq!((missed, &first[0]), (Some(7), &data("0")));
        assert_eq!(ring.since(0), 7 + MOST_MESSAGES as u64);
    }

    #[test]
    fn bytes_are_bounded_and_one_message_of_any_length_fits() {
        let mut ring = Ring::default();
        let mut slow = ring.now();
        let half = Bytes::from(vec![b'x'; MOST_BYTES / 2]);
        for _ in 0..5 {
            ring.push(Message::Data(half.clone()));
            assert!(ring.bytes <= MOST_BYTES);
        }
        assert_eq!(ring.entries.len(), 2);
        let (missed, batch) = read(&ring, &mut slow);
        assert_eq!((missed, batch.len()), (Some(3), 1), "one at a time where each is large");
        ring.push(Message::Data(Bytes::from(vec![b'x'; MOST_BYTES + 1])));
        assert_eq!(ring.entries.len(), 1);
        assert_eq!(read(&ring, &mut slow).0, Some(1));
    }
}
