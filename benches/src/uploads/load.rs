//! The bytes every side sends: numbered chunks that are all different and cost nothing to make.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use bytes::{Bytes, BytesMut};
use ring::digest::{Context, SHA256};

/// What object stores and the document take for a chunk.
pub(super) const CHUNK: usize = 8 << 20;

/// One file.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) chunks: u32,
    noise: Bytes,
    sha256: String,
}

impl Load {
    /// So many MiB, whole chunks of them.
    pub(super) fn new(mib: u64) -> Result<Self> {
        let bytes = mib << 20;
        ensure!(bytes >= CHUNK as u64 && bytes.is_multiple_of(CHUNK as u64), "whole chunks of 8 MiB, please");
        let mut noise = BytesMut::zeroed(CHUNK);
        fastrand::Rng::with_seed(6).fill(&mut noise);
        let mut load =
            Self { chunks: (bytes / CHUNK as u64) as u32, noise: noise.freeze(), sha256: String::new() };
        let mut digest = Context::new(&SHA256);
        (0..load.chunks).for_each(|number| load.chunk(number).iter().for_each(|piece| digest.update(piece)));
        load.sha256 = hex(digest);
        Ok(load)
    }

    /// The chunk's number, so that none is another's equal, and then the same noise.
    pub(super) fn chunk(&self, number: u32) -> [Bytes; 2] {
        let stamp = format!("{number:016}");
        let rest = self.noise.slice(stamp.len()..);
        [Bytes::from(stamp), rest]
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.chunks) * CHUNK as u64
    }

    pub(super) fn mib(&self) -> u64 {
        self.bytes() >> 20
    }

    pub(super) fn is_last(&self, number: u32) -> bool {
        number + 1 == self.chunks
    }

    /// What came out must be what went in, or there is no figure.
    pub(super) fn check(&self, who: &str, read: Digest) -> Result<()> {
        let Digest { bytes, context } = read;
        ensure!(bytes == self.bytes(), "{who} has {bytes} bytes, not {}", self.bytes());
        let sha256 = hex(context);
        ensure!(sha256 == self.sha256, "{who} has SHA-256 {sha256}, not {}", self.sha256);
        Ok(())
    }
}

/// What came out of somebody, so far.
pub(super) struct Digest {
    bytes: u64,
    context: Context,
}

impl Digest {
    pub(super) fn new() -> Self {
        Self { bytes: 0, context: Context::new(&SHA256) }
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.context.update(piece);
    }
}

fn hex(context: Context) -> String {
    context.finish().as_ref().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_change_places_or_go_missing_are_noticed() -> Result<()> {
        let load = Load::new(24)?;
        let read = |numbers: &[u32]| {
            let mut digest = Digest::new();
            for number in numbers {
                load.chunk(*number).iter().for_each(|piece| digest.update(piece));
            }
            load.check("it", digest)
        };
        assert!(read(&[0, 1, 2]).is_ok());
        assert!(read(&[0, 2, 1]).is_err());
        assert!(read(&[0, 1]).is_err());
        assert!(Load::new(4).is_err() && Load::new(12).is_err());
        Ok(())
    }
}
