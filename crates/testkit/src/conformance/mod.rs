//! One suite for every store: what holds on one must hold on all.
//!
//! A [`Subject`] is a store under test with a way to let its time pass. The test binary makes one test per
//! case of [`all`]; [`run_all`] runs every case on one subject, for stores that are slow to start.

#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod batch;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod cache;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod clean;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod dedupe;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod engine;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod event;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod foreign;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod guard;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod guard_steps;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod idempotency;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod limit;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod lock;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod queue;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod queue_edges;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod queue_lease;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod queue_request;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod queue_scores;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod respell;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod run;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod run_edges;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod run_fields;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod run_unclaimed;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod seal;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod stats;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
mod subject;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod upload;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod upload_life;
#[expect(clippy::expect_used, reason = "a case that cannot go on has failed")]
pub mod upload_tell;

pub use subject::{Subject, command, command_int, command_text};

use futures_util::future::BoxFuture;

use crate::hostile::{Scene, scenes};

/// One case: a name that is a sentence, and what must hold.
pub struct Case {
    /// The sentence.
    pub name: &'static str,
    /// The check; panics when it does not hold.
    pub run: fn(&Subject) -> BoxFuture<'_, ()>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Declares cases as async functions and lists them in `CASES`.
#[macro_export]
macro_rules! cases {
    ($($(#[$meta:meta])* async fn $name:ident($subject:ident: &Subject) $body:block)*) => {
        $( #[doc = "A case; its name says what must hold."]
        $(#[$meta])* pub async fn $name($subject: &$crate::conformance::Subject) $body )*
        /// Every case of this suite.
        pub const CASES: &[$crate::conformance::Case] = &[
            $($crate::conformance::Case {
                name: stringify!($name),
                run: |subject| Box::pin($name(subject)),
            }),*
        ];
    };
}

/// Every case of every suite.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let guards = limit::CASES
        .iter()
        .chain(lock::CASES)
        .chain(idempotency::CASES)
        .chain(guard::CASES)
        .chain(guard_steps::CASES);
    engine::CASES
        .iter()
        .chain(guards)
        .chain(cache::CASES)
        .chain(dedupe::CASES)
        .chain(seal::CASES)
        .chain(batch::CASES)
        .chain(event::CASES)
        .chain(queue::CASES)
        .chain(queue_lease::CASES)
        .chain(queue_request::CASES)
        .chain(queue_scores::CASES)
        .chain(queue_edges::CASES)
        .chain(upload::CASES)
        .chain(upload_life::CASES)
        .chain(upload_tell::CASES)
        .chain(run::CASES)
        .chain(run_edges::CASES)
        .chain(run_fields::CASES)
        .chain(run_unclaimed::CASES)
        .chain(stats::CASES)
        .chain(clean::CASES)
        .chain(respell::CASES)
        .chain(foreign::CASES)
}

/// Every scene of hostile keys.
pub fn scenes() -> Vec<Scene> {
    [
        scenes::queue::SCENES,
        scenes::lock::SCENES,
        scenes::idempotency::SCENES,
        scenes::limit::SCENES,
        scenes::cache::SCENES,
        dedupe::SCENES,
        scenes::guard::SCENES,
        scenes::event::SCENES,
        scenes::batch::SCENES,
        scenes::run::SCENES,
        &scenes::stats::scenes(),
        scenes::upload::SCENES,
    ]
    .concat()
}

/// Runs every case, one after the other, each under keys of its own.
pub async fn run_all(subject: &Subject) {
    for case in all() {
        println!("{} {}", subject.name, case.name);
        (case.run)(&subject.apart(case.name)).await;
    }
}
