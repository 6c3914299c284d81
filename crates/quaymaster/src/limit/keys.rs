//! Binds the schema's key table to one call of a limit.

use quaymaster_schema::Bucket;
use quaymaster_store::Words;

use crate::Result;
use crate::bound::{Bound, Key};

/// Appends the limit's key, and the request's when there is one; answers the bucket in the key.
pub(super) fn bind(
    op: &'static str,
    bound: &Bound,
    key: Key<'_>,
    request_id: Option<&str>,
    now_us: i64,
    keys: &mut Words,
) -> Result<Option<Bucket>> {
    let bucket = bound.bind(op, key, now_us, keys)?;
    if let Some(id) = request_id {
        bound.bind_request(op, key, id, keys)?;
    }
    Ok(bucket)
}
