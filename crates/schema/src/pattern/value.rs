//! What a placeholder's value may be.

use crate::code::Code;
use crate::diagnostic::excerpt;

/// The longest value of a placeholder, in characters.
pub const MAX_VALUE_CHARS: usize = 512;

/// True when a text has more characters than `most`. Bounds of texts are in characters, as in JSON Schema.
pub fn is_longer(text: &str, most: usize) -> bool {
    text.len() > most && text.chars().count() > most
}

/// Why no key could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.detail())]
pub struct KeyError {
    /// `key.value`, `key.missing` or `key.unknown`.
    pub code: Code,
    /// The placeholder it is about; one that there is not, as the caller named it, where that can be shown as it is.
    pub placeholder: Option<String>,
    /// The rule, which follows the placeholder's name; of one that there is not, the whole message. At most a short
    /// escaped excerpt of the value.
    pub(crate) rule: String,
}

impl KeyError {
    /// Names the placeholder and the rule.
    pub fn detail(&self) -> String {
        match &self.placeholder {
            Some(name) if self.code != Code::KeyUnknown => format!("`{name}` {}", self.rule),
            _ => self.rule.clone(),
        }
    }

    /// The same under another name of the placeholder: callers may know it by one of their own.
    #[must_use]
    pub fn called(self, name: &str) -> Self {
        Self { placeholder: self.placeholder.map(|_| name.to_owned()), ..self }
    }
}

/// The alphabet of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Anything but the separator.
    Narrow,
    /// The one placeholder of a pattern that may contain the separator.
    Wide,
    /// A decimal number without leading zeros.
    Digits,
}

/// One placeholder of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placeholder {
    pub(crate) name: String,
    pub(crate) class: Class,
    /// Values that would spell a key of another pattern.
    pub(crate) forbidden: Vec<String>,
}

const FINE: u8 = 0;
const SEPARATOR: u8 = 1;
const CONTROL: u8 = 2;
const SPECIAL: u8 = 3;

/// One look-up per byte; `Placeholder::check` stands on the hot path of every call.
const BYTES: [u8; 256] = {
    let mut table = [FINE; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b':' => SEPARATOR,
            b'{' | b'}' | b'*' | b'?' | b'[' | b']' => SPECIAL,
            0..0x20 | 0x7f => CONTROL,
            _ => FINE,
        };
        byte += 1;
    }
    table
};

/// Whether a byte may stand in a value of this class, seen alone.
pub(crate) const fn admits(class: Class, byte: u8) -> bool {
    match class {
        Class::Digits => byte.is_ascii_digit(),
        Class::Narrow => BYTES[byte as usize] == FINE,
        Class::Wide => BYTES[byte as usize] <= SEPARATOR,
    }
}

impl Placeholder {
    /// Checks one value.
    #[inline]
    pub(crate) fn check(&self, value: &str) -> Result<(), KeyError> {
        let bytes = value.as_bytes();
        let mut worst = FINE;
        for &byte in bytes {
            worst = worst.max(BYTES[byte as usize]);
        }
        let sound = !bytes.is_empty()
            && !is_longer(value, MAX_VALUE_CHARS)
            && (worst == FINE || worst == SEPARATOR && self.class == Class::Wide)
            && (value.is_ascii() || !value.contains(char::is_control))
            && (self.class != Class::Digits || number(bytes))
            && (self.forbidden.is_empty() || !self.forbidden.iter().any(|word| word == value));
        if sound { Ok(()) } else { Err(self.refusal(value)) }
    }

    #[cold]
    fn refusal(&self, value: &str) -> KeyError {
        let shown = excerpt(value);
        let rule = if value.is_empty() {
            "is empty".to_owned()
        } else if is_longer(value, MAX_VALUE_CHARS) {
            format!("has {} characters, more than {MAX_VALUE_CHARS}: {shown}", value.chars().count())
        } else if value.contains(char::is_control) {
            format!("contains a control character: {shown}")
        } else if let Some(bad) = value.chars().find(|c| matches!(c, '{' | '}' | '*' | '?' | '[' | ']')) {
            format!("contains `{bad}`, which no key value may: {shown}")
        } else if self.class == Class::Digits {
            format!("is not a decimal number: {shown}")
        } else if self.class == Class::Narrow && value.contains(':') {
            format!(
                "contains `:`, which only one placeholder of a pattern may, and this is not the one: {shown}"
            )
        } else {
            format!("is {shown}, which would spell the key of another pattern")
        };
        KeyError { code: Code::KeyValue, placeholder: Some(self.name.clone()), rule }
    }
}

fn number(bytes: &[u8]) -> bool {
    bytes.len() <= 20 && bytes.iter().all(u8::is_ascii_digit) && (bytes.len() == 1 || bytes[0] != b'0')
}

/// Checks the suffix of a side key: it may have separators, but nothing that a scan or a hash tag would read.
pub(crate) fn check_suffix(suffix: &str) -> Result<(), KeyError> {
    let (name, value) = match suffix.strip_prefix("req:") {
        Some(id) => ("request_id", id),
        None => ("suffix", suffix),
    };
    let sound = !value.is_empty()
        && !is_longer(value, MAX_VALUE_CHARS)
        && value.bytes().all(|byte| admits(Class::Wide, byte))
        && (value.is_ascii() || !value.contains(char::is_control));
    if sound {
        return Ok(());
    }
    Err(Placeholder { name: name.to_owned(), class: Class::Wide, forbidden: Vec::new() }.refusal(value))
}
