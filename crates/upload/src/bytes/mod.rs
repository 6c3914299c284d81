//! The bytes of chunks that are received and not yet durable: in the store under the documented keys, in another store, or
//! spooled to disk. However large a chunk is, no more than a few pieces of it are in memory.

mod pool;
mod spool;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use quaymaster::Code;
use quaymaster::upload::{Chunk, Dropped, Place, Reservation, Source, Stage, Upload};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::digest::{Digested, Digesting};
use crate::objects::{self, Fsync, Then};
use crate::{Algorithm, Digest, Digester, Result};
use pool::Sharing;
pub(crate) use pool::{Buffer, Pool, Reader, Share};
pub use spool::Swept;
use spool::{Spool, Spooled};

const OP: &str = "upload.bytes";

/// Pieces of a chunk that are fetched from a store while the one before them is sent.
pub(crate) const AHEAD: usize = 3;

/// How often a store's deadline a piece waits until it has taken what was sent before: a first piece is sent in up to
/// three calls.
const TURN: u32 = 3;

/// Before the number of a chunk that another program put under its documented key in a store that holds nothing but
/// chunks: the name of such a place. No stage has a `:` in its name.
const IN_PLACE: &str = "chunks:";

/// What is known of a chunk that is to be staged.
pub(crate) struct Wanted {
    /// How many bytes there will be, if that is known.
    pub(crate) size: Option<u64>,
    /// What is computed of them.
    pub(crate) digesting: Digesting,
    /// What pieces on their way to a store have in memory, all together.
    pub(crate) sending: Arc<Sending>,
}

/// Pieces on their way to a store take turns: until it has them, they are there once more for its connection, and once
/// more in case they must be sent again.
#[derive(Debug)]
pub(crate) struct Sending {
    whole: u32,
    room: Semaphore,
}

impl Sending {
    /// So many bytes at once.
    pub(crate) const fn new(whole: u32) -> Self {
        Self { whole, room: Semaphore::const_new(whole as usize) }
    }

    /// Waits until there is room for so many bytes; for more than there ever is, until it has all of it. No call of the
    /// store takes longer than `deadline`.
    async fn turn(&self, bytes: usize, deadline: Duration) -> Result<SemaphorePermit<'_>> {
        let patience = deadline.saturating_mul(TURN);
        let bytes = u32::try_from(bytes).map_or(self.whole, |bytes| bytes.min(self.whole));
        match tokio::time::timeout(patience, self.room.acquire_many(bytes)).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => {
                let detail = format!(
                    "no turn to send {bytes} bytes to the store within {} ms: it takes what others send too slowly",
                    patience.as_millis()
                );
                Err(quaymaster::Error::new(OP, Code::StoreTimedOut, detail).into())
            }
        }
    }
}

/// Where the bytes of chunks are.
#[derive(Debug, Clone)]
pub enum ChunkBytes {
    /// In the store, under the documented keys.
    Store,
    /// In files of a folder: for nodes that share it.
    Spool(SpoolFolder),
    /// In another store, which may be large and forgetful.
    Apart(Box<Upload>),
}

/// A folder of spooled chunks.
#[derive(Debug, Clone)]
pub struct SpoolFolder(Spool);

impl ChunkBytes {
    /// Spools to this folder, which is made if it is not there.
    pub async fn spool(folder: impl Into<PathBuf>, fsync: Fsync) -> Result<Self> {
        Ok(Self::Spool(SpoolFolder(Spool::open(folder.into(), fsync).await?)))
    }

    /// The store in which another program puts chunks under their documented keys.
    pub(crate) fn store_of_others<'a>(&'a self, store: &'a Upload) -> &'a Upload {
        match self {
            Self::Apart(apart) => apart,
            Self::Store | Self::Spool(_) => store,
        }
    }

    /// The name of a chunk's place there; `None` where that is the store itself.
    pub(crate) fn place_of_others(&self, number: u32) -> Option<String> {
        matches!(self, Self::Apart(_)).then(|| format!("{IN_PLACE}{number}"))
    }

