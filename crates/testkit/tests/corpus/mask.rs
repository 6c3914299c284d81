//! What is random in an answer: found by the name of its field and its shape, numbered in the order of its coming, and
//! replaced by that number wherever it is said again. So a token that should be the same is seen to be the same, and one
//! that should be another to be another.

use serde_json::Value;

/// Fields with random values, and which part of the value is random.
const RANDOM: &[(&str, Part)] = &[
    ("token", Part::Tail(22)),
    ("lease", Part::Tail(22)),
    ("batch_id", Part::Batch),
    ("upload_id", Part::Hex(32)),
    ("node_id", Part::Uuid),
    ("run_id", Part::Manual),
];

#[derive(Debug, Clone, Copy)]
enum Part {
    /// So many characters of base64 at the end, behind a point or alone.
    Tail(usize),
    Hex(usize),
    Uuid,
    /// `manual_2026-11-16T06:22:01.123456+00:00`: a node's guess of the store's time, to the microsecond.
    Manual,
    /// `3f2a9c04d1b7-8e5566aa0c12`.
    Batch,
}

impl Part {
    fn of(self, text: &str) -> Option<&str> {
        let hex = |text: &str, length| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        match self {
            Self::Tail(length) => {
                let tail = text.rsplit('.').next()?;
                let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
                (tail.len() == length && tail.bytes().all(base64)).then_some(tail)
            }
            Self::Hex(length) => hex(text, length).then_some(text),
            Self::Uuid => {
                let lengths: Vec<usize> = text.split('-').map(str::len).collect();
                (lengths == [8, 4, 4, 4, 12] && text.split('-').all(|part| hex(part, part.len())))
                    .then_some(text)
            }
            Self::Manual => (text.starts_with("manual_") && text.len() == 39).then_some(text),
            Self::Batch => {
                let (a, b) = text.split_once('-')?;
                (hex(a, 12) && hex(b, 12)).then_some(text)
            }
        }
    }
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Mask {
    /// A value, and what stands for it.
    seen: Vec<(String, String)>,
}

impl Mask {
    /// Replaces `value` by `<name>` from now on: an address, a folder.
    pub(crate) fn know(&mut self, value: impl Into<String>, name: &str) {
        self.seen.push((value.into(), format!("<{name}>")));
    }

    /// Learns what is random in an answer.
    pub(crate) fn learn(&mut self, answer: &Value) {
        match answer {
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(text) = value.as_str() {
                        self.learn_field(name, text);
                    }
                    self.learn(value);
                }
            }
            _ => {}
        }
    }

    /// Learns which subscription the ids of a stream begin with: `id: 9557ba53.1`.
    pub(crate) fn learn_stream(&mut self, heard: &[u8]) {
        for line in String::from_utf8_lossy(heard).lines() {
            let random =
                line.strip_prefix("id: ").and_then(|id| id.split_once('.')).map(|(random, _)| random);
            if let Some(random) = random.and_then(|random| Part::Hex(8).of(random)) {
                self.number("stream", random);
            }
        }
    }

    /// Learns from what a command prints for people: `batches.1.batch id  3f2a9c04d1b7-8e5566aa0c12`.
    pub(crate) fn learn_table(&mut self, printed: &[u8]) {
        for line in String::from_utf8_lossy(printed).lines() {
            let Some((name, value)) = line.split_once("  ") else { continue };
            let name = name.rsplit('.').next().unwrap_or_default().replace(' ', "_");
            self.learn_field(&name, value.trim_start());
        }
    }

    fn learn_field(&mut self, name: &str, value: &str) {
        if let Some((field, part)) = RANDOM.iter().find(|(field, _)| *field == name)
            && let Some(random) = part.of(value)
        {
            self.number(field, random);
        }
    }

    fn number(&mut self, field: &str, random: &str) {
        if self.seen.iter().any(|(known, _)| known == random) {
            return;
        }
        let mark = format!("<{field} ");
        let before = self.seen.iter().filter(|(_, name)| name.starts_with(&mark)).count();
        self.seen.push((random.to_owned(), format!("{mark}{}>", before + 1)));
    }

    /// The same with everything known replaced.
    pub(crate) fn applied(&self, bytes: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(bytes) else { return bytes.to_vec() };
        let known = |text: String, (value, name): &(String, String)| {
            if text.contains(value.as_str()) { text.replace(value.as_str(), name) } else { text }
        };
        self.seen.iter().fold(text.to_owned(), known).into_bytes()
    }
}
