//! Every resource of a schema, by kind and name.

use std::collections::HashMap;
use std::sync::Arc;

use quaymaster_schema::{EventSpec, Kind, Resource, Schema, Spec};

use crate::batch::{Batch, Target};
use crate::bound::Bound;
use crate::cache::Cache;
use crate::dedupe::Dedupe;
use crate::event::Event;
use crate::guard::Guard;
use crate::idempotency::Idempotency;
use crate::limit::Limit;
use crate::lock::Lock;
use crate::queue::Queue;
use crate::queue::keys::Around;
use crate::run::Run;
use crate::stats::Stats;
use crate::upload::Upload;
use crate::{Quaymaster, Result};

/// Keeps every resource of a kind by its name, and finds it for whoever asks.
macro_rules! primitives {
    ($($kind:ident $one:ident $many:ident;)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Registry {
            $(pub(crate) $many: HashMap<String, $kind>,)*
        }

        impl Quaymaster {
            $(
                #[doc = concat!("The ", stringify!($one), " of this name.")]
                pub fn $one(&self, name: &str) -> Result<&$kind> {
                    let found = self.inner.registry.$many.get(name);
                    found.ok_or_else(|| self.unknown(Kind::$kind, name))
                }

                #[doc = concat!("Every ", stringify!($one), " of the schema.")]
                pub fn $many(&self) -> impl Iterator<Item = &$kind> {
                    self.inner.registry.$many.values()
                }
            )*
        }
    };
}

primitives! {
    Limit limit limits;
    Idempotency idempotency idempotencies;
    Lock lock locks;
    Cache cache caches;
    Dedupe dedupe dedupes;
    Guard guard guards;
    Batch batch batches;
    Event event events;
    Queue queue queues;
    Run run runs;
    Stats stats all_stats;
    Upload upload uploads;
}

impl Registry {
    pub(crate) fn new(schema: &Schema, bind: impl Fn(&Arc<Resource>) -> Bound) -> Self {
        let mut all = Self::default();
        for resource in schema.resources() {
            let (name, bound) = (resource.name.clone(), bind(resource));
            match &resource.spec {
                Spec::Limit(spec) => drop(all.limits.insert(name, Limit::new(bound, spec.clone()))),
                Spec::Idempotency(spec) => {
                    all.idempotencies.insert(name, Idempotency::new(bound, spec.clone()));
                }
                Spec::Lock(spec) => drop(all.locks.insert(name, Lock::new(bound, spec.clone()))),
                Spec::Cache(spec) => drop(all.caches.insert(name, Cache::new(bound, spec.clone()))),
                Spec::Upload(spec) => drop(all.uploads.insert(name, Upload::new(bound, spec.clone()))),
                Spec::Dedupe(spec) => drop(all.dedupes.insert(name, Dedupe::new(bound, spec.clone()))),
                Spec::Batch(spec) => {
                    // The loader has checked that the queue is there.
                    if let Some(to) = schema.resource(Kind::Queue, &spec.to)
                        && let Spec::Queue(queue) = &to.spec
                    {
                        let to = Target { resource: to.clone(), spec: queue.clone() };
                        all.batches.insert(name, Batch::new(bound, spec.clone(), to));
                    }
                }
                Spec::Event(spec) => {
                    let event = Event::new(bound, spec.clone(), told_queues(schema, resource, spec));
                    all.events.insert(name, event);
                }
                Spec::Stats(spec) => drop(all.all_stats.insert(name, Stats::new(bound, spec.clone()))),
                _ => {}
            }
        }
        // A guard names resources of its own schema; the loader has checked that they are there.
        for resource in schema.resources() {
            if let Spec::Guard(spec) = &resource.spec {
                let limits = spec.limits.iter().filter_map(|name| all.limits.get(name).cloned()).collect();
                let idempotency =
                    spec.idempotency.as_ref().and_then(|name| all.idempotencies.get(name).cloned());
                let lock = spec.lock.as_ref().and_then(|name| all.locks.get(name).cloned());
                let guard = Guard::new(bind(resource), limits, idempotency, lock);
                all.guards.insert(resource.name.clone(), guard);
            }
        }
        // A run counts by a limit of its own schema.
        for resource in schema.resources() {
            if let Spec::Run(spec) = &resource.spec {
                let limit = spec.limit.as_ref().and_then(|name| all.limits.get(name).cloned());
                all.runs.insert(resource.name.clone(), Run::new(bind(resource), spec.clone(), limit));
            }
        }
        // A queue's step may be joined with a dedupe, a batch, an event and other queues.
        let around = Arc::new(Around::of(schema, &all.batches, &bind));
        for resource in schema.resources().filter(|resource| resource.kind == Kind::Queue) {
            all.queues
                .extend(Queue::new(&resource.name, &around).map(|queue| (resource.name.clone(), queue)));
        }
        all
    }
}

/// The queues whose depths an event's status tells: those it names, or else those of its own document.
fn told_queues(schema: &Schema, event: &Resource, spec: &EventSpec) -> Vec<Arc<Resource>> {
    let Some(status) = &spec.status else { return Vec::new() };
    if status.queues.is_empty() {
        let beside = |queue: &&Arc<Resource>| queue.kind == Kind::Queue && queue.document == event.document;
        return schema.resources().filter(beside).cloned().collect();
    }
    status.queues.iter().filter_map(|name| schema.resource(Kind::Queue, name).cloned()).collect()
}
