//! `serve`: the schema over HTTP until told to stop.

use std::process::ExitCode;
use std::sync::Arc;

use quaymaster::Quaymaster;
use quaymaster::schema::{Resource, Schema, Severity, Spec};
use quaymaster_server::config::{Needs, Overrides};
use quaymaster_server::{AccessLog, Depot, Listening, Reopen, Server, Workers, open_store};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{Global, Serve};
use crate::failure::NothingRan;
use crate::notify::{self, State};
use crate::{output, setup};

pub(crate) async fn run(args: Serve, global: &Global) -> anyhow::Result<ExitCode> {
    let overrides = Overrides {
        listen: args.listen,
        insecure_listen: args.insecure_listen,
        insecure_http: args.insecure_http,
        workers: args.workers,
        access_log: args.access_log,
        ..setup::overrides(args.place)
    };
    let config = setup::config(global, overrides, Needs::ALL)?;
    config.check_demo()?;
    let loaded = setup::load(&config.schemas)?;
    let warnings = loaded.diagnostics.iter().filter(|problem| problem.severity == Severity::Warning).count();
    let schema = setup::usable(loaded)?;
    config.check_seal(&schema)?;
    config.check_own(&schema)?;
    let pushing: Vec<String> = pushing(&schema).map(str::to_owned).collect();
    let names: Vec<String> = schema.documents().iter().map(|document| document.name.clone()).collect();
    // Before anything is opened: a stop that comes while starting must not be lost.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let store = config.store.to_string();
    let eviction = config.eviction();
    let settings = config.settings();
    let works = config.server.workers;
    let access = config.server.access.clone();
    let listening = Listening::bind(config.server).await?;
    let access = access.as_ref().map(AccessLog::open).transpose()?;
    if let Some(log) = &access {
        reopen(log.reopener())?;
    }
    // In a task of its own: opening a large folder may keep its thread busy, and a stop must not wait for it.
    let opening = tokio::spawn(open_store(config.store, schema.clone(), eviction, config.retry));
    let engine = tokio::select! {
        opened = opening => opened?.map_err(NothingRan::from)?,
        name = signalled(&mut terminate, &mut interrupt) => {
            tracing::info!(signal = name, "stopped while the store was being opened");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let quaymaster = Quaymaster::with(schema, engine, settings);
    let workers = works.then(|| Workers::new(&quaymaster, &[], &config.worker)).transpose()?;
    let depot = Depot::new(&quaymaster, &config.uploads);
    depot.check().await.map_err(NothingRan::from)?;
    let mut server = Server::new(listening, quaymaster, config.thresholds).with_uploads(depot);
    if let Some(clean) = &config.clean {
        server = server.with_clean(clean)?;
    }
    if let Some(log) = access {
        server = server.with_access_log(log);
    }
    let working = workers.as_ref().map(|workers| workers.names().collect::<Vec<_>>().join(", "));
    if let Some(workers) = workers {
        server = server.with_workers(workers);
    }
    let address = server.url();
    output::print(&if global.json {
        json!({ "listening": address, "store": store, "schemas": names }).to_string()
    } else {
        format!("quaymaster listening on {address} (store: {store}, schemas: {})", names.join(", "))
    })?;
    notify::tell(State::Ready);
    // Not before: a server that does not start says why, and nothing else.
    if warnings > 0 {
        tracing::info!(warnings, "the schema has warnings; `quaymaster check` lists them");
    }
    match working.as_deref() {
        Some("") => tracing::warn!("workers are on, and no queue declares `push`"),
        Some(queues) => tracing::info!(queues, "working"),
        None if pushing.is_empty() => {}
        None => tracing::info!(
            queues = pushing.join(", "),
            "these queues declare `push`, and this server sends nothing: run `quaymaster worker`, or pass --workers"
        ),
    }
    let stop = async move {
        let name = signalled(&mut terminate, &mut interrupt).await;
        notify::tell(State::Stopping);
        tracing::info!(signal = name, "stopping: requests in flight finish; a second signal ends at once");
        tokio::spawn(async move {
            signalled(&mut terminate, &mut interrupt).await;
            std::process::exit(130);
        });
    };
    server.run(stop).await?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Opens the access log anew with every SIGHUP: whoever moved the file away can compress it then.
fn reopen(log: Reopen) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            log.now();
        }
    });
    Ok(())
}

/// Queues whose jobs somebody has to send.
fn pushing(schema: &Schema) -> impl Iterator<Item = &str> {
    let pushes =
        |resource: &&Arc<Resource>| matches!(&resource.spec, Spec::Queue(queue) if queue.push.is_some());
    schema.resources().filter(pushes).map(|resource| resource.name.as_str())
}

/// Waits for the next request to stop; its name.
pub(super) async fn signalled(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
