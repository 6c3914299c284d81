//! Declare your Redis schema once; run every operation in it atomically.
//!
//! A [`Quaymaster`] is a checked [`Schema`] on a store. Its primitives answer with values that must be
//! looked at; an error means "you asked wrongly" or "we cannot tell".

pub mod limit;
mod scripts;

use std::collections::HashMap;
use std::sync::Arc;

pub use quaymaster_schema as schema;
pub use quaymaster_store as store;
pub use schema::Schema;
pub use scripts::{Operation, operations};
pub use store::{Code, Engine, Error, Result, Retry};

use schema::{Kind, Spec};

/// A schema on a store: where every primitive is found by its name. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Quaymaster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Arc<dyn Engine>,
    schema: Arc<Schema>,
    limits: HashMap<String, limit::Limit>,
}

impl Quaymaster {
    /// Binds a schema to a store.
    pub fn new(schema: Arc<Schema>, engine: Arc<dyn Engine>) -> Self {
        let limits = schema
            .resources()
            .filter_map(|resource| match &resource.spec {
                Spec::Limit(spec) => {
                    let limit = limit::Limit::new(engine.clone(), resource.clone(), spec.clone());
                    Some((resource.name.clone(), limit))
                }
                _ => None,
            })
            .collect();
        Self { inner: Arc::new(Inner { engine, schema, limits }) }
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.inner.schema
    }

    /// The store.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.inner.engine
    }

    /// The limit of this name.
    pub fn limit(&self, name: &str) -> Result<&limit::Limit> {
        self.inner.limits.get(name).ok_or_else(|| self.unknown(Kind::Limit, name))
    }

    /// All limits.
    pub fn limits(&self) -> impl Iterator<Item = &limit::Limit> {
        self.inner.limits.values()
    }

    fn unknown(&self, kind: Kind, name: &str) -> Error {
        let kind_name = kind.name();
        let detail = match self.inner.schema.nearest(kind, name) {
            Some(near) => format!("there is no {kind_name} {name:?}; did you mean {near:?}?"),
            None => format!("there is no {kind_name} {name:?}"),
        };
        Error::new("resource", Code::ResourceUnknown, detail)
    }
}
