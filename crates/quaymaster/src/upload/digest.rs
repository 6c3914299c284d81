//! What tells the bytes of a chunk from others. Kept as text, by which the algorithm is known again.

use std::fmt;
use std::str::FromStr;

/// Before the digits of a BLAKE3; a SHA-256 is its digits alone.
const BLAKE3: &str = "blake3-";

/// The digest of a chunk's bytes. Two chunks are the same if both the algorithm and the digits are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Digest {
    /// By SHA-256, which object stores compare.
    Sha256([u8; 32]),
    /// By BLAKE3, a fifth of the work, where nobody else asks for a digest.
    Blake3([u8; 32]),
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match self {
            Self::Sha256(bytes) => bytes,
            Self::Blake3(bytes) => {
                f.write_str(BLAKE3)?;
                bytes
            }
        };
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        match text.strip_prefix(BLAKE3) {
            Some(digits) => bytes(digits).map(Self::Blake3),
            None => bytes(text).map(Self::Sha256),
        }
        .ok_or(NotADigest)
    }
}

/// A text that is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits, after \"blake3-\" if that made it")]
pub struct NotADigest;

fn bytes(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_survives_its_spelling_and_keeps_its_algorithm() {
        let bytes: [u8; 32] = std::array::from_fn(|at| at as u8 * 7);
        for digest in [Digest::Sha256(bytes), Digest::Blake3(bytes)] {
            assert_eq!(digest.to_string().parse(), Ok(digest));
        }
        assert_ne!(Digest::Sha256(bytes), Digest::Blake3(bytes));
        let text = Digest::Sha256(bytes).to_string();
        for wrong in
            ["", "00", &format!("{text}0"), &text.replace('0', "g"), &format!("md5-{text}"), &"é".repeat(32)]
        {
            assert_eq!(wrong.parse::<Digest>(), Err(NotADigest), "{wrong}");
        }
    }
}
