//! Who owns the folder: this process, another it is attached to, or for a moment nobody.
//!
//! When the owner goes, however it goes, everybody attached tries for the lock. The one who gets it opens
//! the journal and serves; the others attach to it. Calls wait meanwhile, each within its deadline. An
//! owner stays owner until it closes or its disk fails: then it gives the folder up, lets others try, and
//! tries again itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};

use super::folder::{self, Lock};
use super::link::{Attach, Link, Miss};
use super::options::EmbeddedOptions;
use super::owner::{Owner, failed};
use super::server::Server;
use crate::health::Counters;
use crate::{Code, Error, Health, Repeat, Result};

/// Between attempts to own or to attach.
const RETRY: Duration = Duration::from_millis(5);
/// After an attempt that failed for a reason time alone does not cure.
const RETRY_FAILED: Duration = Duration::from_secs(1);

pub(super) const LOST: &str = "the owner of the data folder ended before it answered";

/// What a store is at the moment.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    /// It owns the data.
    Owner,
    /// Another process does.
    Attached(Arc<Link>),
    /// Nobody does, as far as is known.
    Between,
    /// It can be neither, for this reason; tried again.
    Failed(Code, String),
    /// It is closed.
    Closed,
}

/// Where a call goes.
#[derive(Debug)]
pub(super) enum Backend {
    Owner(Arc<Owner>),
    Link(Arc<Link>),
}

/// The state every part of a store shares.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) options: EmbeddedOptions,
    pub(super) counters: Counters,
    dir: Option<Box<Path>>,
    owner: ArcSwapOption<Owner>,
    server: Mutex<Option<Server>>,
    phase: watch::Sender<Phase>,
}

impl Keeper {
    /// Keeps a store that is in memory only.
    pub(super) fn memory(options: EmbeddedOptions) -> Result<Arc<Self>> {
        let owner = Owner::memory(&options)?;
        let keeper = Self::new(options, None);
        keeper.owner.store(Some(Arc::new(owner)));
        keeper.phase.send_replace(Phase::Owner);
        Ok(Arc::new(keeper))
    }

    /// Owns `dir` or attaches to its owner, and takes over when that one goes.
    pub(super) async fn open(dir: &Path, options: EmbeddedOptions) -> Result<Arc<Self>> {
        let deadline = Instant::now() + options.open_wait;
        let keeper = Arc::new(Self::new(options, Some(Box::from(dir))));
        loop {
            if keeper.try_once(dir).await? {
                break;
            }
            if Instant::now() >= deadline {
                let detail = format!("the owner of {} holds its lock and does not answer", dir.display());
                return Err(Error::new("store.open", Code::StoreTimedOut, detail));
            }
            sleep(pause(RETRY)).await;
        }
        let watching = Arc::downgrade(&keeper);
        let mut phases = keeper.phase.subscribe();
        // Holds the store only while it works on it: a store that is dropped ends this task.
        tokio::spawn(async move {
            loop {
                let phase = phases.borrow_and_update().clone();
                match phase {
                    Phase::Closed => return,
                    Phase::Attached(link) => {
                        tokio::select! {
                            () = link.ended() => {}
                            () = closed(&mut phases) => return,
                        }
                        drop(link);
                        let Some(keeper) = watching.upgrade() else { return };
                        info!("the owner of the data folder is gone");
                        keeper.change(Phase::Between);
                    }
                    Phase::Between | Phase::Failed(..) => {
                        let Some(keeper) = watching.upgrade() else { return };
                        let wait = keeper.try_again().await;
                        drop(keeper);
                        sleep(wait).await;
                    }
                    Phase::Owner => {
                        let owner = watching.upgrade().and_then(|keeper| keeper.owner());
                        let failure = owner.and_then(|owner| owner.failure());
                        tokio::select! {
                            changed = phases.changed() => if changed.is_err() { return },
                            () = failed(failure) => {
                                let Some(keeper) = watching.upgrade() else { return };
                                keeper.give_up().await;
                                drop(keeper);
                                sleep(RETRY_FAILED).await;
                            }
                        }
                    }
                }
            }
        });
        Ok(keeper)
    }

