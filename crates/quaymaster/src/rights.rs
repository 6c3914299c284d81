//! What the store's user must be allowed, and which of it the store says it is not.
//!
//! A script that is refused a command half-way leaves behind what it has written, so this is asked before the first
//! call. A store that cannot be asked (Redis 6.2, a user who may not ask) is not refused: nothing is known then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use quaymaster_schema::{Kind, RedisType, Resource, Schema, Spec, Spelling};
use quaymaster_store::{Denied, Engine, Words};

use crate::bound::spelling;
use crate::scripts::operations;
use crate::{Error, Result};

const OP: &str = "store.rights";

use RedisType::{Hash, List, Set, String as Text, Zset};

/// Every command of a script: the type of its key, none where any will do, and what follows the key.
const COMMANDS: &[(&str, Option<RedisType>, &[&str])] = &[
    ("APPEND", Some(Text), &["v"]),
    ("DECRBY", Some(Text), &["1"]),
    ("DEL", None, &[]),
    ("EXISTS", None, &[]),
    ("EXPIRE", None, &["1"]),
    ("GET", Some(Text), &[]),
    ("GETDEL", Some(Text), &[]),
    ("GETRANGE", Some(Text), &["0", "1"]),
    ("HDEL", Some(Hash), &["f"]),
    ("HEXISTS", Some(Hash), &["f"]),
    ("HGET", Some(Hash), &["f"]),
    ("HGETALL", Some(Hash), &[]),
    ("HINCRBY", Some(Hash), &["f", "1"]),
    ("HLEN", Some(Hash), &[]),
    ("HMGET", Some(Hash), &["f"]),
    ("HSET", Some(Hash), &["f", "v"]),
    ("HSETNX", Some(Hash), &["f", "v"]),
    ("INCR", Some(Text), &[]),
    ("INCRBY", Some(Text), &["1"]),
    ("LINDEX", Some(List), &["0"]),
    ("LLEN", Some(List), &[]),
    ("LPOP", Some(List), &[]),
    ("LPUSH", Some(List), &["v"]),
    ("LRANGE", Some(List), &["0", "1"]),
    ("LREM", Some(List), &["0", "v"]),
    ("LSET", Some(List), &["0", "v"]),
    ("LTRIM", Some(List), &["0", "1"]),
    ("MGET", Some(Text), &[]),
    ("PERSIST", None, &[]),
    ("PEXPIRE", None, &["1"]),
    ("PEXPIREAT", None, &["1"]),
    ("PTTL", None, &[]),
    ("RPOP", Some(List), &[]),
    ("RPUSH", Some(List), &["v"]),
    ("SADD", Some(Set), &["v"]),
    ("SCARD", Some(Set), &[]),
    ("SET", Some(Text), &["v"]),
    ("SETNX", Some(Text), &["v"]),
    ("SETRANGE", Some(Text), &["0", "v"]),
    ("SISMEMBER", Some(Set), &["v"]),
    ("SMEMBERS", Some(Set), &[]),
    ("SREM", Some(Set), &["v"]),
    ("STRLEN", Some(Text), &[]),
    ("TTL", None, &[]),
    ("TYPE", None, &[]),
    ("ZADD", Some(Zset), &["1", "v"]),
    ("ZCARD", Some(Zset), &[]),
    ("ZCOUNT", Some(Zset), &["0", "1"]),
    ("ZINCRBY", Some(Zset), &["1", "v"]),
    ("ZPOPMAX", Some(Zset), &[]),
    ("ZPOPMIN", Some(Zset), &[]),
    ("ZRANGE", Some(Zset), &["0", "1"]),
    ("ZRANGEBYSCORE", Some(Zset), &["0", "1"]),
    ("ZRANK", Some(Zset), &["v"]),
    ("ZREM", Some(Zset), &["v"]),
    ("ZREMRANGEBYRANK", Some(Zset), &["0", "1"]),
    ("ZREMRANGEBYSCORE", Some(Zset), &["0", "1"]),
    ("ZREVRANGE", Some(Zset), &["0", "1"]),
    ("ZSCORE", Some(Zset), &["v"]),
];

