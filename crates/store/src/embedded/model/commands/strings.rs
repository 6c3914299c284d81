//! APPEND DECRBY GET GETDEL GETRANGE INCR INCRBY MGET SET SETNX SETRANGE STRLEN.

use super::super::keyspace::NEVER;
use super::super::number::parse_int;
use super::super::value::Value;
use super::super::{Fault, Model, Out, Outcome};
use super::{int, is};

/// Redis' bound on a string, `proto-max-bulk-len`.
const MAX_LEN: usize = 512 << 20;

pub(super) fn get(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.maybe(model.text(args[0])?);
    Ok(())
}

pub(super) fn getdel(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.maybe(model.text(args[0])?);
    if let Some(id) = model.find_for_write(args[0]) {
        model.drop_key(id);
    }
    Ok(())
}

pub(super) fn strlen(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.count(model.text(args[0])?.map_or(0, <[u8]>::len));
    Ok(())
}

pub(super) fn mget(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.array(args.len());
    for key in args {
        out.maybe(model.value(key).and_then(Value::text));
    }
    Ok(())
}

pub(super) fn getrange(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (start, end) = (int(args[1])?, int(args[2])?);
    let text = model.text(args[0])?.unwrap_or_default();
    if start < 0 && end < 0 && start > end {
        out.bulk(b"");
        return Ok(());
    }
    let len = text.len() as i64;
    let from_end = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
    // Unlike a list's index, an end before the beginning counts as the first byte.
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    out.bulk(if start > end { b"" } else { &text[start as usize..=end as usize] });
    Ok(())
}

pub(super) fn append(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (key, tail) = (args[0], args[1]);
    let before = model.text(key)?.map_or(0, <[u8]>::len);
    if before + tail.len() > MAX_LEN {
        return Err(Fault::TOO_LONG);
    }
    match model.find_for_write(key) {
        Some(id) => {
            out.count(model.append(id, tail));
            model.note_string(id);
        }
        None => {
            model.put_string(key, None, Value::string(tail), NEVER);
            out.count(tail.len());
        }
    }
    Ok(())
}

pub(super) fn setrange(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (key, piece) = (args[0], args[2]);
    let at = usize::try_from(int(args[1])?).map_err(|_| Fault::text("ERR offset is out of range"))?;
    let before = model.text(key)?.map(<[u8]>::len);
    if piece.is_empty() {
        // Nothing to write makes no key and pads none.
        out.count(before.unwrap_or(0));
        return Ok(());
    }
    if at.saturating_add(piece.len()) > MAX_LEN {
        return Err(Fault::TOO_LONG);
    }
    match model.find_for_write(key) {
        Some(id) => {
            out.count(model.overwrite(id, at, piece));
            model.note_string(id);
        }
        None => {
            let mut whole = vec![0; at];
            whole.extend_from_slice(piece);
            model.put_string(key, None, Value::string(&whole), NEVER);
            out.count(whole.len());
        }
    }
    Ok(())
}

pub(super) fn incr(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    add(model, args[0], 1, out)
}

pub(super) fn incrby(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    add(model, args[0], int(args[1])?, out)
}

pub(super) fn decrby(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let by = int(args[1])?.checked_neg().ok_or(Fault::text("ERR decrement would overflow"))?;
    add(model, args[0], by, out)
}

fn add(model: &mut Model, key: &[u8], by: i64, out: &mut Out) -> Outcome {
    let found = model.find_for_write(key);
    let (before, expires_at) = match found {
        None => (0, NEVER),
        Some(id) => {
            let slot = model.keys.slot(id);
            let text = slot.value.text().ok_or(Fault::WRONG_TYPE)?;
            (parse_int(text).ok_or(Fault::NOT_INT)?, slot.expires_at)
        }
    };
    let after = before.checked_add(by).ok_or(Fault::OVERFLOW)?;
    model.put_string(key, found, Value::int(after), expires_at);
    out.int(after);
    Ok(())
}

pub(super) fn setnx(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let absent = model.find_for_write(args[0]).is_none();
    if absent {
        model.put_string(args[0], None, Value::string(args[1]), NEVER);
    }
    out.int(i64::from(absent));
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    Always,
    Absent,
    Present,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expiry {
    Clear,
    Keep,
    At(i64),
}

struct SetOptions {
    only: Only,
    expiry: Expiry,
    get: bool,
}

fn set_options(model: &Model, words: &[&[u8]]) -> Outcome<SetOptions> {
    let mut options = SetOptions { only: Only::Always, expiry: Expiry::Clear, get: false };
    let mut time: Option<(i64, i64, &[u8])> = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let fresh = options.expiry == Expiry::Clear && time.is_none();
        if is(word, "NX") && options.only != Only::Present {
            options.only = Only::Absent;
        } else if is(word, "XX") && options.only != Only::Absent {
            options.only = Only::Present;
        } else if is(word, "GET") {
            options.get = true;
        } else if is(word, "KEEPTTL") && time.is_none() {
            options.expiry = Expiry::Keep;
        } else if let Some((unit, base)) = time_unit(word, model.now_ms)
            && (fresh || time.is_some_and(|(seen, from, _)| (seen, from) == (unit, base)))
        {
            // The same option again is no contradiction to Redis: the last one counts.
            time = Some((unit, base, words.next().ok_or(Fault::SYNTAX)?));
        } else {
            return Err(Fault::SYNTAX);
        }
    }
    if let Some((unit, base, text)) = time {
        let at = Some(int(text)?)
            .filter(|time| *time > 0)
            .and_then(|time| time.checked_mul(unit)?.checked_add(base))
            .ok_or_else(|| Fault::expire_time("set"))?;
        options.expiry = Expiry::At(at);
    }
    Ok(options)
}

/// Milliseconds per unit, and where counting starts.
fn time_unit(word: &[u8], now_ms: i64) -> Option<(i64, i64)> {
    if is(word, "EX") {
        Some((1000, now_ms))
    } else if is(word, "PX") {
        Some((1, now_ms))
    } else if is(word, "PXAT") {
        Some((1, 0))
    } else {
        None
    }
}

pub(super) fn set(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (key, value) = (args[0], args[1]);
    let options = set_options(model, &args[2..])?;
    if options.get {
        out.maybe(model.text(key)?);
    }
    let found = model.find_for_write(key);
    let refused = match options.only {
        Only::Always => false,
        Only::Absent => found.is_some(),
        Only::Present => found.is_none(),
    };
    if refused {
        if !options.get {
            out.nil();
        }
        return Ok(());
    }
    let expires_at = match (options.expiry, found) {
        (Expiry::At(at), _) => at,
        (Expiry::Keep, Some(id)) => model.keys.slot(id).expires_at,
        (Expiry::Keep, None) | (Expiry::Clear, _) => NEVER,
    };
    model.put_string(key, found, Value::string(value), expires_at);
    if !options.get {
        out.ok();
    }
    Ok(())
}
