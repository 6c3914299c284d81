//! Integers, byte strings and replies in a frame; see [`super::wire`].

use bytes::Bytes;

use super::wire::{Garbage, LONGEST};
use crate::{Deployment, Reply, Words};

/// No reply is nested deeper.
const DEEPEST: usize = 64;

/// A frame being written.
pub(super) struct Out(pub(super) Vec<u8>);

impl Out {
    pub(super) fn frame(id: u64, tag: u8) -> Self {
        let mut out = Self(Vec::with_capacity(64));
        out.0.extend_from_slice(&[0; 4]);
        out.u64(id);
        out.0.push(tag);
        out
    }

    /// The frame with its length; `None` when it is longer than any frame may be.
    pub(super) fn close(mut self) -> Option<Vec<u8>> {
        let length = self.0.len() - 4;
        if length > LONGEST {
            return None;
        }
        self.0[..4].copy_from_slice(&(length as u32).to_le_bytes());
        Some(self.0)
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(super) fn words(&mut self, words: &Words) {
        self.u32(words.len() as u32);
        for word in words.iter() {
            self.bytes(word);
        }
    }

    pub(super) fn reply(&mut self, reply: &Reply) {
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

/// A frame being read.
pub(super) struct In<'a>(pub(super) &'a [u8]);

impl<'a> In<'a> {
    pub(super) fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Garbage> {
        let (chunk, rest) = self.0.split_first_chunk().ok_or(Garbage)?;
        self.0 = rest;
        Ok(*chunk)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Garbage> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Garbage> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Garbage> {
        self.chunk().map(u64::from_le_bytes)
    }

    pub(super) fn slice(&mut self) -> Result<&'a [u8], Garbage> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Garbage)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, Garbage> {
        self.slice().map(Bytes::copy_from_slice)
    }

    pub(super) fn text(&mut self) -> Result<String, Garbage> {
        std::str::from_utf8(self.slice()?).map(str::to_owned).map_err(|_| Garbage)
    }

    pub(super) fn bool(&mut self) -> Result<bool, Garbage> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Garbage>,
    ) -> Result<Option<T>, Garbage> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    pub(super) fn words(&mut self) -> Result<Words, Garbage> {
        let mut words = Words::default();
        for _ in 0..self.u32()? {
            words.push(self.slice()?);
        }
        Ok(words)
    }

    pub(super) fn reply(&mut self, depth: usize) -> Result<Reply, Garbage> {
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

    pub(super) fn end<T>(self, value: T) -> Result<T, Garbage> {
        if self.0.is_empty() { Ok(value) } else { Err(Garbage) }
    }
}

impl Out {
    pub(super) fn deployment(&mut self, facts: &Deployment) {
        for text in [&facts.product, &facts.version, &facts.mode] {
            self.bytes(text.as_bytes());
        }
        for text in [&facts.eviction_policy, &facts.persistence] {
            self.option(text.as_ref(), |out, text| out.bytes(text.as_bytes()));
        }
        for number in [
            facts.max_memory_bytes,
            facts.used_memory_bytes,
            facts.connected_clients,
            facts.clock_steps,
            facts.future_data,
        ] {
            self.option(number, Out::u64);
        }
    }
}

impl In<'_> {
    pub(super) fn deployment(&mut self) -> Result<Deployment, Garbage> {
        Ok(Deployment {
            product: self.text()?,
            version: self.text()?,
            mode: self.text()?,
            eviction_policy: self.option(In::text)?,
            persistence: self.option(In::text)?,
            max_memory_bytes: self.option(In::u64)?,
            used_memory_bytes: self.option(In::u64)?,
            connected_clients: self.option(In::u64)?,
            clock_steps: self.option(In::u64)?,
            future_data: self.option(In::u64)?,
            // Settings of a Redis.
            pubsub_buffer: None,
            idle_timeout_s: None,
        })
    }
}
