//! Objects and their parts, on local disk or S3: the truth of bytes.
//!
//! | call | local disk | S3 |
//! |---|---|---|
//! | [`Objects::begin`] | a folder of its own | `CreateMultipartUpload` with the token in the metadata |
//! | [`Objects::part`] | a file moved (same file system) or written into it | `UploadPart`, signed over the part's SHA-256 |
//! | [`Objects::complete`] | a manifest, then one rename of the folder | `CompleteMultipartUpload` |
//! | [`Objects::head`] | the manifest | `HEAD` |
//!
//! An answer to `complete` proves nothing: errors come in bodies of a 200, answers get lost, and a repetition is
//! `NoSuchUpload` on some stores, which an abort looks like too. [`Objects::head`] proves it: size, and the token that
//! [`Objects::begin`] was given. Everything else may be repeated as well: a part overwrites the same part, an abort
//! of what is gone says so, and a second `begin` makes a second multipart upload that [`Objects::pending`] finds.

mod answer;
mod key;
mod local;
mod look;
mod options;
mod s3;

use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::BoxStream;

pub use answer::{
    Abort, About, Completed, Cursor, Head, MultipartId, PartBody, Pending, PendingPage, Source, Then,
};
pub use look::Look;
pub use options::{Checksums, Credentials, Fsync, ObjectsOptions};

use crate::ledger::Part;
use crate::threads::WHOLE;
use crate::{Algorithm, Error, Result, Trouble};
use key::Key;

/// Parts an object may have, numbered from 1.
pub const MAX_PARTS: u32 = 10_000;

/// Bytes of an object, in pieces.
pub type Pieces = BoxStream<'static, Result<Bytes>>;

/// An object store.
#[derive(Debug)]
pub struct Objects {
    store: Store,
}

#[derive(Debug)]
enum Store {
    Local(local::Local),
    S3(Box<s3::S3>),
}

/// Does the same on either store.
macro_rules! on {
    ($self:expr, $store:ident => $call:expr) => {
        match &$self.store {
            Store::Local($store) => $call.await,
            // Large ones, which uploads to files need not carry.
            Store::S3($store) => Box::pin($call).await,
        }
    };
}

impl Objects {
    /// Opens `file:FOLDER` or `s3://bucket/prefix`.
    ///
    /// For S3, credentials, region and endpoint come from the options, else from the usual environment variables, a
    /// web identity token, a profile in shared files or the instance's profile. The bucket is not asked for anything yet.
    pub async fn open(url: &str, options: &ObjectsOptions) -> Result<Self> {
        let store = match url.split_once(':') {
            Some(("file", folder)) if !folder.is_empty() => {
                // `file:///var/lib` and `file:/var/lib` are the same folder.
                let folder = folder.strip_prefix("//").unwrap_or(folder);
                Store::Local(local::Local::open(folder.into(), options.fsync).await?)
            }
            Some(("s3", rest)) => {
                // It may read the files of a profile, from wherever somebody's home is.
                let (rest, options) = (rest.to_owned(), options.clone());
                let opened = WHOLE.off(move || s3::S3::open(&rest, &options)).await;
                let gone = |error| {
                    Error::new("objects.open", Trouble::Passing, format!("objects: {error}")).because(error)
                };
                Store::S3(Box::new(opened.map_err(gone)??))
            }
            _ => {
                let detail = "objects: is file:FOLDER or s3://bucket/prefix";
                return Err(Error::new("objects.open", Trouble::Never, detail));
            }
        };
        Ok(Self { store })
    }

    /// What the keys of new objects begin with: the prefix of `s3://bucket/prefix`, with a slash at its end.
    ///
    /// Every key that is given to an object store has it already.
    pub fn prefix(&self) -> &str {
        match &self.store {
            Store::Local(_) => "",
            Store::S3(store) => store.prefix(),
        }
    }

    /// Whether a request may be made twice without anybody knowing: its answer was lost on the way.
    pub(crate) fn repeats(&self) -> bool {
        matches!(self.store, Store::S3(_))
    }

