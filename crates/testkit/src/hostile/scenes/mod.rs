//! The scenes, a file per kind.

#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod batch;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod cache;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod dedupe;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod event;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod guard;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod idempotency;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod limit;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod lock;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod queue;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod run;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod stats;
#[expect(clippy::expect_used, reason = "a scene that cannot go on has failed")]
mod upload;

use quaymaster_schema::Kind;

use super::Scene;

/// Every scene.
pub fn all() -> Vec<Scene> {
    [
        queue::SCENES,
        lock::SCENES,
        idempotency::SCENES,
        limit::SCENES,
        cache::SCENES,
        dedupe::SCENES,
        guard::SCENES,
        event::SCENES,
        batch::SCENES,
        run::SCENES,
        &stats::scenes(),
        upload::SCENES,
    ]
    .concat()
}

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
