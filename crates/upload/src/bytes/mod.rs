//! The bytes of chunks that are received and not yet durable: in the store under the documented keys, or spooled to
//! disk. However large a chunk is, no more than a few pieces of it are in memory.

mod spool;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use quaymaster::upload::{Chunk, Dropped, MAX_PIECE, Place, Source, Stage, Upload};

use crate::objects::{self, Fsync, Then};
use crate::{Hasher, Result, Sha256};
pub use spool::Swept;
use spool::{Spool, Spooled};

/// Pieces of a chunk that are read ahead while it is sent.
const AHEAD: usize = 2;

/// Where the bytes of chunks are.
#[derive(Debug, Clone)]
pub enum ChunkBytes {
    /// In the store, under the documented keys.
    Store,
    /// In files of a folder: for nodes that share it.
    Spool(SpoolFolder),
}

/// A folder of spooled chunks.
#[derive(Debug, Clone)]
pub struct SpoolFolder(Spool);

impl ChunkBytes {
    /// Spools to this folder, which is made if it is not there.
    pub async fn spool(folder: impl Into<PathBuf>, fsync: Fsync) -> Result<Self> {
        Ok(Self::Spool(SpoolFolder(Spool::open(folder.into(), fsync).await?)))
    }

    /// Begins to stage a chunk of an upload; `size` is how many bytes there will be, if that is known.
    pub(crate) async fn stage(&self, store: &Upload, id: &str, size: Option<u64>) -> Result<Staging> {
        let way = match self {
            Self::Store => Way::Store(Box::new(store.clone()), Stage::fresh()),
            Self::Spool(SpoolFolder(spool)) => Way::Spool(spool.stage(id, Stage::fresh().as_str()).await?),
        };
        Ok(Staging { way, id: id.to_owned(), announced: size, size: 0, hasher: Hasher::new() })
    }

    /// The bytes of a claimed chunk, for the object store; `None` when they are gone.
    pub(crate) async fn open(&self, store: &Upload, chunk: &Chunk) -> Result<Option<Opened>> {
        if chunk.size == 0 {
            return Ok(Some(Opened { source: objects::Source::Pieces(Vec::new()), cut: None, link: None }));
        }
        match (&chunk.place, self) {
            (Place::Store, _) => from_store(store, chunk).await,
            (Place::Elsewhere(name), Self::Spool(SpoolFolder(spool))) => {
                let Some(path) = spool.lend(chunk.lease.upload_id(), name, chunk.size).await? else {
                    return Ok(None);
                };
                let source = objects::Source::File(path.clone(), Then::Take);
                Ok(Some(Opened { source, cut: None, link: Some(path) }))
            }
            (Place::Elsewhere(_), Self::Store) => Ok(None),
        }
    }

    /// Whether the bytes of a claimed chunk are the ones that were received.
    pub(crate) async fn verify(&self, store: &Upload, chunk: &Chunk) -> Result<bool> {
        let expected = Sha256::from_bytes(chunk.sha256);
        match (&chunk.place, self) {
            (Place::Store, _) => {
                let mut hasher = Hasher::new();
                let mut pieces = std::pin::pin!(pieces(store, chunk, 0));
                while let Some(piece) = pieces.try_next().await? {
                    hasher.update(&piece);
                }
                Ok(hasher.finish() == expected)
            }
            (Place::Elsewhere(name), Self::Spool(SpoolFolder(spool))) => {
                Ok(spool.digest(chunk.lease.upload_id(), name).await? == Some(expected))
            }
            (Place::Elsewhere(_), Self::Store) => Ok(false),
        }
    }

    /// Removes the bytes of a chunk that is durable, where the store does not do so itself.
    pub(crate) async fn remove(&self, id: &str, place: &Place) -> Result<()> {
        match (place, self) {
            (Place::Elsewhere(name), Self::Spool(SpoolFolder(spool))) => spool.remove(id, name).await,
            _ => Ok(()),
        }
    }

    /// Removes everything of an upload that has ended: its chunks as the store named them, and what was on its way.
    pub(crate) async fn remove_all(&self, id: &str, dropped: &[Dropped]) -> Result<()> {
        for chunk in dropped {
            self.remove(id, &chunk.place).await?;
        }
        match self {
            Self::Store => Ok(()),
            Self::Spool(SpoolFolder(spool)) => spool.remove_all(id).await,
        }
    }

    /// Uploads of which there is something in the spool, and what was staged too long ago is removed.
    pub(crate) async fn sweep(&self) -> Result<Swept> {
        match self {
            Self::Store => Ok(Swept::default()),
            Self::Spool(SpoolFolder(spool)) => spool.sweep().await,
        }
    }

    /// How many files of an upload are spooled.
    pub async fn spooled(&self, id: &str) -> Result<u64> {
        match self {
            Self::Store => Ok(0),
            Self::Spool(SpoolFolder(spool)) => spool.count(id).await,
        }
    }
}

