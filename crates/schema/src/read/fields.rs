//! Reading the fields of one table: typed, with spans, all problems collected.

use std::cell::RefCell;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::{At, Report};
use super::scalar::{duration_unit, parse_count, parse_duration, parse_size, size_unit};
use crate::diagnostic::{excerpt, nearest};
use crate::kind::Word;

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
    /// The value, or `default`: an absent field has it, and a bad one was reported.
    pub(crate) fn or(self, default: T) -> T {
        self.option().unwrap_or(default)
    }

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

    /// Reports an absent field as missing.
    pub(crate) fn required(self, fields: &Fields<'_, '_>, name: &str) -> Option<(T, At)> {
        match self {
            Got::Value(value, at) => Some((value, at)),
            Got::Bad => None,
            Got::Absent => {
                fields.add(fields.at, "missing-field", format!("[{}] has no `{name}`", fields.path), None);
                None
            }
        }
    }

    fn and_then<U>(self, convert: impl FnOnce(T, At) -> Option<U>) -> Got<U> {
        match self {
            Got::Absent => Got::Absent,
            Got::Bad => Got::Bad,
            Got::Value(value, at) => convert(value, at).map_or(Got::Bad, |value| Got::Value(value, at)),
        }
    }
}

/// How long a key lives, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenTtl {
    Never,
    For(Duration),
}

/// A scalar, from the file or from the environment.
struct Scalar {
    raw: Raw,
    /// The variable it came from.
    variable: Option<String>,
    unit: Option<String>,
}

enum Raw {
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
    pub(crate) table: &'a DeTable<'i>,
    /// As in `[limit.psp]`.
    pub(crate) path: String,
    /// The table's own place.
    pub(crate) at: At,
    pub(crate) known: RefCell<Vec<&'static str>>,
}

impl<'a, 'i> Fields<'a, 'i> {
    pub(crate) fn add(&self, at: At, code: &'static str, message: impl Into<String>, help: Option<String>) {
        self.report.add(at, code, message, help);
    }

    fn place<T>(&self, spanned: &Spanned<T>) -> At {
        At { source: self.at.source, offset: spanned.span().start }
    }

    fn take(&self, name: &'static str) -> Option<&'a Spanned<DeValue<'i>>> {
        self.known.borrow_mut().push(name);
        self.table.get(name)
    }

