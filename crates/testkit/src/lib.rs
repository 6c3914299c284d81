//! Real servers, faults on the wire, and the suites that every store must pass. Not published.

pub mod conformance;
pub mod differential;
pub mod hammer;
pub mod held_clock;
pub mod idempotency_history;
pub mod liar;
pub mod lock_history;
pub mod proxy;
pub mod saboteur;
pub mod servers;
pub mod toll;