/// Commands of two keys, or of none: what follows their name and first key.
const OTHERS: &[(&str, Option<RedisType>, &[&str])] =
    &[("LMOVE", Some(List), &["LEFT", "LEFT"]), ("RENAME", None, &[]), ("TIME", None, &[])];

/// What a user of the store may not do and must be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The user.
    pub user: String,
    /// Commands of the scripts.
    pub commands: BTreeSet<String>,
    /// Keys, as the ACL spells them.
    pub keys: BTreeSet<String>,
    /// Channels, as the ACL spells them.
    pub channels: BTreeSet<String>,
}

impl Missing {
    fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.keys.is_empty() && self.channels.is_empty()
    }

    /// The rule that allows it.
    pub fn rule(&self) -> String {
        let commands = self.commands.iter().map(|name| format!("+{}", name.to_lowercase()));
        let keys = self.keys.iter().map(|glob| format!("~{glob}"));
        let channels = self.channels.iter().map(|glob| format!("&{glob}"));
        let words: Vec<String> = commands.chain(keys).chain(channels).collect();
        format!("ACL SETUSER {} {}", self.user, words.join(" "))
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        let mut parts = Vec::new();
        for (what, names) in
            [("run", &self.commands), ("use the keys", &self.keys), ("use the channels", &self.channels)]
        {
            if !names.is_empty() {
                parts.push(format!("{what} {}", list(names)));
            }
        }
        write!(f, "the store's user {:?} may not {}", self.user, parts.join("; "))
    }
}

/// What is tried, and what a refusal of it means.
struct Trial {
    words: Words,
    command: &'static str,
    /// The ACL's spelling of the key or channel in it.
    glob: String,
}

