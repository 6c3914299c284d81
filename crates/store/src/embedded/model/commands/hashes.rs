//! HDEL HEXISTS HGET HGETALL HINCRBY HLEN HMGET HSET HSETNX.

use bytes::Bytes;

use super::super::number::parse_int;
use super::super::value::Hash;
use super::super::{Element, Fault, Kind, Model, Out, Outcome, SlotId};
use super::int;

fn field<'a>(hash: Option<&'a Hash>, name: &[u8]) -> Option<&'a [u8]> {
    hash?.fields.get(name).map(|value| &**value)
}

/// Writes one field; whether it is new.
fn put(model: &mut Model, id: SlotId, name: &[u8], value: &[u8]) -> bool {
    let existed = model.put_field(id, name, Some(value));
    let element = Element::Field(Bytes::copy_from_slice(name));
    model.note_element(model.generation(id), element, Some(Bytes::copy_from_slice(value)));
    !existed
}

pub(super) fn hget(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.maybe(field(model.hash(args[0])?, args[1]));
    Ok(())
}

pub(super) fn hexists(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.int(i64::from(field(model.hash(args[0])?, args[1]).is_some()));
    Ok(())
}

pub(super) fn hlen(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.count(model.hash(args[0])?.map_or(0, |hash| hash.fields.len()));
    Ok(())
}

pub(super) fn hmget(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let hash = model.hash(args[0])?;
    out.array(args.len() - 1);
    for name in &args[1..] {
        out.maybe(field(hash, name));
    }
    Ok(())
}

pub(super) fn hgetall(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let hash = model.hash(args[0])?;
    out.array(hash.map_or(0, |hash| hash.fields.len() * 2));
    for (name, value) in hash.into_iter().flat_map(|hash| &hash.fields) {
        out.bulk(name);
        out.bulk(value);
    }
    Ok(())
}

pub(super) fn hset(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (key, pairs) = (args[0], &args[1..]);
    if pairs.len() % 2 == 1 {
        return Err(Fault::arguments("hset"));
    }
    let found = model.collection(key, Kind::Hash)?;
    let id = model.collection_or_new(key, Kind::Hash, found);
    let mut added = 0;
    for pair in pairs.chunks_exact(2) {
        added += i64::from(put(model, id, pair[0], pair[1]));
    }
    out.int(added);
    Ok(())
}

pub(super) fn hsetnx(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (key, name, value) = (args[0], args[1], args[2]);
    let found = model.collection(key, Kind::Hash)?;
    let absent = field(model.hash(key)?, name).is_none();
    if absent {
        let id = model.collection_or_new(key, Kind::Hash, found);
        put(model, id, name, value);
    }
    out.int(i64::from(absent));
    Ok(())
}

pub(super) fn hincrby(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (key, name, by) = (args[0], args[1], int(args[2])?);
    let found = model.collection(key, Kind::Hash)?;
    let before = match field(model.hash(key)?, name) {
        Some(text) => parse_int(text).ok_or(Fault::text("ERR hash value is not an integer"))?,
        None => 0,
    };
    let after = before.checked_add(by).ok_or(Fault::OVERFLOW)?;
    let id = model.collection_or_new(key, Kind::Hash, found);
    put(model, id, name, itoa::Buffer::new().format(after).as_bytes());
    out.int(after);
    Ok(())
}

pub(super) fn hdel(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let Some(id) = model.collection(args[0], Kind::Hash)? else {
        out.int(0);
        return Ok(());
    };
    let (mark, generation) = (model.mark(), model.generation(id));
    let mut removed = 0;
    for name in &args[1..] {
        if model.put_field(id, name, None) {
            model.note_element(generation, Element::Field(Bytes::copy_from_slice(name)), None);
            removed += 1;
        }
    }
    model.drop_if_empty(id, mark);
    out.int(removed);
    Ok(())
}
