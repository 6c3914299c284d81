//! What a command refuses, in Redis' words.

use std::borrow::Cow;

/// A command's error reply: code word and text, as a script sees it in `err`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) Cow<'static, str>);

/// What a command function returns; its answer is in [`super::out::Out`].
pub(crate) type Outcome<T = ()> = Result<T, Fault>;

impl Fault {
    pub(crate) const WRONG_TYPE: Fault =
        Fault(Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value"));
    pub(crate) const NOT_INT: Fault = Fault(Cow::Borrowed("ERR value is not an integer or out of range"));
    pub(crate) const NOT_POSITIVE: Fault =
        Fault(Cow::Borrowed("ERR value is out of range, must be positive"));
    pub(crate) const NOT_FLOAT: Fault = Fault(Cow::Borrowed("ERR value is not a valid float"));
    pub(crate) const NOT_BOUND: Fault = Fault(Cow::Borrowed("ERR min or max is not a float"));
    pub(crate) const OVERFLOW: Fault = Fault(Cow::Borrowed("ERR increment or decrement would overflow"));
    pub(crate) const SYNTAX: Fault = Fault(Cow::Borrowed("ERR syntax error"));
    pub(crate) const NO_KEY: Fault = Fault(Cow::Borrowed("ERR no such key"));
    pub(crate) const TOO_LONG: Fault =
        Fault(Cow::Borrowed("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    pub(crate) const ARITY: Fault =
        Fault(Cow::Borrowed("ERR Wrong number of args calling Redis command from script"));
    pub(crate) const UNKNOWN: Fault = Fault(Cow::Borrowed("ERR Unknown Redis command called from script"));

    pub(crate) const FULL: Fault =
        Fault(Cow::Borrowed("OOM the store holds more than `max_memory`; raise it or remove data"));

    pub(crate) const fn text(text: &'static str) -> Fault {
        Fault(Cow::Borrowed(text))
    }

    pub(crate) fn expire_time(command: &str) -> Fault {
        Fault(Cow::Owned(format!("ERR invalid expire time in '{command}' command")))
    }

    pub(crate) fn arguments(command: &str) -> Fault {
        Fault(Cow::Owned(format!("ERR wrong number of arguments for '{command}' command")))
    }
}
