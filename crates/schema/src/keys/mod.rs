//! The key tables: which keys a resource has, what they hold, how long they live.
//!
//! Documented keys are spelled as the documents spell them. Everything else Quaymaster needs is a side key,
//! `{primary}:role`, whose hash tag is the primary key, so that it shares the primary's slot on a cluster. The schema's
//! prefix stands in front of the brace, `ha:{ha:rate_limit:x}:req:R1`; drafts put it there.

mod event;
mod pipeline;
mod queue;
mod simple;
mod stats;
mod upload;

pub(crate) use event::{PUBLISH_ID, event_rows};
pub(crate) use pipeline::{batch_rows, run_rows};
pub(crate) use queue::queue_rows;
pub(crate) use simple::{idempotency_rows, limit_rows};
pub(crate) use stats::stats_rows;
pub(crate) use upload::{ChannelFacts, upload_channels, upload_rows};

use std::time::Duration;

use crate::kind::RedisType;
use crate::pattern::{Class, Template};
use crate::schema::{Field, Ttl};

/// How long a `request_id` is recognised.
pub(crate) const REQUEST_TTL: Duration = Duration::from_secs(600);

/// Endings of the zsets whose scores are moments, in milliseconds or microseconds. A store that opens data from the future, written while
/// its clock was ahead, moves these moments together with the ends of keys.
pub const MOMENTS: &[&str] = &[
    ":beats",
    ":delayed",
    ":endpoints",
    ":failed_at",
    ":flushed",
    ":in_flight_until",
    ":instances",
    ":leases",
    ":live",
    ":open",
    ":ready",
    ":retry_at",
    ":runs",
    ":todo",
    ":uploads",
];

/// A key before the loader has decided about its values.
#[derive(Debug, Clone)]
pub(crate) struct RowDraft {
    pub(crate) role: &'static str,
    pub(crate) template: Template,
    /// A side key: its template is `{tag}:…` already, without the schema's prefix.
    pub(crate) side: bool,
    pub(crate) holds: RedisType,
    pub(crate) ttl: Ttl,
    pub(crate) purpose: String,
    pub(crate) fields: Vec<Field>,
    pub(crate) format: Option<String>,
    /// Placeholders whose alphabet the kind knows.
    pub(crate) classes: Vec<(&'static str, Class)>,
    /// Written by a step of its own, so it need not share the primary's slot.
    pub(crate) apart: bool,
}

pub(crate) fn row(
    role: &'static str,
    template: Template,
    holds: RedisType,
    ttl: Ttl,
    purpose: impl Into<String>,
) -> RowDraft {
    let purpose = purpose.into();
    RowDraft {
        role,
        template,
        side: false,
        holds,
        ttl,
        purpose,
        fields: Vec::new(),
        format: None,
        classes: Vec::new(),
        apart: false,
    }
}

impl RowDraft {
    pub(crate) fn fields(mut self, fields: &[(&str, &str)]) -> Self {
        let field =
            |(name, meaning): &(&str, &str)| Field { name: (*name).into(), meaning: (*meaning).into() };
        self.fields = fields.iter().map(field).collect();
        self
    }

    pub(crate) fn documented(mut self, fields: Vec<Field>, format: Option<String>) -> Self {
        self.fields = fields;
        self.format = format;
        self
    }

    pub(crate) fn format(mut self, format: &str) -> Self {
        self.format = Some(format.to_owned());
        self
    }

    pub(crate) fn class(mut self, name: &'static str, class: Class) -> Self {
        self.classes.push((name, class));
        self
    }

    pub(crate) fn apart(mut self) -> Self {
        self.apart = true;
        self
    }
}

/// `{tag}:suffix`; a placeholder after the tag may contain anything a value may, for the braces delimit the tag.
pub(crate) fn side(
    role: &'static str,
    tag: &Template,
    suffix: &str,
    placeholder: Option<(&'static str, Class)>,
    holds: RedisType,
    ttl: Ttl,
    purpose: &str,
) -> RowDraft {
    let mut template = tag.side(suffix);
    if let Some((name, _)) = placeholder {
        template.push_text(":");
        template.push_name(name);
    }
    let mut draft = row(role, template, holds, ttl, purpose);
    draft.side = true;
    draft.classes.extend(placeholder);
    draft
}

/// The record of a call that carried a `request_id`.
pub(crate) fn request(tag: &Template) -> RowDraft {
    side(
        "request",
        tag,
        "req",
        Some(("request_id", Class::Wide)),
        RedisType::String,
        Ttl::For(REQUEST_TTL),
        "The answer a request id got, given again when it comes again",
    )
}

pub(crate) fn never(reason: &str) -> Ttl {
    Ttl::Never(reason.to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{BUNDLED, Source};

    /// Zsets whose scores are priorities, numbers, microseconds, or moments that nobody waits for.
    const OTHER: [&str; 7] = ["items", "kept", "limit", "queue", "tasks_at", "etags", "response_times"];

    #[test]
    fn every_zset_by_moments_is_known_as_one() {
        let sources = BUNDLED.map(|(name, text)| Source { name, text });
        let schema = crate::load(&sources, &|_| None).schema.unwrap();
        let mut seen = Vec::new();
        for row in schema.resources().flat_map(|resource| &resource.keys) {
            if row.kind == RedisType::Zset {
                let ending = MOMENTS.iter().find(|ending| row.pattern.text().ends_with(**ending));
                assert!(
                    ending.is_some() || OTHER.contains(&row.role),
                    "{} ({}): is it one?",
                    row.pattern.text(),
                    row.role
                );
                seen.extend(ending);
            }
        }
        for ending in MOMENTS {
            assert!(seen.contains(&ending), "no key ends with {ending}");
        }
    }
}
