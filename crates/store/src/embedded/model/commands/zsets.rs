//! ZADD ZCARD ZINCRBY ZPOPMAX ZPOPMIN ZRANK ZREM ZSCORE.

use bytes::Bytes;

use super::super::number::{parse_float, write_float};
use super::super::{Element, Fault, Kind, Model, Out, Outcome, SlotId};
use super::{count, is};

/// Answers a score as Redis spells it.
pub(super) fn score(value: f64, out: &mut Out) {
    let mut text = Vec::with_capacity(24);
    write_float(value, &mut text);
    out.bulk(&text);
}

fn float(text: &[u8]) -> Outcome<f64> {
    parse_float(text).ok_or(Fault::NOT_FLOAT)
}

/// Writes or removes one member with its change.
pub(super) fn put(model: &mut Model, id: SlotId, member: &[u8], score: Option<f64>) -> Option<f64> {
    // A negative zero is kept as zero, as Redis' compact encoding does.
    let score = score.map(|score| score + 0.0);
    let old = model.put_score(id, member, score);
    if old.is_some() || score.is_some() {
        let value = score.map(|score| Bytes::copy_from_slice(&score.to_bits().to_be_bytes()));
        let element = Element::Member(Bytes::copy_from_slice(member));
        model.note_element(model.generation(id), element, value);
    }
    old
}

pub(super) fn zcard(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.count(model.zset(args[0])?.map_or(0, |zset| zset.scores.len()));
    Ok(())
}

pub(super) fn zscore(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    match model.zset(args[0])?.and_then(|zset| zset.score(args[1])) {
        Some(value) => score(value, out),
        None => out.nil(),
    }
    Ok(())
}

/// O(rank).
pub(super) fn zrank(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let rank = model.zset(args[0])?.and_then(|zset| {
        zset.score(args[1])?;
        zset.order.iter().position(|place| *place.member == *args[1])
    });
    match rank {
        Some(rank) => out.count(rank),
        None => out.nil(),
    }
    Ok(())
}

#[derive(Default)]
struct AddOptions {
    only_new: bool,
    only_existing: bool,
    greater: bool,
    less: bool,
    changed: bool,
}

impl AddOptions {
    /// Reads the flags; what is left are scores and members.
    fn split<'a, 'b>(mut words: &'a [&'b [u8]]) -> Outcome<(Self, &'a [&'b [u8]])> {
        let mut options = Self::default();
        while let [word, rest @ ..] = words {
            let flag = match () {
                () if is(word, "NX") => &mut options.only_new,
                () if is(word, "XX") => &mut options.only_existing,
                () if is(word, "GT") => &mut options.greater,
                () if is(word, "LT") => &mut options.less,
                () if is(word, "CH") => &mut options.changed,
                () => break,
            };
            *flag = true;
            words = rest;
        }
        if words.is_empty() || words.len() % 2 == 1 {
            return Err(Fault::SYNTAX);
        }
        if options.only_new && options.only_existing {
            return Err(Fault::text("ERR XX and NX options at the same time are not compatible"));
        }
        if (options.greater && options.less) || (options.only_new && (options.greater || options.less)) {
            return Err(Fault::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        Ok((options, words))
    }

    fn allows(&self, old: Option<f64>, new: f64) -> bool {
        match old {
            None => !self.only_existing,
            Some(old) => !(self.only_new || (self.greater && new <= old) || (self.less && new >= old)),
        }
    }
}

pub(super) fn zadd(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let key = args[0];
    let (options, pairs) = AddOptions::split(&args[1..])?;
    for pair in pairs.chunks_exact(2) {
        float(pair[0])?;
    }
    let mut found = model.collection(key, Kind::Zset)?;
    let (mut added, mut updated) = (0, 0);
    for pair in pairs.chunks_exact(2) {
        let (new, member) = (float(pair[0])?, pair[1]);
        let old = match found {
            Some(_) => model.zset(key)?.and_then(|zset| zset.score(member)),
            None => None,
        };
        if !options.allows(old, new) || old == Some(new) {
            continue;
        }
        let id = model.collection_or_new(key, Kind::Zset, found);
        found = Some(id);
        put(model, id, member, Some(new));
        match old {
            None => added += 1,
            Some(_) => updated += 1,
        }
    }
    out.int(if options.changed { added + updated } else { added });
    Ok(())
}

pub(super) fn zincrby(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (key, by, member) = (args[0], float(args[1])?, args[2]);
    let found = model.collection(key, Kind::Zset)?;
    let old = model.zset(key)?.and_then(|zset| zset.score(member));
    let new = old.unwrap_or(0.0) + by;
    if new.is_nan() {
        return Err(Fault::text("ERR resulting score is not a number (NaN)"));
    }
    // A new member takes the increment itself: 0 + -0 would lose its sign.
    let new = if old.is_none() { by } else { new };
    let id = model.collection_or_new(key, Kind::Zset, found);
    if old != Some(new) {
        put(model, id, member, Some(new));
    }
    score(new, out);
    Ok(())
}

pub(super) fn zrem(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let Some(id) = model.collection(args[0], Kind::Zset)? else {
        out.int(0);
        return Ok(());
    };
    let mark = model.mark();
    let removed = args[1..].iter().filter(|member| put(model, id, member, None).is_some()).count();
    model.drop_if_empty(id, mark);
    out.count(removed);
    Ok(())
}

pub(super) fn zpopmin(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    pop(model, args, false, out)
}

pub(super) fn zpopmax(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    pop(model, args, true, out)
}

fn pop(model: &mut Model, args: &[&[u8]], highest: bool, out: &mut Out) -> Outcome {
    let wanted = match args {
        [_] => 1,
        [_, text] => count(text)?,
        _ => return Err(Fault::SYNTAX),
    };
    let Some(id) = model.collection(args[0], Kind::Zset)? else {
        out.array(0);
        return Ok(());
    };
    let mark = model.mark();
    let len = model.zset(args[0])?.map_or(0, |zset| zset.scores.len());
    out.array(wanted.min(len) * 2);
    for _ in 0..wanted.min(len) {
        let order = model.zset(args[0])?.map(|zset| &zset.order);
        let next = order.and_then(|order| if highest { order.last() } else { order.first() }).cloned();
        if let Some(place) = next {
            out.bulk(&place.member);
            score(place.score, out);
            put(model, id, &place.member, None);
        }
    }
    model.drop_if_empty(id, mark);
    Ok(())
}
