//! What is measured. A family starts its own servers and stops them.

mod always;
mod crate_on_redis;
mod embedded;
mod http;
mod keys;
mod layer;
mod script;
pub(crate) mod startup;

use anyhow::Result;
use clap::ValueEnum;
use tokio::runtime::Runtime;

use crate::{Findings, Settings};

/// A group of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    /// The crate on Redis beside redis-benchmark and rate-limiter-flexible.
    Redis,
    /// The server beside webdis, 64 keep-alive connections.
    Http,
    /// The embedded store, in memory and `everysec`, beside the crate on Redis.
    Embedded,
    /// The embedded store, `always`, beside the bare disk and Redis with `appendfsync always`.
    Always,
    /// A thousand callers beside a million, on both stores.
    Keys,
    /// Opening the embedded store with a million keys.
    Startup,
    /// Processor time of one script of two commands on the embedded store.
    Script,
    /// What the `Idempotency-Key` layer adds to a request.
    Layer,
    /// The payment gateway's mix on Redis at a rate: crate, HTTP, and the document's separate commands.
    Psp,
    /// Queues beside BullMQ, bee-queue and bare lists on one Redis.
    Queue,
    /// Queues on the embedded store beside Redis.
    QueueEmbedded,
    /// An event to a thousand WebSocket readers.
    Fanout,
    /// The recording and the limiting layer, beside limiters in process and on Redis.
    Layers,
    /// Requests recorded by the document's separate commands and by the recorder: round trips and bytes.
    Stats,
    /// Files in chunks into files and SeaweedFS, beside `object_store`, plain PUT and `@tus/server`; memory; completion.
    Uploads,
}

impl Family {
    pub(crate) const ALL: [Family; 15] = [
        Family::Redis,
        Family::Http,
        Family::Embedded,
        Family::Always,
        Family::Keys,
        Family::Startup,
        Family::Script,
        Family::Layer,
        Family::Psp,
        Family::Queue,
        Family::QueueEmbedded,
        Family::Fanout,
        Family::Layers,
        Family::Stats,
        Family::Uploads,
    ];

    pub(crate) fn run(self, settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
        match self {
            Family::Redis => crate_on_redis::run(settings, runtime, findings),
            Family::Http => http::run(settings, runtime, findings),
            Family::Embedded => embedded::run(settings, runtime, findings),
            Family::Always => always::run(settings, runtime, findings),
            Family::Keys => keys::run(settings, runtime, findings),
            Family::Startup => startup::run(settings, runtime, findings),
            Family::Script => script::run(settings, runtime, findings),
            Family::Layer => layer::run(settings, runtime, findings),
            Family::Psp => crate::psp::run(settings, runtime, findings),
            Family::Queue => crate::queue::run(settings, runtime, findings),
            Family::QueueEmbedded => crate::queue::embedded(settings, runtime, findings),
            Family::Fanout => crate::queue::fanout::run(settings, runtime, findings),
            Family::Layers => crate::layers::run(settings, runtime, findings),
            Family::Stats => crate::stats::run(settings, runtime, findings),
            Family::Uploads => crate::uploads::run(settings, findings),
        }
    }
}
