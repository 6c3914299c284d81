//! What an upload answers. Plain values, no I/O.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::MAX_CHUNKS;
use super::digest::Digest;
use crate::Token;

/// The documented statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Nothing has come yet.
    Pending,
    /// Chunks come and are shipped.
    Uploading,
    /// All are durable; the object is being made of them.
    Completing,
    /// The object is there.
    Completed,
    /// Something went wrong; it can be gone on with, unless the client gave it up.
    Failed,
    /// Its deadline passed.
    Expired,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 6] = [
        Status::Pending,
        Status::Uploading,
        Status::Completing,
        Status::Completed,
        Status::Failed,
        Status::Expired,
    ];

    /// As the state has it.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Uploading => "UPLOADING",
            Status::Completing => "COMPLETING",
            Status::Completed => "COMPLETED",
            Status::Failed => "FAILED",
            Status::Expired => "EXPIRED",
        }
    }

    /// The other way round.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The answer of `create`.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// It is there now.
    New,
    /// It was there already, with the same node.
    Existing(Status),
}

/// The answer of `admit`.
#[must_use = "bytes that were not admitted must not be sent"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// They are reserved.
    Admitted {
        /// Bytes in flight now, over all nodes.
        in_flight: u64,
    },
    /// They do not fit; nothing was reserved.
    Busy {
        /// When to come back.
        retry_after: Duration,
        /// Bytes in flight now, over all nodes.
        in_flight: u64,
    },
}

/// Bytes in flight over all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// Bytes reserved, or received and not yet durable.
    pub bytes: u64,
    /// How many there may be.
    pub max_bytes: u64,
    /// Reservations and chunks they belong to.
    pub names: u64,
}

/// How far an upload has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Chunks received; the durable ones are among them.
    pub received_chunks: u32,
    /// Chunks durable in the object store.
    pub durable_chunks: u32,
    /// How many there are, once the last one has come.
    pub total_chunks: Option<u32>,
    /// Every chunk is durable: the object can be completed.
    pub complete: bool,
}

/// The answer of `accept`.
#[must_use = "only what was taken or known is acknowledged"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// The chunk is received.
    Taken {
        /// How far the upload has come.
        receipt: Receipt,
        /// Its status.
        status: Status,
    },
    /// The same bytes had come before. Those that came now are not needed: staged ones are gone already.
    Known {
        /// How far the upload has come.
        receipt: Receipt,
        /// Its status.
        status: Status,
        /// Whether the chunk is durable.
        durable: bool,
    },
    /// Other bytes have come under this number.
    Conflict,
    /// The chunk cannot be one of this upload.
    Refused(Refusal),
    /// The upload takes no more.
    Closed {
        /// Why: `FAILED`, `EXPIRED`, or it is complete.
        status: Status,
        /// What went wrong, when it failed.
        error: String,
    },
    /// The reservation was given up meanwhile: the bytes are to be sent anew, under another one.
    Busy {
        /// When to come back.
        retry_after: Duration,
    },
    /// The store knows no such upload: there is none, or its state must be restored from the ledger.
    Unknown,
}

/// Why a chunk cannot be one of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Its number is too high.
    TooMany {
        /// How many chunks there may be.
        most: u32,
    },
    /// It is too large.
    TooLarge {
        /// The most bytes of a chunk.
        most: u64,
    },
    /// It is too small, and not the last one.
    TooSmall {
        /// The fewest bytes of a chunk that is not the last.
        least: u64,
        /// The upload's size as announced, where that is why it takes so many.
        announced: Option<u64>,
    },
    /// It is empty, and not the only chunk of an empty file.
    Empty,
    /// Another chunk is the last.
    OtherLast {
        /// That one.
        last: u32,
    },
    /// It is said to be the last, and a chunk with a higher number has come.
    Passed {
        /// That one.
        highest: u32,
    },
    /// It comes after the last one.
    AfterLast {
        /// The last one.
        last: u32,
    },
    /// All chunks together would have more bytes than announced.
    Over {
        /// So many.
        bytes: u64,
    },
    /// It is the last missing one, and all together have fewer bytes than announced.
    Under {
        /// So many.
        bytes: u64,
    },
    /// The bytes that were staged are not as many as it has: they have expired, or are not all there.
    Unstaged {
        /// So many are there.
        bytes: u64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooMany { most } => write!(f, "an upload has at most {most} chunks, numbered from 0"),
            Refusal::TooLarge { most } => write!(f, "a chunk has at most {most} bytes"),
            Refusal::TooSmall { least, announced: None } => {
                write!(f, "a chunk has at least {least} bytes, unless it is sent with last=true")
            }
            Refusal::TooSmall { least, announced: Some(size) } => write!(
                f,
                "a chunk of an upload of {size} bytes, as was announced, has at least {least}, so that {MAX_CHUNKS} \
                 suffice, unless it is sent with last=true"
            ),
            Refusal::Empty => f.write_str(
                "an empty chunk is chunk 0 of an empty file; else send the last chunk with last=true",
            ),
            Refusal::OtherLast { last } => write!(f, "chunk {last} is the last one"),
            Refusal::Passed { highest } => {
                write!(f, "chunk {highest} has come, so that one before it is not the last")
            }
            Refusal::AfterLast { last } => write!(f, "chunk {last} is the last one; none comes after it"),
            Refusal::Over { bytes } => write!(f, "the chunks would have {bytes} bytes, more than announced"),
            Refusal::Under { bytes } => {
                write!(f, "the chunks would be complete with {bytes} bytes, fewer than announced")
            }
            Refusal::Unstaged { bytes } => {
                write!(f, "only {bytes} of the chunk's bytes are there any more; send it again")
            }
        }
    }
}

