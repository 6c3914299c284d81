//! `worker`: sends jobs to HTTP services until told to stop.

use std::process::ExitCode;
use std::sync::Arc;

use quaymaster::Quaymaster;
use quaymaster_server::config::{Needs, Overrides};
use quaymaster_server::{Address, Depot, Listening, Server, Workers, open_store};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::serve::signalled;
use crate::args::{Global, Worker};
use crate::failure::NothingRan;
use crate::notify::{self, State};
use crate::{output, setup};

pub(crate) async fn run(args: Worker, global: &Global) -> anyhow::Result<ExitCode> {
    let watched = args.metrics.is_some();
    let overrides = Overrides {
        listen: args.metrics,
        insecure_listen: args.insecure_listen,
        insecure_http: args.insecure_http,
        ..setup::overrides(args.place)
    };
    let needs = if watched { Needs::ALL } else { Needs::WORK };
    let config = setup::config(global, overrides, needs)?;
    config.check_demo()?;
    let schema = setup::usable(setup::load(&config.schemas)?)?;
    config.check_seal(&schema)?;
    if watched {
        config.check_own(&schema)?;
    }
    // Before anything is opened: a stop that comes while starting must not be lost.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let store = config.store.to_string();
    let eviction = config.eviction();
    let settings = config.settings();
    let listening = if watched { Some(Listening::bind(config.server).await?) } else { None };
    let opening = tokio::spawn(open_store(config.store, schema.clone(), eviction, config.retry));
    let engine = tokio::select! {
        opened = opening => opened?.map_err(NothingRan::from)?,
        name = signalled(&mut terminate, &mut interrupt) => {
            tracing::info!(signal = name, "stopped while the store was being opened");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let quaymaster = Quaymaster::with(schema, engine, settings);
    let (no_queues, no_uploads) = (args.queue.is_empty(), args.upload.is_empty());
    // Naming some of one kind leaves the other alone.
    let workers = (!no_queues || no_uploads)
        .then(|| Workers::new(&quaymaster, &args.queue, &config.worker).map(Arc::new))
        .transpose()?;
    let depot = if no_queues || !no_uploads {
        Depot::of(&quaymaster, &config.uploads, &args.upload)?
    } else {
        Depot::default()
    };
    depot.check().await.map_err(NothingRan::from)?;
    let queues = workers.iter().flat_map(|workers| workers.names()).map(str::to_owned);
    let all: Vec<String> = queues.chain(depot.names().map(|name| format!("upload.{name}"))).collect();
    if all.is_empty() {
        anyhow::bail!(crate::failure::Unreadable::new(
            "no queue of the schema declares `push = { url = … }`, and it has no uploads"
        ));
    }
    let watching = listening.map(|listening| {
        let server =
            Server::new(listening, quaymaster.clone(), config.thresholds).with_uploads(depot.clone());
        match &workers {
            Some(workers) => server.with_workers(Arc::clone(workers)),
            None => server,
        }
    });
    let metrics = watching.as_ref().map(|server| match server.address() {
        Address::Tcp(_) => format!("{}/metrics", server.url()),
        socket @ Address::Unix(_) => socket.to_string(),
    });
    output::print(&if global.json {
        json!({ "working": all, "store": store, "metrics": metrics }).to_string()
    } else {
        let metrics = metrics.map_or_else(String::new, |at| format!(", metrics on {at}"));
        format!("quaymaster working on {} (store: {store}){metrics}", all.join(", "))
    })?;
    notify::tell(State::Ready);
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        let name = signalled(&mut terminate, &mut interrupt).await;
        notify::tell(State::Stopping);
        stopped.cancel();
        tracing::info!(signal = name, "stopping: calls under way end; a second signal ends at once");
        signalled(&mut terminate, &mut interrupt).await;
        std::process::exit(130);
    });
    let queues = async {
        match &workers {
            Some(workers) => workers.run(stop.clone()).await,
            None => Ok(Vec::new()),
        }
    };
    let queues = async {
        let ended = queues.await;
        if ended.is_err() {
            stop.cancel();
        }
        ended
    };
    let watching = async {
        if let Some(server) = watching {
            server.watch(stop.clone()).await;
        }
    };
    let (ended, (), ()) = tokio::join!(queues, depot.work(&stop, config.worker.drain), watching);
    let closed = quaymaster.engine().close().await;
    for (queue, ended) in ended? {
        tracing::info!(queue, given_back = ended.given_back, cut = ended.cut, "stopped");
    }
    closed?;
    Ok(ExitCode::SUCCESS)
}
