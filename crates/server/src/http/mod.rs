//! HTTP without policy: bodies, queries, problems, connections.

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod conditional;
pub(crate) mod connection;
pub(crate) mod guesses;
pub(crate) mod gzip;
pub(crate) mod listen;
pub(crate) mod maybe_tls;
pub(crate) mod origin;
pub(crate) mod presence;
pub(crate) mod problem;
pub(crate) mod query;
pub(crate) mod rights;
pub(crate) mod socket;
pub(crate) mod sse;
pub(crate) mod tls;
pub(crate) mod trace;
pub(crate) mod ws;
