//! Fields that every kind has, and the frame in which a kind reads its own.

use std::time::Duration;

use super::draft::{ChannelDraft, Draft, Reference};
use super::fields::{Fields, Got, listed};
use super::report::At;
use super::value::WrittenTtl;
use crate::field::Spec;
use crate::field::{self, Expiry, Form, Meanings, Optional, Or, Required, Text, common};
use crate::keys::RowDraft;
use crate::kind::Kind;
use crate::pattern::{Fault, Template};
use crate::schema::{Document, Field, Ttl};

/// A resource being read.
pub(crate) struct Reading<'a, 'i> {
    pub(crate) fields: Fields<'a, 'i>,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) document: &'a Document,
    pub(crate) document_index: usize,
    pub(crate) references: Vec<Reference>,
}

/// What a kind makes of its own fields.
pub(crate) struct Body {
    pub(crate) spec: Spec,
    pub(crate) rows: Vec<RowDraft>,
    pub(crate) channels: Vec<ChannelDraft>,
    /// The hash tag unless `colocate` names another.
    pub(crate) tag: Template,
    pub(crate) key_at: At,
    /// The placeholder that may contain `:` unless `colon` names another.
    pub(crate) wide: Option<String>,
}

impl Body {
    /// A resource of which the first row is the primary key and gives the tag.
    pub(crate) fn new(spec: Spec, rows: Vec<RowDraft>, key_at: At) -> Self {
        let primary = rows.first().map(|row| row.template.clone()).unwrap_or_default();
        let wide = primary.names().last().map(str::to_owned);
        Self { spec, rows, channels: Vec::new(), tag: primary.without_bucket(), key_at, wide }
    }
}

impl Reading<'_, '_> {
    pub(crate) fn add(&self, at: At, code: &'static str, message: impl Into<String>, help: Option<&str>) {
        self.fields.add(at, code, message, help.map(str::to_owned));
    }

    /// A pattern with the document's prefix in front.
    pub(crate) fn pattern(&self, text: &str, at: At) -> Option<Template> {
        match Template::parse(&format!("{}{text}", self.document.prefix)) {
            Ok(template) => Some(template),
            Err(Fault { code, message }) => {
                self.add(at, code, format!("[{}] {message}", self.fields.path), None);
                None
            }
        }
    }

    /// A required pattern.
    pub(crate) fn key(&self, field: &field::Field<Text, Required>) -> Option<(Template, At)> {
        let (text, at) = self.fields.required(field)?;
        Some((self.pattern(&text, at)?, at))
    }

    /// A pattern with a declared default.
    pub(crate) fn key_or_default(
        &self,
        field: &field::Field<Text, Or<&'static str>>,
    ) -> Option<(Template, At)> {
        self.key_or(field, field.presence.0)
    }

    /// A pattern whose default follows from something else.
    pub(crate) fn key_or<P>(&self, field: &field::Field<Text, P>, default: &str) -> Option<(Template, At)> {
        let (text, at) = match self.fields.read(field) {
            Got::Value(text, at) => (text, at),
            Got::Bad => return None,
            Got::Absent => (default.to_owned(), self.fields.at),
        };
        Some((self.pattern(&text, at)?, at))
    }

