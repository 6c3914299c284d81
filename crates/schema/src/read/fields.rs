//! One table of a schema file: its fields by their declarations, with spans, all problems collected.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::{At, Report};
use super::value::Read;
use crate::diagnostic::{excerpt, nearest};
use crate::field::document::env;
use crate::field::{self, Field, Meanings, Nested, Or, Required, SecretText, Table, Text};

/// What was found at a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Got<T> {
    /// Nothing.
    Absent,
    /// Something unusable, already reported.
    Bad,
    /// A value and its place.
    Value(T, At),
}

impl<T> Got<T> {
    pub(crate) fn option(self) -> Option<T> {
        match self {
            Got::Value(value, _) => Some(value),
            Got::Absent | Got::Bad => None,
        }
    }

    pub(crate) fn at(&self) -> Option<At> {
        match self {
            Got::Value(_, at) => Some(*at),
            Got::Absent | Got::Bad => None,
        }
    }

    pub(crate) fn and_then<U>(self, convert: impl FnOnce(T, At) -> Option<U>) -> Got<U> {
        match self {
            Got::Absent => Got::Absent,
            Got::Bad => Got::Bad,
            Got::Value(value, at) => convert(value, at).map_or(Got::Bad, |value| Got::Value(value, at)),
        }
    }
}

/// A scalar, from the file or from the environment.
pub(crate) struct Scalar {
    pub(crate) raw: Raw,
    /// The variable it came from.
    pub(crate) variable: Option<String>,
    pub(crate) unit: Option<String>,
}

pub(crate) enum Raw {
    Text(String),
    Integer(i128),
    Float(f64),
    Bool(bool),
    /// From the environment: any type may be read from it.
    Env(String),
}

/// One table of a schema file.
pub(crate) struct Fields<'a, 'i> {
    pub(crate) report: &'a Report<'a>,
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    table: &'a DeTable<'i>,
    /// As in `[limit.psp]`.
    pub(crate) path: String,
    /// The table's own place.
    pub(crate) at: At,
}

