//! `cache`

use quaymaster_schema::CacheSpec;

use crate::bound::Bound;

/// A cache of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cache {
    bound: Bound,
    spec: CacheSpec,
}

impl Cache {
    pub(crate) fn new(bound: Bound, spec: CacheSpec) -> Self {
        Self { bound, spec }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &CacheSpec {
        &self.spec
    }
}
