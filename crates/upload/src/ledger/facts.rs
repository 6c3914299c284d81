//! What the ledger keeps of an upload, and the words of its answers.

use std::fmt;
use std::time::Duration;

use crate::Digest;

macro_rules! steps {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Where an upload stands.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Step {
            $($(#[$doc])* $variant,)*
        }

        impl Step {
            /// Every step, in order.
            pub const ALL: &'static [Step] = &[$(Step::$variant),*];

            /// As it is written in the table.
            pub const fn name(self) -> &'static str {
                match self { $(Step::$variant => $name),* }
            }

            pub(super) fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Step::$variant),)* _ => None }
            }
        }
    };
}

steps! {
    /// The row is there; the object store has not been asked for anything yet.
    Created "created",
    /// The multipart upload is there: parts are sent and recorded.
    Open "open",
    /// Every part is recorded, and one owner asks the object store to put them together.
    Completing "completing",
    /// A look at the object showed the right size and token.
    Proved "proved",
    /// The `nodes` row is ACTIVE and the event is in the outbox, by one transaction.
    Recorded "recorded",
    /// The event was told.
    Announced "announced",
    /// Nothing is left to do but to forget it.
    Done "done",
    /// Given up for now, for the reason in `error`; can be reopened until its deadline.
    Failed "failed",
    /// Past its deadline: one owner looks at the object and aborts the multipart upload.
    Expiring "expiring",
    /// Called off: one owner looks at the object and aborts the multipart upload.
    Aborting "aborting",
    /// Was past its deadline.
    Expired "expired",
    /// Was called off.
    Aborted "aborted",
}

impl Step {
    /// Whether one owner works on it under a lease.
    pub const fn is_owned(self) -> bool {
        matches!(
            self,
            Self::Completing
                | Self::Proved
                | Self::Recorded
                | Self::Announced
                | Self::Expiring
                | Self::Aborting
        )
    }

    /// Whether nothing will change any more.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Expired | Self::Aborted)
    }

    /// Whether it is about to end without an object.
    pub const fn is_ending(self) -> bool {
        matches!(self, Self::Expiring | Self::Aborting)
    }

    /// The documented status of an upload that stands here. Until it completes, whether chunks have come is the
    /// store's knowledge, so `PENDING` and `UPLOADING` are told apart by the first recorded part or there.
    pub const fn status(self) -> &'static str {
        match self {
            Self::Created => "PENDING",
            Self::Open => "UPLOADING",
            Self::Completing | Self::Proved | Self::Recorded | Self::Announced => "COMPLETING",
            Self::Done => "COMPLETED",
            Self::Failed | Self::Aborting | Self::Aborted => "FAILED",
            Self::Expiring | Self::Expired => "EXPIRED",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An upload to be created.
#[derive(Debug, Clone)]
pub struct New {
    /// Unique for ever: a repeated call with the same id gets the same answer.
    pub upload_id: String,
    /// The schema's name of the upload.
    pub resource: String,
    /// Where the object will be: the whole key, as its store has it.
    pub object_key: String,
    /// Kept in the object's metadata: whose object it is. Empty for an upload that another program began.
    pub token: String,
    /// Size the client announced.
    pub expected_size: Option<u64>,
    /// The same key and the same request get the same upload.
    pub idempotency_key: Option<String>,
    /// A digest of the request, by which "the same request" is judged.
    pub fingerprint: String,
    /// How long it may take.
    pub time_limit: Duration,
    /// The row it is for.
    pub node: NewNode,
}

/// The `nodes` row of a new upload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewNode {
    /// Its primary key.
    pub node_id: String,
    /// Drive name.
    pub drive: Option<String>,
    /// File name.
    pub name: Option<String>,
    /// MIME type.
    pub mime_type: Option<String>,
    /// Connector.
    pub connector_id: Option<String>,
    /// Folder.
    pub parent_id: Option<String>,
    /// Relative path.
    pub path: Option<String>,
    /// JSON text.
    pub custom_metadata: Option<String>,
    /// The client's own stable id.
    pub client_node_id: Option<String>,
}

/// A row of `nodes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What `create` was given.
    pub facts: NewNode,
    /// `PENDING`, `ACTIVE`, `FAILED`, `EXPIRED` or `ABORTED`; another program may write others.
    pub status: String,
    /// Where the object is.
    pub s3_key: Option<String>,
    /// The object's ETag once it is there.
    pub s3_etag: Option<String>,
    /// The object's size once it is there.
    pub size: Option<u64>,
    /// Milliseconds since the epoch.
    pub created_ms: i64,
    /// Milliseconds since the epoch.
    pub updated_ms: i64,
}

