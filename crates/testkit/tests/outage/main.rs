//! What is answered while the store cannot be asked, and what the store knows afterwards.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod crowd;
mod database;
mod faults;
mod http;
mod local;
mod memory;
mod queues;
mod scene;
