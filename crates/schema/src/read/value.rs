//! Reading a value by the declared type of its field.

use std::time::Duration;

use toml::de::DeValue;

use super::fields::{Fields, Got, Raw, Scalar, listed};
use super::report::At;
use super::scalar::{duration_unit, parse_count, parse_duration, parse_size, size_unit};
use crate::diagnostic::{excerpt, nearest};
use crate::field::{
    Boolean, Bytes, Choice, Count, Expiry, LONGEST, MILLISECOND, Names, Period, Ratio, Strings, Text, Type,
};
use crate::kind::Word;

/// A type whose values are read from a table.
pub(crate) trait Read: Type {
    type Value;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<Self::Value>;

    /// A default as a value; `at` is the table's place.
    fn value(default: Self::Default, at: At) -> Self::Value;
}

/// How long a key lives, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenTtl {
    Never,
    For(Duration),
}

impl Read for Text {
    type Value = String;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<String> {
        fields.typed(name, "wrong-type", "a string", |scalar| match &scalar.raw {
            Raw::Text(text) | Raw::Env(text) => Some(text.clone()),
            _ => None,
        })
    }

    fn value(default: &'static str, _: At) -> String {
        default.to_owned()
    }
}

impl Read for Boolean {
    type Value = bool;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<bool> {
        fields.typed(name, "wrong-type", "true or false", |scalar| match &scalar.raw {
            Raw::Bool(truth) => Some(*truth),
            Raw::Env(text) => text.parse().ok(),
            _ => None,
        })
    }

    fn value(default: bool, _: At) -> bool {
        default
    }
}

impl Read for Count {
    type Value = u64;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<u64> {
        let got = fields.typed(name, "wrong-type", "a whole number from 0", |scalar| match &scalar.raw {
            Raw::Integer(integer) => u64::try_from(*integer).ok(),
            Raw::Env(text) => parse_count(text),
            _ => None,
        });
        within(fields, name, got, self.least, self.most, |n| n.to_string())
    }

    fn value(default: u64, _: At) -> u64 {
        default
    }
}

impl Read for Ratio {
    type Value = f64;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<f64> {
        fields.typed(name, "wrong-type", "a number from 0 to 1", |scalar| {
            let number = match &scalar.raw {
                Raw::Float(float) => *float,
                Raw::Integer(integer) => *integer as f64,
                Raw::Env(text) => text.parse().ok()?,
                _ => return None,
            };
            (0.0..=1.0).contains(&number).then_some(number)
        })
    }

    fn value(default: f64, _: At) -> f64 {
        default
    }
}

/// A bare number is bytes.
impl Read for Bytes {
    type Value = u64;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<u64> {
        let got = fields.typed(name, "bad-unit", "a size such as \"64KiB\" or \"100MB\"", |scalar| {
            match &scalar.raw {
                Raw::Integer(integer) => {
                    let unit = scalar.unit.as_ref().map_or(Some(1), |unit| size_unit(unit))?;
                    u64::try_from(*integer).ok()?.checked_mul(unit)
                }
                Raw::Text(text) => parse_size(text),
                Raw::Env(text) => match &scalar.unit {
                    Some(unit) => parse_count(text)?.checked_mul(size_unit(unit)?),
                    None => parse_size(text).or_else(|| parse_count(text)),
                },
                _ => None,
            }
        });
        within(fields, name, got, self.least, self.most, |bytes| format!("{bytes} bytes"))
    }

    fn value(default: u64, _: At) -> u64 {
        default
    }
}

impl Read for Period {
    type Value = Duration;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<Duration> {
        let wanted = "a duration such as \"250ms\", \"60s\", \"1h30m\", \"7d\"";
        let got = fields.typed(name, "bad-unit", wanted, duration);
        within(fields, name, got, self.least, self.most, super::duration_text)
    }

    fn value(default: Duration, _: At) -> Duration {
        default
    }
}

/// `never` is read everywhere: a kind whose keys must expire says so better than "wrong type".
impl Read for Expiry {
    type Value = WrittenTtl;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<WrittenTtl> {
        let wanted = "a duration such as \"60s\" or \"24h\", or \"never\"";
        let got = fields.typed(name, "bad-unit", wanted, |scalar| match &scalar.raw {
            Raw::Text(text) | Raw::Env(text) if text == "never" => Some(WrittenTtl::Never),
            _ => duration(scalar).map(WrittenTtl::For),
        });
        let Got::Value(WrittenTtl::For(length), at) = got else { return got };
        within(fields, name, Got::Value(length, at), MILLISECOND, LONGEST, super::duration_text)
            .and_then(|length, _| Some(WrittenTtl::For(length)))
    }

    fn value(default: Duration, _: At) -> WrittenTtl {
        WrittenTtl::For(default)
    }
}

impl<W: Word + Sync + 'static> Read for Choice<W> {
    type Value = W;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<W> {
        let names = || self.0.iter().map(|word| word.word());
        let wanted = format!("one of {}", listed(names()));
        let got = fields.typed(name, "wrong-type", &wanted, |scalar| match &scalar.raw {
            Raw::Text(text) | Raw::Env(text) => Some((text.clone(), scalar.variable.clone())),
            _ => None,
        });
        got.and_then(|(text, variable), at| {
            // Variables are set by whoever runs the program, and are often in capitals as a whole.
            let same = |word: &&W| match variable {
                Some(_) => word.word().eq_ignore_ascii_case(&text),
                None => word.word() == text,
            };
            let found = self.0.iter().find(same).copied();
            if found.is_none() {
                let help = nearest(&text, names()).map(|near| format!("did you mean `{near}`?"));
                let (code, message) = match variable {
                    Some(variable) => {
                        let (variable, text) = (excerpt(&variable), excerpt(&text));
                        ("bad-env", format!("{variable} holds {text}; `{name}` must be {wanted}"))
                    }
                    None => ("bad-value", format!("`{name}` must be {wanted}, not {}", excerpt(&text))),
                };
                fields.add(at, code, message, help);
            }
            found
        })
    }

    fn value(default: W, _: At) -> W {
        default
    }
}

impl Read for Strings {
    type Value = Vec<(String, At)>;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<Vec<(String, At)>> {
        let Some(value) = fields.find(name) else { return Got::Absent };
        let at = fields.place(value);
        let DeValue::Array(array) = value.get_ref() else {
            return fields.wrong(name, at, "a list of strings", &format!("a {}", value.get_ref().type_str()));
        };
        let mut texts = Vec::new();
        for item in array {
            match item.get_ref() {
                DeValue::String(text) => texts.push((text.to_string(), fields.place(item))),
                other => {
                    let found = format!("a list with a {}", other.type_str());
                    return fields.wrong(name, fields.place(item), "a list of strings", &found);
                }
            }
        }
        Got::Value(texts, at)
    }

    fn value(default: &'static [&'static str], at: At) -> Vec<(String, At)> {
        default.iter().map(|text| ((*text).to_owned(), at)).collect()
    }
}

impl Read for Names {
    type Value = Vec<(String, At)>;

    fn read(self, fields: &Fields<'_, '_>, name: &str) -> Got<Vec<(String, At)>> {
        Strings.read(fields, name)
    }

    fn value(default: &'static [&'static str], at: At) -> Vec<(String, At)> {
        Strings::value(default, at)
    }
}

fn within<T: PartialOrd + Copy>(
    fields: &Fields<'_, '_>,
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
        let message = format!("`{name}` must be from {} to {}, not {}", show(least), show(most), show(value));
        fields.add(at, "bad-value", message, None);
        None
    })
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
