//! The owner's side of the socket: answers the processes attached to it.
//!
//! Each connection has a reader, a writer and as many calls under way as its permits allow; what one client
//! does not read or does not finish holds up nobody but itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use parking_lot::Mutex;
use sha1_smol::Sha1;
use tokio::io::{AsyncWriteExt, BufReader, BufWriter};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, warn};

use super::folder;
use super::owner::Owner;
use super::vm::ScriptRef;
use super::wire::{Answer, Failure, PROTOCOL, Request, VERSION, read_frame};
use crate::{Code, Error, Result, Words};

/// Calls of one connection that run at a time; more wait in the socket.
const CALLS: usize = 64;
/// Waits and subscriptions of one connection at a time; more are refused.
const WAITS: usize = 4096;
/// Scripts remembered; one that was forgotten is sent again.
const SCRIPTS: usize = 4096;
/// Answers queued for one connection.
const ANSWERS: usize = 256;
/// A client that takes longer to take an answer is gone.
const STUCK: Duration = Duration::from_secs(10);

/// The scripts attached processes have sent, by digest.
type Scripts = Mutex<HashMap<Bytes, Arc<Known>>>;

#[derive(Debug)]
struct Known {
    id: String,
    sha: String,
    source: String,
}

/// A running server; dropping it cuts the connections.
#[derive(Debug)]
pub(super) struct Server {
    stop: watch::Sender<bool>,
    tasks: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Clone)]
struct Shared {
    owner: Arc<Owner>,
    scripts: Arc<Scripts>,
    deadline: Duration,
}

impl Server {
    /// Serves the owner's folder until it is told to stop.
    pub(super) fn start(dir: &Path, owner: &Arc<Owner>, deadline: Duration) -> Result<Self> {
        let Some(lock) = owner.lock() else {
            return Err(Error::new("store.open", Code::Internal, "a store in memory has no socket"));
        };
        let listener = folder::listen(dir, lock)?;
        let shared = Shared { owner: Arc::clone(owner), scripts: Arc::default(), deadline };
        let (stop, stopped) = watch::channel(false);
        let tasks = tokio::spawn(accept(listener, shared, stopped));
        Ok(Self { stop, tasks })
    }

