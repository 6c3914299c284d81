//! A payment gateway on Quaymaster: check, create, execute, update and status over HTTP.
//!
//! | file | what it knows |
//! |---|---|
//! | `settings` | flags and environment |
//! | `app` | routes, one log line a request |
//! | `token` | who may call |
//! | `request`, `answer` | what comes in and what goes out |
//! | `flow` | claim, run once, keep the answer, replay it |
//! | `operation` | the five operations |
//! | `payments` | SQL: every effect once, no stale writer |
//! | `hold` | stops an operation in its middle, for rehearsals |

mod answer;
mod app;
mod flow;
mod hold;
mod operation;
mod payments;
mod request;
mod settings;
mod token;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use quaymaster::store::StoreOptions;
use quaymaster::store::backoff::Backoff;
use quaymaster::{DatabaseOptions, Quaymaster, Settings};
use quaymaster_server::doctor::Eviction;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::TaskTracker;
use tracing_subscriber::EnvFilter;

use app::App;
use hold::Hold;
use payments::Payments;

/// How long requests in flight may take to finish after a stop.
const GRACE: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = settings::Args::parse();
    let filter = EnvFilter::try_new(&args.log).context("--log")?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();

    let schema = Arc::new(settings::schema(args.schema.as_deref())?);
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    let hold = Hold::new(args.hold);
    let payments = Payments::open(&args.database, hold.clone()).await.context("--database")?;
    let registered = token::parse(args.psp_tokens.as_deref().unwrap_or_default())?;
    for (psp_id, digest) in &registered {
        payments.register(psp_id, digest).await?;
    }
    let tokens = payments.has_psps().await?;
    anyhow::ensure!(
        tokens || address.ip().is_loopback(),
        "nobody has a token: give PSP_TOKENS, or listen on a loopback address"
    );
    let options = StoreOptions::from_url(&args.store, &args.data_dir)?;
    let (store_name, identity) = (options.to_string(), options.identity());
    // Refuses a store that would forget what must not run twice; waits for one that is only away.
    let engine =
        quaymaster_server::open_store(options, schema.clone(), Eviction::Refused, Backoff::default()).await?;
    let settings = Settings {
        seal: settings::seal(args.seal_keys.as_deref(), &schema)?,
        // While the store is away, limits are counted beside the payments.
        database: Some(DatabaseOptions::from_url(&args.database)?.for_store(&identity)),
        ..Settings::default()
    };
    let quaymaster = Quaymaster::with(schema, engine.clone(), settings);
    // A token that was replaced must not be let in by what is cached of it.
    for (psp_id, _) in &registered {
        quaymaster.cache("token")?.delete(&[("psp_id", psp_id)], None).await?;
    }
    let app = Arc::new(App {
        quaymaster,
        payments: payments.clone(),
        hold,
        wait: Duration::from_millis(args.wait_ms),
        tokens,
        running: TaskTracker::new(),
    });

    let running = app.running.clone();
    let mut out = std::io::stdout().lock();
    writeln!(out, "psp-gateway listens on http://{address} (store: {store_name})")?;
    out.flush()?;
    drop(out);

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (told, mut stopping) = tokio::sync::watch::channel(false);
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let _ = told.send(true);
    };
    let serve = axum::serve(listener, app::router(app)).with_graceful_shutdown(stop);
    let grace = async move {
        let _ = stopping.wait_for(|stopping| *stopping).await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = async { serve.await } => served?,
        () = grace => tracing::warn!("the grace is over; connections still open are dropped"),
    }
    // Callers that hung up have left operations that still run.
    running.close();
    if tokio::time::timeout(GRACE, running.wait()).await.is_err() {
        tracing::warn!(left = running.len(), "operations are cut off; their claims end by themselves");
    }
    payments.close().await;
    engine.close().await?;
    Ok(())
}
