//! One instance: routes behind layers that limit and count, and an end that loses nothing of what was counted.

use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::http::HeaderValue;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::Response;
use quaymaster::layer::{LimitLayer, Peer, StatsLayer, Trust};
use quaymaster::stats::instance_id;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::{self, App, INSTANCE};
use crate::journal::{self, Journal};
use crate::settings::Run;

/// How long requests in flight may take to finish after a stop.
const GRACE: Duration = Duration::from_secs(15);

/// Serves until `stop`.
pub(crate) async fn run(args: Run, stop: CancellationToken) -> anyhow::Result<()> {
    let trust = Trust::x_forwarded_for(&args.proxies).context("--proxies")?;
    let journal = args.journal.as_deref().map(Journal::open).transpose().context("--journal")?;
    let bound = TcpListener::bind(args.listen).await;
    let listener = bound.with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    let (quaymaster, store) = crate::open(&args.place).await?;
    let recorder = quaymaster.stats("ha")?.recorder(args.instance.unwrap_or_else(instance_id));
    let instance = recorder.instance().to_owned();
    let name = HeaderValue::from_str(&instance).context("--instance")?;

    // The last layer is the outermost: a request is counted before anybody may refuse it.
    let by_address = LimitLayer::by_address_behind(quaymaster.limit("ha")?.clone(), trust.clone())?;
    let logins = LimitLayer::by_address_behind(quaymaster.limit("ha_sliding")?.clone(), trust.clone())?;
    let mut counted: Router<App> = app::api().layer(by_address).merge(app::auth().layer(logins)).layer(
        map_response(move |mut response: Response| {
            response.headers_mut().insert(INSTANCE, name.clone());
            std::future::ready(response)
        }),
    );
    if journal.is_some() {
        counted = counted.layer(from_fn(journal::inside));
    }
    counted = counted.layer(StatsLayer::new(recorder.clone()).trust(trust.clone()));
    if let Some(journal) = journal {
        counted = counted.layer(from_fn_with_state(journal, journal::outside));
    }
    let app = App { quaymaster: quaymaster.clone(), forum: std::sync::Arc::default() };
    let router = counted.merge(app::pages()).with_state(app);

    crate::say(&format!("ha-backend listens on http://{address} as instance {instance} (store: {store})"))?;
    let grace = {
        let stop = stop.clone();
        async move {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        }
    };
    let listener = recorder.listener(listener).trust(trust);
    let serving = axum::serve(listener, router.into_make_service_with_connect_info::<Peer>())
        .with_graceful_shutdown(stop.cancelled_owned());
    tokio::select! {
        served = async { serving.await } => served?,
        () = grace => tracing::warn!("the grace is over; connections still open are dropped"),
    }
    recorder.shutdown().await;
    match quaymaster.stats("ha")?.counts().lost() {
        0 => {}
        lost => tracing::error!(lost, "requests were counted and could not be brought in"),
    }
    quaymaster.engine().close().await?;
    Ok(())
}
