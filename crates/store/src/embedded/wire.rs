//! Frames between an owner and those attached to it.
//!
//! ```text
//! frame    length u32, id u64, tag u8, body          the length counts id, tag and body; at most 64 MiB
//! request  the caller's id, counting from 1 in the order of sending
//! answer   the same id; messages of a subscription carry the id that asked for it
//! ```
//! Integers are little-endian, byte strings carry their length as u32. Both sides are the same version of
//! this crate (the first frames see to it), so there is nothing to negotiate. A frame that cannot be read
//! ends its connection and nothing else.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::codec::{In, Out};
use crate::{Code, Deployment, Error, KeyFacts, Message, Reply, ScanCursor, ScanPage, Words};

/// Changes whenever a frame does, or what keys are named.
pub(super) const PROTOCOL: u32 = 3;
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// No frame is longer.
pub(super) const LONGEST: usize = 64 << 20;
const MAGIC: &[u8; 8] = b"QMSOCKET";

/// What an attached process asks.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Request {
    Hello {
        protocol: u32,
        version: String,
    },
    Run {
        sha: Bytes,
        keys: Words,
        args: Words,
    },
    /// A script the owner has not seen, then the call.
    RunSource {
        id: Bytes,
        source: Bytes,
        keys: Words,
        args: Words,
    },
    Time,
    Subscribe {
        channel: Bytes,
    },
    Wait {
        key: Bytes,
        limit_ms: u64,
    },
    Facts {
        key: Bytes,
    },
    Scan {
        pattern: Bytes,
        count: u64,
        cursor: Option<Bytes>,
    },
    Deployment,
    /// Whether writes would be accepted now.
    Ready,
    /// Whoever asked for that id does not want its answer any more.
    Cancel {
        id: u64,
    },
}

/// What the owner answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Welcome {
        time_us: i64,
    },
    /// The owner is of another version.
    Other {
        protocol: u32,
        version: String,
    },
    Reply(Reply),
    Failed(Failure),
    /// The owner does not know the script: send its source.
    WantSource,
    Time(i64),
    Done,
    Found(bool),
    Facts(Option<KeyFacts>),
    Page(ScanPage),
    Deployment(Deployment),
    Message(Message),
    /// The owner ends: requests after this id were not run, the others are being answered.
    Goodbye {
        last: u64,
    },
}

/// An error on its way to the process that asked, without its operation and its source.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failure {
    pub(super) code: Code,
    pub(super) field: Option<String>,
    pub(super) detail: String,
    pub(super) may_have_run: bool,
}

impl Failure {
    pub(super) fn new(code: Code, detail: String) -> Self {
        Error::new("", code, detail).into()
    }

    pub(super) fn into_error(self, op: &'static str) -> Error {
        let error = Error::new(op, self.code, self.detail).ran(self.may_have_run);
        match self.field {
            Some(field) => error.field(field),
            None => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let Error { code, field, detail, may_have_run, .. } = error;
        Self { code, field: field.map(Into::into), detail, may_have_run }
    }
}

/// The bytes are no frame of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Garbage;

/// Reads one frame; `None` at the end of the stream.
pub(super) async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    let length = match from.read_u32_le().await {
        Ok(length) => length as usize,
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if !(9..=LONGEST).contains(&length) {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            format!("a frame of {length} bytes"),
        ));
    }
    // Memory follows what really arrives, not what a broken peer announces.
    let mut frame = Vec::with_capacity(length.min(64 << 10));
    if from.take(length as u64).read_to_end(&mut frame).await? < length {
        return Ok(None);
    }
    Ok(Some(frame))
}

impl Request {
    pub(super) fn hello() -> Self {
        Request::Hello { protocol: PROTOCOL, version: VERSION.to_owned() }
    }

    pub(super) fn encode(&self, id: u64) -> Option<Vec<u8>> {
        let tag = |tag| Out::frame(id, tag);
        let out = match self {
            Request::Hello { protocol, version } => {
                let mut out = tag(0);
                out.0.extend_from_slice(MAGIC);
                out.u32(*protocol);
                out.bytes(version.as_bytes());
                out
            }
            Request::Run { sha, keys, args } => {
                let mut out = tag(1);
                out.bytes(sha);
                out.words(keys);
                out.words(args);
                out
            }
            Request::RunSource { id, source, keys, args } => {
                let mut out = tag(2);
                out.bytes(id);
                out.bytes(source);
                out.words(keys);
                out.words(args);
                out
            }
            Request::Time => tag(3),
            Request::Subscribe { channel } => {
                let mut out = tag(4);
                out.bytes(channel);
                out
            }
            Request::Wait { key, limit_ms } => {
                let mut out = tag(5);
                out.bytes(key);
                out.u64(*limit_ms);
                out
            }
            Request::Facts { key } => {
                let mut out = tag(6);
                out.bytes(key);
                out
            }
            Request::Scan { pattern, count, cursor } => {
                let mut out = tag(7);
                out.bytes(pattern);
                out.u64(*count);
                out.option(cursor.as_ref(), |out, cursor| out.bytes(cursor));
                out
            }
            Request::Deployment => tag(8),
            Request::Ready => tag(10),
            Request::Cancel { id } => {
                let mut out = tag(9);
                out.u64(*id);
                out
            }
        };
        out.close()
    }

