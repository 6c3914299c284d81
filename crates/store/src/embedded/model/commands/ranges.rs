//! ZCOUNT ZRANGE ZRANGEBYSCORE ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::super::number::parse_bound;
use super::super::value::{Place, Placed, Spot};
use super::super::{Fault, Kind, Model, Out, Outcome};
use super::{index_range, int, is, zsets};

/// Scores between two bounds, either of which may be exclusive (`(5`) or infinite.
struct Scores {
    min: f64,
    above_min: bool,
    max: f64,
    below_max: bool,
}

impl Scores {
    fn parse(min: &[u8], max: &[u8]) -> Outcome<Self> {
        let bound = |text: &[u8]| {
            let (exclusive, text) = match text {
                [b'(', rest @ ..] => (true, rest),
                all => (false, all),
            };
            Ok((parse_bound(text).ok_or(Fault::NOT_BOUND)?, exclusive))
        };
        let ((min, above_min), (max, below_max)) = (bound(min)?, bound(max)?);
        Ok(Self { min, above_min, max, below_max })
    }

    /// The places between the bounds, in order. O(log n) to either end.
    fn of<'a>(&self, order: &'a BTreeSet<Place>) -> impl DoubleEndedIterator<Item = &'a Place> + use<'a> {
        let empty = self.min > self.max
            || (self.min >= self.max && (self.above_min || self.below_max))
            || (self.above_min && self.min == f64::INFINITY)
            || (self.below_max && self.max == f64::NEG_INFINITY);
        // The empty member comes first among equals, so (s, "") begins score s and (next s, "") ends it.
        let low = Spot { score: if self.above_min { self.min.next_up() } else { self.min }, member: b"" };
        let high = Spot { score: if self.below_max { self.max } else { self.max.next_up() }, member: b"" };
        let from: Bound<&dyn Placed> = Bound::Included(&low);
        let to: Bound<&dyn Placed> = if !self.below_max && self.max == f64::INFINITY {
            Bound::Unbounded
        } else {
            Bound::Excluded(&high)
        };
        (!empty).then(|| order.range::<dyn Placed, _>((from, to))).into_iter().flatten()
    }
}

fn write<'a>(places: impl Iterator<Item = &'a Place>, with_scores: bool, out: &mut Out) {
    let places: Vec<&Place> = places.collect();
    out.array(places.len() * if with_scores { 2 } else { 1 });
    for place in places {
        out.bulk(&place.member);
        if with_scores {
            zsets::score(place.score, out);
        }
    }
}

/// A cut of what matched; `count` below zero means all.
#[derive(Clone, Copy)]
struct Limit {
    offset: i64,
    count: i64,
}

impl Limit {
    /// What the bounds of a cut leave: a negative offset leaves nothing, as in Redis.
    fn sizes(self) -> (usize, usize) {
        match (usize::try_from(self.offset), usize::try_from(self.count)) {
            (Err(_), _) => (0, 0),
            (Ok(skip), Err(_)) => (skip, usize::MAX),
            (Ok(skip), Ok(take)) => (skip, take),
        }
    }
}

#[derive(Default)]
struct RangeOptions {
    by_score: bool,
    reverse: bool,
    with_scores: bool,
    limit: Option<Limit>,
}

impl RangeOptions {
    fn parse(mut words: &[&[u8]], whole_grammar: bool) -> Outcome<Self> {
        let mut options = Self::default();
        while let [word, rest @ ..] = words {
            words = rest;
            if is(word, "WITHSCORES") {
                options.with_scores = true;
            } else if is(word, "LIMIT")
                && let [offset, count, rest @ ..] = rest
            {
                options.limit = Some(Limit { offset: int(offset)?, count: int(count)? });
                words = rest;
            } else if whole_grammar && !options.by_score && is(word, "BYSCORE") {
                options.by_score = true;
            } else if whole_grammar && !options.reverse && is(word, "REV") {
                options.reverse = true;
            } else {
                return Err(Fault::SYNTAX);
            }
        }
        Ok(options)
    }
}

pub(super) fn zrange(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let options = RangeOptions::parse(&args[3..], true)?;
    if options.by_score { by_score(model, args, &options, out) } else { by_index(model, args, &options, out) }
}

