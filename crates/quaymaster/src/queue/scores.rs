//! Items of a priority queue by their score: shown, removed.

use super::answer::{RangePage, Redriven};
use super::ask::{Scores, Trim};
use super::{MAX_COUNT, Queue, dead, ops, sort, tell};
use crate::scripts::{queue_range, queue_trim};
use crate::{Code, Error, Result, bound};

/// Items removed in one step.
const STEP: u64 = 10_000;

/// Refuses a queue without scores, and what is no score.
fn check(queue: &Queue, op: &'static str, scores: Scores) -> Result<Scores> {
    let wrong = |code, field: &'static str, detail: String| Err(Error::new(op, code, detail).field(field));
    if queue.place.is_fifo() {
        let field = if scores.min.is_some() { "min" } else { "max" };
        let detail = format!("{field}: this queue's order is fifo, its items have no scores");
        return wrong(Code::ResourceMismatch, field, detail);
    }
    for (field, score) in [("min", scores.min), ("max", scores.max)] {
        if score.is_some_and(|score| !score.is_finite()) {
            return wrong(Code::RequestInvalid, field, format!("{field}: a finite number"));
        }
    }
    // A negative zero would be spelled otherwise than zero.
    let plain = |score: Option<f64>| score.map(|score| score + 0.0);
    Ok(Scores { min: plain(scores.min), max: plain(scores.max) })
}

pub(super) async fn range(queue: &Queue, scores: Scores, count: usize, offset: u64) -> Result<RangePage> {
    const OP: &str = ops::RANGE;
    let scores = check(queue, OP, scores)?;
    super::counted(OP, count)?;
    bound::check_offset(OP, offset)?;
    let call = ops::range(&queue.place, scores, offset, count.min(MAX_COUNT))?;
    let reply = queue.place.bound.run(OP, call).await?;
    let queue_range::Reply::Items { length, items } = queue_range::Reply::read(OP, reply)?;
    let mut left = queue.place.bounds().unpacked();
    let scored = |row: queue_range::ItemsRow| (tell::priority(&row.score), sort::item(row.item, &mut left));
    let items = items.into_iter().map(scored).collect();
    Ok(RangePage { length: tell::counted(length), items })
}

pub(super) async fn trim(queue: &Queue, which: Trim, mut heard: impl FnMut(u64) + Send) -> Result<u64> {
    const OP: &str = ops::TRIM;
    let scores = check(queue, OP, Scores { min: which.min, max: Some(which.max) })?;
    let request_id = which.request_id.as_deref();
    let (Redriven { moved: mut removed, .. }, done) = dead::progress(queue, OP, request_id, None).await?;
    if done {
        return Ok(removed);
    }
    let there = ops::range(&queue.place, scores, 0, 1)?;
    let reply = queue.place.bound.run(OP, there).await?;
    let queue_range::Reply::Items { length, .. } = queue_range::Reply::read(OP, reply)?;
    // Items that come while it runs are left for the next call.
    let wanted = which.count.unwrap_or(u64::MAX).min(tell::counted(length).saturating_add(removed));
    while removed < wanted {
        let step = (wanted - removed).min(STEP);
        let reply = queue.place.bound.run(OP, ops::trim(&queue.place, scores, step, request_id)?).await?;
        let queue_trim::Reply::Removed { count } = queue_trim::Reply::read(OP, reply)?;
        let gone = tell::counted(count);
        removed += gone;
        heard(removed);
        if gone < step {
            break;
        }
    }
    let answer = Redriven { moved: removed, ..Redriven::default() };
    Ok(dead::progress(queue, OP, request_id, Some(answer)).await?.0.moved)
}
