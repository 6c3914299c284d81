//! Reads a query by the same declarations: `key.<placeholder>=value`, or `key[<placeholder>]=value` as generated clients
//! write it, and the other fields by name.

use std::borrow::Cow;

use quaymaster::Code;
use smallvec::SmallVec;

use super::field::{Field, Holds, Shape};
use super::read::{self, KEY_VALUES_MAX, not};
use super::slots::{FromSlot, Slot, Slots};
use crate::http::problem::{Problem, excerpt, unknown};
use crate::http::query::{parameters, shown, twice};

/// Reads a query as an object of `shape`.
pub(crate) fn query<'a>(shape: &'static Shape, query: &'a str) -> Result<Slots<'a>, Problem> {
    let mut slots = Slots::new(shape);
    let keyed = shape.fields.iter().any(|field| field.spec.holds == Holds::Key);
    let mut found: SmallVec<[(usize, Cow<'a, str>); 4]> = SmallVec::new();
    for pair in parameters(query) {
        let (name, value) = pair?;
        if keyed && let Some(placeholder) = placeholder(&name) {
            if slots.has_key(&placeholder) {
                return Err(twice(&name));
            }
            if slots.key_values() == KEY_VALUES_MAX {
                return Err(read::too_many_values("key".into()));
            }
            slots.add_key(placeholder, value);
            continue;
        }
        let named = |field: &&Field| field.name == name && field.spec.holds != Holds::Key;
        let Some(index) = shape.fields.iter().position(|field| named(&field)) else {
            return Err(unknown_parameter(shape, &name));
        };
        if found.iter().any(|(known, _)| *known == index) {
            return Err(twice(&name));
        }
        found.push((index, value));
    }
    for (index, value) in found {
        slots.set(index, slot(&shape.fields[index], value)?);
    }
    slots.check()
}

/// The placeholder whose value a parameter of this name is.
pub(crate) fn placeholder<'a>(name: &Cow<'a, str>) -> Option<Cow<'a, str>> {
    fn part(name: &str) -> Option<&str> {
        name.strip_prefix("key.").or_else(|| name.strip_prefix("key[")?.strip_suffix(']'))
    }
    match name {
        Cow::Borrowed(name) => part(name).map(Cow::Borrowed),
        Cow::Owned(name) => part(name).map(|part| Cow::Owned(part.to_owned())),
    }
}

fn unknown_parameter(shape: &Shape, name: &str) -> Problem {
    let known: Vec<&str> =
        shape.fields.iter().filter(|field| field.spec.holds != Holds::Key).map(|field| field.name).collect();
    let keyed = known.len() < shape.fields.len();
    let detail = match name {
        "key" if keyed => "key takes its placeholders one by one: key.<placeholder>=value".to_owned(),
        other if keyed && known.is_empty() => {
            format!("parameter {} is unknown; there are key.<placeholder>=value", excerpt(other))
        }
        other => unknown("parameter", other, &known),
    };
    Problem::new(Code::RequestField, detail).field(shown(name))
}

/// Reads what stands by itself, a part of a path or a header, by its declaration.
pub(crate) fn value<'a, T: FromSlot<'a>>(
    field: &'static Field,
    text: impl Into<Cow<'a, str>>,
) -> Result<T, Problem> {
    T::from_slot(slot(field, text.into())?, "", field)
}

fn slot<'a>(field: &'static Field, text: Cow<'a, str>) -> Result<Slot<'a>, Problem> {
    let wrong = |text: &str| not(field, "", &excerpt(text));
    match field.spec.holds {
        Holds::Integer { .. } => {
            let number = read::integer(&text).filter(|_| !text.starts_with('+'));
            let number = number
                .and_then(|number| u64::try_from(number).ok())
                .filter(|number| field.spec.lets(*number));
            number.map(Slot::Integer).ok_or_else(|| wrong(&text))
        }
        Holds::Number => {
            let number = text.parse().ok().filter(|number: &f64| number.is_finite());
            number.map(Slot::Number).ok_or_else(|| wrong(&text))
        }
        Holds::Truth if field.spec.bare && text.is_empty() => Ok(Slot::Truth(true)),
        Holds::Truth => text.parse().map(Slot::Truth).map_err(|_| wrong(&text)),
        _ => Ok(Slot::Text(text)),
    }
}
