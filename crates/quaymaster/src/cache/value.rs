//! What an entry holds, and how it lies in the store: as it is, or sealed. No I/O.

use bytes::Bytes;
use quaymaster_schema::{CacheType, Spelling};
use quaymaster_store::Reply;
use serde::de::{Deserialize, Error as _};

use crate::bound::{Bound, Key, unspellable};
use crate::seal::Seal;
use crate::{Code, Error, Result, json};

/// The largest entry, all its fields together.
pub const MAX_BYTES: usize = 1 << 20;

/// The most fields of an entry.
pub const MAX_FIELDS: usize = 1000;

/// What an entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The bytes of a string cache; of a json cache, JSON text.
    Bytes(Bytes),
    /// Fields and their values of a hash cache; those read come ordered by field.
    Fields(Vec<(Bytes, Bytes)>),
}

impl Value {
    /// Fields and their values.
    pub fn fields<F: Into<Bytes>, V: Into<Bytes>>(fields: impl IntoIterator<Item = (F, V)>) -> Self {
        Self::Fields(fields.into_iter().map(|(field, value)| (field.into(), value.into())).collect())
    }

    /// `value` as a json cache holds it.
    pub fn json(value: &(impl serde::Serialize + ?Sized)) -> serde_json::Result<Self> {
        Ok(Self::Bytes(serde_json::to_vec(value)?.into()))
    }

