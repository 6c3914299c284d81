//! Real servers, faults on the wire, and the suites that every store must pass. Not published.

pub mod between;
pub mod conformance;
pub mod crew;
pub mod described;
pub mod differential;
pub mod foreign;
pub mod forger;
pub mod hammer;
pub mod held_clock;
pub mod hostile;
pub mod idempotency_history;
pub mod liar;
pub mod lock_history;
pub mod meddler;
mod passing;
pub mod proxy;
pub mod queue_history;
pub mod queue_model;
pub mod saboteur;
pub mod script_proxy;
pub mod servers;
pub mod stage;
pub mod storm;
pub mod toll;
pub mod traffic;
pub mod trickster;
pub mod verbs;
