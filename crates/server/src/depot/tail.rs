//! The end of an outbox, for any number of readers: one task looks for new events while somebody reads, and keeps the
//! newest ones, so that a thousand readers cost the database no more than one. A reader is a place in the order; one
//! that is further behind than what is kept reads pages of its own until it has caught up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use quaymaster_upload::ledger::Event;
use quaymaster_upload::{Result, Uploads};
use tokio::sync::watch;

/// How often new events are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// The same while the database cannot be asked.
const LOOK_LATER: Duration = Duration::from_secs(5);
/// Events read at once.
const PAGE: u32 = 64;
/// Events kept.
const KEPT: usize = 1024;

/// How an event is written for readers.
pub(crate) type Write = fn(Event) -> Option<Bytes>;

/// Which events of an outbox are one resource's: several may share a database, and a topic too.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    pub(crate) resource: String,
    pub(crate) topic: String,
    /// Whether no other upload of the schema has this topic.
    pub(crate) alone: bool,
}

impl Own {
    /// Whether an event is told to readers of this resource. Where nobody knows any more whose it is, only those of a
    /// topic that is this resource's alone.
    pub(crate) fn has(&self, event: &Event) -> bool {
        let known = event.resource.as_deref();
        event.topic == self.topic && known.map_or(self.alone, |resource| resource == self.resource)
    }
}

/// The end of one upload resource's outbox.
#[derive(Debug)]
pub(crate) struct Tail {
    own: Own,
    state: Mutex<State>,
    /// Rings with the place of the newest event; its receivers are the readers.
    bell: watch::Sender<i64>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether somebody looks for new events.
    looked_for: bool,
    /// Every event after this place and up to `last` is kept.
    from: i64,
    last: i64,
    kept: VecDeque<(i64, Bytes)>,
}

/// One who reads.
pub(crate) struct Reader {
    tail: Arc<Tail>,
    uploads: Uploads,
    write: Write,
    after: i64,
    page: VecDeque<Bytes>,
    bell: watch::Receiver<i64>,
}

impl Tail {
    pub(crate) fn new(own: Own) -> Self {
        Self { own, state: Mutex::default(), bell: watch::Sender::new(0) }
    }

    /// Which events it tells.
    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// Reads everything after the place `after`, then everything that comes.
    pub(crate) async fn read(
        self: &Arc<Self>,
        uploads: &Uploads,
        after: i64,
        write: Write,
    ) -> Result<Reader> {
        // Before the look: from here on the task does not end for want of readers.
        let bell = self.bell.subscribe();
        let last = uploads.ledger().last_event().await?;
        let begin = {
            let mut state = self.state.lock();
            let begin = !std::mem::replace(&mut state.looked_for, true);
            if begin {
                *state = State { looked_for: true, from: last, last, kept: VecDeque::new() };
            }
            begin
        };
        if begin {
            tokio::spawn(look(self.clone(), uploads.clone(), write));
        }
        Ok(Reader { tail: self.clone(), uploads: uploads.clone(), write, after, page: VecDeque::new(), bell })
    }
}

impl State {
    /// Keeps the newest events of those that are the resource's own.
    fn put(&mut self, own: &Own, page: Vec<Event>, write: Write) {
        for event in page {
            let seq = event.seq;
            self.last = self.last.max(seq);
            let written = Some(event).filter(|event| own.has(event)).and_then(write);
            self.kept.extend(written.map(|written| (seq, written)));
        }
        while self.kept.len() > KEPT {
            self.from = self.kept.pop_front().map_or(self.from, |(seq, _)| seq);
        }
    }

    /// A page of what is kept after the place `after`; `None` where that is too far behind.
    fn after(&self, after: i64) -> Option<impl Iterator<Item = &(i64, Bytes)>> {
        let begin = (after >= self.from).then(|| self.kept.partition_point(|(seq, _)| *seq <= after))?;
        Some(self.kept.iter().skip(begin).take(PAGE as usize))
    }
}

