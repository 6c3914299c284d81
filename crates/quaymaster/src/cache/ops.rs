//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_schema::CacheType;
use quaymaster_store::{Invocation, Workload};

use super::value::{Cover, Value};
use super::{When, keys};
use crate::bound::{Bound, Key, KeyBinding};
use crate::scripts::{
    At, cache_delete, cache_exists, cache_fill_hash, cache_fill_string, cache_get_hash, cache_get_string,
    cache_leave, cache_load_hash, cache_load_string, cache_put_hash, cache_put_string, cache_renew,
};
use crate::{Result, Token};

pub(super) const PUT: &str = "cache.put";
pub(super) const GET: &str = "cache.get";
pub(super) const EXISTS: &str = "cache.exists";
pub(super) const DELETE: &str = "cache.delete";
pub(super) const LOAD: &str = "cache.load";
pub(super) const FILL: &str = "cache.fill";
pub(super) const RENEW: &str = "cache.renew";
pub(super) const LEAVE: &str = "cache.leave";

/// How long a repeated `request_id` is recognised.
const KEEP_MS: i64 = 600_000;

/// One entry of one cache, and the moment its key is rendered for.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) bound: &'a Bound,
    pub(super) holds: CacheType,
    pub(super) key: Key<'a>,
    pub(super) now_us: i64,
}

impl<'a> Entry<'a> {
    pub(super) fn cover(self, op: &'static str) -> Result<Cover<'a>> {
        Cover::of(op, self.bound, self.key, self.now_us)
    }

    fn at(self, op: &'static str) -> At {
        self.bound.at(op, Workload::Cache)
    }

    fn entry(self) -> KeyBinding<'a> {
        self.bound.key(self.key, self.now_us)
    }

    fn load(self) -> KeyBinding<'a> {
        keys::load(self.bound, self.key)
    }

    fn request(self, id: Option<&'a str>) -> Option<KeyBinding<'a>> {
        id.map(|id| self.bound.request(self.key, id))
    }

    fn channel(self, op: &'static str) -> Result<Vec<u8>> {
        keys::channel(op, self.bound, self.key)
    }
}

/// What is stored for a value, sealed where it must be: a string, or fields with their values.
fn stored(op: &'static str, entry: Entry<'_>, value: &Value) -> Result<Vec<(Bytes, Bytes)>> {
    let cover = entry.cover(op)?;
    match value {
        Value::Bytes(bytes) => Ok(vec![(Bytes::new(), cover.close(op, b"", bytes)?)]),
        Value::Fields(fields) => {
            fields.iter().map(|(field, value)| Ok((field.clone(), cover.close(op, field, value)?))).collect()
        }
    }
}

/// The string among what [`stored`] made.
fn string(stored: &[(Bytes, Bytes)]) -> &[u8] {
    stored.first().map_or(b"", |(_, value)| value)
}

pub(super) fn put(
    entry: Entry<'_>,
    value: &Value,
    ttl: Option<Duration>,
    when: When,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let stored = stored(PUT, entry, value)?;
    let when = match when {
        When::Always => "always",
        When::Absent if entry.bound.sealed_only() => "unsealed",
        When::Absent => "absent",
    };
    let (ttl_ms, channel, request) = (millis(ttl), &*entry.channel(PUT)?, entry.request(request_id));
    let call = match entry.holds {
        CacheType::String | CacheType::Json => cache_put_string::Call {
            entry: entry.entry(),
            load: entry.load(),
            request,
            value: string(&stored),
            ttl_ms,
            when,
            channel,
            keep_ms: KEEP_MS,
        }
        .on(entry.at(PUT)),
        CacheType::Hash => cache_put_hash::Call {
            entry: entry.entry(),
            load: entry.load(),
            request,
            ttl_ms,
            when,
            channel,
            keep_ms: KEEP_MS,
            fields: &|args| {
                for (field, value) in &stored {
                    args.put(cache_put_hash::FieldsRow { field, value });
                }
            },
        }
        .on(entry.at(PUT)),
    }?;
    Ok(if request_id.is_some() { call.repeat_safe() } else { call })
}

pub(super) fn get(op: &'static str, entry: Entry<'_>) -> Result<Invocation> {
    match entry.holds {
        CacheType::String | CacheType::Json => {
            cache_get_string::Call { entry: entry.entry() }.on(entry.at(op))
        }
        CacheType::Hash => cache_get_hash::Call { entry: entry.entry() }.on(entry.at(op)),
    }
}

pub(super) fn exists(entry: Entry<'_>) -> Result<Invocation> {
    cache_exists::Call { entry: entry.entry() }.on(entry.at(EXISTS))
}

pub(super) fn delete(entry: Entry<'_>, request_id: Option<&str>) -> Result<Invocation> {
    let call = cache_delete::Call {
        entry: entry.entry(),
        load: entry.load(),
        request: entry.request(request_id),
        channel: &entry.channel(DELETE)?,
        keep_ms: KEEP_MS,
    };
    let call = call.on(entry.at(DELETE))?;
    Ok(if request_id.is_some() { call.repeat_safe() } else { call })
}

/// A repetition finds its own token in the lease.
pub(super) fn load(entry: Entry<'_>, token: &Token, lease: Duration) -> Result<Invocation> {
    let (token, lease_ms) = (token.as_str(), millis(Some(lease)));
    let (key, load) = (entry.entry(), entry.load());
    let call = match entry.holds {
        CacheType::String | CacheType::Json => {
            cache_load_string::Call { entry: key, load, token, lease_ms }.on(entry.at(LOAD))
        }
        CacheType::Hash => cache_load_hash::Call { entry: key, load, token, lease_ms }.on(entry.at(LOAD)),
    };
    Ok(call?.repeat_safe())
}

/// The first one ends the lease, so a repetition writes nothing.
pub(super) fn fill(
    entry: Entry<'_>,
    token: &Token,
    value: &Value,
    ttl: Option<Duration>,
) -> Result<Invocation> {
    let stored = stored(FILL, entry, value)?;
    let (token, ttl_ms, channel) = (token.as_str(), millis(ttl), &*entry.channel(FILL)?);
    let (key, load) = (entry.entry(), entry.load());
    let call = match entry.holds {
        CacheType::String | CacheType::Json => {
            let value = string(&stored);
            cache_fill_string::Call { entry: key, load, token, value, ttl_ms, channel }.on(entry.at(FILL))
        }
        CacheType::Hash => cache_fill_hash::Call {
            entry: key,
            load,
            token,
            ttl_ms,
            channel,
            fields: &|args| {
                for (field, value) in &stored {
                    args.put(cache_fill_hash::FieldsRow { field, value });
                }
            },
        }
        .on(entry.at(FILL)),
    };
    Ok(call?.repeat_safe())
}

pub(super) fn renew(entry: Entry<'_>, token: &Token, lease: Duration) -> Result<Invocation> {
    let call = cache_renew::Call { load: entry.load(), token: token.as_str(), lease_ms: millis(Some(lease)) };
    Ok(call.on(entry.at(RENEW))?.repeat_safe())
}

pub(super) fn leave(entry: Entry<'_>, token: &Token) -> Result<Invocation> {
    let channel = &entry.channel(LEAVE)?;
    let call = cache_leave::Call { load: entry.load(), token: token.as_str(), channel };
    Ok(call.on(entry.at(LEAVE))?.repeat_safe())
}

/// 0 is for ever.
fn millis(ttl: Option<Duration>) -> i64 {
    ttl.map_or(0, |ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX).max(1))
}
