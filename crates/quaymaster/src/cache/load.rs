//! `get_or_load`: of all callers in all processes one loads, the others wait for it.
//!
//! In one process callers of the same entry join one flight, a task of its own: a caller that goes away takes
//! nothing from the others. Flights of several processes meet in the store: one holds the load's lease and
//! renews it while its loader runs, the others wait until it ends. A loader that fails, panics or takes too
//! long gives the lease back; one whose process died keeps it to its end; then the next flight loads.

use std::any::Any;
use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use quaymaster_schema::Outage;
use tokio::task::JoinError;
use tokio::time::Instant;

use super::answer::{self, Told};
use super::counts::Ended;
use super::{Cache, Fetched, Value, keys, ops, value};
use crate::bound::Key;
use crate::wake::Wake;
use crate::{Code, Error, Token};

/// How often a caller that joined a load starts over because the entry was put or deleted meanwhile.
const TRIES: usize = 3;

/// The longest lease: a key's TTL in the schema says so.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// A waiter asks again at least this often, whatever hints it gets.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How a value is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// How long what was loaded lives; at most what the schema declares, which is also the default.
    pub ttl: Option<Duration>,
    /// How long others wait for a process that died while loading, at most a minute. Renewed as long as the
    /// loader runs.
    pub lease: Duration,
    /// How long the loader may take, and how long a caller waits for somebody else's.
    pub patience: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Self { ttl: None, lease: Duration::from_secs(5), patience: Duration::from_secs(30) }
    }
}

/// Why there is no value.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadError {
    /// The loader's own error; everybody who waited for it in this process has it.
    #[error("the loader failed: {0}")]
    Failed(Arc<dyn StdError + Send + Sync>),
    /// The loader panicked.
    #[error("the loader panicked: {0}")]
    Panicked(Arc<str>),
    /// The loader, or somebody else's that was waited for, took longer than the patience.
    #[error("nothing was loaded within {0:?}")]
    TimedOut(Duration),
    /// The cache could not be asked, or was asked wrongly.
    #[error(transparent)]
    Store(Arc<Error>),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// What `get_or_load` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// What was cached, or loaded.
    pub value: Value,
    /// The policy it was loaded under, when the store could not be asked or could not keep it.
    pub outage: Option<Outage>,
}

/// A value, and whether it holds for whoever joined late.
#[derive(Debug, Clone)]
struct Landed {
    value: Value,
    outage: Option<Outage>,
    /// False when the entry was put or deleted while it was loaded: good for who asked before, not after.
    current: bool,
}

type Outcome = Result<Landed, LoadError>;
type Loader = Box<dyn FnOnce() -> BoxFuture<'static, Result<Value, Arc<dyn StdError + Send + Sync>>> + Send>;
type Flight = Shared<BoxFuture<'static, Outcome>>;

/// Loads of this process, by the entry's key.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Vec<u8>, Flight>>);

/// Takes a flight off the board however it ends.
struct Landing {
    flights: Arc<Flights>,
    key: Vec<u8>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.flights.0.lock().remove(&self.key);
    }
}

/// Whether a caller started the flight or found it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Leads,
    Joins,
}

