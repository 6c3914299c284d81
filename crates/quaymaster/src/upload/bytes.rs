//! The bytes of chunks in this store, by pieces on connections of their own. Memory is bounded by a piece.

use std::sync::Arc;

use bytes::Bytes;
use quaymaster_store::{Engine, MAX_PIECE, Words};

use super::ask::Stage;
use super::{Upload, ops};
use crate::Result;

/// Staged bytes longer than so many pieces get their room at once, where their number is known: a string that grows
/// piece by piece is copied again and again.
const GROWS: u64 = 2;

impl Upload {
    /// Stages a piece of at most [`MAX_PIECE`] bytes at `offset`. The same piece again changes nothing. `size` is how
    /// many bytes there will be, if that is known when the first piece comes.
    ///
    /// What is staged lives ten minutes from its last piece.
    pub async fn write(
        &self,
        id: &str,
        stage: &Stage,
        offset: u64,
        piece: &[u8],
        size: Option<u64>,
    ) -> Result<()> {
        const OP: &str = ops::STAGE;
        let key = self.staging(OP, id, stage)?;
        let (engine, ttl) = (&self.bound.engine, self.staging_ttl());
        engine.write_piece(&key, offset, piece, ttl).await.map_err(|error| error.during(OP))?;
        match size {
            Some(size) if offset == 0 => self.make_room(id, stage, piece.len() as u64, size).await,
            _ => Ok(()),
        }
    }

    /// Gives staged bytes, of which `staged` are there, room for `size` at once where that is worth a call. Nothing
    /// behind those may be there yet, and what comes has at least `size` bytes.
    pub async fn make_room(&self, id: &str, stage: &Stage, staged: u64, size: u64) -> Result<()> {
        const OP: &str = ops::STAGE;
        if size <= staged + GROWS * MAX_PIECE as u64 {
            return Ok(());
        }
        let key = self.staging(OP, id, stage)?;
        let written = self.bound.engine.write_piece(&key, size - 1, &[0], self.staging_ttl()).await;
        written.map(drop).map_err(|error| error.during(OP))
    }

    /// The same upload on another store: for bytes of chunks that are kept apart, see [`Upload::park`].
    #[must_use]
    pub fn on(&self, engine: Arc<dyn Engine>) -> Self {
        let mut other = self.clone();
        other.bound.engine = engine;
        other
    }

    /// Writes a piece of bytes that stay under this name until they are durable, in a store of their own; offered as
    /// [`super::Source::Elsewhere`]. They live as long as a chunk's from their last piece.
    pub async fn park(&self, id: &str, stage: &Stage, offset: u64, piece: &[u8]) -> Result<()> {
        const OP: &str = ops::STAGE;
        let key = self.staging(OP, id, stage)?;
        let written = self.bound.engine.write_piece(&key, offset, piece, self.spec.chunk_ttl).await;
        written.map(drop).map_err(|error| error.during(OP))
    }

    /// Reads at most `length` (and [`MAX_PIECE`]) parked bytes at `offset`; none when they are gone.
    pub async fn parked(&self, id: &str, stage: &Stage, offset: u64, length: usize) -> Result<Bytes> {
        const OP: &str = ops::READ;
        let key = self.staging(OP, id, stage)?;
        let piece = self.bound.engine.read_piece(&key, offset, length.min(MAX_PIECE)).await;
        piece.map_err(|error| error.during(OP))
    }

    /// Removes what was staged: the request broke off, or its bytes were not what it said.
    pub async fn unstage(&self, id: &str, stage: &Stage) -> Result<()> {
        const OP: &str = ops::STAGE;
        let call = ops::unstage(self, id, stage.as_str())?;
        crate::scripts::upload_unstage::Reply::read(OP, self.bound.run(OP, call).await?).map(drop)
    }

    /// Removes the bytes that another program put under a chunk's documented key, in a store that holds nothing but
    /// chunks.
    pub async fn remove(&self, id: &str, number: u32) -> Result<()> {
        const OP: &str = ops::STAGE;
        let reply = self.bound.run(OP, ops::remove(self, id, number)?).await?;
        crate::scripts::upload_unstage::Reply::read(OP, reply).map(drop)
    }

    /// Reads at most `length` (and [`MAX_PIECE`]) bytes of a chunk at `offset`; fewer at its end, none when they are
    /// gone. Whoever ships a chunk holds what it read against the chunk's digest.
    pub async fn read(&self, id: &str, number: u32, offset: u64, length: usize) -> Result<Bytes> {
        const OP: &str = ops::READ;
        let mut words = Words::default();
        self.bind_chunk(OP, id, number, &mut words)?;
        let key = words.word(0).unwrap_or_default();
        let piece = self.bound.engine.read_piece(key, offset, length.min(MAX_PIECE)).await;
        piece.map_err(|error| error.during(OP))
    }

    fn staging(&self, op: &'static str, id: &str, stage: &Stage) -> Result<Vec<u8>> {
        let mut words = Words::default();
        self.bind_staging(op, id, stage.as_str(), &mut words)?;
        Ok(words.word(0).unwrap_or_default().to_vec())
    }

    fn staging_ttl(&self) -> std::time::Duration {
        let row = self.bound.resource.key("staging");
        row.and_then(|row| row.ttl.duration()).unwrap_or(self.spec.chunk_ttl)
    }
}
