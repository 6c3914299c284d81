//! What is written beside the parts: of an upload that was begun, and of an object that is whole.

use serde::{Deserialize, Serialize};

use super::super::answer::{About, Head};
use crate::sha::Hasher;

/// The file that makes a folder an object.
pub(super) const MANIFEST: &str = "manifest.json";
/// The file of an upload that was begun; gone from a whole object.
pub(super) const BEGUN: &str = "upload.json";

/// An upload that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) key: String,
    pub(super) initiated_ms: i64,
    pub(super) about: Description,
}

/// [`About`] on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    pub(super) token: String,
    pub(super) mime_type: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) custom: Vec<(String, String)>,
}

impl From<&About> for Description {
    fn from(about: &About) -> Self {
        Self { token: about.token.clone(), mime_type: about.mime_type.clone(), custom: about.custom.clone() }
    }
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) size: u64,
    pub(super) etag: String,
    pub(super) about: Description,
    pub(super) parts: Vec<PartFile>,
}

/// A part of an object: a file beside the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartFile {
    pub(super) file: String,
    pub(super) size: u64,
}

impl Manifest {
    /// Of these parts.
    pub(super) fn new(about: Description, parts: Vec<PartFile>) -> Self {
        let etag = etag_of(parts.iter().map(|part| part.file.as_str()));
        Self { size: parts.iter().map(|part| part.size).sum(), etag, about, parts }
    }

    pub(super) fn head(&self) -> Head {
        let kept = |text: &String| (!text.is_empty()).then(|| text.clone());
        Head {
            size: self.size,
            etag: Some(self.etag.clone()),
            token: kept(&self.about.token),
            mime_type: kept(&self.about.mime_type),
        }
    }
}

/// The ETag of an object of these files: a digest of theirs, with their number, as S3's is.
pub(super) fn etag_of<T: AsRef<str>>(files: impl Iterator<Item = T>) -> String {
    let (mut hasher, mut count) = (Hasher::new(), 0);
    for file in files {
        hasher.update(file.as_ref().as_bytes());
        count += 1;
    }
    format!("\"{}-{count}\"", hasher.finish())
}

/// The file of a part: its number and its ETag, so that other bytes under the same number are another file.
pub(super) fn part_file(number: u32, etag: &str) -> String {
    format!("{number:05}-{}", etag.trim_matches('"'))
}
