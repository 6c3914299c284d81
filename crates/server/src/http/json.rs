//! Reads a JSON body field by field, so that every refusal names the field it is about.
//!
//! Strings are borrowed from the body where they have no escapes. Nothing is built that was not asked for:
//! an unknown field ends the reading before its value is looked at.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use quaymaster::Code;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::problem::{Problem, excerpt, unknown};

/// Placeholders and their values.
pub(crate) type KeyValues<'a> = SmallVec<[(Cow<'a, str>, Cow<'a, str>); 4]>;

/// No pattern has as many placeholders.
const KEY_VALUES_MAX: usize = 32;

/// A request body: which fields it has and how each is read.
pub(crate) trait Fields<'de>: Default {
    /// Every field there is.
    const NAMES: &'static [&'static str];

    /// Reads the value of the field `name`, one of [`Self::NAMES`].
    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error>;
}

/// Reads `body` as an object of `T`'s fields.
pub(crate) fn read<'de, T: Fields<'de>>(body: &'de [u8], max_depth: usize) -> Result<T, Problem> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        Problem::new(Code::RequestInvalid, format!("the body is not UTF-8 at byte {at}")).field("body")
    })?;
    if text.trim_ascii().is_empty() {
        return Err(
            Problem::new(Code::RequestInvalid, "the body is empty; it must be a JSON object").field("body")
        );
    }
    if depth_exceeds(body, max_depth) {
        let detail = format!("the body is nested deeper than {max_depth} levels");
        return Err(Problem::new(Code::RequestInvalid, detail).field("body"));
    }
    object(text)
}

/// Reads `body` as an object of `T`'s fields, none of which is needed: no body at all is an object without fields.
pub(crate) fn read_or_empty<'de, T: Fields<'de>>(body: &'de [u8], max_depth: usize) -> Result<T, Problem> {
    if body.is_empty() { Ok(T::default()) } else { read(body, max_depth) }
}

/// Reads a value of the body, found before, as an object of `T`'s fields; its place in the body is `path`.
pub(crate) fn nested<'de, T: Fields<'de>>(value: &'de RawValue, path: &str) -> Result<T, Problem> {
    object(value.get()).map_err(|mut problem| {
        let field = problem.field.take().filter(|field| field != "body");
        problem.detail = match &field {
            Some(field) if problem.detail.starts_with(field.as_str()) => format!("{path}.{}", problem.detail),
            Some(_) => format!("{path}: {}", problem.detail),
            None => problem.detail.replacen("the body", path, 1),
        }
        .into();
        problem.field(field.map_or_else(|| path.to_owned(), |field| format!("{path}.{field}")))
    })
}

fn object<'de, T: Fields<'de>>(text: &'de str) -> Result<T, Problem> {
    let faults = Faults::default();
    let mut input = serde_json::Deserializer::from_str(text);
    let seed = Object { faults: &faults, into: T::default() };
    match seed.deserialize(&mut input).and_then(|value| input.end().map(|()| value)) {
        Ok(value) => Ok(value),
        Err(error) => Err(faults.0.into_inner().unwrap_or_else(|| {
            Problem::new(Code::RequestInvalid, format!("the body is not JSON: {error}")).field("body")
        })),
    }
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

/// What was found wrong, carried past serde's own errors.
#[derive(Default)]
struct Faults(RefCell<Option<Problem>>);

impl Faults {
    fn raise<E: serde::de::Error>(&self, problem: Problem) -> E {
        self.0.borrow_mut().get_or_insert(problem);
        E::custom("refused")
    }

    fn wrong_type<E: serde::de::Error>(&self, field: &str, wanted: &str, got: &str) -> E {
        let subject = if field.is_empty() { "the body" } else { field };
        let problem = Problem::new(Code::RequestInvalid, format!("{subject} must be {wanted}, got {got}"));
        self.raise(problem.field(if field.is_empty() { "body" } else { field }))
    }
}

struct Object<'f, T> {
    faults: &'f Faults,
    into: T,
}

impl<'de, T: Fields<'de>> DeserializeSeed<'de> for Object<'_, T> {
    type Value = T;

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<T, D::Error> {
        input.deserialize_any(Typed { faults: self.faults, field: "", wanted: "a JSON object", shape: self })
    }
}