pub(super) fn zrangebyscore(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let options = RangeOptions { by_score: true, ..RangeOptions::parse(&args[3..], false)? };
    by_score(model, args, &options, out)
}

pub(super) fn zrevrange(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let options = RangeOptions { reverse: true, ..RangeOptions::parse(&args[3..], false)? };
    by_index(model, args, &options, out)
}

fn by_score(model: &Model, args: &[&[u8]], options: &RangeOptions, out: &mut Out) -> Outcome {
    let (min, max) = if options.reverse { (args[2], args[1]) } else { (args[1], args[2]) };
    let scores = Scores::parse(min, max)?;
    #[cfg(any(test, feature = "seeded-bugs"))]
    let scores = match model.bug {
        Some(super::super::Bug::ExclusiveBoundIncluded) => Scores { above_min: false, ..scores },
        _ => scores,
    };
    let Some(zset) = model.zset(args[0])? else {
        out.array(0);
        return Ok(());
    };
    let (skip, take) = options.limit.map_or((0, usize::MAX), Limit::sizes);
    let places = scores.of(&zset.order);
    if options.reverse {
        write(places.rev().skip(skip).take(take), options.with_scores, out);
    } else {
        write(places.skip(skip).take(take), options.with_scores, out);
    }
    Ok(())
}

/// O(offset from the nearer end + answered).
fn by_index(model: &Model, args: &[&[u8]], options: &RangeOptions, out: &mut Out) -> Outcome {
    // A count of -1 is Redis' "no limit", whatever the offset.
    if options.limit.is_some_and(|limit| limit.count != -1) {
        return Err(Fault::text(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    let (start, stop) = (int(args[1])?, int(args[2])?);
    let Some(zset) = model.zset(args[0])? else {
        out.array(0);
        return Ok(());
    };
    let len = zset.order.len();
    let range = index_range(start, stop, len);
    let from_start = range.start <= len - range.end;
    let (skip, take) = (range.start, range.len());
    match (options.reverse, from_start) {
        (false, true) => write(zset.order.iter().skip(skip).take(take), options.with_scores, out),
        (true, true) => write(zset.order.iter().rev().skip(skip).take(take), options.with_scores, out),
        (reverse, false) => {
            // Nearer to the other end: walk from there and turn round.
            let tail = len - range.end;
            let mut places: Vec<&Place> = if reverse {
                zset.order.iter().skip(tail).take(take).collect()
            } else {
                zset.order.iter().rev().skip(tail).take(take).collect()
            };
            places.reverse();
            write(places.into_iter(), options.with_scores, out);
        }
    }
    Ok(())
}

pub(super) fn zcount(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let scores = Scores::parse(args[1], args[2])?;
    out.count(model.zset(args[0])?.map_or(0, |zset| scores.of(&zset.order).count()));
    Ok(())
}

pub(super) fn zremrangebyscore(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let scores = Scores::parse(args[1], args[2])?;
    remove(model, args[0], out, |order| scores.of(order).map(|place| Arc::clone(&place.member)).collect())
}

/// O(offset from the nearer end + removed).
pub(super) fn zremrangebyrank(model: &mut Model, args: &[&[u8]], out: &mut Out) -> Outcome {
    let (start, stop) = (int(args[1])?, int(args[2])?);
    remove(model, args[0], out, |order| {
        let range = index_range(start, stop, order.len());
        let member = |place: &Place| Arc::clone(&place.member);
        if range.start <= order.len() - range.end {
            order.iter().skip(range.start).take(range.len()).map(member).collect()
        } else {
            order.iter().rev().skip(order.len() - range.end).take(range.len()).map(member).collect()
        }
    })
}

fn remove(
    model: &mut Model,
    key: &[u8],
    out: &mut Out,
    choose: impl FnOnce(&BTreeSet<Place>) -> Vec<Arc<[u8]>>,
) -> Outcome {
    let Some(id) = model.collection(key, Kind::Zset)? else {
        out.int(0);
        return Ok(());
    };
    let doomed = model.zset(key)?.map(|zset| choose(&zset.order)).unwrap_or_default();
    let mark = model.mark();
    for member in &doomed {
        zsets::put(model, id, member, None);
    }
    model.drop_if_empty(id, mark);
    out.count(doomed.len());
    Ok(())
}
