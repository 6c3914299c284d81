//! What a script answers: a status word, then integers and strings; never floats.

use bytes::Bytes;

use crate::{Code, Error};

/// A reply, the same on every engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Lua `nil` or `false`.
    Nil,
    /// An integer.
    Int(i64),
    /// A string; bulk and status replies alike.
    Bytes(Bytes),
    /// A table.
    Array(Vec<Reply>),
}

/// Reads a reply's parts in order and says what was missing.
#[derive(Debug)]
pub struct Parts {
    op: &'static str,
    rest: std::vec::IntoIter<Reply>,
    at: usize,
}

impl Reply {
    /// The parts of an array reply to the operation `op`.
    pub fn parts(self, op: &'static str) -> Result<Parts, Error> {
        match self {
            Reply::Array(parts) => Ok(Parts { op, rest: parts.into_iter(), at: 0 }),
            other => Err(Error::new(op, Code::StoreReply, format!("expected a table, got {other:?}"))),
        }
    }
}

impl Parts {
    fn wrong(&self, wanted: &str, got: Option<&Reply>) -> Error {
        let detail = format!("part {} of the reply should be {wanted}, got {got:?}", self.at);
        Error::new(self.op, Code::StoreReply, detail)
    }

    /// The next part as an integer; decimal strings count.
    pub fn int(&mut self) -> Result<i64, Error> {
        self.at += 1;
        let part = self.rest.next();
        match &part {
            Some(Reply::Int(value)) => Ok(*value),
            Some(Reply::Bytes(text)) => std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| self.wrong("an integer", part.as_ref())),
            _ => Err(self.wrong("an integer", part.as_ref())),
        }
    }

    /// The next part as bytes.
    pub fn bytes(&mut self) -> Result<Bytes, Error> {
        self.at += 1;
        match self.rest.next() {
            Some(Reply::Bytes(bytes)) => Ok(bytes),
            other => Err(self.wrong("a string", other.as_ref())),
        }
    }

    /// The next part whatever it is; `None` at the end.
    pub fn any(&mut self) -> Option<Reply> {
        self.at += 1;
        self.rest.next()
    }
}
