//! From the last part to the event: an upload's completion, and its end without one.

mod decide;

pub use decide::{Asked, Begun, Did, Flaw, Known, Next, Seen, decide};
