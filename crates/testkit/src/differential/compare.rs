//! When two answers, or two keyspaces, are the same.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quaymaster_store::{Code, Error, Reply};

use super::history::{Action, Command, Step, Word, spell};
use super::side::{Held, sort};

/// How exactly a server is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// Error texts to the letter, or only whether it is WRONGTYPE.
    pub error_texts: bool,
    /// Milliseconds by which a TTL may differ, where the server's clock does not quite stand still; TIME
    /// is not compared then.
    pub ttl_ms: i64,
}

/// How the two differ at this step, if they do.
pub(super) fn answers(
    step: &Step,
    ours: Result<Reply, Error>,
    theirs: Result<Reply, Error>,
    tolerance: Tolerance,
) -> Option<String> {
    let (ours, theirs) = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(ours), Err(theirs)) if ours.code == theirs.code && told_by_script(ours.code) => return None,
        (ours, theirs) => return Some(format!("  ours   {ours:?}\n  theirs {theirs:?}")),
    };
    match &step.action {
        Action::Each(commands) => each(commands, ours, theirs, tolerance),
        Action::Call(command) => {
            let (mut ours, mut theirs) = (ours, theirs);
            for told in [&mut ours, &mut theirs] {
                settle(command, told, false);
            }
            (ours != theirs && !may_differ(command, &ours, &theirs, tolerance)).then(|| said(&ours, &theirs))
        }
        Action::Value(_) | Action::Numbers(_) | Action::Doomed(_) => {
            (ours != theirs).then(|| said(&ours, &theirs))
        }
    }
}

/// An outage is no answer: two engines that both failed have not been compared.
fn told_by_script(code: Code) -> bool {
    matches!(code, Code::KeyWrongType | Code::ScriptFailed)
}

fn each(commands: &[Command], ours: Reply, theirs: Reply, tolerance: Tolerance) -> Option<String> {
    let (Reply::Array(ours), Reply::Array(theirs)) = (&ours, &theirs) else {
        return Some(said(&ours, &theirs));
    };
    if ours.len() != commands.len() || theirs.len() != commands.len() {
        return Some(format!("  ours {} answers, theirs {}", ours.len(), theirs.len()));
    }
    for ((command, ours), theirs) in commands.iter().zip(ours).zip(theirs) {
        let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
        for told in [&mut ours, &mut theirs] {
            settle(command, told, true);
            if !tolerance.error_texts {
                shorten_error(told);
            }
        }
        if ours != theirs && !may_differ(command, &ours, &theirs, tolerance) {
            return Some(format!("  {}\n{}", spell(command), said(&ours, &theirs)));
        }
    }
    None
}

/// Sorts what comes in no order.
fn settle(command: &Command, told: &mut Reply, tagged: bool) {
    let width = match name(command).as_str() {
        "HGETALL" => 2,
        "SMEMBERS" => 1,
        _ => return,
    };
    match told {
        // Told as Lua sees it: the first part says "table".
        Reply::Array(parts) if tagged && !parts.is_empty() => {
            let mut rest = Reply::Array(parts.split_off(1));
            sort(&mut rest, width);
            if let Reply::Array(rest) = rest {
                parts.extend(rest);
            }
        }
        told => sort(told, width),
    }
}

fn shorten_error(told: &mut Reply) {
    if let Reply::Array(parts) = told
        && let [Reply::Bytes(tag), Reply::Bytes(text)] = &parts[..]
        && tag == "err"
    {
        let kind = if text.starts_with(b"WRONGTYPE") { "WRONGTYPE" } else { "ERR" };
        *told = Reply::Array(vec![Reply::Bytes("err".into()), Reply::Bytes(kind.into())]);
    }
}

fn may_differ(command: &Command, ours: &Reply, theirs: &Reply, tolerance: Tolerance) -> bool {
    if tolerance.ttl_ms == 0 {
        return false;
    }
    match name(command).as_str() {
        "TIME" => true,
        "PTTL" | "TTL" => match (integer(ours), integer(theirs)) {
            (Some(ours), Some(theirs)) => {
                ours >= 0 && theirs >= 0 && (ours - theirs).abs() <= tolerance.ttl_ms
            }
            _ => false,
        },
        _ => false,
    }
}

fn integer(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Int(value) => Some(*value),
        Reply::Array(parts) => match &parts[..] {
            [Reply::Bytes(_), Reply::Bytes(digits)] => std::str::from_utf8(digits).ok()?.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

fn name(command: &Command) -> String {
    match command.first() {
        Some(Word::Text(name)) => String::from_utf8_lossy(name).to_uppercase(),
        _ => String::new(),
    }
}

fn said(ours: &Reply, theirs: &Reply) -> String {
    format!("  ours   {ours:?}\n  theirs {theirs:?}")
}

/// The first key on which the two differ.
pub(super) fn keyspaces(
    ours: &BTreeMap<Bytes, Held>,
    theirs: &BTreeMap<Bytes, Held>,
    tolerance: Tolerance,
) -> Option<(Bytes, String)> {
    let keys: BTreeSet<&Bytes> = ours.keys().chain(theirs.keys()).collect();
    keys.into_iter().find_map(|key| {
        let (ours, theirs) = (ours.get(key), theirs.get(key));
        let same = match (ours, theirs) {
            (Some(ours), Some(theirs)) => {
                let near = ours.ttl_ms == theirs.ttl_ms
                    || ours.ttl_ms.min(theirs.ttl_ms) >= 0
                        && (ours.ttl_ms - theirs.ttl_ms).abs() <= tolerance.ttl_ms;
                near && ours.kind == theirs.kind && ours.content == theirs.content
            }
            (ours, theirs) => ours.is_none() && theirs.is_none(),
        };
        (!same).then(|| (key.clone(), format!("  ours   {ours:?}\n  theirs {theirs:?}")))
    })
}
