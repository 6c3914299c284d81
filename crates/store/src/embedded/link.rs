//! The attached side of the socket: one connection, many calls on it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt, BufReader, BufWriter};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::clock::{elapsed_us, machine_us};
use super::folder;
use super::wire::{Answer, PROTOCOL, Request, VERSION, read_frame};
use crate::{Code, Error, Message, Result};

/// Requests queued for the owner.
const REQUESTS: usize = 256;

/// Why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Miss {
    /// It never reached the owner: it can be made again.
    NotSent,
    /// The owner may have run it.
    Lost,
    /// The deadline passed; the owner may have run it.
    TimedOut,
    /// It does not fit into a frame.
    TooLarge,
}

/// A connection to the owner.
#[derive(Debug)]
pub(super) struct Link {
    out: mpsc::Sender<Vec<u8>>,
    calls: Arc<Calls>,
    ended: watch::Receiver<bool>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
    /// The owner's clock minus the time elapsed on this machine, and how wrong that can be: a date that is set here
    /// changes nothing.
    offset_us: AtomicI64,
    error_us: AtomicU64,
}

#[derive(Debug, Default)]
struct Calls {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    closed: bool,
    waiting: HashMap<u64, Waiting>,
}

#[derive(Debug)]
enum Waiting {
    Once(oneshot::Sender<Result<Answer, Miss>>),
    /// The first answer goes to the caller, messages to the stream; a full stream counts what it misses.
    Stream {
        first: Option<oneshot::Sender<Result<Answer, Miss>>>,
        messages: mpsc::Sender<Message>,
        missed: u64,
    },
}

/// What became of an attempt to attach.
#[derive(Debug)]
pub(super) enum Attach {
    Attached(Arc<Link>),
    /// Nobody listens, or whoever did went away.
    Nobody,
}

impl Link {
    /// Connects to the owner of `dir`.
    pub(super) async fn attach(dir: &Path, limit: Duration) -> Result<Attach> {
        let Ok(Ok(stream)) = timeout(limit, folder::connect(dir)).await else { return Ok(Attach::Nobody) };
        if let Some(who) = folder::stranger(&stream) {
            let detail = format!(
                "the socket in {} is served by {who}, not by this process's user; end that process",
                dir.display()
            );
            return Err(Error::new("store.open", Code::StoreFolder, detail));
        }
        let (reader, writer) = stream.into_split();
        let mut reader = BufReader::with_capacity(64 << 10, reader);
        let mut writer = BufWriter::with_capacity(64 << 10, writer);
        let started = Instant::now();
        let greeted = timeout(limit, async {
            writer.write_all(&Request::hello().encode(0)?).await.ok()?;
            writer.flush().await.ok()?;
            read_frame(&mut reader).await.ok()?
        });
        let Ok(Some(frame)) = greeted.await else { return Ok(Attach::Nobody) };
        match Answer::decode(&frame) {
            Ok((_, Answer::Welcome { time_us })) => {
                let link = Arc::new(Self::start(reader, writer));
                link.measured(time_us, started.elapsed());
                Ok(Attach::Attached(link))
            }
            Ok((_, Answer::Other { protocol, version })) => {
                let detail = format!(
                    "the owner of {} is version {version} (protocol {protocol}), this process is {VERSION} \
                     (protocol {PROTOCOL}); run one version on one folder",
                    dir.display()
                );
                Err(Error::new("store.open", Code::StoreVersion, detail))
            }
            _ => {
                let detail = format!("whoever listens in {} is not Quaymaster", dir.display());
                Err(Error::new("store.open", Code::StoreProtocol, detail))
            }
        }
    }

    fn start(reader: BufReader<OwnedReadHalf>, writer: BufWriter<OwnedWriteHalf>) -> Self {
        let (out, requests) = mpsc::channel(REQUESTS);
        let (ending, ended) = watch::channel(false);
        let calls = Arc::<Calls>::default();
        let writer = tokio::spawn(write(writer, requests));
        let reading = Arc::clone(&calls);
        let reader = tokio::spawn(async move {
            reading.read(reader).await;
            reading.end();
            ending.send_replace(true);
        });
        let (offset_us, error_us) = (AtomicI64::new(0), AtomicU64::new(0));
        Self { out, calls, ended, reader, writer, offset_us, error_us }
    }

    /// Whether it takes no more calls: the owner is gone, or has said goodbye and answers its last ones.
    pub(super) fn is_ended(&self) -> bool {
        self.calls.table.lock().closed
    }

