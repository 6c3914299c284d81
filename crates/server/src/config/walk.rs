//! Walks a TOML file by hand, so that all problems come at once, each with its line.

use std::cell::RefCell;
use std::time::Duration;

use quaymaster::schema::{Diagnostic, Severity};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::needs::Needs;
use crate::http::problem::{excerpt, nearest};

/// Where settings of the environment come from.
pub type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// A file being read.
pub(super) struct Walk<'t> {
    source: &'t str,
    text: &'t str,
    env: Env<'t>,
    needs: Needs,
    problems: RefCell<Vec<Diagnostic>>,
}

/// A table of the file, with its dotted name.
#[derive(Clone)]
pub(super) struct Table<'w, 't> {
    walk: &'w Walk<'t>,
    name: String,
    entries: &'w DeTable<'t>,
}

/// One scalar, from the file or from the environment.
pub(super) struct Scalar {
    text: String,
    kind: Held,
    from: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Text,
    Integer,
    Float,
    Bool,
}

/// Where a scalar was written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    File,
    Environment,
}

impl<'t> Walk<'t> {
    pub(super) fn new(source: &'t str, text: &'t str, env: Env<'t>, needs: Needs) -> Self {
        Self { source, text, env, needs, problems: RefCell::default() }
    }

    /// The problems found, in the order of their lines.
    pub(super) fn finish(self) -> Vec<Diagnostic> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| (problem.line, problem.column));
        problems
    }

    pub(super) fn report(&self, at: usize, message: impl Into<String>, help: Option<String>) {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        self.problems.borrow_mut().push(Diagnostic {
            severity: Severity::Error,
            code: "config",
            source: self.source.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
            help,
        });
    }

    /// The whole file; syntax errors are reported and what could be read is still looked at.
    pub(super) fn parse(&self) -> Spanned<DeTable<'t>> {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            self.report(error.span().map_or(0, |span| span.start), error.message(), None);
        }
        root
    }

    pub(super) fn root<'w>(&'w self, table: &'w DeTable<'t>, known: &[&str]) -> Table<'w, 't> {
        Table::new(self, String::new(), table, known)
    }
}

impl<'w, 't> Table<'w, 't> {
    fn new(walk: &'w Walk<'t>, name: String, table: &'w DeTable<'t>, known: &[&str]) -> Self {
        for (field, _) in table {
            let word: &str = field.get_ref();
            if !known.contains(&word) {
                let place = if name.is_empty() { "the file".to_owned() } else { format!("[{name}]") };
                let help = match nearest(word, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("there are {}", known.join(", ")),
                };
                walk.report(
                    field.span().start,
                    format!("{place} has no setting {}", excerpt(word)),
                    Some(help),
                );
            }
        }
        Self { walk, name, entries: table }
    }

    fn path(&self, field: &str) -> String {
        if self.name.is_empty() { field.to_owned() } else { format!("{}.{field}", self.name) }
    }

    fn value(&self, field: &str) -> Option<&'w Spanned<DeValue<'t>>> {
        self.entries.get(field)
    }

    /// Whether the file has `field`, whatever it says.
    pub(super) fn has(&self, field: &str) -> bool {
        self.value(field).is_some()
    }

    /// Reports what is wrong with `field`.
    pub(super) fn report(&self, field: &str, message: &str, help: Option<&str>) {
        let at = self.value(field).map_or(0, |value| value.span().start);
        self.walk.report(at, format!("{}: {message}", self.path(field)), help.map(Into::into));
    }