impl<'de, T: Fields<'de>> Shape<'de> for Object<'_, T> {
    type Out = T;

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<T>, A::Error> {
        let mut into = self.into;
        let mut seen: SmallVec<[&'static str; 8]> = SmallVec::new();
        while let Some(name) = map.next_key_seed(Name { faults: self.faults, known: T::NAMES })? {
            if seen.contains(&name) {
                let detail = format!("{name} is given twice");
                return Err(self.faults.raise(Problem::new(Code::RequestInvalid, detail).field(name)));
            }
            seen.push(name);
            into.read(name, Value { faults: self.faults, field: name, map: &mut map })?;
        }
        Ok(Some(into))
    }
}

/// A field's name, found in the table of those there are.
struct Name<'f> {
    faults: &'f Faults,
    known: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = &'static str;

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<&'static str, D::Error> {
        input.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<&'static str, E> {
        match self.known.iter().find(|known| **known == word) {
            Some(known) => Ok(known),
            None => {
                let problem = Problem::new(Code::RequestField, unknown("field", word, self.known));
                Err(self.faults.raise(problem.field(excerpt(word).trim_matches('"'))))
            }
        }
    }
}

/// The value of one field, not read yet.
pub(crate) struct Value<'f, A> {
    faults: &'f Faults,
    field: &'static str,
    map: &'f mut A,
}

impl<'de, A: MapAccess<'de>> Value<'_, A> {
    /// Text, or nothing for `null`.
    pub(crate) fn optional_text(self) -> Result<Option<Cow<'de, str>>, A::Error> {
        let wanted = "a string";
        self.map.next_value_seed(Typed {
            faults: self.faults,
            field: self.field,
            wanted,
            shape: OptionalText,
        })
    }

    /// `true` or `false`, or nothing for `null`.
    pub(crate) fn optional_truth(self) -> Result<Option<bool>, A::Error> {
        let (faults, field) = (self.faults, self.field);
        let wanted = "true or false";
        self.map.next_value_seed(Typed { faults, field, wanted, shape: OptionalTruth })
    }

    /// Any JSON, as it was written; `null` too.
    pub(crate) fn raw(self) -> Result<&'de RawValue, A::Error> {
        self.map.next_value()
    }

    /// A list of any JSON, each as it was written, or nothing for `null`.
    pub(crate) fn optional_raws(self) -> Result<Option<Vec<&'de RawValue>>, A::Error> {
        let (faults, field) = (self.faults, self.field);
        self.map.next_value_seed(Typed { faults, field, wanted: "a list", shape: OptionalRaws })
    }

    /// A list of texts.
    pub(crate) fn texts(self) -> Result<Vec<Cow<'de, str>>, A::Error> {
        let (faults, field) = (self.faults, self.field);
        self.map.next_value_seed(Typed {
            faults,
            field,
            wanted: "a list of strings",
            shape: Texts { faults, field },
        })
    }

    /// A number, or nothing for `null`.
    pub(crate) fn optional_number(self) -> Result<Option<f64>, A::Error> {
        let (faults, field) = (self.faults, self.field);
        self.map.next_value_seed(Typed { faults, field, wanted: "a number", shape: OptionalNumber })
    }

    /// An integer from 0, or nothing for `null`.
    pub(crate) fn optional_count(self) -> Result<Option<u64>, A::Error> {
        let (faults, field) = (self.faults, self.field);
        let wanted = "an integer of at least 0";
        let number = self.map.next_value_seed(Typed { faults, field, wanted, shape: OptionalInteger })?;
        let Some(number) = number else { return Ok(None) };
        u64::try_from(number).map(Some).map_err(|_| {
            let detail = format!("{field} must be {wanted}, got {number}");
            faults.raise(Problem::new(Code::RequestInvalid, detail).field(field))
        })
    }

    /// An integer from 1; what is wrong with it is told under `code`.
    pub(crate) fn positive(self, code: Code) -> Result<u64, A::Error> {
        let (faults, field) = (self.faults, self.field);
        let wanted = "an integer of at least 1";
        let number = self.map.next_value_seed(Typed { faults, field, wanted, shape: Integer });
        let number = number.inspect_err(|_| {
            if let Some(problem) = &mut *faults.0.borrow_mut() {
                problem.code = code;
            }
        })?;
        match u64::try_from(number) {
            Ok(number) if number >= 1 => Ok(number),
            _ => {
                let detail = format!("{field} must be {wanted}, got {number}");
                Err(faults.raise(Problem::new(code, detail).field(field)))
            }
        }
    }

    /// An object of strings and integers.
    pub(crate) fn key_values(self) -> Result<KeyValues<'de>, A::Error> {
        let (faults, field) = (self.faults, self.field);
        let wanted = "an object of strings and integers";
        self.map.next_value_seed(Typed { faults, field, wanted, shape: Pairs { faults, field } })
    }
}

