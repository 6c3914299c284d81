//! What tells a chunk's bytes from others: computed once, as they come in.

use std::fmt;

pub use quaymaster::upload::Digest;

use crate::{Hasher, Sha256};

/// By which chunks are told apart. It belongs to an object store: uploads do not move from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// What S3 compares parts with.
    Sha256,
    /// Where no digest leaves the process: a fifth of the work.
    Blake3,
}

impl Algorithm {
    /// Of these bytes.
    pub fn of(self, bytes: &[u8]) -> Digest {
        let mut digester = Digester::new(self);
        digester.update(bytes);
        digester.finish()
    }
}

/// Computes a digest piece by piece.
pub struct Digester(Way);

enum Way {
    Sha256(Box<Hasher>),
    Blake3(Box<blake3::Hasher>),
}

impl Digester {
    /// Of nothing so far.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => Way::Sha256(Box::default()),
            Algorithm::Blake3 => Way::Blake3(Box::default()),
        })
    }

    /// By the same algorithm as this one.
    pub fn like(digest: &Digest) -> Self {
        Self::new(match digest {
            Digest::Sha256(_) => Algorithm::Sha256,
            Digest::Blake3(_) => Algorithm::Blake3,
        })
    }

    /// These bytes come next.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Way::Sha256(hasher) => hasher.update(bytes),
            Way::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    /// The digest of all that came.
    pub fn finish(self) -> Digest {
        match self.0 {
            Way::Sha256(hasher) => hasher.finish().into(),
            Way::Blake3(hasher) => Digest::Blake3(*hasher.finalize().as_bytes()),
        }
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digester")
    }
}

impl From<Sha256> for Digest {
    fn from(sha256: Sha256) -> Self {
        Self::Sha256(*sha256.as_bytes())
    }
}

/// All that is computed of a chunk on its way in: its digest, and the SHA-256 that its sender announced.
pub(crate) struct Digesting {
    digester: Digester,
    announced: Option<Hasher>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digested {
    pub(crate) digest: Digest,
    /// If it was to be compared.
    pub(crate) sha256: Option<Sha256>,
}

impl Digesting {
    /// `compared`: whether a SHA-256 was announced.
    pub(crate) fn new(algorithm: Algorithm, compared: bool) -> Self {
        // Computed anyway where it is what tells chunks apart.
        let announced = (compared && algorithm != Algorithm::Sha256).then(Hasher::new);
        Self { digester: Digester::new(algorithm), announced }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.digester.update(bytes);
        if let Some(hasher) = &mut self.announced {
            hasher.update(bytes);
        }
    }

    pub(crate) fn finish(self) -> Digested {
        let digest = self.digester.finish();
        let sha256 = match (self.announced, digest) {
            (Some(hasher), _) => Some(hasher.finish()),
            (None, Digest::Sha256(bytes)) => Some(Sha256::from_bytes(bytes)),
            (None, Digest::Blake3(_)) => None,
        };
        Digested { digest, sha256 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(algorithm: Algorithm, compared: bool, pieces: &[&[u8]]) -> Digested {
        let mut digesting = Digesting::new(algorithm, compared);
        for piece in pieces {
            digesting.update(piece);
        }
        digesting.finish()
    }

    #[test]
    fn the_published_digest_of_a_text_comes_out_however_it_is_cut() {
        let known = "blake3-6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
        for pieces in [&[&b"abc"[..]][..], &[b"a", b"", b"bc"]] {
            assert_eq!(of(Algorithm::Blake3, false, pieces).digest.to_string(), known);
            assert_eq!(of(Algorithm::Sha256, false, pieces).digest, Sha256::of(b"abc").into());
        }
    }

    #[test]
    fn an_announced_digest_is_computed_whatever_tells_chunks_apart() {
        let announced = Some(Sha256::of(b"abc"));
        assert_eq!(of(Algorithm::Blake3, true, &[b"abc"]).sha256, announced);
        assert_eq!(of(Algorithm::Sha256, true, &[b"abc"]).sha256, announced);
        assert_eq!(of(Algorithm::Blake3, false, &[b"abc"]).sha256, None);
        let alone = of(Algorithm::Blake3, false, &[b"abc"]).digest;
        assert_eq!(of(Algorithm::Blake3, true, &[b"abc"]).digest, alone, "announced or not, the same chunk");
    }
}
