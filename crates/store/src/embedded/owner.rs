//! The owner of the data: runs scripts in process and answers when their changes are safe.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::stream::BoxStream;
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
/// Under `everysec`, how long changes gather before they are handed to the system.
const GATHER: Duration = Duration::from_millis(2);

/// The data model with its journal, if it has one.
#[derive(Debug)]
pub(super) struct Owner {
    core: Arc<Core>,
    journal: Option<Arc<Committer<Journal>>>,
    durability: Durability,
    /// Processes attached at the moment.
    pub(super) attached: AtomicU64,
    house: House,
    // Given up last, when the journal is closed.
    folder: Option<(Box<Path>, Lock)>,
}

#[derive(Debug)]
struct House {
    stop: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
}

impl Owner {
    #[cfg(feature = "seeded-bugs")]
    pub(super) fn seed_bug(&self, bug: Option<super::Bug>) {
        self.core.seed_bug(bug);
    }

    /// An owner without a disk.
    pub(super) fn memory(options: &EmbeddedOptions) -> Result<Self> {
        let core = Arc::new(Core::new(options.clock.clone(), options.limits.clone())?);
        let house = House::keep(Arc::clone(&core), None, Vec::new())?;
        Ok(Self {
            core,
            journal: None,
            durability: options.durability,
            attached: AtomicU64::new(0),
            house,
            folder: None,
        })
    }

    /// Opens the folder whose lock is held and loads what is there; blocks.
    pub(super) fn open(dir: &Path, lock: Lock, options: &EmbeddedOptions) -> Result<Self> {
        let started = Instant::now();
        let core = Arc::new(Core::new(options.clock.clone(), options.limits.clone())?);
        let loss = if options.accept_loss { Loss::Accept } else { Loss::Refuse };
        let journal = Journal::open(dir, loss)?;
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
        let house = House::keep(Arc::clone(&core), Some(Arc::clone(&journal)), loaded.garbage)?;
        let folder = Some((Box::from(dir), lock));
        Ok(Self {
            core,
            journal: Some(journal),
            durability: options.durability,
            attached: AtomicU64::new(0),
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
        self.released(ticket, deadline).await?;
        Ok(reply)
    }

    async fn released(&self, ticket: u64, deadline: Duration) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if journal.is_released(ticket) {
            return Ok(());
        }
        tokio::time::timeout(deadline, journal.released(ticket)).await.unwrap_or_else(|_| {
            let detail = format!("the disk did not take the changes within {deadline:?}");
            Err(Error::new("store.commit", Code::StoreTimedOut, detail))
        })
    }

    pub(super) fn now_us(&self) -> i64 {
        self.core.now_us()
    }

    pub(super) fn subscribe(&self, channel: &[u8]) -> BoxStream<'static, Message> {
        self.core.subscribe(channel)
    }

    pub(super) async fn wait_for_item(&self, key: &[u8], limit: Duration) -> bool {
        self.core.wait_for_item(key, limit).await
    }

    /// Answers a question that changes nothing.
    pub(super) async fn ask(&self, request: &Request, deadline: Duration) -> Result<Answer> {
        let answer = match request {
            Request::Time => return Ok(Answer::Time(self.now_us())),
            Request::Deployment => return Ok(Answer::Deployment(self.deployment())),
            Request::Facts { key } => Answer::Facts(self.core.facts(key)),
            Request::Scan { pattern, count, cursor } => {
                let cursor = cursor.as_ref().map(|cursor| ScanCursor(cursor.to_vec()));
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                Answer::Page(self.core.scan(pattern, count, cursor.as_ref()))
            }
            _ => return Err(Error::new("store.ask", Code::StoreProtocol, "this request has no place here")),
        };
        // What was seen must be safe before anybody hears of it, as with a script that only reads.
        if let Some(journal) = &self.journal {
            self.released(journal.last_ticket(), deadline).await?;
        }
        Ok(answer)
    }

    /// Whether calls are accepted.
    pub(super) fn check(&self) -> Result<()> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.check())
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
            max_memory_bytes: None,
            used_memory_bytes: Some(self.core.used_bytes() as u64),
            persistence: Some(persistence.to_owned()),
            connected_clients: Some(self.attached.load(Relaxed)),
        }
    }

    pub(super) fn lock(&self) -> Option<&Lock> {
        self.folder.as_ref().map(|(_, lock)| lock)
    }

    /// Stops the background work and makes everything durable; blocks.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.house.stop(self.journal.as_deref());
        self.journal.as_ref().map_or(Ok(()), |journal| journal.finish())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            warn!(%error, "the store was dropped before its changes were safe");
        }
        if let Some((dir, lock)) = &self.folder {
            folder::unlisten(dir, lock);
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
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || match journal {
            Some(journal) => keep_journal(&core, &journal, garbage, &stopped),
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

    fn stop(&mut self, journal: Option<&Committer<Journal>>) {
        self.stop.store(true, Release);
        if let Some(journal) = journal {
            journal.wake();
        }
        if let Some(keeper) = self.keeper.take() {
            keeper.thread().unpark();
            // A panic there was printed; what is queued is committed by the caller.
            let _ = keeper.join();
        }
    }
}

fn keep_journal(core: &Core, journal: &Committer<Journal>, mut garbage: Vec<Generation>, stop: &AtomicBool) {
    let every_sec = journal.durability() == Durability::EverySec;
    let mut expired = Instant::now();
    let mut synced = Instant::now();
    while !stop.load(Acquire) {
        let pause = if garbage.is_empty() { EXPIRY_EVERY } else { GATHER };
        let work = if every_sec {
            journal.wait_for_work(pause)
        } else {
            std::thread::park_timeout(pause);
            false
        };
        if work {
            std::thread::park_timeout(GATHER);
            journal.lead();
        }
        if every_sec && synced.elapsed() >= Duration::from_secs(1) {
            journal.sync();
            synced = Instant::now();
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
