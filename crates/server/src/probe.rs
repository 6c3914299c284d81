//! Asks the store how it is, seldom enough to cost nothing and never for long.

use std::time::{Duration, Instant};

use quaymaster::store::Deployment;
use quaymaster::{Code, Engine};
use tokio::sync::Mutex;

use crate::http::problem::Problem;

/// How long what the store said about itself is good for.
const FRESH: Duration = Duration::from_secs(2);
/// How long a probe waits for the store.
const PATIENCE: Duration = Duration::from_secs(2);

/// Said when the store answers questions and knows that it cannot serve.
pub(crate) const UNWELL: &str = "the store's last word was a failure";

/// What was last heard about the deployment.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) started: Instant,
    last: Mutex<Option<(Instant, Result<Deployment, Problem>)>>,
}

impl Default for Probe {
    fn default() -> Self {
        Self { started: Instant::now(), last: Mutex::default() }
    }
}

impl Probe {
    /// The deployment's facts, at most [`FRESH`] old; a scrape and a page that ask together cost one question.
    pub(crate) async fn deployment(&self, engine: &dyn Engine) -> Result<Deployment, Problem> {
        let mut last = self.last.lock().await;
        if let Some((at, told)) = &*last
            && at.elapsed() < FRESH
        {
            return told.clone();
        }
        let told = bounded(engine.deployment()).await;
        *last = Some((Instant::now(), told.clone()));
        told
    }
}

/// Whether the store answers now.
pub(crate) async fn reachable(engine: &dyn Engine) -> Result<(), Problem> {
    bounded(engine.time_us()).await?;
    if engine.health().connected { Ok(()) } else { Err(Problem::new(Code::StoreRefused, UNWELL)) }
}

async fn bounded<T>(question: impl Future<Output = quaymaster::Result<T>>) -> Result<T, Problem> {
    match tokio::time::timeout(PATIENCE, question).await {
        Ok(told) => told.map_err(Problem::from),
        Err(_) => {
            let detail = format!("the store said nothing for {} ms", PATIENCE.as_millis());
            Err(Problem::new(Code::StoreTimedOut, detail))
        }
    }
}
