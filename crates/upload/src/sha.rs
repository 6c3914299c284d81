//! SHA-256 of a part's bytes: 32 bytes, spelled as 64 hexadecimal digits wherever it is kept.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use quaymaster::upload::{Digest, NotADigest};
use ring::digest;

/// The digest of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// As somebody else computed it.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Digest::from(*self), f)
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256 {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        match text.parse()? {
            Digest::Sha256(bytes) => Ok(Self(bytes)),
            Digest::Blake3(_) => Err(NotADigest),
        }
    }
}

/// Computes a digest piece by piece.
pub struct Hasher(digest::Context);

impl Hasher {
    /// Of nothing so far.
    pub fn new() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }

    /// These bytes come next.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all that came.
    pub fn finish(self) -> Sha256 {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.finish().as_ref());
        Sha256(bytes)
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_survives_its_spelling() {
        let digest = Sha256::of(b"abc");
        let text = digest.to_string();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(text.parse(), Ok(digest));
        for wrong in ["", "ba78", &format!("{text}0"), &text.replace('b', "g"), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<Sha256>(), Err(NotADigest), "{wrong}");
        }
    }
}
