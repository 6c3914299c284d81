//! A key pattern as written: text, placeholders and time buckets, before anything is decided about values.

use std::fmt::Write as _;

use crate::kind::BucketUnit;

/// The longest pattern; a key is a name, not a document.
const LONGEST: usize = 512;
/// The most placeholders of one pattern, so that rendering needs no allocation.
pub(crate) const MOST_PLACEHOLDERS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Name(String),
    Bucket(BucketUnit),
}

/// A sequence of pieces; two texts never stand side by side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// What is wrong with a placeholder's name, and what it could be.
fn not_a_name(name: &str) -> String {
    let told = format!("{} is not a placeholder's name", crate::diagnostic::excerpt(name));
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let word = plain.starts_with(|c: char| c.is_ascii_alphabetic()) && plain.len() <= 64;
    if word && plain != name {
        format!("{told}, which has letters, digits and `_` only: write `{{{plain}}}`")
    } else {
        format!("{told}: 1 to 64 letters, digits and `_`, no digit first")
    }
}

fn fault<T>(code: &'static str, message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { code, message: message.into() })
}

impl Template {
    /// Reads `rl:{psp_id}:{minute}`.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        if text.is_empty() {
            return fault("bad-pattern", "the pattern is empty");
        }
        if text.len() > LONGEST {
            return fault("bad-pattern", format!("the pattern is longer than {LONGEST} bytes"));
        }
        let mut template = Template::default();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            if rest.as_bytes()[open] == b'}' {
                return fault("bad-pattern", "`}` without its `{`");
            }
            template.literal(&rest[..open])?;
            let Some(close) = rest[open + 1..].find(['{', '}']).map(|at| open + 1 + at) else {
                return fault("bad-pattern", "`{` without its `}`");
            };
            if rest.as_bytes()[close] == b'{' {
                return fault("bad-pattern", "`{` inside a placeholder");
            }
            template.placeholder(&rest[open + 1..close])?;
            rest = &rest[close + 1..];
        }
        template.literal(rest)?;
        if template.names().count() > MOST_PLACEHOLDERS {
            return fault("bad-pattern", format!("more than {MOST_PLACEHOLDERS} placeholders"));
        }
        // The tag of side keys is the key without its bucket, and a store ignores an empty tag.
        let names_nothing = |piece: &Piece| match piece {
            Piece::Text(text) => text.bytes().all(|byte| byte == b':'),
            Piece::Bucket(_) => true,
            Piece::Name(_) => false,
        };
        if template.pieces.iter().all(names_nothing) {
            return fault("bad-pattern", "separators and a time bucket alone name nothing");
        }
        template.unambiguous()?;
        Ok(template)
    }

    fn literal(&mut self, text: &str) -> Result<(), Fault> {
        if let Some(bad) = text.chars().find(|c| c.is_control() || matches!(c, '*' | '?' | '[' | ']' | '\\'))
        {
            return fault(
                "bad-pattern",
                format!("the text of a key may not contain `{}`", bad.escape_debug()),
            );
        }
        self.push_text(text);
        Ok(())
    }

    fn placeholder(&mut self, name: &str) -> Result<(), Fault> {
        if let Ok(unit) = name.parse() {
            if self.bucket().is_some() {
                return fault("ambiguous-pattern", "a pattern has at most one time bucket");
            }
            self.pieces.push(Piece::Bucket(unit));
            return Ok(());
        }
        let first_ok = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !first_ok || name.len() > 64 || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return fault("bad-pattern", not_a_name(name));
        }
        if self.names().any(|known| known == name) {
            return fault("ambiguous-pattern", format!("`{{{name}}}` occurs twice"));
        }
        self.pieces.push(Piece::Name(name.to_owned()));
        Ok(())
    }

    /// Two values with no `:` between them cannot be told apart.
    fn unambiguous(&self) -> Result<(), Fault> {
        let mut open: Option<String> = None;
        for piece in &self.pieces {
            let here = match piece {
                Piece::Text(text) if text.contains(':') => {
                    open = None;
                    continue;
                }
                Piece::Text(_) => continue,
                Piece::Name(name) => name.clone(),
                Piece::Bucket(unit) => unit.name().to_owned(),
            };
            if let Some(before) = open.replace(here.clone()) {
                return fault("ambiguous-pattern", format!("no `:` between `{{{before}}}` and `{{{here}}}`"));
            }
        }
        Ok(())
    }

    /// Text that is known to be good, such as `}:leases`.
    pub(crate) fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(Piece::Text(last)) = self.pieces.last_mut() {
            last.push_str(text);
        } else {
            self.pieces.push(Piece::Text(text.to_owned()));
        }
    }

    pub(crate) fn push_name(&mut self, name: &str) {
        self.pieces.push(Piece::Name(name.to_owned()));
    }

    pub(crate) fn push_bucket(&mut self, unit: BucketUnit) {
        self.pieces.push(Piece::Bucket(unit));
    }

    pub(crate) fn push(&mut self, other: &Template) {
        for piece in &other.pieces {
            match piece {
                Piece::Text(text) => self.push_text(text),
                other => self.pieces.push(other.clone()),
            }
        }
    }

    pub(crate) fn of_text(text: &str) -> Self {
        let mut template = Template::default();
        template.push_text(text);
        template
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Name(name) => Some(name.as_str()),
            _ => None,
        })
    }

    pub(crate) fn bucket(&self) -> Option<BucketUnit> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Bucket(unit) => Some(*unit),
            _ => None,
        })
    }

    /// As the schema file writes it.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            let _ = match piece {
                Piece::Text(text) => out.write_str(text),
                Piece::Name(name) => write!(out, "{{{name}}}"),
                Piece::Bucket(unit) => write!(out, "{{{unit}}}"),
            };
        }
        out
    }

    /// The pieces between the separators.
    fn segments(&self) -> Vec<Vec<Piece>> {
        let mut segments = vec![Vec::new()];
        for piece in &self.pieces {
            let Piece::Text(text) = piece else {
                if let Some(last) = segments.last_mut() {
                    last.push(piece.clone());
                }
                continue;
            };
            for (index, part) in text.split(':').enumerate() {
                if index > 0 {
                    segments.push(Vec::new());
                }
                if let (false, Some(last)) = (part.is_empty(), segments.last_mut()) {
                    last.push(Piece::Text(part.to_owned()));
                }
            }
        }
        segments
    }

    fn join(segments: &[Vec<Piece>]) -> Self {
        let mut template = Template::default();
        for (index, segment) in segments.iter().enumerate() {
            if index > 0 {
                template.push_text(":");
            }
            template.push(&Template { pieces: segment.clone() });
        }
        template
    }

    /// The key without its time bucket: what all buckets of one entity share.
    ///
    /// `rl:{psp_id}:{minute}` gives `rl:{psp_id}`. A bucket glued to text loses only itself.
    pub(crate) fn without_bucket(&self) -> Self {
        let mut segments = self.segments();
        for segment in &mut segments {
            segment.retain(|piece| !matches!(piece, Piece::Bucket(_)));
        }
        if self.bucket().is_some() {
            segments.retain(|segment| !segment.is_empty());
        }
        Self::join(&segments)
    }

    /// This template with `tag` in braces where it stands as whole segments: `dlq:{jobs}`, `upload:{{id}}:state`.
    pub(crate) fn tagged_in_place(&self, tag: &Template) -> Option<Self> {
        let (own, wanted) = (self.segments(), tag.segments());
        let at = own.windows(wanted.len()).position(|window| window == wanted)?;
        let mut template = Template::default();
        if at > 0 {
            template.push(&Self::join(&own[..at]));
            template.push_text(":");
        }
        template.push(&tag.braced());
        let after = &own[at + wanted.len()..];
        if !after.is_empty() {
            template.push_text(":");
            template.push(&Self::join(after));
        }
        Some(template)
    }

    /// `{` this `}`.
    pub(crate) fn braced(&self) -> Self {
        let mut template = Template::of_text("{");
        template.push(self);
        template.push_text("}");
        template
    }

    /// Whether it begins with a hash tag: no text of a schema has braces.
    pub(crate) fn begins_with_tag(&self) -> bool {
        matches!(self.pieces.first(), Some(Piece::Text(text)) if text.starts_with('{'))
    }

    /// `{` this `}:suffix`, the spelling of side keys without their schema's prefix.
    pub(crate) fn side(&self, suffix: &str) -> Self {
        let mut template = self.braced();
        template.push_text(":");
        template.push_text(suffix);
        template
    }

    /// Text segments, for the overlap lint.
    pub(crate) fn literal_segments(&self) -> Vec<String> {
        self.segments()
            .into_iter()
            .filter_map(|segment| match segment.as_slice() {
                [Piece::Text(text)] => Some(text.clone()),
                _ => None,
            })
            .collect()
    }

    /// The segment that holds `name`: what stands before and after it, and its place from the left.
    pub(crate) fn affixes(&self, name: &str) -> Option<(String, String, usize)> {
        let text_of = |pieces: &[Piece]| Template { pieces: pieces.to_vec() }.text();
        self.segments().iter().enumerate().find_map(|(place, segment)| {
            let at = segment.iter().position(|piece| matches!(piece, Piece::Name(here) if here == name))?;
            Some((text_of(&segment[..at]), text_of(&segment[at + 1..]), place))
        })
    }

    /// Replaces the last segment, which must be plain text; `None` when it is not.
    pub(crate) fn sibling(&self, last: &str) -> Option<Self> {
        let mut segments = self.segments();
        match segments.pop()?.as_slice() {
            [Piece::Text(_)] if !segments.is_empty() => {}
            _ => return None,
        }
        let mut template = Self::join(&segments);
        template.push_text(":");
        template.push_text(last);
        Some(template)
    }

    /// The same with one placeholder renamed.
    pub(crate) fn renamed(&self, from: &str, to: &str) -> Self {
        let rename = |piece: &Piece| match piece {
            Piece::Name(name) if name == from => Piece::Name(to.to_owned()),
            other => other.clone(),
        };
        Template { pieces: self.pieces.iter().map(rename).collect() }
    }

    /// The text before the first placeholder, without its last `:`.
    pub(crate) fn literal_head(&self) -> String {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text.trim_end_matches(':').to_owned(),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn template(text: &str) -> Template {
        Template::parse(text).unwrap()
    }

    #[test]
    fn a_pattern_reads_back_as_it_was_written() {
        for text in ["detection_queue", "rl:{psp_id}:{minute}", "a-{b}-c::d:{hour}"] {
            assert_eq!(template(text).text(), text);
        }
    }

    #[test]
    fn what_cannot_be_a_key_is_refused() {
        let codes = |text: &str| Template::parse(text).map_err(|fault| fault.code);
        for bad in [
            "",
            "a{",
            "a}",
            "{a{b}}",
            "{}",
            "{a b}",
            "{1}",
            "a*",
            "a\n",
            "{minute}",
            ":{minute}",
            "::",
            "a\\",
        ] {
            assert_eq!(codes(bad), Err("bad-pattern"), "{bad}");
        }
        for bad in ["{a}{b}", "x:{a}-{b}", "{a}:{a}", "{a}{hour}", "k:{hour}:{day}"] {
            assert_eq!(codes(bad), Err("ambiguous-pattern"), "{bad}");
        }
    }

    #[test]
    fn the_bucket_falls_out_of_the_tag_wherever_it_stands() {
        assert_eq!(template("rl:{p}:{minute}").without_bucket().text(), "rl:{p}");
        assert_eq!(template("rl:{minute}:{p}").without_bucket().text(), "rl:{p}");
        assert_eq!(template("a::b").without_bucket().text(), "a::b");
    }

    #[test]
    fn a_tag_is_put_in_place_only_as_whole_segments() {
        let place = |text: &str, tag: &str| template(text).tagged_in_place(&template(tag)).map(|t| t.text());
        assert_eq!(place("dlq:jobs", "jobs").as_deref(), Some("dlq:{jobs}"));
        assert_eq!(place("upload:{id}:state", "{id}").as_deref(), Some("upload:{{id}}:state"));
        assert_eq!(place("rl:{p}:{minute}", "rl:{p}").as_deref(), Some("{rl:{p}}:{minute}"));
        assert_eq!(place("dlq:jobs2", "jobs"), None);
    }
}
