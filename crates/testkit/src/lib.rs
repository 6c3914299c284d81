//! Real servers, faults on the wire, and the suites that every store must pass. Not published.

pub mod hammer;
pub mod held_clock;
pub mod proxy;
pub mod servers;
