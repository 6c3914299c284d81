//! The owner of the data: runs scripts in process and answers when their changes are safe.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::stream::BoxStream;
use tokio::sync::watch;
use tracing::{info, warn};

use super::change::Generation;
use super::commit::Committer;
use super::core::Core;
use super::folder::{self, Lock};
use super::journal::{Journal, Loss};
use super::options::{Durability, EmbeddedOptions};
use super::vm::ScriptRef;
use super::wire::{Answer, Request, VERSION};
use crate::{Code, Deployment, Error, Message, Reply, Result, ScanCursor, Words};

/// How often expired keys are looked for.
const EXPIRY_EVERY: Duration = Duration::from_millis(100);
/// Keys removed under one hold of the model's lock.
const EXPIRY_PIECE: usize = 256;
/// Elements of dead collections deleted at once.
const REAP_PIECE: usize = 512;
/// Between two pieces.
const REAP_EVERY: Duration = Duration::from_millis(2);
/// A disk that takes longer for a commit hangs, and nothing says when it goes on.
const HANGS: Duration = Duration::from_secs(1);
/// How often written changes are synced under `everysec`, and how often the folder is looked at.
const EVERY_SEC: Duration = Duration::from_secs(1);

/// The data model with its journal, if it has one.
#[derive(Debug)]
pub(super) struct Owner {
    core: Arc<Core>,
    journal: Option<Arc<Committer<Journal>>>,
    durability: Durability,
    /// Processes attached at the moment.
    pub(super) attached: AtomicU64,
    /// 1 when the data was from the future when the folder was opened.
    future: u64,
    house: House,
    // Given up last, when the journal is closed.
    folder: Option<Arc<Folder>>,
}

/// The folder and the lock that makes it ours.
#[derive(Debug)]
struct Folder {
    dir: Box<Path>,
    lock: Lock,
}

#[derive(Debug)]
struct House {
    stop: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
}

impl Owner {
    #[cfg(feature = "seeded-bugs")]
    pub(super) fn seed_bug(&self, bug: Option<super::Bug>) {
        if let Some(journal) = &self.journal {
            journal.sink().hang(bug == Some(super::Bug::CommitsHang));
        }
        self.core.seed_bug(bug);
    }

    /// An owner without a disk.
    pub(super) fn memory(options: &EmbeddedOptions) -> Result<Self> {
        let core = Arc::new(core(options)?);
        let house = House::keep(Arc::clone(&core), None, Vec::new(), None)?;
        Ok(Self {
            core,
            journal: None,
            durability: options.durability,
            attached: AtomicU64::new(0),
            future: 0,
            house,
            folder: None,
        })
    }

    /// Opens the folder whose lock is held and loads what is there; blocks.
    pub(super) fn open(dir: &Path, lock: Lock, options: &EmbeddedOptions) -> Result<Self> {
        let started = Instant::now();
        let core = Arc::new(core(options)?);
        let loss = if options.accept_loss { Loss::Accept } else { Loss::Refuse };
        let journal = Journal::open(dir, loss)?.keeping(Arc::clone(core.ticker()));
        let future = journal.align(core.ticker(), quaymaster_schema::MOMENTS)?;
        let loaded =
            journal.load(core.now_us().div_euclid(1000), |change| core.restore(std::iter::once(change)))?;
        info!(
            dir = %dir.display(),
            keys = loaded.keys,
            expired = loaded.expired,
            commit = journal.recovered(),
            took_ms = started.elapsed().as_millis() as u64,
            "opened the data folder"
        );
        let last = journal.recovered();
        let journal = Arc::new(Committer::new(journal, options.durability, last));
        let folder = Some(Arc::new(Folder { dir: Box::from(dir), lock }));
        let house =
            House::keep(Arc::clone(&core), Some(Arc::clone(&journal)), loaded.garbage, folder.clone())?;
        Ok(Self {
            core,
            journal: Some(journal),
            durability: options.durability,
            attached: AtomicU64::new(0),
            future,
            house,
            folder,
        })
    }

    /// Runs a script; resolves when its reply may go out.
    pub(super) async fn run(
        &self,
        script: ScriptRef<'_>,
        keys: &Words,
        args: &Words,
        deadline: Duration,
    ) -> Result<Reply> {
        let Some(journal) = &self.journal else {
            return self.core.execute(script, keys, args, drop).map(|(reply, ())| reply);
        };
        journal.check()?;
        let (reply, ticket) = self.core.execute(script, keys, args, |changes| journal.enqueue(changes))?;
        journal.released(ticket, deadline).await?;
        Ok(reply)
    }

    pub(super) fn now_us(&self) -> i64 {
        self.core.now_us()
    }

    /// The store's time minus the machine's.
    pub(super) fn clock_offset_us(&self) -> i64 {
        self.core.ticker().offset_us()
    }

