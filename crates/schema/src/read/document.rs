//! Reading one file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::common::Reading;
use super::draft::Draft;
use super::fields::{Fields, Got, listed};
use super::report::{At, Report};
use crate::Source;
use crate::diagnostic::{excerpt, nearest};
use crate::field::document::{self as declared, POLICIES};
use crate::field::{read_body, table_of};
use crate::kind::Kind;
use crate::pattern::Template;
use crate::schema::Document;

/// The largest source, in bytes.
const LARGEST: usize = 1 << 20;

/// What one source holds.
pub(crate) struct File {
    pub(crate) document: Document,
    /// Where `[schema]` is.
    pub(crate) at: At,
    pub(crate) drafts: Vec<Draft>,
    /// Every resource it names, also those that could not be read.
    pub(crate) declared: Vec<(Kind, String)>,
    /// It could not be read, so nobody knows what it declares.
    pub(crate) broken: bool,
}

/// Reads one source; every problem goes to `report`.
pub(crate) fn read(
    index: usize,
    source: &Source<'_>,
    env: &dyn Fn(&str) -> Option<String>,
    report: &Report<'_>,
) -> File {
    let start = At { source: index, offset: 0 };
    if source.text.len() > LARGEST {
        let message = format!("the file has {} bytes; a schema has at most 1 MiB", source.text.len());
        report.add(start, "too-large", message, Some("split it; several files load together".to_owned()));
        let (document, at) = head(index, source, &DeTable::new(), env, report);
        return File { document, at, drafts: Vec::new(), declared: Vec::new(), broken: true };
    }
    let (tree, errors) = DeTable::parse_recoverable(source.text);
    for error in &errors {
        let (message, help) = syntax(error, source.text);
        let offset = error.span().map_or(0, |span| span.start);
        report.add(At { source: index, offset }, "toml-syntax", message, help);
    }
    let tree = tree.get_ref();
    let empty = DeTable::new();
    // What could be recovered from a broken file would be reported as missing or mistyped: noise.
    let tree = if errors.is_empty() { tree } else { &empty };

    let (document, at) = head(index, source, tree, env, report);
    let mut drafts = Vec::new();
    let mut declared = Vec::new();
    for (key, value) in tree {
        let word = key.get_ref().as_ref();
        if word == "schema" {
            continue;
        }
        let at = At { source: index, offset: key.span().start };
        let Ok(kind) = word.parse::<Kind>() else {
            let names = || Kind::ALL.iter().map(|kind| kind.name()).chain(["schema"]);
            let help = match nearest(word, names()) {
                Some(near) => format!("did you mean `[{near}]`?"),
                None => format!("the kinds are {}", listed(names())),
            };
            report.add(at, "unknown-kind", format!("there is no kind {}", excerpt(word)), Some(help));
            continue;
        };
        let DeValue::Table(resources) = value.get_ref() else {
            let message = format!(
                "`{kind}` must be tables such as [{kind}.name], not a {}",
                value.get_ref().type_str()
            );
            report.add(at, "wrong-type", message, None);
            continue;
        };
        for (key, value) in resources {
            let frame = Frame { index, kind, document: &document, env, report };
            declared.push((kind, key.get_ref().to_string()));
            drafts.extend(frame.resource(key, value));
        }
    }
    drafts.sort_by_key(|draft| draft.at);
    if errors.is_empty() && drafts.is_empty() && tree.is_empty() {
        report.add(start, "missing-field", "the schema declares nothing", None);
    }
    File { document, at, drafts, declared, broken: !errors.is_empty() }
}

/// What TOML says is wrong; of what is there twice, also what that is.
fn syntax(error: &toml::de::Error, text: &str) -> (String, Option<String>) {
    match error.span().and_then(|span| text.get(span)).filter(|_| is_duplicate(error.message())) {
        Some(name) => {
            let help = "a table, and a field of one, is written once: join the two, or rename one";
            (format!("{} is declared twice", excerpt(name)), Some(help.to_owned()))
        }
        None => (error.message().trim().to_owned(), None),
    }
}

/// Whether a key is there twice. TOML's reader has no kinds of errors, only words: a test holds them against all ways to
/// write a key twice.
fn is_duplicate(message: &str) -> bool {
    message.starts_with("duplicate key")
}

