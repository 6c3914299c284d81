//! The gateway as its callers and its operators know it: processes, real stores, one database of payments.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod answers;
mod late;
mod once;
mod operating;
mod outages;
mod readme;

mod scene;
