//! The Redis protocol, version 2: commands out, replies in. Nothing else of the protocol is needed here.
//!
//! Written by hand because replies are decoded straight into [`Reply`] and commands are encoded straight into
//! a connection's buffer: through the general client's value tree a call cost twice the processor time.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use crate::{Reply, Words};

/// The longest bulk string Redis allows by default.
const MAX_BULK: usize = 512 * 1024 * 1024;
/// More parts than any reply we ask for; beyond this the stream is out of step.
const MAX_PARTS: usize = 64 * 1024 * 1024;
/// The longest line of a simple reply.
const MAX_LINE: usize = 64 * 1024;
const MAX_DEPTH: usize = 32;

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// A reply.
    Reply(Reply),
    /// An error: its first word, and the rest.
    Error { word: String, text: String },
}

/// Bytes that are not the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Begins a command of `words` words.
pub(super) fn begin(out: &mut Vec<u8>, words: usize) {
    line(out, b'*', words);
}

/// Adds one word of it.
pub(super) fn word(out: &mut Vec<u8>, word: &[u8]) {
    line(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// A whole command.
pub(super) fn command(out: &mut Vec<u8>, words: &Words) {
    begin(out, words.len());
    for each in words.iter() {
        word(out, each);
    }
}

/// A command from its words.
pub(super) fn words<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> Words {
    let mut words = Words::default();
    for part in parts {
        words.push(part);
    }
    words
}

/// The text of a reply that is one.
pub(super) fn text(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// The number of a reply that is one, or the decimal text of one.
pub(super) fn number(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Int(value) => Some(*value),
        other => text(other)?.parse().ok(),
    }
}

/// The parts of a reply that is a table.
pub(super) fn parts(reply: &Reply) -> Option<&[Reply]> {
    match reply {
        Reply::Array(parts) => Some(parts),
        _ => None,
    }
}

fn line(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Finds where a reply ends, going on where it stopped when more bytes have come.
#[derive(Debug)]
pub(super) struct Scanner {
    at: usize,
    parts_left: usize,
}

impl Default for Scanner {
    fn default() -> Self {
        Self { at: 0, parts_left: 1 }
    }
}

impl Scanner {
    /// The length of the reply at the start of `bytes`, once all of it is there.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while self.parts_left > 0 {
            let Some(head) = Head::at(bytes, self.at)? else { return Ok(None) };
            let end = match head.kind {
                Kind::Bulk(length) => head.end + length + 2,
                Kind::Array(parts) => {
                    self.parts_left += parts;
                    head.end
                }
                _ => head.end,
            };
            if self.parts_left > MAX_PARTS {
                return Err(Malformed("more parts than a reply can have"));
            }
            if bytes.len() < end {
                // An array's head is complete by itself; only a bulk string waits here.
                return Ok(None);
            }
            self.at = end;
            self.parts_left -= 1;
        }
        let length = self.at;
        *self = Self::default();
        Ok(Some(length))
    }
}

enum Kind {
    Simple(Range<usize>),
    Error(Range<usize>),
    Int(i64),
    Nil,
    Bulk(usize),
    Array(usize),
}

struct Head {
    kind: Kind,
    end: usize,
}

impl Head {
    /// The first line of the part at `at`, if it is complete.
    fn at(bytes: &[u8], at: usize) -> Result<Option<Self>, Malformed> {
        let Some((kind, rest)) = bytes.get(at..).and_then(|rest| rest.split_first()) else { return Ok(None) };
        let Some(length) = rest.iter().position(|byte| *byte == b'\r') else {
            return if rest.len() > MAX_LINE { Err(Malformed("a line without end")) } else { Ok(None) };
        };
        match rest.get(length + 1) {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) => return Err(Malformed("a line that ends without a line feed")),
        }
        let text = at + 1..at + 1 + length;
        let kind = match kind {
            b'+' => Kind::Simple(text),
            b'-' => Kind::Error(text),
            b':' => Kind::Int(integer(&bytes[text])?),
            b'$' => match integer(&bytes[text])? {
                -1 => Kind::Nil,
                length => Kind::Bulk(bounded(length, MAX_BULK)?),
            },
            b'*' => match integer(&bytes[text])? {
                -1 => Kind::Nil,
                parts => Kind::Array(bounded(parts, MAX_PARTS)?),
            },
            _ => return Err(Malformed("a reply of an unknown kind")),
        };
        Ok(Some(Self { kind, end: at + 1 + length + 2 }))
    }
}

fn integer(digits: &[u8]) -> Result<i64, Malformed> {
    let (negative, digits) = match digits.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, digits),
    };
    if digits.is_empty() {
        return Err(Malformed("a number without digits"));
    }
    let mut value = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(Malformed("a number with a letter in it"));
        }
        // Counted downwards: the lowest number has no positive counterpart.
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_sub(i64::from(digit - b'0')))
            .ok_or(Malformed("a number that is too large"))?;
    }
    if negative { Ok(value) } else { value.checked_neg().ok_or(Malformed("a number that is too large")) }
}

fn bounded(length: i64, most: usize) -> Result<usize, Malformed> {
    usize::try_from(length).ok().filter(|length| *length <= most).ok_or(Malformed("a length out of bounds"))
}

/// Decodes a reply that is complete.
pub(super) fn decode(bytes: &[u8]) -> Result<Answer, Malformed> {
    let mut at = 0;
    let answer = match Head::at(bytes, 0)? {
        Some(Head { kind: Kind::Error(text), end }) => {
            at = end;
            error(&bytes[text])
        }
        _ => Answer::Reply(part(bytes, &mut at, 0)?),
    };
    if at == bytes.len() { Ok(answer) } else { Err(Malformed("bytes behind a reply")) }
}

