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

/// Puts any number of keys.
pub(crate) type ManyKeys<'a> = &'a dyn Fn(&mut Keys<'_>) -> Result<()>;

/// Puts any number of arguments.
pub(crate) type Many<'a> = &'a dyn Fn(&mut Words);

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
    use super::*;

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
