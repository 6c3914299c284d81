#![expect(clippy::unwrap_used, reason = "tests")]

mod commands;
mod expiry;
mod histories;

use std::collections::BTreeMap;

use super::keyspace::NEVER;
use super::*;
use crate::Reply;

const START_US: i64 = 1_700_000_000_000_000;

/// Everything there is to know of a model, in one comparable shape.
#[derive(Debug, Clone, PartialEq)]
struct Snapshot {
    keys: BTreeMap<Vec<u8>, Entry>,
    used_bytes: usize,
    len: usize,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    generation: Option<Generation>,
    expires_at: Option<i64>,
    content: Content,
}

#[derive(Debug, Clone, PartialEq)]
enum Content {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    List(Vec<(i64, Vec<u8>)>),
    Set(Vec<Vec<u8>>),
    /// By member; and the order, which must agree.
    Zset(BTreeMap<Vec<u8>, u64>, Vec<(u64, Vec<u8>)>),
}

fn snapshot(model: &Model) -> Snapshot {
    let keys = (0..model.keys.end())
        .map(|id| model.keys.slot(id))
        .filter(|slot| slot.value.kind().is_some())
        .map(|slot| {
            let content = match &slot.value {
                Value::Vacant => Content::Set(vec![]),
                Value::Short(_) | Value::Long(_) => Content::Text(slot.value.text().unwrap().to_vec()),
                Value::Hash(hash) => {
                    Content::Hash(hash.fields.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect())
                }
                Value::List(list) => {
                    Content::List(list.items.iter().map(|item| (item.seat, item.data.to_vec())).collect())
                }
                Value::Set(set) => {
                    let mut members: Vec<_> = set.members.iter().map(|m| m.to_vec()).collect();
                    members.sort();
                    Content::Set(members)
                }
                Value::Zset(zset) => Content::Zset(
                    zset.scores.iter().map(|(m, s)| (m.to_vec(), s.to_bits())).collect(),
                    zset.order.iter().map(|place| (place.score.to_bits(), place.member.to_vec())).collect(),
                ),
            };
            assert!(!slot.value.is_empty_collection(), "{:?} is empty", slot.key);
            assert_eq!(model.keys.find(&slot.key).map(|id| &model.keys.slot(id).key), Some(&slot.key));
            let entry = Entry { generation: slot.value.generation(), expires_at: slot.expiry(), content };
            (slot.key.to_vec(), entry)
        })
        .collect();
    Snapshot { keys, used_bytes: model.used_bytes(), len: model.len() }
}

/// One command, as a script would call it.
fn call(model: &mut Model, words: &[&[u8]]) -> Result<Reply, String> {
    let mut out = Out::default();
    super::commands::run(model, words, &mut out).map_err(|fault| fault.text.into_owned())?;
    let mut at = 0;
    let reply = reply_at(&out, &mut at);
    assert_eq!(at, out.parts().len(), "{words:?} answered more than one reply");
    Ok(reply)
}

fn reply_at(out: &Out, at: &mut usize) -> Reply {
    let part = out.parts()[*at];
    *at += 1;
    match part {
        Part::Nil => Reply::Nil,
        Part::Int(value) => Reply::Int(value),
        Part::Status(word) => Reply::Bytes(Bytes::from_static(word.as_bytes())),
        Part::Bulk(start, end) => Reply::Bytes(Bytes::copy_from_slice(&out.bytes()[start..end])),
        Part::Array(len) => Reply::Array((0..len).map(|_| reply_at(out, at)).collect()),
    }
}

/// One command in a script of its own; the reply as `redis-cli` would nearly print it.
fn say(model: &mut Model, line: &str) -> String {
    model.begin(model.now_us.max(START_US));
    let words: Vec<&[u8]> =
        line.split(' ').map(|word| if word == "''" { b"" } else { word.as_bytes() }).collect();
    let answer = call(model, &words);
    model.commit();
    match answer {
        Ok(reply) => show(&reply),
        Err(text) => text,
    }
}

fn show(reply: &Reply) -> String {
    match reply {
        Reply::Nil => "nil".to_owned(),
        Reply::Int(value) => value.to_string(),
        Reply::Bytes(text) => format!("'{}'", String::from_utf8_lossy(text)),
        Reply::Array(parts) => format!("[{}]", parts.iter().map(show).collect::<Vec<_>>().join(" ")),
    }
}

/// Runs `command => answer` lines.
fn script(lines: &str) {
    let mut model = Model::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, expected) = line.split_once(" => ").unwrap();
        assert_eq!(say(&mut model, command.trim()), expected.trim(), "{command}");
    }
}
