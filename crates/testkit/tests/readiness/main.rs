//! `/readyz` against real servers: not ready while no write can succeed, with the reason, and ready again by itself.
#![expect(clippy::unwrap_used, reason = "what fails here is the test")]

mod eviction;
mod idle;
mod reasons;
mod scene;
mod settings;