    /// A table within this one.
    pub(super) fn table(&self, field: &str, known: &[&str]) -> Option<Table<'w, 't>> {
        let value = self.value(field)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(Table::new(self.walk, self.path(field), table, known)),
            other => {
                self.report(field, &format!("must be a table, not {}", article(other)), None);
                None
            }
        }
    }

    /// A list of tables, or one table.
    pub(super) fn tables(&self, field: &str, known: &[&str]) -> Vec<Table<'w, 't>> {
        let Some(value) = self.value(field) else { return Vec::new() };
        let items: Vec<&'w Spanned<DeValue<'t>>> = match value.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![value],
        };
        let mut tables = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::Table(table) => tables.push(Table::new(self.walk, self.path(field), table, known)),
                other => {
                    let message = format!("{}: must be a table, not {}", self.path(field), article(other));
                    self.walk.report(
                        item.span().start,
                        message,
                        Some("secrets are written { env = \"NAME\" }".into()),
                    );
                }
            }
        }
        tables
    }

    /// A scalar read by `read`; what it says is wrong is reported here.
    pub(super) fn get<T>(&self, field: &str, read: impl FnOnce(&Scalar) -> Result<T, String>) -> Option<T> {
        let value = self.value(field).filter(|value| self.is_used(field, value.get_ref()))?;
        match self.scalar(value).and_then(|scalar| read(&scalar)) {
            Ok(read) => Some(read),
            Err(message) => {
                self.report(field, &message, None);
                None
            }
        }
    }

    /// A list of texts.
    pub(super) fn texts(&self, field: &str) -> Option<Vec<String>> {
        let value = self.value(field)?;
        let DeValue::Array(items) = value.get_ref() else {
            self.report(field, &format!("must be a list of strings, not {}", article(value.get_ref())), None);
            return None;
        };
        let mut texts = Vec::new();
        for item in items.iter().filter(|item| self.is_used(field, item.get_ref())) {
            match self.scalar(item).and_then(|scalar| scalar.text()) {
                Ok(text) => texts.push(text),
                Err(message) => {
                    self.walk.report(item.span().start, format!("{}: {message}", self.path(field)), None);
                }
            }
        }
        Some(texts)
    }

    /// A secret: the value of the environment variable that `field` names.
    pub(super) fn secret(&self, field: &str) -> Option<String> {
        let scalar = self.get(field, |scalar| match scalar.from {
            Origin::Environment => scalar.text(),
            Origin::File => Err("a secret is not written into a file: use { env = \"NAME\" }".into()),
        })?;
        Some(scalar)
    }

    /// The name of an environment variable, which is the text of `field`, and its value.
    pub(super) fn variable(&self, field: &str) -> Option<(String, String)> {
        if !self.walk.needs.uses(&self.name, field) {
            return None;
        }
        let name = self.get(field, Scalar::text);
        if self.value(field).is_none() {
            self.walk.report(0, format!("{}: env is missing", self.name), None);
        }
        let name = name?;
        let found = (self.walk.env)(&name).filter(|text| !text.is_empty());
        if found.is_none() {
            self.report(field, &format!("the environment variable {name} is not set"), None);
        }
        found.map(|found| (name, found))
    }

    /// False for a variable of a part that nobody uses here.
    fn is_used(&self, field: &str, value: &DeValue<'_>) -> bool {
        let is_variable = matches!(value, DeValue::Table(table) if table.contains_key("env"));
        !is_variable || self.walk.needs.uses(&self.name, field)
    }

    fn scalar(&self, value: &Spanned<DeValue<'t>>) -> Result<Scalar, String> {
        let (text, kind) = match value.get_ref() {
            DeValue::String(text) => (text.to_string(), Held::Text),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => (number.to_string(), Held::Integer),
                Err(_) => return Err("the number is too large".into()),
            },
            DeValue::Float(number) => (number.as_str().to_owned(), Held::Float),
            DeValue::Boolean(yes) => (yes.to_string(), Held::Bool),
            DeValue::Table(table) if table.contains_key("env") => return self.look_up(table),
            other => return Err(format!("must be a single value, not {}", article(other))),
        };
        Ok(Scalar { text, kind, from: Origin::File })
    }

    fn look_up(&self, table: &DeTable<'t>) -> Result<Scalar, String> {
        let Some(name) = table.get("env").and_then(|name| name.get_ref().as_str().map(str::to_owned)) else {
            return Err("env must be the name of a variable".into());
        };
        if let Some((field, _)) =
            table.iter().find(|(field, _)| !matches!(field.get_ref().as_ref(), "env" | "default"))
        {
            return Err(format!("{} is unknown here; there are env and default", excerpt(field.get_ref())));
        }
        match ((self.walk.env)(&name).filter(|text| !text.is_empty()), table.get("default")) {
            (Some(text), _) => Ok(Scalar { text, kind: Held::Text, from: Origin::Environment }),
            (None, Some(default)) if !default.get_ref().is_table() => self.scalar(default),
            (None, Some(_)) => Err("default must be a single value".into()),
            (None, None) => {
                Err(format!("the environment variable {name} is not set, and there is no default"))
            }
        }
    }
}

