//! One function per operation: the call it becomes. No policy.

use std::time::Duration;

use bytes::Bytes;
use quaymaster_schema::CacheType;
use quaymaster_store::{Invocation, Words, Workload};

use super::value::{Cover, Value};
use super::{When, keys};
use crate::bound::{Bound, Key};
use crate::scripts::{self, Operation};
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

    fn of(self, string: &'static Operation, hash: &'static Operation) -> Invocation {
        let operation = match self.holds {
            CacheType::String => string,
            CacheType::Hash => hash,
        };
        Invocation::new(&operation.script, Workload::Cache)
    }

    fn bind(self, op: &'static str, call: &mut Invocation) -> Result<()> {
        keys::entry(op, self.bound, self.key, self.now_us, &mut call.keys)
    }

    fn bind_load(self, op: &'static str, call: &mut Invocation) -> Result<()> {
        keys::load(op, self.bound, self.key, &mut call.keys)
    }

    fn bind_request(self, op: &'static str, id: Option<&str>, mut call: Invocation) -> Result<Invocation> {
        if let Some(id) = id {
            self.bound.bind_request(op, self.key, id, &mut call.keys)?;
            call = call.repeat_safe();
        }
        Ok(call)
    }

    fn push_channel(self, op: &'static str, args: &mut Words) -> Result<()> {
        args.push(keys::channel(op, self.bound, self.key)?);
        Ok(())
    }
}

/// Sealed where it must be, in the order of the script's arguments.
fn stored(op: &'static str, entry: Entry<'_>, value: &Value) -> Result<Vec<Bytes>> {
    let cover = entry.cover(op)?;
    match value {
        Value::Bytes(bytes) => Ok(vec![cover.close(op, b"", bytes)?]),
        Value::Fields(fields) => {
            let mut words = Vec::with_capacity(fields.len() * 2);
            for (field, value) in fields {
                words.push(field.clone());
                words.push(cover.close(op, field, value)?);
            }
            Ok(words)
        }
    }
}

pub(super) fn put(
    entry: Entry<'_>,
    value: &Value,
    ttl: Option<Duration>,
    when: When,
    request_id: Option<&str>,
) -> Result<Invocation> {
    let mut call = entry.of(&scripts::CACHE_PUT_STRING, &scripts::CACHE_PUT_HASH);
    entry.bind(PUT, &mut call)?;
    entry.bind_load(PUT, &mut call)?;
    let words = stored(PUT, entry, value)?;
    if entry.holds == CacheType::String {
        push_all(&mut call.args, &words);
    }
    call.args.push_int(millis(ttl));
    call.args.push(match when {
        When::Always => "always",
        When::Absent if entry.bound.sealed_only() => "unsealed",
        When::Absent => "absent",
    });
    entry.push_channel(PUT, &mut call.args)?;
    call.args.push_int(KEEP_MS);
    if entry.holds == CacheType::Hash {
        push_all(&mut call.args, &words);
    }
    entry.bind_request(PUT, request_id, call)
}

pub(super) fn get(entry: Entry<'_>) -> Result<Invocation> {
    let mut call = entry.of(&scripts::CACHE_GET_STRING, &scripts::CACHE_GET_HASH);
    entry.bind(GET, &mut call)?;
    Ok(call)
}

pub(super) fn exists(entry: Entry<'_>) -> Result<Invocation> {
    let mut call = entry.of(&scripts::CACHE_EXISTS, &scripts::CACHE_EXISTS);
    entry.bind(EXISTS, &mut call)?;
    Ok(call)
}

pub(super) fn delete(entry: Entry<'_>, request_id: Option<&str>) -> Result<Invocation> {
    let mut call = entry.of(&scripts::CACHE_DELETE, &scripts::CACHE_DELETE);
    entry.bind(DELETE, &mut call)?;
    entry.bind_load(DELETE, &mut call)?;
    entry.push_channel(DELETE, &mut call.args)?;
    call.args.push_int(KEEP_MS);
    entry.bind_request(DELETE, request_id, call)
}

/// A repetition finds its own token in the lease.
pub(super) fn load(entry: Entry<'_>, token: &Token, lease: Duration) -> Result<Invocation> {
    let mut call = entry.of(&scripts::CACHE_LOAD_STRING, &scripts::CACHE_LOAD_HASH).repeat_safe();
    entry.bind(LOAD, &mut call)?;
    entry.bind_load(LOAD, &mut call)?;
    call.args.push(token.as_str());
    call.args.push_int(millis(Some(lease)));
    Ok(call)
}

/// The first one ends the lease, so a repetition writes nothing.
pub(super) fn fill(
    entry: Entry<'_>,
    token: &Token,
    value: &Value,
    ttl: Option<Duration>,
) -> Result<Invocation> {
    let mut call = entry.of(&scripts::CACHE_FILL_STRING, &scripts::CACHE_FILL_HASH).repeat_safe();
    entry.bind(FILL, &mut call)?;
    entry.bind_load(FILL, &mut call)?;
    call.args.push(token.as_str());
    let words = stored(FILL, entry, value)?;
    if entry.holds == CacheType::String {
        push_all(&mut call.args, &words);
    }
    call.args.push_int(millis(ttl));
    entry.push_channel(FILL, &mut call.args)?;
    if entry.holds == CacheType::Hash {
        push_all(&mut call.args, &words);
    }
    Ok(call)
}

pub(super) fn renew(entry: Entry<'_>, token: &Token, lease: Duration) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::CACHE_RENEW.script, Workload::Cache).repeat_safe();
    entry.bind_load(RENEW, &mut call)?;
    call.args.push(token.as_str());
    call.args.push_int(millis(Some(lease)));
    Ok(call)
}

pub(super) fn leave(entry: Entry<'_>, token: &Token) -> Result<Invocation> {
    let mut call = Invocation::new(&scripts::CACHE_LEAVE.script, Workload::Cache).repeat_safe();
    entry.bind_load(LEAVE, &mut call)?;
    call.args.push(token.as_str());
    entry.push_channel(LEAVE, &mut call.args)?;
    Ok(call)
}

fn push_all(args: &mut Words, words: &[Bytes]) {
    for word in words {
        args.push(word);
    }
}

/// 0 is for ever.
fn millis(ttl: Option<Duration>) -> i64 {
    ttl.map_or(0, |ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX).max(1))
}
