//! One connection that any number of callers share. A caller puts its command into the outbox and waits; the
//! driver writes what has gathered, reads replies and hands them out in order.
//!
//! Time-outs cost nothing per call: the driver looks at what waits every few milliseconds. A call whose last
//! byte never left is known not to have run.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::resp::{self, Answer, Scanner};
use crate::{Code, Reply};

/// How often waiting calls are looked at.
const TICK: Duration = Duration::from_millis(10);
/// Room for replies at first; it grows to the largest reply and shrinks again.
const READ_BUFFER: usize = 64 * 1024;
/// Gathered bytes that are written without waiting for more callers.
const FULL_BATCH: usize = 32 * 1024;
/// Buffers above this are given back after use.
const KEEP_BUFFER: usize = 1024 * 1024;

/// The callers' end.
#[derive(Debug)]
pub(super) struct Wire {
    outbox: Mutex<Outbox>,
    driver: AtomicWaker,
    closed: AtomicBool,
    /// Commands without a reply so far.
    in_flight: AtomicUsize,
    made: Instant,
    /// Microseconds from `made` to the last byte heard.
    heard_us: AtomicU64,
    peer: String,
}

#[derive(Debug, Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// Bytes ever put in.
    total: u64,
    waiting: Vec<Waiting>,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    /// None: the reply is of no interest, or its caller was already told that it is late.
    to: Option<oneshot::Sender<Result<Answer, Fault>>>,
    until: Instant,
    /// Where its command ends among all bytes ever sent.
    end: u64,
}

impl Wire {
    /// Both ends; the driver must be spawned.
    pub(super) fn new<S>(stream: S, peer: String, pushes: Option<Pushes>) -> (Arc<Self>, Driver<S>) {
        let wire = Arc::new(Self {
            outbox: Mutex::default(),
            driver: AtomicWaker::new(),
            closed: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            made: Instant::now(),
            heard_us: AtomicU64::new(0),
            peer,
        });
        let driver = Driver {
            stream,
            wire: Arc::clone(&wire),
            pushes,
            read: vec![0; READ_BUFFER],
            filled: 0,
            scanner: Scanner::default(),
            done: Vec::new(),
            writing: Vec::new(),
            written: 0,
            written_total: 0,
            waiting: VecDeque::new(),
            tick: Box::pin(tokio::time::sleep(TICK)),
            yielded: false,
        };
        (wire, driver)
    }

