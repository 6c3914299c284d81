//! The documented list of items: JSON as we write it, and whatever another program has printed there.

use bytes::Bytes;

/// Items in the order they were processed, as the JSON text of the list. Large ones are handed on without being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemList(Bytes);

impl ItemList {
    /// Of the text without its brackets.
    pub(super) fn of(inner: &[u8]) -> Self {
        let mut text = Vec::with_capacity(inner.len() + 2);
        text.push(b'[');
        text.extend_from_slice(inner);
        text.push(b']');
        Self(text.into())
    }

    /// A JSON list of strings.
    pub fn as_json(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("[]")
    }

    /// The items.
    pub fn to_vec(&self) -> Vec<String> {
        serde_json::from_slice(&self.0).unwrap_or_default()
    }
}

/// The items of a list that another program has written: JSON, or printed by Python. `None` for anything else.
pub(super) fn foreign(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    if let Ok(values) = serde_json::from_str::<Vec<serde_json::Value>>(text) {
        let item = |value| match value {
            serde_json::Value::String(text) => Some(text),
            serde_json::Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        return values.into_iter().map(item).collect();
    }
    let mut rest = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    let mut items = Vec::new();
    while !rest.is_empty() {
        let (item, after) = match rest.chars().next()? {
            quote @ ('\'' | '"') => quoted(&rest[1..], quote)?,
            _ => {
                let end = rest.find(',').unwrap_or(rest.len());
                let number = rest[..end].trim();
                if number.is_empty()
                    || !number.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                {
                    return None;
                }
                (number.to_owned(), &rest[end..])
            }
        };
        items.push(item);
        rest = after.trim_start();
        if let Some(next) = rest.strip_prefix(',') {
            rest = next.trim_start();
        } else if !rest.is_empty() {
            return None;
        }
    }
    Some(items)
}

/// A quoted text up to its quote, and what follows.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Some((out, &text[at + c.len_utf8()..])),
            '\\' => match chars.next()?.1 {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                c @ ('\\' | '\'' | '"') => out.push(c),
                _ => return None,
            },
            c => out.push(c),
        }
    }
    None
}
