//! From replies to answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quaymaster_store::{Parts, Reply};

use super::answer::{Accepted, Chunk, Lease, Moved, Noted, Place, Receipt, Refusal, Reopened, Status};
use super::digest::Digest;
use super::state::{Kept, State};
use crate::scripts::{
    upload_accept, upload_claim, upload_metadata, upload_move, upload_note, upload_reopen, upload_status,
};
use crate::{Code, Error, Result, Token};

pub(super) fn text(parts: &mut Parts) -> Result<String> {
    Ok(String::from_utf8_lossy(&parts.bytes()?).into_owned())
}

fn chunks_of(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Milliseconds; none when negative.
pub(super) fn wait(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

pub(super) fn counted(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn text_of(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn malformed(op: &'static str, what: &str, text: &str) -> Error {
    Error::new(op, Code::KeyMalformed, format!("{what} is {text:?}"))
}

pub(super) fn status(op: &'static str, name: &[u8]) -> Result<Status> {
    let name = String::from_utf8_lossy(name);
    Status::parse(&name).ok_or_else(|| malformed(op, "the status of the upload", &name))
}

pub(super) fn receipt(received: i64, durable: i64, total: i64, complete: i64) -> Receipt {
    let [received_chunks, durable_chunks, total] = [received, durable, total].map(chunks_of);
    let total_chunks = Some(total).filter(|total| *total > 0);
    Receipt { received_chunks, durable_chunks, total_chunks, complete: complete == 1 }
}

/// The answer, and which attempt has brought the chunk where one has.
pub(super) fn accepted(op: &'static str, reply: Reply) -> Result<(Accepted, String)> {
    use upload_accept::Reply as Told;
    let plain = |accepted| Ok((accepted, String::new()));
    let refused = |refusal| plain(Accepted::Refused(refusal));
    match Told::read(op, reply)? {
        Told::Accepted { received, durable, total, complete, status: name, mark, attempt } => {
            let (receipt, status) = (receipt(received, durable, total, complete), status(op, &name)?);
            let accepted = match &mark[..] {
                b"d" => Accepted::Known { receipt, status, durable: true },
                _ => Accepted::Taken { receipt, status },
            };
            Ok((accepted, text_of(&attempt)))
        }
        Told::Known { received, durable, total, complete, status: name, mark, attempt } => {
            let (receipt, status) = (receipt(received, durable, total, complete), status(op, &name)?);
            Ok((Accepted::Known { receipt, status, durable: &mark[..] == b"d" }, text_of(&attempt)))
        }
        Told::Conflict => plain(Accepted::Conflict),
        Told::OtherLast { number } => refused(Refusal::OtherLast { last: chunks_of(number) }),
        Told::Passed { number } => refused(Refusal::Passed { highest: chunks_of(number) }),
        Told::AfterLast { number } => refused(Refusal::AfterLast { last: chunks_of(number) }),
        Told::Over { bytes } => refused(Refusal::Over { bytes: counted(bytes) }),
        Told::Under { bytes } => refused(Refusal::Under { bytes: counted(bytes) }),
        Told::Unstaged { length } => refused(Refusal::Unstaged { bytes: counted(length) }),
        Told::Closed { status: name, error } => {
            plain(Accepted::Closed { status: status(op, &name)?, error: text_of(&error) })
        }
        Told::Unknown => plain(Accepted::Unknown),
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
    let (next_ms, shared, mut parts) = match upload_claim::Reply::read(op, reply)? {
        upload_claim::Reply::Chunks { next_ms, node_id, key, multipart_id, rows } => {
            (next_ms, [node_id, key, multipart_id], rows)
        }
        // What has ended or is gone has nothing to claim.
        upload_claim::Reply::Closed { .. } | upload_claim::Reply::Unknown => return Ok((Vec::new(), None)),
    };
    let next = wait(next_ms);
    let upload_id: Arc<str> = id.into();
    let [node_id, key, multipart_id] = shared.map(|name| Arc::<str>::from(text_of(&name)));
    let mut found = Vec::new();
    while let Some(number) = parts.next_bytes()? {
        let number = String::from_utf8_lossy(&number).into_owned();
        let (attempt, left) = (chunks_of(parts.int()?), wait(parts.int()?).unwrap_or_default());
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
    use upload_move::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Moved { status: name } => Moved::Moved { from: status(op, &name)? },
        Told::Already { .. } => Moved::Already,
        Told::Refused { status: name, error } => {
            Moved::Refused { status: status(op, &name)?, error: text_of(&error) }
        }
        Told::Incomplete { durable, total } => {
            let total = Some(chunks_of(total)).filter(|total| *total > 0);
            Moved::Incomplete { durable: chunks_of(durable), total }
        }
        Told::Unknown => Moved::Unknown,
    })
}

pub(super) fn noted(op: &'static str, reply: Reply) -> Result<Noted> {
    use upload_note::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Noted => Noted::Noted,
        Told::Already => Noted::Already,
        Told::Refused { status: name } => Noted::Refused { status: status(op, &name)? },
        Told::Unknown => Noted::Unknown,
    })
}

/// The answer, and the deadline that counts now.
pub(super) fn reopened(op: &'static str, reply: Reply) -> Result<(Reopened, i64)> {
    use upload_reopen::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Reopened { waiting, durable, total, complete, deadline_ms } => {
            let mut receipt = receipt(0, durable, total, complete);
            let waiting = chunks_of(waiting);
            receipt.received_chunks = waiting + receipt.durable_chunks;
            (Reopened::Open { waiting, receipt }, deadline_ms)
        }
        Told::Refused { status: name, error } => {
            (Reopened::Refused { status: status(op, &name)?, error: text_of(&error) }, 0)
        }
        Told::Unknown => (Reopened::Unknown, 0),
    })
}

/// An integer another program may have spoilt.
fn number(parts: &mut Parts) -> Result<Option<u64>> {
    Ok(text(parts)?.parse().ok())
}

fn filled(parts: &mut Parts) -> Result<Option<String>> {
    Ok(Some(text(parts)?).filter(|text| !text.is_empty()))
}

pub(super) fn state(op: &'static str, reply: Reply, id: &str) -> Result<Option<State>> {
    Ok(read_state(op, reply, id)?.map(|(state, _)| state))
}

pub(super) fn described(op: &'static str, reply: Reply, id: &str) -> Result<Option<(State, Kept)>> {
    let Some((state, mut metadata)) = read_state(op, reply, id)? else { return Ok(None) };
    Ok(Some((state, read_kept(&mut metadata)?)))
}

/// The state, and what follows it: the metadata, where they were asked for.
fn read_state(op: &'static str, reply: Reply, id: &str) -> Result<Option<(State, Parts)>> {
    let (now_ms, map, mut fields) = match upload_status::Reply::read(op, reply)? {
        upload_status::Reply::State { now_ms, map, fields } => (now_ms, map, fields),
        upload_status::Reply::Unknown => return Ok(None),
    };
    let parts = &mut fields;
    let (node_id, multipart_id, key, drive) = (text(parts)?, text(parts)?, text(parts)?, text(parts)?);
    let status = status(op, &parts.bytes()?)?;
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
    let state = State {
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
    };
    Ok(Some((state, fields)))
}

pub(super) fn kept(op: &'static str, reply: Reply) -> Result<Option<Kept>> {
    match upload_metadata::Reply::read(op, reply)? {
        upload_metadata::Reply::Metadata { mut metadata } => read_kept(&mut metadata).map(Some),
        upload_metadata::Reply::Unknown => Ok(None),
    }
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
