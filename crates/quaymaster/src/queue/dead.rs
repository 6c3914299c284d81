//! Dead letters: shown, pushed again, removed. In small steps, so that a million of them stall nobody.

use bytes::Bytes;

use super::answer::{DeadPage, Item, Redriven};
use super::ask::{Purge, Redrive};
use super::ops::{self, Again};
use super::{MAX_COUNT, Queue, letter, pack, tell};
use crate::scripts::{
    queue_dead, queue_progress, queue_purge, queue_purge_aged, queue_redrive, queue_redrive_overflow,
};
use crate::{Result, bound};

/// Letters read and moved in one step.
const STEP: usize = 100;

/// Letters removed in one step.
const PURGE_STEP: u64 = 10_000;

async fn read(queue: &Queue, op: &'static str, count: usize, offset: u64) -> Result<(u64, Vec<Bytes>)> {
    let reply = queue.place.bound.run(op, ops::dead(&queue.place, op, offset, count)?).await?;
    let queue_dead::Reply::Letters { length, letters } = queue_dead::Reply::read(op, reply)?;
    Ok((tell::counted(length), letters))
}

pub(super) async fn page(queue: &Queue, count: usize, offset: u64) -> Result<DeadPage> {
    super::counted(ops::DEAD, count)?;
    bound::check_offset(ops::DEAD, offset)?;
    let (length, letters) = read(queue, ops::DEAD, count.min(MAX_COUNT), offset).await?;
    // Letters are never compressed; what another program left there is shown as a string.
    let item = |bytes: Bytes| match pack::read(bytes.clone(), queue.place.bounds().unpacked()) {
        Ok(letter) => Item::Json(letter.json),
        Err(why) => Item::Raw { bytes, reason: why.to_string() },
    };
    Ok(DeadPage { length, items: letters.into_iter().map(item).collect() })
}

/// What a request has done so far, and whether it was done; with an answer, that it is.
pub(super) async fn progress(
    queue: &Queue,
    op: &'static str,
    request_id: Option<&str>,
    answer: Option<Redriven>,
) -> Result<(Redriven, bool)> {
    let Some(id) = request_id else { return Ok((answer.unwrap_or_default(), false)) };
    let reply = queue.place.bound.run(op, ops::progress(&queue.place, op, id, answer)?).await?;
    match queue_progress::Reply::read(op, reply)? {
        queue_progress::Reply::Progress { total, left, full, done } => {
            let (moved, left) = (tell::counted(total), tell::counted(left));
            Ok((Redriven { moved, left, full: full == 1 }, done == 1))
        }
        queue_progress::Reply::Conflict => Err(tell::conflict(op)),
    }
}

pub(super) async fn redrive(
    queue: &Queue,
    which: Redrive,
    heard: impl FnMut(u64) + Send,
) -> Result<Redriven> {
    let request_id = which.request_id.as_deref();
    let (mut answer, done) = progress(queue, ops::REDRIVE, request_id, None).await?;
    if done {
        return Ok(answer);
    }
    let wanted = which.count.unwrap_or(u64::MAX);
    if which.overflow {
        redrive_overflow(queue, wanted, request_id, &mut answer, heard).await?;
    } else {
        redrive_letters(queue, wanted, request_id, &mut answer, heard).await?;
    }
    if answer.moved > 0 {
        queue.place.nudge.notify_waiters();
    }
    Ok(progress(queue, ops::REDRIVE, request_id, Some(answer)).await?.0)
}

async fn redrive_letters(
    queue: &Queue,
    wanted: u64,
    request_id: Option<&str>,
    answer: &mut Redriven,
    mut heard: impl FnMut(u64) + Send,
) -> Result<()> {
    let (mut looked, mut offset, mut length) = (0, 0, None);
    while answer.moved < wanted && length.is_none_or(|length| looked < length) {
        let (now, letters) = read(queue, ops::REDRIVE, STEP, offset).await?;
        // Letters that come while it runs are left for the next call.
        length.get_or_insert(now);
        if letters.is_empty() {
            break;
        }
        let mut again = Vec::new();
        let mut passed = 0;
        for (index, bytes) in (offset..).zip(&letters) {
            if again.len() as u64 >= wanted - answer.moved {
                break;
            }
            passed += 1;
            let read = letter::read(bytes);
            let priority = read.as_ref().and_then(|letter| letter.priority).unwrap_or(0.0);
            match read.and_then(|letter| letter.job) {
                Some(job) => {
                    let item = pack::pack(&job, queue.place.spec.compress_over);
                    again.push(Again { index, letter: bytes.clone(), priority, item });
                }
                None => answer.left += 1,
            }
        }
        looked += passed;
        let (mut moved, mut full) = (0, false);
        if !again.is_empty() {
            let call = ops::redrive(&queue.place, &again, request_id)?;
            let reply = queue.place.bound.run(ops::REDRIVE, call).await?;
            let queue_redrive::Reply::Moved { count, full: was_full } =
                queue_redrive::Reply::read(ops::REDRIVE, reply)?;
            (moved, full) = (tell::counted(count), was_full == 1);
        }
        answer.moved += moved;
        offset += passed - moved;
        heard(answer.moved);
        if full {
            answer.full = true;
            break;
        }
    }
    Ok(())
}

