//! Layers for tower services: axum, hyper and whatever else speaks `http`.
//!
//! | layer | what it does |
//! |---|---|
//! | [`StatsLayer`] | records matched route, status and time of every request |
//! | [`LimitLayer`] | takes limits before the handler runs; `RateLimit`, `RateLimit-Policy`, `Retry-After`, 429 |
//! | [`IdempotencyLayer`] | the `Idempotency-Key` header |
//!
//! Who calls is the other end of the connection (axum's `ConnectInfo`, or a [`Peer`] among the request's extensions),
//! unless a [`Trust`] says whose `Forwarded` may be believed.

mod body;
mod limit;
#[cfg(feature = "axum")]
mod listener;
mod remote;
mod stats;

pub use body::AnswerBody;
pub use limit::{Keyed, LimitLayer, LimitService};
#[cfg(feature = "axum")]
pub use listener::{CountedIo, CountedListener};
pub use remote::{Peer, Trust};
pub use stats::{
    Head, Route, StatsBody, StatsFuture, StatsLayer, StatsService, WholeStatsFuture, WholeStatsLayer,
    WholeStatsService,
};

pub use crate::idempotency::IdempotencyLayer;

use http::HeaderName;

/// Names the policy that answered while the store could not be asked.
pub(crate) const OUTAGE: HeaderName = HeaderName::from_static("quaymaster-outage");

/// Among a response's extensions: the request was turned away before it did anything.
///
/// [`LimitLayer`] puts it on the answers it gives itself; a handler may do so too. Request metrics then count the
/// request as not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// The Rust of the page compiles.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../../docs/layers.md")]
struct Page;
