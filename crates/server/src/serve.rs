//! From a configuration to a running server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures_util::FutureExt as _;
use quaymaster::respell::{self, Depth};
use quaymaster::schema::Schema;
use quaymaster::store::backoff::Backoff;
use quaymaster::store::{self, StoreOptions};
use quaymaster::{Code, Engine, Error, Quaymaster, Result, Retry};
use tokio_util::sync::CancellationToken;

use crate::access::AccessLog;
use crate::app::{App, Bounds, Serves};
use crate::config::{ServerConfig, Thresholds};
use crate::depot::Depot;
use crate::doctor::{self, Eviction, Scope};
use crate::duty::{self, CleanConfig, Cleaning};
use crate::fan::Fan;
use crate::http::auth::Guard;
use crate::http::connection::{self, Limits};
use crate::http::guesses::Guesses;
use crate::http::listen::{Address, Listener};
use crate::http::tls::{self, Tls};
use crate::late::{Connect, LateStore};
use crate::metrics::Metrics;
use crate::own::{Own, OwnConfig};
use crate::page::queues::Depths;
use crate::page::runs::Recent;
use crate::page::stats::Reports;
use crate::page::uploads::Counted;
use crate::probe::Probe;
use crate::services::Services;
use crate::threshold;
use crate::worker::Workers;

/// An address that is ours; whoever connects waits until there is a [`Server`].
///
/// Taken before the store is opened: a server that cannot listen must not leave a data folder behind.
#[derive(Debug)]
pub struct Listening {
    listener: Listener,
    tls: Option<Arc<Tls>>,
    address: Address,
    config: ServerConfig,
}

/// A server that does not answer yet.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    listener: Listener,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    address: Address,
    own: OwnConfig,
    cleaning: Option<Cleaning>,
}

/// Opens the store and examines it. A store that is only away for now is waited for in the background, with the waits
/// of `retry`: calls are answered by their policies until it is there.
pub async fn open_store(
    options: StoreOptions,
    schema: Arc<Schema>,
    eviction: Eviction,
    retry: Backoff,
) -> Result<Arc<dyn Engine>> {
    let options = options.for_schema(&schema);
    let topology = options.topology();
    let own_prefix = options.own_prefix().to_owned();
    let may_come = matches!(options, StoreOptions::Redis(_));
    let connect: Connect = Box::new(move || {
        let (options, schema, own_prefix) = (options.clone(), schema.clone(), own_prefix.clone());
        async move {
            let engine = store::open(options).await.map_err(not_run)?;
            let mut findings = doctor::examine(&schema, &*engine, eviction).await.map_err(not_run)?;
            findings.extend(
                doctor::rights(&schema, &*engine, Scope::Server(&own_prefix)).await.map_err(not_run)?,
            );
            let fit = match doctor::weigh(&findings) {
                Ok(()) => respell::prepare(&schema, &engine, Depth::Scan).await.map_err(not_run),
                refused => refused,
            };
            match fit {
                Ok(()) => Ok(engine),
                Err(refusal) => {
                    let _ = engine.close().await;
                    Err(refusal)
                }
            }
        }
        .boxed()
    });
    match connect().await {
        Ok(engine) => Ok(engine),
        Err(error) if may_come && error.code.retry() != Retry::Useless => {
            tracing::warn!(code = %error.code, detail = error.detail, "not ready: the store cannot be used yet; trying on");
            Ok(Arc::new(LateStore::new(topology, &error, retry, connect)))
        }
        Err(error) => Err(error),
    }
}

/// Calls are refused with why the store is not there. None of them was sent to it, so none "may have run".
fn not_run(mut error: Error) -> Error {
    if matches!(error.code, Code::StoreTimedOut | Code::StoreLost) {
        error.code = Code::StoreRefused;
    }
    error
}

impl Listening {
    /// Takes the address, if it is safe to listen there with these settings.
    pub async fn bind(config: ServerConfig) -> Result<Self> {
        let wrong = |detail: String| Error::new("serve", Code::ConfigInvalid, detail);
        if let Some(why) = config.exposed() {
            return Err(wrong(why));
        }
        let tls = config.tls.clone().map(Tls::new).transpose().map_err(wrong)?.map(Arc::new);
        raise_file_limit();
        let taken = |error: std::io::Error| {
            let detail = format!("listen: cannot listen on {}: {error}", config.listen);
            Error::new("serve", Code::ConfigInvalid, detail).because(error)
        };
        let listener = Listener::bind(&config.listen).await.map_err(taken)?;
        let address = listener.address().map_err(taken)?;
        Ok(Self { listener, tls, address, config })
    }
}

impl Server {
    /// Serves `quaymaster` there; nothing is answered before [`Server::run`].
    pub fn new(listening: Listening, quaymaster: Quaymaster, thresholds: Thresholds) -> Self {
        let Listening { listener, tls, address, config } = listening;
        let app = App {
            serves: Serves::Everything,
            services: Services::bounded(quaymaster, Depot::default(), config.max_waiting),
            bounds: Bounds {
                max_body_bytes: config.max_body_bytes,
                max_json_depth: config.max_json_depth,
                max_requests: config.max_requests,
                request_timeout: config.request_timeout,
                heartbeat: config.heartbeat,
            },
            guard: Guard::new(config.tokens, config.anonymous, config.origins, &address),
            guesses: Guesses::default(),
            thresholds,
            metrics: Metrics::default(),
            probe: Probe::default(),
            in_flight: AtomicUsize::new(0),
            trust: config.own.trust.clone(),
            fan: Arc::new(Fan::new(config.max_subscribers)),
            workers: None,
            depths: Depths::default(),
            runs: Recent::default(),
            reports: Reports::default(),
            counted: Counted::default(),
            access: None,
        };
        let limits = Limits {
            max_connections: config.max_connections,
            idle_timeout: config.idle_timeout,
            shutdown_grace: config.shutdown_grace,
            shutdown_drain: config.shutdown_drain,
            patience: config.heartbeat * 2,
        };
        Self { app: Arc::new(app), listener, tls, limits, address, own: config.own, cleaning: None }
    }

