//! The types a field may have.

use std::convert::Infallible;
use std::time::Duration;

use serde_json::{Value, json};

use super::Table;
use crate::kind::{Kind, Word};
use crate::read::{duration_text, size_text};

/// A type of fields.
pub(crate) trait Type: Copy + Sync + 'static {
    /// A default, as the tables hold it.
    type Default: Copy + Sync + 'static;

    fn holds(self) -> Holds;

    /// A default as a schema file would write it.
    fn written(self, default: Self::Default) -> Value;
}

/// What a field holds, without Rust types.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Holds {
    Text(Form),
    Boolean,
    Count { least: u64, most: u64 },
    Ratio,
    Bytes { least: u64, most: u64 },
    Period { least: Duration, most: Duration },
    Expiry { never: bool },
    Choice(Vec<&'static str>),
    Names { kind: Kind, most: Option<usize> },
    Strings,
    Meanings,
    Secret,
    Nested(&'static Table),
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.path)
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

/// What a string is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Any text.
    Free,
    /// A text with something in it.
    Filled,
    /// The key of a resource, or a channel, with placeholders.
    Pattern,
    /// Text in front of keys, without placeholders.
    Prefix,
    /// The name of a placeholder.
    Placeholder,
    /// A resource of this kind.
    Resource(Kind),
    /// `kind.name` of one of these kinds.
    Target(&'static [Kind]),
    /// Begins with one of these.
    Url(&'static [&'static str]),
    /// So many letters, digits, `.`, `_` and `-` at most.
    Label(usize),
    /// Whatever the field around it takes.
    AsField,
    /// One of these words.
    Words(&'static [&'static str]),
}

/// A string.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text(pub(crate) Form);

impl Type for Text {
    type Default = &'static str;

    fn holds(self) -> Holds {
        Holds::Text(self.0)
    }

    fn written(self, default: &'static str) -> Value {
        json!(default)
    }
}

/// `true` or `false`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Boolean;

impl Type for Boolean {
    type Default = bool;

    fn holds(self) -> Holds {
        Holds::Boolean
    }

    fn written(self, default: bool) -> Value {
        json!(default)
    }
}

/// A whole number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Type for Count {
    type Default = u64;

    fn holds(self) -> Holds {
        Holds::Count { least: self.least, most: self.most }
    }

    fn written(self, default: u64) -> Value {
        json!(default)
    }
}

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio;

impl Type for Ratio {
    type Default = f64;

    fn holds(self) -> Holds {
        Holds::Ratio
    }

    fn written(self, default: f64) -> Value {
        json!(default)
    }
}

/// A size in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Type for Bytes {
    type Default = u64;

    fn holds(self) -> Holds {
        Holds::Bytes { least: self.least, most: self.most }
    }

    fn written(self, default: u64) -> Value {
        json!(size_text(default))
    }
}

/// A duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Period {
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

impl Type for Period {
    type Default = Duration;

    fn holds(self) -> Holds {
        Holds::Period { least: self.least, most: self.most }
    }

    fn written(self, default: Duration) -> Value {
        json!(duration_text(default))
    }
}

/// How long a key lives; some keys may live for ever.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expiry {
    pub(crate) never: bool,
}

impl Type for Expiry {
    type Default = Duration;

    fn holds(self) -> Holds {
        Holds::Expiry { never: self.never }
    }

    fn written(self, default: Duration) -> Value {
        json!(duration_text(default))
    }
}

/// One of a vocabulary's words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<W: 'static>(pub(crate) &'static [W]);

impl<W: Word + Sync + 'static> Type for Choice<W> {
    type Default = W;

    fn holds(self) -> Holds {
        Holds::Choice(self.0.iter().map(|word| word.word()).collect())
    }

    fn written(self, default: W) -> Value {
        json!(default.word())
    }
}

/// Names of resources.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) kind: Kind,
    pub(crate) most: Option<usize>,
}

impl Type for Names {
    type Default = &'static [&'static str];

    fn holds(self) -> Holds {
        Holds::Names { kind: self.kind, most: self.most }
    }

    fn written(self, default: &'static [&'static str]) -> Value {
        json!(default)
    }
}

/// A list of strings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strings;

impl Type for Strings {
    type Default = &'static [&'static str];

    fn holds(self) -> Holds {
        Holds::Strings
    }

    fn written(self, default: &'static [&'static str]) -> Value {
        json!(default)
    }
}

/// A table of names and what they mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meanings;

impl Type for Meanings {
    type Default = Infallible;

    fn holds(self) -> Holds {
        Holds::Meanings
    }

    fn written(self, default: Infallible) -> Value {
        match default {}
    }
}

/// A string that only the environment may give.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SecretText;

impl Type for SecretText {
    type Default = Infallible;

    fn holds(self) -> Holds {
        Holds::Secret
    }

    fn written(self, default: Infallible) -> Value {
        match default {}
    }
}

/// A table inside a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nested(pub(crate) &'static Table);

impl Type for Nested {
    type Default = Infallible;

    fn holds(self) -> Holds {
        Holds::Nested(self.0)
    }

    fn written(self, default: Infallible) -> Value {
        match default {}
    }
}