/// What a value of some JSON type becomes; `None` is "not this type".
trait Shape<'de>: Sized {
    type Out;

    fn text(self, _text: Cow<'de, str>) -> Option<Self::Out> {
        None
    }
    fn integer(self, _number: i128) -> Option<Self::Out> {
        None
    }
    fn float(self, _number: f64) -> Option<Self::Out> {
        None
    }
    fn truth(self, _truth: bool) -> Option<Self::Out> {
        None
    }
    fn null(self) -> Option<Self::Out> {
        None
    }
    fn list<A: SeqAccess<'de>>(self, _list: A) -> Result<Option<Self::Out>, A::Error> {
        Ok(None)
    }
    fn object<A: MapAccess<'de>>(self, _map: A) -> Result<Option<Self::Out>, A::Error> {
        Ok(None)
    }
}

struct Text;
impl<'de> Shape<'de> for Text {
    type Out = Cow<'de, str>;
    fn text(self, text: Cow<'de, str>) -> Option<Self::Out> {
        Some(text)
    }
}

struct OptionalText;
impl<'de> Shape<'de> for OptionalText {
    type Out = Option<Cow<'de, str>>;
    fn text(self, text: Cow<'de, str>) -> Option<Self::Out> {
        Some(Some(text))
    }
    fn null(self) -> Option<Self::Out> {
        Some(None)
    }
}

struct Integer;
impl Shape<'_> for Integer {
    type Out = i128;
    fn integer(self, number: i128) -> Option<i128> {
        Some(number)
    }
}

struct OptionalTruth;
impl Shape<'_> for OptionalTruth {
    type Out = Option<bool>;
    fn truth(self, truth: bool) -> Option<Self::Out> {
        Some(Some(truth))
    }
    fn null(self) -> Option<Self::Out> {
        Some(None)
    }
}

struct OptionalInteger;
impl Shape<'_> for OptionalInteger {
    type Out = Option<i128>;
    fn integer(self, number: i128) -> Option<Self::Out> {
        Some(Some(number))
    }
    fn null(self) -> Option<Self::Out> {
        Some(None)
    }
}

struct OptionalNumber;
impl Shape<'_> for OptionalNumber {
    type Out = Option<f64>;
    fn integer(self, number: i128) -> Option<Self::Out> {
        Some(Some(number as f64))
    }
    fn float(self, number: f64) -> Option<Self::Out> {
        Some(Some(number))
    }
    fn null(self) -> Option<Self::Out> {
        Some(None)
    }
}

struct OptionalRaws;
impl<'de> Shape<'de> for OptionalRaws {
    type Out = Option<Vec<&'de RawValue>>;
    fn null(self) -> Option<Self::Out> {
        Some(None)
    }
    fn list<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<Self::Out>, A::Error> {
        let mut raws = Vec::new();
        while let Some(raw) = list.next_element()? {
            raws.push(raw);
        }
        Ok(Some(Some(raws)))
    }
}

struct Texts<'f> {
    faults: &'f Faults,
    field: &'static str,
}

impl<'de> Shape<'de> for Texts<'_> {
    type Out = Vec<Cow<'de, str>>;
    fn list<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<Self::Out>, A::Error> {
        let Self { faults, field } = self;
        let mut texts = Vec::new();
        let text = || Typed { faults, field, wanted: "a list of strings", shape: Text };
        while let Some(text) = list.next_element_seed(text())? {
            texts.push(text);
        }
        Ok(Some(texts))
    }
}

