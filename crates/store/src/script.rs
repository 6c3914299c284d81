//! A script and one call of it. `store` runs them and knows nothing of what they mean.

use std::fmt::Display;

use smallvec::SmallVec;

use crate::latency::Class;

/// The latest time scripts can count with, in the year 2255: their numbers are exact up to here.
pub(crate) const LATEST_US: i64 = 8_999_000_000_000_000;

/// What is said of a store's clock that is past it.
pub(crate) fn too_late(now_us: impl Display) -> String {
    format!(
        "the store's clock says {now_us} µs since 1970, and scripts count up to {LATEST_US} (the year 2255); set its \
         machine's clock right"
    )
}

/// A checked Lua script, made at build time.
#[derive(Debug)]
pub struct Script {
    /// The operation it implements, `limit.take.fixed_window`.
    pub id: &'static str,
    /// The Lua source, includes resolved; these bytes run on every engine.
    pub source: &'static str,
    /// Lower-case hexadecimal SHA-1 of `source`, as EVALSHA wants it.
    pub sha: &'static str,
    /// Whether the script can write. Read-only scripts may be repeated freely.
    pub effect: Effect,
}

/// Whether a script can change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It only reads.
    Reads,
    /// It may write.
    Writes,
}

/// Which connections a call travels on; each workload has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Get, set, delete.
    Cache,
    /// Queue operations.
    Queue,
    /// Subscriptions.
    PubSub,
    /// Limits: short and frequent.
    RateLimit,
    /// Everything else.
    Default,
    /// Bytes in bulk: pieces of long strings, which would keep others waiting behind them.
    Bulk,
}

impl Workload {
    /// All workloads, in the order of their table.
    pub const ALL: [Workload; 6] = [
        Workload::Cache,
        Workload::Queue,
        Workload::PubSub,
        Workload::RateLimit,
        Workload::Default,
        Workload::Bulk,
    ];

    /// The name in configuration, metrics and client names.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Cache => "cache",
            Workload::Queue => "queue",
            Workload::PubSub => "pubsub",
            Workload::RateLimit => "ratelimit",
            Workload::Default => "default",
            Workload::Bulk => "bulk",
        }
    }
}

/// Whether the engine may send a call again after its reply was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// The script recognises a repeated call (it only reads, or carries a `request_id` or token).
    Safe,
    /// A repeated call would count twice: a lost reply is reported, never repeated.
    Never,
}

/// Byte strings in one buffer: the keys or the arguments of a call, without an allocation each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    bytes: Vec<u8>,
    ends: SmallVec<[u32; 8]>,
}

impl Words {
    /// Appends one word.
    pub fn push(&mut self, word: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(word.as_ref());
        self.close();
    }

    /// Appends an integer in decimal.
    pub fn push_int(&mut self, value: i64) {
        let mut digits = itoa::Buffer::new();
        self.push(digits.format(value));
    }

    /// Appends one word that `write` puts at the end of the buffer.
    pub fn push_with<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = self.bytes.len();
        match write(&mut self.bytes) {
            Ok(()) => {
                self.close();
                Ok(())
            }
            Err(error) => {
                self.bytes.truncate(start);
                Err(error)
            }
        }
    }

    fn close(&mut self) {
        self.ends.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of all words together.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The word at `index`.
    pub fn word(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        self.bytes.get(start..end)
    }

    /// The words in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        (0..self.len()).map(|index| self.word(index).unwrap_or_default())
    }
}

/// One call of one script.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// What runs.
    pub script: &'static Script,
    /// Its `KEYS`, fully spelled; on a cluster all in one slot.
    pub keys: Words,
    /// Its `ARGV`.
    pub args: Words,
    /// The connections it travels on.
    pub workload: Workload,
    /// Whether it may be sent again after a lost reply.
    pub repeat: Repeat,
    /// The calls that its latency is compared with.
    pub class: Class,
}

impl Invocation {
    /// A call without keys and arguments yet.
    pub fn new(script: &'static Script, workload: Workload) -> Self {
        let repeat = match script.effect {
            Effect::Reads => Repeat::Safe,
            Effect::Writes => Repeat::Never,
        };
        let class = if workload == Workload::Bulk { Class::Bulk } else { Class::Single };
        Self { script, keys: Words::default(), args: Words::default(), workload, repeat, class }
    }

    /// Declares that this call does the work of several: of more than one primitive, or on many items.
    pub fn compound(mut self) -> Self {
        self.class = Class::Compound;
        self
    }

    /// Declares that the script recognises this call when it comes again.
    pub fn repeat_safe(mut self) -> Self {
        self.repeat = Repeat::Safe;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_went_in() {
        let mut words = Words::default();
        words.push("a");
        words.push("");
        words.push_int(-42);
        let failed: Result<(), ()> = words.push_with(|out| {
            out.extend_from_slice(b"half");
            Err(())
        });
        assert!(failed.is_err());
        words.push(b"\xff\x00");
        let all: Vec<&[u8]> = words.iter().collect();
        assert_eq!(all, [b"a".as_slice(), b"", b"-42", b"\xff\x00"]);
    }
}
