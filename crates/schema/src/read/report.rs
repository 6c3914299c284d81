//! Where problems are collected.

use std::cell::RefCell;

use crate::Source;
use crate::diagnostic::{Diagnostic, Lines, Severity, shortened};
use crate::lint::lint_of;

/// The most that is said of one severity; whoever has more corrects these first.
pub(crate) const MOST: usize = 1000;

/// A place in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) source: usize,
    pub(crate) offset: usize,
}

/// Collects diagnostics of all sources.
pub(crate) struct Report<'a> {
    sources: Vec<(&'a str, Lines<'a>)>,
    errors: RefCell<Found>,
    warnings: RefCell<Found>,
}

/// The first problems of one severity, and how many there are besides.
#[derive(Default)]
struct Found {
    kept: Vec<(At, Diagnostic)>,
    dropped: usize,
}

impl Found {
    fn push(&mut self, at: At, diagnostic: Diagnostic) {
        self.kept.push((at, diagnostic));
        if self.kept.len() >= 4 * MOST {
            self.prune();
        }
    }

    /// Keeps the first in the order of the sources, without repetitions.
    fn prune(&mut self) {
        self.kept.sort_by_key(|(at, _)| *at);
        self.kept.dedup();
        self.dropped += self.kept.len().saturating_sub(MOST);
        self.kept.truncate(MOST);
    }

    /// What stands for the dropped ones, in the place of the last one kept.
    fn rest(&self) -> Option<Diagnostic> {
        let (_, last) = self.kept.last().filter(|_| self.dropped > 0)?;
        let message = format!("and {} more {}s", self.dropped, last.severity);
        Some(Diagnostic { message, help: None, ..last.clone() })
    }
}

impl<'a> Report<'a> {
    pub(crate) fn new(sources: &[Source<'a>]) -> Self {
        let sources = sources.iter().map(|source| (source.name, Lines::new(source.text))).collect();
        Self { sources, errors: RefCell::default(), warnings: RefCell::default() }
    }

    pub(crate) fn add(&self, at: At, code: &'static str, message: impl Into<String>, help: Option<String>) {
        let diagnostic = self.diagnostic(at, code, message.into(), help);
        let found = match diagnostic.severity {
            Severity::Error => &self.errors,
            Severity::Warning => &self.warnings,
        };
        found.borrow_mut().push(at, diagnostic);
    }

    pub(crate) fn diagnostic(
        &self,
        at: At,
        code: &'static str,
        message: String,
        help: Option<String>,
    ) -> Diagnostic {
        let severity = lint_of(code).map_or(Severity::Error, |lint| lint.severity);
        let (name, (line, column)) = match self.sources.get(at.source) {
            Some((name, lines)) => (*name, lines.position(at.offset)),
            None => ("", (1, 1)),
        };
        let (message, help) = (shortened(message), help.map(shortened));
        Diagnostic { severity, code, source: name.to_owned(), line, column, message, help }
    }

    /// `file:line`, for messages that point elsewhere.
    pub(crate) fn place(&self, at: At) -> String {
        match self.sources.get(at.source) {
            Some((name, lines)) => format!("{name}:{}", lines.position(at.offset).0),
            None => ":1".to_owned(),
        }
    }

    /// In the order of the sources, without repetitions; at most [`MOST`] errors and as many warnings, and how
    /// many there are besides.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        let mut severities = [self.errors.into_inner(), self.warnings.into_inner()];
        severities.iter_mut().for_each(Found::prune);
        let rest: Vec<Diagnostic> = severities.iter().filter_map(Found::rest).collect();
        let mut found: Vec<(At, Diagnostic)> = severities.into_iter().flat_map(|found| found.kept).collect();
        found.sort_by_key(|(at, _)| *at);
        found.into_iter().map(|(_, diagnostic)| diagnostic).chain(rest).collect()
    }
}
