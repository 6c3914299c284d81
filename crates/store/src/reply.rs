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

    /// The next part as bytes; `None` at the end. Any other part is an error: a list is never cut short in silence.
    pub fn next_bytes(&mut self) -> Result<Option<Bytes>, Error> {
        if self.rest.len() == 0 { Ok(None) } else { self.bytes().map(Some) }
    }

    /// The next part as an integer; `None` at the end.
    pub fn next_int(&mut self) -> Result<Option<i64>, Error> {
        if self.rest.len() == 0 { Ok(None) } else { self.int().map(Some) }
    }

    /// The next part as a table.
    pub fn table(&mut self) -> Result<Parts, Error> {
        self.at += 1;
        match self.rest.next() {
            Some(Reply::Array(parts)) => Ok(Parts { op: self.op, rest: parts.into_iter(), at: 0 }),
            other => Err(self.wrong("a table", other.as_ref())),
        }
    }

    /// The next part as a count that another program may have spoiled: text that is no number counts as 0.
    pub fn count(&mut self) -> Result<u64, Error> {
        self.at += 1;
        match self.rest.next() {
            Some(Reply::Int(count)) => Ok(u64::try_from(count).unwrap_or(0)),
            Some(Reply::Bytes(text)) => {
                Ok(std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
            }
            other => Err(self.wrong("a count", other.as_ref())),
        }
    }

    /// Checks that the reply ends here. More parts than were read mean that the reply was not understood.
    pub fn end(&mut self) -> Result<(), Error> {
        self.at += 1;
        match self.rest.next() {
            None => Ok(()),
            more => Err(self.wrong("the end", more.as_ref())),
        }
    }

    /// True at the end.
    pub fn is_empty(&self) -> bool {
        self.rest.len() == 0
    }

    /// The next part whatever it is; `None` at the end.
    pub fn any(&mut self) -> Option<Reply> {
        self.at += 1;
        self.rest.next()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

    use super::*;

    #[test]
    fn a_list_with_a_foreign_part_is_not_cut_short() {
        let text = || Reply::Bytes(Bytes::from_static(b"a"));
        let mut parts = Reply::Array(vec![text(), Reply::Nil, text()]).parts("run.remaining").unwrap();
        assert_eq!(parts.next_bytes().unwrap().unwrap(), "a");
        assert_eq!(parts.next_bytes().unwrap_err().code, Code::StoreReply);
        let mut parts = Reply::Array(vec![Reply::Int(1), Reply::Nil]).parts("run.remaining").unwrap();
        assert_eq!(parts.next_int().unwrap(), Some(1));
        assert_eq!(parts.next_int().unwrap_err().code, Code::StoreReply);
        let mut parts = Reply::Array(Vec::new()).parts("run.remaining").unwrap();
        assert_eq!((parts.next_bytes().unwrap(), parts.next_int().unwrap()), (None, None));
    }

    #[test]
    fn a_count_is_lenient_to_text_and_to_nothing_else() {
        let text = |text: &'static str| Reply::Bytes(Bytes::from_static(text.as_bytes()));
        let counts = vec![text("7"), Reply::Int(8), text("seven"), Reply::Int(-1), Reply::Nil];
        let mut parts = Reply::Array(counts).parts("stats.report").unwrap();
        assert_eq!([(); 4].map(|()| parts.count().unwrap()), [7, 8, 0, 0]);
        assert_eq!(parts.count().unwrap_err().code, Code::StoreReply);
        assert_eq!(parts.count().unwrap_err().code, Code::StoreReply, "a count that is missing");
    }

    #[test]
    fn a_reply_that_goes_on_is_not_understood() {
        let mut parts = Reply::Array(vec![Reply::Int(1), Reply::Int(2)]).parts("lock.release").unwrap();
        parts.int().unwrap();
        assert_eq!(parts.end().unwrap_err().code, Code::StoreReply);
        parts.end().unwrap();
    }

    #[test]
    fn a_table_is_read_as_the_reply_it_stands_in() {
        let mut parts = Reply::Array(vec![Reply::Array(vec![Reply::Int(3)]), Reply::Nil]).parts("x").unwrap();
        let mut table = parts.table().unwrap();
        assert_eq!((table.int().unwrap(), table.is_empty()), (3, true));
        assert_eq!(parts.table().unwrap_err().code, Code::StoreReply);
    }
}