    /// Begins to stage a chunk of an upload.
    pub(crate) async fn stage(
        &self,
        store: &Upload,
        id: &str,
        stage: Stage,
        wanted: Wanted,
    ) -> Result<Staging> {
        let Wanted { size, digesting, sending } = wanted;
        let way = match self {
            Self::Store => Way::Store(Box::new(store.clone()), stage, digesting),
            Self::Spool(SpoolFolder(spool)) => Way::Spool(spool.stage(id, stage.as_str(), digesting).await?),
            Self::Apart(apart) => Way::Apart(apart.clone(), stage, digesting),
        };
        Ok(Staging { way, id: id.to_owned(), announced: size, room: None, size: 0, sending })
    }

    /// The bytes of a claimed chunk, for the object store; `None` when they are gone.
    pub(crate) async fn open(
        &self,
        store: &Upload,
        chunk: &Chunk,
        fetching: &Arc<Share>,
    ) -> Result<Option<Opened>> {
        if chunk.size == 0 {
            return Ok(Some(Opened { source: objects::Source::Pieces(Vec::new()), cut: None, link: None }));
        }
        match (&chunk.place, self) {
            (Place::Store, _) => from_store(&At::chunk(store, chunk, fetching), chunk.size).await,
            (Place::Elsewhere(name), Self::Apart(apart)) => {
                from_store(&At::parked(apart, chunk, name, fetching)?, chunk.size).await
            }
            (Place::Elsewhere(name), Self::Spool(SpoolFolder(spool))) => {
                let Some(path) = spool.lend(chunk.lease.upload_id(), name, chunk.size).await? else {
                    return Ok(None);
                };
                let source = match spool.look_of(name, &chunk.digest) {
                    Some(look) => objects::Source::Written(path.clone(), look),
                    None => objects::Source::File(path.clone(), Then::Take),
                };
                Ok(Some(Opened { source, cut: None, link: Some(path) }))
            }
            (Place::Elsewhere(_), Self::Store) => Ok(None),
        }
    }

    /// Whether the bytes of a claimed chunk are the ones that were received.
    pub(crate) async fn verify(&self, store: &Upload, chunk: &Chunk, fetching: &Arc<Share>) -> Result<bool> {
        let expected = chunk.digest;
        match (&chunk.place, self) {
            (Place::Store, _) => Ok(digest(&At::chunk(store, chunk, fetching), chunk).await? == expected),
            (Place::Elsewhere(name), Self::Apart(apart)) => {
                Ok(digest(&At::parked(apart, chunk, name, fetching)?, chunk).await? == expected)
            }
            (Place::Elsewhere(name), Self::Spool(SpoolFolder(spool))) => {
                Ok(spool.digest(chunk.lease.upload_id(), name, &expected).await? == Some(expected))
            }
            (Place::Elsewhere(_), Self::Store) => Ok(false),
        }
    }

    /// Removes the bytes of a chunk that is durable, where the store does not do so itself.
    pub(crate) async fn remove(&self, id: &str, place: &Place) -> Result<()> {
        match (place, self) {
            (Place::Elsewhere(name), Self::Spool(SpoolFolder(spool))) => spool.remove(id, name).await,
            (Place::Elsewhere(name), Self::Apart(apart)) => {
                match Name::parse(name)? {
                    Name::Chunk(number) => apart.remove(id, number).await?,
                    Name::Parked(stage) => apart.unstage(id, &stage).await?,
                }
                Ok(())
            }
            (Place::Store, _) | (Place::Elsewhere(_), Self::Store) => Ok(()),
        }
    }

    /// Removes everything of an upload that has ended: its chunks as the store named them, and what was on its way.
    pub(crate) async fn remove_all(&self, id: &str, dropped: &[Dropped]) -> Result<()> {
        for chunk in dropped {
            self.remove(id, &chunk.place).await?;
        }
        match self {
            Self::Store | Self::Apart(_) => Ok(()),
            Self::Spool(SpoolFolder(spool)) => spool.remove_all(id).await,
        }
    }

