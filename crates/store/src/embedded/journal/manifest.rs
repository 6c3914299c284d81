//! Checks the database's manifests before it reads them.
//!
//! Each keyspace's folder has a file `current`: the number of the manifest that counts, its checksum and
//! the checksum's kind (0, xxh3). The database does not look at that checksum, and a damaged manifest can
//! make it allocate until the process is aborted, so it is looked at here.

use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

/// The manifest or pointer in `keyspace` that is not what was written, if there is one.
pub(super) fn damaged(keyspace: &Path) -> io::Result<Option<PathBuf>> {
    let current = keyspace.join("current");
    let Some((number, sum)) = decode(&std::fs::read(&current)?) else { return Ok(Some(current)) };
    let manifest = keyspace.join(format!("v{number}"));
    match std::fs::read(&manifest) {
        Ok(bytes) => Ok((xxh3_128(&bytes) != sum).then_some(manifest)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(manifest)),
        Err(error) => Err(error),
    }
}

fn decode(current: &[u8]) -> Option<(u64, u128)> {
    let (number, rest) = current.split_first_chunk()?;
    let (sum, kind) = rest.split_first_chunk()?;
    (kind == [0]).then_some((u64::from_le_bytes(*number), u128::from_le_bytes(*sum)))
}
