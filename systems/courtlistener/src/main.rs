//! The docket pipeline on Quaymaster: a REST API with an hourly quota, and any number of nodes that share it.
//!
//! | file | what it knows |
//! |---|---|
//! | `settings` | flags and environment |
//! | `docket`, `intake` | ids, and from a file of them to jobs |
//! | `node` | a node from its start to its end |
//! | `fetch` | one docket: counted, fetched, kept, noted |
//! | `gate` | who may call now: the quota, and the API's own pauses |
//! | `api`, `keep` | the API as a client; where dockets are kept |
//! | `figures`, `progress` | what a node saw, and how far the run is |
//! | `report` | `status`, `retry`, `clean` |
//! | `standin` | an API to try it out with |

mod api;
mod docket;
mod fetch;
mod figures;
mod gate;
mod intake;
mod keep;
mod node;
mod patience;
mod progress;
mod report;
mod settings;
mod standin;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser as _;
use quaymaster::Quaymaster;
use quaymaster::store::{self, StoreOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use settings::{Args, Command, Place};

#[tokio::main]
async fn main() -> ExitCode {
    // Two providers could come in through dependencies; naming one keeps TLS from panicking later.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Args::parse()).await {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "docket-pipeline: {error:#}");
            let code = error.downcast_ref::<quaymaster::Error>().map_or(1, |error| error.code.exit_code());
            ExitCode::from(code)
        }
    }
}

async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let usual = match args.command {
        // The bar says the rest.
        Command::Work(_) if std::io::stderr().is_terminal() => "warn",
        Command::Work(_) | Command::Api(_) => "info",
        _ => "warn",
    };
    let filter = EnvFilter::try_new(args.log.as_deref().unwrap_or(usual)).context("--log")?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let stop = stop_on_signal()?;
    match args.command {
        Command::Work(work) => node::work(*work, stop).await,
        Command::Status(status) => report::status(status).await,
        Command::Retry(retry) => report::retry(retry).await,
        Command::Clean(clean) => report::clean(clean, stop).await,
        Command::Api(api) => {
            let bound = TcpListener::bind(api.listen).await;
            let listener = bound.with_context(|| format!("cannot listen on {}", api.listen))?;
            say(&format!("stand-in API answers on http://{}/api/rest/v4/", listener.local_addr()?))?;
            standin::serve(listener, api.temper(), api.journal.as_deref(), stop).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The store at once, or an error: for commands that look.
async fn open(place: &Place) -> anyhow::Result<Quaymaster> {
    let schema = Arc::new(settings::schema(place.schema.as_deref())?);
    let options = StoreOptions::from_url(&place.store, &place.data_dir)?;
    let quaymaster = Quaymaster::new(schema, store::open(options).await?);
    quaymaster.prepare().await?;
    Ok(quaymaster)
}

/// One line to whoever started us.
fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}

/// Cancelled by the first SIGTERM or SIGINT; the second ends the process at once.
fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if told.is_cancelled() {
                std::process::exit(130);
            }
            tracing::info!("stopping: calls under way end; a second signal ends at once");
            told.cancel();
        }
    });
    Ok(stop)
}
