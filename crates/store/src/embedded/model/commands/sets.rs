//! SADD SCARD SISMEMBER SMEMBERS SREM.

use bytes::Bytes;

use super::super::{Element, Kind, Model, Out, Outcome};

pub(super) fn sadd(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let found = model.collection(args[0], Kind::Set)?;
    let id = model.collection_or_new(args[0], Kind::Set, found);
    let generation = model.generation(id);
    let mut added = 0;
    for member in &args[1..] {
        if model.add_member(id, member) {
            let element = Element::Member(Bytes::copy_from_slice(member));
            model.note_element(generation, element, Some(Bytes::new()));
            added += 1;
        }
    }
    out.int(added);
    Ok(())
}

pub(super) fn srem(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let Some(id) = model.collection(args[0], Kind::Set)? else {
        out.int(0);
        return Ok(());
    };
    let (mark, generation) = (model.mark(), model.generation(id));
    let mut removed = 0;
    for member in &args[1..] {
        if model.remove_member(id, member) {
            model.note_element(generation, Element::Member(Bytes::copy_from_slice(member)), None);
            removed += 1;
        }
    }
    model.drop_if_empty(id, mark);
    out.int(removed);
    Ok(())
}

pub(super) fn scard(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    out.count(model.set(args[0])?.map_or(0, |set| set.members.len()));
    Ok(())
}

pub(super) fn sismember(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let is_member = model.set(args[0])?.is_some_and(|set| set.members.contains(args[1]));
    out.int(i64::from(is_member));
    Ok(())
}

pub(super) fn smembers(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let set = model.set(args[0])?;
    out.array(set.map_or(0, |set| set.members.len()));
    for member in set.into_iter().flat_map(|set| &set.members) {
        out.bulk(member);
    }
    Ok(())
}
