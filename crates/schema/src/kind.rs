//! The closed vocabularies of the schema: kinds, types, algorithms, policies.

use std::fmt;
use std::str::FromStr;

macro_rules! vocabulary {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident $word:literal,)* }) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$inner])* $variant,)*
        }

        impl $name {
            /// Every word, in table order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The word the schema file uses.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }
        }

        impl Word for $name {
            fn word(self) -> &'static str {
                self.name()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                Self::ALL.iter().copied().find(|known| known.name() == word).ok_or(UnknownWord)
            }
        }
    };
}

/// A word of one of the vocabularies.
pub(crate) trait Word: Copy {
    fn word(self) -> &'static str;
}

/// A word that its vocabulary does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such word in this vocabulary")]
pub struct UnknownWord;

vocabulary! {
    /// What a resource is.
    Kind {
        /// So many per window.
        Limit "limit",
        /// An operation that runs once per key and replays its answer.
        Idempotency "idempotency",
        /// A lease on a name.
        Lock "lock",
        /// A value that may be forgotten.
        Cache "cache",
        /// Whether something was seen before.
        Dedupe "dedupe",
        /// Limits, an idempotency and a lock entered in one step.
        Guard "guard",
        /// Jobs handed to workers.
        Queue "queue",
        /// Items collected until a window ends, then queued.
        Batch "batch",
        /// Messages to whoever listens.
        Event "event",
        /// The state of a pipeline's run.
        Run "run",
        /// Request metrics of several instances.
        Stats "stats",
        /// Chunked uploads into object storage.
        Upload "upload",
        /// A key some other program owns.
        Key "key",
    }
}

impl Kind {
    /// What its calls are for, in one line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Limit => "Count calls against a limit",
            Self::Idempotency => "Run an operation once and replay its answer",
            Self::Lock => "Hold a lease on a name",
            Self::Cache => "Keep values that may be forgotten",
            Self::Dedupe => "Tell the first one from its repetitions",
            Self::Guard => "Enter limits, an idempotency and a lock in one step",
            Self::Queue => "Hand jobs to workers",
            Self::Batch => "Collect items until a window ends",
            Self::Event => "Send messages to whoever listens",
            Self::Run => "Follow a pipeline's run",
            Self::Stats => "Count requests over several instances",
            Self::Upload => "Carry chunks into object storage",
            Self::Key => "Look at keys of other programs",
        }
    }

    /// What happens when the store evicts a key of it.
    pub(crate) fn loss(self) -> &'static str {
        match self {
            Self::Limit => "the count starts again and the limit is exceeded",
            Self::Idempotency => "the operation runs a second time",
            Self::Lock => "two holders at once, or a fence that goes back",
            Self::Dedupe => "a duplicate passes",
            Self::Queue => "jobs are lost",
            Self::Batch => "collected items are lost",
            Self::Run => "what was processed is forgotten",
            Self::Stats => "counts start again",
            Self::Upload => "acknowledged chunks are lost",
            Self::Key => "its owner's data is lost",
            Self::Event => "a repeated message is published twice",
            Self::Cache | Self::Guard => "nothing",
        }
    }
}

vocabulary! {
    /// What a key holds.
    RedisType {
        /// Bytes, or an integer in decimal.
        String "string",
        /// Fields and values.
        Hash "hash",
        /// A sequence.
        List "list",
        /// Distinct members.
        Set "set",
        /// Members with scores.
        Zset "zset",
        /// An append-only log; only foreign keys have it.
        Stream "stream",
    }
}

vocabulary! {
    /// How a limit counts.
    Algorithm {
        /// One counter per window: exact within a window, up to twice the limit across its edge.
        FixedWindow "fixed_window",
        /// One member per admitted unit: exact at every moment.
        SlidingLog "sliding_log",
        /// Two weighted counters: within their stated arithmetic of the exact log.
        SlidingWindow "sliding_window",
        /// GCRA: a steady rate with bursts up to the limit.
        TokenBucket "token_bucket",
    }
}

impl Algorithm {
    /// What the limit's key holds.
    pub const fn redis_type(self) -> RedisType {
        match self {
            Algorithm::FixedWindow | Algorithm::TokenBucket => RedisType::String,
            Algorithm::SlidingLog => RedisType::Zset,
            Algorithm::SlidingWindow => RedisType::Hash,
        }
    }
}

vocabulary! {
    /// What a call answers while the store cannot be reached.
    Outage {
        /// Refuse.
        Deny "deny",
        /// Let through, unguarded.
        Allow "allow",
        /// Count in this process, `limit / nodes`.
        Local "local",
        /// Count in the configured SQL database.
        Database "database",
        /// A cache that knows nothing.
        Miss "miss",
        /// An error.
        Error "error",
    }
}

vocabulary! {
    /// Which answers of an operation are final, and so replayed; after the others it may run again.
    ReplayErrors {
        /// Those below 500: what the caller did wrong stays wrong.
        Client "client",
        /// Every answer.
        All "all",
        /// Those below 400.
        Never "none",
    }
}

vocabulary! {
    /// What a full queue does with the next item.
    Overflow {
        /// Refuse it.
        Reject "reject",
        /// Move the oldest to the overflow list.
        Dlq "dlq",
        /// Drop the oldest.
        DropOldest "drop_oldest",
    }
}

vocabulary! {
    /// Which job comes first.
    Order {
        /// Oldest first: a list.
        Fifo "fifo",
        /// Highest priority first, ties oldest first: a sorted set.
        Priority "priority",
    }
}

vocabulary! {
    /// What a cache entry is.
    CacheType {
        /// Bytes.
        String "string",
        /// Any JSON; in the store it is its text.
        Json "json",
        /// Fields and values.
        Hash "hash",
    }
}

vocabulary! {
    /// The length of a time bucket in a key; all buckets are UTC.
    BucketUnit {
        /// `YYYY-MM-DD-HH-MM`
        Minute "minute",
        /// `YYYY-MM-DD_HH`
        Hour "hour",
        /// `YYYY-MM-DD`
        Day "day",
    }
}

impl BucketUnit {
    /// How long one bucket lasts.
    pub const fn millis(self) -> i64 {
        match self {
            BucketUnit::Minute => 60_000,
            BucketUnit::Hour => 3_600_000,
            BucketUnit::Day => 86_400_000,
        }
    }

    /// How the bucket is written.
    pub const fn format(self) -> &'static str {
        match self {
            BucketUnit::Minute => "YYYY-MM-DD-HH-MM",
            BucketUnit::Hour => "YYYY-MM-DD_HH",
            BucketUnit::Day => "YYYY-MM-DD",
        }
    }
}

/// How keys are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Spelling {
    /// One keyspace: exactly as the schema spells them.
    Single,
    /// Redis Cluster: keys of one script share a hash tag.
    Cluster,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        assert_eq!("limits".parse::<Kind>(), Err(UnknownWord));
    }
}