    fn new(options: EmbeddedOptions, dir: Option<Box<Path>>) -> Self {
        let (phase, _) = watch::channel(Phase::Between);
        Self {
            options,
            counters: Counters::default(),
            dir,
            owner: ArcSwapOption::empty(),
            server: Mutex::new(None),
            phase,
        }
    }

    async fn try_again(self: &Arc<Self>) -> Duration {
        let Some(dir) = &self.dir else { return RETRY_FAILED };
        match self.try_once(dir).await {
            Ok(true) => Duration::ZERO,
            Ok(false) => pause(RETRY),
            Err(error) => {
                warn!(%error, "the data folder can be neither opened nor attached to");
                self.change(Phase::Failed(error.code, error.detail));
                RETRY_FAILED
            }
        }
    }

    /// Tries to own or to attach, once; false when somebody else is on the way to own the folder.
    async fn try_once(self: &Arc<Self>, dir: &Path) -> Result<bool> {
        self.counters.connect_attempt();
        let tried = self.try_to_own(dir).await;
        let tried = match tried {
            Ok(false) => match Link::attach(dir, self.options.deadline).await {
                Ok(Attach::Attached(link)) => {
                    self.change(Phase::Attached(link));
                    Ok(true)
                }
                Ok(Attach::Nobody) => Ok(false),
                Err(error) => Err(error),
            },
            tried => tried,
        };
        if !matches!(tried, Ok(true)) {
            self.counters.connect_failure();
        }
        tried
    }

    async fn try_to_own(self: &Arc<Self>, dir: &Path) -> Result<bool> {
        folder::check(dir)?;
        let Some(lock) = Lock::try_take(dir)? else { return Ok(false) };
        let (folder, options) = (dir.to_owned(), self.options.clone());
        let opened = tokio::task::spawn_blocking(move || Owner::open(&folder, lock, &options)).await;
        let owner = opened.unwrap_or_else(|error| {
            Err(Error::new("store.open", Code::Internal, "opening the data folder failed").because(error))
        })?;
        let owner = Arc::new(owner);
        let server = Server::start(dir, &owner, self.options.deadline)?;
        // Closed meanwhile: the owner is dropped here and the folder is free again.
        self.phase.send_if_modified(|phase| {
            if matches!(phase, Phase::Closed) {
                return false;
            }
            *self.server.lock() = Some(server);
            self.owner.store(Some(owner));
            *phase = Phase::Owner;
            true
        });
        Ok(true)
    }

    /// Ends an owner that cannot go on, so that the folder can be opened again, here or elsewhere.
    async fn give_up(&self) {
        let Some(error) = self.owner().and_then(|owner| owner.check().err()) else { return };
        let mut ended = None;
        self.phase.send_if_modified(|phase| {
            if matches!(phase, Phase::Closed) {
                return false;
            }
            ended = Some((self.server.lock().take(), self.owner.swap(None)));
            *phase = Phase::Failed(error.code, error.detail);
            true
        });
        let Some((server, owner)) = ended else { return };
        if let Some(server) = server {
            // Those attached hear what became of their calls, and try to own the folder themselves.
            server.close(self.options.deadline).await;
        }
        let Some(owner) = owner else { return };
        if let Ok(owner) = self.alone(owner).await {
            // It says in the log what it could not make safe; closing the files takes a while.
            let _ = tokio::task::spawn_blocking(move || drop(owner)).await;
        }
    }

    /// The owner once no call uses it any more; it is given up with the last call if that takes too long.
    async fn alone(&self, mut owner: Arc<Owner>) -> Result<Owner> {
        let deadline = Instant::now() + self.options.deadline;
        loop {
            match Arc::try_unwrap(owner) {
                Ok(owner) => return Ok(owner),
                Err(shared) if Instant::now() < deadline => {
                    owner = shared;
                    sleep(Duration::from_millis(1)).await;
                }
                Err(_) => {
                    let detail = "calls under way did not end in time; the folder is given up when they do";
                    return Err(Error::new("store.close", Code::StoreTimedOut, detail));
                }
            }
        }
    }