impl Cache {
    /// The value; or what `loader` says it is, loaded by one caller for all, over all processes.
    ///
    /// The loader runs in a task of its own. What it loaded is kept unless the entry was put or deleted
    /// meanwhile. While the store is away and the policy is `miss`, every process loads for itself.
    pub async fn get_or_load<F, Fut, E>(
        &self,
        key: Key<'_>,
        load: Load,
        loader: F,
    ) -> Result<Loaded, LoadError>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<Value, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.ttl(ops::LOAD, load.ttl)?;
        if load.lease.as_millis() == 0 || load.lease > LONGEST_LEASE {
            let what = format!("lease must be from 1 ms to {} s", LONGEST_LEASE.as_secs());
            return Err(Error::new(ops::LOAD, Code::RequestInvalid, what).field("lease").into());
        }
        let loader: Loader = Box::new(|| {
            let loading = async { loader().await.map_err(|error| Arc::from(error.into())) };
            loading.boxed()
        });
        let mut loader = Some(loader);
        for attempt in 1.. {
            if let Fetched::Hit(value) = self.get(key).await? {
                return Ok(Loaded { value, outage: None });
            }
            let (flight, role) = self.board(key, load, &mut loader)?;
            if role == Role::Joins {
                self.counts.join();
            }
            let landed = flight.await?;
            if landed.current || role == Role::Leads || attempt == TRIES {
                return Ok(Loaded { value: landed.value, outage: landed.outage });
            }
        }
        Err(Error::new(ops::LOAD, Code::Internal, "the attempts ran out of numbers").into())
    }

    /// Joins the flight of this entry, or starts it.
    fn board(
        &self,
        key: Key<'_>,
        load: Load,
        loader: &mut Option<Loader>,
    ) -> Result<(Flight, Role), LoadError> {
        let at = self.rendered(key)?;
        let mut flights = self.flights.0.lock();
        let Some(loader) = (match flights.get(&at) {
            Some(flight) => return Ok((flight.clone(), Role::Joins)),
            None => loader.take(),
        }) else {
            return Err(Error::new(ops::LOAD, Code::Internal, "the loader is gone").into());
        };
        let landing = Landing { flights: self.flights.clone(), key: at.clone() };
        let key = key.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let task = tokio::spawn(fly(self.clone(), key, load, loader, landing));
        let flight = task.map(|ended| ended.unwrap_or_else(|error| Err(stopped(error)))).boxed().shared();
        flights.insert(at, flight.clone());
        Ok((flight, Role::Leads))
    }

    fn rendered(&self, key: Key<'_>) -> Result<Vec<u8>, Error> {
        let mut words = quaymaster_store::Words::default();
        self.bound.bind(ops::LOAD, key, self.bound.engine.now_us(), &mut words)?;
        Ok(words.word(0).unwrap_or_default().to_vec())
    }
}

/// One flight: found in the store, loaded, or waited for.
async fn fly(
    cache: Cache,
    key: Vec<(String, String)>,
    load: Load,
    loader: Loader,
    landing: Landing,
) -> Outcome {
    let key: Vec<(&str, &str)> = key.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let outcome = find_or_load(&cache, &key, load, loader).await;
    if outcome.is_err() {
        cache.counts.load(Ended::Failed);
    }
    drop(landing);
    outcome
}

async fn find_or_load(cache: &Cache, key: Key<'_>, load: Load, loader: Loader) -> Outcome {
    let entry = cache.entry(key);
    let token = Token::random();
    let until = Instant::now() + load.patience;
    let channel = keys::channel(ops::LOAD, &cache.bound, key)?;
    let mut wake: Option<Wake> = None;
    loop {
        let told = match cache.run(ops::LOAD, ops::load(entry, &token, load.lease)?).await {
            Ok(told) => told,
            Err(error) => {
                let outage = cache.bound.shared.outages.excuse(&cache.bound.resource, &error);
                if outage.is_none() {
                    return Err(error.into());
                }
                // Nothing can be shared with other processes; within this one it is.
                let value = within(load.patience, tokio::spawn(loader())).await?;
                value::check(ops::LOAD, cache.spec.holds, &value)?;
                cache.counts.load(Ended::Lost);
                return Ok(Landed { value, outage, current: true });
            }
        };
        let remaining = match answer::loading(ops::LOAD, cache.spec.holds, told)? {
            Told::Hit(held) => {
                if let Some(value) = cache.read(ops::LOAD, entry, held)? {
                    return Ok(Landed { value, outage: None, current: true });
                }
                // Not believed: it is removed, so that one of those who want the value can claim the load.
                if Instant::now() >= until {
                    return Err(LoadError::TimedOut(load.patience));
                }
                let _ = cache.delete(key, None).await?;
                continue;
            }
            Told::Load => return load_and_fill(cache, entry, &token, load, loader).await,
            Told::Wait(remaining) => remaining,
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LoadError::TimedOut(load.patience));
        }
        let pause = remaining.min(ASK_AGAIN).min(left);
        match &mut wake {
            Some(wake) => drop(wake.wait(pause).await),
            None => match Wake::on(&*cache.bound.engine, &channel).await {
                // Asked once more after listening: it may have ended in between.
                Ok(listening) => wake = Some(listening),
                // Whether the store is away, and what then, the next question finds out.
                Err(_) => tokio::time::sleep(pause).await,
            },
        }
    }
}

