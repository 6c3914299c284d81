//! The server over real sockets.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_input;
mod batches;
mod caches;
mod client;
mod drain;
mod engines;
mod events;
mod fixture;
mod guards;
mod idempotency;
mod latency;
mod lifecycle;
mod listening;
mod locks;
mod manners;
mod offsets;
mod openapi;
mod origins;
mod own;
mod queues;
mod routes;
mod runs;
mod service;
mod slow_senders;
mod snippets;
mod sockets;
mod stats;
mod upload_edges;
mod upload_events;
mod upload_front;
mod upload_start;
mod uploads;
mod waiting;
mod waiting_bound;
mod workers;