/// What a program is going to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Everything in the schema, and keys under this prefix that belong to no schema.
    Server(&'a str),
    /// Everything in the schema.
    Schema,
    /// Calls of this resource, which meet those that it names as well.
    Resource(Kind, &'a str),
}

/// What the store's user lacks for the scripts of this schema, as far as `scope` goes; `None` when it lacks nothing, or
/// the store does not tell.
pub async fn missing(schema: &Schema, engine: &dyn Engine, scope: Scope<'_>) -> Result<Option<Missing>> {
    let mut trials = trials(&within(schema, scope), spelling(engine.topology()));
    if let Scope::Server(own_prefix) = scope {
        trials.push(trial("SET", &format!("{own_prefix}*"), &["v"]));
    }
    let words: Vec<Words> = trials.iter().map(|trial| trial.words.clone()).collect();
    let told = engine.refused(&words).await.map_err(|error: Error| error.during(OP))?;
    let Some(refused) = told else { return Ok(None) };
    let mut missing = Missing {
        user: refused.user,
        commands: BTreeSet::new(),
        keys: BTreeSet::new(),
        channels: BTreeSet::new(),
    };
    for (index, why) in refused.commands {
        let Some(trial) = trials.get(index) else { continue };
        match why {
            Denied::Key => missing.keys.insert(trial.glob.clone()),
            Denied::Channel => missing.channels.insert(trial.glob.clone()),
            Denied::Command => missing.commands.insert(trial.command.to_owned()),
        };
    }
    Ok((!missing.is_empty()).then_some(missing))
}

fn within<'a>(schema: &'a Schema, scope: Scope<'_>) -> Vec<&'a Resource> {
    let Scope::Resource(kind, name) = scope else {
        return schema
            .resources()
            .map(|resource| &**resource)
            .filter(|resource| resource.kind != Kind::Key)
            .collect();
    };
    let find = |kind, name: &str| schema.resource(kind, name).map(|resource| &**resource);
    let Some(resource) = find(kind, name) else { return Vec::new() };
    let mut found = vec![resource];
    match &resource.spec {
        Spec::Guard(spec) => {
            found.extend(spec.limits.iter().filter_map(|name| find(Kind::Limit, name)));
            found.extend(spec.idempotency.iter().filter_map(|name| find(Kind::Idempotency, name)));
            found.extend(spec.lock.iter().filter_map(|name| find(Kind::Lock, name)));
        }
        Spec::Batch(spec) => found.extend(find(Kind::Queue, &spec.to)),
        Spec::Run(spec) => found.extend(spec.limit.iter().filter_map(|name| find(Kind::Limit, name))),
        _ => {}
    }
    found
}

fn trials(resources: &[&Resource], spelled: Spelling) -> Vec<Trial> {
    let ours = || resources.iter();
    let kinds: BTreeSet<&str> = ours().map(|resource| resource.kind.name()).collect();
    // Every key by its type, each spelling once.
    let mut globs: BTreeMap<RedisType, BTreeSet<String>> = BTreeMap::new();
    for row in ours().flat_map(|resource| &resource.keys) {
        globs.entry(row.kind).or_default().insert(row.pattern.glob(spelled));
    }
    let used: BTreeSet<&str> = operations()
        .iter()
        .filter(|operation| kinds.contains(operation.script.id.split('.').next().unwrap_or_default()))
        .flat_map(|operation| operation.commands.iter().copied())
        .collect();
    let mut trials = Vec::new();
    let mut tried: BTreeSet<(RedisType, bool)> = BTreeSet::new();
    for (command, holds, rest) in COMMANDS.iter().chain(OTHERS).filter(|(name, ..)| used.contains(name)) {
        let of_type = match holds {
            Some(holds) => globs.get_key_value(holds),
            None => globs.iter().next(),
        };
        // A type that no key of the schema has is one of another algorithm's script.
        let Some((holds, of_type)) = of_type else { continue };
        // Every key is tried with a command that reads it and one that writes it, the others with one key.
        let reads = matches!(
            *command,
            "GET" | "HGET" | "LLEN" | "LRANGE" | "ZSCORE" | "ZCARD" | "SISMEMBER" | "SCARD"
        );
        let writes = matches!(*command, "SET" | "HSET" | "LPUSH" | "RPUSH" | "ZADD" | "SADD");
        let all = (reads || writes) && tried.insert((*holds, writes));
        for glob in of_type.iter().take(if all { usize::MAX } else { 1 }) {
            trials.push(trial(command, glob, rest));
        }
    }
    let channels: BTreeSet<String> = ours()
        .flat_map(|resource| resource.channels.iter().map(|row| row.pattern.glob(Spelling::Single)))
        .collect();
    for glob in &channels {
        trials.push(trial("PUBLISH", glob, &["v"]));
        trials.push(trial("SUBSCRIBE", glob, &[]));
    }
    trials
}

fn trial(command: &'static str, glob: &str, rest: &[&str]) -> Trial {
    let mut words = Words::default();
    words.push(command);
    let key = glob.replace('*', "x");
    let keys = match command {
        "TIME" => 0,
        "LMOVE" | "RENAME" => 2,
        _ => 1,
    };
    for _ in 0..keys {
        words.push(&key);
    }
    for word in rest {
        words.push(word);
    }
    Trial { words, command, glob: glob.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_every_script_can_be_tried() {
        for operation in operations() {
            for command in operation.commands.iter().filter(|command| **command != "PUBLISH") {
                let known = COMMANDS.iter().chain(OTHERS).any(|(name, ..)| name == command);
                assert!(known, "{} uses {command}, which rights.rs does not know", operation.script.id);
            }
        }
    }

    #[test]
    fn what_is_missing_is_told_with_its_rule() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let missing = Missing {
            user: "svc".into(),
            commands: set(&["DEL"]),
            keys: set(&["rl:*"]),
            channels: set(&["{lock:*}:wake"]),
        };
        assert_eq!(missing.rule(), "ACL SETUSER svc +del ~rl:* &{lock:*}:wake");
        assert_eq!(
            missing.to_string(),
            "the store's user \"svc\" may not run DEL; use the keys rl:*; use the channels {lock:*}:wake"
        );
    }
}