/// Looks for new events until nobody reads any more.
async fn look(tail: Arc<Tail>, uploads: Uploads, write: Write) {
    let mut pause = LOOK;
    loop {
        tokio::select! {
            () = tail.bell.closed() => {
                let mut state = tail.state.lock();
                // Whoever came meanwhile is served by this task.
                if tail.bell.receiver_count() == 0 {
                    *state = State::default();
                    return;
                }
            }
            () = tokio::time::sleep(pause) => {}
        }
        let last = tail.state.lock().last;
        pause = match uploads.ledger().events(last, PAGE).await {
            Ok(page) => {
                let full = page.len() == PAGE as usize;
                if !page.is_empty() {
                    let mut state = tail.state.lock();
                    state.put(&tail.own, page, write);
                    tail.bell.send_replace(state.last);
                }
                if full { Duration::ZERO } else { LOOK }
            }
            Err(error) => {
                tracing::debug!(%error, "events cannot be looked for; trying again");
                LOOK_LATER
            }
        };
    }
}

impl Reader {
    /// The next event, waiting for one if there is none. Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Bytes> {
        loop {
            if let Some(event) = self.page.pop_front() {
                return Ok(event);
            }
            self.bell.mark_unchanged();
            if self.take_kept() {
                if self.page.is_empty() {
                    // The sender lives in the tail, which this reader holds.
                    let _ = self.bell.changed().await;
                }
                continue;
            }
            let page = self.uploads.ledger().events(self.after, PAGE).await?;
            self.after = match page.last() {
                Some(last) => last.seq,
                // What was there is gone from the outbox.
                None => self.tail.state.lock().from.max(self.after),
            };
            let own = page.into_iter().filter(|event| self.tail.own.has(event));
            self.page.extend(own.filter_map(self.write));
        }
    }

    /// Takes what is kept for this reader, if it is not too far behind for that.
    fn take_kept(&mut self) -> bool {
        let state = self.tail.state.lock();
        let Some(kept) = state.after(self.after) else { return false };
        for (seq, event) in kept {
            self.after = *seq;
            self.page.push_back(event.clone());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn own(alone: bool) -> Own {
        Own { resource: "ours".to_owned(), topic: "topic".to_owned(), alone }
    }

    fn event(seq: i64) -> Event {
        let resource = if seq % 3 == 0 { "theirs" } else { "ours" }.to_owned();
        Event {
            event_id: String::new(),
            seq,
            upload_id: String::new(),
            resource: Some(resource),
            node_id: String::new(),
            topic: "topic".to_owned(),
            payload: seq.to_string(),
            created_ms: 0,
            published_ms: None,
        }
    }

    fn wanted(after: i64, last: i64) -> Vec<i64> {
        (after + 1..=last).filter(|seq| seq % 3 != 0).collect()
    }

    #[test]
    fn an_event_is_told_to_readers_of_its_resource_and_to_no_others() {
        for (resource, topic, shared, alone) in [
            (Some("ours"), "topic", true, true),
            (Some("theirs"), "topic", false, false),
            (Some("ours"), "another", false, false),
            (None, "topic", false, true),
            (None, "another", false, false),
        ] {
            let event = Event { resource: resource.map(str::to_owned), topic: topic.to_owned(), ..event(1) };
            assert_eq!((own(false).has(&event), own(true).has(&event)), (shared, alone), "{event:?}");
        }
    }

    #[test]
    fn a_reader_gets_every_event_once_or_is_told_that_it_is_too_far_behind() {
        let mut state = State { looked_for: true, from: 7, last: 7, kept: VecDeque::new() };
        assert!(state.after(6).is_none(), "what was before is not kept");
        for page in (8..=5000).collect::<Vec<i64>>().chunks(PAGE as usize) {
            let events = page.iter().map(|seq| event(*seq)).collect();
            state.put(&own(false), events, |event| Some(Bytes::from(event.payload)));
            assert!(state.kept.len() <= KEPT, "memory is bounded");
        }
        assert_eq!((state.kept.len(), state.last), (KEPT, 5000));
        assert!(state.after(state.from - 1).is_none());
        let (mut after, mut got) = (state.from, Vec::new());
        loop {
            let page: Vec<_> = state.after(after).unwrap().collect();
            assert!(page.len() <= PAGE as usize);
            let Some((last, _)) = page.last() else { break };
            got.extend(page.iter().map(|(_, text)| String::from_utf8_lossy(text).parse::<i64>().unwrap()));
            after = *last;
        }
        assert_eq!(got, wanted(state.from, 5000), "none is missing in front of what is kept");
        assert_eq!(state.after(9000).unwrap().count(), 0);
    }
}
