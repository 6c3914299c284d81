//! What is wrong with a schema, and where.

use std::fmt;

/// How bad a [`Diagnostic`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The schema cannot be used.
    Error,
    /// The schema can be used; somebody should know this.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// One problem of a schema file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// A stable code; [`crate::LINTS`] explains each.
    pub code: &'static str,
    /// The file, as [`crate::Source::name`] gave it.
    pub source: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, code, source, line, column, message, help } = self;
        write!(f, "{source}:{line}:{column}: {severity}[{code}]: {message}")?;
        match help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// Turns byte offsets of one text into lines and columns.
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    /// How many characters begin before each block: a line may be as long as the file, and have a problem in
    /// every word.
    begun: Vec<usize>,
}

const BLOCK: usize = 256;

fn begins(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut begun = vec![0];
        for block in text.as_bytes().chunks(BLOCK) {
            begun.push(begun.last().copied().unwrap_or(0) + begins(block));
        }
        Self { text, starts, begun }
    }

    /// The characters that begin before a byte offset.
    fn characters(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        self.begun[block] + begins(&self.text.as_bytes()[block * BLOCK..offset])
    }

    /// Line and column of a byte offset; offsets past the end or inside a character are rounded down.
    pub(crate) fn position(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|&start| start <= offset);
        let start = self.starts[line - 1];
        (line, self.characters(offset) - self.characters(start) + 1)
    }
}

/// Cuts and escapes a text for a message: a hostile value must not flood or forge a log line.
pub(crate) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 32;
    let cut: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() { format!("`{cut}…`") } else { format!("`{cut}`") }
}

/// Cuts what would fill a screen: a message may list what a file holds, but does not repeat the file.
pub(crate) fn shortened(mut text: String) -> String {
    const LONGEST: usize = 2000;
    if text.len() > LONGEST
        && let Some((cut, _)) = text.char_indices().nth(LONGEST)
    {
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// The candidate a mistyped word most likely meant.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // A name of half a kilobyte is no typing error, and comparing it is quadratic.
    if word.len() > 128 {
        return None;
    }
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&lower, &candidate.to_lowercase()), candidate))
        // Alike, and no more than half of it typed wrongly: "endpoint" is no help to who wrote "nope".
        .filter(|(score, candidate)| {
            let wrong = strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
            *score >= 0.75 && wrong * 2 <= lower.len().max(candidate.len())
        })
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_near_or_not_given() {
        let names = ["endpoint", "courtlistener", "psp", "transaction"];
        assert_eq!(nearest("nope", names), None);
        assert_eq!(nearest("courtlist", names), Some("courtlistener"));
        assert_eq!(nearest("Transction", names), Some("transaction"));
    }

    #[test]
    fn columns_count_characters_and_lines_count_from_one() {
        let lines = Lines::new("ä = 1\nbö = 2");
        assert_eq!(lines.position(0), (1, 1));
        assert_eq!(lines.position(1), (1, 1), "inside a character");
        assert_eq!(lines.position(7), (2, 1));
        assert_eq!(lines.position(10), (2, 3));
        assert_eq!(lines.position(999), (2, 7));
    }

    #[test]
    fn a_column_far_along_a_line_is_counted_from_the_lines_start() {
        let text = format!("{}\n{}", "ä".repeat(1500), "aä€".repeat(2000));
        let lines = Lines::new(&text);
        for offset in (0..=text.len()).filter(|offset| text.is_char_boundary(*offset)) {
            let start = text[..offset].rfind('\n').map_or(0, |at| at + 1);
            let line = if start == 0 { 1 } else { 2 };
            assert_eq!(lines.position(offset), (line, text[start..offset].chars().count() + 1));
        }
    }

    #[test]
    fn an_excerpt_is_short_and_escaped() {
        assert_eq!(excerpt("a\nb"), "`a\\nb`");
        assert!(excerpt(&"x".repeat(600)).len() < 50);
    }

    #[test]
    fn the_nearest_word_is_near_or_there_is_none() {
        assert_eq!(nearest("algoritm", ["limit", "algorithm"]), Some("algorithm"));
        assert_eq!(nearest("zzz", ["limit", "algorithm"]), None);
    }
}
