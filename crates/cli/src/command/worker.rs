//! `worker`: sends jobs to HTTP services until told to stop.

use std::process::ExitCode;

use quaymaster::Quaymaster;
use quaymaster_server::config::Overrides;
use quaymaster_server::doctor::Eviction;
use quaymaster_server::{Workers, open_store};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::serve::signalled;
use crate::args::{Global, Worker};
use crate::failure::NothingRan;
use crate::{output, setup};

pub(crate) async fn run(args: Worker, global: &Global) -> anyhow::Result<ExitCode> {
    let overrides = Overrides { accept_eviction: args.accept_eviction, ..setup::overrides(args.place) };
    let config = setup::config(global, overrides)?;
    let schema = setup::usable(setup::load(&config.schemas)?)?;
    config.check_seal(&schema)?;
    // Before anything is opened: a stop that comes while starting must not be lost.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let store = config.store.to_string();
    let eviction = if config.accept_eviction { Eviction::Accepted } else { Eviction::Refused };
    let settings = config.settings();
    let opening = tokio::spawn(open_store(config.store, schema.clone(), eviction));
    let engine = tokio::select! {
        opened = opening => opened?.map_err(NothingRan::from)?,
        name = signalled(&mut terminate, &mut interrupt) => {
            tracing::info!(signal = name, "stopped while the store was being opened");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let quaymaster = Quaymaster::with(schema, engine, settings);
    let workers = Workers::new(&quaymaster, &args.queue, &config.worker)?;
    let queues = workers.names().collect::<Vec<_>>().join(", ");
    if queues.is_empty() {
        anyhow::bail!(crate::failure::Unreadable(
            "no queue of the schema declares `push = { url = … }`".into()
        ));
    }
    output::print(&format!("quaymaster working on {queues} (store: {store})"))?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        let name = signalled(&mut terminate, &mut interrupt).await;
        stopped.cancel();
        tracing::info!(signal = name, "stopping: calls under way end; a second signal ends at once");
        signalled(&mut terminate, &mut interrupt).await;
        std::process::exit(130);
    });
    let ended = workers.run(stop).await;
    let closed = quaymaster.engine().close().await;
    for (queue, ended) in ended? {
        tracing::info!(queue, given_back = ended.given_back, cut = ended.cut, "stopped");
    }
    closed?;
    Ok(ExitCode::SUCCESS)
}
