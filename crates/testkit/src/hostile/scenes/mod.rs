//! The scenes, a file per kind.

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
    ]
    .concat()
}

/// Keys of the table without a row.
pub const ELSEWHERE: &[(Kind, &str)] = &[
    (Kind::Batch, "every key"),
    (Kind::Run, "every key"),
    (Kind::Stats, "every key"),
    (Kind::Upload, "every key"),
];
