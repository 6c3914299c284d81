//! Into the store: uploads are created, chunks come in, and how far each has come is told.

mod anew;
mod callers;
mod chunk;
mod create;
mod room;
mod state;

use std::time::Duration;

pub use anew::Anew;
pub(crate) use callers::Callers;
pub use chunk::{Incoming, Took};
pub use create::{Began, Creation, Request};
pub(crate) use create::{Strays, about, metadata, multipart_of};
pub use state::{Content, Resumed, Standing};

/// Retry delay of a chunk that has to begin anew.
const GIVEN_UP: Duration = Duration::from_secs(1);
