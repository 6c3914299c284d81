//! One instance: routes behind layers that limit and count, and an end that loses nothing of what was counted.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::http::HeaderValue;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::get;
use quaymaster::layer::{LimitLayer, Trust};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::{self, App, INSTANCE};
use crate::journal::{self, Journal};
use crate::settings::Run;

/// How long requests in flight may take to finish after a stop.
const GRACE: Duration = Duration::from_secs(15);

/// Serves until `stop`.
pub(crate) async fn run(args: Run, stop: CancellationToken) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    let journal = args.journal.as_deref().map(Journal::open).transpose().context("--journal")?;
    let trust = Trust::x_forwarded_for(&args.proxies)?;
    let (quaymaster, store) = crate::open(&args.place).await?;
    let instance = args.instance.unwrap_or_else(|| "0".to_owned());
    let app = App { quaymaster: quaymaster.clone(), forum: std::sync::Arc::default() };
    let by_address = LimitLayer::by_address_behind(quaymaster.limit("ha")?.clone(), trust.clone())?;
    let by_login = LimitLayer::by_address_behind(quaymaster.limit("ha_sliding")?.clone(), trust.clone())?;
    let name = HeaderValue::from_str(&instance).context("--instance")?;
    let mut counted: Router<App> = app::api()
        .layer(by_address)
        .merge(app::auth().layer(by_login))
        .layer(map_response(move |mut response: Response| {
            response.headers_mut().insert(INSTANCE, name.clone());
            std::future::ready(response)
        }));
    if let Some(journal) = journal {
        counted = counted.layer(from_fn(journal::inside)).layer(from_fn_with_state(journal, journal::outside));
    }
    let pages = Router::new().route("/healthz", get(async || "ok\n"));
    let router = counted.merge(pages).with_state(app);
    crate::say(&format!("ha-backend listens on http://{address} as instance {instance} (store: {store})"))?;
    let grace = {
        let stop = stop.clone();
        async move {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        }
    };
    let serving = axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(stop.cancelled_owned());
    tokio::select! {
        served = async { serving.await } => served?,
        () = grace => tracing::warn!("the grace is over; connections still open are dropped"),
    }
    quaymaster.engine().close().await?;
    Ok(())
}
