//! What a hostile program leaves in a key.

use quaymaster_schema::{KeyRow, RedisType};
use quaymaster_store::Reply;

use crate::differential::side::Held;

/// What stands where a number, a word or an item should.
const VALUES: &[&str] = &[
    "9007199254740992",
    "9223372036854775808",
    "10000000000000000",
    "99999999999999999999999999999999",
    "1e16",
    "1e32",
    "nan",
    "inf",
    "-inf",
    "-1",
    "00",
    "0x10",
    "1.5",
    "",
    "text",
    " ",
];

/// What stands for a score; a store refuses `nan` there.
const SCORES: &[&str] = &["inf", "-inf", "9007199254740992", "1e16", "1e32", "-1", "0", "0.5"];

/// What fields and members are called that nobody knows.
const NAMES: &[&str] = &["text", "", "nan", "-1", "9007199254740992", "1e32"];

/// Which of a key's own fields and members are spoiled: the first and the last.
fn ends(count: usize) -> impl Iterator<Item = usize> {
    (0..count).filter(move |at| *at == 0 || at + 1 == count)
}

/// One thing done to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Poison {
    /// The key is gone, and another type is in its place.
    Type(RedisType),
    /// The whole string.
    Text(String),
    /// The word at this place of the string.
    Word(usize, String),
    /// A field of this name.
    Field(String, String),
    /// The value of the field at this place, in the order of names.
    Value(usize, String),
    /// The word at the second place in the value of the field at the first.
    ValueWord(usize, usize, String),
    /// A new member, and its score.
    Member(String, String),
    /// A member of the set.
    Element(String),
    /// The score of the member at this place.
    Score(usize, String),
    /// The item at this place, which may count from the end.
    Item(isize, String),
    /// The word at the second place of the first item.
    ItemWord(usize, String),
    /// A new item in front.
    First(String),
    /// A new item behind.
    Last(String),
}

impl Poison {
    /// Everything that can be done to the key of `row`, which holds `held` where it is there.
    pub fn all(row: &KeyRow, held: Option<&Held>) -> Vec<Self> {
        let others = [RedisType::String, RedisType::Hash, RedisType::List, RedisType::Zset, RedisType::Set];
        let mut all: Vec<Self> =
            others.into_iter().filter(|kind| *kind != row.kind).map(Poison::Type).collect();
        let own = held.map(|held| parts(&held.content)).unwrap_or_default();
        let values = || VALUES.iter().map(|value| (*value).to_owned());
        let scores = || SCORES.iter().map(|score| (*score).to_owned());
        match row.kind {
            RedisType::String => {
                all.extend(values().map(Poison::Text));
                for word in own.first().map(|text| numbers(text)).unwrap_or_default() {
                    all.extend(values().map(|value| Poison::Word(word, value)));
                }
            }
            RedisType::Hash => {
                for field in &row.fields {
                    all.extend(values().map(|value| Poison::Field(field.name.clone(), value)));
                }
                for name in NAMES {
                    all.push(Poison::Field((*name).to_owned(), "text".to_owned()));
                }
                for at in ends(own.len() / 2) {
                    all.extend(values().map(|value| Poison::Value(at, value)));
                    for word in numbers(&own[2 * at + 1]) {
                        all.extend(values().map(|value| Poison::ValueWord(at, word, value)));
                    }
                }
            }
            RedisType::List => {
                for value in values() {
                    all.push(Poison::First(value.clone()));
                    all.push(Poison::Last(value.clone()));
                    if !own.is_empty() {
                        all.push(Poison::Item(0, value.clone()));
                        all.push(Poison::Item(-1, value));
                    }
                }
                for word in own.first().map(|text| numbers(text)).unwrap_or_default() {
                    all.extend(values().map(|value| Poison::ItemWord(word, value)));
                }
            }
            RedisType::Zset => {
                for name in NAMES {
                    all.extend(scores().map(|score| Poison::Member((*name).to_owned(), score)));
                }
                for at in ends(own.len() / 2) {
                    all.extend(scores().map(|score| Poison::Score(at, score)));
                }
            }
            RedisType::Set => all.extend(values().map(Poison::Element)),
            RedisType::Stream => {}
        }
        all
    }

    /// The commands that do it to `key`, which holds `held` now.
    pub(super) fn commands(&self, key: &[u8], held: Option<&Held>) -> Vec<Vec<Vec<u8>>> {
        let own = held.map(|held| parts(&held.content)).unwrap_or_default();
        let text = |at: usize| own.get(at).cloned().unwrap_or_default();
        let one = |name: &str, rest: &[&[u8]]| {
            let mut words = vec![name.as_bytes().to_vec(), key.to_vec()];
            words.extend(rest.iter().map(|word| word.to_vec()));
            vec![words]
        };
        match self {
            Poison::Type(kind) => {
                let mut all = one("DEL", &[]);
                all.extend(match kind {
                    RedisType::Hash => one("HSET", &[b"x", b"1"]),
                    RedisType::List => one("RPUSH", &[b"x"]),
                    RedisType::Zset => one("ZADD", &[b"1", b"x"]),
                    RedisType::Set => one("SADD", &[b"x"]),
                    _ => one("SET", &[b"x"]),
                });
                all
            }
            Poison::Text(value) => one("SET", &[value.as_bytes(), b"KEEPTTL"]),
            Poison::Word(word, value) => one("SET", &[&with_word(&text(0), *word, value), b"KEEPTTL"]),
            Poison::Field(name, value) => one("HSET", &[name.as_bytes(), value.as_bytes()]),
            Poison::Value(at, value) => one("HSET", &[&text(2 * at), value.as_bytes()]),
            Poison::ValueWord(at, word, value) => {
                one("HSET", &[&text(2 * at), &with_word(&text(2 * at + 1), *word, value)])
            }
            Poison::Member(name, score) => one("ZADD", &[score.as_bytes(), name.as_bytes()]),
            Poison::Element(name) => one("SADD", &[name.as_bytes()]),
            Poison::Score(at, score) => one("ZADD", &[score.as_bytes(), &text(2 * at)]),
            Poison::Item(at, value) => one("LSET", &[at.to_string().as_bytes(), value.as_bytes()]),
            Poison::ItemWord(word, value) => one("LSET", &[b"0", &with_word(&text(0), *word, value)]),
            Poison::First(value) => one("LPUSH", &[value.as_bytes()]),
            Poison::Last(value) => one("RPUSH", &[value.as_bytes()]),
        }
    }
}

/// The strings of a dumped key, in the order of the dump.
pub(super) fn parts(content: &Reply) -> Vec<Vec<u8>> {
    match content {
        Reply::Bytes(bytes) => vec![bytes.to_vec()],
        Reply::Array(all) => all.iter().flat_map(parts).collect(),
        Reply::Int(value) => vec![value.to_string().into_bytes()],
        Reply::Nil => Vec::new(),
    }
}

/// The words that are numbers. One that is the whole text is spoiled as a whole.
fn numbers(text: &[u8]) -> Vec<usize> {
    let words: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
    let number = |word: &[u8]| !word.is_empty() && word.iter().all(|byte| byte.is_ascii_digit());
    let found = words.iter().enumerate().filter(|(_, word)| words.len() > 1 && number(word));
    found.map(|(at, _)| at).collect()
}

fn with_word(text: &[u8], at: usize, value: &str) -> Vec<u8> {
    let mut words: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
    if let Some(word) = words.get_mut(at) {
        *word = value.as_bytes();
    }
    words.join(&b' ')
}
