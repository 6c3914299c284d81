//! LINDEX LLEN LMOVE LPOP LPUSH LRANGE LREM LSET LTRIM RPOP RPUSH.

use bytes::Bytes;

use super::super::value::{End, Str};
use super::super::{Element, Fault, Kind, Model, Out, Outcome, SlotId};
use super::{count, index_range, int, is};

pub(super) fn llen(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.count(model.list(args[0])?.map_or(0, |list| list.items.len()));
    Ok(())
}

pub(super) fn lindex(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let Some(list) = model.list(args[0])? else {
        out.nil();
        return Ok(());
    };
    let index = place(int(args[1])?, list.items.len());
    out.maybe(index.map(|index| &*list.items[index].data));
    Ok(())
}

/// An index, negative from the end, as a place in the list.
fn place(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

pub(super) fn lrange(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (start, stop) = (int(args[1])?, int(args[2])?);
    let Some(list) = model.list(args[0])? else {
        out.array(0);
        return Ok(());
    };
    let range = index_range(start, stop, list.items.len());
    out.array(range.len());
    for item in list.items.range(range) {
        out.bulk(&item.data);
    }
    Ok(())
}

pub(super) fn lpush(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    push_all(model, args, End::Left, out)
}

pub(super) fn rpush(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    push_all(model, args, End::Right, out)
}

fn push_all(model: &mut Model, args: &[&[u8]], end: End, out: &mut Out) -> Outcome {
    let key = args[0];
    let found = model.collection(key, Kind::List)?;
    let id = model.collection_or_new(key, Kind::List, found);
    for data in &args[1..] {
        push(model, id, end, (*data).into());
    }
    model.effects.pushed.push(Bytes::copy_from_slice(key));
    out.count(model.list(key)?.map_or(0, |list| list.items.len()));
    Ok(())
}

fn push(model: &mut Model, id: SlotId, end: End, data: Str) {
    let copy = Bytes::copy_from_slice(&data);
    let seat = model.push_item(id, end, data);
    model.note_element(model.generation(id), Element::Seat(seat), Some(copy));
}

pub(super) fn lpop(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    pop(model, args, End::Left, "lpop", out)
}

pub(super) fn rpop(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    pop(model, args, End::Right, "rpop", out)
}

fn pop(model: &mut Model, args: &[&[u8]], end: End, name: &str, out: &mut Out) -> Outcome {
    let wanted = match args {
        [_] => None,
        [_, text] => Some(count(text)?),
        _ => return Err(Fault::arguments(name)),
    };
    let Some(id) = model.collection(args[0], Kind::List)? else {
        out.nil();
        return Ok(());
    };
    let len = model.list(args[0])?.map_or(0, |list| list.items.len());
    if let Some(wanted) = wanted {
        out.array(wanted.min(len));
    }
    let (mark, generation) = (model.mark(), model.generation(id));
    for _ in 0..wanted.unwrap_or(1).min(len) {
        if let Some(item) = model.pop_item(id, end) {
            out.bulk(&item.data);
            let seat = item.seat;
            model.note_element(generation, Element::Seat(seat), None);
        }
    }
    model.drop_if_empty(id, mark);
    Ok(())
}

pub(super) fn lmove(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (source, target) = (args[0], args[1]);
    let (from, to) = (end_named(args[2])?, end_named(args[3])?);
    let Some(id) = model.collection(source, Kind::List)? else {
        out.nil();
        return Ok(());
    };
    let found = if source == target { Some(id) } else { model.collection(target, Kind::List)? };
    let mark = model.mark();
    let Some((seat, data)) = model.pop_item(id, from).map(|item| (item.seat, item.data.clone())) else {
        out.nil();
        return Ok(());
    };
    model.note_element(model.generation(id), Element::Seat(seat), None);
    out.bulk(&data);
    // On one and the same list the item comes back before anybody can see it empty.
    if source != target {
        model.drop_if_empty(id, mark);
    }
    let id = model.collection_or_new(target, Kind::List, found);
    push(model, id, to, data);
    model.effects.pushed.push(Bytes::copy_from_slice(target));
    Ok(())
}

fn end_named(word: &[u8]) -> Outcome<End> {
    if is(word, "LEFT") {
        Ok(End::Left)
    } else if is(word, "RIGHT") {
        Ok(End::Right)
    } else {
        Err(Fault::SYNTAX)
    }
}

pub(super) fn lset(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let id = model.collection(args[0], Kind::List)?.ok_or(Fault::NO_KEY)?;
    let index = int(args[1])?;
    let items = model.list(args[0])?.map(|list| &list.items).ok_or(Fault::NO_KEY)?;
    let index = place(index, items.len()).ok_or(Fault::text("ERR index out of range"))?;
    let seat = items[index].seat;
    model.swap_item(id, index, args[2]);
    let value = Bytes::copy_from_slice(args[2]);
    model.note_element(model.generation(id), Element::Seat(seat), Some(value));
    out.ok();
    Ok(())
}

pub(super) fn lrem(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let limit = int(args[1])?;
    let Some(id) = model.collection(args[0], Kind::List)? else {
        out.int(0);
        return Ok(());
    };
    let most =
        if limit == 0 { usize::MAX } else { usize::try_from(limit.unsigned_abs()).unwrap_or(usize::MAX) };
    let from_tail = limit < 0;
    #[cfg(any(test, feature = "seeded-bugs"))]
    let from_tail = from_tail && model.bug != Some(super::super::Bug::LremFromHead);
    let items = model.list(args[0])?.into_iter().flat_map(|list| list.items.iter().enumerate());
    let hits = items.filter(|(_, item)| *item.data == *args[2]).map(|(index, _)| index);
    let mut doomed: Vec<usize> = if from_tail { hits.collect() } else { hits.take(most).collect() };
    doomed.drain(..doomed.len().saturating_sub(most));
    cut(model, id, &doomed);
    out.count(doomed.len());
    Ok(())
}

/// Takes out items from anywhere in the list.
fn cut(model: &mut Model, id: SlotId, doomed: &[usize]) {
    if doomed.is_empty() {
        return;
    }
    let (mark, generation) = (model.mark(), model.generation(id));
    for seat in model.cut_items(id, doomed) {
        model.note_element(generation, Element::Seat(seat), None);
    }
    model.drop_if_empty(id, mark);
}

pub(super) fn ltrim(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (start, stop) = (int(args[1])?, int(args[2])?);
    out.ok();
    let Some(id) = model.collection(args[0], Kind::List)? else { return Ok(()) };
    let len = model.list(args[0])?.map_or(0, |list| list.items.len());
    let keep = index_range(start, stop, len);
    if keep.is_empty() {
        model.drop_key(id);
        return Ok(());
    }
    let generation = model.generation(id);
    // From the ends inwards: cost is that of the items that go, not of those that stay.
    for (end, times) in [(End::Left, keep.start), (End::Right, len - keep.end)] {
        for _ in 0..times {
            if let Some(seat) = model.pop_item(id, end).map(|item| item.seat) {
                model.note_element(generation, Element::Seat(seat), None);
            }
        }
    }
    Ok(())
}