    /// Removes what was staged under a reservation that was given up, unless it is a chunk after all: whoever sent it
    /// died, or stood still for too long, when it was taken and before the account knew.
    pub(crate) async fn reclaim(&self, store: &Upload, lapsed: &Reservation) -> Result<()> {
        let ((id, _), stage) = (lapsed.chunk(), lapsed.stage());
        match self {
            // A chunk's bytes have another name there.
            Self::Store => Ok(store.unstage(id, &stage).await?),
            Self::Spool(_) | Self::Apart(_) if store.waits_at(id, stage.as_str()).await? => Ok(()),
            Self::Spool(SpoolFolder(spool)) => spool.unstage(id, stage.as_str()).await,
            Self::Apart(apart) => Ok(apart.unstage(id, &stage).await?),
        }
    }

    /// Uploads of which there is something in the spool, and what was staged too long ago is removed.
    pub(crate) async fn sweep(&self, store: &Upload) -> Result<Swept> {
        let Self::Spool(SpoolFolder(spool)) = self else { return Ok(Swept::default()) };
        let mut swept = spool.sweep().await?;
        for (id, name) in std::mem::take(&mut swept.stale) {
            if !store.waits_at(&id, &name).await? {
                spool.unstage(&id, &name).await?;
                swept.removed += 1;
            }
        }
        Ok(swept)
    }

    /// How many files of an upload are spooled.
    pub async fn spooled(&self, id: &str) -> Result<u64> {
        match self {
            Self::Store | Self::Apart(_) => Ok(0),
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

/// Where the bytes of a chunk are in a store.
#[derive(Clone)]
struct At {
    store: Upload,
    id: Arc<str>,
    name: Name,
    sharing: Arc<Sharing>,
}

#[derive(Clone)]
enum Name {
    Chunk(u32),
    Parked(Stage),
}

impl Name {
    /// Of a place in a store that holds nothing but chunks.
    fn parse(name: &str) -> Result<Self> {
        match name.strip_prefix(IN_PLACE).and_then(|number| number.parse().ok()) {
            Some(number) => Ok(Self::Chunk(number)),
            None => Ok(Self::Parked(Stage::parse(OP, name)?)),
        }
    }
}

impl At {
    fn chunk(store: &Upload, chunk: &Chunk, fetching: &Arc<Share>) -> Self {
        let id = chunk.lease.upload_id().into();
        let sharing = Arc::new(fetching.join());
        Self { store: store.clone(), id, name: Name::Chunk(chunk.lease.number()), sharing }
    }

    fn parked(apart: &Upload, chunk: &Chunk, name: &str, fetching: &Arc<Share>) -> Result<Self> {
        let name = Name::parse(name)?;
        let sharing = Arc::new(fetching.join());
        Ok(Self { store: apart.clone(), id: chunk.lease.upload_id().into(), name, sharing })
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        Ok(match &self.name {
            Name::Chunk(number) => self.store.read(&self.id, *number, offset, length).await?,
            Name::Parked(stage) => self.store.parked(&self.id, stage, offset, length).await?,
        })
    }

    /// How long the piece is that begins there, as things stand.
    fn length(&self, offset: u64, size: u64) -> usize {
        let most = self.sharing.piece();
        usize::try_from(size.saturating_sub(offset)).map_or(most, |left| left.min(most))
    }

    /// The bytes from `from` on; an empty piece where there are none any more.
    fn pieces(
        &self,
        from: u64,
        size: u64,
    ) -> impl futures_util::Stream<Item = Result<Bytes>> + Send + 'static + use<> {
        let at = self.clone();
        let first = (from, at.length(from, size));
        let lengths = {
            let at = at.clone();
            std::iter::successors(Some(first), move |(offset, length)| {
                let next = offset + *length as u64;
                Some((next, at.length(next, size)))
            })
        };
        stream::iter(lengths.take_while(|(_, length)| *length > 0))
            .map(move |(offset, length)| {
                let at = at.clone();
                async move { at.read(offset, length).await }
            })
            .buffered(AHEAD)
    }
}

async fn from_store(at: &At, size: u64) -> Result<Option<Opened>> {
    let length = at.length(0, size);
    let (first, expected) = (at.read(0, length).await?, length as u64);
    if first.len() as u64 != expected {
        return Ok(None);
    }
    let cut = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cut);
    let mut sent = expected;
    let rest = at.pieces(expected, size).map(move |piece| {
        let piece = piece.map_err(std::io::Error::other)?;
        sent += piece.len() as u64;
        if piece.is_empty() && sent < size {
            flag.store(true, Ordering::Release);
            return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the chunk's bytes are gone"));
        }
        Ok(piece)
    });
    let source = objects::Source::Stream(stream::iter([Ok(first)]).chain(rest).boxed());
    Ok(Some(Opened { source, cut: Some(cut), link: None }))
}

/// The digest of a chunk (its upload, number and size) that lies under its documented key; `None` when it has another
/// size.
pub(crate) async fn digest_in_place(
    store: &Upload,
    (id, number, size): (&str, u32, u64),
    algorithm: Algorithm,
    fetching: &Arc<Share>,
) -> Result<Option<Digest>> {
    let sharing = Arc::new(fetching.join());
    let at = At { store: store.clone(), id: id.into(), name: Name::Chunk(number), sharing };
    let (mut digester, mut read) = (Digester::new(algorithm), 0);
    let mut pieces = std::pin::pin!(at.pieces(0, size));
    while let Some(piece) = pieces.try_next().await? {
        read += piece.len() as u64;
        digester.update(&piece);
    }
    let same = read == size && at.read(size, 1).await?.is_empty();
    Ok(same.then(|| digester.finish()))
}

async fn digest(at: &At, chunk: &Chunk) -> Result<Digest> {
    let mut digester = Digester::like(&chunk.digest);
    let mut pieces = std::pin::pin!(at.pieces(0, chunk.size));
    while let Some(piece) = pieces.try_next().await? {
        digester.update(&piece);
    }
    Ok(digester.finish())
}

/// A chunk on its way in.
pub(crate) struct Staging {
    way: Way,
    id: String,
    announced: Option<u64>,
    /// So many of the announced bytes may come by now, and the store has not been told yet.
    room: Option<u64>,
    size: u64,
    sending: Arc<Sending>,
}

enum Way {
    Store(Box<Upload>, Stage, Digesting),
    Spool(Spooled),
    Apart(Box<Upload>, Stage, Digesting),
}

impl Staging {
    /// So many bytes may come by now. Those that were announced get their room in a store at once, and no others: it has
    /// no more than is reserved.
    pub(crate) fn expect(&mut self, bytes: u64) {
        self.room = self.announced.map(|announced| announced.min(bytes));
    }

