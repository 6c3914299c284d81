//! What the layer says in its own words.

use bytes::Bytes;
use http::Response;

use crate::problem::Problem;
use crate::{Code, Error};

/// The answer under `code`. Where waiting helps, a second: the end of somebody's claim is only the latest moment,
/// most operations end long before.
pub(super) fn refuse(code: Code, detail: &str) -> Response<Bytes> {
    Problem::new(code, detail).response()
}

/// The answer to what the primitive could not tell.
pub(super) fn failed(error: &Error) -> Response<Bytes> {
    Problem::new(error.code, &error.detail).field(error.field.as_deref()).response()
}