    /// Sends what `encode` writes, `skip` commands whose replies are ignored and then one whose reply is
    /// awaited until `until`.
    pub(super) async fn call(
        &self,
        skip: usize,
        until: Instant,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Answer, Fault> {
        self.call_among(skip, 0, until, encode).await
    }

    /// The same with `trail` commands after it whose replies are ignored.
    pub(super) async fn call_among(
        &self,
        skip: usize,
        trail: usize,
        until: Instant,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Answer, Fault> {
        let reply = self.post(skip, trail, until, encode)?;
        match reply.await {
            Ok(result) => result,
            Err(_) => Err(self.lost(Ran::Maybe, "the connection was closed")),
        }
    }

    fn post(
        &self,
        skip: usize,
        trail: usize,
        until: Instant,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<oneshot::Receiver<Result<Answer, Fault>>, Fault> {
        let (to, reply) = oneshot::channel();
        {
            let mut outbox = self.outbox.lock();
            if outbox.closed {
                return Err(self.lost(Ran::No, "the connection was closed"));
            }
            let before = outbox.bytes.len();
            encode(&mut outbox.bytes);
            outbox.total += (outbox.bytes.len() - before) as u64;
            let end = outbox.total;
            for _ in 0..skip {
                outbox.waiting.push(Waiting { to: None, until, end });
            }
            outbox.waiting.push(Waiting { to: Some(to), until, end });
            for _ in 0..trail {
                outbox.waiting.push(Waiting { to: None, until, end });
            }
            self.in_flight.fetch_add(skip + 1 + trail, Relaxed);
        }
        self.driver.wake();
        Ok(reply)
    }

    /// Commands that were put in and have no reply yet.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// Whether the connection ended.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// How long ago it was made.
    pub(super) fn age(&self) -> Duration {
        self.made.elapsed()
    }

    /// Whether anything was heard after `moment`.
    pub(super) fn heard_since(&self, moment: Instant) -> bool {
        self.made + Duration::from_micros(self.heard_us.load(Relaxed)) > moment
    }

    fn lost(&self, ran: Ran, why: &str) -> Fault {
        Fault::new(Code::StoreLost, ran, Then::Redial, format!("{}: {why}", self.peer))
    }
}

/// Takes a channel's name and a message.
pub(super) type Pushes = Box<dyn Fn(&Bytes, Bytes) + Send + Sync>;

/// The connection's end; a future that resolves when the connection is over.
pub(super) struct Driver<S> {
    stream: S,
    wire: Arc<Wire>,
    /// On a connection with subscriptions: where messages go, which no call waits for.
    pushes: Option<Pushes>,
    read: Vec<u8>,
    filled: usize,
    scanner: Scanner,
    /// Decoded and not yet handed out; empty between turns.
    done: Vec<(oneshot::Sender<Result<Answer, Fault>>, Answer)>,
    writing: Vec<u8>,
    written: usize,
    written_total: u64,
    waiting: VecDeque<Waiting>,
    tick: Pin<Box<Sleep>>,
    yielded: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driver<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let fault = match ready!(this.turn(cx)) {
            Ok(()) => this.wire.lost(Ran::Maybe, "the server closed the connection"),
            Err(fault) => fault,
        };
        this.end(&fault);
        Poll::Ready(())
    }
}

impl<S> Drop for Driver<S> {
    fn drop(&mut self) {
        let fault = self.wire.lost(Ran::Maybe, "the connection was dropped");
        self.end(&fault);
    }
}

impl<S> Driver<S> {
    fn end(&mut self, fault: &Fault) {
        self.wire.closed.store(true, Relaxed);
        let unsent = {
            let mut outbox = self.wire.outbox.lock();
            outbox.closed = true;
            outbox.bytes = Vec::new();
            std::mem::take(&mut outbox.waiting)
        };
        for waiting in self.waiting.drain(..).chain(unsent) {
            let ran = if waiting.end > self.written_total { Ran::No } else { fault.ran };
            if let Some(to) = waiting.to {
                let _ = to.send(Err(Fault { ran, ..fault.clone() }));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Ready when the connection is over: `Ok` when the server closed it in good order.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if let Poll::Ready(over) = self.poll_read(cx) {
            return Poll::Ready(over);
        }
        if let Poll::Ready(Err(error)) = self.poll_write(cx) {
            return Poll::Ready(Err(Fault::io(&error, &self.wire.peer)));
        }
        // At most one registration per tick, however often the connection falls idle in between.
        while !self.waiting.is_empty() && self.tick.as_mut().poll(cx).is_ready() {
            self.expire();
            self.tick.as_mut().reset(tokio::time::Instant::now() + TICK);
        }
        Poll::Pending
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        loop {
            if self.filled == self.read.len() {
                self.read.resize(self.read.len() * 2, 0);
            }
            let mut room = ReadBuf::new(&mut self.read[self.filled..]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut room) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Fault::io(&error, &self.wire.peer))),
                Poll::Ready(Ok(())) => {}
            }
            let new = room.filled().len();
            if new == 0 {
                return Poll::Ready(Ok(()));
            }
            self.filled += new;
            self.wire.heard_us.store(self.wire.made.elapsed().as_micros() as u64, Relaxed);
            if let Err(malformed) = self.hand_out() {
                let detail = format!("{}: {malformed}", self.wire.peer);
                return Poll::Ready(Err(Fault::new(Code::StoreProtocol, Ran::Maybe, Then::Redial, detail)));
            }
        }
    }

    /// Answers every call whose reply is complete, also when what follows is garbage.
    fn hand_out(&mut self) -> Result<(), resp::Malformed> {
        let mut start = 0;
        let waiting = self.waiting.len();
        let result = self.gather(&mut start);
        // Before anybody is woken: whoever is answered here finds room here.
        self.wire.in_flight.fetch_sub(waiting - self.waiting.len(), Relaxed);
        // All at once: woken one by one between decodings, another thread of the runtime would fall asleep and
        // be woken again several times per batch.
        for (to, answer) in self.done.drain(..) {
            let _ = to.send(Ok(answer));
        }
        self.read.copy_within(start..self.filled, 0);
        self.filled -= start;
        if self.filled == 0 && self.read.len() > KEEP_BUFFER {
            self.read = vec![0; READ_BUFFER];
        }
        result
    }

    fn gather(&mut self, start: &mut usize) -> Result<(), resp::Malformed> {
        while *start < self.filled {
            let Some(length) = self.scanner.scan(&self.read[*start..self.filled])? else { break };
            let reply = &self.read[*start..*start + length];
            *start += length;
            if let Some(pushes) = &self.pushes
                && let Answer::Reply(Reply::Array(parts)) = resp::decode(reply)?
                && let [Reply::Bytes(kind), Reply::Bytes(channel), Reply::Bytes(message)] = parts.as_slice()
                && kind == "message"
            {
                pushes(channel, message.clone());
                continue;
            }
            if let Some(to) = self.waiting.pop_front().and_then(|waiting| waiting.to) {
                self.done.push((to, resp::decode(reply)?));
            }
        }
        Ok(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.written < self.writing.len() {
                let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.writing[self.written..]))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.written += count;
                self.written_total += count as u64;
            }
            if self.writing.capacity() > KEEP_BUFFER {
                self.writing = Vec::new();
            }
            self.writing.clear();
            self.written = 0;
            // Registered before looking, so that no caller slips in between.
            self.wire.driver.register(cx.waker());
            let mut outbox = self.wire.outbox.lock();
            if outbox.bytes.is_empty() {
                drop(outbox);
                self.yielded = false;
                return Pin::new(&mut self.stream).poll_flush(cx);
            }
            if !self.yielded && outbox.bytes.len() < FULL_BATCH {
                // Callers that are ready to run join this write; an idle runtime comes back at once.
                self.yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.yielded = false;
            std::mem::swap(&mut outbox.bytes, &mut self.writing);
            self.waiting.extend(outbox.waiting.drain(..));
        }
    }

