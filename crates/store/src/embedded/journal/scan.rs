//! Reads the database's log before the database does, and changes nothing.
//!
//! On opening, the database cuts its log off at the first entry it cannot read, and goes on. That is right
//! for the torn tail of a killed process and wrong for damage: what lies behind would be gone before we
//! could say so. So the log is walked first. Each of our commits carries the numbers of its scripts; they
//! must follow one another without a gap, across all files.
//!
//! Of two values of a key the one with the higher seqno counts, and no checksum of the database covers the
//! seqno. So each of our commits also carries the lowest one it can have been given, which is higher than
//! all before it; and the seqnos of all batches must grow. A damaged one that still fits changes nothing:
//! it lies between its neighbours and above everything in the tables.
//!
//! The layout read here is that of fjall 3 (`FJL\x03`); it opens no other. A batch is
//! ```text
//! 1, count u32, seqno u64
//! 2, value type u8, compression u8, keyspace u64, key length u16, value length u32, stored length u32, key, value
//! 4, keyspace u64
//! 3, checksum u64, "FJL\x03"
//! ```
//! little-endian. Checksums are left to the database, which refuses to open when one is wrong.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// A commit's numbers as stored in the log: the first and the last script of its group, and the lowest
/// seqno the database can have given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) floor: u64,
}

/// The length of a span on disk.
const SPAN: usize = 24;
/// The database counts a few seqnos of its own between ours, never this many.
const LEAP: u64 = 1 << 32;

impl Span {
    pub(super) fn encode(self) -> [u8; SPAN] {
        let mut bytes = [0; SPAN];
        bytes[..8].copy_from_slice(&self.first.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.last.to_be_bytes());
        bytes[16..].copy_from_slice(&self.floor.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SPAN] = bytes.try_into().ok()?;
        let number = |at: usize| bytes[at..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        Some(Self { first: number(0)?, last: number(8)?, floor: number(16)? })
    }
}

/// Where a commit's numbers stand: the keyspace and the key that every commit writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) keyspace: u64,
    pub(super) key: &'static [u8],
}

/// What the log holds.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The oldest commit in the log and the database's own number for it.
    pub(super) oldest: Option<(Span, u64)>,
    /// The last script in the log.
    pub(super) last: Option<u64>,
    /// The first gap: the last script before it and the first behind it.
    pub(super) gap: Option<(u64, u64)>,
    /// A batch has a seqno that it cannot have been given.
    pub(super) disorder: bool,
    /// The seqnos of the last batch and of the last commit.
    seqno: Option<u64>,
    committed: Option<u64>,
    /// Where the whole batches of the newest file end, and whether anything but padding follows.
    pub(super) newest: Option<(PathBuf, u64, Tail)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    Clean,
    Torn,
}

/// The log's files, oldest first.
pub(super) fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let number =
                path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
            files.push((number.unwrap_or(u64::MAX), path));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

pub(super) fn scan(dir: &Path, stamp: Stamp) -> io::Result<Scan> {
    let mut scan = Scan::default();
    for path in files(dir)? {
        let mut walk = Walk::open(&path)?;
        while let Some((seqno, span)) = walk.batch(stamp)? {
            scan.disorder |= !scan.fits(seqno, span);
            scan.seqno = Some(seqno);
            if let Some(span) = span {
                scan.add(span, seqno);
                scan.committed = Some(seqno);
            }
        }
        let tail = walk.tail()?;
        scan.newest = Some((path, walk.end, tail));
    }
    Ok(scan)
}

impl Scan {
    /// Whether a batch can have this seqno, after those before it.
    fn fits(&self, seqno: u64, span: Option<Span>) -> bool {
        let after = |before: u64| seqno > before && seqno - before <= LEAP;
        self.seqno.is_none_or(after)
            && seqno < 1 << 63
            && span.is_none_or(|span| {
                let above = self.committed.is_none_or(|before| before < span.floor);
                above && seqno >= span.floor && seqno - span.floor <= LEAP
            })
    }

    fn add(&mut self, span: Span, seqno: u64) {
        if self.oldest.is_none() {
            self.oldest = Some((span, seqno));
        }
        if let Some(last) = self.last
            && last.checked_add(1) != Some(span.first)
            && self.gap.is_none()
        {
            self.gap = Some((last, span.first));
        }
        self.last = Some(self.last.map_or(span.last, |last| last.max(span.last)));
    }
}

struct Walk {
    reader: BufReader<File>,
    length: u64,
    at: u64,
    end: u64,
}

impl Walk {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { reader: BufReader::with_capacity(256 << 10, file), length, at: 0, end: 0 })
    }

    fn take<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        if self.length - self.at < N as u64 {
            return Ok(None);
        }
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(Some(bytes))
    }

    fn bytes(&mut self, count: usize) -> io::Result<Option<Vec<u8>>> {
        if self.length - self.at < count as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes)?;
        self.at += count as u64;
        Ok(Some(bytes))
    }

    fn skip(&mut self, count: u64) -> io::Result<bool> {
        if self.length - self.at < count {
            return Ok(false);
        }
        self.reader.seek_relative(count as i64)?;
        self.at += count;
        Ok(true)
    }

    /// The next whole batch: its number and, when it is one of ours, its span. `None` where none begins.
    fn batch(&mut self, stamp: Stamp) -> io::Result<Option<(u64, Option<Span>)>> {
        let Some([1]) = self.take()? else { return Ok(None) };
        let Some(count) = self.take()?.map(u32::from_le_bytes) else { return Ok(None) };
        let Some(seqno) = self.take()?.map(u64::from_le_bytes) else { return Ok(None) };
        let mut span = None;
        for _ in 0..count {
            match self.take()? {
                Some([2]) => {
                    let Some([_, _]) = self.take()? else { return Ok(None) };
                    let Some(keyspace) = self.take()?.map(u64::from_le_bytes) else { return Ok(None) };
                    let Some(key) = self.take()?.map(u16::from_le_bytes) else { return Ok(None) };
                    let Some([_, _, _, _]) = self.take()? else { return Ok(None) };
                    let Some(stored) = self.take()?.map(u32::from_le_bytes) else { return Ok(None) };
                    if keyspace == stamp.keyspace
                        && usize::from(key) == stamp.key.len()
                        && stored == SPAN as u32
                    {
                        let Some(name) = self.bytes(stamp.key.len())? else { return Ok(None) };
                        let Some(value) = self.take::<SPAN>()? else { return Ok(None) };
                        if name == stamp.key {
                            span = Span::decode(&value);
                        }
                    } else if !self.skip(u64::from(key) + u64::from(stored))? {
                        return Ok(None);
                    }
                }
                Some([4]) => {
                    if !self.skip(8)? {
                        return Ok(None);
                    }
                }
                _ => return Ok(None),
            }
        }
        let Some([3]) = self.take()? else { return Ok(None) };
        if !self.skip(8)? || self.take()? != Some(*b"FJL\x03") {
            return Ok(None);
        }
        self.end = self.at;
        Ok(Some((seqno, span)))
    }

    /// Whether anything but the padding of a fresh file follows the last whole batch.
    fn tail(&mut self) -> io::Result<Tail> {
        use std::os::unix::fs::FileExt;
        let mut next = [0; 4096];
        let read = self.reader.get_ref().read_at(&mut next, self.end)?;
        Ok(if next[..read].iter().all(|byte| *byte == 0) { Tail::Clean } else { Tail::Torn })
    }
}
