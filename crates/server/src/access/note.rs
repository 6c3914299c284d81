//! What becomes known of a request on its way to the answer.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::call::Call;
use crate::http::query::parameters;
use crate::request::Slots;
use crate::request::query::placeholder;
use crate::request::slots::Slot;

/// Begins empty; each part is told once, by whoever comes to know it.
#[derive(Debug, Default)]
pub(crate) struct Note {
    /// The number of the token it came with, also where the token may not do what was asked.
    pub(crate) who: OnceLock<usize>,
    /// The placeholders that were given, by name.
    pub(super) values: OnceLock<Vec<(Box<str>, Box<str>)>>,
    /// What the answer says.
    pub(super) outcome: OnceLock<Cow<'static, str>>,
}

impl Note {
    /// One whose outcome is known already.
    pub(crate) fn of(outcome: &'static str) -> Self {
        Self { outcome: OnceLock::from(Cow::Borrowed(outcome)), ..Self::default() }
    }

    /// The key of a stream, which reads its query by itself.
    pub(crate) fn query(&self, query: &str) {
        let values = parameters(query).filter_map(|pair| {
            let (name, value) = pair.ok()?;
            Some((placeholder(&name)?.into(), value.into()))
        });
        let _ = self.values.set(values.collect());
    }

    /// The values of a request that could be read: its key's, and texts among its fields, such as a `run_id`.
    pub(crate) fn read(&self, slots: &Slots<'_>) {
        let key = slots.key().iter().map(|(name, value)| (&**name, &**value));
        let texts = slots.given().filter_map(|(field, slot)| match slot {
            Slot::Text(text) if field.name.ends_with("_id") => Some((field.name, &**text)),
            _ => None,
        });
        let _ = self.values.set(key.chain(texts).map(|(name, value)| (name.into(), value.into())).collect());
    }

    /// An id that stands in the path.
    pub(crate) fn id(&self, name: &str, value: &str) {
        let _ = self.values.set(vec![(name.into(), value.into())]);
    }

    /// The answer of a call: its `outcome`, or whether it is a "no".
    pub(crate) fn answered(&self, call: &Call, answer: &[u8]) {
        let _ = self.outcome.set(outcome(call, answer));
    }

    /// The value of a placeholder.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let values = self.values.get()?;
        values.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}

fn outcome(call: &Call, answer: &[u8]) -> Cow<'static, str> {
    let text = std::str::from_utf8(answer).unwrap_or_default();
    // An answer that is one of several begins with the word that says which.
    if let Some((word, _)) = text.strip_prefix(r#"{"outcome":""#).and_then(|rest| rest.split_once('"')) {
        return Cow::Owned(word.to_owned());
    }
    if call.is_no(text) { Cow::Borrowed("no") } else { Cow::Borrowed("ok") }
}
