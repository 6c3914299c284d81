//! Binds the schema's key table to one call of a limit.

use quaymaster_schema::{Bucket, Pattern, Spelling};
use quaymaster_store::{Topology, Words};

use super::Key;
use crate::{Code, Error, Result};

/// The longest `request_id`.
const REQUEST_ID_MAX: usize = 128;

pub(crate) fn spelling(topology: Topology) -> Spelling {
    match topology {
        Topology::Single => Spelling::Single,
        Topology::Cluster => Spelling::Cluster,
    }
}

/// Appends the limit's key, and the request's when there is one; answers the bucket in the key.
pub(super) fn bind(
    op: &'static str,
    pattern: &Pattern,
    key: Key<'_>,
    request_id: Option<&str>,
    now_us: i64,
    topology: Topology,
    keys: &mut Words,
) -> Result<Option<Bucket>> {
    let spelling = spelling(topology);
    let mut bucket = None;
    keys.push_with(|out| {
        bucket = pattern.render(key, now_us, spelling, out)?;
        Ok(())
    })
    .map_err(|error: quaymaster_schema::KeyError| Error::new(op, error.code, error.detail))?;
    if let Some(id) = request_id {
        bind_request(op, pattern, key, id, topology, keys)?;
    }
    Ok(bucket)
}

/// Appends the key under which the answer to `id` is kept, beside the limit's own.
pub(super) fn bind_request(
    op: &'static str,
    pattern: &Pattern,
    key: Key<'_>,
    id: &str,
    topology: Topology,
    keys: &mut Words,
) -> Result<()> {
    check_request_id(op, id)?;
    let suffix = format!("req:{id}");
    keys.push_with(|out| pattern.render_side(key, &suffix, spelling(topology), out))
        .map_err(|error| Error::new(op, error.code, error.detail))
}

fn check_request_id(op: &'static str, id: &str) -> Result<()> {
    let usable = |c: char| !c.is_control() && !matches!(c, '{' | '}' | '*' | '?' | '[' | ']');
    if id.is_empty() || id.len() > REQUEST_ID_MAX || !id.chars().all(usable) {
        let detail = format!(
            "request_id: 1 to {REQUEST_ID_MAX} bytes without control characters and {{ }} * ? [ ], got {} bytes",
            id.len()
        );
        return Err(Error::new(op, Code::RequestInvalid, detail));
    }
    Ok(())
}
