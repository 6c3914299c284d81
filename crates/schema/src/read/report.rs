//! Where problems are collected.

use std::cell::RefCell;

use crate::Source;
use crate::diagnostic::{Diagnostic, Lines, Severity};
use crate::lint::lint_of;

/// A place in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) source: usize,
    pub(crate) offset: usize,
}

/// Collects diagnostics of all sources.
pub(crate) struct Report<'a> {
    sources: Vec<(&'a str, Lines<'a>)>,
    found: RefCell<Vec<(At, Diagnostic)>>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(sources: &[Source<'a>]) -> Self {
        let sources = sources.iter().map(|source| (source.name, Lines::new(source.text))).collect();
        Self { sources, found: RefCell::default() }
    }

    pub(crate) fn add(&self, at: At, code: &'static str, message: impl Into<String>, help: Option<String>) {
        let diagnostic = self.diagnostic(at, code, message.into(), help);
        self.found.borrow_mut().push((at, diagnostic));
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
        Diagnostic { severity, code, source: name.to_owned(), line, column, message, help }
    }

    /// `file:line`, for messages that point elsewhere.
    pub(crate) fn place(&self, at: At) -> String {
        let diagnostic = self.diagnostic(at, "", String::new(), None);
        format!("{}:{}", diagnostic.source, diagnostic.line)
    }

    /// In the order of the sources, without repetitions.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        let mut found = self.found.into_inner();
        found.sort_by_key(|(at, _)| *at);
        let mut diagnostics: Vec<Diagnostic> = found.into_iter().map(|(_, diagnostic)| diagnostic).collect();
        diagnostics.dedup();
        diagnostics
    }
}
