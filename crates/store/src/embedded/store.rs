//! The store as others see it: the same calls whether this process owns the data or is attached to it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::time::Instant;

use super::clock::machine_us;
use super::folder;
use super::keeper::{Backend, Keeper, LOST};
use super::link::Miss;
use super::options::EmbeddedOptions;
use super::subscription;
use super::vm::ScriptRef;
use super::wire::{Answer, Request};
use crate::{
    Code, Deployment, Engine, Error, Health, Invocation, KeyFacts, Message, Readiness, Repeat, Reply, Result,
    Retry, ScanCursor, ScanPage, Topology,
};

/// A store in this process, in memory or on disk, alone or together with other processes.
///
/// Needs a tokio runtime that lives as long as it does. On a multi-threaded one a commit blocks the thread
/// of the call that makes it and lets the others go on.
#[derive(Debug)]
pub struct EmbeddedStore {
    keeper: Arc<Keeper>,
}

impl EmbeddedStore {
    /// A store without a disk: what it holds ends with it.
    #[expect(clippy::unused_async, reason = "the same shape as `open`, and free to start tasks")]
    pub async fn memory(options: EmbeddedOptions) -> Result<Self> {
        Ok(Self { keeper: Keeper::memory(options)? })
    }

    /// The store in the folder `dir`, made if it is not there. The first process to open it owns it; others
    /// of the same user attach to that one, and one of them takes over when it ends.
    pub async fn open(dir: &Path, options: EmbeddedOptions) -> Result<Self> {
        let dir = folder::make(dir)?;
        Ok(Self { keeper: Keeper::open(&dir, options).await? })
    }

    /// Puts a known defect into the data model, or takes it out; nothing when another process owns the data.
    #[cfg(feature = "seeded-bugs")]
    #[doc(hidden)]
    pub fn seed_bug(&self, bug: Option<super::Bug>) {
        if let Some(owner) = self.keeper.owner() {
            owner.seed_bug(bug);
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.keeper.options.deadline
    }

    async fn run_call(&self, call: Invocation) -> Result<Reply> {
        let script = ScriptRef { id: call.script.id, sha: call.script.sha, source: call.script.source };
        if let Some(owner) = self.keeper.owner() {
            return owner.run(script, &call.keys, &call.args, self.keeper.options.deadline).await;
        }
        let op = call.script.id;
        let deadline = self.deadline();
        let Invocation { script: text, keys, args, repeat, .. } = call;
        let sha = Bytes::from_static(text.sha.as_bytes());
        let mut request = Request::Run { sha, keys, args };
        // Whether an owner that is gone may have run it.
        let mut doubt = false;
        loop {
            let told = |error| told(op, error, doubt);
            let link = match self.keeper.backend(op, deadline).await.map_err(told)? {
                Backend::Link(link) => link,
                Backend::Owner(owner) => {
                    let (Request::Run { keys, args, .. } | Request::RunSource { keys, args, .. }) = &request
                    else {
                        return Err(unexpected(op));
                    };
                    let left = deadline.saturating_duration_since(Instant::now());
                    return owner.run(script, keys, args, left).await.map_err(told);
                }
            };
            match link.call(&request, deadline).await {
                Ok(Answer::Reply(reply)) => return Ok(reply),
                Ok(Answer::WantSource) => {
                    let Request::Run { keys, args, .. } = request else { return Err(unexpected(op)) };
                    let (id, source) =
                        (Bytes::from_static(op.as_bytes()), Bytes::from_static(text.source.as_bytes()));
                    request = Request::RunSource { id, source, keys, args };
                }
                Ok(Answer::Failed(failure)) => return Err(told(failure.into_error(op))),
                Ok(_) => return Err(unexpected(op)),
                Err(miss) => {
                    self.keeper.again(op, miss, repeat).await.map_err(told)?;
                    doubt |= miss == Miss::Lost;
                }
            }
        }
    }

    /// Asks the owner, again if it goes before it answers: questions change nothing.
    async fn ask<T>(&self, op: &'static str, request: Request, read: fn(Answer) -> Option<T>) -> Result<T> {
        let deadline = self.deadline();
        take_turns().await;
        loop {
            let answer = match self.keeper.backend(op, deadline).await? {
                Backend::Owner(owner) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    owner.ask(&request, left).await.map_err(|error| error.during(op))?
                }
                Backend::Link(link) => match link.call(&request, deadline).await {
                    Ok(Answer::Deployment(facts)) => {
                        Answer::Deployment(Deployment { mode: "attached".to_owned(), ..facts })
                    }
                    Ok(answer) => answer,
                    Err(miss) => {
                        self.keeper.again(op, miss, Repeat::Safe).await?;
                        continue;
                    }
                },
            };
            return match answer {
                Answer::Failed(failure) => Err(failure.into_error(op)),
                answer => read(answer).ok_or_else(|| unexpected(op)),
            };
        }
    }