    /// Tells callers that their reply is late. Their place stays: the reply may still come.
    fn expire(&mut self) {
        let now = Instant::now();
        // What still lies in the outbox will be written when the socket has room again.
        let mut outbox = self.wire.outbox.lock();
        for waiting in self.waiting.iter_mut().chain(&mut outbox.waiting) {
            if waiting.until <= now
                && let Some(to) = waiting.to.take()
            {
                let _ = to.send(Err(Fault::timed_out(&self.wire.peer)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "what fails here is the test")]
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    fn connected(room: usize) -> (Arc<Wire>, DuplexStream) {
        let (ours, theirs) = duplex(room);
        let (wire, driver) = Wire::new(ours, "peer".into(), None);
        tokio::spawn(driver);
        (wire, theirs)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    fn int(value: i64) -> Answer {
        Answer::Reply(Reply::Int(value))
    }

    async fn hear(theirs: &mut DuplexStream, bytes: usize) {
        theirs.read_exact(&mut vec![0; bytes]).await.unwrap();
    }

    #[tokio::test]
    async fn replies_go_to_their_callers_in_order_and_skipped_ones_to_nobody() {
        let (wire, mut theirs) = connected(1024);
        let (first, second, third, fourth, ()) = tokio::join!(
            biased;
            wire.call(0, soon(), |out| out.extend_from_slice(b"a")),
            wire.call(2, soon(), |out| out.extend_from_slice(b"bcd")),
            wire.call_among(1, 2, soon(), |out| out.extend_from_slice(b"efgh")),
            wire.call(0, soon(), |out| out.extend_from_slice(b"i")),
            async {
                hear(&mut theirs, 9).await;
                theirs.write_all(b":1\r\n:2\r\n+skipped\r\n:4\r\n").await.unwrap();
                theirs.write_all(b":5\r\n:6\r\n-ERR trails\r\n:8\r\n:9\r\n").await.unwrap();
            },
        );
        assert_eq!((first.unwrap(), second.unwrap()), (int(1), int(4)));
        assert_eq!((third.unwrap(), fourth.unwrap()), (int(6), int(9)));
        assert_eq!(wire.in_flight(), 0);
    }

    #[tokio::test]
    async fn a_late_reply_is_nobody_else_s() {
        let (wire, mut theirs) = connected(1024);
        let late = wire.call(0, Instant::now(), |out| out.push(b'a')).await.unwrap_err();
        assert_eq!((late.code, late.ran), (Code::StoreTimedOut, Ran::Maybe));
        let (next, ()) = tokio::join!(wire.call(0, soon(), |out| out.push(b'b')), async {
            hear(&mut theirs, 2).await;
            theirs.write_all(b":1\r\n:2\r\n").await.unwrap();
        });
        assert_eq!(next.unwrap(), int(2));
    }

    #[tokio::test]
    async fn a_call_whose_last_byte_never_left_is_known_not_to_have_run() {
        let (wire, mut theirs) = connected(8);
        let (sent, half, waiting, ()) = tokio::join!(
            biased;
            wire.call(0, soon(), |out| out.extend_from_slice(b"1234")),
            wire.call(0, soon(), |out| out.extend_from_slice(b"123456789")),
            async {
                // Comes when the connection is already full.
                while wire.outbox.lock().total < 13 || !wire.outbox.lock().bytes.is_empty() {
                    tokio::task::yield_now().await;
                }
                wire.call(0, soon(), |out| out.push(b'x')).await
            },
            async {
                while wire.outbox.lock().total < 14 {
                    tokio::task::yield_now().await;
                }
                theirs.shutdown().await.unwrap();
                drop(theirs);
            },
        );
        let ran = [sent, half, waiting].map(|result| {
            let fault = result.unwrap_err();
            assert_eq!(fault.code, Code::StoreLost);
            fault.ran
        });
        assert_eq!(ran, [Ran::Maybe, Ran::No, Ran::No]);
        let after = wire.call(0, soon(), |out| out.push(b'y')).await.unwrap_err();
        assert_eq!(after.ran, Ran::No);
        assert!(wire.is_closed());
    }

    #[tokio::test]
    async fn garbage_ends_the_connection_for_everybody_who_has_no_answer_yet() {
        let (wire, mut theirs) = connected(1024);
        let (answered, first, second, ()) = tokio::join!(
            biased;
            wire.call(0, soon(), |out| out.push(b'c')),
            wire.call(0, soon(), |out| out.push(b'a')),
            wire.call(0, soon(), |out| out.push(b'b')),
            async {
                hear(&mut theirs, 3).await;
                theirs.write_all(b":1\r\nHTTP/1.1 400\r\n").await.unwrap();
            },
        );
        assert_eq!(answered.unwrap(), int(1));
        for result in [first, second] {
            let fault = result.unwrap_err();
            assert_eq!((fault.code, fault.ran), (Code::StoreProtocol, Ran::Maybe));
        }
    }

    #[tokio::test]
    async fn a_reply_larger_than_every_buffer_arrives_whole() {
        let (wire, mut theirs) = connected(1000);
        let large = vec![b'x'; 3 * KEEP_BUFFER];
        let (reply, ()) = tokio::join!(wire.call(0, soon(), |out| out.extend_from_slice(&large)), async {
            hear(&mut theirs, large.len()).await;
            theirs.write_all(format!("${}\r\n", large.len()).as_bytes()).await.unwrap();
            theirs.write_all(&large).await.unwrap();
            theirs.write_all(b"\r\n").await.unwrap();
        });
        assert_eq!(reply.unwrap(), Answer::Reply(Reply::Bytes(large.into())));
    }
}
