//! Every resource of a schema, by kind and name.

use std::collections::HashMap;
use std::sync::Arc;

use quaymaster_schema::{Resource, Schema, Spec};

use crate::bound::Bound;
use crate::cache::Cache;
use crate::dedupe::Dedupe;
use crate::guard::Guard;
use crate::idempotency::Idempotency;
use crate::limit::Limit;
use crate::lock::Lock;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) limits: HashMap<String, Limit>,
    pub(crate) idempotencies: HashMap<String, Idempotency>,
    pub(crate) locks: HashMap<String, Lock>,
    pub(crate) caches: HashMap<String, Cache>,
    pub(crate) dedupes: HashMap<String, Dedupe>,
    pub(crate) guards: HashMap<String, Guard>,
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
                Spec::Dedupe(spec) => drop(all.dedupes.insert(name, Dedupe::new(bound, spec.clone()))),
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
        all
    }
}