    /// A name of letters, digits, `.`, `_` and `-`, as long as its field says. Whoever uses another one refuses it later.
    pub(crate) fn label(&self, field: &field::Field<Text, Or<&'static str>>) -> Option<String> {
        let (text, at) = self.fields.placed(field);
        let most = match field.holds.0 {
            Form::Label(most) => most,
            _ => usize::MAX,
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if (1..=most).contains(&text.len()) && text.chars().all(plain) && !matches!(text.as_str(), "." | "..")
        {
            return Some(text);
        }
        let message = format!("`{}` has 1 to {most} letters, digits, `.`, `_` and `-`", field.name);
        self.add(at, "bad-value", message, None);
        None
    }

    /// A `ttl` that is a duration, required when there is no default.
    pub(crate) fn lifetime<P>(
        &self,
        field: &field::Field<Expiry, P>,
        default: Option<Duration>,
    ) -> Option<(Duration, At)> {
        match self.fields.read(field) {
            Got::Value(WrittenTtl::For(ttl), at) => Some((ttl, at)),
            Got::Value(WrittenTtl::Never, at) => {
                let message = format!("the key of a {} must expire", self.kind);
                self.add(at, "no-ttl", message, Some("give a duration"));
                None
            }
            Got::Bad => None,
            Got::Absent => match default {
                Some(ttl) => Some((ttl, self.fields.at)),
                None => self.no_ttl(),
            },
        }
    }

    fn no_ttl<T>(&self) -> Option<T> {
        let message = format!("[{}] has no `ttl`", self.fields.path);
        let help = match self.kind {
            Kind::Cache | Kind::Key => "give a duration, or `ttl = \"never\"` and a `why`",
            _ => "give a duration",
        };
        self.add(self.fields.at, "no-ttl", message, Some(help));
        None
    }

    /// A `ttl` that may be `never`, if the schema says why.
    pub(crate) fn ttl(
        &self,
        field: &field::Field<Expiry, Required>,
        why: &field::Field<Text, Optional>,
    ) -> Option<Ttl> {
        let why = self.fields.read(why);
        match self.fields.read(field) {
            Got::Bad => None,
            Got::Absent => self.no_ttl(),
            Got::Value(WrittenTtl::For(ttl), _) => {
                if let Got::Value(_, at) = why {
                    self.add(
                        at,
                        "contradiction",
                        "`why` explains `ttl = \"never\"`, but this key expires",
                        None,
                    );
                }
                Some(Ttl::For(ttl))
            }
            Got::Value(WrittenTtl::Never, at) => match why {
                Got::Value(why, _) if !why.trim().is_empty() => Some(Ttl::Never(why)),
                Got::Bad => None,
                _ => {
                    let message = "a key that never expires must say why";
                    self.add(at, "no-ttl", message, Some("add `why = \"…\"`: what bounds it?"));
                    None
                }
            },
        }
    }

    /// The documented fields of the value.
    pub(crate) fn documented_fields(&self, field: &field::Field<Meanings, Optional>) -> Vec<Field> {
        let meanings = self.fields.meanings(field).into_iter();
        meanings.map(|(name, meaning)| Field { name, meaning }).collect()
    }

    /// Remembers a reference to another resource, to be checked when all are known.
    pub(crate) fn refer(&mut self, kind: Kind, name: &str, at: At) {
        self.references.push(Reference { kind, name: name.to_owned(), at });
    }

    /// Adds the fields of every resource.
    pub(crate) fn finish(self, body: Option<Body>) -> Option<Draft> {
        let fields = &self.fields;
        let on_outage = fields.or_default(common::on_outage(self.kind));
        let owner = fields.read(&common::OWNER).option().or_else(|| self.document.owner.clone());
        let description = fields.read(&common::DESCRIPTION).option();
        let sensitive = fields.or_default(&common::SENSITIVE);
        let colocate = match fields.read(&common::COLOCATE) {
            Got::Value(text, at) => match Template::parse(&text) {
                Ok(template) if template.bucket().is_none() => Some((template, at)),
                Ok(_) => {
                    self.add(at, "bad-pattern", "a hash tag has no time bucket", None);
                    None
                }
                Err(fault) => {
                    self.add(at, fault.code, format!("`colocate`: {}", fault.message), None);
                    None
                }
            },
            _ => None,
        };
        let colon = fields.read(&common::COLON);
        let body = body?;
        let mut draft = Draft {
            kind: self.kind,
            name: self.name,
            document: self.document_index,
            prefix: self.document.prefix.clone(),
            at: fields.at,
            key_at: body.key_at,
            owner,
            description,
            on_outage,
            tag: colocate.as_ref().map_or(body.tag, |(template, _)| template.clone()),
            colocate,
            sensitive,
            spec: body.spec,
            rows: body.rows,
            channels: body.channels,
            references: self.references,
            wide: body.wide,
            wide_pinned: false,
            forbidden: std::collections::BTreeMap::new(),
        };
        if let Got::Value(name, at) = colon {
            pin_colon(fields, &mut draft, name, at);
        }
        check_text(fields, &draft);
        check_tag(fields, &draft);
        check_reserved(fields, &draft);
        Some(draft)
    }
}

/// `colon = "run_id"` (or `""` for none) takes the choice from the loader.
fn pin_colon(fields: &Fields<'_, '_>, draft: &mut Draft, name: String, at: At) {
    draft.wide_pinned = true;
    if name.is_empty() {
        draft.wide = None;
        return;
    }
    let known: Vec<&str> = draft.rows.first().map(|row| row.template.names().collect()).unwrap_or_default();
    if known.contains(&name.as_str()) {
        draft.wide = Some(name);
    } else {
        let message =
            format!("`colon` names {}, which the key does not have", crate::diagnostic::excerpt(&name));
        fields.add(at, "bad-value", message, Some(format!("it has {}", listed(known.into_iter()))));
    }
}

/// A key of placeholders alone is every key there is: whatever another program writes looks like it.
fn check_text(fields: &Fields<'_, '_>, draft: &Draft) {
    let Some(primary) = draft.rows.first() else { return };
    let spelled = draft.single(primary).text();
    let mut depth = 0;
    let has_text = spelled.chars().any(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0 && c.is_alphanumeric()
    });
    if !has_text {
        let message = format!("the key `{spelled}` has no text of its own: it matches keys of anybody");
        let help = format!("put a word in front, as in `{}:{spelled}`", draft.name);
        fields.add(draft.key_at, "matches-everything", message, Some(help));
    }
}

/// On a cluster every key carries the tag, so every key must have the tag's placeholders.
fn check_tag(fields: &Fields<'_, '_>, draft: &Draft) {
    let Some((tag, at)) = &draft.colocate else { return };
    for row in &draft.rows {
        if let Some(missing) = tag.names().find(|name| !row.template.names().any(|known| known == *name)) {
            let message = format!(
                "the hash tag `{}` needs `{{{missing}}}`, which the key `{}` does not have",
                tag.text(),
                draft.single(row).text()
            );
            let help = "use a placeholder that all keys of the resource have, or a constant".to_owned();
            fields.add(*at, "colocate-placeholder", message, Some(help));
            return;
        }
    }
}

/// Side keys extend the key by placeholders of their own; the key may not have one of these names.
fn check_reserved(fields: &Fields<'_, '_>, draft: &Draft) {
    let Some((primary, others)) = draft.rows.split_first() else { return };
    let reserved = |name: &&str| others.iter().flat_map(|row| &row.classes).any(|(known, _)| known == name);
    if let Some(name) = primary.template.names().find(reserved) {
        reserved_placeholder(fields, draft.key_at, name);
    }
}

pub(crate) fn reserved_placeholder(fields: &Fields<'_, '_>, at: At, name: &str) {
    let message = format!("[{}] has other keys with a `{{{name}}}` of their own", fields.path);
    fields.add(at, "reserved-placeholder", message, Some("give this placeholder another name".to_owned()));
}