/// An upload as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Its id.
    pub upload_id: String,
    /// The schema's name.
    pub resource: String,
    /// The row it is for.
    pub node_id: String,
    /// Where the object is or will be: the whole key, as its store has it.
    pub object_key: String,
    /// Whose object it is. Empty for an upload that another program began.
    pub token: String,
    /// Of the content.
    pub mime_type: String,
    /// The client's key, if it gave one.
    pub idempotency_key: Option<String>,
    /// Digest of the request that created it.
    pub fingerprint: String,
    /// Where it stands.
    pub step: Step,
    /// Grows with every owner; the fence of whoever owns it now.
    pub fence: i64,
    /// Who owns it, if somebody does.
    pub owner: String,
    /// Until when, by the database's clock.
    pub lease_ms: i64,
    /// The object store's id of the multipart upload.
    pub multipart_id: Option<String>,
    /// Announced by the client.
    pub expected_size: Option<u64>,
    /// Known once the last chunk is.
    pub total_chunks: Option<u32>,
    /// Of the object that was proved.
    pub final_etag: Option<String>,
    /// Of the object that was proved.
    pub final_size: Option<u64>,
    /// Why it failed last.
    pub error: Option<String>,
    /// When it expires.
    pub deadline_ms: i64,
    /// When somebody should look at it next.
    pub due_ms: i64,
    /// Milliseconds since the epoch.
    pub created_ms: i64,
    /// Milliseconds since the epoch.
    pub updated_ms: i64,
}

/// A part the object store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// From 1: the chunk's number and one.
    pub number: u32,
    /// The object store's; opaque.
    pub etag: String,
    /// In bytes.
    pub size: u64,
    /// Of its bytes.
    pub digest: Digest,
}

/// What is known of a part that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sending {
    /// Whether another program began its upload.
    pub adopted: bool,
    /// The part, when it is durable already.
    pub part: Option<Part>,
}

/// The right to move an upload on, until somebody else takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub(super) upload_id: String,
    pub(super) number: i64,
}

impl Fence {
    /// Whose.
    pub fn upload_id(&self) -> &str {
        &self.upload_id
    }

    /// Its number: higher ones are newer.
    pub const fn number(&self) -> i64 {
        self.number
    }
}

/// What a create found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Created {
    /// It is new.
    Created(Box<Upload>),
    /// The same request made it before.
    Existing(Box<Upload>),
    /// The idempotency key or the upload id was used for another request.
    Mismatch(Box<Upload>),
    /// Another upload is for this node, or it is another resource's.
    NodeTaken,
}

/// What a move from step to step found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Moved {
    /// It stands there now, or did so already by the same hand.
    Moved(Box<Upload>),
    /// It stands elsewhere, or somebody else has it now.
    Lost(Box<Upload>),
    /// There is no such upload.
    Unknown,
}

impl Moved {
    /// The upload, when the move holds.
    pub fn ours(self) -> Option<Upload> {
        if let Self::Moved(upload) = self { Some(*upload) } else { None }
    }
}

/// What a claim for ownership found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Claim {
    /// Ours until the lease ends.
    Ours(Fence, Box<Upload>),
    /// Parts are missing, or it is not known how many there are.
    NotYet {
        /// Recorded so far.
        durable: u32,
        /// Of so many, if that is known.
        total: Option<u32>,
    },
    /// Somebody else has it, until then.
    Taken {
        /// Who.
        owner: String,
        /// Until when, by the database's clock.
        until_ms: i64,
    },
    /// It stands where this claim has nothing to do.
    Elsewhere(Box<Upload>),
    /// There is no such upload.
    Unknown,
}

/// What recording a part found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum RecordPart {
    /// It is durable.
    Durable {
        /// Recorded so far.
        durable: u32,
        /// Their bytes.
        durable_bytes: u64,
        /// Whether all parts are recorded: the upload can be completed.
        all: bool,
    },
    /// Other bytes are durable under this number.
    Differs(Part),
    /// It takes no parts, or belongs to another multipart upload.
    Closed(Box<Upload>),
    /// There is no such upload.
    Unknown,
}

/// What learning the number of chunks found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Total {
    /// Known now.
    Known {
        /// Whether all parts are recorded.
        all: bool,
    },
    /// Another number was learned before, or a part beyond it is recorded.
    Differs {
        /// The number learned before, or that the highest part implies.
        total: u32,
    },
    /// It takes no parts any more.
    Closed(Box<Upload>),
    /// There is no such upload.
    Unknown,
}

/// How a failed upload goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reopen {
    /// With the parts that are recorded.
    Keep,
    /// From the beginning: the multipart upload is gone from the object store, and every part with it.
    Afresh,
}

/// Why a sweep should look at an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Its completion waits, or whoever did it let the lease lapse.
    Complete,
    /// It is past its deadline, or whoever ended it let the lease lapse.
    End,
    /// It is over and was kept long enough.
    Forget,
}

/// An upload somebody should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub upload_id: String,
    /// What for.
    pub errand: Errand,
    /// Since when.
    pub due_ms: i64,
}

/// A line of an upload's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    /// When, by the database's clock.
    pub at_ms: i64,
    /// Where the upload stood afterwards.
    pub step: String,
    /// Its fence then.
    pub fence: i64,
    /// Who did it, if somebody owned it.
    pub owner: String,
    /// In a word.
    pub what: String,
    /// In more words.
    pub detail: String,
}

/// An event of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Stable: readers recognise a repetition by it.
    pub event_id: String,
    /// Its place in the outbox: a reader that has seen `seq` asks for what comes after it.
    pub seq: i64,
    /// Of which upload.
    pub upload_id: String,
    /// Of which resource of the schema. Unknown of an upload that is forgotten, whose event was written before events
    /// said it.
    pub resource: Option<String>,
    /// Of which node: events of one node keep their order.
    pub node_id: String,
    /// Where it is told.
    pub topic: String,
    /// JSON text.
    pub payload: String,
    /// When it happened.
    pub created_ms: i64,
    /// When it was told, if it was.
    pub published_ms: Option<i64>,
}
