//! The memory of bodies that are read: no more for many requests than for a few, and the same buffers again and again,
//! for what an allocator is given back by many threads it does not soon give back itself.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use quaymaster::upload::MAX_PIECE;

/// What all requests together hold: when there are many, each takes smaller pieces.
const READING: usize = 8 << 20;

/// One that is filled, and one that is written meanwhile.
const PIECES: usize = 2;

/// Smaller ones cost more than they save.
const LEAST_PIECE: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Pool {
    readers: AtomicUsize,
    /// Buffers nobody fills, of [`READING`] bytes at most.
    spare: Mutex<Vec<BytesMut>>,
}

/// A request that reads a body, among all that do.
pub(crate) struct Reader<'a>(&'a Pool);

impl Reader<'_> {
    /// How large the next piece may be.
    pub(crate) fn piece(&self) -> usize {
        piece_of(self.0.readers.load(Relaxed))
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Relaxed);
    }
}

fn piece_of(readers: usize) -> usize {
    (READING / PIECES / readers.max(1)).clamp(LEAST_PIECE, MAX_PIECE)
}

impl Pool {
    pub(crate) fn reader(&self) -> Reader<'_> {
        self.readers.fetch_add(1, Relaxed);
        Reader(self)
    }

    /// An empty buffer for so many bytes.
    pub(crate) fn take(&self, size: usize) -> BytesMut {
        let mut spare = self.spare.lock();
        let fits = |buffer: &BytesMut| (size..=2 * size).contains(&buffer.capacity());
        match spare.iter().rposition(fits) {
            Some(at) => spare.swap_remove(at),
            None => BytesMut::with_capacity(size),
        }
    }

    /// A piece that is where it should be.
    pub(crate) fn give(&self, piece: Bytes) {
        let Ok(mut buffer) = piece.try_into_mut() else { return };
        buffer.clear();
        let mut spare = self.spare.lock();
        let mut held = buffer.capacity() + spare.iter().map(BytesMut::capacity).sum::<usize>();
        // The oldest go: they may have the size of another hour.
        while held > READING && !spare.is_empty() {
            held -= spare.remove(0).capacity();
        }
        spare.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_readers_together_hold_no_more_than_a_few() {
        for readers in [0, 1, 4, 5, 16, 17, 64] {
            let piece = piece_of(readers);
            assert!((LEAST_PIECE..=MAX_PIECE).contains(&piece));
            assert!(PIECES * piece * readers <= READING, "{readers}");
        }
        assert_eq!((piece_of(4), piece_of(64), piece_of(10_000)), (MAX_PIECE, LEAST_PIECE, LEAST_PIECE));
    }

    #[test]
    fn a_reader_counts_for_as_long_as_it_reads() {
        let pool = Pool::default();
        let many: Vec<Reader<'_>> = (0..4).map(|_| pool.reader()).collect();
        let one = pool.reader();
        assert!(one.piece() < MAX_PIECE);
        drop(one);
        assert_eq!(many[0].piece(), MAX_PIECE);
    }

    #[test]
    fn a_buffer_serves_again_where_it_fits_and_few_are_kept() {
        let pool = Pool::default();
        let mut piece = pool.take(1000);
        piece.extend_from_slice(&[7; 1000]);
        let place = piece.as_ptr();
        pool.give(piece.freeze());
        assert_ne!(pool.take(100).as_ptr(), place, "ten times too large");
        let again = pool.take(900);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        // Somebody still reads it.
        let shared = again.freeze();
        pool.give(shared.clone());
        assert_ne!(pool.take(900).as_ptr(), shared.as_ptr());
        for _ in 0..100 {
            pool.give(BytesMut::with_capacity(MAX_PIECE).freeze());
        }
        let held: usize = pool.spare.lock().iter().map(BytesMut::capacity).sum();
        assert!(held <= READING, "{held}");
    }
}
