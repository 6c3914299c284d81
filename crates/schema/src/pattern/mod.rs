//! Key patterns: from values to a key, and back.
//!
//! A pattern has two spellings. On one node a key is spelled as the schema writes it; on a cluster the keys of one
//! script share a hash tag. Both are worked out when the schema is loaded, so that rendering only copies bytes.

pub(crate) mod automaton;
mod bucket;
mod matching;
pub(crate) mod template;
mod value;

use std::fmt::Write as _;

use crate::code::Code;
use crate::diagnostic::excerpt;
use crate::kind::{BucketUnit, Spelling};

pub use bucket::Bucket;
pub(crate) use template::{Fault, Piece, Template};
pub(crate) use value::{Class, Placeholder};
pub use value::{KeyError, MAX_VALUE_CHARS, is_longer};

use template::MOST_PLACEHOLDERS;

/// A piece of a spelling, with placeholders by index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Value(usize),
    Bucket(BucketUnit),
}

/// A checked key pattern in both spellings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    cluster_text: String,
    placeholders: Vec<Placeholder>,
    bucket: Option<BucketUnit>,
    single: Vec<Part>,
    cluster: Vec<Part>,
    /// The prefix and `{tag}:` in both spellings; side keys are this and a suffix.
    side: [Vec<Part>; 2],
}

/// What a key was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The placeholders' values, in the pattern's order.
    pub values: Vec<(String, String)>,
    /// The bucket the key names.
    pub bucket: Option<Bucket>,
}

/// What the loader has decided about a pattern.
pub(crate) struct Blueprint<'a> {
    pub(crate) single: &'a Template,
    pub(crate) cluster: &'a Template,
    /// What side keys begin with, single and cluster.
    pub(crate) side: [&'a Template; 2],
    pub(crate) placeholders: Vec<Placeholder>,
}

impl Pattern {
    pub(crate) fn new(blueprint: Blueprint<'_>) -> Self {
        let Blueprint { single, cluster, side, placeholders } = blueprint;
        let parts = |template: &Template| -> Vec<Part> {
            let part = |piece: &Piece| match piece {
                Piece::Text(text) => Part::Text(text.clone()),
                Piece::Bucket(unit) => Part::Bucket(*unit),
                Piece::Name(name) => {
                    // The loader refuses a spelling with a name the pattern does not have.
                    Part::Value(placeholders.iter().position(|p| p.name == *name).unwrap_or(usize::MAX))
                }
            };
            template.pieces().iter().map(part).collect()
        };
        Pattern {
            text: single.text(),
            cluster_text: cluster.text(),
            bucket: single.bucket(),
            single: parts(single),
            cluster: parts(cluster),
            side: side.map(parts),
            placeholders,
        }
    }

    /// The pattern as the schema writes it, prefix included.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The pattern as a cluster spells it; outer braces are the hash tag.
    pub fn cluster_text(&self) -> &str {
        &self.cluster_text
    }

    /// The pattern in one of its spellings.
    pub fn spelled(&self, spelling: Spelling) -> &str {
        match spelling {
            Spelling::Single => &self.text,
            Spelling::Cluster => &self.cluster_text,
        }
    }

