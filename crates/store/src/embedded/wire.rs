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

use crate::{Code, Deployment, KeyFacts, Message, Reply, ScanCursor, ScanPage, Words};

/// Changes whenever a frame does.
pub(super) const PROTOCOL: u32 = 1;
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// No frame is longer.
pub(super) const LONGEST: usize = 64 << 20;
/// Nor is a reply nested deeper.
const DEEPEST: usize = 64;
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
    Failed {
        code: Code,
        detail: String,
    },
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

struct Out(Vec<u8>);

impl Out {
    fn frame(id: u64, tag: u8) -> Self {
        let mut out = Self(Vec::with_capacity(64));
        out.0.extend_from_slice(&[0; 4]);
        out.u64(id);
        out.0.push(tag);
        out
    }

    /// The frame with its length; `None` when it is longer than any frame may be.
    fn close(mut self) -> Option<Vec<u8>> {
        let length = self.0.len() - 4;
        if length > LONGEST {
            return None;
        }
        self.0[..4].copy_from_slice(&(length as u32).to_le_bytes());
        Some(self.0)
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn words(&mut self, words: &Words) {
        self.u32(words.len() as u32);
        for word in words.iter() {
            self.bytes(word);
        }
    }

    fn reply(&mut self, reply: &Reply) {
        match reply {
            Reply::Nil => self.0.push(0),
            Reply::Int(value) => {
                self.0.push(1);
                self.u64(*value as u64);
            }
            Reply::Bytes(bytes) => {
                self.0.push(2);
                self.bytes(bytes);
            }
            Reply::Array(parts) => {
                self.0.push(3);
                self.u32(parts.len() as u32);
                for part in parts {
                    self.reply(part);
                }
            }
        }
    }
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Garbage> {
        let (chunk, rest) = self.0.split_first_chunk().ok_or(Garbage)?;
        self.0 = rest;
        Ok(*chunk)
    }

    fn u8(&mut self) -> Result<u8, Garbage> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, Garbage> {
        self.chunk().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Garbage> {
        self.chunk().map(u64::from_le_bytes)
    }

    fn slice(&mut self) -> Result<&'a [u8], Garbage> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Garbage)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn bytes(&mut self) -> Result<Bytes, Garbage> {
        self.slice().map(Bytes::copy_from_slice)
    }

    fn text(&mut self) -> Result<String, Garbage> {
        std::str::from_utf8(self.slice()?).map(str::to_owned).map_err(|_| Garbage)
    }

    fn bool(&mut self) -> Result<bool, Garbage> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Garbage>,
    ) -> Result<Option<T>, Garbage> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    fn words(&mut self) -> Result<Words, Garbage> {
        let mut words = Words::default();
        for _ in 0..self.u32()? {
            words.push(self.slice()?);
        }
        Ok(words)
    }

    fn reply(&mut self, depth: usize) -> Result<Reply, Garbage> {
        Ok(match self.u8()? {
            0 => Reply::Nil,
            1 => Reply::Int(self.u64()? as i64),
            2 => Reply::Bytes(self.bytes()?),
            3 if depth < DEEPEST => {
                let count = self.u32()? as usize;
                let mut parts = Vec::with_capacity(count.min(self.0.len()));
                for _ in 0..count {
                    parts.push(self.reply(depth + 1)?);
                }
                Reply::Array(parts)
            }
            _ => return Err(Garbage),
        })
    }

    fn end<T>(self, value: T) -> Result<T, Garbage> {
        if self.0.is_empty() { Ok(value) } else { Err(Garbage) }
    }
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
            Answer::Failed { code, detail } => {
                let mut out = tag(3);
                out.bytes(code.name().as_bytes());
                out.bytes(detail.as_bytes());
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
                let code = Code::ALL.iter().copied().find(|code| code.name() == name).ok_or(Garbage)?;
                Answer::Failed { code, detail: body.text()? }
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

impl Out {
    fn deployment(&mut self, facts: &Deployment) {
        for text in [&facts.product, &facts.version, &facts.mode] {
            self.bytes(text.as_bytes());
        }
        for text in [&facts.eviction_policy, &facts.persistence] {
            self.option(text.as_ref(), |out, text| out.bytes(text.as_bytes()));
        }
        for number in [facts.max_memory_bytes, facts.used_memory_bytes, facts.connected_clients] {
            self.option(number, Out::u64);
        }
    }
}

impl In<'_> {
    fn deployment(&mut self) -> Result<Deployment, Garbage> {
        Ok(Deployment {
            product: self.text()?,
            version: self.text()?,
            mode: self.text()?,
            eviction_policy: self.option(In::text)?,
            persistence: self.option(In::text)?,
            max_memory_bytes: self.option(In::u64)?,
            used_memory_bytes: self.option(In::u64)?,
            connected_clients: self.option(In::u64)?,
        })
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
