//! The values of a request, as they were read: one slot for each declared field.

use std::borrow::Cow;

use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::field::{Field, Form, Holds, Shape, Spec};
use super::read;
use crate::http::problem::Problem;

/// Placeholders and their values.
pub(crate) type KeyValues<'a> = SmallVec<[(Cow<'a, str>, Cow<'a, str>); 4]>;

/// One value.
#[derive(Debug, Clone, Default)]
pub(crate) enum Slot<'a> {
    /// Not given, or `null` for a field that takes it for that.
    #[default]
    Absent,
    /// A string.
    Text(Cow<'a, str>),
    /// A whole number.
    Integer(u64),
    /// A number.
    Number(f64),
    /// A truth.
    Truth(bool),
    /// JSON as it was written.
    Raw(&'a RawValue),
    /// Strings.
    Texts(Vec<Cow<'a, str>>),
    /// JSON values as they were written.
    Raws(Vec<&'a RawValue>),
}

/// All values of a request.
#[derive(Debug)]
pub(crate) struct Slots<'a> {
    shape: &'static Shape,
    /// Where the object is in the body, `then[0]`; empty for the body itself.
    path: String,
    /// The value of the field that holds the key.
    key: KeyValues<'a>,
    /// Whether that field is there, if without a value.
    keyed: bool,
    values: SmallVec<[Slot<'a>; 8]>,
}

impl<'a> Slots<'a> {
    /// Nothing is given yet.
    pub(crate) fn new(shape: &'static Shape) -> Self {
        Self::at(shape, String::new())
    }

    pub(super) fn at(shape: &'static Shape, path: String) -> Self {
        let values = shape.fields.iter().map(|_| Slot::Absent).collect();
        Self { shape, path, key: KeyValues::new(), keyed: false, values }
    }

    /// Gives the field at `at`.
    pub(crate) fn set(&mut self, at: usize, value: Slot<'a>) {
        if let Some(slot) = self.values.get_mut(at) {
            *slot = value;
        }
    }

    /// Gives a value of the key.
    pub(crate) fn add_key(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        self.key.push((name.into(), value.into()));
    }

    pub(super) fn set_key(&mut self, key: KeyValues<'a>) {
        (self.key, self.keyed) = (key, true);
    }

    pub(super) fn has_key(&self, name: &str) -> bool {
        self.key.iter().any(|(known, _)| known == name)
    }

    /// How many values the key has by now.
    pub(super) fn key_values(&self) -> usize {
        self.key.len()
    }

    /// The fields with their values, and those of the key.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static Field, &Slot<'a>)> {
        self.shape.fields.iter().zip(&self.values)
    }

    /// The key's values.
    pub(crate) fn key(&self) -> &[(Cow<'a, str>, Cow<'a, str>)] {
        &self.key
    }

    /// Refuses a request without a field that it needs, or with one of another form. The key is looked at by the
    /// resource.
    pub(crate) fn check(self) -> Result<Self, Problem> {
        let form = self.form()?;
        let needed = |field: &Field| form.map_or(field.spec.required, |form| form.needs(field));
        for (field, value) in self.given() {
            if needed(field) && matches!(value, Slot::Absent) && field.spec.holds != Holds::Key {
                return Err(read::missing(&self.path, field));
            }
        }
        Ok(self)
    }

    /// The form that the first field says, where there are several.
    fn form(&self) -> Result<Option<&'static Form>, Problem> {
        let shape = self.shape;
        if shape.forms.is_empty() {
            return Ok(None);
        }
        let Some(Slot::Text(word)) = self.values.first() else {
            return Err(read::missing(&self.path, &shape.fields[0]));
        };
        let Some(form) = shape.forms.iter().find(|form| form.word == word) else {
            return Err(read::unknown_form(&self.path, shape, word));
        };
        for (field, value) in self.given() {
            let there =
                if field.spec.holds == Holds::Key { self.keyed } else { !matches!(value, Slot::Absent) };
            if there && !shape.is_common(field) && !shape.only_of(form).any(|own| own == field) {
                return Err(read::stray(&self.path, shape, form, field));
            }
        }
        Ok(Some(form))
    }

    /// Takes the value of the field at `at` out.
    pub(crate) fn take<T: FromSlot<'a>>(&mut self, at: usize) -> Result<T, Problem> {
        let field = &self.shape.fields[at];
        if field.spec.holds == Holds::Key {
            return T::from_key(std::mem::take(&mut self.key), &self.path, field);
        }
        T::from_slot(std::mem::take(&mut self.values[at]), &self.path, field)
    }
}