/// A string, or an integer in decimal.
struct Word;
impl<'de> Shape<'de> for Word {
    type Out = Cow<'de, str>;
    fn text(self, text: Cow<'de, str>) -> Option<Self::Out> {
        Some(text)
    }
    fn integer(self, number: i128) -> Option<Self::Out> {
        Some(Cow::Owned(number.to_string()))
    }
}

struct Pairs<'f> {
    faults: &'f Faults,
    field: &'static str,
}

impl<'de> Shape<'de> for Pairs<'_> {
    type Out = KeyValues<'de>;

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<KeyValues<'de>>, A::Error> {
        let Self { faults, field } = self;
        let mut pairs = KeyValues::new();
        let name = || Typed { faults, field, wanted: "an object", shape: Text };
        while let Some(name) = map.next_key_seed(name())? {
            // Told as `key.psp_id`; built only when it is needed, for a refusal.
            let path = |name: &str| format!("{field}.{}", excerpt(name).trim_matches('"'));
            if pairs.iter().any(|(known, _)| *known == name) {
                let detail = format!("{} is given twice", path(&name));
                return Err(faults.raise(Problem::new(Code::RequestInvalid, detail).field(path(&name))));
            }
            if pairs.len() == KEY_VALUES_MAX {
                let detail = format!("{field} has more than {KEY_VALUES_MAX} values");
                return Err(faults.raise(Problem::new(Code::RequestInvalid, detail).field(field)));
            }
            let value =
                map.next_value_seed(Typed { faults, field, wanted: "a string or an integer", shape: Word });
            let value = value.inspect_err(|_| {
                if let Some(problem) = &mut *faults.0.borrow_mut() {
                    let path = path(&name);
                    problem.detail = problem.detail.replacen(field, &path, 1).into();
                    problem.field = Some(path);
                }
            })?;
            pairs.push((name, value));
        }
        Ok(Some(pairs))
    }
}

/// Reads one value as a shape, and names the field when it is of another type.
struct Typed<'f, S> {
    faults: &'f Faults,
    field: &'f str,
    wanted: &'f str,
    shape: S,
}

impl<S> Typed<'_, S> {
    fn settle<O, E: serde::de::Error>(
        faults: &Faults,
        field: &str,
        wanted: &str,
        out: Option<O>,
        got: &str,
    ) -> Result<O, E> {
        out.ok_or_else(|| faults.wrong_type(field, wanted, got))
    }
}

impl<'de, S: Shape<'de>> DeserializeSeed<'de> for Typed<'_, S> {
    type Value = S::Out;

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<S::Out, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de, S: Shape<'de>> Visitor<'de> for Typed<'_, S> {
    type Value = S::Out;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }

    fn visit_bool<E: serde::de::Error>(self, truth: bool) -> Result<S::Out, E> {
        Self::settle(self.faults, self.field, self.wanted, self.shape.truth(truth), "a boolean")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<S::Out, E> {
        Self::settle(self.faults, self.field, self.wanted, self.shape.integer(number.into()), "an integer")
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<S::Out, E> {
        Self::settle(self.faults, self.field, self.wanted, self.shape.integer(number.into()), "an integer")
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<S::Out, E> {
        let got = "a number that is no 64-bit integer";
        Self::settle(self.faults, self.field, self.wanted, self.shape.float(number), got)
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<S::Out, E> {
        Self::settle(self.faults, self.field, self.wanted, self.shape.text(Cow::Borrowed(text)), "a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<S::Out, E> {
        Self::settle(
            self.faults,
            self.field,
            self.wanted,
            self.shape.text(Cow::Owned(text.into())),
            "a string",
        )
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<S::Out, E> {
        Self::settle(self.faults, self.field, self.wanted, self.shape.null(), "null")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<S::Out, A::Error> {
        let (faults, field, wanted) = (self.faults, self.field, self.wanted);
        let out = self.shape.list(list)?;
        Self::settle(faults, field, wanted, out, "a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<S::Out, A::Error> {
        let (faults, field, wanted) = (self.faults, self.field, self.wanted);
        let out = self.shape.object(map)?;
        Self::settle(faults, field, wanted, out, "an object")
    }
}