    pub(super) fn subscribe(&self, channel: &[u8]) -> BoxStream<'static, Message> {
        self.core.subscribe(channel)
    }

    pub(super) async fn wait_for_item(&self, key: &[u8], limit: Duration) -> Result<bool> {
        self.check()?;
        tokio::select! {
            found = self.core.wait_for_item(key, limit) => Ok(found),
            // Whoever waits must not hold on to an owner that is being given up.
            () = failed(self.failure()) => self.check().map(|()| false),
        }
    }

    /// Becomes true when this owner cannot go on; nothing in memory.
    pub(super) fn failure(&self) -> Option<watch::Receiver<bool>> {
        self.journal.as_ref().map(|journal| journal.failure())
    }

    /// Answers a question that changes nothing.
    pub(super) async fn ask(&self, request: &Request, deadline: Duration) -> Result<Answer> {
        self.check()?;
        let answer = match request {
            Request::Time => return Ok(Answer::Time(self.now_us())),
            Request::Deployment => return Ok(Answer::Deployment(self.deployment())),
            Request::Ready => return self.ready().map(|()| Answer::Done),
            Request::Facts { key } => Answer::Facts(self.core.facts(key)),
            Request::Scan { pattern, count, cursor } => {
                let cursor = cursor.as_ref().map(|cursor| ScanCursor(cursor.to_vec()));
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                Answer::Page(self.core.scan(pattern, count, cursor.as_ref())?)
            }
            _ => return Err(Error::new("store.ask", Code::StoreProtocol, "this request has no place here")),
        };
        // What was seen must be safe before anybody hears of it, as with a script that only reads.
        if let Some(journal) = &self.journal {
            journal.released(journal.last_ticket(), deadline).await?;
        }
        Ok(answer)
    }

    /// Whether calls are accepted.
    pub(super) fn check(&self) -> Result<()> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.check())?;
        self.core.check()
    }

    /// Whether a write would succeed now, as far as is known without making one.
    fn ready(&self) -> Result<()> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.check_disk(HANGS))?;
        self.core.room()
    }

    fn deployment(&self) -> Deployment {
        let (mode, persistence) = match &self.journal {
            Some(_) => ("owner", self.durability.name()),
            None => ("memory", "none"),
        };
        Deployment {
            product: "embedded".to_owned(),
            version: VERSION.to_owned(),
            mode: mode.to_owned(),
            eviction_policy: None,
            max_memory_bytes: Some(self.core.max_bytes().unwrap_or(0)),
            used_memory_bytes: Some(self.core.used_bytes() as u64),
            persistence: Some(persistence.to_owned()),
            connected_clients: Some(self.attached.load(Relaxed)),
            clock_steps: Some(self.core.ticker().steps()),
            future_data: Some(self.future),
            pubsub_buffer: None,
            idle_timeout_s: None,
        }
    }

    pub(super) fn lock(&self) -> Option<&Lock> {
        self.folder.as_ref().map(|folder| &folder.lock)
    }

    /// Stops the background work and makes everything durable; blocks.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.house.stop();
        self.journal.as_ref().map_or(Ok(()), |journal| journal.finish())
    }
}

fn core(options: &EmbeddedOptions) -> Result<Core> {
    let core = Core::new(options.clock.clone(), options.limits.clone())?;
    if options.max_memory_bytes > 0 {
        core.bound(usize::try_from(options.max_memory_bytes).unwrap_or(usize::MAX));
    }
    Ok(core)
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            warn!(%error, "the store was dropped before its changes were safe");
        }
        if let Some(folder) = &self.folder {
            folder::unlisten(&folder.dir, &folder.lock);
        }
        // The journal must be closed before the lock goes: the next owner opens the same files.
        self.journal = None;
    }
}

impl House {
    fn keep(
        core: Arc<Core>,
        journal: Option<Arc<Committer<Journal>>>,
        garbage: Vec<Generation>,
        folder: Option<Arc<Folder>>,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || match journal {
            Some(journal) => keep_journal(&core, &journal, garbage, folder.as_deref(), &stopped),
            None => {
                while !stopped.load(Acquire) {
                    std::thread::park_timeout(EXPIRY_EVERY);
                    while core.expire_some(EXPIRY_PIECE, drop).0 == EXPIRY_PIECE {}
                }
            }
        };
        let keeper =
            std::thread::Builder::new().name("quaymaster-house".to_owned()).spawn(work).map_err(|error| {
                Error::new("store.open", Code::Internal, "no thread for background work").because(error)
            })?;
        Ok(Self { stop, keeper: Some(keeper) })
    }

    fn stop(&mut self) {
        self.stop.store(true, Release);
        if let Some(keeper) = self.keeper.take() {
            keeper.thread().unpark();
            // A panic there was printed; what is queued is committed by the caller.
            let _ = keeper.join();
        }
    }
}

/// Resolves when the owner has failed; never when it cannot, or was closed.
pub(super) async fn failed(failure: Option<watch::Receiver<bool>>) {
    if let Some(mut failure) = failure
        && failure.wait_for(|failed| *failed).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

fn keep_journal(
    core: &Core,
    journal: &Committer<Journal>,
    mut garbage: Vec<Generation>,
    folder: Option<&Folder>,
    stop: &AtomicBool,
) {
    let mut expired = Instant::now();
    let mut looked = Instant::now();
    while !stop.load(Acquire) {
        std::thread::park_timeout(if garbage.is_empty() { EXPIRY_EVERY } else { REAP_EVERY });
        if looked.elapsed() >= EVERY_SEC {
            // Under `always` everything is synced already and this does nothing.
            journal.sync();
            if folder.is_some_and(|folder| !folder.lock.is_held(&folder.dir)) {
                journal.condemn("the data folder was removed or replaced while it was in use");
            }
            looked = Instant::now();
        }
        if journal.check().is_err() {
            // The owner is about to be given up; nothing here can be written any more.
            garbage.clear();
            continue;
        }
        if expired.elapsed() >= EXPIRY_EVERY {
            while core.expire_some(EXPIRY_PIECE, |changes| journal.enqueue(changes)).0 == EXPIRY_PIECE {
                journal.lead();
            }
            // Nobody waits for these changes, so nobody else would commit them.
            journal.lead();
            expired = Instant::now();
        }
        garbage.extend(journal.take_dead());
        if let Some(generation) = garbage.last() {
            match journal.sink().reap(*generation, REAP_PIECE) {
                Ok(REAP_PIECE) => {}
                Ok(_) => drop(garbage.pop()),
                Err(cause) => {
                    warn!(%cause, "garbage in the journal stays until the folder is opened again");
                    garbage.clear();
                }
            }
        }
    }
}
