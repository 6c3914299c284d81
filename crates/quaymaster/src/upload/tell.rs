//! From replies to answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quaymaster_store::Reply;

use super::answer::{Accepted, Chunk, Lease, Moved, Noted, Place, Receipt, Refusal, Reopened, Status};
use super::digest::Digest;
use super::state::{Kept, State};
use crate::scripts::{
    upload_accept, upload_claim, upload_metadata, upload_move, upload_note, upload_reopen, upload_status,
};
use crate::{Code, Error, Result, Token};

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
    let (next_ms, shared, rows) = match upload_claim::Reply::read(op, reply)? {
        upload_claim::Reply::Chunks { next_ms, node_id, key, multipart_id, chunks } => {
            (next_ms, [node_id, key, multipart_id], chunks)
        }
        // What has ended or is gone has nothing to claim.
        upload_claim::Reply::Closed { .. } | upload_claim::Reply::Unknown => return Ok((Vec::new(), None)),
    };
    let next = wait(next_ms);
    let upload_id: Arc<str> = id.into();
    let [node_id, key, multipart_id] = shared.map(|name| Arc::<str>::from(text_of(&name)));
    let mut found = Vec::new();
    for row in rows {
        let (number, held) = (text_of(&row.number), text_of(&row.facts));
        let (attempt, left) = (chunks_of(row.attempt), wait(row.left_ms).unwrap_or_default());
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
fn number(held: &Bytes) -> Option<u64> {
    text_of(held).parse().ok()
}

/// The same, of the store's clock.
fn moment(held: &Bytes) -> Option<i64> {
    number(held).and_then(|ms| i64::try_from(ms).ok())
}

fn filled(held: &Bytes) -> Option<String> {
    Some(text_of(held)).filter(|text| !text.is_empty())
}

pub(super) fn state(op: &'static str, reply: Reply, id: &str) -> Result<Option<State>> {
    Ok(read_state(op, reply, id)?.map(|(state, _)| state))
}

/// The state with its metadata, which were asked for.
pub(super) fn described(op: &'static str, reply: Reply, id: &str) -> Result<Option<(State, Kept)>> {
    let Some((state, told)) = read_state(op, reply, id)? else { return Ok(None) };
    let Some(row) = told.into_iter().next() else {
        return Err(Error::new(op, Code::StoreReply, "the metadata are missing"));
    };
    let upload_status::MetadataRow { name, connector_id, parent_id, path, custom_metadata, client_node_id } =
        row;
    Ok(Some((state, kept_of(&[name, connector_id, parent_id, path, custom_metadata, client_node_id]))))
}

/// The state, and the metadata where they were asked for.
fn read_state(
    op: &'static str,
    reply: Reply,
    id: &str,
) -> Result<Option<(State, Vec<upload_status::MetadataRow>)>> {
    use upload_status::Reply as Told;
    // What the documented counts say is counted from the map; that is what is told here, too.
    let Told::State {
        now_ms,
        map,
        node_id,
        multipart_id,
        key,
        drive,
        status: name,
        expected_size,
        total,
        created_ms,
        updated_ms,
        mime_type,
        final_etag,
        final_size,
        error,
        deadline_ms,
        bytes_received,
        bytes_durable,
        sized,
        seq,
        aborted,
        first_ms,
        metadata,
        ..
    } = Told::read(op, reply)?
    else {
        return Ok(None);
    };
    let marks = |wanted: &[u8]| map.iter().filter(|mark| wanted.contains(mark)).count() as u32;
    let (received_chunks, durable_chunks) = (marks(b"rd"), marks(b"d"));
    let total_chunks = number(&total).and_then(|total| u32::try_from(total).ok()).filter(|total| *total > 0);
    let complete = total_chunks.is_some_and(|total| durable_chunks >= total);
    let state = State {
        upload_id: id.to_owned(),
        node_id: text_of(&node_id),
        multipart_id: text_of(&multipart_id),
        key: text_of(&key),
        drive: text_of(&drive),
        status: status(op, &name)?,
        aborted: &aborted[..] == b"1",
        expected_size: number(&expected_size).filter(|_| &sized[..] == b"1"),
        receipt: Receipt { received_chunks, durable_chunks, total_chunks, complete },
        bytes_received: number(&bytes_received).unwrap_or(0),
        bytes_durable: number(&bytes_durable).unwrap_or(0),
        created_ms: moment(&created_ms).unwrap_or(0),
        first_chunk_ms: moment(&first_ms),
        updated_ms: moment(&updated_ms).unwrap_or(0),
        deadline_ms: moment(&deadline_ms).unwrap_or(0),
        now_ms,
        mime_type: text_of(&mime_type),
        final_etag: filled(&final_etag),
        final_size: number(&final_size),
        error: filled(&error),
        seq: number(&seq).unwrap_or(0),
        map,
    };
    Ok(Some((state, metadata)))
}

pub(super) fn kept(op: &'static str, reply: Reply) -> Result<Option<Kept>> {
    use upload_metadata::Reply as Told;
    Ok(match Told::read(op, reply)? {
        Told::Metadata { name, connector_id, parent_id, path, custom_metadata, client_node_id } => {
            Some(kept_of(&[name, connector_id, parent_id, path, custom_metadata, client_node_id]))
        }
        Told::Unknown => None,
    })
}

fn kept_of(told: &[Bytes; 6]) -> Kept {
    let [name, connector_id, parent_id, path, custom_metadata, client_node_id] = told.each_ref().map(text_of);
    Kept { name, connector_id, parent_id, path, custom_metadata, client_node_id }
}
