//! The camera pipeline on Quaymaster: images in a folder become events on a WebSocket.
//!
//! | file | what it knows |
//! |---|---|
//! | `settings` | flags and environment |
//! | `parts` | the parts of the pipeline, together or alone |
//! | `watch` | from files to jobs of `detection_queue` |
//! | `camera` | folders and files: which camera, which image |
//! | `item` | the documented shapes |
//! | `standin` | a detector and an analyser to try it out with |
//! | `report` | what the pipeline adds to `system_status` |
//!
//! Everything between the watcher and the event is the schema's: queues, retries, dead letters, batches. Workers send
//! jobs to the services, and what a service answers goes where the queue's `result_to` says, in the ack's own step.

mod camera;
mod item;
mod parts;
mod report;
mod settings;
mod standin;
mod watch;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use settings::{Args, Command};
use standin::Role;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let filter = EnvFilter::try_new(&args.log).context("--log")?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let stop = stop_on_signal()?;
    match args.command {
        None => parts::up(args.up, stop).await,
        Some(Command::Up(up)) => parts::up(*up, stop).await,
        Some(Command::Serve(serve)) => parts::serve(serve, stop).await,
        Some(Command::Work(work)) => parts::work(work, stop).await,
        Some(Command::Watch(watch)) => parts::watch(watch, stop).await,
        Some(Command::Detector(service)) => parts::stand_in(Role::Detector, service, stop).await,
        Some(Command::Analyser(service)) => parts::stand_in(Role::Analyser, service, stop).await,
    }
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
