//! Declare your Redis schema once; run every operation in it atomically.
//!
//! A [`Quaymaster`] is a checked [`Schema`] on a store. Its primitives answer with values that must be
//! looked at; an error means "you asked wrongly" or "we cannot tell".

pub mod batch;
mod bound;
pub mod cache;
pub mod clean;
pub mod dedupe;
pub mod event;
#[cfg(feature = "axum")]
pub mod extract;
pub mod guard;
pub mod idempotency;
mod json;
#[cfg(feature = "tower")]
pub mod layer;
pub mod limit;
pub mod lock;
mod moment;
mod outage;
#[cfg(feature = "tower")]
mod problem;
pub mod queue;
mod registry;
pub mod respell;
pub mod retry;
pub mod rights;
pub mod run;
#[expect(dead_code, reason = "a reply says more than every caller wants to know")]
#[expect(clippy::large_enum_variant, reason = "a reply is read and taken apart at once")]
#[expect(clippy::large_types_passed_by_value, reason = "a row is made where it is put")]
mod scripts;
mod seal;
pub mod stats;
mod throttle;
mod token;
pub mod upload;
mod wake;
pub mod worker;
mod wrote;

use std::sync::Arc;

pub use bound::Key;
pub use outage::{DatabaseOptions, Outages, Uncarried};
pub use quaymaster_schema as schema;
pub use quaymaster_store as store;
pub use schema::{Outage, Schema};
pub use scripts::{Operation, operations};
pub use seal::Seal;
pub use store::{Code, Engine, Error, Result, Retry};
pub use token::Token;
pub use wrote::{Wrote, watched};

use bound::{Bound, Shared};
use registry::Registry;
use schema::Kind;

/// A schema on a store: where every primitive is found by its name. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Quaymaster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Arc<dyn Engine>,
    schema: Arc<Schema>,
    shared: Arc<Shared>,
    registry: Registry,
}

/// What a process brings along beside schema and store.
#[derive(Debug, Default)]
pub struct Settings {
    /// Keys for values marked `sensitive`.
    pub seal: Seal,
    /// Nodes among which limits with `on_outage = "local"` are divided; one unless told.
    pub nodes: Option<std::num::NonZeroU32>,
    /// Where limits with `on_outage = "database"` count; without one they refuse.
    pub database: Option<DatabaseOptions>,
    /// How large what queues carry may be.
    pub queues: queue::Bounds,
}

impl Quaymaster {
    /// Binds a schema to a store, without keys for sensitive values.
    pub fn new(schema: Arc<Schema>, engine: Arc<dyn Engine>) -> Self {
        Self::with(schema, engine, Settings::default())
    }

    /// Binds a schema to a store.
    pub fn with(schema: Arc<Schema>, engine: Arc<dyn Engine>, settings: Settings) -> Self {
        let outages = Outages::new(&schema, engine.clone(), settings.nodes, settings.database);
        let shared = Arc::new(Shared {
            schema: schema.clone(),
            seal: settings.seal,
            outages,
            queues: settings.queues,
        });
        let registry = Registry::new(&schema, |resource| Bound {
            engine: engine.clone(),
            resource: resource.clone(),
            shared: shared.clone(),
        });
        Self { inner: Arc::new(Inner { engine, schema, shared, registry }) }
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.inner.schema
    }

    /// The store.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.inner.engine
    }

    /// Whether values marked `sensitive` are encrypted.
    pub fn seals(&self) -> bool {
        self.inner.shared.seal.is_active()
    }

    /// Answers given by outage policies.
    pub fn outages(&self) -> &Arc<Outages> {
        &self.inner.shared.outages
    }

    fn unknown(&self, kind: Kind, name: &str) -> Error {
        let (kind_name, schema) = (kind.name(), &self.inner.schema);
        if let Some(variable) = schema.left_out(kind, name) {
            let detail =
                format!("{kind_name}.{name} needs the environment variable {variable}, which is not set");
            return Error::new("resource", Code::ConfigInvalid, detail);
        }
        let near = match schema.nearest(kind, name) {
            Some(near) => format!("; did you mean {near:?}?"),
            None => String::new(),
        };
        let demonstration = if schema.is_demonstration() {
            "; only the bundled demonstration schemas are loaded: --schema FILE or QUAYMASTER_SCHEMA loads yours"
        } else {
            ""
        };
        Error::new(
            "resource",
            Code::ResourceUnknown,
            format!("there is no {kind_name} {name:?}{near}{demonstration}"),
        )
    }
}