struct Frame<'a> {
    index: usize,
    kind: Kind,
    document: &'a Document,
    env: &'a dyn Fn(&str) -> Option<String>,
    report: &'a Report<'a>,
}

impl<'a> Frame<'a> {
    fn resource<'i>(
        &self,
        key: &'a Spanned<std::borrow::Cow<'i, str>>,
        value: &'a Spanned<DeValue<'i>>,
    ) -> Option<Draft> {
        let Frame { index, kind, document, env, report } = *self;
        let at = At { source: index, offset: key.span().start };
        let name = key.get_ref().as_ref();
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(letters) {
            let message = format!("{} is not a name: 1 to 64 letters, digits, `_` and `-`", excerpt(name));
            report.add(at, "bad-name", message, None);
            return None;
        }
        let DeValue::Table(table) = value.get_ref() else {
            let message = format!("`{kind}.{name}` must be a table, not a {}", value.get_ref().type_str());
            let help = Some(format!("write [{kind}.name] and its fields below"));
            report.add(at, "wrong-type", message, help);
            return None;
        };
        let fields = Fields::open(report, env, table_of(kind), table, format!("{kind}.{name}"), at);
        let mut reading = Reading {
            fields,
            kind,
            name: name.to_owned(),
            document,
            document_index: index,
            references: Vec::new(),
        };
        let body = read_body(&mut reading);
        reading.finish(body)
    }
}

/// `[schema]`; a file without it is named after itself.
fn head(
    index: usize,
    source: &Source<'_>,
    tree: &DeTable<'_>,
    env: &dyn Fn(&str) -> Option<String>,
    report: &Report<'_>,
) -> (Document, At) {
    let mut at = At { source: index, offset: 0 };
    let stem = source.name.rsplit(['/', '\\']).next().unwrap_or(source.name);
    let mut document = Document {
        name: stem.strip_suffix(".toml").unwrap_or(stem).to_owned(),
        owner: None,
        description: None,
        prefix: String::new(),
        eviction: None,
        source: source.name.to_owned(),
    };
    let Some(value) = tree.get("schema") else { return (document, at) };
    at.offset = value.span().start;
    let DeValue::Table(table) = value.get_ref() else {
        report.add(
            at,
            "wrong-type",
            format!("`schema` must be a table, not a {}", value.get_ref().type_str()),
            None,
        );
        return (document, at);
    };
    let fields = Fields::open(report, env, &declared::TABLE, table, "schema".to_owned(), at);
    if let Got::Value(name, at) = fields.read(&declared::NAME) {
        if name.is_empty() {
            report.add(at, "bad-value", "`name` is empty", None);
        }
        document.name = name;
    }
    document.owner = fields.read(&declared::OWNER).option();
    document.description = fields.read(&declared::DESCRIPTION).option();
    if let Got::Value(prefix, at) = fields.read(&declared::PREFIX) {
        document.prefix = check_prefix(prefix, at, report);
    }
    if let Got::Value(policy, at) = fields.read(&declared::EVICTION) {
        if POLICIES.contains(&policy.as_str()) {
            document.eviction = Some(policy);
        } else {
            let help =
                nearest(&policy, POLICIES.iter().copied()).map(|near| format!("did you mean `{near}`?"));
            report.add(at, "bad-value", format!("{} is not an eviction policy", excerpt(&policy)), help);
        }
    }
    (document, at)
}

fn check_prefix(prefix: String, at: At, report: &Report<'_>) -> String {
    if prefix.is_empty() {
        return prefix;
    }
    // With a word behind it, as it always stands: separators alone are a prefix, but no key.
    match Template::parse(&format!("{prefix}x")) {
        Ok(template) if template.names().next().is_some() || template.bucket().is_some() => {
            report.add(at, "bad-pattern", "`prefix` has no placeholders", None);
            String::new()
        }
        Err(fault) => {
            report.add(at, fault.code, format!("`prefix`: {}", fault.message), None);
            String::new()
        }
        Ok(_) => {
            if prefix.ends_with(|c: char| c.is_alphanumeric()) {
                let message =
                    format!("the prefix {} runs into the first word of every key", excerpt(&prefix));
                report.add(at, "prefix-separator", message, Some(format!("write `{prefix}:`")));
            }
            prefix
        }
    }
}