fn error(text: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(text);
    let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
    Answer::Error { word: word.to_owned(), text: rest.to_owned() }
}

fn part(bytes: &[u8], at: &mut usize, depth: usize) -> Result<Reply, Malformed> {
    if depth > MAX_DEPTH {
        return Err(Malformed("tables nested too deep"));
    }
    let head = Head::at(bytes, *at)?.ok_or(Malformed("a reply that is cut off"))?;
    *at = head.end;
    Ok(match head.kind {
        Kind::Nil => Reply::Nil,
        Kind::Int(value) => Reply::Int(value),
        Kind::Simple(text) => Reply::Bytes(Bytes::copy_from_slice(&bytes[text])),
        // Inside a table it is a value like any other; no script of ours returns one.
        Kind::Error(text) => Reply::Bytes(Bytes::copy_from_slice(&bytes[text])),
        Kind::Bulk(length) => {
            let end = *at + length;
            let text = bytes.get(*at..end).ok_or(Malformed("a reply that is cut off"))?;
            if bytes.get(end..end + 2) != Some(b"\r\n") {
                return Err(Malformed("a string that is longer than it says"));
            }
            *at = end + 2;
            Reply::Bytes(Bytes::copy_from_slice(text))
        }
        Kind::Array(parts) => {
            // A count can lie; room is made for what can be there.
            let mut all = Vec::with_capacity(parts.min(bytes.len() - *at));
            for _ in 0..parts {
                all.push(part(bytes, at, depth + 1)?);
            }
            Reply::Array(all)
        }
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a reply that does not decode is the test's failure")]
    use proptest::prelude::*;

    use super::*;

    fn encode(reply: &Reply, out: &mut Vec<u8>) {
        match reply {
            Reply::Nil => out.extend_from_slice(b"$-1\r\n"),
            Reply::Int(value) => out.extend_from_slice(format!(":{value}\r\n").as_bytes()),
            Reply::Bytes(bytes) => word(out, bytes),
            Reply::Array(parts) => {
                begin(out, parts.len());
                for part in parts {
                    encode(part, out);
                }
            }
        }
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            Just(Reply::Nil),
            any::<i64>().prop_map(Reply::Int),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Reply::Bytes(bytes.into())),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| prop::collection::vec(inner, 0..6).prop_map(Reply::Array))
    }

    proptest! {
        #[test]
        fn replies_come_back_however_the_network_cuts_them(all in prop::collection::vec(replies(), 1..6), step in 1_usize..20) {
            let mut stream = Vec::new();
            for reply in &all {
                encode(reply, &mut stream);
            }
            let (mut scanner, mut start, mut seen) = (Scanner::default(), 0, Vec::new());
            for end in (0..stream.len()).step_by(step).chain([stream.len()]) {
                while let Some(length) = scanner.scan(&stream[start..end]).unwrap() {
                    let Answer::Reply(reply) = decode(&stream[start..start + length]).unwrap() else { panic!() };
                    seen.push(reply);
                    start += length;
                }
            }
            prop_assert_eq!(seen, all);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"+-:$*\r\n0123456789".to_vec())], 0..200)) {
            if let Ok(Some(length)) = Scanner::default().scan(&bytes) {
                prop_assert!(length <= bytes.len());
                let _ = decode(&bytes[..length]);
            }
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn errors_are_split_at_their_first_word() {
        let error = |word: &str, text: &str| Answer::Error { word: word.into(), text: text.into() };
        assert_eq!(decode(b"-OOM command not allowed\r\n"), Ok(error("OOM", "command not allowed")));
        assert_eq!(decode(b"-ERR\r\n"), Ok(error("ERR", "")));
        assert_eq!(decode(b"+OK\r\n"), Ok(Answer::Reply(Reply::Bytes("OK".into()))));
        assert_eq!(decode(b"*-1\r\n"), Ok(Answer::Reply(Reply::Nil)));
        assert_eq!(decode(b":-9223372036854775808\r\n"), Ok(Answer::Reply(Reply::Int(i64::MIN))));
    }

    #[test]
    fn what_is_not_the_protocol_is_refused() {
        for bytes in [
            "HTTP/1.1 400 Bad Request\r\n",
            ":\r\n",
            ":1x\r\n",
            ":9223372036854775808\r\n",
            "$-2\r\n",
            "$999999999999\r\n",
            "*99999999999\r\n",
            "+a\rb",
            "$1\r\nabc",
        ] {
            let scanned = Scanner::default().scan(bytes.as_bytes());
            let refused = match scanned {
                Err(_) => true,
                Ok(Some(length)) => decode(&bytes.as_bytes()[..length]).is_err(),
                Ok(None) => false,
            };
            assert!(refused, "{bytes:?}");
        }
        assert!(Scanner::default().scan(&vec![b'+'; MAX_LINE + 10]).is_err());
        let deep = "*1\r\n".repeat(MAX_DEPTH + 2) + ":1\r\n";
        assert!(decode(deep.as_bytes()).is_err());
    }

    #[test]
    fn commands_are_written_as_redis_reads_them() {
        let mut words = Words::default();
        words.push("GET");
        words.push("k\r\n");
        let mut out = Vec::new();
        command(&mut out, &words);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\nk\r\n\r\n");
    }
}
