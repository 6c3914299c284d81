//! The bytes of an object, part after part.

use std::ops::Range;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::super::Pieces;
use super::disk::PIECE;
use super::manifest::Manifest;
use crate::{Error, Result, Trouble};

const OP: &str = "objects.read";

/// Where a reader is.
struct Reader {
    folder: PathBuf,
    /// Files still to be read: name, where to begin, how many bytes.
    parts: std::vec::IntoIter<(String, u64, u64)>,
    open: Option<(File, u64)>,
}

pub(super) fn pieces(folder: PathBuf, manifest: Manifest, range: Option<Range<u64>>) -> Pieces {
    let range = range.unwrap_or(0..manifest.size);
    let mut parts = Vec::new();
    let mut begins = 0;
    for part in manifest.parts {
        let ends = begins + part.size;
        let (from, to) = (range.start.max(begins), range.end.min(ends));
        if from < to {
            parts.push((part.file, from - begins, to - from));
        }
        begins = ends;
    }
    let reader = Reader { folder, parts: parts.into_iter(), open: None };
    stream::try_unfold(
        reader,
        |mut reader| async move { Ok(reader.next().await?.map(|piece| (piece, reader))) },
    )
    .boxed()
}

impl Reader {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let (mut file, left) = match self.open.take() {
            Some(open) => open,
            None => {
                let Some((name, from, length)) = self.parts.next() else { return Ok(None) };
                let path = self.folder.join(name);
                let failed = |error| Error::io(OP, path.display(), error);
                let mut file = File::open(&path).await.map_err(failed)?;
                if from > 0 {
                    file.seek(std::io::SeekFrom::Start(from)).await.map_err(failed)?;
                }
                (file, length)
            }
        };
        let mut buffer = BytesMut::with_capacity(PIECE.min(left as usize));
        let read = (&mut file)
            .take(left)
            .read_buf(&mut buffer)
            .await
            .map_err(|error| Error::io(OP, self.folder.display(), error))?;
        if read == 0 {
            let detail = format!("a part of {} is shorter than its manifest says", self.folder.display());
            return Err(Error::new(OP, Trouble::Never, detail).saying("damaged"));
        }
        let left = left - read as u64;
        self.open = (left > 0).then_some((file, left));
        Ok(Some(buffer.freeze()))
    }
}
