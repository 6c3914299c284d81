//! `lock`

use quaymaster_schema::LockSpec;

use crate::bound::Bound;

/// A lock of the schema on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Lock {
    bound: Bound,
    spec: LockSpec,
}

impl Lock {
    pub(crate) fn new(bound: Bound, spec: LockSpec) -> Self {
        Self { bound, spec }
    }

    /// Its name in the schema.
    pub fn name(&self) -> &str {
        &self.bound.resource.name
    }

    /// What the schema declares.
    pub fn spec(&self) -> &LockSpec {
        &self.spec
    }
}
