//! The five reference systems, bundled.

use crate::load::{Loaded, Source, load};

/// File name and text of each bundled schema; together they are what `serve` runs without any other.
pub const BUNDLED: [(&str, &str); 5] = [
    ("systems/courtlistener/schema.toml", include_str!("../../../systems/courtlistener/schema.toml")),
    ("systems/uploads/schema.toml", include_str!("../../../systems/uploads/schema.toml")),
    ("systems/home-assistant/schema.toml", include_str!("../../../systems/home-assistant/schema.toml")),
    ("systems/cameras/schema.toml", include_str!("../../../systems/cameras/schema.toml")),
    ("systems/psp/schema.toml", include_str!("../../../systems/psp/schema.toml")),
];

/// Loads the bundled schemas: a demonstration, and the schema says that it is one.
pub fn load_bundled(env: &dyn Fn(&str) -> Option<String>) -> Loaded {
    let mut loaded = load(&BUNDLED.map(|(name, text)| Source { name, text }), env);
    if let Some(schema) = &mut loaded.schema {
        schema.demonstration = true;
    }
    loaded
}
