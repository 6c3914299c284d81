//! The bundled schemas, loaded.
#![expect(clippy::unwrap_used, reason = "tests")]

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
