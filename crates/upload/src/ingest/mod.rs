//! Into the store: uploads are created, chunks come in, and how far each has come is told.

mod chunk;
mod create;
mod state;

pub use chunk::{Anew, Incoming, Took};
pub use create::{Began, Creation, Request};
pub(crate) use create::{Strays, about, multipart_of};
pub use state::{Content, Resumed, Standing};