impl<'a, 'i> Fields<'a, 'i> {
    /// Reports every field that the table's declaration does not have.
    pub(crate) fn open(
        report: &'a Report<'a>,
        env: &'a dyn Fn(&str) -> Option<String>,
        declared: &Table,
        table: &'a DeTable<'i>,
        path: String,
        at: At,
    ) -> Self {
        let fields = Self { report, env, table, path, at };
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !declared.names().any(|known| known == name) {
                let help = match nearest(name, declared.names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("its fields are {}", listed(declared.names())),
                };
                let message = format!("[{}] has no field {}", fields.path, excerpt(name));
                fields.add(fields.place(key), "unknown-field", message, Some(help));
            }
        }
        fields
    }

    pub(crate) fn add(&self, at: At, code: &'static str, message: impl Into<String>, help: Option<String>) {
        self.report.add(at, code, message, help);
    }

    pub(crate) fn place<T>(&self, spanned: &Spanned<T>) -> At {
        At { source: self.at.source, offset: spanned.span().start }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&'a Spanned<DeValue<'i>>> {
        self.table.get(name)
    }

    /// The field, if it is given.
    pub(crate) fn read<T: Read, P>(&self, field: &Field<T, P>) -> Got<T::Value> {
        field.holds.read(self, field.name)
    }

    /// The field and its place; reports an absent one as missing.
    pub(crate) fn required<T: Read>(&self, field: &Field<T, Required>) -> Option<(T::Value, At)> {
        match self.read(field) {
            Got::Value(value, at) => Some((value, at)),
            Got::Bad => None,
            Got::Absent => {
                self.add(self.at, "missing-field", format!("[{}] has no `{}`", self.path, field.name), None);
                None
            }
        }
    }

    /// The field or its default: an absent field has it, and a bad one was reported.
    pub(crate) fn or_default<T: Read>(&self, field: &Field<T, Or<T::Default>>) -> T::Value {
        self.placed(field).0
    }

    /// The same and its place: the table's, if the field has none.
    pub(crate) fn placed<T: Read>(&self, field: &Field<T, Or<T::Default>>) -> (T::Value, At) {
        match self.read(field) {
            Got::Value(value, at) => (value, at),
            Got::Absent | Got::Bad => (T::value(field.presence.0, self.at), self.at),
        }
    }

    pub(crate) fn wrong<T>(&self, name: &str, at: At, wanted: &str, found: &str) -> Got<T> {
        self.add(at, "wrong-type", format!("`{name}` must be {wanted}, not {found}"), None);
        Got::Bad
    }

    fn scalar(&self, name: &str, wanted: &str) -> Got<Scalar> {
        let Some(value) = self.find(name) else { return Got::Absent };
        self.scalar_of(name, wanted, value)
    }

    fn scalar_of(&self, name: &str, wanted: &str, value: &Spanned<DeValue<'_>>) -> Got<Scalar> {
        let at = self.place(value);
        let plain = |raw| Got::Value(Scalar { raw, variable: None, unit: None }, at);
        match value.get_ref() {
            DeValue::String(text) => plain(Raw::Text(text.to_string())),
            DeValue::Integer(integer) => match i128::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => plain(Raw::Integer(integer)),
                Err(_) => self.wrong(name, at, wanted, "a number of that size"),
            },
            DeValue::Float(float) => plain(Raw::Float(float.as_str().parse().unwrap_or(f64::NAN))),
            DeValue::Boolean(truth) => plain(Raw::Bool(*truth)),
            DeValue::Table(table) if table.contains_key("env") => self.variable(name, wanted, table, at),
            DeValue::Table(_) => self.wrong(name, at, wanted, "a table (only `{ env = … }` may stand here)"),
            other => self.wrong(name, at, wanted, &format!("a {}", other.type_str())),
        }
    }

    /// `{ env = "NAME", default = …, unit = "h" }`
    fn variable(&self, name: &str, wanted: &str, table: &DeTable<'_>, at: At) -> Got<Scalar> {
        let path = format!("{}.{name}", self.path);
        let inner = Fields::open(self.report, self.env, &env::TABLE, table, path, at);
        let (variable, unit) = (inner.plain(&env::ENV), inner.plain(&env::UNIT));
        let default = inner.find(env::DEFAULT.name);
        if let Got::Value(unit, at) = &unit
            && !env::UNITS.contains(&unit.as_str())
        {
            let help = format!("units are {}", env::UNITS.join(", "));
            inner.add(*at, "bad-unit", format!("{} is not a unit", excerpt(unit)), Some(help));
            return Got::Bad;
        }
        let Got::Value(variable, _) = variable else { return Got::Bad };
        let unit = unit.option();
        if let Some(text) = (self.env)(&variable).filter(|text| !text.is_empty()) {
            return Got::Value(Scalar { raw: Raw::Env(text), variable: Some(variable), unit }, at);
        }
        let Some(default) = default else {
            let message = format!("`{name}` comes from {}, which is not set", excerpt(&variable));
            self.report.unset(&self.path, at, &variable, message);
            return Got::Bad;
        };
        if matches!(default.get_ref(), DeValue::Table(_)) {
            return self.wrong(env::DEFAULT.name, at, wanted, "a table");
        }
        self.scalar_of(name, wanted, default).and_then(|scalar, _| Some(Scalar { unit, ..scalar }))
    }

    /// Reads a scalar with `read`; what it cannot read is reported as `code`, or as the variable's fault.
    pub(crate) fn typed<T>(
        &self,
        name: &str,
        code: &'static str,
        wanted: &str,
        read: impl FnOnce(&Scalar) -> Option<T>,
    ) -> Got<T> {
        self.scalar(name, wanted).and_then(|scalar, at| {
            let value = read(&scalar);
            if value.is_none() {
                let shown = match &scalar.raw {
                    Raw::Text(text) | Raw::Env(text) => excerpt(text),
                    Raw::Integer(integer) => format!("`{integer}`"),
                    Raw::Float(float) => format!("`{float}`"),
                    Raw::Bool(truth) => format!("`{truth}`"),
                };
                match (&scalar.variable, &scalar.raw) {
                    (Some(variable), _) => {
                        let unit = scalar.unit.as_ref().map_or(String::new(), |unit| format!(" (in {unit})"));
                        let message =
                            format!("{} holds {shown}; `{name}` must be {wanted}{unit}", excerpt(variable));
                        self.add(at, "bad-env", message, None);
                    }
                    (None, Raw::Text(text)) => {
                        let help = unquoted(name, code, text);
                        self.add(at, code, format!("`{name}` must be {wanted}, not {shown}"), help);
                    }
                    (None, _) => {
                        self.add(at, "wrong-type", format!("`{name}` must be {wanted}, not {shown}"), None);
                    }
                }
            }
            value
        })
    }

    /// A string of the file itself.
    fn plain<P>(&self, field: &Field<Text, P>) -> Got<String> {
        match self.find(field.name).map(|value| (self.place(value), value.get_ref())) {
            None => Got::Absent,
            Some((at, DeValue::String(text))) => Got::Value(text.to_string(), at),
            Some((at, other)) => self.wrong(field.name, at, "a string", &format!("a {}", other.type_str())),
        }
    }

    /// A secret: from the environment, never from the file.
    pub(crate) fn secret<P>(&self, field: &Field<SecretText, P>) -> Option<String> {
        let name = field.name;
        let value = self.find(name)?;
        if let DeValue::Table(table) = value.get_ref()
            && !table.contains_key(env::DEFAULT.name)
        {
            return Text(field::Form::Free).read(self, name).option();
        }
        let help = format!("write `{name} = {{ env = \"NAME\" }}`, without a default");
        self.add(
            self.place(value),
            "secret-in-file",
            format!("`{name}` is written in the schema"),
            Some(help),
        );
        None
    }

    /// A table of strings: names and what they mean, in the order of the file.
    pub(crate) fn meanings<P>(&self, field: &Field<Meanings, P>) -> Vec<(String, String)> {
        let Some((table, _)) = self.subtable(field.name) else { return Vec::new() };
        let mut found = Vec::new();
        for (key, value) in table {
            match value.get_ref() {
                DeValue::String(text) => {
                    found.push((key.span().start, key.get_ref().to_string(), text.to_string()));
                }
                other => {
                    let found = format!("a {}", other.type_str());
                    let message = format!("{} must be a string, not {found}", excerpt(key.get_ref()));
                    self.add(self.place(value), "wrong-type", message, None);
                }
            }
        }
        found.sort();
        found.into_iter().map(|(_, name, meaning)| (name, meaning)).collect()
    }

    /// A table inside this one.
    pub(crate) fn table<P>(&self, field: &Field<Nested, P>) -> Option<Fields<'a, 'i>> {
        let (table, at) = self.subtable(field.name)?;
        let path = format!("{}.{}", self.path, field.name);
        Some(Fields::open(self.report, self.env, field.holds.0, table, path, at))
    }

    fn subtable(&self, name: &str) -> Option<(&'a DeTable<'i>, At)> {
        let value = self.find(name)?;
        let at = self.place(value);
        let DeValue::Table(table) = value.get_ref() else {
            let _: Got<()> = self.wrong(name, at, "a table", &format!("a {}", value.get_ref().type_str()));
            return None;
        };
        Some((table, at))
    }
}

/// What to write instead of a number, or a truth, that stands in quotes.
fn unquoted(name: &str, code: &str, text: &str) -> Option<String> {
    let is_number = text.parse::<f64>().is_ok_and(f64::is_finite);
    match (code, text) {
        ("bad-unit", _) => is_number.then(|| "write its unit, too".to_owned()),
        (_, "true" | "false") => Some(format!("write it without quotes: `{name} = {text}`")),
        _ => is_number.then(|| format!("write it without quotes: `{name} = {text}`")),
    }
}

/// `a`, `b`, `c`
pub(crate) fn listed<'w>(words: impl Iterator<Item = &'w str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
