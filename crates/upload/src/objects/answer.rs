//! What goes into an object store and what it answers.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::look::Look;
use crate::{Digest, Error};

/// An object store's name of a multipart upload; opaque.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MultipartId {
    id: String,
    begun: Begun,
}

/// Who began a multipart upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Begun {
    Here,
    Elsewhere,
}

impl MultipartId {
    /// As it was kept.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), begun: Begun::Here }
    }

    /// Of one that another program began, and did not say that its parts have checksums.
    pub fn of_others(id: impl Into<String>) -> Self {
        Self { id: id.into(), begun: Begun::Elsewhere }
    }

    /// To keep it.
    pub fn as_str(&self) -> &str {
        &self.id
    }

    /// Whether its parts may have checksums: S3 refuses them where nobody said so at the beginning.
    pub(super) fn has_checksums(&self) -> bool {
        self.begun == Begun::Here
    }
}

impl fmt::Display for MultipartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

/// What an object says of itself, besides its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// Whose object it is: kept in its metadata, told by [`Head`].
    pub token: String,
    /// Its content type; empty for none.
    pub mime_type: String,
    /// Further metadata: names of lower-case letters, digits and `-`, and short texts.
    pub custom: Vec<(String, String)>,
}

/// The bytes of a part.
pub struct PartBody {
    /// How many.
    pub size: u64,
    /// Their digest. S3 compares what arrives with it, or we do what is sent; the local store does so while it writes.
    /// It is believed of a file that moves, and of one as [`Source::Written`] where S3 does not compare.
    pub digest: Digest,
    /// Where they are.
    pub source: Source,
}

/// Where the bytes of a part are.
pub enum Source {
    /// In memory.
    Pieces(Vec<Bytes>),
    /// In a file.
    File(PathBuf, Then),
    /// In a file that this process wrote, and that may be moved; with how it looked when its digest was taken.
    Written(PathBuf, Look),
    /// Coming, once: whoever tries again brings another.
    Stream(BoxStream<'static, std::io::Result<Bytes>>),
}

/// What becomes of a file that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It stays as it is.
    Keep,
    /// It may be moved into the store, and is then gone. One that is still there is the caller's to remove.
    Take,
}

impl fmt::Debug for PartBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.source {
            Source::Pieces(pieces) => format!("{} pieces", pieces.len()),
            Source::File(path, then) => format!("{} ({then:?})", path.display()),
            Source::Written(path, look) => format!("{} ({look:?})", path.display()),
            Source::Stream(_) => "stream".to_owned(),
        };
        f.debug_struct("PartBody")
            .field("size", &self.size)
            .field("digest", &self.digest)
            .field("source", &source)
            .finish()
    }
}

/// What became of a completion.
#[derive(Debug)]
#[must_use]
pub enum Completed {
    /// The store says it is done. Only a look at the object proves it.
    Done {
        /// The object's ETag, if it said so.
        etag: Option<String>,
    },
    /// It may or may not be done: look at the object.
    Unknown(Error),
}

/// What became of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Abort {
    /// It is gone, with its parts.
    Done,
    /// There is no such multipart upload: aborted or completed before.
    Gone,
}

/// An object that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// In bytes.
    pub size: u64,
    /// Its ETag; opaque.
    pub etag: Option<String>,
    /// Whose it is, if one of ours made it.
    pub token: Option<String>,
    /// Its content type.
    pub mime_type: Option<String>,
}

/// A multipart upload that was begun and neither completed nor aborted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Of which object.
    pub key: String,
    /// Its id.
    pub id: MultipartId,
    /// When it was begun, in milliseconds since the epoch, if the store says so.
    pub initiated_ms: Option<i64>,
}

/// A page of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PendingPage {
    /// In the store's order.
    pub uploads: Vec<Pending>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
}

/// A place among pending uploads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub(super) key: String,
    pub(super) id: String,
}
