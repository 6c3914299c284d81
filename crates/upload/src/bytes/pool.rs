//! The memory of bytes on their way in and out: little more for many chunks than for a few, and the same buffers again
//! and again, for what an allocator is given back by many threads it does not soon give back itself.

use std::io::{self, Read};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use parking_lot::Mutex;

/// Larger ones gain nothing; smaller ones cost more than they save.
const LARGEST: usize = 256 << 10;
const LEAST: usize = 32 << 10;

/// A chunk begins with it where there are others: in a crowd nothing more of it is collected.
const FIRST: usize = 8 << 10;

/// Spare ones may have this in any case: with many readers they go round the fastest.
const SPARE: usize = 256 << 10;

/// Memory that chunks on one way have together: when there are many, each takes smaller pieces.
#[derive(Debug)]
pub(crate) struct Share {
    whole: usize,
    /// How many pieces a chunk has at once.
    pieces: usize,
    chunks: AtomicUsize,
}

/// A chunk among those that share.
#[derive(Debug)]
pub(crate) struct Sharing(Arc<Share>);

impl Share {
    pub(crate) const fn new(whole: usize, pieces: usize) -> Self {
        Self { whole, pieces, chunks: AtomicUsize::new(0) }
    }

    pub(crate) fn join(self: &Arc<Self>) -> Sharing {
        self.chunks.fetch_add(1, Relaxed);
        Sharing(Arc::clone(self))
    }

    fn piece_of(&self, chunks: usize) -> usize {
        // Of few sizes, so that a buffer fits again when chunks came or went.
        let fair = self.whole / self.pieces / chunks.max(1);
        [LARGEST, LARGEST / 2, LARGEST / 4].into_iter().find(|piece| *piece <= fair).unwrap_or(LEAST)
    }
}

impl Sharing {
    /// How long its next piece should be.
    pub(crate) fn piece(&self) -> usize {
        self.0.piece_of(self.0.chunks.load(Relaxed))
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        self.0.chunks.fetch_sub(1, Relaxed);
    }
}

/// Buffers for chunks that share.
#[derive(Debug)]
pub(crate) struct Pool {
    share: Arc<Share>,
    buffers: Mutex<Buffers>,
}

#[derive(Debug, Default)]
struct Buffers {
    /// Those that nobody has, by when they came back.
    spare: Vec<Vec<u8>>,
    /// What the others have.
    lent: usize,
}

/// A chunk whose bytes are read into buffers, among all that are.
#[derive(Debug)]
pub(crate) struct Reader {
    sharing: Sharing,
    /// Its next piece has no more. It begins with little: of many that come at once the first do not know yet that they
    /// are many.
    next: usize,
    pool: Arc<Pool>,
}

/// What it fills; comes back to its pool from wherever it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// How many bytes it is there for.
    full: usize,
    pool: Arc<Pool>,
}

impl Reader {
    /// Whether there are so many that none has more than what comes at once: a piece may be taken as it is then, and
    /// no second buffer is needed for it.
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_one_of_many() || self.pool.buffers.lock().lent + LEAST > self.pool.share.whole
    }

    /// Whether that is so for their number alone.
    pub(crate) fn is_one_of_many(&self) -> bool {
        self.sharing.piece() == LEAST
    }

    /// An empty buffer for the next piece, of which at most `left` bytes will come.
    pub(crate) fn buffer(&mut self, left: u64) -> Buffer {
        let most = self.sharing.piece().min(self.next);
        self.next = (self.next * 2).min(LARGEST);
        let (full, bytes) = self.pool.buffers.lock().lend(left, most, self.pool.share.whole);
        Buffer { bytes, full, pool: Arc::clone(&self.pool) }
    }
}

impl Pool {
    pub(crate) fn new(share: Share) -> Self {
        Self { share: Arc::new(share), buffers: Mutex::default() }
    }

    pub(crate) fn reader(self: &Arc<Self>) -> Reader {
        let sharing = self.share.join();
        let next = if sharing.piece() == LARGEST { LEAST } else { FIRST };
        Reader { sharing, next, pool: Arc::clone(self) }
    }
}

