//! Request metrics of a tower service.
//!
//! A request is recorded when its response's head is there ([`StatsLayer`]), or when its body has ended
//! ([`StatsLayer::to_the_end`]).
//!
//! | what became of it | recorded as |
//! |---|---|
//! | answered | the response's status; an error from 400 on |
//! | answered 429, or with [`super::Refused`] | the same, and not accepted |
//! | the inner service failed | 500 |
//! | the handler panicked | 500 |
//! | the client went away, or a layer outside gave up on it | 499 |
//! | it came from an address that the schema ignores | not at all |
//!
//! The endpoint is `METHOD /template`: the route that [`StatsLayer::route`] names, that axum matched, or that stands as
//! a [`Route`] among the response's extensions. Without any of them it is counted as unmatched, never by its path.

mod body;
mod pending;
mod service;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::{Extensions, HeaderMap, Method, Uri};

pub use body::StatsBody;
pub use service::{StatsFuture, StatsService, WholeStatsFuture, WholeStatsService};

use super::Trust;
use crate::stats::Recorder;

/// Among a response's extensions: the route that answered, `/users/{id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route(pub Cow<'static, str>);

/// A request without its body.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// Its method.
    pub method: &'a Method,
    /// What it asks for.
    pub uri: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its extensions.
    pub extensions: &'a Extensions,
}

type RouteOf = dyn Fn(Head<'_>) -> Option<Cow<'static, str>> + Send + Sync;

/// Records every request of a tower service. Cheap to clone.
///
#[cfg_attr(feature = "axum", doc = "```no_run")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// # use axum::{Router, routing::get};
/// # use quaymaster::{Quaymaster, layer::{Peer, StatsLayer}};
/// # async fn serve(
/// #     quaymaster: Quaymaster,
/// #     listener: tokio::net::TcpListener,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let recorder = quaymaster.stats("ha")?.recorder("instance-1");
/// let app = Router::new()
///     .route("/users/{id}", get(|| async { "one user" }))
///     .layer(StatsLayer::new(recorder.clone()));
/// let app = app.into_make_service_with_connect_info::<Peer>();
/// axum::serve(recorder.listener(listener), app).await?;
/// recorder.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StatsLayer {
    settings: Settings,
}

/// The same, until a response's body has ended.
#[derive(Clone)]
pub struct WholeStatsLayer {
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    recorder: Recorder,
    route_of: Option<Arc<RouteOf>>,
    trust: Trust,
}

impl fmt::Debug for StatsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsLayer").finish_non_exhaustive()
    }
}

impl fmt::Debug for WholeStatsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WholeStatsLayer").finish_non_exhaustive()
    }
}

impl StatsLayer {
    /// Records with `recorder`.
    pub fn new(recorder: Recorder) -> Self {
        Self { settings: Settings { recorder, route_of: None, trust: Trust::nobody() } }
    }

    /// Names the route of a request in axum's place: its template, never its path. Where it is `None` the response may
    /// still tell ([`Route`]).
    pub fn route(
        mut self,
        of: impl Fn(Head<'_>) -> Option<Cow<'static, str>> + Send + Sync + 'static,
    ) -> Self {
        self.settings.route_of = Some(Arc::new(of));
        self
    }

    /// Whose word about a caller's address is believed, where the schema ignores some. Nobody's unless told.
    pub fn trust(mut self, trust: Trust) -> Self {
        self.settings.trust = trust;
        self
    }

    /// Measures until the last byte of the response's body, instead of until its head.
    pub fn to_the_end(self) -> WholeStatsLayer {
        WholeStatsLayer { settings: self.settings }
    }
}

impl<S> tower_layer::Layer<S> for StatsLayer {
    type Service = StatsService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        StatsService { inner, settings: self.settings.clone() }
    }
}

impl<S> tower_layer::Layer<S> for WholeStatsLayer {
    type Service = WholeStatsService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        WholeStatsService { inner, settings: self.settings.clone() }
    }
}
