//! Looks at the store in the background, seldom enough to cost nothing and never for long.

use std::sync::Mutex as Held;
use std::sync::PoisonError;
use std::time::Duration;

use quaymaster::schema::Schema;
use quaymaster::store::{Deployment, Readiness};
use quaymaster::{Code, Engine, Quaymaster};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::doctor;
use crate::http::problem::Problem;

/// How long what the store said about itself is good for.
const FRESH: Duration = Duration::from_secs(2);
/// How long a question waits for the store.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a write is tried, and how old the last try may be for whoever asks.
const EVERY: Duration = Duration::from_secs(1);
/// How long a try may take.
const TRY: Duration = Duration::from_millis(800);
/// The same for a store that does not keep to it.
const LIMIT: Duration = Duration::from_millis(900);
/// Within this `/readyz`, `/metrics` and `/v1/status` follow the store.
const FOLLOWS: Duration = Duration::from_secs(2);

const _: () = assert!(
    EVERY.as_millis() + LIMIT.as_millis() < FOLLOWS.as_millis() && TRY.as_millis() < LIMIT.as_millis()
);

/// Said when the store answers questions and knows that it cannot serve.
pub(crate) const UNWELL: &str = "the store's last word was a failure";

/// What was last heard about the deployment.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) started: Instant,
    last: Mutex<Option<(Instant, Result<Deployment, Problem>)>>,
    /// When a write was last tried, and what came of it; `None` before the first.
    tried: Held<Option<(Instant, Result<(), Problem>)>>,
    /// Held by whoever tries: many who ask at once cost one try.
    trying: Mutex<()>,
    /// `maxmemory-policy` as last heard.
    policy: Held<Option<String>>,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            last: Mutex::default(),
            tried: Held::default(),
            trying: Mutex::default(),
            policy: Held::default(),
        }
    }
}

impl Probe {
    /// The deployment's facts, at most [`FRESH`] old; a scrape and a page that ask together cost one question.
    pub(crate) async fn deployment(&self, engine: &dyn Engine) -> Result<Deployment, Problem> {
        let mut last = self.last.lock().await;
        if let Some((at, told)) = &*last
            && at.elapsed() < FRESH
            // What was well before says nothing of a store that has failed since.
            && (engine.health().connected || told.is_err())
        {
            return told.clone();
        }
        let told = bounded(engine.deployment()).await;
        *last = Some((Instant::now(), told.clone()));
        told
    }

    /// Tries a write every second until `stop`; tells once that the store was lost, and once that it is back.
    pub(crate) async fn watch(&self, quaymaster: &Quaymaster, stop: &CancellationToken) {
        loop {
            // What it says is kept, and told when it changes.
            let _ = self.tried(quaymaster).await;
            let last = self.tried.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(at, _)| *at);
            let due = last.unwrap_or_else(Instant::now) + EVERY;
            if stop.run_until_cancelled(tokio::time::sleep_until(due)).await.is_none() {
                return;
            }
        }
    }

    /// What the last try said, which is made now if there was none within [`EVERY`].
    async fn tried(&self, quaymaster: &Quaymaster) -> Result<(), Problem> {
        let _trying = self.trying.lock().await;
        let tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match tried {
            Some((at, told)) if at.elapsed() < EVERY => told,
            _ => self.look(quaymaster).await,
        }
    }

    /// One try.
    async fn look(&self, quaymaster: &Quaymaster) -> Result<(), Problem> {
        let engine = quaymaster.engine();
        // Whether it ever was there: opening it has said so otherwise.
        let health = engine.health();
        let never = !health.connected && health.operations == 0;
        let told = within(LIMIT, engine.ready(TRY)).await.map_err(Problem::only_read);
        if let Ok(Readiness { eviction_policy: Some(policy) }) = &told {
            self.heard_policy(quaymaster.schema(), policy);
        }
        let told = told.map(drop);
        let now = (Instant::now(), told.clone());
        let before = self.tried.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        match (before.as_ref().map(|(_, told)| told), &told) {
            (None, Err(_)) if never => {}
            (None | Some(Ok(())), Err(problem)) => {
                let (code, advice) = (problem.code, problem.code.advice());
                tracing::warn!(%code, detail = %problem.detail, "not ready: the store accepts no writes; {advice}");
            }
            (Some(Err(_)), Ok(())) => tracing::info!("ready: the store accepts writes again"),
            (None | Some(Ok(())), Ok(())) | (Some(Err(_)), Err(_)) => {}
        }
        told
    }

    /// Tells when the policy is another one than before: it may be changed while we run.
    fn heard_policy(&self, schema: &Schema, policy: &str) {
        let before = {
            let mut known = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
            if known.as_deref() == Some(policy) {
                return;
            }
            known.replace(policy.to_owned())
        };
        // What it was at the start is looked at when the store is opened.
        let Some(before) = before else { return };
        match doctor::evicts(schema, policy, doctor::Eviction::Accepted) {
            Some(finding) => {
                tracing::warn!(check = finding.check, before, "{}; {}", finding.message, finding.fix);
            }
            None => tracing::info!(
                before,
                policy,
                "maxmemory-policy was changed; nothing of the schema is lost by it"
            ),
        }
    }

    /// Why the last write was refused, if it was; a write is tried now if the last try is older than [`EVERY`].
    pub(crate) async fn refused(&self, quaymaster: &Quaymaster) -> Option<Problem> {
        self.tried(quaymaster).await.err()
    }

    /// Whether the store answers and accepts writes.
    pub(crate) async fn ready(&self, quaymaster: &Quaymaster) -> Result<(), Problem> {
        self.tried(quaymaster).await?;
        // What has happened since: a lost connection is known at once.
        reachable(&**quaymaster.engine()).await
    }
}

/// Whether the store answers now.
async fn reachable(engine: &dyn Engine) -> Result<(), Problem> {
    within(LIMIT, engine.time_us()).await?;
    if engine.health().connected { Ok(()) } else { Err(Problem::new(Code::StoreRefused, UNWELL)) }
}

async fn bounded<T>(question: impl Future<Output = quaymaster::Result<T>>) -> Result<T, Problem> {
    within(PATIENCE, question).await
}

async fn within<T>(
    limit: Duration,
    question: impl Future<Output = quaymaster::Result<T>>,
) -> Result<T, Problem> {
    match tokio::time::timeout(limit, question).await {
        Ok(told) => told.map_err(Problem::from),
        Err(_) => {
            let detail = format!("the store said nothing for {} ms", limit.as_millis());
            Err(Problem::new(Code::StoreTimedOut, detail))
        }
    }
}
