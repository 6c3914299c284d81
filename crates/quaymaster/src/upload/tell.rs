//! From replies to answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quaymaster_store::{Parts, Reply};

use super::answer::{Accepted, Chunk, Lease, Moved, Noted, Place, Receipt, Refusal, Reopened, Status};
use super::digest::Digest;
use super::state::{Kept, State};
use crate::{Code, Error, Result, Token};

pub(super) fn text(parts: &mut Parts) -> Result<String> {
    Ok(String::from_utf8_lossy(&parts.bytes()?).into_owned())
}

fn count(parts: &mut Parts) -> Result<u32> {
    Ok(u32::try_from(parts.int()?).unwrap_or(0))
}

fn bytes(parts: &mut Parts) -> Result<u64> {
    Ok(u64::try_from(parts.int()?).unwrap_or(0))
}

/// Milliseconds; none when negative.
pub(super) fn wait(parts: &mut Parts) -> Result<Option<Duration>> {
    Ok(u64::try_from(parts.int()?).ok().map(Duration::from_millis))
}

pub(super) fn unknown(op: &'static str, word: &[u8]) -> Error {
    Error::new(op, Code::StoreReply, format!("unknown status {:?}", String::from_utf8_lossy(word)))
}

fn malformed(op: &'static str, what: &str, text: &str) -> Error {
    Error::new(op, Code::KeyMalformed, format!("{what} is {text:?}"))
}

pub(super) fn status(op: &'static str, name: &str) -> Result<Status> {
    Status::parse(name).ok_or_else(|| malformed(op, "the status of the upload", name))
}

pub(super) fn receipt(parts: &mut Parts) -> Result<Receipt> {
    let (received_chunks, durable_chunks) = (count(parts)?, count(parts)?);
    let total_chunks = Some(count(parts)?).filter(|total| *total > 0);
    Ok(Receipt { received_chunks, durable_chunks, total_chunks, complete: parts.int()? == 1 })
}

/// The answer, and which attempt has brought the chunk where one has.
pub(super) fn accepted(op: &'static str, reply: Reply) -> Result<(Accepted, String)> {
    let mut parts = reply.parts(op)?;
    let word = parts.bytes()?;
    let plain = |accepted| Ok((accepted, String::new()));
    let refused = |refusal| plain(Accepted::Refused(refusal));
    match &word[..] {
        b"accepted" | b"known" => {
            let receipt = receipt(&mut parts)?;
            let status = status(op, &text(&mut parts)?)?;
            let durable = &parts.bytes()?[..] == b"d";
            let attempt = text(&mut parts)?;
            if &word[..] == b"accepted" && !durable {
                return Ok((Accepted::Taken { receipt, status }, attempt));
            }
            Ok((Accepted::Known { receipt, status, durable }, attempt))
        }
        b"conflict" => plain(Accepted::Conflict),
        b"other_last" => refused(Refusal::OtherLast { last: count(&mut parts)? }),
        b"passed" => refused(Refusal::Passed { highest: count(&mut parts)? }),
        b"after_last" => refused(Refusal::AfterLast { last: count(&mut parts)? }),
        b"over" => refused(Refusal::Over { bytes: bytes(&mut parts)? }),
        b"under" => refused(Refusal::Under { bytes: bytes(&mut parts)? }),
        b"unstaged" => refused(Refusal::Unstaged { bytes: bytes(&mut parts)? }),
        b"closed" => {
            let status = status(op, &text(&mut parts)?)?;
            plain(Accepted::Closed { status, error: text(&mut parts)? })
        }
        b"unknown" => plain(Accepted::Unknown),
        other => Err(unknown(op, other)),
    }
}

/// What `received` keeps of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) place: Place,
    pub(super) attempt: String,
}

pub(super) fn facts(held: &str) -> Option<Facts> {
    let mut words = held.split(' ');
    let digest = words.next()?.parse().ok()?;
    let size = words.next()?.parse().ok()?;
    let place = match words.next()? {
        "store" => Place::Store,
        other => Place::Elsewhere(other.to_owned()),
    };
    Some(Facts { digest, size, place, attempt: words.next()?.to_owned() })
}