async fn redrive_overflow(
    queue: &Queue,
    wanted: u64,
    request_id: Option<&str>,
    answer: &mut Redriven,
    mut heard: impl FnMut(u64) + Send,
) -> Result<()> {
    let mut left = wanted.saturating_sub(answer.moved).min(queue.pressure().await?.overflowed);
    while left > 0 {
        let step = left.min(MAX_COUNT as u64);
        let call = ops::redrive_overflow(&queue.place, step as usize, request_id)?;
        let reply = queue.place.bound.run(ops::REDRIVE, call).await?;
        let queue_redrive_overflow::Reply::Moved { count, full } =
            queue_redrive_overflow::Reply::read(ops::REDRIVE, reply)?;
        let moved = tell::counted(count);
        answer.full = full == 1;
        answer.moved += moved;
        left -= moved.min(left);
        heard(answer.moved);
        if moved < step {
            break;
        }
    }
    Ok(())
}

pub(super) async fn purge(queue: &Queue, which: Purge, mut heard: impl FnMut(u64) + Send) -> Result<u64> {
    let request_id = which.request_id.as_deref();
    let (Redriven { moved: mut removed, .. }, done) = progress(queue, ops::PURGE, request_id, None).await?;
    if done {
        return Ok(removed);
    }
    let (length, _) = read(queue, ops::PURGE, 1, 0).await?;
    let wanted = which.count.unwrap_or(u64::MAX).min(length.saturating_add(removed));
    match which.older_than {
        None => {
            while removed < wanted {
                let step = (wanted - removed).min(PURGE_STEP);
                let call = ops::purge(&queue.place, step, request_id)?;
                let reply = queue.place.bound.run(ops::PURGE, call).await?;
                let queue_purge::Reply::Removed { count } = queue_purge::Reply::read(ops::PURGE, reply)?;
                let gone = tell::counted(count);
                removed += gone;
                heard(removed);
                if gone < step {
                    break;
                }
            }
        }
        Some(age) => {
            let age_us = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
            let before_us = queue.place.bound.engine.time_us().await?.saturating_sub(age_us);
            purge_aged(queue, before_us, (wanted, length), request_id, &mut removed, heard).await?;
        }
    }
    let answer = Redriven { moved: removed, ..Redriven::default() };
    Ok(progress(queue, ops::PURGE, request_id, Some(answer)).await?.0.moved)
}

async fn purge_aged(
    queue: &Queue,
    before_us: i64,
    (wanted, length): (u64, u64),
    request_id: Option<&str>,
    removed: &mut u64,
    mut heard: impl FnMut(u64) + Send,
) -> Result<()> {
    let failed_us = |bytes: &Bytes| letter::read(bytes).and_then(|letter| letter.last_failed_us);
    let (mut looked, mut offset) = (0, 0);
    while *removed < wanted && looked < length {
        let (_, letters) = read(queue, ops::PURGE, STEP, offset).await?;
        let old: Vec<(u64, Bytes)> = (offset..)
            .zip(&letters)
            .filter(|(_, bytes)| failed_us(bytes).is_some_and(|us| us < before_us))
            .map(|(index, bytes)| (index, bytes.clone()))
            .take(usize::try_from(wanted - *removed).unwrap_or(usize::MAX))
            .collect();
        // Letters lie in the order of their burial; a whole page of younger ones is followed by none that is older.
        let dated = letters.iter().any(|bytes| failed_us(bytes).is_some());
        if letters.is_empty() || (old.is_empty() && dated) {
            break;
        }
        let mut gone = 0;
        if !old.is_empty() {
            let call = ops::purge_aged(&queue.place, &old, request_id)?;
            let reply = queue.place.bound.run(ops::PURGE, call).await?;
            let queue_purge_aged::Reply::Removed { count } =
                queue_purge_aged::Reply::read(ops::PURGE, reply)?;
            gone = tell::counted(count);
        }
        looked += letters.len() as u64;
        offset += letters.len() as u64 - gone;
        *removed += gone;
        heard(*removed);
    }
    Ok(())
}
