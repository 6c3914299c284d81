//! Quaymaster over HTTP: wiring only, no policy.
//!
//! | file | what it knows |
//! |---|---|
//! | `config` | settings: file, flags, environment |
//! | `doctor` | whether a deployment is safe for a schema |
//! | `services` | what a call needs, whoever asks |
//! | `serve`, `late` | from settings to a running server, also while the store is away |
//! | `app` | from a request to its handler and back: routing, bounds, panics, counts |
//! | `access` | the access log: a line for each call, written by a thread of its own |
//! | `call` | the calls under `/v1/<kind>/<name>/<verb>`: one table |
//! | `request` | how a request is declared, read and described |
//! | `command` | the same calls for the command line |
//! | `worker` | sends jobs to HTTP services |
//! | `fan` | one subscription per channel, any number of readers |
//! | `depot` | uploads with all their parts, opened when needed, and what moves them |
//! | `threshold` | what is beyond its threshold, and what to do about it |
//! | `duty` | what happens by itself: sweeps, statuses, clean-ups |
//! | `page` | what is served at fixed paths: probes, metrics, documents, dashboard |
//! | `own` | what the server does to its own requests: records them, limits them |
//! | `http` | connections, TLS, bodies, queries, tokens, problems |

mod access;
mod app;
mod call;
pub mod command;
pub mod config;
mod depot;
pub mod doctor;
mod duty;
mod fan;
mod http;
mod late;
mod metrics;
mod own;
mod page;
mod probe;
mod request;
mod serve;
mod services;
mod threshold;
mod worker;

pub use access::{AccessConfig, AccessLog, AccessTo, Keys, Reopen};
pub use call::queue::QueueRaw;
pub use call::queue::dead::{QueueDeadItem, QueueEncoding, QueueLetter};
pub use call::stats::{StatsConnections, StatsEndpoint, StatsErrors, StatsHour, StatsReport, StatsRequests};
pub use call::upload::create::{UploadCreated, upload_request};
pub use depot::{ChunkPlace, Depot, UploadConfig, told as upload_error};
pub use duty::CleanConfig;
pub use http::listen::Address;
pub use http::origin::Origins;
pub use http::problem::{Asked, document as problem_document, reading_advice};
pub use http::rights::{Resources, Role, Token};
pub use http::tls::TlsFiles;
pub use own::{OwnConfig, OwnLimit};
pub use page::describe::describe;
pub use page::explain::{KeyActual, KeyExplained};
pub use page::openapi::document as openapi;
pub use request::field::{Field, Holds, Shape, Spec};
pub use serve::{Listening, Server, open_store};
pub use services::Services;
pub use threshold::warnings as threshold_warnings;
pub use worker::{WorkerConfig, Workers};

/// The Rust of the front page compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
