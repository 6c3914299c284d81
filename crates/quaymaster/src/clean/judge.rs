//! What is wrong with a key, told by its name and what the store knows of it. No I/O.

use quaymaster_schema::{Bucket, KeyRow, Kind, Ttl};
use quaymaster_store::KeyFacts;

/// What is wrong, with what putting it right needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Over since this moment.
    Stale { over_ms: i64 },
    /// It should live so long.
    Immortal { ttl_ms: i64 },
    /// Not ours to judge.
    OtherType,
}

/// A number that calls go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    /// The last number given to a job, a field of the queue's counters.
    Sequence,
    /// The last fence handed out, which is all that the key holds.
    Fence,
}

impl Number {
    /// The field that holds it.
    pub(super) fn field(self) -> Option<&'static str> {
        match self {
            Self::Sequence => Some("sequence"),
            Self::Fence => None,
        }
    }
}

/// The number in a key of this row, if there is one.
pub(super) fn number(kind: Kind, row: &KeyRow) -> Option<Number> {
    match (kind, row.role) {
        (Kind::Queue, "meta") => Some(Number::Sequence),
        (Kind::Lock, "fence") => Some(Number::Fence),
        _ => None,
    }
}

/// Whether a key of this row can have anything wrong at all: if not, the store need not be asked.
pub(super) fn can_err(kind: Kind, row: &KeyRow) -> bool {
    kind != Kind::Key && row.ttl.duration().is_some()
}

/// `None` when all is well.
pub(super) fn judge(row: &KeyRow, bucket: Option<Bucket>, facts: &KeyFacts, now_ms: i64) -> Option<Verdict> {
    let Ttl::For(ttl) = &row.ttl else { return None };
    let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    if facts.kind != row.kind.name() {
        return Some(Verdict::OtherType);
    }
    // The last change was in the bucket at the latest, so by then its own TTL must have ended it.
    let over_ms = bucket.map(|bucket| bucket.end_ms.saturating_add(ttl_ms));
    if let Some(over_ms) = over_ms.filter(|over_ms| now_ms >= *over_ms) {
        return Some(Verdict::Stale { over_ms });
    }
    facts.ttl_ms.is_none().then_some(Verdict::Immortal { ttl_ms })
}