    /// The same, working too.
    pub fn with_workers(self, workers: impl Into<Arc<Workers>>) -> Self {
        let app = Arc::try_unwrap(self.app).map(|app| App { workers: Some(workers.into()), ..app });
        // Nobody else has it before it runs.
        let app = app.map_or_else(|shared| shared, Arc::new);
        Self { app, ..self }
    }

    /// The same, taking uploads, and shipping, completing and sweeping them.
    pub fn with_uploads(self, depot: Depot) -> Self {
        let app =
            Arc::try_unwrap(self.app).map(|app| App { services: Services { depot, ..app.services }, ..app });
        let app = app.map_or_else(|shared| shared, Arc::new);
        Self { app, ..self }
    }

    /// The same, cleaning up now and then what keys have left behind.
    pub fn with_clean(self, config: &CleanConfig) -> Result<Self> {
        let cleaning = Cleaning::new(&self.app.services.quaymaster, config)?;
        Ok(Self { cleaning: Some(cleaning), ..self })
    }

    /// The same, noting each call in a log.
    pub fn with_access_log(self, log: AccessLog) -> Self {
        let app = Arc::try_unwrap(self.app).map(|app| App { access: Some(log), ..app });
        let app = app.map_or_else(|shared| shared, Arc::new);
        Self { app, ..self }
    }

    /// Answers probes and scrapes for a process that works by itself, until `stop`; nothing else is done, and the store
    /// is not closed.
    pub async fn watch(self, stop: CancellationToken) {
        let app = Arc::try_unwrap(self.app).map(|app| App { serves: Serves::Probes, ..app });
        let app = app.map_or_else(|shared| shared, Arc::new);
        let own = match Own::start(&OwnConfig::default(), &app.services.quaymaster) {
            Ok(own) => Arc::new(own),
            Err(error) => {
                tracing::error!(%error, "probes and metrics are not answered");
                return;
            }
        };
        let stopping = app.services.stopping.clone();
        let stopped = async {
            stop.cancelled().await;
            stopping.cancel();
        };
        let certificates = tls::watch(self.tls.clone(), &stopping);
        let serving =
            connection::serve(app.clone(), self.listener, self.tls, self.limits, own, stopping.clone());
        let looking = app.probe.watch(&app.services.quaymaster, &stopping);
        tokio::join!(serving, stopped, looking, certificates);
    }

    /// Where it listens; the real port where 0 was asked for.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// How a client names it: `https://127.0.0.1:7420`, `http://…` without TLS, or `unix:PATH`.
    pub fn url(&self) -> String {
        match (&self.tls, self.address.tcp()) {
            (Some(_), Some(address)) => format!("https://{address}"),
            _ => self.address.url(),
        }
    }

    /// Serves until `stop` is done, lets requests in flight finish, closes the store.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        warn(&self.app.services.quaymaster);
        let own = Arc::new(Own::start(&self.own, &self.app.services.quaymaster)?);
        let token = self.app.services.stopping.clone();
        let stopping = token.clone();
        let watch = tokio::spawn(async move {
            stop.await;
            stopping.cancel();
        });
        let working = async {
            if let Some(workers) = &self.app.workers {
                workers.run(token.clone()).await.map(drop)
            } else {
                Ok(())
            }
        };
        let certificates = tls::watch(self.tls.clone(), &token);
        let (app, limits) = (self.app.clone(), self.limits);
        let serving =
            connection::serve(app, self.listener, self.tls.clone(), limits, own.clone(), token.clone());
        let cleaned = &self.app.metrics.cleaned;
        let duties = duty::run(&self.app.services.quaymaster, self.cleaning.as_ref(), cleaned, &token);
        let uploads = self.app.services.depot.work(&token, self.limits.shutdown_grace);
        let looking = self.app.probe.watch(&self.app.services.quaymaster, &token);
        let thresholds = threshold::watch(&self.app, &token);
        let (finished, worked, (), (), (), (), ()) =
            tokio::join!(serving, working, duties, uploads, looking, thresholds, certificates);
        watch.abort();
        if let Err(error) = worked {
            tracing::error!(%error, "the workers ended");
        }
        if !finished {
            let left = self.app.in_flight.load(Relaxed);
            tracing::warn!(left, "the grace is over; connections still open are dropped");
        }
        own.stop().await;
        if let Some(log) = &self.app.access {
            log.close().await;
        }
        // What this node counted by itself ends with it.
        if let Err(error) = self.app.services.quaymaster.outages().settle().await {
            tracing::warn!(%error, "what was counted while the store was away could not be told to it");
        }
        self.app.services.quaymaster.engine().close().await
    }
}

/// Says what the schema wants and the settings do not give. Only whoever answers calls says it: a worker's probes beside
/// it would say it all again.
fn warn(quaymaster: &Quaymaster) {
    let schema = quaymaster.schema();
    let outage = doctor::outage(schema).filter(|_| !quaymaster.outages().has_database());
    let unsealed = doctor::unsealed(schema).filter(|_| !quaymaster.seals());
    for finding in outage.into_iter().chain(unsealed) {
        tracing::warn!(check = finding.check, "{}; {}", finding.message, finding.fix);
    }
}

/// The soft limit of open files is often 1,024, far below what the machine allows.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current != now.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    }
}
