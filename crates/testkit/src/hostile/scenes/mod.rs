//! The scenes of kinds with many keys, a file each; a simple kind has its scene beside its conformance suite.

#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod batch;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod cache;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod event;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod guard;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod idempotency;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod limit;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod lock;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod queue;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod run;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod stats;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
pub(crate) mod upload;

use quaymaster_schema::Kind;

/// Beginnings of scripts that no scene plays.
pub const SCRIPTS_ELSEWHERE: &[&str] = &[
    // Commands over the whole store.
    "clean.",
    "respell.",
    // Steps that only a cluster needs, whose slots part what is one step here.
    "guard.back",
    "guard.look",
    "run.hour",
    "run.index",
    "run.known",
    "run.settle",
    // Counts brought back after an outage.
    "limit.add.",
    // A schedule and a table that contradict each other.
    "upload.mend",
];

/// Keys of the table without a row: their names are made up by the call that writes them, and nobody else's.
pub const ELSEWHERE: &[(Kind, &str)] = &[(Kind::Upload, "claim"), (Kind::Upload, "staging")];
