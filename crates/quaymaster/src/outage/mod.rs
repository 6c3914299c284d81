//! What is answered while the store cannot be asked: the policy each resource declares.
//!
//! | file | what it knows |
//! |---|---|
//! | `mod` | which errors mean "cannot be asked", who answered by policy and how often |
//! | `pending` | what was counted without the store, by the window it belongs to. No I/O |
//! | `local` | this node's share, counted in process by the same scripts |
//! | `database` | a limit all nodes share, counted in SQL |
//! | `carry` | brings what was counted back into the store, once |
//!
//! A primitive asks [`Outages::excuse`] when its call failed, and answers by the policy it gets. Limits that
//! go on counting (`local`, `database`) do so in `limit/outage.rs`.

mod carry;
mod database;
mod local;
mod pending;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quaymaster_schema::{Kind, LimitSpec, Outage, Resource, Schema};
use quaymaster_store::Engine;

pub use carry::Uncarried;
pub use database::DatabaseOptions;

pub(crate) use carry::Place;
pub(crate) use database::{Counting, Database};
pub(crate) use local::{Effect, Local};

use crate::{Code, Error};

/// How often a resource that answers by policy is warned about.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// Whether an error means that the store could not be asked: the connection, its framing or handshake, or the store's
/// own refusal. A store that was asked wrongly, or whose answer somebody must look at, is no outage.
pub(crate) fn is_outage(code: Code) -> bool {
    match code {
        Code::StoreRefused
        | Code::StoreTimedOut
        | Code::StoreLost
        | Code::StoreBreaker
        | Code::StoreAuth
        | Code::StorePermission
        | Code::StoreReadOnly
        | Code::StoreLoading
        | Code::StoreBusy
        | Code::StoreMisconf
        | Code::StoreReplicas
        | Code::StoreOom
        | Code::StoreClusterDown
        | Code::StoreTls
        | Code::StoreDisk
        | Code::StoreFolder
        | Code::StoreProtocol => true,
        // The store was asked: its clock cannot be followed, its keys never stand still, or its reply is not
        // understood; or it must not be used as it is.
        Code::StoreClock
        | Code::StoreContended
        | Code::StoreReply
        | Code::StoreCrossSlot
        | Code::StoreUnsafe
        | Code::StoreVersion
        | Code::StoreCorrupt => false,
        _ => false,
    }
}

/// Answers given by policy, by resource, and what was counted without the store.
#[derive(Debug)]
pub struct Outages {
    tallies: HashMap<(Kind, String), Tally>,
    /// Every limit by name: whoever brings counts back needs its numbers.
    limits: HashMap<String, Arc<Resource>>,
    engine: Arc<dyn Engine>,
    pub(crate) local: Local,
    pub(crate) database: Option<Database>,
    keeper: carry::Keeper,
    /// Held by whoever brings back all that this node counted.
    carrying: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Tally {
    policy: Outage,
    answers: AtomicU64,
    warned: Mutex<Option<Instant>>,
}

impl Outages {
    pub(crate) fn new(
        schema: &Schema,
        engine: Arc<dyn Engine>,
        nodes: Option<NonZeroU32>,
        database: Option<DatabaseOptions>,
    ) -> Arc<Self> {
        let tally = |resource: &Resource| Tally {
            policy: resource.on_outage,
            answers: AtomicU64::new(0),
            warned: Mutex::new(None),
        };
        let limits: HashMap<String, Arc<Resource>> = schema
            .resources()
            .filter(|resource| resource.kind == Kind::Limit)
            .map(|resource| (resource.name.clone(), resource.clone()))
            .collect();
        // Rows are looked for only where a limit of ours may have written them.
        let uses_database = limits.values().any(|limit| limit.on_outage == Outage::Database);
        let outages = Arc::new_cyclic(|weak: &Weak<Self>| Self {
            tallies: schema
                .resources()
                .map(|resource| ((resource.kind, resource.name.clone()), tally(resource)))
                .collect(),
            limits,
            engine,
            local: Local::new(nodes.map_or(1, NonZeroU32::get)),
            database: database.map(Database::new),
            keeper: carry::Keeper::new(weak.clone()),
            carrying: tokio::sync::Mutex::default(),
        });
        if uses_database && outages.database.is_some() {
            outages.keeper.start();
        }
        outages
    }

    /// The policy under which `resource` answers although the store said `error`; `None` when the error must be
    /// told. Counts the answer and warns, at most once a second for a resource.
    pub(crate) fn excuse(&self, resource: &Resource, error: &Error) -> Option<Outage> {
        let policy = self.policy(resource, error)?;
        self.answered(resource, error);
        Some(policy)
    }

    /// The same, before it is known whether the policy can give an answer.
    pub(crate) fn policy(&self, resource: &Resource, error: &Error) -> Option<Outage> {
        if !is_outage(error.code) {
            return None;
        }
        if matches!(resource.on_outage, Outage::Deny | Outage::Error) {
            if let Some(tally) = self.tally(resource) {
                tally.answers.fetch_add(1, Relaxed);
            }
            return None;
        }
        Some(resource.on_outage)
    }

    /// An answer was given although the store said `error`.
    pub(crate) fn answered(&self, resource: &Resource, error: &Error) {
        let Some(tally) = self.tally(resource) else { return };
        let answers = tally.answers.fetch_add(1, Relaxed) + 1;
        let mut warned = tally.warned.lock();
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            let resource = format!("{}.{}", resource.kind.name(), resource.name);
            tracing::warn!(
                resource,
                policy = tally.policy.name(),
                code = error.code.name(),
                answers,
                "the store cannot be asked; answering by policy: {}",
                error.detail
            );
        }
    }

    fn tally(&self, resource: &Resource) -> Option<&Tally> {
        self.tallies.get(&(resource.kind, resource.name.clone()))
    }

    /// Answers given by policy since the process started: kind, name, policy and how many. Those of `deny` and
    /// `error` are the errors themselves.
    pub fn counts(&self) -> impl Iterator<Item = (Kind, &str, Outage, u64)> {
        self.tallies
            .iter()
            .map(|((kind, name), tally)| (*kind, name.as_str(), tally.policy, tally.answers.load(Relaxed)))
    }

    /// Nodes among which a limit is divided under `local`.
    pub fn nodes(&self) -> u32 {
        self.local.nodes()
    }

    /// Whether there is a database for `on_outage = "database"`.
    pub fn has_database(&self) -> bool {
        self.database.is_some()
    }

    /// `work` within the one deadline that a call on the store has, however many questions `work` asks. It must be
    /// safe to be left in the middle: like a call whose reply never came.
    pub(crate) async fn in_one_deadline<T>(
        &self,
        op: &'static str,
        work: impl Future<Output = crate::Result<T>>,
    ) -> crate::Result<T> {
        let deadline = self.engine.deadline();
        tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| {
            let detail = format!("the store did not take what waited for it and answer within {deadline:?}");
            Err(Error::new(op, Code::StoreTimedOut, detail))
        })
    }

    fn limit(&self, name: &str) -> Option<&LimitSpec> {
        self.limits.get(name)?.as_limit()
    }
}