/// What proves that a chunk is ours to ship.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    pub(super) upload_id: Arc<str>,
    pub(super) number: u32,
    pub(super) token: Token,
    /// Which attempt brought the chunk: what its bytes in flight are called.
    pub(super) attempt: Arc<str>,
}

impl Lease {
    pub(super) fn flight_name(&self) -> String {
        super::keys::flight_name(&self.upload_id, self.number, &self.attempt)
    }

    /// The upload.
    pub fn upload_id(&self) -> &str {
        &self.upload_id
    }

    /// The chunk's number, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Where the bytes of a chunk are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In this store, under the documented key: [`super::Upload::read`].
    Store,
    /// Where the offer said.
    Elsewhere(String),
}

/// A chunk under a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// What proves that it is ours.
    pub lease: Lease,
    /// How long the lease is.
    pub lease_expires_in: Duration,
    /// Which attempt this is, from 1; a worker that died had one too.
    pub attempt: u32,
    /// How many bytes it has.
    pub size: u64,
    /// Their digest.
    pub digest: Digest,
    /// Where they are.
    pub place: Place,
    /// UUID of the document.
    pub node_id: Arc<str>,
    /// The object's key.
    pub key: Arc<str>,
    /// The object store's multipart id.
    pub multipart_id: Arc<str>,
}

/// The answer of `claim`.
#[must_use = "a chunk that was claimed is nobody else's until its lease ends"]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// The chunks, of any uploads.
    pub chunks: Vec<Chunk>,
    /// When there is something to claim by itself, as far as is known.
    pub next: Option<Duration>,
}

/// The answer of `shipped`.
#[must_use = "a lease that was lost is shipped by somebody else"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shipped {
    /// The chunk is durable, by this call or an earlier one.
    Durable(Receipt),
    /// Somebody else has claimed the chunk; nothing has changed.
    Lost,
    /// The store knows no such upload.
    Unknown,
}

/// The answer of `failed`.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// It comes again.
    Retry {
        /// The attempt that failed.
        attempt: u32,
    },
    /// The upload has FAILED.
    GivenUp {
        /// The attempt that failed.
        attempt: u32,
    },
    /// Somebody else has claimed the chunk; nothing has changed.
    Lost,
}

/// Whether a lease or a reservation is still held.
#[must_use = "what was lost is somebody else's"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It is ours.
    Ours,
    /// It is not; nothing has changed.
    Lost,
}

/// The answer of a change of status.
#[must_use = "a status that was refused has not changed"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    /// It has changed.
    Moved {
        /// What it was.
        from: Status,
    },
    /// It was so already.
    Already,
    /// It cannot become that.
    Refused {
        /// What it is.
        status: Status,
        /// What went wrong, when it failed.
        error: String,
    },
    /// Not every chunk is durable.
    Incomplete {
        /// So many are.
        durable: u32,
        /// Of so many, if that is known.
        total: Option<u32>,
    },
    /// The store knows no such upload.
    Unknown,
}

/// The answer of `note`.
#[must_use = "nothing is noted of an upload that does not wait"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It is shown, and was told to whoever follows.
    Noted,
    /// It was shown already.
    Already,
    /// The upload is not being completed; nothing has changed.
    Refused {
        /// What it is.
        status: Status,
    },
    /// The store knows no such upload.
    Unknown,
}

/// The answer of `reopen`.
#[must_use = "what was refused is as it was"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reopened {
    /// It goes on.
    Open {
        /// Chunks that may be claimed now.
        waiting: u32,
        /// How far it has come.
        receipt: Receipt,
    },
    /// It has ended for good.
    Refused {
        /// How.
        status: Status,
        /// What went wrong.
        error: String,
    },
    /// The store knows no such upload.
    Unknown,
}

/// Uploads on which the sweep is to act.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Due {
    /// Past their deadline, or ended and kept long enough.
    pub ids: Vec<String>,
    /// How long until there is one.
    pub next: Option<Duration>,
}

/// What `tend` found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tended {
    /// The status; `None` when the store has no state of it any more.
    pub status: Option<Status>,
    /// The client gave it up.
    pub aborted: bool,
    /// Chunks that wait to be shipped, claimed ones among them.
    pub waiting: u64,
    /// Chunks whose bytes were lost; the client is asked for them again.
    pub lost: Vec<u32>,
}

/// Bytes that were dropped, or that the caller must drop where it keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// The chunk.
    pub number: u32,
    /// Where its bytes were.
    pub place: Place,
}

/// The answer of `forget`.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// Nothing of it is left.
    Forgotten,
    /// It has not ended.
    Open(Status),
    /// It still has chunks: [`super::Upload::clear`] first.
    Bytes,
}

/// What one look over the account of bytes in flight did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Audited {
    /// Names looked at; fewer than asked for at the end.
    pub looked: u64,
    /// Chunks given back that wait for nothing any more.
    pub given_back: u64,
    /// By how many bytes the sum was wrong.
    pub off_bytes: u64,
}
