//! What several tests need.
#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses a part of it")]
#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::test_runner::Config;
use quaymaster_schema::{BUNDLED, Loaded, Schema, Source, load};

pub(crate) fn load_bundled(env: &[(&str, &str)]) -> Loaded {
    let sources = BUNDLED.map(|(name, text)| Source { name, text });
    let find =
        |wanted: &str| env.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned());
    load(&sources, &find)
}

pub(crate) fn bundled_with(env: &[(&str, &str)]) -> Schema {
    let loaded = load_bundled(env);
    assert!(loaded.schema.is_some(), "{:?}", loaded.diagnostics);
    loaded.schema.unwrap()
}

pub(crate) fn bundled() -> Schema {
    bundled_with(&[])
}

/// So many cases, unless `PROPTEST_CASES` asks for another number.
pub(crate) fn cases(usual: u32) -> Config {
    let default = Config { failure_persistence: None, ..Config::default() };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { usual };
    Config { cases, ..default }
}
