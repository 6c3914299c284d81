//! The bytes of a part on their way: counted, and hashed where the store compares nothing, so that wrong ones are never
//! sent to their end. A file that this process wrote and nobody touched since is believed instead.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use reqwest::Body;
use tokio::task::JoinHandle;

use super::super::answer::Source;
use super::super::look::Look;
use crate::bytes::{Pool, Reader, Share};
use crate::sha::Hasher;
use crate::threads::OUT;
use crate::{Error, Result, Sha256};

/// What all parts that are read from files should have in memory: of each, one piece is read and one is sent. The
/// client takes some more of what is slow to go, up to 400 KiB, and then all are given smaller ones.
const READING: usize = 8 << 20;

pub(super) fn pool() -> Arc<Pool> {
    Arc::new(Pool::new(Share::new(READING, 2)))
}

/// `sha256`: compared here, with what is sent.
pub(super) async fn body(
    pool: &Arc<Pool>,
    size: u64,
    source: Source,
    sha256: Option<Sha256>,
) -> Result<Body> {
    Ok(Body::wrap_stream(pieces(pool, size, source, sha256).await?))
}

async fn pieces(
    pool: &Arc<Pool>,
    size: u64,
    source: Source,
    sha256: Option<Sha256>,
) -> Result<BoxStream<'static, io::Result<Bytes>>> {
    let from_file = |file, look| read(Reading { file, look, reader: pool.reader(), left: size }).boxed();
    let (pieces, sha256): (BoxStream<'static, io::Result<Bytes>>, _) = match source {
        Source::Pieces(pieces) => (stream::iter(pieces.into_iter().map(Ok)).boxed(), sha256),
        Source::Stream(pieces) => (pieces, sha256),
        Source::File(path, _) => (from_file(opened(&path).await?, None), sha256),
        Source::Written(path, look) => {
            let file = opened(&path).await?;
            let believed = sha256.is_some() && Look::of(&file).is_ok_and(|now| now == look);
            (from_file(file, believed.then_some(look)), sha256.filter(|_| !believed))
        }
    };
    Ok(checked(pieces, size, sha256))
}

async fn opened(path: &Path) -> Result<File> {
    let named = path.to_owned();
    let opened = OUT.off(move || File::open(named)).await.map_err(io::Error::other);
    opened.flatten().map_err(|error| Error::io("objects.part", path.display(), error))
}

/// A file's bytes: while a piece is sent, the next one is read.
fn read(reading: Reading) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold(reading.next(), |next| async {
        let (reading, piece) = next.await.map_err(io::Error::other)??;
        Ok((!piece.is_empty()).then(|| (piece, reading.next())))
    })
}

struct Reading {
    file: File,
    /// What it must look like to its end.
    look: Option<Look>,
    reader: Reader,
    left: u64,
}

impl Reading {
    fn next(mut self) -> JoinHandle<io::Result<(Self, Bytes)>> {
        OUT.off(move || {
            // One byte too many is seen by whoever counts.
            let mut piece = self.reader.buffer(self.left.max(1));
            piece.read(&mut self.file)?;
            let piece = piece.freeze();
            self.left = self.left.saturating_sub(piece.len() as u64);
            if self.left == 0
                && let Some(look) = self.look
                && Look::of(&self.file)? != look
            {
                return Err(wrong("the part's file was written to while it was sent".to_owned()));
            }
            Ok((self, piece))
        })
    }
}

/// Bytes that are not the part's.
fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Ends with an error, and the request with it, before the last byte of what is not the part.
fn checked(
    pieces: BoxStream<'static, io::Result<Bytes>>,
    size: u64,
    sha256: Option<Sha256>,
) -> BoxStream<'static, io::Result<Bytes>> {
    let state = (pieces, sha256.map(|expected| (expected, Hasher::new())), 0_u64);
    stream::try_unfold(state, move |(mut pieces, mut compared, seen)| async move {
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::os::unix::fs::FileExt as _;
    use std::time::Duration;

    use tempfile::NamedTempFile;

    use super::super::super::answer::Then;
    use super::*;

    /// Of a few pieces.
    const SIZE: usize = 1 << 20;

    fn written() -> (NamedTempFile, Look, Sha256) {
        let bytes = vec![7; SIZE];
        let file = NamedTempFile::new().unwrap();
        file.as_file().write_all_at(&bytes, 0).unwrap();
        let look = Look::of(file.as_file()).unwrap();
        (file, look, Sha256::of(&bytes))
    }

    /// `later`: as the clock of a file system shows it; it may stand still for some milliseconds.
    fn spoil(file: &File, later: Duration) {
        let then = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"spoilt", SIZE as u64 - 10).unwrap();
        file.set_modified(then + later).unwrap();
    }

    async fn sent(source: Source, sha256: Sha256) -> io::Result<usize> {
        let pieces = pieces(&pool(), SIZE as u64, source, Some(sha256)).await.unwrap();
        pieces.try_fold(0, |sent, piece| async move { Ok(sent + piece.len()) }).await
    }

    #[tokio::test]
    async fn a_file_is_hashed_unless_it_looks_as_when_we_wrote_it() {
        let (file, look, sha256) = written();
        let known = || Source::Written(file.path().to_owned(), look);
        let unknown = || Source::File(file.path().to_owned(), Then::Keep);
        assert_eq!(
            (sent(known(), sha256).await.unwrap(), sent(unknown(), sha256).await.unwrap()),
            (SIZE, SIZE)
        );
        spoil(file.as_file(), Duration::ZERO);
        assert_eq!(sent(known(), sha256).await.unwrap(), SIZE, "believed by its looks alone");
        assert_eq!(sent(unknown(), sha256).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        spoil(file.as_file(), Duration::from_millis(10));
        assert_eq!(sent(known(), sha256).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn another_file_in_its_place_is_hashed() {
        let ((file, look, sha256), (other, ..)) = (written(), written());
        other.as_file().set_modified(file.as_file().metadata().unwrap().modified().unwrap()).unwrap();
        spoil(other.as_file(), Duration::ZERO);
        let source = Source::Written(other.path().to_owned(), look);
        assert_eq!(sent(source, sha256).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_file_that_is_written_to_while_it_is_sent_is_not_sent_to_its_end() {
        let (file, look, sha256) = written();
        let source = Source::Written(file.path().to_owned(), look);
        let mut pieces = pieces(&pool(), SIZE as u64, source, Some(sha256)).await.unwrap();
        let mut sent = pieces.try_next().await.unwrap().unwrap().len();
        spoil(file.as_file(), Duration::from_millis(10));
        let error = loop {
            match pieces.try_next().await {
                Ok(piece) => sent += piece.unwrap().len(),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(sent < SIZE, "{sent}");
    }
}
