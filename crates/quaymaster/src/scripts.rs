//! The scripts, made from `lua/` at build time: each with the facts of its header, a `Call` that names its keys and
//! arguments, and a `Reply` that names all it can answer.

use bytes::Bytes;
use quaymaster_store::{Effect, Invocation, Parts, Reply as AnyReply, Script, Topology, Words, Workload};

use crate::bound::KeyBinding;
use crate::{Code, Error, Result};

/// A script with the facts of its header.
#[derive(Debug)]
pub struct Operation {
    /// What runs.
    pub script: Script,
    /// What it does, in one line.
    pub about: &'static str,
    /// Names of its keys; one that ends in `?` is optional, one with `..` comes any number of times.
    pub keys: &'static [&'static str],
    /// Names of its arguments.
    pub args: &'static [&'static str],
    /// What it answers, a line each.
    pub replies: &'static [&'static str],
    /// What it costs.
    pub cost: &'static str,
    /// The commands it uses: what an ACL user must be allowed.
    pub commands: &'static [&'static str],
}

/// Where a call goes, and under which operation's name its errors are told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) op: &'static str,
    pub(crate) topology: Topology,
    pub(crate) workload: Workload,
}

impl At {
    /// A call on keys that are spelled already.
    pub(crate) fn spelled(op: &'static str) -> Self {
        Self { op, topology: Topology::Single, workload: Workload::Default }
    }

    fn begin(self, script: &'static Script) -> Invocation {
        Invocation::new(script, self.workload)
    }

    /// Where the keys of a call are spelled.
    pub(crate) fn keys(self, words: &mut Words) -> Keys<'_> {
        Keys { at: self, words }
    }
}

/// The keys of a call as far as they are spelled.
pub(crate) struct Keys<'w> {
    at: At,
    words: &'w mut Words,
}

impl Keys<'_> {
    /// Spells one more.
    pub(crate) fn put(&mut self, key: KeyBinding<'_>) -> Result<()> {
        key.spell(self.at.op, self.at.topology, self.words)
    }
}

/// Takes any number of keys, and nothing else.
pub(crate) struct KeyList<'k, 'w>(&'k mut Keys<'w>);

impl KeyList<'_, '_> {
    pub(crate) fn put(&mut self, key: KeyBinding<'_>) -> Result<()> {
        self.0.put(key)
    }
}

/// Takes any number of integers.
pub(crate) struct IntList<'w>(&'w mut Words);

impl IntList<'_> {
    pub(crate) fn put(&mut self, value: i64) {
        self.0.push_int(value);
    }
}

/// Takes any number of texts.
pub(crate) struct TextList<'w>(&'w mut Words);

impl TextList<'_> {
    pub(crate) fn put(&mut self, text: &str) {
        self.0.push(text);
    }
}

/// Takes any number of words that are bytes.
pub(crate) struct BytesList<'w>(&'w mut Words);

impl BytesList<'_> {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }
}

/// An argument that is text in one call and a number in another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Word<'a> {
    Int(i64),
    Text(&'a str),
}

impl Word<'_> {
    fn put(self, args: &mut Words) {
        match self {
            Self::Int(value) => args.push_int(value),
            Self::Text(text) => args.push(text),
        }
    }
}

/// All that follows in a reply. A row that is not whole means that the reply was not understood.
fn rest<T>(mut parts: Parts, read: impl Fn(&mut Parts) -> Result<T>) -> Result<Vec<T>> {
    let mut found = Vec::new();
    while !parts.is_empty() {
        found.push(read(&mut parts)?);
    }
    Ok(found)
}

/// Refuses a reply that does not have one row for each of those that were asked.
pub(crate) fn one_each<T>(op: &'static str, rows: Vec<T>, asked: usize) -> Result<Vec<T>> {
    if rows.len() == asked {
        return Ok(rows);
    }
    Err(Error::new(op, Code::StoreReply, format!("{asked} were asked, and the reply has {}", rows.len())))
}

/// A reply that no script of ours gives. Whether the call ran is not known, and it is no outage: no policy answers.
pub(crate) fn unknown(op: &'static str, word: &[u8]) -> Error {
    Error::new(op, Code::StoreReply, format!("unknown status {:?}", String::from_utf8_lossy(word)))
}

include!(concat!(env!("OUT_DIR"), "/scripts.rs"));

/// Every operation of every primitive.
pub fn operations() -> &'static [&'static Operation] {
    ALL
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    fn reply(word: &'static str, values: &[&'static str]) -> AnyReply {
        let words = [word].into_iter().chain(values.iter().copied());
        AnyReply::Array(words.map(|text| AnyReply::Bytes(Bytes::from_static(text.as_bytes()))).collect())
    }

    #[test]
    fn a_reply_whose_last_row_is_not_whole_was_not_understood() {
        let rows = |values| stats_names::Reply::read("test", reply("names", values));
        let stats_names::Reply::Names { names } = rows(&["a", "1", "b", "2"]).unwrap();
        let told: Vec<(&[u8], i64)> = names.iter().map(|row| (&row.name[..], row.last_ms)).collect();
        assert_eq!(told, [(&b"a"[..], 1), (&b"b"[..], 2)]);
        let error = rows(&["a", "1", "b"]).unwrap_err();
        assert_eq!((error.code, error.op), (Code::StoreReply, "test"));
        assert_eq!(rows(&["a", "b"]).unwrap_err().code, Code::StoreReply);
    }

    #[test]
    fn a_reply_with_fewer_or_more_rows_than_were_asked_was_not_understood() {
        for (rows, sound) in [(1, false), (2, true), (3, false)] {
            let told = one_each("test", vec![0; rows], 2);
            assert_eq!(told.is_ok(), sound, "{rows}");
            assert!(told.is_ok_and(|rows| rows.len() == 2) || !sound);
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "count is at least 1")]
    fn a_number_below_what_its_header_allows_is_a_defect() {
        let names = KeyBinding::Spelled(b"names");
        let _ = stats_names::Call { names, offset: 0, count: 0 }.on(At::spelled("test"));
    }

    /// What came with Redis 6.2, as scripts write it.
    const NEW_IN_6_2: [&str; 12] = [
        "\"LMOVE\"",
        "\"BLMOVE\"",
        "\"GETDEL\"",
        "\"GETEX\"",
        "\"COPY\"",
        "\"ZMSCORE\"",
        "\"ZRANGESTORE\"",
        "\"SMISMEMBER\"",
        "\"BYSCORE\"",
        "\"PXAT\"",
        "\"GT\"",
        "\"LT\"",
    ];

    #[test]
    fn only_queues_and_batches_need_redis_6_2() {
        for operation in operations() {
            let name = operation.script.id;
            let needs: Vec<&str> =
                NEW_IN_6_2.into_iter().filter(|word| operation.script.source.contains(word)).collect();
            let counted_pop = operation.script.source.contains("\"LPOP\", items, wanted");
            let may = name.starts_with("queue.") || name.starts_with("batch.");
            assert!(may || (needs.is_empty() && !counted_pop), "{name}: {needs:?}");
        }
    }
}
