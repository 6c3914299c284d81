//! What is asked of an upload.

use std::time::Duration;

use crate::{Code, Error, Result};

use super::answer::Status;
use super::digest::Digest;
use super::keys;

/// What a new upload is. Empty text is "not said".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct New<'a> {
    /// UUID of the document; the same upload id with another one is refused.
    pub node_id: &'a str,
    /// The object's key.
    pub key: &'a str,
    /// The object store's multipart id.
    pub multipart_id: &'a str,
    /// The drive's name.
    pub drive: &'a str,
    /// The MIME type.
    pub mime_type: &'a str,
    /// The size as announced; what is received is held against it.
    pub expected_size: Option<u64>,
    /// How long from now it expires; for a new one [`super::Upload::time_limit`].
    pub time_left: Duration,
    /// What the client said about the file.
    pub metadata: Metadata<'a>,
}

/// What the client said about the file. Empty text is "not said".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metadata<'a> {
    /// The file's name.
    pub name: &'a str,
    /// The connector.
    pub connector_id: &'a str,
    /// UUID of the folder.
    pub parent_id: &'a str,
    /// The relative path.
    pub path: &'a str,
    /// A JSON object.
    pub custom_metadata: &'a str,
    /// The client's own stable id.
    pub client_node_id: &'a str,
}

/// Whether a chunk is the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Last {
    /// More may come.
    #[default]
    No,
    /// None has a higher number.
    Yes,
}

/// A name for bytes on their way in, fresh for every attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stage(String);

impl Stage {
    /// A name nobody has used.
    pub fn fresh() -> Self {
        Self(crate::Token::random().as_str().to_owned())
    }

    /// A name as [`Stage::as_str`] gave it.
    pub fn parse(op: &'static str, text: &str) -> Result<Self> {
        keys::check_id(op, "stage", text)?;
        Ok(Self(text.to_owned()))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where the bytes of an offered chunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'a> {
    /// Staged in this store by [`super::Upload::write`]; accepting renames them to the documented key.
    Staged(&'a Stage),
    /// In this store under the documented key, where another program put them.
    InPlace,
    /// Somewhere the caller knows by this name, unique per attempt: 1 to 256 visible ASCII characters, not `store`.
    Elsewhere(&'a str),
}

/// A chunk whose bytes are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer<'a> {
    /// Its number, from 0.
    pub number: u32,
    /// How many bytes it has. An empty one needs none, and is chunk 0 of an empty file.
    pub size: u64,
    /// Their digest. The same bytes always have the same one: by one algorithm, as long as an upload lives.
    pub digest: &'a Digest,
    /// Whether it is the last one.
    pub last: Last,
    /// Where they are.
    pub source: Source<'a>,
    /// Under which its bytes were admitted, for this upload and number. It is the chunk's own from now on, or is given
    /// back. Without one the bytes count nevertheless, whether or not they fit.
    pub reservation: Option<&'a Reservation>,
}

/// One attempt to send a chunk, as the account of bytes in flight calls it, which all nodes share. Fresh for every
/// attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reservation {
    name: String,
    attempt: usize,
}

impl Reservation {
    /// For the chunk `number` of the upload `id`.
    pub fn fresh(id: &str, number: u32) -> Self {
        let token = crate::Token::random();
        let name = keys::flight_name(id, number, token.as_str());
        Self { attempt: name.len() - token.as_str().len(), name }
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// A name for its bytes on their way in: whoever finds the reservation given up knows which bytes are nobody's.
    pub fn stage(&self) -> Stage {
        Stage(self.attempt().to_owned())
    }

    /// As [`Reservation::as_str`] gave it; `None` for another text.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (_, number) = keys::flight_chunk(name)?;
        let attempt = name.rfind('/')? + 1;
        let fine = keys::check_id("upload.lapsed", "attempt", &name[attempt..]).is_ok();
        (fine && number < super::MAX_CHUNKS).then(|| Self { name: name.to_owned(), attempt })
    }

    /// The upload and the chunk's number.
    pub fn chunk(&self) -> (&str, u32) {
        keys::flight_chunk(&self.name).unwrap_or_default()
    }

    /// What tells it from other attempts at the same chunk.
    pub(super) fn attempt(&self) -> &str {
        &self.name[self.attempt..]
    }

    /// Whether it is for this chunk.
    pub(super) fn is_for(&self, id: &str, number: u32) -> bool {
        keys::flight_chunk(&self.name) == Some((id, number))
    }
}

/// How chunks are claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// At most so many.
    pub count: usize,
    /// For how long; see [`super::LEASE_MAX`].
    pub lease: Duration,
    /// How long to wait for the first one.
    pub wait: Duration,
}

impl Default for Claim {
    fn default() -> Self {
        Self { count: 1, lease: Duration::from_secs(60), wait: Duration::ZERO }
    }
}

/// What becomes of a chunk that could not be shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It may be claimed again after so long.
    Retry(Duration),
    /// The upload has FAILED; [`super::Upload::reopen`] goes on.
    GiveUp,
}

/// How a failed upload is gone on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reopen<'a> {
    /// The object store's new multipart id, where the old one is gone.
    pub multipart_id: Option<&'a str>,
    /// How long from now it expires; `None` keeps its deadline.
    pub time_left: Option<Duration>,
    /// Durable chunks that are to be sent again.
    pub resend: Resend<'a>,
}

/// Which durable chunks are to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resend<'a> {
    /// None of them.
    #[default]
    None,
    /// These, at most [`super::MAX_CHUNKS`].
    Chunks(&'a [u32]),
    /// All of them: their multipart upload is gone.
    All,
}

/// A part as the ledger records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The chunk's number, from 0; the part's number is one more.
    pub number: u32,
    /// How many bytes it has.
    pub size: u64,
    /// Their digest.
    pub digest: Digest,
    /// What the object store calls it.
    pub etag: String,
}

/// What the ledger knows of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known<'a> {
    /// The parts it has.
    pub parts: &'a [Part],
    /// How many chunks there are, if that is known.
    pub total_chunks: Option<u32>,
    /// How far it has come; `None` leaves the status as it is.
    pub status: Option<Status>,
    /// Why it failed.
    pub error: &'a str,
    /// The object's ETag.
    pub final_etag: &'a str,
    /// The object's size.
    pub final_size: Option<u64>,
}

/// Refuses a place that could not be told apart or read back.
pub(super) fn check_place(op: &'static str, place: &str) -> Result<()> {
    if place.is_empty()
        || place.len() > 256
        || place == "store"
        || !place.bytes().all(|c| c.is_ascii_graphic())
    {
        let detail = "place: 1 to 256 visible ASCII characters, and not `store`";
        return Err(Error::new(op, Code::RequestInvalid, detail).field("place"));
    }
    Ok(())
}