/// What a field's value becomes in a request. `FITS` is checked against what the field holds when it is compiled.
pub(crate) trait FromSlot<'a>: Sized {
    /// The kind of value it is made of.
    const FITS: Fits;

    /// The value, where the field holds anything but the key.
    fn from_slot(_slot: Slot<'a>, path: &str, field: &'static Field) -> Result<Self, Problem> {
        Err(read::missing(path, field))
    }

    /// The value, where the field holds the key.
    fn from_key(_key: KeyValues<'a>, path: &str, field: &'static Field) -> Result<Self, Problem> {
        Err(read::missing(path, field))
    }
}

/// Kinds of values, as far as they need different types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fits {
    Key,
    Text,
    Integer,
    Number,
    Truth,
    Raw,
    Texts,
    Raws,
    Object,
    Objects,
}

impl Spec {
    /// Whether a field so declared can be read into a type that is made of `fits`, which is an `Option` or not.
    pub(crate) const fn is_read_as(&self, fits: Fits) -> bool {
        matches!(
            (self.holds, fits),
            (Holds::Key, Fits::Key)
                | (Holds::Text { .. } | Holds::Word(_), Fits::Text)
                | (Holds::Integer { .. }, Fits::Integer)
                | (Holds::Number, Fits::Number)
                | (Holds::Truth, Fits::Truth)
                | (Holds::Json | Holds::Map | Holds::Counts | Holds::Id, Fits::Raw)
                | (Holds::Texts { .. }, Fits::Texts)
                | (Holds::Items { .. } | Holds::Ids { .. }, Fits::Raws)
                | (Holds::Object(_), Fits::Object)
                | (Holds::Objects(..), Fits::Objects)
        )
    }
}

impl<'a> FromSlot<'a> for KeyValues<'a> {
    const FITS: Fits = Fits::Key;

    fn from_key(key: KeyValues<'a>, _: &str, _: &'static Field) -> Result<Self, Problem> {
        Ok(key)
    }
}

macro_rules! from_slot {
    ($type:ty, $fits:ident, $slot:ident, $default:expr) => {
        impl<'a> FromSlot<'a> for $type {
            const FITS: Fits = Fits::$fits;

            fn from_slot(slot: Slot<'a>, path: &str, field: &'static Field) -> Result<Self, Problem> {
                let default: fn(&str) -> Option<$type> = $default;
                match slot {
                    Slot::$slot(value) => Ok(value),
                    _ => field.spec.default.and_then(default).ok_or_else(|| read::missing(path, field)),
                }
            }
        }
    };
}

from_slot!(Cow<'a, str>, Text, Text, |json| serde_json::from_str::<String>(json).ok().map(Cow::Owned));
from_slot!(u64, Integer, Integer, |json| json.parse().ok());
from_slot!(f64, Number, Number, |json| json.parse().ok());
from_slot!(bool, Truth, Truth, |json| json.parse().ok());
from_slot!(&'a RawValue, Raw, Raw, |_| None);
from_slot!(Vec<Cow<'a, str>>, Texts, Texts, |_| None);
from_slot!(Vec<&'a RawValue>, Raws, Raws, |_| None);

impl<'a, T: FromSlot<'a>> FromSlot<'a> for Option<T> {
    const FITS: Fits = T::FITS;

    fn from_slot(slot: Slot<'a>, path: &str, field: &'static Field) -> Result<Self, Problem> {
        match slot {
            Slot::Absent => Ok(None),
            slot => T::from_slot(slot, path, field).map(Some),
        }
    }

    fn from_key(key: KeyValues<'a>, path: &str, field: &'static Field) -> Result<Self, Problem> {
        if key.is_empty() { Ok(None) } else { T::from_key(key, path, field).map(Some) }
    }
}
