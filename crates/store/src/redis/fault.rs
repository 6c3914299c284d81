//! What the server or the network said, as our code: whether the call may have run, and what helps.

use std::io;

use crate::redis::options::Address;
use crate::redis::url;
use crate::script::too_late;
use crate::{Code, Denied, Error};

/// Whether the script may have run although no good answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran {
    /// Certainly not: any call may be sent again.
    No,
    /// It may have: only a call that is safe to repeat may be sent again.
    Maybe,
}

/// What can help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing we do: tell the caller.
    Report,
    /// The node will get over it: wait and send again on the same connection.
    Wait,
    /// This connection leads nowhere any more: make a new one (asking the sentinels again, if any).
    Redial,
    /// The node does not know the script.
    LoadScript,
    /// The slot lives elsewhere for good.
    Moved(Address),
    /// This key already lives elsewhere: ask there, this once.
    Ask(Address),
    /// The cluster is being rearranged: look at its slots again.
    Reroute,
}

/// One failed attempt.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) code: Code,
    pub(super) ran: Ran,
    pub(super) then: Then,
    pub(super) detail: String,
}

impl Fault {
    pub(super) fn new(code: Code, ran: Ran, then: Then, detail: impl Into<String>) -> Self {
        Self { code, ran, then, detail: detail.into() }
    }

    /// The same, seen while connecting: nothing of the call was sent.
    pub(super) fn before_sending(mut self) -> Self {
        self.ran = Ran::No;
        // "May have run" would be untrue of a call that was never written.
        if matches!(self.code, Code::StoreTimedOut | Code::StoreLost) {
            self.code = Code::StoreRefused;
        }
        self
    }

    pub(super) fn into_error(self, op: &'static str) -> Error {
        Error::new(op, self.code, self.detail).ran(self.ran == Ran::Maybe)
    }

    /// No reply within the time-out.
    pub(super) fn timed_out(what: &str) -> Self {
        Self::new(Code::StoreTimedOut, Ran::Maybe, Then::Redial, format!("no reply from {what} in time"))
    }

    /// A failure below the protocol.
    pub(super) fn io(error: &io::Error, what: &str) -> Self {
        let code = match error.kind() {
            io::ErrorKind::TimedOut => Code::StoreTimedOut,
            // A socket's name that is not there, a host name nobody knows, a port nobody listens on.
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::AddrNotAvailable => Code::StoreRefused,
            io::ErrorKind::InvalidData if is_tls(error) => Code::StoreTls,
            _ if is_tls(error) => Code::StoreTls,
            _ => Code::StoreLost,
        };
        Self::new(code, Ran::Maybe, Then::Redial, format!("{what}: {error}"))
    }

    /// What the server answered: its first word, and the rest.
    pub(super) fn said(word: &str, text: &str) -> Self {
        if word == "ERR"
            && let Some((inner, text)) = inside_script(text)
        {
            return Self::said(inner, text).in_script();
        }
        if is_acl(text) {
            // The commands before it have run: no policy may answer as if none had.
            return Self::new(Code::StoreScript, Ran::Maybe, Then::Report, format!("{word} {text}"));
        }
        if let Some(detail) = by_script("MALFORMED", word, text) {
            return Self::new(Code::KeyMalformed, Ran::No, Then::Report, detail);
        }
        if let Some(now_us) = by_script("CLOCK", word, text) {
            return Self::new(Code::StoreClock, Ran::No, Then::Report, too_late(now_us));
        }
        let (code, then) = match word {
            // Told only when there was no time left to bring it.
            "NOSCRIPT" => (Code::StoreRefused, Then::LoadScript),
            "OOM" => (Code::StoreOom, Then::Report),
            "NOAUTH" | "WRONGPASS" => (Code::StoreAuth, Then::Report),
            "NOPERM" => (Code::StorePermission, Then::Report),
            "READONLY" => (Code::StoreReadOnly, Then::Redial),
            // A failover took the node away from under a blocked call.
            "UNBLOCKED" => (Code::StoreReadOnly, Then::Redial),
            "LOADING" | "MASTERDOWN" => (Code::StoreLoading, Then::Redial),
            "BUSY" => (Code::StoreBusy, Then::Wait),
            "MISCONF" => (Code::StoreMisconf, Then::Report),
            "NOREPLICAS" => (Code::StoreReplicas, Then::Report),
            "CLUSTERDOWN" => (Code::StoreClusterDown, Then::Reroute),
            "TRYAGAIN" => (Code::StoreClusterDown, Then::Wait),
            "CROSSSLOT" => (Code::StoreCrossSlot, Then::Report),
            "WRONGTYPE" => (Code::KeyWrongType, Then::Report),
            "MOVED" => (Code::StoreClusterDown, redirect(text).map_or(Then::Reroute, Then::Moved)),
            "ASK" => (Code::StoreClusterDown, redirect(text).map_or(Then::Reroute, Then::Ask)),
            // Protected mode.
            "DENIED" => (Code::StoreRefused, Then::Report),
            "ERR" if text.starts_with("max number of clients") => (Code::StoreRefused, Then::Redial),
            _ => (Code::ScriptFailed, Then::Report),
        };
        let said = Self::new(code, Ran::No, then, format!("{word} {text}"));
        if text.contains("user_script:") { said.in_script() } else { said }
    }