    /// By which algorithm the digests of its parts are.
    pub fn algorithm(&self) -> Algorithm {
        match &self.store {
            Store::Local(_) => Algorithm::Blake3,
            Store::S3(_) => Algorithm::Sha256,
        }
    }

    /// Begins a multipart upload.
    pub async fn begin(&self, key: &str, about: &About) -> Result<MultipartId> {
        let key = Key::new("objects.begin", key)?;
        on!(self, store => store.begin(&key, about))
    }

    /// Sends a part; its ETag. The same number again replaces it.
    pub async fn part(&self, key: &str, id: &MultipartId, number: u32, body: PartBody) -> Result<String> {
        let key = Key::new("objects.part", key)?;
        if !(1..=MAX_PARTS).contains(&number) {
            let detail = format!("part {number}: numbers are 1 to {MAX_PARTS}");
            return Err(Error::new("objects.part", Trouble::Never, detail).saying("InvalidPartNumber"));
        }
        on!(self, store => store.part(&key, id, number, body))
    }

    /// Puts the parts together, as the ledger has them: from 1, none left out. Not proof: see [`Objects::head`].
    ///
    /// An `Err` means that the store refused and nothing was put together by this call; one before it may have done
    /// so, and a look tells.
    pub async fn complete(&self, key: &str, id: &MultipartId, parts: &[Part]) -> Result<Completed> {
        const OP: &str = "objects.complete";
        let key = Key::new(OP, key)?;
        let in_order = parts.iter().zip(1..=MAX_PARTS).filter(|(part, place)| part.number == *place).count();
        if parts.is_empty() || in_order != parts.len() {
            let detail = format!("{} parts: 1 to {MAX_PARTS}, numbered from 1 without a gap", parts.len());
            return Err(Error::new(OP, Trouble::Never, detail).saying("InvalidPartOrder"));
        }
        on!(self, store => store.complete(&key, id, parts))
    }

    /// The ETag that an object of these parts has; `None` where it does not follow from theirs.
    pub fn etag_of(&self, parts: &[Part]) -> Option<String> {
        match &self.store {
            Store::Local(_) => Some(local::etag_of(parts)),
            Store::S3(_) => s3::etag_of(parts),
        }
    }

    /// Looks at an object.
    pub async fn head(&self, key: &str) -> Result<Option<Head>> {
        let key = Key::new("objects.head", key)?;
        on!(self, store => store.head(&key))
    }

    /// Calls a multipart upload off and removes its parts. Look at the object first: one that was completed is not
    /// touched by this, and is somebody's.
    pub async fn abort(&self, key: &str, id: &MultipartId) -> Result<Abort> {
        let key = Key::new("objects.abort", key)?;
        on!(self, store => store.abort(&key, id))
    }

    /// The object's bytes, all or some; `None` when it is not there.
    pub async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Pieces>> {
        let key = Key::new("objects.read", key)?;
        on!(self, store => store.read(&key, range))
    }

    /// An object of no bytes: no multipart upload can make one.
    pub async fn put_empty(&self, key: &str, about: &About) -> Result<()> {
        let key = Key::new("objects.put_empty", key)?;
        on!(self, store => store.put_empty(&key, about))
    }

    /// Multipart uploads of this key that were neither completed nor aborted, from `after` on; a store that lists by
    /// the beginning of a key may name others with it.
    pub async fn pending_of(&self, key: &str, after: Option<&Cursor>) -> Result<PendingPage> {
        let key = Key::new("objects.pending", key)?;
        match &self.store {
            Store::Local(store) => store.pending_of(&key, after).await,
            Store::S3(store) => store.pending(key.as_str(), after).await,
        }
    }

    /// Multipart uploads of keys that begin with `prefix` and were neither completed nor aborted, from `after` on.
    pub async fn pending(&self, prefix: &str, after: Option<&Cursor>) -> Result<PendingPage> {
        on!(self, store => store.pending(prefix, after))
    }
}
