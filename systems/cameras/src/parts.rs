//! The parts of the pipeline, together in one process or each in its own.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use quaymaster::schema::{Kind, Spec};
use quaymaster::store::StoreOptions;
use quaymaster::store::backoff::Backoff;
use quaymaster::{Quaymaster, Schema};
use quaymaster_server::config::{Config, Overrides, RawConfig, Thresholds};
use quaymaster_server::doctor::Eviction;
use quaymaster_server::{Listening, Server, WorkerConfig, Workers, open_store};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::report;
use crate::settings::{self, Listen, Place, variable};
use crate::standin::{self, Journal, Mood, Role, Temper};
use crate::watch::{Online, Watcher};

const DETECTION: &str = "detection_queue";
const DETECTOR_URL: &str = "DETECTOR_URL";
const ANALYSER_URL: &str = "ANALYSER_URL";

/// Everything at once, with stand-ins for the services nobody named.
pub(crate) async fn up(args: settings::Up, stop: CancellationToken) -> anyhow::Result<()> {
    let mut running = JoinSet::new();
    // The services end last: workers that drain still call them.
    let services = CancellationToken::new();
    let mut url = async |role: Role, name: &str| -> anyhow::Result<String> {
        if let Some(url) = variable(name) {
            return Ok(url);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}{}", listener.local_addr()?, role.path());
        tracing::info!(url, "{name} is not set: a stand-in {} answers", role.name());
        let mood = Mood::new(args.temper.temper());
        running.spawn(standin::serve(role, listener, mood, Journal::open(None)?, services.clone()));
        Ok(url)
    };
    let detector = url(Role::Detector, DETECTOR_URL).await?;
    let analyser = url(Role::Analyser, ANALYSER_URL).await?;
    let env = |name: &str| match name {
        DETECTOR_URL => Some(detector.clone()),
        ANALYSER_URL => Some(analyser.clone()),
        _ => variable(name),
    };
    let schema = Arc::new(settings::schema(args.place.schema.as_deref(), &env)?);
    let listening = listen(&args.listen, &args.place).await?;
    let quaymaster = open(&args.place, schema).await?;
    let online = Online::new(args.watching.online);
    let watcher = Watcher::open(
        args.watching.options(&args.place),
        quaymaster.queue(DETECTION)?.clone(),
        online.clone(),
    )?;

    let mut parts = JoinSet::new();
    parts.spawn(report::run(quaymaster.clone(), detector, online, stop.clone()));
    parts.spawn(watcher.run(stop.clone()));
    let folder = args.watching.folder.display().to_string();
    // The server closes the store, so it ends after those that use it.
    let server = CancellationToken::new();
    let workers = Workers::new(&quaymaster, &[], &WorkerConfig::default())?;
    let serving = Server::new(listening, quaymaster, Thresholds::default()).with_workers(workers);
    say(&format!(
        "camera-pipeline listens on http://{} (store: {}): put images into {folder}/CAMERA/",
        serving.address(),
        StoreOptions::from_url(&args.place.store, &args.place.data_dir)?
    ))?;
    let mut serving = tokio::spawn(serving.run(server.clone().cancelled_owned()));
    let served = tokio::select! {
        () = stop.cancelled() => None,
        // A pipeline without its server is none: whoever started us is to know.
        served = &mut serving => Some(served),
    };
    stop.cancel();
    while parts.join_next().await.is_some() {}
    server.cancel();
    let served = match served {
        Some(served) => served,
        None => serving.await,
    };
    services.cancel();
    while running.join_next().await.is_some() {}
    Ok(served??)
}

/// The server alone.
pub(crate) async fn serve(args: settings::Serve, stop: CancellationToken) -> anyhow::Result<()> {
    let schema = Arc::new(settings::schema(args.place.schema.as_deref(), &variable)?);
    let listening = listen(&args.listen, &args.place).await?;
    let quaymaster = open(&args.place, schema).await?;
    let server = Server::new(listening, quaymaster, Thresholds::default());
    say(&format!("camera-pipeline serves http://{}", server.address()))?;
    Ok(server.run(stop.cancelled_owned()).await?)
}

/// The watcher alone.
pub(crate) async fn watch(args: settings::Watch, stop: CancellationToken) -> anyhow::Result<()> {
    let schema = Arc::new(settings::schema(args.place.schema.as_deref(), &variable)?);
    let detector = url_of(&schema, DETECTION);
    let quaymaster = open(&args.place, schema).await?;
    let online = Online::new(args.watching.online);
    let watcher = Watcher::open(
        args.watching.options(&args.place),
        quaymaster.queue(DETECTION)?.clone(),
        online.clone(),
    )?;
    say("camera-pipeline watches")?;
    let reporting = tokio::spawn(report::run(quaymaster.clone(), detector, online, stop.clone()));
    watcher.run(stop).await;
    reporting.await?;
    quaymaster.engine().close().await?;
    Ok(())
}

/// The workers alone.
pub(crate) async fn work(args: settings::Work, stop: CancellationToken) -> anyhow::Result<()> {
    let schema = Arc::new(settings::schema(args.place.schema.as_deref(), &variable)?);
    let quaymaster = open(&args.place, schema).await?;
    let workers = Workers::new(&quaymaster, &[], &WorkerConfig::default())?;
    say("camera-pipeline works")?;
    let _ended = workers.run(stop).await?;
    quaymaster.engine().close().await?;
    Ok(())
}

/// A stand-in alone.
pub(crate) async fn stand_in(
    role: Role,
    args: settings::StandIn,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let journal = Journal::open(args.journal.as_deref())?;
    let bound = TcpListener::bind(args.listen).await;
    let listener = bound.with_context(|| format!("cannot listen on {}", args.listen))?;
    let address: SocketAddr = listener.local_addr()?;
    say(&format!("stand-in {} answers on http://{address}{}", role.name(), role.path()))?;
    let temper: Temper = args.temper.temper();
    standin::serve(role, listener, Mood::new(temper), journal, stop).await
}

/// Takes the address; the settings beside it are a server's defaults.
async fn listen(listen: &Listen, place: &Place) -> anyhow::Result<Listening> {
    let overrides = Overrides {
        listen: Some(listen.listen.clone()),
        store: Some(place.store.clone()),
        data_dir: Some(place.data_dir.clone()),
        ..Overrides::default()
    };
    let config = Config::resolve(RawConfig::default(), overrides)?;
    Ok(Listening::bind(config.server).await?)
}

/// Opens the store; one that is only away is waited for while the pipeline starts.
async fn open(place: &Place, schema: Arc<Schema>) -> anyhow::Result<Quaymaster> {
    let options = StoreOptions::from_url(&place.store, &place.data_dir)?;
    let engine = open_store(options, schema.clone(), Eviction::Refused, Backoff::default()).await?;
    Ok(Quaymaster::new(schema, engine))
}

/// Where a queue's jobs are sent.
fn url_of(schema: &Schema, queue: &str) -> String {
    match schema.resource(Kind::Queue, queue).map(|resource| &resource.spec) {
        Some(Spec::Queue(spec)) => spec.push.as_ref().map(|push| push.url.clone()).unwrap_or_default(),
        _ => String::new(),
    }
}

/// One line to whoever started us.
fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