    /// What the JSON of a json cache says.
    pub fn parsed<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        match self {
            Self::Bytes(bytes) => serde_json::from_slice(bytes),
            Self::Fields(_) => {
                Err(serde_json::Error::custom("the value of a hash cache is fields, not JSON"))
            }
        }
    }

    /// As a reader of a json cache has it: text of another program that is not JSON is a JSON string. Bytes that are
    /// not even text stay as they are.
    pub(super) fn into_json(self) -> Self {
        let Self::Bytes(bytes) = self else { return self };
        if json::check(&bytes).is_ok() {
            return Self::Bytes(bytes);
        }
        let text = std::str::from_utf8(&bytes).map(|text| {
            let mut quoted = String::with_capacity(text.len() + 2);
            json::push_text(&mut quoted, text);
            quoted
        });
        Self::Bytes(text.map_or(bytes, Bytes::from))
    }

    /// The bytes of a string cache, or the JSON text of a json cache.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Fields(_) => None,
        }
    }

    /// The bytes of a string cache, if they are text; the JSON text of a json cache.
    pub fn text(&self) -> Option<&str> {
        self.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// One field of a hash cache.
    pub fn field(&self, name: &str) -> Option<&Bytes> {
        match self {
            Self::Bytes(_) => None,
            Self::Fields(fields) => {
                fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| value)
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Bytes(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// Refuses what the cache cannot hold.
pub(super) fn check(op: &'static str, holds: CacheType, value: &Value) -> Result<()> {
    let wrong = |code: Code, what: String| Err(Error::new(op, code, what).field("value"));
    let bytes = match (holds, value) {
        (CacheType::String, Value::Bytes(bytes)) => bytes.len(),
        (CacheType::Json, Value::Bytes(bytes)) => {
            // What is too large is not read through first.
            if let Some(why) = (bytes.len() <= MAX_BYTES).then(|| json::check(bytes).err()).flatten() {
                let what = format!("value must be JSON, as the cache's type is json: {why}");
                return wrong(Code::ResourceMismatch, what).map_err(|error| error.because(why));
            }
            bytes.len()
        }
        (CacheType::Hash, Value::Fields(fields)) => {
            if fields.is_empty() {
                return wrong(Code::ResourceMismatch, "value must have at least one field".into());
            }
            if fields.len() > MAX_FIELDS {
                let what = format!("value has {} fields; the most is {MAX_FIELDS}", fields.len());
                return wrong(Code::RequestTooLarge, what);
            }
            fields.iter().map(|(field, value)| field.len() + value.len()).sum()
        }
        (CacheType::String, Value::Fields(_)) => {
            return wrong(Code::ResourceMismatch, "value must be bytes: the cache's type is string".into());
        }
        (CacheType::Json, Value::Fields(_)) => {
            return wrong(Code::ResourceMismatch, "value must be JSON text: the cache's type is json".into());
        }
        (CacheType::Hash, Value::Bytes(_)) => {
            return wrong(Code::ResourceMismatch, "value must have fields: the cache's type is hash".into());
        }
    };
    if bytes > MAX_BYTES {
        return wrong(Code::RequestTooLarge, format!("value has {bytes} bytes; the most is {MAX_BYTES}"));
    }
    Ok(())
}

/// Seals and opens the values of one entry; leaves them alone where the cache is not `sensitive`.
pub(crate) struct Cover<'a> {
    seal: &'a Seal,
    /// The entry's documented key: the same on every topology, so that sealed values can be moved.
    at: Option<Vec<u8>>,
}

impl<'a> Cover<'a> {
    pub(crate) fn of(op: &'static str, bound: &'a Bound, key: Key<'_>, now_us: i64) -> Result<Self> {
        let at = if bound.resource.sensitive {
            let mut at = Vec::new();
            bound
                .pattern()
                .render(key, now_us, Spelling::Single, &mut at)
                .map_err(|error| unspellable(op, error))?;
            Some(at)
        } else {
            None
        };
        Ok(Self { seal: &bound.shared.seal, at })
    }

    /// What is stored for `plain`; `field` is empty for a string.
    pub(crate) fn close(&self, op: &'static str, field: &[u8], plain: &Bytes) -> Result<Bytes> {
        let Some(at) = &self.at else { return Ok(plain.clone()) };
        if !self.seal.is_active() {
            if Seal::looks_sealed(plain) {
                let what = "value begins like a sealed one, and there is no seal key to tell them apart";
                return Err(Error::new(op, Code::SealKey, what));
            }
            return Ok(plain.clone());
        }
        let sealed = self.seal.seal(&place(at, field), plain);
        // Without randomness nothing can be sealed; stored readable it would be no secret any more.
        let failed = || Error::new(op, Code::Internal, "the value could not be sealed");
        sealed.map(Bytes::from).ok_or_else(failed)
    }

    /// Whether `stored` is readable where only sealed values are believed.
    pub(crate) fn refuses(&self, stored: &[u8]) -> bool {
        self.at.is_some() && self.seal.is_required() && !Seal::looks_sealed(stored)
    }

    /// What was meant by `stored`. What another program, or we before there was a key, left readable stays so, unless
    /// [`Cover::refuses`] it.
    pub(crate) fn open(&self, op: &'static str, field: &[u8], stored: Bytes) -> Result<Bytes> {
        match &self.at {
            Some(at) if Seal::looks_sealed(&stored) => {
                self.seal.open(op, &place(at, field), &stored).map(Bytes::from)
            }
            _ => Ok(stored),
        }
    }

    /// The value of a hit's reply; `None` where it is not believed.
    pub(super) fn read(&self, op: &'static str, held: Option<Reply>) -> Result<Option<Value>> {
        match held {
            Some(Reply::Bytes(stored)) if self.refuses(&stored) => Ok(None),
            Some(Reply::Bytes(stored)) => Ok(Some(Value::Bytes(self.open(op, b"", stored)?))),
            Some(words @ Reply::Array(_)) => {
                let (mut words, mut fields) = (words.parts(op)?, Vec::new());
                while let Some(field) = words.next_bytes()? {
                    let stored = words.bytes()?;
                    if self.refuses(&stored) {
                        return Ok(None);
                    }
                    let value = self.open(op, &field, stored)?;
                    fields.push((field, value));
                }
                // The store has no order; an answer has.
                fields.sort_unstable();
                Ok(Some(Value::Fields(fields)))
            }
            other => Err(Error::new(op, Code::StoreReply, format!("a hit with {other:?}"))),
        }
    }
}

/// Where a sealed value belongs: a key alone, or a key and a field, told apart by a byte no key has.
fn place(at: &[u8], field: &[u8]) -> Vec<u8> {
    if field.is_empty() { at.to_vec() } else { [at, field].join(&0) }
}
