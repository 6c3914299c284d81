//! Reads a JSON body field by field, so that every refusal names the field it is about.
//!
//! One reader for all requests, led by their [`Shape`]s. Strings are borrowed from the body where they have no escapes.
//! Nothing is built that was not asked for: an unknown field ends the reading before its value is looked at.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use quaymaster::Code;
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Request;
use super::field::{Field, Form, Holds, REQUEST_ID, Shape, Spec};
use super::slots::{Fits, FromSlot, KeyValues, Slot, Slots};
use crate::command::Fields;
use crate::http::problem::{Problem, excerpt, unknown};

/// No pattern has as many placeholders.
pub(super) const KEY_VALUES_MAX: usize = 32;

/// Reads a body as an object of `shape`; no body at all is an object without fields.
pub(crate) fn body<'a>(
    shape: &'static Shape,
    body: &'a [u8],
    max_depth: usize,
) -> Result<Slots<'a>, Problem> {
    let wrong = |detail: String| Problem::new(Code::RequestInvalid, detail).field("body");
    if body.is_empty() && shape.is_optional() {
        return Ok(Slots::new(shape));
    }
    let text = std::str::from_utf8(body)
        .map_err(|error| wrong(format!("the body is not UTF-8 at byte {}", error.valid_up_to())))?;
    if text.trim_ascii().is_empty() {
        return Err(wrong("the body is empty; it must be a JSON object".into()));
    }
    if depth_exceeds(body, max_depth) {
        return Err(wrong(format!("the body is nested deeper than {max_depth} levels")));
    }
    object(shape, text, "")
}

/// Reads an object that stands at `path` in the body; the body itself has none.
pub(crate) fn object<'a>(shape: &'static Shape, text: &'a str, path: &str) -> Result<Slots<'a>, Problem> {
    let whole = if path.is_empty() { "body" } else { path };
    let wrong =
        |what: String| Problem::new(Code::RequestInvalid, format!("{} {what}", subject(path))).field(whole);
    if !text.trim_ascii_start().starts_with('{') {
        // What is no JSON at all is told as that.
        let got = if text.trim_ascii_start().starts_with('[') {
            "a list"
        } else {
            serde_json::from_str::<&RawValue>(text).map_or("", |raw| kind(raw.get()))
        };
        if !got.is_empty() {
            let problem = || wrong(format!("must be a JSON object, got {got}"));
            return Err(unreadable(text, path).filter(|_| got != "a list").unwrap_or_else(problem));
        }
    }
    let at = At { path, text, fault: RefCell::default() };
    let mut input = serde_json::Deserializer::from_str(text);
    let read = serde::Deserializer::deserialize_map(&mut input, ObjectOf { shape, at: &at });
    match read.and_then(|slots| input.end().map(|()| slots)) {
        Ok(slots) => slots.check(),
        Err(error) => Err(at.fault.into_inner().unwrap_or_else(|| wrong(format!("is not JSON: {error}")))),
    }
}

/// Reads a request whose fields come one by one, each as it is written in JSON.
pub(crate) fn named<'a>(
    shape: &'static Shape,
    key: &'a [(String, String)],
    fields: &'a Fields,
) -> Result<Slots<'a>, Problem> {
    if !key.is_empty() && !shape.fields.iter().any(|field| field.spec.holds == Holds::Key) {
        return Err(unknown_field(shape, "", "key"));
    }
    let mut slots = Slots::new(shape);
    for (name, value) in key {
        slots.add_key(name.as_str(), value.as_str());
    }
    for (at, field) in shape.fields.iter().enumerate() {
        if let Some(value) = fields.get(field.name) {
            slots.set(at, slot(value, field, "")?);
        }
    }
    slots.check()
}

/// What a JSON text is, by its first byte.
fn kind(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ if integer(json).is_some() => "an integer",
        _ => "a number that is no 64-bit integer",
    }
}

/// A whole number of 64 bits, however it is written: `1.0` is 1.
pub(crate) fn integer(json: &str) -> Option<i128> {
    let read = json.parse::<u64>().map(i128::from).or_else(|_| json.parse::<i64>().map(i128::from));
    read.ok().or_else(|| {
        let number = shifted(json)?;
        (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&number).then_some(number)
    })
}

