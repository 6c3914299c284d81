//! The other contestants.

pub(crate) mod disk;
pub(crate) mod node;
pub(crate) mod redis_benchmark;
pub(crate) mod wrk;
