//! `idempotency`

use quaymaster_schema::IdempotencySpec;

use crate::bound::Bound;

/// A idempotency of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Idempotency {
    bound: Bound,
    spec: IdempotencySpec,
}

impl Idempotency {
    pub(crate) fn new(bound: Bound, spec: IdempotencySpec) -> Self {
        Self { bound, spec }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &IdempotencySpec {
        &self.spec
    }
}