/// A whole number with a fraction or an exponent, by its digits: a float would round `0.99999999999999999` to 1.
fn shifted(json: &str) -> Option<i128> {
    let (mantissa, exponent) = match json.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (json, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !plain(whole.strip_prefix('-').unwrap_or(whole)) || !plain(fraction) {
        return None;
    }
    let mut digits = format!("{whole}{fraction}");
    if digits.bytes().all(|digit| matches!(digit, b'0' | b'-')) {
        return Some(0);
    }
    let places = exponent.saturating_sub_unsigned(fraction.len() as u64);
    match usize::try_from(places) {
        // No integer of 64 bits has more digits.
        Ok(zeros) => digits.extend(std::iter::repeat_n('0', zeros.min(20))),
        Err(_) => {
            let cut = digits.len().checked_sub(usize::try_from(places.unsigned_abs()).ok()?)?;
            if digits.bytes().skip(cut).any(|digit| digit != b'0') {
                return None;
            }
            digits.truncate(cut);
        }
    }
    digits.parse().ok()
}

/// A JSON string, borrowed where nothing in it is escaped.
fn string(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(json).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// What a whole object is called.
fn subject(path: &str) -> &str {
    if path.is_empty() { "the body" } else { path }
}

/// Where a field is in the body.
pub(super) fn place(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// A field that is needed and is not there.
pub(super) fn missing(path: &str, field: &Field) -> Problem {
    let place = place(path, field.name);
    let hint = field.spec.hint;
    let detail =
        if hint.is_empty() { format!("{place} is missing") } else { format!("{place} is missing; {hint}") };
    Problem::new(field.spec.code.unwrap_or(Code::RequestInvalid), detail).field(place)
}

/// The first field has a word for which there is no form.
pub(super) fn unknown_form(path: &str, shape: &Shape, word: &str) -> Problem {
    let field = shape.fields[0].name;
    let words: Vec<&str> = shape.forms.iter().map(|form| form.word).collect();
    let place = place(path, field);
    let detail = format!("{place}: {}", unknown(field, word, &words));
    Problem::new(Code::RequestInvalid, detail).field(place)
}

/// A field of another form.
pub(super) fn stray(path: &str, shape: &Shape, form: &Form, field: &Field) -> Problem {
    let fields: Vec<&str> = shape.only_of(form).map(|field| field.name).collect();
    let place = place(path, field.name);
    let detail = format!("{place} is no field of {}; there are {}", form.word, fields.join(", "));
    Problem::new(Code::RequestField, detail).field(place)
}

/// Whether brackets nest deeper than `max`; those inside strings do not count.
fn depth_exceeds(body: &[u8], max: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in body {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > max {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The object that is read, and what was found wrong, carried past serde's own errors.
struct At<'p> {
    path: &'p str,
    /// The object as it was written.
    text: &'p str,
    fault: RefCell<Option<Problem>>,
}

impl At<'_> {
    /// What is wrong with `value`; where that is no JSON at all, it is told of the whole object, with its place.
    fn about(&self, value: &RawValue, problem: Problem) -> Problem {
        match serde_json::from_str::<serde_json::Value>(value.get()) {
            Ok(_) => problem,
            Err(_) => unreadable(self.text, self.path).unwrap_or(problem),
        }
    }

    fn raise<E: serde::de::Error>(&self, problem: Problem) -> E {
        self.fault.borrow_mut().get_or_insert(problem);
        E::custom("refused")
    }
}

struct ObjectOf<'f> {
    shape: &'static Shape,
    at: &'f At<'f>,
}

impl<'de> Visitor<'de> for ObjectOf<'_> {
    type Value = Slots<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Slots<'de>, A::Error> {
        let (shape, at) = (self.shape, self.at);
        let mut slots = Slots::at(shape, at.path.to_owned());
        let mut seen = 0_u64;
        while let Some(name) = map.next_key_seed(Name)? {
            let Some(index) = shape.fields.iter().position(|field| field.name == name) else {
                return Err(at.raise(unknown_field(shape, at.path, &name)));
            };
            let field = &shape.fields[index];
            if seen & (1 << index) != 0 {
                return Err(at.raise(wrong(place(at.path, field.name), "is given twice")));
            }
            seen |= 1 << index;
            let value: &'de RawValue = map.next_value()?;
            if field.spec.holds == Holds::Key {
                slots.set_key(
                    key_values(value, field, at.path)
                        .map_err(|problem| at.raise(at.about(value, problem)))?,
                );
            } else {
                slots.set(
                    index,
                    slot(value, field, at.path).map_err(|problem| at.raise(at.about(value, problem)))?,
                );
            }
        }
        Ok(slots)
    }
}

fn unknown_field(shape: &Shape, path: &str, name: &str) -> Problem {
    let known: Vec<&str> = shape.fields.iter().map(|field| field.name).collect();
    let said = unknown("field", name, &known);
    let detail = if path.is_empty() { said } else { format!("{path}: {said}") };
    Problem::new(Code::RequestField, detail).field(place(path, excerpt(name).trim_matches('"')))
}

/// Something is wrong with the field at `place`.
fn wrong(place: String, what: &str) -> Problem {
    Problem::new(Code::RequestInvalid, format!("{place} {what}")).field(place)
}

/// A key with more values than any pattern has placeholders.
pub(super) fn too_many_values(place: String) -> Problem {
    wrong(place, &format!("has more than {KEY_VALUES_MAX} values"))
}

/// The name of a field, borrowed where nothing in it is escaped.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<Cow<'de, str>, D::Error> {
        input.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

impl Spec {
    /// What a reader says it wants.
    fn wanted(&self) -> Cow<'static, str> {
        let words = match self.holds {
            Holds::Key => "an object of strings and integers",
            Holds::Text { .. } | Holds::Word(_) => "a string",
            Holds::Integer { .. } => match self.bounds() {
                (min, u64::MAX) => return format!("an integer of at least {min}").into(),
                (min, max) => return format!("an integer from {min} to {max}").into(),
            },
            Holds::Number => "a number",
            Holds::Truth => "true or false",
            Holds::Texts { .. } => "a list of strings",
            Holds::Id => "a string or an integer",
            Holds::Items { .. } | Holds::Objects(..) | Holds::Ids { .. } => "a list",
            Holds::Json | Holds::Map | Holds::Counts | Holds::Object(_) => "JSON",
        };
        words.into()
    }

    /// The numbers that the reader lets through; what else is out of bounds the resource refuses.
    fn bounds(&self) -> (u64, u64) {
        match self.holds {
            Holds::Integer { min, max } if self.code.is_some() => (min, max),
            _ => (0, u64::MAX),
        }
    }

    /// Whether the reader lets this number through.
    pub(super) fn lets(&self, number: u64) -> bool {
        let (min, max) = self.bounds();
        (min..=max).contains(&number)
    }
}

