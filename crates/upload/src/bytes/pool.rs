//! The memory of bodies that are read: little more for many requests than for a few, and the same buffers again and
//! again, for what an allocator is given back by many threads it does not soon give back itself.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use parking_lot::Mutex;

/// What all requests together fill: when there are many, each takes smaller pieces.
const READING: usize = 4 << 20;

/// One that is filled, and one that is written meanwhile.
const PIECES: usize = 2;

/// Larger ones gain nothing; smaller ones cost more than they save.
const LARGEST: usize = 256 << 10;
const LEAST: usize = 32 << 10;

/// What buffers in use and spare ones have together, unless those in use have more.
const HELD: usize = 4 << 20;

/// Spare ones may have this in any case: with many readers they go round the fastest.
const SPARE: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Pool {
    readers: AtomicUsize,
    buffers: Mutex<Buffers>,
}

#[derive(Debug, Default)]
struct Buffers {
    /// Those that nobody has, by when they came back.
    spare: Vec<Vec<u8>>,
    /// What the others have.
    lent: usize,
}

/// A request that reads a body, among all that do.
pub(crate) struct Reader<'a>(&'a Arc<Pool>);

/// What it fills; comes back to its pool from wherever it is dropped.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// How many bytes it is there for.
    full: usize,
    pool: Arc<Pool>,
}

fn piece_of(readers: usize) -> usize {
    // Of few sizes, so that a buffer fits again when readers came or went.
    let fair = READING / PIECES / readers.max(1);
    [LARGEST, LARGEST / 2, LARGEST / 4].into_iter().find(|piece| *piece <= fair).unwrap_or(LEAST)
}

impl Reader<'_> {
    /// An empty buffer for the next piece, of which at most `left` bytes will come.
    pub(crate) fn buffer(&self, left: u64) -> Buffer {
        let most = piece_of(self.0.readers.load(Relaxed));
        let full = usize::try_from(left).map_or(most, |left| left.min(most));
        let bytes = self.0.buffers.lock().lend(full);
        Buffer { bytes, full, pool: Arc::clone(self.0) }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Relaxed);
    }
}

impl Pool {
    pub(crate) fn reader(self: &Arc<Self>) -> Reader<'_> {
        self.readers.fetch_add(1, Relaxed);
        Reader(self)
    }
}

impl Buffers {
    fn lend(&mut self, full: usize) -> Vec<u8> {
        // What is much smaller is not worth keeping.
        let size = if full > LEAST / 2 { full.next_power_of_two() } else { full };
        let bytes = match self.spare.iter().rposition(|buffer| buffer.capacity() == size) {
            Some(at) => self.spare.swap_remove(at),
            None => Vec::with_capacity(size),
        };
        self.lent += bytes.capacity();
        bytes
    }

    fn take_back(&mut self, mut bytes: Vec<u8>) {
        let size = bytes.capacity();
        self.lent = self.lent.saturating_sub(size);
        if size <= LEAST / 2 || size > LARGEST {
            return;
        }
        bytes.clear();
        self.spare.push(bytes);
        let most = HELD.saturating_sub(self.lent).max(SPARE);
        let mut spare = self.spare.iter().map(Vec::capacity).sum::<usize>();
        // The oldest go: they may have the size of another hour.
        while spare > most {
            spare -= self.spare.remove(0).capacity();
        }
    }
}

impl Buffer {
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= self.full
    }

    /// Takes as much as there is room for.
    pub(crate) fn fill(&mut self, from: &mut Bytes) {
        let room = self.full.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&from.split_to(room.min(from.len())));
    }

    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        self.pool.buffers.lock().take_back(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(pool: &Pool) -> Vec<usize> {
        pool.buffers.lock().spare.iter().map(Vec::capacity).collect()
    }

    #[test]
    fn many_readers_together_fill_little_more_than_a_few() {
        for readers in [0, 1, 8, 9, 16, 17, 32, 64] {
            let piece = piece_of(readers);
            assert!((LEAST..=LARGEST).contains(&piece));
            assert!(PIECES * piece * readers <= HELD, "{readers}");
        }
        assert_eq!((piece_of(8), piece_of(9), piece_of(10_000)), (LARGEST, LARGEST / 2, LEAST));
    }

    #[test]
    fn a_reader_counts_for_as_long_as_it_reads() {
        let pool = Arc::new(Pool::default());
        let mut many: Vec<Reader<'_>> = (0..9).map(|_| pool.reader()).collect();
        assert_eq!(many[0].buffer(u64::MAX).full, LARGEST / 2);
        many.pop();
        assert_eq!(many[0].buffer(u64::MAX).full, LARGEST);
        assert_eq!(many[0].buffer(10).full, 10);
    }

    #[test]
    fn a_buffer_serves_again_when_the_last_who_reads_it_is_done() {
        let pool = Arc::new(Pool::default());
        let reader = pool.reader();
        let mut buffer = reader.buffer(LARGEST as u64);
        let mut bytes = Bytes::from(vec![7; LARGEST + 1]);
        buffer.fill(&mut bytes);
        assert!(buffer.is_full() && bytes.len() == 1, "no more than there is room for");
        let place = buffer.as_ref().as_ptr();
        let piece = buffer.freeze();
        let shared = piece.clone();
        drop(piece);
        assert_ne!(reader.buffer(u64::MAX).as_ref().as_ptr(), place, "somebody reads it");
        assert_eq!(shared, vec![7; LARGEST]);
        drop(shared);
        let again = reader.buffer(LARGEST as u64 - 5);
        assert_eq!((again.as_ref().as_ptr(), again.as_ref().len()), (place, 0));
        assert!(!again.is_full());
        // A piece that never got anywhere comes back as well; what is small does not stay.
        drop((again, reader.buffer(100)));
        assert!(spare(&pool).iter().all(|size| *size == LARGEST), "{:?}", spare(&pool));
        assert_eq!(pool.buffers.lock().lent, 0);
    }

    #[test]
    fn what_is_held_has_a_bound_and_the_newest_stay() {
        let pool = Arc::new(Pool::default());
        let reader = pool.reader();
        drop((0..100).map(|_| reader.buffer(LEAST as u64)).collect::<Vec<_>>());
        assert_eq!(spare(&pool), vec![LEAST; 100]);
        drop((0..HELD / LARGEST).map(|_| reader.buffer(u64::MAX)).collect::<Vec<_>>());
        assert_eq!(spare(&pool), vec![LARGEST; HELD / LARGEST], "of the size that is wanted now");
        let many: Vec<Buffer> = (0..2 * HELD / LARGEST).map(|_| reader.buffer(u64::MAX)).collect();
        assert_eq!(pool.buffers.lock().lent, 2 * HELD, "nobody waits for memory");
        let some: Vec<Buffer> = (0..2 * SPARE / LARGEST).map(|_| reader.buffer(u64::MAX)).collect();
        drop(some);
        assert_eq!(spare(&pool).iter().sum::<usize>(), SPARE, "many are lent, and some go round");
        drop(many);
        assert_eq!(spare(&pool).iter().sum::<usize>(), HELD);
    }
}
