//! Names that nobody else has.

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::sha::hex;
use crate::{Error, Result, Trouble};

fn random(op: &'static str) -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let none = |_| Error::new(op, Trouble::Passing, "the system has no random numbers");
    SystemRandom::new().fill(&mut bytes).map_err(none)?;
    Ok(bytes)
}

/// 32 hexadecimal digits.
pub(crate) fn unique(op: &'static str) -> Result<String> {
    Ok(hex(&random(op)?))
}

/// A random UUID.
pub(crate) fn uuid(op: &'static str) -> Result<String> {
    let mut bytes = random(op)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex(&bytes);
    Ok([&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-"))
}

/// Whether this is a UUID as [`uuid`] writes them: one spelling, so that one document has one id.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}