/// The bytes of a chunk on their way out.
pub(crate) struct Opened {
    pub(crate) source: objects::Source,
    /// Set when the store gave fewer bytes than the chunk has.
    cut: Option<Arc<AtomicBool>>,
    /// A second name of a spooled file, the object store's to take.
    link: Option<PathBuf>,
}

/// What is left to do once a part was sent or not.
pub(crate) struct Lent {
    cut: Option<Arc<AtomicBool>>,
    link: Option<PathBuf>,
}

impl Opened {
    pub(crate) fn take(self) -> (objects::Source, Lent) {
        (self.source, Lent { cut: self.cut, link: self.link })
    }
}

impl Lent {
    /// Whether bytes turned out to be gone while they were sent.
    pub(crate) fn was_cut(&self) -> bool {
        self.cut.as_ref().is_some_and(|cut| cut.load(Ordering::Acquire))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            // Gone already where it was moved.
            let _ = std::fs::remove_file(link);
        }
    }
}

async fn from_store(store: &Upload, chunk: &Chunk) -> Result<Option<Opened>> {
    let id = chunk.lease.upload_id();
    let first = store.read(id, chunk.lease.number(), 0, MAX_PIECE).await?;
    let expected = chunk.size.min(MAX_PIECE as u64);
    if first.len() as u64 != expected {
        return Ok(None);
    }
    let cut = Arc::new(AtomicBool::new(false));
    let (flag, wanted) = (Arc::clone(&cut), chunk.size);
    let mut sent = expected;
    let rest = pieces(store, chunk, expected).map(move |piece| {
        let piece = piece.map_err(std::io::Error::other)?;
        sent += piece.len() as u64;
        if piece.is_empty() && sent < wanted {
            flag.store(true, Ordering::Release);
            return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the chunk's bytes are gone"));
        }
        Ok(piece)
    });
    let source = objects::Source::Stream(stream::iter([Ok(first)]).chain(rest).boxed());
    Ok(Some(Opened { source, cut: Some(cut), link: None }))
}

/// The bytes of a chunk in the store from `from` on; an empty piece where there are none any more.
fn pieces(
    store: &Upload,
    chunk: &Chunk,
    from: u64,
) -> impl futures_util::Stream<Item = Result<Bytes>> + Send + 'static {
    let (store, id, number) = (store.clone(), chunk.lease.upload_id().to_owned(), chunk.lease.number());
    let offsets = (from..chunk.size).step_by(MAX_PIECE);
    stream::iter(offsets)
        .map(move |offset| {
            let (store, id) = (store.clone(), id.clone());
            async move { Ok(store.read(&id, number, offset, MAX_PIECE).await?) }
        })
        .buffered(AHEAD)
}

/// A chunk on its way in.
pub(crate) struct Staging {
    way: Way,
    id: String,
    announced: Option<u64>,
    size: u64,
    hasher: Hasher,
}

enum Way {
    Store(Box<Upload>, Stage),
    Spool(Spooled),
}

impl Staging {
    /// Bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The next piece, of at most [`MAX_PIECE`] bytes. Done when the store has it.
    pub(crate) async fn write(&mut self, piece: Bytes) -> Result<()> {
        self.hasher.update(&piece);
        let (offset, length) = (self.size, piece.len() as u64);
        match &mut self.way {
            Way::Store(store, stage) => store.write(&self.id, stage, offset, &piece, self.announced).await?,
            Way::Spool(spooled) => spooled.write(piece).await?,
        }
        self.size += length;
        Ok(())
    }

    /// All bytes came: their digest, once they are as durable as they will be here.
    pub(crate) async fn finish(&mut self) -> Result<Sha256> {
        if let Way::Spool(spooled) = &mut self.way {
            spooled.sync().await?;
        }
        Ok(std::mem::take(&mut self.hasher).finish())
    }

    /// Where they are, for the store.
    pub(crate) fn source(&self) -> Source<'_> {
        match &self.way {
            Way::Store(_, stage) => Source::Staged(stage),
            Way::Spool(spooled) => Source::Elsewhere(spooled.name()),
        }
    }

    /// The chunk was taken, with these bytes.
    pub(crate) async fn keep(self) -> Result<()> {
        match self.way {
            Way::Store(..) => Ok(()),
            Way::Spool(spooled) => spooled.keep().await,
        }
    }

    /// These bytes are not wanted.
    pub(crate) async fn discard(self) {
        let gone = match self.way {
            Way::Store(store, stage) => store.unstage(&self.id, &stage).await.map_err(crate::Error::from),
            Way::Spool(spooled) => spooled.discard().await,
        };
        if let Err(error) = gone {
            tracing::debug!(upload_id = self.id, %error, "staged bytes are left to expire");
        }
    }
}