    /// Reports the fields nobody has asked for.
    pub(crate) fn finish(&self) {
        let known = self.known.borrow();
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let help = match nearest(name, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("its fields are {}", listed(known.iter().copied())),
                };
                let message = format!("[{}] has no field {}", self.path, excerpt(name));
                self.add(self.place(key), "unknown-field", message, Some(help));
            }
        }
    }

    fn wrong<T>(&self, name: &str, at: At, wanted: &str, found: &str) -> Got<T> {
        self.add(at, "wrong-type", format!("`{name}` must be {wanted}, not {found}"), None);
        Got::Bad
    }

    fn scalar(&self, name: &'static str, wanted: &str) -> Got<Scalar> {
        let Some(value) = self.take(name) else { return Got::Absent };
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
        let inner = Fields {
            report: self.report,
            env: self.env,
            table,
            path: format!("{}.{name}", self.path),
            at,
            known: RefCell::default(),
        };
        let word = |field: &'static str| match inner
            .take(field)
            .map(|value| (inner.place(value), value.get_ref()))
        {
            None => Got::Absent,
            Some((at, DeValue::String(text))) => Got::Value(text.to_string(), at),
            Some((at, other)) => inner.wrong(field, at, "a string", &format!("a {}", other.type_str())),
        };
        let (variable, unit) = (word("env"), word("unit"));
        let default = inner.take("default");
        inner.finish();
        if let Got::Value(unit, at) = &unit
            && duration_unit(unit).is_none()
            && size_unit(unit).is_none()
        {
            let help = "units are ms, s, m, h, d and B, KiB, MiB, GiB, KB, MB, GB".to_owned();
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
            self.add(at, "env-unset", message, Some("set it, or give a `default`".to_owned()));
            return Got::Bad;
        };
        if matches!(default.get_ref(), DeValue::Table(_)) {
            return self.wrong("default", at, wanted, "a table");
        }
        self.scalar_of(name, wanted, default).and_then(|scalar, _| Some(Scalar { unit, ..scalar }))
    }

    /// Reads a scalar with `read`; what it cannot read is reported as `code`, or as the variable's fault.
    fn typed<T>(
        &self,
        name: &'static str,
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
                    (None, Raw::Text(_)) => {
                        self.add(at, code, format!("`{name}` must be {wanted}, not {shown}"), None);
                    }
                    (None, _) => {
                        self.add(at, "wrong-type", format!("`{name}` must be {wanted}, not {shown}"), None);
                    }
                }
            }
            value
        })
    }

    pub(crate) fn text(&self, name: &'static str) -> Got<String> {
        self.typed(name, "wrong-type", "a string", |scalar| match &scalar.raw {
            Raw::Text(text) | Raw::Env(text) => Some(text.clone()),
            _ => None,
        })
    }

    /// A secret: from the environment, never from the file.
    pub(crate) fn secret(&self, name: &'static str) -> Option<String> {
        let Some(value) = self.table.get(name) else {
            self.known.borrow_mut().push(name);
            return None;
        };
        if let DeValue::Table(table) = value.get_ref()
            && !table.contains_key("default")
        {
            return self.text(name).option();
        }
        self.known.borrow_mut().push(name);
        let help = format!("write `{name} = {{ env = \"NAME\" }}`, without a default");
        self.add(
            self.place(value),
            "secret-in-file",
            format!("`{name}` is written in the schema"),
            Some(help),
        );
        None
    }

    pub(crate) fn truth(&self, name: &'static str) -> Got<bool> {
        self.typed(name, "wrong-type", "true or false", |scalar| match &scalar.raw {
            Raw::Bool(truth) => Some(*truth),
            Raw::Env(text) => text.parse().ok(),
            _ => None,
        })
    }

    /// An integer within `[least, most]`.
    pub(crate) fn count(&self, name: &'static str, least: u64, most: u64) -> Got<u64> {
        let got = self.typed(name, "wrong-type", "a whole number from 0", |scalar| match &scalar.raw {
            Raw::Integer(integer) => u64::try_from(*integer).ok(),
            Raw::Env(text) => parse_count(text),
            _ => None,
        });
        self.within(name, got, least, most, |n| n.to_string())
    }

    /// A number from 0 to 1.
    pub(crate) fn ratio(&self, name: &'static str) -> Got<f64> {
        self.typed(name, "wrong-type", "a number from 0 to 1", |scalar| {
            let number = match &scalar.raw {
                Raw::Float(float) => *float,
                Raw::Integer(integer) => *integer as f64,
                Raw::Env(text) => text.parse().ok()?,
                _ => return None,
            };
            (0.0..=1.0).contains(&number).then_some(number)
        })
    }

    pub(crate) fn duration(&self, name: &'static str, least: Duration, most: Duration) -> Got<Duration> {
        let got = self.typed(
            name,
            "bad-unit",
            "a duration such as \"250ms\", \"60s\", \"1h30m\", \"7d\"",
            duration,
        );
        self.within(name, got, least, most, super::duration_text)
    }

    pub(crate) fn ttl(&self, name: &'static str, least: Duration, most: Duration) -> Got<WrittenTtl> {
        let got =
            self.typed(name, "bad-unit", "a duration such as \"60s\" or \"24h\", or \"never\"", |scalar| {
                match &scalar.raw {
                    Raw::Text(text) | Raw::Env(text) if text == "never" => Some(WrittenTtl::Never),
                    _ => duration(scalar).map(WrittenTtl::For),
                }
            });
        match got {
            Got::Value(WrittenTtl::For(length), at) => {
                match self.within(name, Got::Value(length, at), least, most, super::duration_text) {
                    Got::Value(length, at) => Got::Value(WrittenTtl::For(length), at),
                    _ => Got::Bad,
                }
            }
            other => other,
        }
    }

    /// A size in bytes; a bare number is bytes.
    pub(crate) fn size(&self, name: &'static str, least: u64, most: u64) -> Got<u64> {
        let got =
            self.typed(name, "bad-unit", "a size such as \"64KiB\" or \"100MB\"", |scalar| {
                match &scalar.raw {
                    Raw::Integer(integer) => {
                        u64::try_from(*integer).ok()?.checked_mul(unit(scalar, size_unit, 1)?)
                    }
                    Raw::Text(text) => parse_size(text),
                    Raw::Env(text) => match &scalar.unit {
                        Some(unit) => parse_count(text)?.checked_mul(size_unit(unit)?),
                        None => parse_size(text).or_else(|| parse_count(text)),
                    },
                    _ => None,
                }
            });
        self.within(name, got, least, most, |bytes| format!("{bytes} bytes"))
    }

    fn within<T: PartialOrd + Copy>(
        &self,
        name: &str,
        got: Got<T>,
        least: T,
        most: T,
        show: impl Fn(T) -> String,
    ) -> Got<T> {
        got.and_then(|value, at| {
            if value >= least && value <= most {
                return Some(value);
            }
            let message =
                format!("`{name}` must be from {} to {}, not {}", show(least), show(most), show(value));
            self.add(at, "bad-value", message, None);
            None
        })
    }

    /// One of a vocabulary's words.
    pub(crate) fn word<W: Word>(&self, name: &'static str, allowed: &[W]) -> Got<W> {
        let names: Vec<&str> = allowed.iter().map(|word| word.word()).collect();
        let wanted = format!("one of {}", listed(names.iter().copied()));
        let got = self.typed(name, "wrong-type", &wanted, |scalar| match &scalar.raw {
            Raw::Text(text) | Raw::Env(text) => Some((text.clone(), scalar.variable.clone())),
            _ => None,
        });
        got.and_then(|(text, variable), at| {
            let found = allowed.iter().copied().find(|word| word.word() == text);
            if found.is_none() {
                let help =
                    nearest(&text, names.iter().copied()).map(|near| format!("did you mean `{near}`?"));
                match variable {
                    Some(variable) => {
                        let message = format!(
                            "{} holds {}; `{name}` must be {wanted}",
                            excerpt(&variable),
                            excerpt(&text)
                        );
                        self.add(at, "bad-env", message, help);
                    }
                    None => {
                        let message = format!("`{name}` must be {wanted}, not {}", excerpt(&text));
                        self.add(at, "bad-value", message, help);
                    }
                }
            }
            found
        })
    }

    /// A list of strings.
    pub(crate) fn texts(&self, name: &'static str) -> Got<Vec<(String, At)>> {
        let Some(value) = self.take(name) else { return Got::Absent };
        let at = self.place(value);
        let DeValue::Array(array) = value.get_ref() else {
            return self.wrong(name, at, "a list of strings", &format!("a {}", value.get_ref().type_str()));
        };
        let mut texts = Vec::new();
        for item in array {
            match item.get_ref() {
                DeValue::String(text) => texts.push((text.to_string(), self.place(item))),
                other => {
                    let found = format!("a list with a {}", other.type_str());
                    return self.wrong(name, self.place(item), "a list of strings", &found);
                }
            }
        }
        Got::Value(texts, at)
    }

    /// A table of strings: names and what they mean, in the order of the file.
    pub(crate) fn meanings(&self, name: &'static str) -> Vec<(String, String)> {
        let Some(inner) = self.table(name) else { return Vec::new() };
        let mut found = Vec::new();
        for (key, value) in inner.table {
            match value.get_ref() {
                DeValue::String(text) => {
                    found.push((key.span().start, key.get_ref().to_string(), text.to_string()));
                }
                other => {
                    let found = format!("a {}", other.type_str());
                    let message = format!("{} must be a string, not {found}", excerpt(key.get_ref()));
                    self.add(inner.place(value), "wrong-type", message, None);
                }
            }
        }
        found.sort();
        found.into_iter().map(|(_, name, meaning)| (name, meaning)).collect()
    }

    /// A table inside this one.
    pub(crate) fn table(&self, name: &'static str) -> Option<Fields<'a, 'i>> {
        let value = self.take(name)?;
        let at = self.place(value);
        let DeValue::Table(table) = value.get_ref() else {
            let _: Got<()> = self.wrong(name, at, "a table", &format!("a {}", value.get_ref().type_str()));
            return None;
        };
        let path = format!("{}.{name}", self.path);
        Some(Fields { report: self.report, env: self.env, table, path, at, known: RefCell::default() })
    }
}

/// The unit of a scalar, or `default` when it has none; `None` when it is not one of these units.
fn unit(scalar: &Scalar, known: impl Fn(&str) -> Option<u64>, default: u64) -> Option<u64> {
    scalar.unit.as_ref().map_or(Some(default), |unit| known(unit))
}

fn duration(scalar: &Scalar) -> Option<Duration> {
    let of = |amount: u64| {
        let unit = duration_unit(scalar.unit.as_deref()?)?;
        amount.checked_mul(unit).map(Duration::from_millis)
    };
    match &scalar.raw {
        Raw::Text(text) => parse_duration(text),
        Raw::Integer(integer) => of(u64::try_from(*integer).ok()?),
        // A variable named …_HOURS holds a bare number; one without a declared unit carries its own.
        Raw::Env(text) if scalar.unit.is_some() => of(parse_count(text)?),
        Raw::Env(text) => parse_duration(text),
        Raw::Float(_) | Raw::Bool(_) => None,
    }
}

/// `a`, `b`, `c`
pub(crate) fn listed<'w>(words: impl Iterator<Item = &'w str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