/// Loads under the lease, renewing it, and keeps the value unless the lease was lost.
async fn load_and_fill(
    cache: &Cache,
    entry: ops::Entry<'_>,
    token: &Token,
    load: Load,
    loader: Loader,
) -> Outcome {
    let loaded = {
        let renewing = async {
            loop {
                tokio::time::sleep(load.lease / 3).await;
                // A renewal that fails costs nothing yet: keeping the value asks for the lease once more.
                if let Ok(call) = ops::renew(entry, token, load.lease) {
                    let _ = cache.bound.run(ops::RENEW, call).await;
                }
            }
        };
        tokio::select! {
            loaded = within(load.patience, tokio::spawn(loader())) => loaded,
            () = renewing => Err(LoadError::TimedOut(load.patience)),
        }
    };
    let fill = loaded.and_then(|value| {
        value::check(ops::FILL, cache.spec.holds, &value)?;
        let call = ops::fill(entry, token, &value, cache.ttl(ops::FILL, load.ttl)?)?;
        Ok((value, call))
    });
    let (value, call) = match fill {
        Ok(fill) => fill,
        Err(error) => {
            // Whoever waits may load now; if the store cannot be told, the lease's end tells them.
            let _ = cache.run(ops::LEAVE, ops::leave(entry, token)?).await;
            return Err(error);
        }
    };
    let mut outage = None;
    let filled = cache.run(ops::FILL, call).await;
    let kept = match filled.and_then(|told| answer::filled(ops::FILL, cache.spec.holds, told)) {
        Ok(kept) => kept,
        // The value is good; that it could not be kept is the cache's loss, not the caller's.
        Err(error) => {
            tracing::debug!(cache = cache.name(), code = %error.code, "what was loaded was not kept: {}", error.detail);
            if cache.bound.resource.on_outage == Outage::Miss {
                outage = cache.bound.shared.outages.excuse(&cache.bound.resource, &error);
            }
            false
        }
    };
    cache.counts.load(if kept { Ended::Kept } else { Ended::Lost });
    Ok(Landed { value, outage, current: kept })
}

/// Waits for the loader's task, at most `patience`; then ends it.
async fn within(
    patience: Duration,
    mut task: tokio::task::JoinHandle<Result<Value, Arc<dyn StdError + Send + Sync>>>,
) -> Result<Value, LoadError> {
    match tokio::time::timeout(patience, &mut task).await {
        Ok(Ok(Ok(value))) => Ok(value),
        Ok(Ok(Err(error))) => Err(LoadError::Failed(error)),
        Ok(Err(error)) => Err(stopped(error)),
        Err(_) => {
            task.abort();
            Err(LoadError::TimedOut(patience))
        }
    }
}

fn stopped(error: JoinError) -> LoadError {
    let text = |panic: Box<dyn Any + Send>| -> Arc<str> {
        let known = panic.downcast_ref::<&str>().copied();
        known.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").into()
    };
    match error.try_into_panic() {
        Ok(panic) => LoadError::Panicked(text(panic)),
        Err(error) => LoadError::Failed(Arc::new(error)),
    }
}