    fn change(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            if matches!(phase, Phase::Closed) {
                return false;
            }
            *phase = to;
            true
        });
    }

    /// The owner, when it is this process.
    pub(super) fn owner(&self) -> Option<Arc<Owner>> {
        self.owner.load_full()
    }

    /// The link to the owner, when it is another process.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        match &*self.phase.borrow() {
            Phase::Attached(link) => Some(Arc::clone(link)),
            _ => None,
        }
    }

    /// Where to send a call: at once, or when there is an owner again.
    pub(super) async fn backend(&self, op: &'static str, deadline: Instant) -> Result<Backend> {
        let mut phases = self.phase.subscribe();
        loop {
            let phase = phases.borrow_and_update().clone();
            match phase {
                Phase::Owner => {
                    if let Some(owner) = self.owner() {
                        return Ok(Backend::Owner(owner));
                    }
                }
                Phase::Attached(link) if !link.is_ended() => return Ok(Backend::Link(link)),
                Phase::Attached(_) | Phase::Between => {}
                Phase::Failed(code, detail) => return Err(Error::new(op, code, detail)),
                Phase::Closed => return Err(Error::new(op, Code::StoreRefused, "the store is closed")),
            }
            match timeout_at(deadline, phases.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Error::new(op, Code::StoreRefused, "the store is closed")),
                Err(_) => {
                    let detail = "the data folder has no owner yet";
                    return Err(Error::new(op, Code::StoreRefused, detail));
                }
            }
        }
    }

    /// Whether a call that has no answer is made again; the error otherwise.
    pub(super) async fn again(&self, op: &'static str, miss: Miss, repeat: Repeat) -> Result<()> {
        let error = match (miss, repeat) {
            (Miss::NotSent, _) | (Miss::Lost, Repeat::Safe) => {
                self.counters.retry();
                // Whoever is to find the next owner must get to run, however often this is tried.
                tokio::task::yield_now().await;
                return Ok(());
            }
            (Miss::Lost, Repeat::Never) => Error::new(op, Code::StoreLost, LOST),
            (Miss::TimedOut, _) => {
                let detail = format!("the owner did not answer within {:?}", self.options.deadline);
                Error::new(op, Code::StoreTimedOut, detail)
            }
            (Miss::TooLarge, _) => {
                Error::new(op, Code::RequestTooLarge, "a call to an attached store carries at most 64 MiB")
            }
        };
        Err(error)
    }

    /// Resolves when the phase changes or the store is gone.
    pub(super) fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub(super) fn health(&self) -> Health {
        let mut health = self.counters.snapshot();
        match self.owner() {
            Some(owner) => {
                health.connected = owner.check().is_ok();
                health.clock_offset_us = owner.clock_offset_us();
            }
            None => {
                if let Some(link) = self.link() {
                    health.connected = !link.is_ended();
                    (health.clock_offset_us, health.clock_error_us) = link.clock();
                }
            }
        }
        health
    }

    /// Ends: calls under way are finished, everything is made durable, the folder is given up.
    pub(super) async fn close(&self) -> Result<()> {
        self.phase.send_replace(Phase::Closed);
        let server = self.server.lock().take();
        if let Some(server) = server {
            server.close(self.options.deadline).await;
        }
        let Some(owner) = self.owner.swap(None) else { return Ok(()) };
        let mut owner = self.alone(owner).await?;
        let finished = tokio::task::spawn_blocking(move || owner.finish()).await;
        finished.unwrap_or_else(|error| {
            Err(Error::new("store.close", Code::Internal, "closing the data folder failed").because(error))
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Closed);
    }
}

/// Resolves when the store is closed or gone.
pub(super) async fn closed(phases: &mut watch::Receiver<Phase>) {
    let _ = phases.wait_for(|phase| matches!(phase, Phase::Closed)).await;
}

/// A wait that differs from process to process, so that they do not all try at once.
fn pause(base: Duration) -> Duration {
    base.mul_f64(1.0 + fastrand::f64())
}