    /// Resolves when the owner is gone.
    pub(super) async fn ended(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Keeps the owner's clock as read `round_trip` ago at most.
    pub(super) fn measured(&self, owner_us: i64, round_trip: Duration) {
        let half = i64::try_from(round_trip.as_micros() / 2).unwrap_or(i64::MAX);
        self.offset_us.store(owner_us.saturating_add(half).saturating_sub(elapsed_us()), Relaxed);
        self.error_us.store(half.unsigned_abs(), Relaxed);
    }

    /// The owner's clock, as last measured.
    pub(super) fn now_us(&self) -> i64 {
        elapsed_us().saturating_add(self.offset_us.load(Relaxed))
    }

    /// The owner's clock minus this machine's, and how wrong that can be.
    pub(super) fn clock(&self) -> (i64, u64) {
        (self.now_us().saturating_sub(machine_us()), self.error_us.load(Relaxed))
    }

    pub(super) async fn call(&self, request: &Request, deadline: Instant) -> Result<Answer, Miss> {
        let (answer, answered) = oneshot::channel();
        let id = self.send(request, Waiting::Once(answer), deadline).await?;
        let mut forget = Forget { link: self, id: Some(id), cancel: matches!(request, Request::Wait { .. }) };
        let answer = timeout_at(deadline, answered).await;
        if answer.is_ok() {
            forget.id = None;
        }
        answer.map_or(Err(Miss::TimedOut), |answer| answer.unwrap_or(Err(Miss::Lost)))
    }

    /// Sends a subscription; its messages go to `messages` for as long as the link lasts.
    pub(super) async fn subscribe(
        &self,
        request: &Request,
        messages: mpsc::Sender<Message>,
        deadline: Instant,
    ) -> Result<(u64, Answer), Miss> {
        let (first, answered) = oneshot::channel();
        let id =
            self.send(request, Waiting::Stream { first: Some(first), messages, missed: 0 }, deadline).await?;
        let mut forget = Forget { link: self, id: Some(id), cancel: true };
        let answer =
            timeout_at(deadline, answered).await.map_err(|_| Miss::TimedOut)?.unwrap_or(Err(Miss::Lost))?;
        forget.id = None;
        Ok((id, answer))
    }

    /// Ends a subscription.
    pub(super) fn unsubscribe(&self, id: u64) {
        drop(Forget { link: self, id: Some(id), cancel: true });
    }

    async fn send(&self, request: &Request, waiting: Waiting, deadline: Instant) -> Result<u64, Miss> {
        let permit = match timeout_at(deadline, self.out.reserve()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => {
                // The writer is gone before the reader has seen the end: take no more calls meanwhile.
                self.calls.table.lock().closed = true;
                return Err(Miss::NotSent);
            }
            Err(_) => return Err(Miss::TimedOut),
        };
        // Numbered and queued under one lock: the owner reads them in the order of their numbers.
        let mut table = self.calls.table.lock();
        if table.closed {
            return Err(Miss::NotSent);
        }
        let id = table.last + 1;
        let frame = request.encode(id).ok_or(Miss::TooLarge)?;
        table.last = id;
        table.waiting.insert(id, waiting);
        permit.send(frame);
        Ok(id)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
    }
}

/// Whoever asked went away: nobody waits for the answer any more.
struct Forget<'a> {
    link: &'a Link,
    id: Option<u64>,
    cancel: bool,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut table = self.link.calls.table.lock();
        table.waiting.remove(&id);
        if self.cancel
            && !table.closed
            && let Ok(permit) = self.link.out.try_reserve()
        {
            table.last += 1;
            if let Some(frame) = (Request::Cancel { id }).encode(table.last) {
                permit.send(frame);
            }
        }
    }
}

async fn write(mut writer: BufWriter<OwnedWriteHalf>, mut requests: mpsc::Receiver<Vec<u8>>) {
    while let Some(request) = requests.recv().await {
        let last = requests.is_empty();
        let written = async {
            writer.write_all(&request).await?;
            if last { writer.flush().await } else { Ok(()) }
        };
        // The reader sees the end of the stream too, and says so to everybody.
        if written.await.is_err() {
            return;
        }
    }
}

impl Calls {
    async fn read(&self, mut reader: BufReader<OwnedReadHalf>) {
        while let Ok(Some(frame)) = read_frame(&mut reader).await {
            match Answer::decode(&frame) {
                Ok((_, Answer::Goodbye { last })) => self.goodbye(last),
                Ok((id, answer)) => self.deliver(id, answer),
                Err(_) => return,
            }
        }
    }

    fn deliver(&self, id: u64, answer: Answer) {
        let mut table = self.table.lock();
        match table.waiting.get_mut(&id) {
            None => {}
            Some(Waiting::Once(_)) => {
                if let Some(Waiting::Once(caller)) = table.waiting.remove(&id) {
                    // A caller that went away does not mind.
                    let _ = caller.send(Ok(answer));
                }
            }
            Some(Waiting::Stream { first, messages, missed }) => match answer {
                Answer::Message(message) => {
                    if *missed > 0 && messages.try_send(Message::Missed(*missed)).is_ok() {
                        *missed = 0;
                    }
                    if *missed > 0 || messages.try_send(message).is_err() {
                        *missed += 1;
                    }
                }
                answer => {
                    if let Some(first) = first.take() {
                        let _ = first.send(Ok(answer));
                    }
                }
            },
        }
    }

    /// The owner ends: what it has not read, it has not run.
    fn goodbye(&self, last: u64) {
        let mut table = self.table.lock();
        table.closed = true;
        table.waiting.retain(|id, waiting| {
            if *id <= last {
                return true;
            }
            let caller = match waiting {
                Waiting::Stream { first, .. } => first.take(),
                Waiting::Once(caller) => Some(std::mem::replace(caller, oneshot::channel().0)),
            };
            if let Some(caller) = caller {
                let _ = caller.send(Err(Miss::NotSent));
            }
            false
        });
    }

    fn end(&self) {
        let mut table = self.table.lock();
        table.closed = true;
        // Whoever still waits learns from the dropped sender that the answer is lost.
        table.waiting.clear();
    }
}
