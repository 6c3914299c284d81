//! Errors: "you asked wrongly" or "we cannot tell". A "no" is never an error.

pub use quaymaster_schema::code::{Code, Retry};

/// What went wrong, in which operation.
#[derive(Debug, thiserror::Error)]
#[error("{op}: {title} ({code}): {detail}", title = code.title())]
pub struct Error {
    /// The operation id, `limit.take`.
    pub op: &'static str,
    /// The code, from the one table.
    pub code: Code,
    /// What was wrong, where, and what would be right.
    pub detail: String,
    /// What the layer below said.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with its detail.
    pub fn new(op: &'static str, code: Code, detail: impl Into<String>) -> Self {
        Self { op, code, detail: detail.into(), source: None }
    }

    /// The same with its cause.
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same under another operation's name.
    pub fn during(mut self, op: &'static str) -> Self {
        self.op = op;
        self
    }
}
