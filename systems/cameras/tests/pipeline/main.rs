//! The pipeline as its operators know it: a folder of images, processes that die, real stores, a WebSocket.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod dead_letters;
mod document;
mod events;
mod readme;
mod watching;

mod scene;
mod socket;
