//! The backend as its operators know it: several processes, callers, processes that die, real stores.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod counts;
mod deaths;
mod limits;
mod node;
mod operating;
mod percentiles;
mod readme;

mod scene;