    /// Bytes so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next piece and waits until it is out of memory.
    pub(crate) async fn pass(&mut self, piece: Bytes) -> Result<()> {
        self.write(piece).await?;
        match &mut self.way {
            Way::Spool(spooled) => spooled.settle().await,
            Way::Store(..) | Way::Apart(..) => Ok(()),
        }
    }

    /// Takes the next piece, of at most [`quaymaster::upload::MAX_PIECE`] bytes. A store has it then; a file gets it while the next one
    /// comes, so at most two are in memory.
    pub(crate) async fn write(&mut self, piece: Bytes) -> Result<()> {
        let (offset, length) = (self.size, piece.len() as u64);
        match &mut self.way {
            Way::Store(store, stage, digesting) => {
                digesting.update(&piece);
                let _turn = self.sending.turn(piece.len(), store.deadline()).await?;
                store.write(&self.id, stage, offset, &piece, None).await?;
                if let Some(room) = self.room.take() {
                    store.make_room(&self.id, stage, offset + length, room).await?;
                }
            }
            Way::Spool(spooled) => spooled.write(piece).await?,
            Way::Apart(apart, stage, digesting) => {
                digesting.update(&piece);
                let _turn = self.sending.turn(piece.len(), apart.deadline()).await?;
                apart.park(&self.id, stage, offset, &piece).await?;
            }
        }
        self.size += length;
        Ok(())
    }

    /// All bytes came: their digest, once they are as durable as they will be here.
    pub(crate) async fn finish(&mut self) -> Result<Digested> {
        match &mut self.way {
            Way::Spool(spooled) => spooled.finish().await,
            Way::Store(_, _, digesting) | Way::Apart(_, _, digesting) => {
                let ended = Digesting::new(Algorithm::Blake3, false);
                Ok(std::mem::replace(digesting, ended).finish())
            }
        }
    }