    async fn wait(&self, key: &[u8], limit: Duration) -> Result<bool> {
        let op = "store.wait_for_item";
        let end = Instant::now() + limit;
        let key_bytes = Bytes::copy_from_slice(key);
        take_turns().await;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // Even a wait of no length is asked once; the answer may take as long as any call.
            match self.keeper.backend(op, end.max(self.deadline())).await? {
                Backend::Owner(owner) => {
                    return owner.wait_for_item(key, left).await.map_err(|error| error.during(op));
                }
                Backend::Link(link) => {
                    let limit_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                    let request = Request::Wait { key: key_bytes.clone(), limit_ms };
                    match link.call(&request, Instant::now() + left + self.keeper.options.deadline).await {
                        Ok(Answer::Found(found)) => return Ok(found),
                        Ok(Answer::Failed(failure)) => return Err(failure.into_error(op)),
                        Ok(_) => return Err(unexpected(op)),
                        Err(miss) => self.keeper.again(op, miss, Repeat::Safe).await?,
                    }
                }
            }
        }
    }
}

/// Most calls of an owner are over without waiting for anything. A task that makes one after another would
/// keep its thread from everybody else, so now and then it gives way, before anything has happened.
async fn take_turns() {
    tokio::task::consume_budget().await;
}

fn unexpected(op: &'static str) -> Error {
    Error::new(op, Code::StoreProtocol, "the owner answered something else")
}

/// The error the caller hears: a call that an earlier owner may have run is not reported as one that did not run.
fn told(op: &'static str, error: Error, doubt: bool) -> Error {
    if !doubt || error.code.retry() == Retry::Useless {
        let may_have_run = doubt || error.may_have_run;
        return error.ran(may_have_run);
    }
    let detail = format!("{LOST}; then {}", error.detail);
    Error { detail, ..Error::new(op, Code::StoreLost, "") }
}

/// Whether an error is the store's and not the caller's.
fn is_ours(error: &Error) -> bool {
    error.code.is_store()
}

impl Engine for EmbeddedStore {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        Box::pin(async move {
            let (op, class, started) = (call.script.id, call.class, std::time::Instant::now());
            take_turns().await;
            let outcome = self.run_call(call).await;
            match &outcome {
                Err(error) if is_ours(error) => self.keeper.counters.failure(class, error.code, started),
                _ => self.keeper.counters.success(class, started),
            }
            outcome.map_err(|error| error.during(op))
        })
    }

    fn time_us(&self) -> BoxFuture<'_, Result<i64>> {
        Box::pin(async move {
            let started = Instant::now();
            let read = |answer| match answer {
                Answer::Time(us) => Some(us),
                _ => None,
            };
            let time = self.ask("store.time", Request::Time, read).await?;
            if let Some(link) = self.keeper.link() {
                link.measured(time, started.elapsed());
            }
            Ok(time)
        })
    }

    fn now_us(&self) -> i64 {
        match self.keeper.owner() {
            Some(owner) => owner.now_us(),
            None => self.keeper.link().map_or_else(machine_us, |link| link.now_us()),
        }
    }

    fn deadline(&self) -> Duration {
        self.keeper.options.deadline
    }

    fn topology(&self) -> Topology {
        Topology::Single
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8]) -> BoxFuture<'a, Result<BoxStream<'static, Message>>> {
        Box::pin(subscription::listen(&self.keeper, Bytes::copy_from_slice(channel)))
    }

    fn wait_for_item<'a>(&'a self, key: &'a [u8], limit: Duration) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.wait(key, limit))
    }

    fn key_facts<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyFacts>>> {
        let request = Request::Facts { key: Bytes::copy_from_slice(key) };
        Box::pin(self.ask("store.key_facts", request, |answer| match answer {
            Answer::Facts(facts) => Some(facts),
            _ => None,
        }))
    }

    fn scan<'a>(
        &'a self,
        pattern: &'a [u8],
        count: usize,
        cursor: Option<ScanCursor>,
    ) -> BoxFuture<'a, Result<ScanPage>> {
        let pattern = Bytes::copy_from_slice(pattern);
        let cursor = cursor.map(|cursor| Bytes::from(cursor.0));
        let request = Request::Scan { pattern, count: count as u64, cursor };
        Box::pin(self.ask("store.scan", request, |answer| match answer {
            Answer::Page(page) => Some(page),
            _ => None,
        }))
    }

    fn health(&self) -> Health {
        self.keeper.health()
    }

    fn deployment(&self) -> BoxFuture<'_, Result<Deployment>> {
        Box::pin(self.ask("store.deployment", Request::Deployment, |answer| match answer {
            Answer::Deployment(facts) => Some(facts),
            _ => None,
        }))
    }

    fn ready(&self, patience: Duration) -> BoxFuture<'_, Result<Readiness>> {
        let asked = self.ask("store.ready", Request::Ready, |answer| match answer {
            Answer::Done => Some(Readiness::default()),
            _ => None,
        });
        Box::pin(async move {
            tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| {
                let detail = format!("the store said nothing for {} ms", patience.as_millis());
                Err(Error::new("store.ready", Code::StoreTimedOut, detail))
            })
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.keeper.close())
    }
}
