//! `dedupe`

use quaymaster_schema::DedupeSpec;

use crate::bound::Bound;

/// A dedupe of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dedupe {
    bound: Bound,
    spec: DedupeSpec,
}

impl Dedupe {
    pub(crate) fn new(bound: Bound, spec: DedupeSpec) -> Self {
        Self { bound, spec }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &DedupeSpec {
        &self.spec
    }
}
