//! What a cache answers.

use quaymaster_schema::Outage;

use super::Value;

/// The answer of `put`.
#[must_use = "a value that was not stored may be missed"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It is there.
    Stored,
    /// There was one already, and it was to be stored only if not.
    Present,
    /// The store cannot be asked: it may be there or not.
    Away(Outage),
}

/// The answer of `get`.
#[must_use = "it may be a miss"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// There it is.
    Hit(Value),
    /// There is none.
    Miss {
        /// The policy this was answered by, when the store could not be asked.
        outage: Option<Outage>,
    },
}

impl Fetched {
    /// The value of a hit.
    pub fn value(self) -> Option<Value> {
        match self {
            Self::Hit(value) => Some(value),
            Self::Miss { .. } => None,
        }
    }
}

/// The answer of `exists`.
#[must_use = "it may be absent"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// There is an entry.
    Present,
    /// There is none.
    Absent {
        /// The policy this was answered by, when the store could not be asked.
        outage: Option<Outage>,
    },
}

/// The answer of `delete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// There was an entry; it is gone.
    Deleted,
    /// There was none.
    Absent,
}