fn article(value: &DeValue<'_>) -> String {
    let kind = value.type_str();
    if kind.starts_with(['a', 'i']) { format!("an {kind}") } else { format!("a {kind}") }
}

impl Scalar {
    pub(super) fn origin(&self) -> Origin {
        self.from
    }

    pub(super) fn text(&self) -> Result<String, String> {
        match self.kind {
            Held::Text if self.text.is_empty() => Err("must not be empty".into()),
            Held::Text => Ok(self.text.clone()),
            _ => Err(format!("must be a string, not {}", self.text)),
        }
    }

    pub(super) fn bool(&self) -> Result<bool, String> {
        match self.text.as_str() {
            "true" if self.is(Held::Bool) => Ok(true),
            "false" if self.is(Held::Bool) => Ok(false),
            _ => Err("must be true or false".into()),
        }
    }

    /// An integer from `low`.
    pub(super) fn integer(&self, low: u64) -> Result<u64, String> {
        let number = self.is(Held::Integer).then(|| self.text.parse::<u64>().ok()).flatten();
        number.filter(|number| *number >= low).ok_or_else(|| format!("must be an integer of at least {low}"))
    }

    /// A share between 0 and 1.
    pub(super) fn share(&self) -> Result<f64, String> {
        let number = (self.kind != Held::Bool).then(|| self.text.parse::<f64>().ok()).flatten();
        number
            .filter(|number| (0.0..=1.0).contains(number))
            .ok_or_else(|| "must be a number from 0 to 1".into())
    }

    /// `250ms`, `10s`, `5m`, `2h`, `7d`.
    pub(super) fn duration(&self) -> Result<Duration, String> {
        const WANTED: &str = "must be a duration such as \"250ms\", \"10s\", \"5m\", \"2h\" or \"7d\", and longer than nothing";
        let text = self.text().map_err(|_| WANTED.to_owned())?;
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale = match unit {
            "us" | "µs" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            _ => return Err(WANTED.into()),
        };
        let micros = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
        micros.filter(|micros| *micros > 0).map(Duration::from_micros).ok_or_else(|| WANTED.into())
    }

    /// `65536`, `64KiB`, `1MiB`, `1MB`.
    pub(super) fn bytes(&self) -> Result<u64, String> {
        const WANTED: &str = "must be a size such as 65536, \"64KiB\" or \"1MiB\", of at least 1 byte";
        size(&self.text).filter(|bytes| *bytes > 0).ok_or_else(|| WANTED.into())
    }

    /// The same, and 0 for no bound.
    pub(super) fn bytes_or_none(&self) -> Result<u64, String> {
        size(&self.text).ok_or_else(|| SIZE_OR_NONE.into())
    }

    /// The environment has no types: there a number is written as text.
    fn is(&self, kind: Held) -> bool {
        self.kind == kind || self.from == Origin::Environment
    }
}

/// What a size that may be none looks like.
pub(super) const SIZE_OR_NONE: &str = "must be a size such as \"512MiB\" or \"4GiB\", or 0 for no bound";

/// `65536`, `64KiB`, `1MiB`, `1MB`.
pub(super) fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "" | "B" => 1,
        "KB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale))
}
