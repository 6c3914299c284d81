//! A web backend of several instances on Quaymaster: all requests in one count, every caller under one limit.
//!
//! | file | what it knows |
//! |---|---|
//! | `settings` | flags and environment |
//! | `instance` | one instance: layers, a listener that counts, an end that loses nothing |
//! | `app` | the routes |
//! | `data` | what they serve |
//! | `beside` | Quaymaster's server on the same store: reports, Prometheus, records of other languages |
//! | `load` | calls instances and counts by itself |
//! | `journal` | how long requests took, by another clock |

mod app;
mod beside;
mod data;
mod instance;
mod journal;
mod load;
mod settings;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser as _;
use quaymaster::Quaymaster;
use quaymaster::store::StoreOptions;
use quaymaster::store::backoff::Backoff;
use quaymaster_server::doctor::Eviction;
use quaymaster_server::open_store;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use settings::{Args, Command, Place};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let filter = EnvFilter::try_new(&args.log).context("--log")?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let stop = stop_on_signal()?;
    match args.command {
        None => instance::run(args.run, stop).await?,
        Some(Command::Run(run)) => instance::run(run, stop).await?,
        Some(Command::Serve(serve)) => beside::serve(serve, stop).await?,
        Some(Command::Load(load)) => return load::run(load, stop).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the store; one that is only away is waited for while the instance serves.
async fn open(place: &Place) -> anyhow::Result<(Quaymaster, String)> {
    let schema = Arc::new(settings::schema(place.schema.as_deref())?);
    let options = StoreOptions::from_url(&place.store, &place.data_dir)?;
    let name = options.to_string();
    let engine = open_store(options, schema.clone(), Eviction::Refused, Backoff::default()).await?;
    Ok((Quaymaster::new(schema, engine), name))
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
            tracing::info!("stopping; a second signal ends at once");
            told.cancel();
        }
    });
    Ok(stop)
}