/// The chunks of one upload, and when the next may be claimed.
pub(super) fn chunks(
    op: &'static str,
    reply: Reply,
    id: &str,
    token: &Token,
) -> Result<(Vec<Chunk>, Option<Duration>)> {
    let mut parts = reply.parts(op)?;
    match &parts.bytes()?[..] {
        b"chunks" => {}
        // What has ended or is gone has nothing to claim.
        b"closed" | b"unknown" => return Ok((Vec::new(), None)),
        other => return Err(unknown(op, other)),
    }
    let next = wait(&mut parts)?;
    let upload_id: Arc<str> = id.into();
    let mut shared = || -> Result<Arc<str>> { Ok(text(&mut parts)?.into()) };
    let (node_id, key, multipart_id) = (shared()?, shared()?, shared()?);
    let mut found = Vec::new();
    while let Some(Reply::Bytes(number)) = parts.any() {
        let number = String::from_utf8_lossy(&number).into_owned();
        let (attempt, left) = (count(&mut parts)?, wait(&mut parts)?.unwrap_or_default());
        let held = text(&mut parts)?;
        let (Ok(number), Some(facts)) = (number.parse(), facts(&held)) else {
            return Err(malformed(op, &format!("what is known of chunk {number} of upload {id}"), &held));
        };
        found.push(Chunk {
            lease: Lease {
                upload_id: upload_id.clone(),
                number,
                token: token.clone(),
                attempt: facts.attempt.into(),
            },
            lease_expires_in: left,
            attempt,
            size: facts.size,
            digest: facts.digest,
            place: facts.place,
            node_id: node_id.clone(),
            key: key.clone(),
            multipart_id: multipart_id.clone(),
        });
    }
    Ok((found, next))
}

pub(super) fn moved(op: &'static str, reply: Reply) -> Result<Moved> {
    let mut parts = reply.parts(op)?;
    match &parts.bytes()?[..] {
        b"moved" => Ok(Moved::Moved { from: status(op, &text(&mut parts)?)? }),
        b"already" => Ok(Moved::Already),
        b"refused" => {
            let status = status(op, &text(&mut parts)?)?;
            Ok(Moved::Refused { status, error: text(&mut parts)? })
        }
        b"incomplete" => {
            let durable = count(&mut parts)?;
            Ok(Moved::Incomplete { durable, total: Some(count(&mut parts)?).filter(|total| *total > 0) })
        }
        b"unknown" => Ok(Moved::Unknown),
        other => Err(unknown(op, other)),
    }
}

pub(super) fn noted(op: &'static str, reply: Reply) -> Result<Noted> {
    let mut parts = reply.parts(op)?;
    match &parts.bytes()?[..] {
        b"noted" => Ok(Noted::Noted),
        b"already" => Ok(Noted::Already),
        b"refused" => Ok(Noted::Refused { status: status(op, &text(&mut parts)?)? }),
        b"unknown" => Ok(Noted::Unknown),
        other => Err(unknown(op, other)),
    }
}

/// The answer, and the deadline that counts now.
pub(super) fn reopened(op: &'static str, reply: Reply) -> Result<(Reopened, i64)> {
    let mut parts = reply.parts(op)?;
    match &parts.bytes()?[..] {
        b"reopened" => {
            let waiting = count(&mut parts)?;
            let durable_chunks = count(&mut parts)?;
            let total_chunks = Some(count(&mut parts)?).filter(|total| *total > 0);
            let complete = parts.int()? == 1;
            let receipt =
                Receipt { received_chunks: waiting + durable_chunks, durable_chunks, total_chunks, complete };
            Ok((Reopened::Open { waiting, receipt }, parts.int()?))
        }
        b"refused" => {
            let status = status(op, &text(&mut parts)?)?;
            Ok((Reopened::Refused { status, error: text(&mut parts)? }, 0))
        }
        b"unknown" => Ok((Reopened::Unknown, 0)),
        other => Err(unknown(op, other)),
    }
}