impl Buffers {
    /// How many bytes it is there for, and the buffer.
    fn lend(&mut self, left: u64, most: usize, whole: usize) -> (usize, Vec<u8>) {
        let mut full = usize::try_from(left).map_or(most, |left| left.min(most));
        // Those who came first may still have large ones; nobody waits for them.
        while full > LEAST && self.lent + full > whole {
            full = (full / 2).max(LEAST);
        }
        // What is much smaller is not worth keeping.
        let size = if full > LEAST / 2 { full.next_power_of_two() } else { full };
        let bytes = match self.spare.iter().rposition(|buffer| buffer.capacity() == size) {
            Some(at) => self.spare.swap_remove(at),
            None => Vec::with_capacity(size),
        };
        self.lent += bytes.capacity();
        self.shrink(whole);
        (full, bytes)
    }

    /// No more spare ones than there may be: the oldest go, they may have the size of another hour.
    fn shrink(&mut self, whole: usize) {
        let most = whole.saturating_sub(self.lent).max(SPARE);
        let mut spare = self.spare.iter().map(Vec::capacity).sum::<usize>();
        while spare > most {
            spare -= self.spare.remove(0).capacity();
        }
    }

    fn take_back(&mut self, mut bytes: Vec<u8>, whole: usize) {
        let size = bytes.capacity();
        self.lent = self.lent.saturating_sub(size);
        if size <= LEAST / 2 || size > LARGEST {
            return;
        }
        bytes.clear();
        self.spare.push(bytes);
        self.shrink(whole);
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

    /// The same from a file; it has nothing more if this takes nothing.
    pub(crate) fn read(&mut self, from: &mut impl Read) -> io::Result<()> {
        let room = self.full.saturating_sub(self.bytes.len());
        from.take(room as u64).read_to_end(&mut self.bytes).map(drop)
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
        self.pool.buffers.lock().take_back(bytes, self.pool.share.whole);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    const WHOLE: usize = 4 << 20;

    fn pool() -> Arc<Pool> {
        Arc::new(Pool::new(Share::new(WHOLE, 2)))
    }

    fn spare(pool: &Pool) -> Vec<usize> {
        pool.buffers.lock().spare.iter().map(Vec::capacity).collect()
    }

    #[test]
    fn many_together_have_little_more_than_a_few() {
        for (whole, pieces) in [(1 << 20, 2), (1 << 20, 4), (8 << 20, 2)] {
            let share = Share::new(whole, pieces);
            for chunks in [0, 1, 2, 4, 5, 8, 9, 16, 17, 20, 32] {
                let piece = share.piece_of(chunks);
                assert!((LEAST..=LARGEST).contains(&piece));
                assert!(pieces * piece * chunks <= whole || piece == LEAST, "{chunks}");
            }
            assert_eq!(share.piece_of(10_000), LEAST);
        }
        let share = Share::new(WHOLE, 2);
        assert_eq!((share.piece_of(8), share.piece_of(9), share.piece_of(64)), (LARGEST, LARGEST / 2, LEAST));
    }

    /// One that has read enough to be given as much as it may have.
    fn warm(pool: &Arc<Pool>) -> Reader {
        let mut reader = pool.reader();
        reader.next = LARGEST;
        reader
    }

    #[test]
    fn a_reader_begins_with_little() {
        let pool = pool();
        let mut alone = pool.reader();
        let pieces = [(); 5].map(|()| alone.buffer(u64::MAX).full);
        assert_eq!(pieces, [LEAST, 2 * LEAST, 4 * LEAST, LARGEST, LARGEST]);
        let others: Vec<Reader> = (0..8).map(|_| pool.reader()).collect();
        let mut one_more = pool.reader();
        drop(others);
        let pieces = [(); 7].map(|()| one_more.buffer(u64::MAX).full);
        assert_eq!(pieces, [FIRST, 2 * FIRST, LEAST, 2 * LEAST, 4 * LEAST, LARGEST, LARGEST]);
    }

    #[test]
    fn a_reader_counts_for_as_long_as_it_reads() {
        let pool = pool();
        let mut many: Vec<Reader> = (0..9).map(|_| warm(&pool)).collect();
        assert_eq!(many[0].buffer(u64::MAX).full, LARGEST / 2);
        many.pop();
        assert_eq!(many[0].buffer(u64::MAX).full, LARGEST);
        assert_eq!(many[0].buffer(10).full, 10);
    }

    #[test]
    fn they_are_a_crowd_when_they_are_many_or_have_everything() {
        let pool = pool();
        let mut few: Vec<Reader> = (0..WHOLE / LARGEST / 2).map(|_| warm(&pool)).collect();
        assert!(!few[0].is_crowded());
        let all: Vec<Buffer> = (0..WHOLE / LARGEST).map(|_| few[0].buffer(u64::MAX)).collect();
        assert!(few[0].is_crowded());
        drop(all);
        assert!(!few[0].is_crowded());
        few.extend((0..WHOLE / LEAST).map(|_| pool.reader()));
        assert!(few[0].is_crowded());
    }

    #[test]
    fn a_buffer_serves_again_when_the_last_who_reads_it_is_done() {
        let pool = pool();
        let mut reader = warm(&pool);
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
    fn a_file_is_read_without_another_buffer() {
        let pool = pool();
        let mut reader = warm(&pool);
        let mut file = io::Cursor::new(vec![7; LARGEST + 1]);
        for expected in [LARGEST, 1, 0] {
            let mut buffer = reader.buffer(LARGEST as u64);
            buffer.read(&mut file).unwrap();
            assert_eq!((buffer.as_ref().len(), buffer.bytes.capacity()), (expected, LARGEST));
        }
        assert_eq!(spare(&pool), [LARGEST]);
    }

    #[test]
    fn who_comes_late_takes_smaller_ones_until_the_large_ones_are_back() {
        let pool = pool();
        let early: Vec<Buffer> = (0..WHOLE / LARGEST - 1).map(|_| warm(&pool).buffer(u64::MAX)).collect();
        let mut late = warm(&pool);
        let others = [late.buffer(u64::MAX), late.buffer(u64::MAX), late.buffer(u64::MAX)];
        assert_eq!(others.each_ref().map(|buffer| buffer.full), [LARGEST, LEAST, LEAST], "nobody waits");
        assert_eq!(late.buffer(10).full, 10);
        drop(early);
        assert_eq!(late.buffer(u64::MAX).full, LARGEST);
    }

    #[test]
    fn what_is_held_has_a_bound_and_the_newest_stay() {
        let pool = pool();
        let mut reader = warm(&pool);
        drop((0..100).map(|_| reader.buffer(LEAST as u64)).collect::<Vec<_>>());
        assert_eq!(spare(&pool), vec![LEAST; 100]);
        drop((0..WHOLE / LARGEST).map(|_| reader.buffer(u64::MAX)).collect::<Vec<_>>());
        assert_eq!(spare(&pool), vec![LARGEST; WHOLE / LARGEST], "of the size that is wanted now");
        let half: Vec<Buffer> = (0..WHOLE / 2 / LEAST).map(|_| reader.buffer(LEAST as u64)).collect();
        assert_eq!(spare(&pool), vec![LARGEST; WHOLE / 2 / LARGEST], "room is made for others");
        drop(half);
        let many: Vec<Buffer> = (0..2 * WHOLE / LEAST).map(|_| reader.buffer(LEAST as u64)).collect();
        assert_eq!(pool.buffers.lock().lent, 2 * WHOLE, "nobody waits for memory");
        let some: Vec<Buffer> = (0..2 * SPARE / LEAST).map(|_| reader.buffer(LEAST as u64)).collect();
        drop(some);
        assert_eq!(spare(&pool).iter().sum::<usize>(), SPARE, "many are lent, and some go round");
        drop(many);
        assert_eq!(spare(&pool).iter().sum::<usize>(), WHOLE);
    }
}
