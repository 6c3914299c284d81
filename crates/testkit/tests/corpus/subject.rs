//! What the corpus is played on: all systems and a schema of its own, on a Redis.

use quaymaster_testkit::stage::{Stage, Store, schema_of};

/// The corpus' own schema; its file is beside this one.
const OWN: &str = include_str!("schema.toml");
const SYSTEMS: [&str; 5] = ["psp", "cameras", "courtlistener", "home-assistant", "uploads"];

pub(crate) fn start() -> Stage {
    let texts = SYSTEMS.map(|system| (system, schema_of(system)));
    let systems = texts.iter().map(|(name, text)| (*name, text.as_str()));
    let schemas: Vec<(&str, &str)> = std::iter::once(("own", OWN)).chain(systems).collect();
    let stage = Stage::new(Store::Redis, &schemas);
    stage.settings("[server]\nmax_body_bytes = \"64KiB\"");
    stage
}