/// What a field is told that is of another type, or too small.
pub(super) fn not(field: &Field, path: &str, got: &str) -> Problem {
    let mut problem = wrong(place(path, field.name), &format!("must be {}, got {got}", field.spec.wanted()));
    problem.code = field.spec.code.unwrap_or(problem.code);
    problem
}

/// Whether a value can be read into a field.
#[cfg(test)]
pub(super) fn fits(value: &RawValue, field: &'static Field) -> bool {
    match field.spec.holds {
        Holds::Key => key_values(value, field, "").is_ok(),
        _ => slot(value, field, "").is_ok(),
    }
}

/// The value of a field, which is not the key.
pub(crate) fn slot<'a>(value: &'a RawValue, field: &'static Field, path: &str) -> Result<Slot<'a>, Problem> {
    let (json, spec) = (value.get(), &field.spec);
    let not = |got: &str| not(field, path, got);
    // A field that is needed is told to be missing; of what is kept as JSON the resource says what it wants.
    let kept =
        matches!(spec.holds, Holds::Json | Holds::Map | Holds::Counts | Holds::Id | Holds::Texts { .. });
    if json == "null" && (spec.nullable || (spec.required && !kept)) {
        return Ok(Slot::Absent);
    }
    let read = match spec.holds {
        Holds::Key => None,
        Holds::Json | Holds::Map | Holds::Counts | Holds::Object(_) | Holds::Id => Some(Slot::Raw(value)),
        Holds::Text { .. } | Holds::Word(_) => match string(json) {
            Some(id) if *spec == REQUEST_ID => return request_id(id, field, path).map(Slot::Text),
            text => text.map(Slot::Text),
        },
        Holds::Truth => json.parse().ok().map(Slot::Truth),
        Holds::Number => json.parse().ok().filter(|number: &f64| number.is_finite()).map(Slot::Number),
        Holds::Integer { .. } => match integer(json) {
            Some(number) => match u64::try_from(number) {
                Ok(number) if spec.lets(number) => Some(Slot::Integer(number)),
                _ => return Err(not(&number.to_string())),
            },
            None => None,
        },
        Holds::Items { .. } | Holds::Objects(..) | Holds::Ids { .. } => raws(json).map(Slot::Raws),
        Holds::Texts { .. } => match raws(json) {
            Some(raws) => {
                let texts = raws.into_iter().map(|raw| string(raw.get()).ok_or_else(|| not(kind(raw.get()))));
                return texts.collect::<Result<_, _>>().map(Slot::Texts);
            }
            None => None,
        },
    };
    read.ok_or_else(|| not(kind(json)))
}

