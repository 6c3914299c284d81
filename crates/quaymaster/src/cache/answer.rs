//! What a cache answers, and how a script's reply becomes it. Plain functions, no I/O.

use std::time::Duration;

use quaymaster_schema::{CacheType, Outage};
use quaymaster_store::Reply;

use super::Value;
use crate::scripts::{
    cache_delete, cache_exists, cache_fill_hash, cache_fill_string, cache_get_hash, cache_get_string,
    cache_load_hash, cache_load_string, cache_put_hash, cache_put_string,
};
use crate::{Code, Error, Result};

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

/// What an entry holds as it is stored.
pub(super) type Held = Option<Reply>;

/// What `cache.load` told.
#[derive(Debug)]
pub(super) enum Told {
    /// There it is.
    Hit(Held),
    /// The lease is ours.
    Load,
    /// Somebody else loads it, and has so long.
    Wait(Duration),
}

pub(super) fn stored(op: &'static str, holds: CacheType, reply: Reply) -> Result<Stored> {
    match holds {
        CacheType::String | CacheType::Json => match cache_put_string::Reply::read(op, reply)? {
            cache_put_string::Reply::Stored => Ok(Stored::Stored),
            cache_put_string::Reply::Present => Ok(Stored::Present),
            cache_put_string::Reply::Conflict => Err(conflict(op)),
        },
        CacheType::Hash => match cache_put_hash::Reply::read(op, reply)? {
            cache_put_hash::Reply::Stored => Ok(Stored::Stored),
            cache_put_hash::Reply::Present => Ok(Stored::Present),
            cache_put_hash::Reply::Conflict => Err(conflict(op)),
        },
    }
}

/// What `get` found; `None` for a miss.
pub(super) fn got(op: &'static str, holds: CacheType, reply: Reply) -> Result<Option<Held>> {
    Ok(match holds {
        CacheType::String | CacheType::Json => match cache_get_string::Reply::read(op, reply)? {
            cache_get_string::Reply::Hit { value } => Some(value),
            cache_get_string::Reply::Miss => None,
        },
        CacheType::Hash => match cache_get_hash::Reply::read(op, reply)? {
            cache_get_hash::Reply::Hit { fields } => Some(fields),
            cache_get_hash::Reply::Miss => None,
        },
    })
}

pub(super) fn exists(op: &'static str, reply: Reply) -> Result<bool> {
    Ok(match cache_exists::Reply::read(op, reply)? {
        cache_exists::Reply::Present => true,
        cache_exists::Reply::Absent => false,
    })
}

pub(super) fn deleted(op: &'static str, reply: Reply) -> Result<Deleted> {
    match cache_delete::Reply::read(op, reply)? {
        cache_delete::Reply::Deleted => Ok(Deleted::Deleted),
        cache_delete::Reply::Absent => Ok(Deleted::Absent),
        cache_delete::Reply::Conflict => Err(conflict(op)),
    }
}

pub(super) fn loading(op: &'static str, holds: CacheType, reply: Reply) -> Result<Told> {
    Ok(match holds {
        CacheType::String | CacheType::Json => match cache_load_string::Reply::read(op, reply)? {
            cache_load_string::Reply::Hit { value } => Told::Hit(value),
            cache_load_string::Reply::Load { .. } => Told::Load,
            cache_load_string::Reply::Wait { remaining_ms } => Told::Wait(millis(remaining_ms)),
        },
        CacheType::Hash => match cache_load_hash::Reply::read(op, reply)? {
            cache_load_hash::Reply::Hit { fields } => Told::Hit(fields),
            cache_load_hash::Reply::Load { .. } => Told::Load,
            cache_load_hash::Reply::Wait { remaining_ms } => Told::Wait(millis(remaining_ms)),
        },
    })
}

/// Whether what was loaded is kept.
pub(super) fn filled(op: &'static str, holds: CacheType, reply: Reply) -> Result<bool> {
    Ok(match holds {
        CacheType::String | CacheType::Json => match cache_fill_string::Reply::read(op, reply)? {
            cache_fill_string::Reply::Filled => true,
            cache_fill_string::Reply::Lost => false,
        },
        CacheType::Hash => match cache_fill_hash::Reply::read(op, reply)? {
            cache_fill_hash::Reply::Filled => true,
            cache_fill_hash::Reply::Lost => false,
        },
    })
}

fn conflict(op: &'static str) -> Error {
    let detail = "request_id was already used for another verb on this entry";
    Error::new(op, Code::RequestReused, detail).field("request_id")
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}