    pub(super) fn decode(frame: &[u8]) -> Result<(u64, Self), Garbage> {
        let mut body = In(frame);
        let id = body.u64()?;
        let request = match body.u8()? {
            0 => {
                if body.chunk()? != *MAGIC {
                    return Err(Garbage);
                }
                Request::Hello { protocol: body.u32()?, version: body.text()? }
            }
            1 => Request::Run { sha: body.bytes()?, keys: body.words()?, args: body.words()? },
            2 => Request::RunSource {
                id: body.bytes()?,
                source: body.bytes()?,
                keys: body.words()?,
                args: body.words()?,
            },
            3 => Request::Time,
            4 => Request::Subscribe { channel: body.bytes()? },
            5 => Request::Wait { key: body.bytes()?, limit_ms: body.u64()? },
            6 => Request::Facts { key: body.bytes()? },
            7 => {
                Request::Scan { pattern: body.bytes()?, count: body.u64()?, cursor: body.option(In::bytes)? }
            }
            8 => Request::Deployment,
            9 => Request::Cancel { id: body.u64()? },
            10 => Request::Ready,
            _ => return Err(Garbage),
        };
        body.end((id, request))
    }
}

impl Answer {
    pub(super) fn encode(&self, id: u64) -> Option<Vec<u8>> {
        let tag = |tag| Out::frame(id, tag);
        let out = match self {
            Answer::Welcome { time_us } => {
                let mut out = tag(0);
                out.u64(*time_us as u64);
                out
            }
            Answer::Other { protocol, version } => {
                let mut out = tag(1);
                out.u32(*protocol);
                out.bytes(version.as_bytes());
                out
            }
            Answer::Reply(reply) => {
                let mut out = tag(2);
                out.reply(reply);
                out
            }
            Answer::Failed(failure) => {
                let mut out = tag(3);
                out.bytes(failure.code.name().as_bytes());
                out.option(failure.field.as_ref(), |out, field| out.bytes(field.as_bytes()));
                out.bytes(failure.detail.as_bytes());
                out.0.push(u8::from(failure.may_have_run));
                out
            }
            Answer::WantSource => tag(4),
            Answer::Time(us) => {
                let mut out = tag(5);
                out.u64(*us as u64);
                out
            }
            Answer::Done => tag(6),
            Answer::Found(found) => {
                let mut out = tag(7);
                out.0.push(u8::from(*found));
                out
            }
            Answer::Facts(facts) => {
                let mut out = tag(8);
                out.option(facts.as_ref(), |out, facts| {
                    out.bytes(facts.kind.as_bytes());
                    out.option(facts.ttl_ms, Out::u64);
                    out.option(facts.bytes, Out::u64);
                });
                out
            }
            Answer::Page(page) => {
                let mut out = tag(9);
                out.u32(page.keys.len() as u32);
                for key in &page.keys {
                    out.bytes(key);
                }
                out.option(page.next.as_ref(), |out, cursor| out.bytes(&cursor.0));
                out
            }
            Answer::Deployment(facts) => {
                let mut out = tag(10);
                out.deployment(facts);
                out
            }
            Answer::Message(Message::Data(data)) => {
                let mut out = tag(11);
                out.bytes(data);
                out
            }
            Answer::Message(Message::Missed(count)) => {
                let mut out = tag(12);
                out.u64(*count);
                out
            }
            Answer::Goodbye { last } => {
                let mut out = tag(13);
                out.u64(*last);
                out
            }
        };
        out.close()
    }

    pub(super) fn decode(frame: &[u8]) -> Result<(u64, Self), Garbage> {
        let mut body = In(frame);
        let id = body.u64()?;
        let answer = match body.u8()? {
            0 => Answer::Welcome { time_us: body.u64()? as i64 },
            1 => Answer::Other { protocol: body.u32()?, version: body.text()? },
            2 => Answer::Reply(body.reply(0)?),
            3 => {
                let name = body.text()?;
                let code = Code::named(&name).ok_or(Garbage)?;
                let (field, detail) = (body.option(In::text)?, body.text()?);
                Answer::Failed(Failure { code, field, detail, may_have_run: body.bool()? })
            }
            4 => Answer::WantSource,
            5 => Answer::Time(body.u64()? as i64),
            6 => Answer::Done,
            7 => Answer::Found(body.bool()?),
            8 => Answer::Facts(body.option(|body| {
                Ok(KeyFacts {
                    kind: body.text()?,
                    ttl_ms: body.option(In::u64)?,
                    bytes: body.option(In::u64)?,
                })
            })?),
            9 => {
                let mut page = ScanPage::default();
                for _ in 0..body.u32()? {
                    page.keys.push(body.bytes()?);
                }
                page.next = body.option(In::bytes)?.map(|cursor| ScanCursor(cursor.to_vec()));
                Answer::Page(page)
            }
            10 => Answer::Deployment(body.deployment()?),
            11 => Answer::Message(Message::Data(body.bytes()?)),
            12 => Answer::Message(Message::Missed(body.u64()?)),
            13 => Answer::Goodbye { last: body.u64()? },
            _ => return Err(Garbage),
        };
        body.end((id, answer))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
#[path = "wire_tests.rs"]
mod tests;