/// An integer another program may have spoilt.
fn number(parts: &mut Parts) -> Result<Option<u64>> {
    Ok(text(parts)?.parse().ok())
}

fn filled(parts: &mut Parts) -> Result<Option<String>> {
    Ok(Some(text(parts)?).filter(|text| !text.is_empty()))
}

pub(super) fn state(op: &'static str, reply: Reply, id: &str) -> Result<Option<State>> {
    read_state(op, &mut reply.parts(op)?, id)
}

pub(super) fn described(op: &'static str, reply: Reply, id: &str) -> Result<Option<(State, Kept)>> {
    let mut parts = reply.parts(op)?;
    let Some(state) = read_state(op, &mut parts, id)? else { return Ok(None) };
    Ok(Some((state, read_kept(&mut parts)?)))
}

fn read_state(op: &'static str, parts: &mut Parts, id: &str) -> Result<Option<State>> {
    match &parts.bytes()?[..] {
        b"state" => {}
        b"unknown" => return Ok(None),
        other => return Err(unknown(op, other)),
    }
    let now_ms = parts.int()?;
    let map: Bytes = parts.bytes()?;
    let (node_id, multipart_id, key, drive) = (text(parts)?, text(parts)?, text(parts)?, text(parts)?);
    let status = status(op, &text(parts)?)?;
    let expected = number(parts)?;
    // What the documented fields say is counted from the map; that is what is told here, too.
    let (_, _, total, _) = (text(parts)?, text(parts)?, number(parts)?, text(parts)?);
    let moment = |held: Option<u64>| held.and_then(|ms| i64::try_from(ms).ok()).unwrap_or(0);
    let (created_ms, updated_ms) = (moment(number(parts)?), moment(number(parts)?));
    let mime_type = text(parts)?;
    let (final_etag, final_size, error) = (filled(parts)?, number(parts)?, filled(parts)?);
    let deadline_ms = moment(number(parts)?);
    let (bytes_received, bytes_durable) = (number(parts)?.unwrap_or(0), number(parts)?.unwrap_or(0));
    let sized = text(parts)? == "1";
    let (seq, aborted) = (number(parts)?.unwrap_or(0), text(parts)? == "1");
    let first_chunk_ms = number(parts)?.and_then(|ms| i64::try_from(ms).ok());
    let marks = |wanted: &[u8]| map.iter().filter(|mark| wanted.contains(mark)).count() as u32;
    let (received_chunks, durable_chunks) = (marks(b"rd"), marks(b"d"));
    let total_chunks = total.and_then(|total| u32::try_from(total).ok()).filter(|total| *total > 0);
    let complete = total_chunks.is_some_and(|total| durable_chunks >= total);
    Ok(Some(State {
        upload_id: id.to_owned(),
        node_id,
        multipart_id,
        key,
        drive,
        status,
        aborted,
        expected_size: expected.filter(|_| sized),
        receipt: Receipt { received_chunks, durable_chunks, total_chunks, complete },
        bytes_received,
        bytes_durable,
        created_ms,
        first_chunk_ms,
        updated_ms,
        deadline_ms,
        now_ms,
        mime_type,
        final_etag,
        final_size,
        error,
        seq,
        map,
    }))
}

pub(super) fn kept(op: &'static str, reply: Reply) -> Result<Option<Kept>> {
    let mut parts = reply.parts(op)?;
    match &parts.bytes()?[..] {
        b"metadata" => {}
        b"unknown" => return Ok(None),
        other => return Err(unknown(op, other)),
    }
    read_kept(&mut parts).map(Some)
}

fn read_kept(parts: &mut Parts) -> Result<Kept> {
    let mut next = || text(parts);
    Ok(Kept {
        name: next()?,
        connector_id: next()?,
        parent_id: next()?,
        path: next()?,
        custom_metadata: next()?,
        client_node_id: next()?,
    })
}