/// A `request_id` that could be part of a key. It is looked at here, since not every call comes to use it.
fn request_id<'a>(id: Cow<'a, str>, field: &Field, path: &str) -> Result<Cow<'a, str>, Problem> {
    let usable = |c: char| !c.is_control() && !matches!(c, '{' | '}' | '*' | '?' | '[' | ']');
    let count = id.chars().count();
    if (1..=128).contains(&count) && id.chars().all(usable) {
        return Ok(id);
    }
    let rule = "1 to 128 characters without control characters and { } * ? [ ]";
    let place = place(path, field.name);
    Err(Problem::new(Code::RequestInvalid, format!("{place}: {rule}, got {count}")).field(place))
}

/// The problem with an object in which something looks like JSON and is none: half of a surrogate pair, a number that no
/// float holds. It is told of the whole object, with its place.
fn unreadable(text: &str, path: &str) -> Option<Problem> {
    let error = serde_json::from_str::<serde_json::Value>(text).err()?;
    let problem = Problem::new(Code::RequestInvalid, format!("{} is not JSON: {error}", subject(path)));
    Some(problem.field(if path.is_empty() { "body" } else { path }))
}

fn raws(json: &str) -> Option<Vec<&RawValue>> {
    if json.starts_with('[') { serde_json::from_str(json).ok() } else { None }
}

/// The key: an object of strings and integers.
fn key_values<'a>(value: &'a RawValue, field: &'static Field, path: &str) -> Result<KeyValues<'a>, Problem> {
    if !value.get().starts_with('{') {
        return Err(not(field, path, kind(value.get())));
    }
    let at = At { path, text: value.get(), fault: RefCell::default() };
    let mut input = serde_json::Deserializer::from_str(value.get());
    let read = serde::Deserializer::deserialize_map(&mut input, KeyOf { field, at: &at });
    read.map_err(|_| at.fault.into_inner().unwrap_or_else(|| not(field, path, "an object")))
}

struct KeyOf<'f> {
    field: &'static Field,
    at: &'f At<'f>,
}

impl<'de> Visitor<'de> for KeyOf<'_> {
    type Value = KeyValues<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field.spec.wanted())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeyValues<'de>, A::Error> {
        let at = self.at;
        let key = || place(at.path, self.field.name);
        // Told as `key.psp_id`; built only when it is needed, for a refusal.
        let path = |name: &str| format!("{}.{}", key(), excerpt(name).trim_matches('"'));
        let mut pairs = KeyValues::new();
        while let Some(name) = map.next_key_seed(Name)? {
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(at.raise(wrong(path(&name), "is given twice")));
            }
            if pairs.len() == KEY_VALUES_MAX {
                return Err(at.raise(too_many_values(key())));
            }
            let value: &RawValue = map.next_value()?;
            let Some(word) = id(value.get()) else {
                let what = format!("must be a string or an integer, got {}", kind(value.get()));
                return Err(at.raise(wrong(path(&name), &what)));
            };
            pairs.push((name, word));
        }
        Ok(pairs)
    }
}

/// A JSON string, or an integer in decimal.
pub(crate) fn id(json: &str) -> Option<Cow<'_, str>> {
    string(json).or_else(|| integer(json).map(|number| Cow::Owned(number.to_string())))
}

/// An object within a request.
impl<'a, T: Request<'a>> FromSlot<'a> for Nested<T> {
    const FITS: Fits = Fits::Object;

    fn from_slot(slot: Slot<'a>, path: &str, field: &'static Field) -> Result<Self, Problem> {
        let Slot::Raw(raw) = slot else { return Err(missing(path, field)) };
        T::of(object(T::SHAPE, raw.get(), &place(path, field.name))?).map(Self)
    }
}

/// Objects within a request.
impl<'a, T: Request<'a>> FromSlot<'a> for Vec<Nested<T>> {
    const FITS: Fits = Fits::Objects;

    fn from_slot(slot: Slot<'a>, path: &str, field: &'static Field) -> Result<Self, Problem> {
        let Slot::Raws(raws) = slot else { return Err(missing(path, field)) };
        let place = place(path, field.name);
        let one = |(at, raw): (usize, &'a RawValue)| {
            T::of(object(T::SHAPE, raw.get(), &format!("{place}[{at}]"))?).map(Nested)
        };
        raws.into_iter().enumerate().map(one).collect()
    }
}

/// A request within another one.
#[derive(Debug)]
pub(crate) struct Nested<T>(pub(crate) T);
