//! Where problems are collected.

use std::cell::RefCell;
use std::collections::BTreeMap;

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

/// What becomes of a resource one of whose variables is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unset {
    /// It is wrong.
    Refused,
    /// It is left out; of a queue only what it sends its jobs by.
    LeftOut,
}

/// Collects diagnostics of all sources.
pub(crate) struct Report<'a> {
    unset: Unset,
    /// Resources to leave out, and the variable of each.
    left_out: RefCell<BTreeMap<String, String>>,
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
    pub(crate) fn new(sources: &[Source<'a>], unset: Unset) -> Self {
        let sources = sources.iter().map(|source| (source.name, Lines::new(source.text))).collect();
        Self {
            unset,
            left_out: RefCell::default(),
            sources,
            errors: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    pub(crate) fn add(&self, at: At, code: &'static str, message: impl Into<String>, help: Option<String>) {
        let diagnostic = self.diagnostic(at, code, message.into(), help);
        let found = match diagnostic.severity {
            Severity::Error => &self.errors,
            Severity::Warning => &self.warnings,
        };
        found.borrow_mut().push(at, diagnostic);
    }

    /// A variable without a default is not set. `path` is the table that names it: `queue.orders.push`.
    pub(crate) fn unset(&self, path: &str, at: At, variable: &str, message: String) {
        let mut parts = path.splitn(3, '.');
        match (self.unset, parts.next(), parts.next()) {
            (Unset::LeftOut, Some(kind), Some(name)) => {
                // Who only pushes and claims sends nothing anywhere.
                if (kind, parts.next()) != ("queue", Some("push")) {
                    self.leave_out(&format!("{kind}.{name}"), variable);
                }
            }
            _ => self.add(at, "env-unset", message, Some("set it, or give a `default`".to_owned())),
        }
    }

    /// Leaves a resource out for want of a variable.
    pub(crate) fn leave_out(&self, label: &str, variable: &str) {
        self.left_out.borrow_mut().entry(label.to_owned()).or_insert_with(|| variable.to_owned());
    }

    /// The variable for want of which a resource is left out.
    pub(crate) fn wanting(&self, label: &str) -> Option<String> {
        self.left_out.borrow().get(label).cloned()
    }

    /// Every resource that is left out.
    pub(crate) fn left_out(&self) -> BTreeMap<String, String> {
        self.left_out.borrow().clone()
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