    /// The names whose values a caller must give; time buckets are not among them.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.placeholders.iter().map(|placeholder| placeholder.name.as_str())
    }

    /// Refuses a value that the placeholder may not have; a name that is none of them has no rule.
    pub fn check(&self, name: &str, value: &str) -> Result<(), KeyError> {
        self.placeholders.iter().find(|known| known.name == name).map_or(Ok(()), |known| known.check(value))
    }

    /// The one placeholder whose values may contain `:`, if there is one.
    pub fn colon_placeholder(&self) -> Option<&str> {
        self.placeholders.iter().find(|p| p.class == Class::Wide).map(|p| p.name.as_str())
    }

    /// Values a placeholder may not have because they would spell another pattern's key.
    pub fn forbidden(&self) -> impl Iterator<Item = (&str, &str)> {
        self.placeholders.iter().flat_map(|p| p.forbidden.iter().map(|word| (p.name.as_str(), word.as_str())))
    }

    /// The time bucket of the pattern.
    pub fn bucket(&self) -> Option<BucketUnit> {
        self.bucket
    }

    /// What the bucket of `now_us` covers; `None` for a pattern without one.
    pub fn bucket_at(&self, now_us: i64) -> Option<Bucket> {
        self.bucket.map(|unit| bucket::at(unit, now_us))
    }

    /// Validates every value and appends the key; a bucketed pattern gets the bucket of `now_us`.
    ///
    /// On an error `out` is as it was.
    pub fn render(
        &self,
        values: &[(&str, &str)],
        now_us: i64,
        spelling: Spelling,
        out: &mut Vec<u8>,
    ) -> Result<Option<Bucket>, KeyError> {
        let picked = self.pick(values)?;
        Ok(append(self.parts(spelling), &picked, now_us, out))
    }

    /// The key as people write it down, a time bucket as the pattern has it: `rl:PSP001:{minute}`. `None` where a value
    /// is missing or may not be one.
    pub fn shown<'v>(&self, value_of: impl Fn(&str) -> Option<&'v str>) -> Option<String> {
        let mut out = String::with_capacity(self.text.len() + 32);
        for part in &self.single {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Bucket(unit) => {
                    let _ = write!(out, "{{{unit}}}");
                }
                Part::Value(at) => {
                    let placeholder = self.placeholders.get(*at)?;
                    let value = value_of(&placeholder.name)?;
                    placeholder.check(value).ok()?;
                    out.push_str(value);
                }
            }
        }
        Some(out)
    }

    /// Validates every value and appends a side key, `prefix{tag}:suffix`, which shares the pattern's slot.
    ///
    /// The tag has no time bucket: side keys outlive the bucket they were written in.
    pub fn render_side(
        &self,
        values: &[(&str, &str)],
        suffix: &str,
        spelling: Spelling,
        out: &mut Vec<u8>,
    ) -> Result<(), KeyError> {
        let picked = self.pick(values)?;
        value::check_suffix(suffix)?;
        append(&self.side[usize::from(spelling == Spelling::Cluster)], &picked, 0, out);
        out.extend_from_slice(suffix.as_bytes());
        Ok(())
    }

    /// The value of each placeholder, checked.
    fn pick<'v>(&self, values: &[(&str, &'v str)]) -> Result<[&'v str; MOST_PLACEHOLDERS], KeyError> {
        let mut picked = [""; MOST_PLACEHOLDERS];
        for (placeholder, slot) in self.placeholders.iter().zip(&mut picked) {
            let Some((_, value)) = values.iter().find(|(name, _)| *name == placeholder.name) else {
                return Err(self.misfit(Code::KeyMissing, Some(&placeholder.name), "has no value"));
            };
            placeholder.check(value)?;
            *slot = value;
        }
        if values.len() == self.placeholders.len() { Ok(picked) } else { Err(self.surplus(values)) }
    }

    #[cold]
    fn surplus(&self, values: &[(&str, &str)]) -> KeyError {
        let unknown = values.iter().find(|(name, _)| !self.placeholders().any(|known| known == *name));
        let Some((name, _)) = unknown else {
            return self.misfit(Code::KeyUnknown, None, "a placeholder has two values");
        };
        let shown = excerpt(name);
        let whole = Some(*name).filter(|name| shown == format!("`{name}`"));
        self.misfit(Code::KeyUnknown, whole, &format!("there is no placeholder {shown}"))
    }

    #[cold]
    fn misfit(&self, code: Code, placeholder: Option<&str>, what: &str) -> KeyError {
        let names: Vec<String> = self.placeholders().map(|name| format!("`{name}`")).collect();
        let has = if names.is_empty() { "no placeholders".to_owned() } else { names.join(", ") };
        let rule = format!("{what}; the pattern `{}` has {has}", self.text);
        KeyError { code, placeholder: placeholder.map(str::to_owned), rule }
    }

    /// The values from which this pattern makes `key`, in either spelling; `None` when it cannot.
    pub fn parse(&self, key: &[u8]) -> Option<Vec<(String, String)>> {
        [Spelling::Single, Spelling::Cluster]
            .into_iter()
            .find_map(|spelling| self.parse_as(key, spelling))
            .map(|parsed| parsed.values)
    }

    /// As [`Pattern::parse`] in one spelling, with the bucket the key names.
    pub fn parse_as(&self, key: &[u8], spelling: Spelling) -> Option<Parsed> {
        matching::parse(self.parts(spelling), &self.placeholders, key)
    }

    /// The text before the first value, with which every key of this pattern begins.
    pub fn literal_head(&self, spelling: Spelling) -> &str {
        match self.parts(spelling).first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// The pattern as Redis' ACL matches it; literals have none of the characters a glob reads.
    pub fn glob(&self, spelling: Spelling) -> String {
        let parts = self.parts(spelling).iter().map(|part| match part {
            Part::Text(text) => text.as_str(),
            Part::Value(_) | Part::Bucket(_) => "*",
        });
        parts.collect()
    }

    pub(crate) fn parts(&self, spelling: Spelling) -> &[Part] {
        match spelling {
            Spelling::Single => &self.single,
            Spelling::Cluster => &self.cluster,
        }
    }
}

fn append(
    parts: &[Part],
    picked: &[&str; MOST_PLACEHOLDERS],
    now_us: i64,
    out: &mut Vec<u8>,
) -> Option<Bucket> {
    let mut covered = None;
    for part in parts {
        match part {
            Part::Text(text) => out.extend_from_slice(text.as_bytes()),
            Part::Value(index) => {
                out.extend_from_slice(picked.get(*index).map_or(b"", |value| value.as_bytes()));
            }
            Part::Bucket(unit) => covered = Some(bucket::append(*unit, now_us, out)),
        }
    }
    covered
}

#[cfg(test)]
mod tests;
