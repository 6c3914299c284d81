//! What a command refuses, in Redis' words.

use std::borrow::Cow;

/// A command's error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) class: FaultClass,
    /// Code word and text, as a script sees it in `err`.
    pub(crate) text: Cow<'static, str>,
}

/// The class of an error reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultClass {
    /// A defect of the script.
    Other,
    /// A key has another type.
    WrongType,
    /// The store holds more than it may.
    Full,
    /// A script has found a key that nobody of ours has written.
    Malformed,
    /// A script cannot count with the store's clock.
    Clock,
}

/// What a command function returns; its answer is in [`super::out::Out`].
pub(crate) type Outcome<T = ()> = Result<T, Fault>;

impl Fault {
    pub(crate) const WRONG_TYPE: Fault = Fault {
        class: FaultClass::WrongType,
        text: Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value"),
    };
    pub(crate) const NOT_INT: Fault = Fault::text("ERR value is not an integer or out of range");
    pub(crate) const NOT_POSITIVE: Fault = Fault::text("ERR value is out of range, must be positive");
    pub(crate) const NOT_FLOAT: Fault = Fault::text("ERR value is not a valid float");
    pub(crate) const NOT_BOUND: Fault = Fault::text("ERR min or max is not a float");
    pub(crate) const OVERFLOW: Fault = Fault::text("ERR increment or decrement would overflow");
    pub(crate) const SYNTAX: Fault = Fault::text("ERR syntax error");
    pub(crate) const NO_KEY: Fault = Fault::text("ERR no such key");
    pub(crate) const TOO_LONG: Fault =
        Fault::text("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    pub(crate) const ARITY: Fault = Fault::text("ERR Wrong number of args calling Redis command from script");
    pub(crate) const UNKNOWN: Fault = Fault::text("ERR Unknown Redis command called from script");

    pub(crate) const FULL: Fault = Fault {
        class: FaultClass::Full,
        text: Cow::Borrowed("OOM the store holds more than `max_memory`; raise it or remove data"),
    };

    pub(crate) const fn text(text: &'static str) -> Fault {
        Fault { class: FaultClass::Other, text: Cow::Borrowed(text) }
    }

    fn of(class: FaultClass, text: impl Into<String>) -> Fault {
        Fault { class, text: Cow::Owned(text.into()) }
    }

    pub(crate) fn expire_time(command: &str) -> Fault {
        Self::of(FaultClass::Other, format!("ERR invalid expire time in '{command}' command"))
    }

    pub(crate) fn arguments(command: &str) -> Fault {
        Self::of(FaultClass::Other, format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// What a script has raised or returned: behind a word of our scripts stands the detail, and other errors have a
    /// code word in front.
    pub(crate) fn raised(text: String) -> Fault {
        match text.split_once(' ') {
            Some(("MALFORMED", detail)) => Self::of(FaultClass::Malformed, detail),
            Some(("CLOCK", now_us)) => Self::of(FaultClass::Clock, now_us),
            _ => Self::of(FaultClass::Other, text),
        }
    }
}