    /// The same, said by a script that was running. A script checks the types of its keys before it writes, and a
    /// store that refuses writes refuses the first one. Other errors may end it halfway, and nothing is taken back.
    fn in_script(mut self) -> Self {
        if matches!(self.code, Code::ScriptFailed | Code::StorePermission) {
            self.ran = Ran::Maybe;
        }
        self
    }
}

/// Redis 6.2 wraps what a command inside a script answered: `Error running script (call to f_…):
/// @user_script:1: @user_script: 1: -OOM command not …`. Newer servers pass it on as it is.
fn inside_script(text: &str) -> Option<(&str, &str)> {
    if !text.starts_with("Error running script") {
        return None;
    }
    let after = &text[text.rfind("@user_script:")? + "@user_script:".len()..];
    let (_, said) = after.trim_start().split_once(": ")?;
    let said = said.strip_prefix('-').unwrap_or(said);
    let (word, rest) = said.split_once(' ')?;
    let is_code = word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    is_code.then_some((word, rest))
}

/// What a script said under a word of ours, before it wrote anything. Newer servers put `ERR` in front and the script's
/// place behind.
fn by_script(ours: &str, word: &str, text: &str) -> Option<String> {
    let said = match word {
        "ERR" => text.strip_prefix(ours)?.strip_prefix(' ')?,
        _ if word == ours => text,
        _ => return None,
    };
    let end = said.rfind(" script: ").unwrap_or(said.len());
    Some(said[..end].trim_end().to_owned())
}

/// What `ACL DRYRUN` misses: "… no permissions to run the 'del' command", "… to access the 'x' key", "… the 'x' channel".
pub(super) fn denied(text: &str) -> Denied {
    match text.rsplit(' ').next() {
        Some("key") => Denied::Key,
        Some("channel") => Denied::Channel,
        _ => Denied::Command,
    }
}

/// ACL refusals inside a script carry no code of their own.
fn is_acl(text: &str) -> bool {
    text.contains("The user executing the script can't") || text.contains("ACL failure in script")
}

/// `3999 127.0.0.1:6381`; a node that does not know its own name leaves the host empty.
fn redirect(text: &str) -> Option<Address> {
    let place = text.split(' ').nth(1)?;
    if let Some(port) = place.strip_prefix(':') {
        return port.parse().ok().map(|port| Address { host: String::new(), port });
    }
    url::address(place, 6379).ok()
}