    /// Where they are, for the store.
    pub(crate) fn source(&self) -> Source<'_> {
        match &self.way {
            Way::Store(_, stage, _) => Source::Staged(stage),
            Way::Spool(spooled) => Source::Elsewhere(spooled.name()),
            Way::Apart(_, stage, _) => Source::Elsewhere(stage.as_str()),
        }
    }

    /// The chunk was taken, with these bytes.
    pub(crate) async fn keep(self) -> Result<()> {
        match self.way {
            Way::Store(..) | Way::Apart(..) => Ok(()),
            Way::Spool(spooled) => spooled.keep().await,
        }
    }

    /// These bytes are not wanted.
    pub(crate) async fn discard(self) {
        let gone = match self.way {
            Way::Store(store, stage, _) | Way::Apart(store, stage, _) => {
                store.unstage(&self.id, &stage).await.map_err(crate::Error::from)
            }
            Way::Spool(spooled) => spooled.discard().await,
        };
        if let Err(error) = gone {
            tracing::debug!(upload_id = self.id, %error, "staged bytes are left to expire");
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use futures_util::FutureExt as _;
    use quaymaster::Quaymaster;
    use quaymaster::schema::{Source, load};
    use quaymaster::store::StoreOptions;

    use super::*;
    use crate::Trouble;

    #[tokio::test]
    async fn pieces_take_turns_when_there_is_no_room_for_all() {
        let (sending, deadline) = (Sending::new(100), Duration::from_millis(1));
        let first = sending.turn(60, deadline).await.unwrap();
        let second = sending.turn(40, deadline).await.unwrap();
        assert!(sending.turn(1, deadline).now_or_never().is_none());
        drop(first);
        assert!(sending.turn(61, deadline).now_or_never().is_none());
        drop(sending.turn(60, deadline).await.unwrap());
        drop(second);
        // Larger than everything: it goes alone.
        let large = sending.turn(1_000_000, deadline).await.unwrap();
        assert!(sending.turn(1, deadline).now_or_never().is_none());
        let stuck = sending.turn(1, deadline).await.unwrap_err();
        assert_eq!((stuck.trouble(), stuck.code()), (Trouble::Passing, Some(Code::StoreTimedOut)));
        drop(large);
        assert_eq!(sending.room.available_permits(), 100);
    }
    #[tokio::test]
    async fn a_piece_goes_to_a_store_when_it_is_its_turn() {
        let toml = "[schema]\nname = \"uploads\"\nowner = \"tests\"\n[upload.documents]\n\
                    key = \"upload:{upload_id}:state\"\nobjects = \"file:objects\"\ndatabase = \"sqlite:a.db\"\n";
        let schema = load(&[Source { name: "uploads.toml", text: toml }], &|_| None).schema.unwrap();
        let options = StoreOptions::from_url("memory", std::path::Path::new(".")).unwrap();
        let engine = quaymaster::store::open(options).await.unwrap();
        let store = Quaymaster::new(Arc::new(schema), engine).upload("documents").unwrap().clone();
        let sending = Arc::new(Sending::new(100));
        for bytes in [ChunkBytes::Store, ChunkBytes::Apart(Box::new(store.clone()))] {
            let digesting = Digesting::new(Algorithm::Sha256, false);
            let wanted = Wanted { size: Some(2), digesting, sending: Arc::clone(&sending) };
            let mut staging = bytes.stage(&store, "a", Stage::fresh(), wanted).await.unwrap();
            let others = sending.turn(100, Duration::from_secs(60)).await.unwrap();
            {
                let mut write = std::pin::pin!(staging.write(Bytes::from_static(b"a")));
                assert!(write.as_mut().now_or_never().is_none(), "no room");
                drop(others);
                write.await.unwrap();
            }
            staging.write(Bytes::from_static(b"b")).await.unwrap();
            assert_eq!((staging.size(), sending.room.available_permits()), (2, 100));
        }
    }
}
