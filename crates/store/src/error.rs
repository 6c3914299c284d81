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
    /// Whether the call may have changed something: then repeat it only with the `request_id` it carried. An error
    /// that does not say so had no effect.
    pub may_have_run: bool,
    /// What the layer below said.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with its detail.
    pub fn new(op: &'static str, code: Code, detail: impl Into<String>) -> Self {
        let may_have_run = code.retry() == Retry::MayHaveRun;
        Self { op, code, detail: detail.into(), may_have_run, source: None }
    }

    /// The same with its cause.
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same, where it is known whether the call may have changed something.
    pub fn ran(mut self, may_have_run: bool) -> Self {
        self.may_have_run = may_have_run;
        self
    }

    /// The same under another operation's name.
    pub fn during(mut self, op: &'static str) -> Self {
        self.op = op;
        self
    }
}
