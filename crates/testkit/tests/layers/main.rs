//! The tower layers and extractors on real servers, over TCP.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod client;
mod cluster;
mod extract;
mod limit;
mod outage;
mod page;
mod stats;

use std::sync::Arc;

use quaymaster::schema::{Source, load};
use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::{Engine, Quaymaster, Settings};

/// A schema on a store in memory.
async fn in_memory(schema: &str) -> Quaymaster {
    bind(schema, Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap()))
}

fn bind(schema: &str, engine: Arc<dyn Engine>) -> Quaymaster {
    let text = format!("[schema]\nname = \"layers\"\nowner = \"tests\"\n{schema}");
    let loaded = load(&[Source { name: "layers.toml", text: &text }], &|_| None);
    let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    Quaymaster::with(Arc::new(schema), engine, Settings::default())
}
