//! Keys of objects: checked once, so that no store sees one that leaves its folder.

use std::fmt;

use crate::{Error, Result, Trouble};

/// Bytes of a key, as S3 bounds them.
const MAX_KEY: usize = 1024;
/// Bytes between two slashes, as file systems bound them.
const MAX_SEGMENT: usize = 255;

/// A usable key: segments between slashes, none of them empty, `.` or `..`, no control characters, no backslash.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn new(op: &'static str, text: &str) -> Result<Self> {
        let refuse =
            |why: &str| Err(Error::new(op, Trouble::Never, format!("the key {text:?} {why}")).saying("key"));
        if text.is_empty() || text.len() > MAX_KEY {
            return refuse("has 1 to 1024 bytes");
        }
        // Backslashes separate folders elsewhere; `Cc` covers NUL and line ends.
        if text.contains(|c: char| c.is_control() || c == '\\') {
            return refuse("has a control character or a backslash");
        }
        for segment in text.split('/') {
            if matches!(segment, "" | "." | "..") {
                return refuse("has an empty segment, `.` or `..`");
            }
            if segment.len() > MAX_SEGMENT {
                return refuse("has a segment of more than 255 bytes");
            }
        }
        Ok(Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn a_key_stays_in_its_folder() {
        for good in ["a", "connectors/default/5f.pb", "a b/ü.pdf", ".hidden", "..a/b..", &"x".repeat(255)] {
            assert!(Key::new("test", good).is_ok(), "{good}");
        }
        let (long, deep) = ("x".repeat(256), "x/".repeat(520) + "x");
        for bad in
            ["", "/", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/.", "a\0b", "a\nb", "a\\b", &long, &deep]
        {
            let error = Key::new("test", bad).unwrap_err();
            assert_eq!((error.trouble(), error.said()), (Trouble::Never, Some("key")), "{bad:?}");
        }
    }
}
