//! `guard`: the limits, the idempotency and the lock it names, entered together, all or none.

use crate::bound::Bound;
use crate::idempotency::Idempotency;
use crate::limit::Limit;
use crate::lock::Lock;

/// A guard of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Guard {
    bound: Bound,
    limits: Vec<Limit>,
    idempotency: Option<Idempotency>,
    lock: Option<Lock>,
}

impl Guard {
    pub(crate) fn new(
        bound: Bound,
        limits: Vec<Limit>,
        idempotency: Option<Idempotency>,
        lock: Option<Lock>,
    ) -> Self {
        Self { bound, limits, idempotency, lock }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// The limits it takes.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The idempotency it begins.
    pub fn idempotency(&self) -> Option<&Idempotency> {
        self.idempotency.as_ref()
    }

    /// The lock it acquires.
    pub fn lock(&self) -> Option<&Lock> {
        self.lock.as_ref()
    }
}