    /// Takes no more calls, answers those under way and says goodbye.
    pub(super) async fn close(mut self, limit: Duration) {
        self.stop.send_replace(true);
        if tokio::time::timeout(limit, &mut self.tasks).await.is_err() {
            warn!("attached processes did not take their answers in time");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

async fn accept(listener: UnixListener, shared: Shared, mut stop: watch::Receiver<bool>) {
    // Dropped with this task: then every connection ends.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let (shared, stop) = (shared.clone(), stop.clone());
                connections.spawn(async move {
                    match folder::stranger(&stream) {
                        None => serve(stream, shared, stop).await,
                        Some(who) => warn!(who, "another user's process wanted to attach; it was refused"),
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: those attached go on.
                warn!(%error, "a process could not attach");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve(stream: UnixStream, shared: Shared, stop: watch::Receiver<bool>) {
    let (reader, writer) = stream.into_split();
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let (out, answers) = mpsc::channel(ANSWERS);
    let writing = tokio::spawn(write(writer, answers));
    if welcome(&mut reader, &out, &shared).await.is_some() {
        shared.owner.attached.fetch_add(1, Relaxed);
        let connection = Connection {
            calls: Arc::new(Semaphore::new(CALLS)),
            waits: Arc::new(Semaphore::new(WAITS)),
            waiting: Arc::default(),
            out: out.clone(),
            shared: shared.clone(),
        };
        connection.read(reader, stop).await;
        shared.owner.attached.fetch_sub(1, Relaxed);
    }
    drop(out);
    // Ends once everybody who could still answer is done, or the client is stuck.
    let _ = writing.await;
}

async fn write(writer: OwnedWriteHalf, mut answers: mpsc::Receiver<Vec<u8>>) {
    let mut writer = BufWriter::with_capacity(64 << 10, writer);
    while let Some(answer) = answers.recv().await {
        let last = answers.is_empty();
        let written = tokio::time::timeout(STUCK, async {
            writer.write_all(&answer).await?;
            if last { writer.flush().await } else { Ok(()) }
        });
        if !matches!(written.await, Ok(Ok(()))) {
            return;
        }
    }
    let _ = tokio::time::timeout(STUCK, writer.shutdown()).await;
}

async fn send(out: &mpsc::Sender<Vec<u8>>, id: u64, answer: Answer) -> Option<()> {
    let frame = answer.encode(id).or_else(|| {
        // What a script did stays, whatever becomes of its reply.
        let ran = matches!(answer, Answer::Reply(_));
        let code = if ran { Code::StoreReply } else { Code::RequestTooLarge };
        let detail = "the answer is longer than an attached process can take (64 MiB)".to_owned();
        Answer::Failed(Failure::new(code, detail)).encode(id)
    })?;
    out.send(frame).await.ok()
}

async fn welcome(
    reader: &mut BufReader<OwnedReadHalf>,
    out: &mpsc::Sender<Vec<u8>>,
    shared: &Shared,
) -> Option<()> {
    let frame = tokio::time::timeout(STUCK, read_frame(reader)).await.ok()?.ok()??;
    let Ok((id, Request::Hello { protocol, version })) = Request::decode(&frame) else { return None };
    if protocol == PROTOCOL && version == VERSION {
        return send(out, id, Answer::Welcome { time_us: shared.owner.now_us() }).await;
    }
    debug!(version, protocol, "a process of another version wanted to attach");
    send(out, id, Answer::Other { protocol: PROTOCOL, version: VERSION.to_owned() }).await;
    None
}

struct Connection {
    calls: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    waiting: Arc<Mutex<HashMap<u64, AbortHandle>>>,
    out: mpsc::Sender<Vec<u8>>,
    shared: Shared,
}

impl Connection {
    async fn read(self, mut reader: BufReader<OwnedReadHalf>, mut stop: watch::Receiver<bool>) {
        // Both are cut off with the connection; an owner that ends waits for the calls.
        let mut calls = JoinSet::new();
        let mut waits = JoinSet::new();
        let mut last = 0;
        let goodbye = loop {
            while calls.try_join_next().is_some() || waits.try_join_next().is_some() {}
            let frame = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break true,
                () = self.out.closed() => break false,
                frame = read_frame(&mut reader) => frame,
            };
            let Ok(Some(frame)) = frame else { break false };
            let Ok((id, request)) = Request::decode(&frame) else {
                warn!("an attached process sent something unreadable; its connection is closed");
                break false;
            };
            if id <= last {
                break false;
            }
            last = id;
            self.start(id, request, &mut calls, &mut waits).await;
        };
        if goodbye {
            send(&self.out, 0, Answer::Goodbye { last }).await;
            while calls.join_next().await.is_some() {}
        }
    }

    async fn start(&self, id: u64, request: Request, calls: &mut JoinSet<()>, waits: &mut JoinSet<()>) {
        match request {
            Request::Cancel { id } => {
                if let Some(wait) = self.waiting.lock().remove(&id) {
                    wait.abort();
                }
            }
            Request::Subscribe { .. } | Request::Wait { .. } => {
                let Ok(permit) = Arc::clone(&self.waits).try_acquire_owned() else {
                    let detail = format!("one process may hold {WAITS} waits and subscriptions");
                    send(&self.out, id, Answer::Failed(Failure::new(Code::StoreBusy, detail))).await;
                    return;
                };
                // Subscribed before the next request is read: what follows is heard.
                let messages = match &request {
                    Request::Subscribe { channel } => Some(self.shared.owner.subscribe(channel)),
                    _ => None,
                };
                let (shared, out, waiting) =
                    (self.shared.clone(), self.out.clone(), Arc::clone(&self.waiting));
                let mut waiting_now = self.waiting.lock();
                let wait = waits.spawn(async move {
                    let _permit: OwnedSemaphorePermit = permit;
                    if let Some(mut messages) = messages {
                        let mut open = send(&out, id, Answer::Done).await;
                        while let (Some(()), Some(message)) = (open, messages.next().await) {
                            open = send(&out, id, Answer::Message(message)).await;
                        }
                    } else if let Request::Wait { key, limit_ms } = request {
                        let found = shared.owner.wait_for_item(&key, Duration::from_millis(limit_ms)).await;
                        let answer = found.map_or_else(|error| Answer::Failed(error.into()), Answer::Found);
                        send(&out, id, answer).await;
                    }
                    waiting.lock().remove(&id);
                });
                waiting_now.insert(id, wait);
            }
            request => {
                let Ok(permit) = Arc::clone(&self.calls).acquire_owned().await else { return };
                let (shared, out) = (self.shared.clone(), self.out.clone());
                calls.spawn(async move {
                    let answer = shared.answer(request).await;
                    send(&out, id, answer).await;
                    drop(permit);
                });
            }
        }
    }
}

impl Shared {
    async fn answer(&self, request: Request) -> Answer {
        let answered = match request {
            Request::Run { sha, keys, args } => {
                let Some(script) = self.scripts.lock().get(&sha).cloned() else { return Answer::WantSource };
                self.run(&script, &keys, &args).await
            }
            Request::RunSource { id, source, keys, args } => match self.learn(&id, &source) {
                Ok(script) => self.run(&script, &keys, &args).await,
                Err(error) => Err(error),
            },
            request => self.owner.ask(&request, self.deadline).await,
        };
        answered.unwrap_or_else(|error| Answer::Failed(error.into()))
    }

    async fn run(&self, script: &Known, keys: &Words, args: &Words) -> Result<Answer> {
        let script = ScriptRef { id: &script.id, sha: &script.sha, source: &script.source };
        self.owner.run(script, keys, args, self.deadline).await.map(Answer::Reply)
    }

    fn learn(&self, id: &[u8], source: &[u8]) -> Result<Arc<Known>> {
        let text = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).map(str::to_owned);
            text.map_err(|error| {
                Error::new("store.attach", Code::StoreProtocol, "a script is not text").because(error)
            })
        };
        // The digest is made here: nobody runs one script under another's name.
        let known = Arc::new(Known {
            id: text(id)?,
            sha: Sha1::from(source).digest().to_string(),
            source: text(source)?,
        });
        let mut scripts = self.scripts.lock();
        if scripts.len() >= SCRIPTS {
            scripts.clear();
        }
        scripts.insert(Bytes::copy_from_slice(known.sha.as_bytes()), Arc::clone(&known));
        Ok(known)
    }
}
