//! The bytes of a part on their way: counted, and hashed where the store compares nothing, so that wrong ones are never
//! sent to their end.

use std::fs::File;
use std::io::{self, Read as _};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use reqwest::Body;

use super::super::answer::Source;
use crate::sha::Hasher;
use crate::{Error, Result, Sha256};

/// Read at once.
const PIECE: u64 = 512 * 1024;

/// `sha256`: compared here, with what is sent.
pub(super) async fn body(size: u64, source: Source, sha256: Option<Sha256>) -> Result<Body> {
    let pieces: BoxStream<'static, io::Result<Bytes>> = match source {
        Source::Pieces(pieces) => stream::iter(pieces.into_iter().map(Ok)).boxed(),
        Source::Stream(pieces) => pieces,
        Source::File(path, _) => {
            let file = tokio::fs::File::open(&path)
                .await
                .map_err(|error| Error::io("objects.part", path.display(), error))?;
            read(file.into_std().await).boxed()
        }
    };
    Ok(Body::wrap_stream(checked(pieces, size, sha256)))
}

/// A file's bytes: while a piece is sent, the next one is read.
fn read(file: File) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold(next_of(file), |reading| async {
        let (file, piece) = reading.await.map_err(io::Error::other)??;
        Ok((!piece.is_empty()).then(|| (Bytes::from(piece), next_of(file))))
    })
}

fn next_of(mut file: File) -> tokio::task::JoinHandle<io::Result<(File, Vec<u8>)>> {
    tokio::task::spawn_blocking(move || {
        let mut piece = Vec::with_capacity(PIECE as usize);
        (&mut file).take(PIECE).read_to_end(&mut piece)?;
        Ok((file, piece))
    })
}

/// Ends with an error, and the request with it, before the last byte of what is not the part.
fn checked(
    pieces: BoxStream<'static, io::Result<Bytes>>,
    size: u64,
    sha256: Option<Sha256>,
) -> BoxStream<'static, io::Result<Bytes>> {
    let state = (pieces, sha256.map(|expected| (expected, Hasher::new())), 0_u64);
    stream::try_unfold(state, move |(mut pieces, mut compared, seen)| async move {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let Some(piece) = pieces.try_next().await? else {
            return if seen == size {
                Ok(None)
            } else {
                Err(wrong(format!("the part has {seen} bytes, not {size}")))
            };
        };
        let seen = seen + piece.len() as u64;
        if let Some((_, hasher)) = &mut compared {
            hasher.update(&piece);
        }
        // The last piece is held back until it is known to be the last.
        if seen > size || (seen == size && has_more(&mut pieces).await?) {
            return Err(wrong(format!("the part has more than {size} bytes")));
        }
        if seen == size
            && let Some((expected, hasher)) = compared.take()
        {
            let digest = hasher.finish();
            if digest != expected {
                return Err(wrong(format!("the part has SHA-256 {digest}, not {expected}")));
            }
        }
        Ok(Some((piece, (pieces, compared, seen))))
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
