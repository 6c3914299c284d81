//! Layers for tower services: axum, hyper and whatever else speaks `http`.
//!
//! | layer | what it does |
//! |---|---|
//! | [`LimitLayer`] | takes limits before the handler runs; `RateLimit`, `RateLimit-Policy`, `Retry-After`, 429 |
//! | [`IdempotencyLayer`] | the `Idempotency-Key` header |
//!
//! Who calls is the other end of the connection (axum's `ConnectInfo`, or a [`Peer`] among the request's extensions),
//! unless a [`Trust`] says whose `Forwarded` may be believed.

mod body;
mod limit;
mod remote;

pub use body::AnswerBody;
pub use limit::{Keyed, LimitLayer, LimitService};
pub use remote::{Peer, Trust};

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
