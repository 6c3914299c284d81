//! What the server does to its own requests, with the layers that it gives to others: records them, limits them.
//!
//! Both are off unless configured: `[server] stats`, `[server.limit]`.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use quaymaster::layer::{LimitLayer, LimitService, Refused, StatsLayer, StatsService, Trust};
use quaymaster::schema::{Kind, Schema};
use quaymaster::stats::{Connected, Recorder, instance_id};
use quaymaster::{Code, Error, Quaymaster, Result};
use serde_json::{Map, Value};
use tower_layer::Layer as _;
use tower_service::Service;

use crate::app::{self, App};
use crate::http::connection::Activity;
use crate::http::presence::Presence;
use crate::http::trace::Trace;

/// `stats`, `instance`, `limit` and `proxies` in `[server]`.
#[derive(Debug, Clone, Default)]
pub struct OwnConfig {
    /// The stats in which every request is recorded.
    pub stats: Option<String>,
    /// This server's name there.
    pub instance: Option<String>,
    /// The limit that every request takes, probes aside.
    pub limit: Option<OwnLimit>,
    /// Whose word about a caller's address is believed.
    pub trust: Trust,
}

/// A limit of the schema on callers of the server, each by its address.
#[derive(Debug, Clone)]
pub struct OwnLimit {
    /// Its name.
    pub name: String,
    /// The placeholder that is the caller's address; its only one unless told.
    pub address: Option<String>,
}

impl OwnConfig {
    /// Refuses names that the schema has not, and a limit that needs more than an address.
    pub(crate) fn check(&self, schema: &Schema) -> Result<()> {
        if let Some(name) = &self.stats {
            known(schema, Kind::Stats, name, "server.stats")?;
        }
        let Some(limit) = &self.limit else { return Ok(()) };
        known(schema, Kind::Limit, &limit.name, "server.limit.name")?;
        let Some(resource) = schema.resource(Kind::Limit, &limit.name) else { return Ok(()) };
        let pattern = &resource.keys[0].pattern;
        let names: Vec<&str> = pattern.placeholders().collect();
        let fits = names.len() == 1 && limit.address.as_deref().is_none_or(|address| names == [address]);
        if fits {
            return Ok(());
        }
        let detail = format!(
            "server.limit.address: `{}` must have one placeholder, the caller's address{}; it has {}",
            pattern.text(),
            limit.address.as_deref().map_or_else(String::new, |address| format!(" {address:?}")),
            if names.is_empty() { "none".to_owned() } else { names.join(", ") },
        );
        Err(Error::new("serve", Code::ConfigInvalid, detail))
    }
}

fn known(schema: &Schema, kind: Kind, name: &str, setting: &str) -> Result<()> {
    if schema.resource(kind, name).is_some() {
        return Ok(());
    }
    let near =
        schema.nearest(kind, name).map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
    let detail = format!("{setting}: the schema has no {} {name:?}{near}", kind.name());
    Err(Error::new("serve", Code::ConfigInvalid, detail))
}

/// The layers in front of the server's own requests.
#[derive(Debug)]
pub(crate) struct Own {
    recorder: Option<Recorder>,
    stats: Option<StatsLayer>,
    limit: Option<LimitLayer>,
    trust: Trust,
}

impl Own {
    /// Starts what is configured.
    pub(crate) fn start(config: &OwnConfig, quaymaster: &Quaymaster) -> Result<Self> {
        config.check(quaymaster.schema())?;
        let limit = match &config.limit {
            Some(limit) => {
                let limit = quaymaster.limit(&limit.name)?.clone();
                let layer = LimitLayer::by_address_behind(limit, config.trust.clone())?;
                // Whoever watches must see a server that is asked too much, not a dead one.
                Some(layer.unless(|request| app::exempt(&request.method, request.uri.path())))
            }
            None => None,
        };
        let recorder = match &config.stats {
            Some(name) => {
                let instance = config.instance.clone().unwrap_or_else(instance_id);
                Some(quaymaster.stats(name)?.recorder(instance))
            }
            None => None,
        };
        let stats = recorder.clone().map(|recorder| {
            StatsLayer::new(recorder)
                .trust(config.trust.clone())
                .route(|head| app::template(head.method, head.uri.path()).map(Cow::Borrowed))
        });
        Ok(Self { recorder, stats, limit, trust: config.trust.clone() })
    }

    /// Whether requests go straight to their handlers.
    pub(crate) fn is_off(&self) -> bool {
        self.limit.is_none() && self.stats.is_none()
    }

    /// One connection's way to the handlers.
    pub(crate) fn way(&self, answering: Answering) -> Way {
        let limited = self.limit.as_ref().map(|limit| limit.layer(answering.clone()));
        let guarded = Guarded { limited, answering };
        match &self.stats {
            Some(stats) => Way::Recorded(stats.layer(guarded)),
            None => Way::Plain(guarded),
        }
    }

    /// A connection counts as open for as long as the answer lives. Those of trusted proxies count where the schema
    /// ignores their address, too: what comes over them is others' requests.
    pub(crate) fn connected(&self, peer: SocketAddr) -> Option<Connected> {
        let recorder = self.recorder.as_ref()?;
        let address = peer.ip().to_canonical();
        let ignored = recorder.ignores(address) && !self.trust.is_trusted(address);
        (!ignored).then(|| recorder.connected())
    }

    /// Tells the store what was recorded last.
    pub(crate) async fn stop(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.shutdown().await;
        }
    }
}

/// The layers that are there, and the handlers behind them.
#[derive(Clone)]
pub(crate) enum Way {
    Recorded(StatsService<Guarded>),
    Plain(Guarded),
}

impl Way {
    pub(crate) async fn answer(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        match &mut self {
            Way::Recorded(service) => service.call(request).await,
            Way::Plain(service) => service.call(request).await,
        }
    }
}

/// The handlers, for one connection.
#[derive(Clone)]
pub(crate) struct Answering {
    pub(crate) app: Arc<App>,
    pub(crate) presence: Presence,
    pub(crate) activity: Arc<Activity>,
}

impl Service<Request<Incoming>> for Answering {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let Self { app, presence, activity } = self.clone();
        Box::pin(async move { Ok(app.answer(request, &presence, &activity).await) })
    }
}

/// The handlers behind the limit, where there is one.
#[derive(Clone)]
pub(crate) struct Guarded {
    limited: Option<LimitService<Answering>>,
    answering: Answering,
}

impl Service<Request<Incoming>> for Guarded {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let Some(limited) = &mut self.limited else { return self.answering.call(request) };
        let (began, app) = (Instant::now(), self.answering.app.clone());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let names = Trace::headers(request.headers());
        let answer = limited.call(request);
        Box::pin(async move {
            let response = answer.await?.map(Body::new);
            if response.extensions().get::<Refused>().is_none() {
                return Ok(response);
            }
            let trace = Trace::of(&names);
            app.turned_away((&method, uri.path()), response.status(), began.elapsed(), trace);
            Ok(named(response, trace).await)
        })
    }
}

/// A problem of the layer's with the names of its request, as those have them that the handlers answer.
async fn named(response: Response<Body>, trace: Trace<'_>) -> Response<Body> {
    if trace == Trace::default() {
        return response;
    }
    let (head, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let Ok(mut problem) = serde_json::from_slice::<Map<String, Value>>(&bytes) else {
        return Response::from_parts(head, Body::from(bytes));
    };
    problem.extend(trace.named().map(|(name, text)| (name.to_owned(), text.into())));
    let body = serde_json::to_vec(&problem).map_or_else(|_| Body::from(bytes), Body::from);
    Response::from_parts(head, body)
}
