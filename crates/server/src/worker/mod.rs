//! Workers that send the jobs of queues with `push = { url, … }` to HTTP services.
//!
//! | file | what it knows |
//! |---|---|
//! | `deliver` | one job, one call, and what its answer means |
//! | `result` | a response as what follows from the ack |
//! | `sign` | the signature's headers |
//! | `gate` | when not to call |
//! | `client` | connections |
//! | `calls` | counts |

pub(crate) mod calls;
mod client;
mod deliver;
mod gate;
mod result;
mod sign;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use quaymaster::queue::Queue;
use quaymaster::store::backoff::Backoff;
use quaymaster::worker::{Counts, Ended, Worker};
use quaymaster::{Code, Error, Quaymaster, Result};
use tokio_util::sync::CancellationToken;

use calls::Calls;
use deliver::Delivery;
use gate::Gate;

/// How jobs are sent, beside what each queue declares.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerConfig {
    /// How long calls may go on after a stop.
    pub drain: Duration,
    /// The largest response that is handed on.
    pub max_response_bytes: usize,
    /// Certificate authorities beside the system's.
    pub ca_file: Option<PathBuf>,
    /// How long to wait before a store is asked again that failed: `[store.retry]`.
    pub retry: Backoff,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        let drain = Duration::from_secs(30);
        Self { drain, max_response_bytes: 1 << 20, ca_file: None, retry: Backoff::default() }
    }
}

/// The worker of one queue.
#[derive(Debug)]
pub(crate) struct Pushing {
    pub(crate) name: String,
    pub(crate) concurrency: u32,
    worker: Worker,
    delivery: Arc<Delivery>,
}

impl Pushing {
    pub(crate) fn counts(&self) -> &Counts {
        self.worker.counts()
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.delivery.calls
    }
}

/// Workers of several queues, not running yet.
#[derive(Debug)]
pub struct Workers {
    queues: Vec<Pushing>,
}

impl Workers {
    /// Workers of the queues `names`, or of all that declare `push`.
    pub fn new(quaymaster: &Quaymaster, names: &[String], config: &WorkerConfig) -> Result<Self> {
        let mut queues: Vec<&Queue> = Vec::new();
        for name in names {
            let queue = quaymaster.queue(name)?;
            if queue.spec().push.is_none() {
                let detail = format!(
                    "queue: {name} declares no `push = {{ url = … }}`, so there is nowhere to send its jobs"
                );
                return Err(Error::new("worker", Code::ConfigInvalid, detail));
            }
            if !queues.iter().any(|known| known.name() == queue.name()) {
                queues.push(queue);
            }
        }
        if names.is_empty() {
            queues.extend(quaymaster.queues().filter(|queue| queue.spec().push.is_some()));
            queues.sort_by_key(|queue| queue.name());
        }
        let queues = queues.into_iter().map(|queue| pushing(queue, config)).collect::<Result<_>>()?;
        Ok(Self { queues })
    }

    /// The queues they work on.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.queues.iter().map(|queue| queue.name.as_str())
    }

    /// How many calls are made at once, over all queues.
    pub fn concurrency(&self) -> u32 {
        self.queues.iter().map(|queue| queue.concurrency).sum()
    }

    pub(crate) fn queues(&self) -> &[Pushing] {
        &self.queues
    }

    /// Works until `stop`, then lets calls under way end within the drain's bound.
    pub async fn run(&self, stop: CancellationToken) -> Result<Vec<(String, Ended)>> {
        let running = self.queues.iter().map(|queue| async {
            // The caller's own token, everywhere: one that follows it a moment later lets another call begin.
            let (delivery, stopping) = (queue.delivery.clone(), stop.clone());
            let handler = move |job, lost| {
                let (delivery, stopping) = (delivery.clone(), stopping.clone());
                async move { delivery.run(job, lost, &stopping).await }
            };
            let ended = queue.worker.clone().run(handler, stop.clone()).await?;
            if ended.cut > 0 {
                tracing::warn!(
                    queue = queue.name,
                    cut = ended.cut,
                    "calls did not end in time; their jobs come again"
                );
            }
            Ok((queue.name.clone(), ended))
        });
        futures_util::future::try_join_all(running).await
    }
}

fn pushing(queue: &Queue, config: &WorkerConfig) -> Result<Pushing> {
    let name = queue.name();
    let wrong = |detail: String| Error::new("worker", Code::ConfigInvalid, detail);
    let Some(spec) = &queue.spec().push else {
        return Err(wrong(format!("queue: {name} declares no `push`")));
    };
    let uri: Uri = spec.url.parse().map_err(|error| wrong(format!("queue.{name}.push.url: {error}")))?;
    let Some(authority) = uri.authority() else {
        return Err(wrong(format!("queue.{name}.push.url: it names no host")));
    };
    if authority.as_str().contains('@') {
        return Err(wrong(format!(
            "queue.{name}.push.url: no user and password in it; sign the calls with `secret`"
        )));
    }
    let delivery = Delivery {
        queue: name.to_owned(),
        shown: format!("{}://{authority}{}", uri.scheme_str().unwrap_or("http"), uri.path()),
        client: client::client(&uri, spec.concurrency, spec.timeout, config.ca_file.as_deref())?,
        uri,
        timeout: spec.timeout,
        result_to: spec.result_to.clone(),
        signer: Delivery::signer(spec),
        max_response_bytes: config.max_response_bytes,
        gate: Gate::default(),
        calls: Calls::default(),
    };
    // Calls never block a thread, so they share the server's.
    let worker = Worker::new(queue.clone())
        .concurrency(spec.concurrency as usize)
        .drain(config.drain)
        .retry(config.retry)
        .handlers_on(tokio::runtime::Handle::current())
        .name("push");
    Ok(Pushing { name: name.to_owned(), concurrency: spec.concurrency, worker, delivery: Arc::new(delivery) })
}
