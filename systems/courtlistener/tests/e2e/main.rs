//! The pipeline as its operators know it: nodes that die, a store that restarts, hours that turn, an API with moods.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod api;
mod quota;
mod readme;
mod resume;
mod scene;