fn is_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_lacks_is_told_apart() {
        for (text, lacks) in [
            ("User svc has no permissions to run the 'del' command", Denied::Command),
            ("User svc has no permissions to access the 'rl:x' key", Denied::Key),
            ("User svc has no permissions to access the 'the key' channel", Denied::Channel),
            ("words of a later server", Denied::Command),
        ] {
            assert_eq!(denied(text), lacks, "{text}");
        }
    }

    fn of(word: &str, text: &str) -> (Code, Ran, Then) {
        let fault = Fault::said(word, text);
        assert!(fault.detail.contains(text.rsplit("script:").next().unwrap_or(text)), "{fault:?}");
        (fault.code, fault.ran, fault.then)
    }

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    #[test]
    fn what_the_server_says_has_one_code_each() {
        let no = Ran::No;
        assert_eq!(of("OOM", "command not allowed"), (Code::StoreOom, no, Then::Report));
        assert_eq!(of("NOAUTH", "Authentication required."), (Code::StoreAuth, no, Then::Report));
        assert_eq!(of("WRONGPASS", "invalid"), (Code::StoreAuth, no, Then::Report));
        assert_eq!(of("NOPERM", "no"), (Code::StorePermission, no, Then::Report));
        assert_eq!(of("READONLY", "replica"), (Code::StoreReadOnly, no, Then::Redial));
        assert_eq!(of("UNBLOCKED", "force"), (Code::StoreReadOnly, no, Then::Redial));
        assert_eq!(of("LOADING", "dataset"), (Code::StoreLoading, no, Then::Redial));
        assert_eq!(of("MASTERDOWN", "link"), (Code::StoreLoading, no, Then::Redial));
        assert_eq!(of("BUSY", "script"), (Code::StoreBusy, no, Then::Wait));
        assert_eq!(of("MISCONF", "disk"), (Code::StoreMisconf, no, Then::Report));
        assert_eq!(of("NOREPLICAS", "few"), (Code::StoreReplicas, no, Then::Report));
        assert_eq!(of("CLUSTERDOWN", "slot"), (Code::StoreClusterDown, no, Then::Reroute));
        assert_eq!(of("TRYAGAIN", "multi"), (Code::StoreClusterDown, no, Then::Wait));
        assert_eq!(of("CROSSSLOT", "keys"), (Code::StoreCrossSlot, no, Then::Report));
        assert_eq!(of("WRONGTYPE", "kind"), (Code::KeyWrongType, no, Then::Report));
        assert_eq!(of("NOSCRIPT", "none"), (Code::StoreRefused, no, Then::LoadScript));
        assert_eq!(of("DENIED", "protected"), (Code::StoreRefused, no, Then::Report));
        assert_eq!(of("ERR", "max number of clients reached"), (Code::StoreRefused, no, Then::Redial));
        assert_eq!(of("ERR", "user_script:1: boom"), (Code::ScriptFailed, Ran::Maybe, Then::Report));
        assert_eq!(of("ERR", "unknown command 'EVALSHA'"), (Code::ScriptFailed, no, Then::Report));
        let halfway = "No permissions to access a channel script: 1f, on @user_script:9.";
        assert_eq!(of("NOPERM", halfway), (Code::StorePermission, Ran::Maybe, Then::Report));
        let said = Fault::said("MALFORMED", "{a}:req:1 holds no answer");
        assert_eq!(
            (said.code, said.ran, said.detail),
            (Code::KeyMalformed, no, "{a}:req:1 holds no answer".into())
        );
        assert_eq!(of("MYERR", "own"), (Code::ScriptFailed, no, Then::Report));
    }

    #[test]
    fn redirects_carry_their_address() {
        let moved = |text| of("MOVED", text).2;
        assert_eq!(moved("3999 127.0.0.1:6381"), Then::Moved(at("127.0.0.1", 6381)));
        assert_eq!(moved("3999 2001:db8::7:6381"), Then::Moved(at("2001:db8::7", 6381)));
        assert_eq!(moved("3999 :6381"), Then::Moved(at("", 6381)));
        assert_eq!(moved("3999"), Then::Reroute);
        assert_eq!(of("ASK", "1 h:2").2, Then::Ask(at("h", 2)));
    }

    #[test]
    fn a_key_that_a_script_refuses_is_named_on_every_version() {
        let new = Fault::said("ERR", "MALFORMED {a b}:meta: no number script: 083c05, on @user_script:1.");
        let old = Fault::said(
            "ERR",
            "Error running script (call to f_083c05): @user_script:1: MALFORMED {a b}:meta: no number",
        );
        for fault in [new, old] {
            assert_eq!((fault.code, fault.ran), (Code::KeyMalformed, Ran::No));
            assert_eq!(fault.detail, "{a b}:meta: no number");
        }
    }

    #[test]
    fn errors_inside_a_script_keep_their_meaning_on_every_version() {
        let wrapped = |said: &str| {
            Fault::said(
                "ERR",
                &format!("Error running script (call to f_{}): @user_script:1: {said}", "a".repeat(40)),
            )
            .code
        };
        assert_eq!(wrapped("@user_script: 1: -OOM command not allowed"), Code::StoreOom);
        assert_eq!(wrapped("@user_script: 1: -READONLY You can't write"), Code::StoreReadOnly);
        assert_eq!(wrapped("WRONGTYPE Operation against a key"), Code::KeyWrongType);
        assert_eq!(wrapped("user_script:1: boom"), Code::ScriptFailed);
        assert_eq!(
            wrapped("@user_script: 1: The user executing the script can't run this command"),
            Code::StoreScript
        );
        assert_eq!(
            Fault::said("ERR", "ACL failure in script: No permissions to access a key").code,
            Code::StoreScript
        );
    }

    #[test]
    fn the_network_s_words_have_codes_too() {
        let io = |kind: io::ErrorKind| Fault::io(&kind.into(), "x").code;
        assert_eq!(io(io::ErrorKind::ConnectionRefused), Code::StoreRefused);
        assert_eq!(io(io::ErrorKind::HostUnreachable), Code::StoreRefused);
        assert_eq!(io(io::ErrorKind::TimedOut), Code::StoreTimedOut);
        assert_eq!(io(io::ErrorKind::ConnectionReset), Code::StoreLost);
        assert_eq!(io(io::ErrorKind::UnexpectedEof), Code::StoreLost);
        let tls = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError);
        assert_eq!(Fault::io(&tls, "x").code, Code::StoreTls);
        let lost = Fault::io(&io::ErrorKind::ConnectionReset.into(), "x");
        assert_eq!((lost.ran, lost.then.clone()), (Ran::Maybe, Then::Redial));
        let early = lost.before_sending();
        assert_eq!((early.ran, early.code), (Ran::No, Code::StoreRefused));
    }
}
