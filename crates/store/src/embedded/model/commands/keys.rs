//! DEL EXISTS EXPIRE PERSIST PEXPIRE PEXPIREAT PTTL PUBLISH RENAME TIME TTL TYPE.

use bytes::Bytes;

use super::super::keyspace::NEVER;
use super::super::value::Value;
use super::super::{Change, Fault, Model, Out, Outcome, kind_name};
use super::int;

pub(super) fn del(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let mut removed = 0;
    for key in args {
        if let Some(id) = model.find_for_write(key) {
            model.drop_key(id);
            removed += 1;
        }
    }
    out.int(removed);
    Ok(())
}

pub(super) fn exists(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.count(args.iter().filter(|key| model.find(key).is_some()).count());
    Ok(())
}

pub(super) fn kind(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.status(model.value(args[0]).and_then(Value::kind).map_or("none", kind_name));
    Ok(())
}

pub(super) fn expire(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let at = int(args[1])?.checked_mul(1000).and_then(|ms| ms.checked_add(model.now_ms));
    expire_at(model, args[0], at.ok_or_else(|| Fault::expire_time("expire"))?, out);
    Ok(())
}

pub(super) fn pexpire(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let at = int(args[1])?.checked_add(model.now_ms).ok_or_else(|| Fault::expire_time("pexpire"))?;
    #[cfg(any(test, feature = "seeded-bugs"))]
    if model.bug == Some(super::super::Bug::PexpireKeepsOldTtl)
        && model.find(args[0]).is_some_and(|id| model.keys.slot(id).expires_at != NEVER)
    {
        out.int(1);
        return Ok(());
    }
    expire_at(model, args[0], at, out);
    Ok(())
}

pub(super) fn pexpireat(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let at = int(args[1])?;
    expire_at(model, args[0], at, out);
    Ok(())
}

fn expire_at(model: &mut Model, key: &[u8], at_ms: i64, out: &mut Out) {
    let found = model.find_for_write(key);
    if let Some(id) = found {
        if at_ms <= model.now_ms {
            model.drop_key(id);
        } else {
            model.change_expiry(id, at_ms);
        }
    }
    out.int(i64::from(found.is_some()));
}

pub(super) fn persist(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    #[cfg(any(test, feature = "seeded-bugs"))]
    assert!(model.bug != Some(super::super::Bug::PersistPanics), "a seeded bug");
    let found = model.find_for_write(args[0]).filter(|id| model.keys.slot(*id).expires_at != NEVER);
    if let Some(id) = found {
        model.change_expiry(id, NEVER);
    }
    out.int(i64::from(found.is_some()));
    Ok(())
}

pub(super) fn pttl(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.int(left_ms(model, args[0]));
    Ok(())
}

pub(super) fn ttl(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let left = left_ms(model, args[0]);
    out.int(if left < 0 { left } else { left.saturating_add(500) / 1000 });
    Ok(())
}

/// Milliseconds left; -1 without expiry, -2 without key.
fn left_ms(model: &Model, key: &[u8]) -> i64 {
    match model.find(key).map(|id| model.keys.slot(id).expires_at) {
        None => -2,
        Some(NEVER) => -1,
        Some(at) => at.saturating_sub(model.now_ms).max(0),
    }
}

pub(super) fn rename(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (from, to) = (args[0], args[1]);
    let source = model.find_for_write(from).ok_or(Fault::NO_KEY)?;
    out.ok();
    if from == to {
        return Ok(());
    }
    if let Some(target) = model.find_for_write(to) {
        model.drop_key(target);
    }
    model.rename(source, to);
    if model.keys.slot(source).value.text().is_some() {
        model.note_string(source);
    } else {
        model.note_collection(source);
    }
    let key = Bytes::copy_from_slice(from);
    model.effects.changes.push(Change::Remove { key, generation: None });
    if matches!(model.keys.slot(source).value, Value::List(_)) {
        model.effects.pushed.push(Bytes::copy_from_slice(to));
    }
    Ok(())
}

pub(super) fn time(model: &mut Model, _: &[&[u8]], out: &mut Out) -> Outcome {
    let mut digits = itoa::Buffer::new();
    out.array(2);
    out.bulk(digits.format(model.now_us.div_euclid(1_000_000)).as_bytes());
    out.bulk(digits.format(model.now_us.rem_euclid(1_000_000)).as_bytes());
    Ok(())
}

/// Answers how many listen now; the message goes out when the script has succeeded.
pub(super) fn publish(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.count(model.hub.subscribers(args[0]));
    model.effects.published.push((Bytes::copy_from_slice(args[0]), Bytes::copy_from_slice(args[1])));
    Ok(())
}
