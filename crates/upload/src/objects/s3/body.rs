//! The bytes of a part on their way: counted and hashed, so that wrong ones are never sent to their end.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use reqwest::Body;
use tokio::io::AsyncReadExt as _;

use super::super::answer::{PartBody, Source};
use crate::sha::Hasher;
use crate::{Error, Result, Sha256};

/// Read at once.
const PIECE: usize = 256 * 1024;

pub(super) async fn body(part: PartBody) -> Result<Body> {
    let PartBody { size, sha256, source } = part;
    let pieces: BoxStream<'static, io::Result<Bytes>> = match source {
        Source::Pieces(pieces) => stream::iter(pieces.into_iter().map(Ok)).boxed(),
        Source::Stream(pieces) => pieces,
        Source::File(path, _) => {
            let file = tokio::fs::File::open(&path)
                .await
                .map_err(|error| Error::io("objects.part", path.display(), error))?;
            stream::try_unfold(file, |mut file| async move {
                let mut buffer = BytesMut::with_capacity(PIECE);
                let read = file.read_buf(&mut buffer).await?;
                Ok((read > 0).then(|| (buffer.freeze(), file)))
            })
            .boxed()
        }
    };
    Ok(Body::wrap_stream(checked(pieces, size, sha256)))
}

/// Ends with an error, and the request with it, before the last byte of what is not the part.
fn checked(
    pieces: BoxStream<'static, io::Result<Bytes>>,
    size: u64,
    sha256: Sha256,
) -> BoxStream<'static, io::Result<Bytes>> {
    let state = (pieces, Hasher::new(), 0_u64);
    stream::try_unfold(state, move |(mut pieces, mut hasher, seen)| async move {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let Some(piece) = pieces.try_next().await? else {
            return if seen == size {
                Ok(None)
            } else {
                Err(wrong(format!("the part has {seen} bytes, not {size}")))
            };
        };
        let seen = seen + piece.len() as u64;
        hasher.update(&piece);
        // The last piece is held back until it is known to be the last.
        if seen > size || (seen == size && has_more(&mut pieces).await?) {
            return Err(wrong(format!("the part has more than {size} bytes")));
        }
        if seen == size {
            let digest = std::mem::take(&mut hasher).finish();
            if digest != sha256 {
                return Err(wrong(format!("the part has SHA-256 {digest}, not {sha256}")));
            }
        }
        Ok(Some((piece, (pieces, hasher, seen))))
    })
    .boxed()
}

async fn has_more(pieces: &mut BoxStream<'static, io::Result<Bytes>>) -> io::Result<bool> {
    while let Some(piece) = pieces.try_next().await? {
        if !piece.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
