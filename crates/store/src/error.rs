//! Errors: "you asked wrongly" or "we cannot tell". A "no" is never an error.

pub use quaymaster_schema::code::{Code, Retry};

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// What went wrong, in which operation. Every part is put where the error is made: nobody reads the detail to find out
/// what it is about.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{op}: {title} ({code}): {detail}", title = code.title())]
pub struct Error {
    /// The operation id, `limit.take`.
    pub op: &'static str,
    /// The code, from the one table.
    pub code: Code,
    /// The field of the request that is wrong, when it is one: `ttl_ms`, `key.psp_id`, `requests[2].path`.
    pub field: Option<Cow<'static, str>>,
    /// What was wrong, where, and what would be right.
    pub detail: String,
    /// Whether the call may have changed something: then repeat it only with the `request_id` it carried. An error
    /// that does not say so had no effect.
    pub may_have_run: bool,
    /// How long to wait before trying again, where somebody said it.
    pub retry_after: Option<Duration>,
    /// What the layer below said.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with its detail.
    pub fn new(op: &'static str, code: Code, detail: impl Into<String>) -> Self {
        let may_have_run = code.retry() == Retry::MayHaveRun;
        Self { op, code, field: None, detail: detail.into(), may_have_run, retry_after: None, source: None }
    }

    /// The same about this field of the request.
    pub fn field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The same under another name of its field, also where the detail begins with it: a command line has flags.
    pub fn field_called(mut self, name: &str) -> Self {
        if let Some(field) = self.field.take() {
            if let Some(rest) = self.detail.strip_prefix(&*field) {
                self.detail = format!("{name}{rest}");
            }
            self.field = Some(name.to_owned().into());
        }
        self
    }

    /// The same of a part of the request, `then[0]`: its field is that part's.
    pub fn within(mut self, part: &str) -> Self {
        self.field = self.field.map(|field| match field.strip_prefix(part) {
            Some("") => field,
            _ => format!("{part}.{field}").into(),
        });
        self
    }

    /// The same with its cause.
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// The same, where it is known whether the call may have changed something.
    pub fn ran(mut self, may_have_run: bool) -> Self {
        self.may_have_run = may_have_run;
        self
    }

    /// The same, when waiting this long helps.
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The same under another operation's name.
    pub fn during(mut self, op: &'static str) -> Self {
        self.op = op;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_parts_whatever_its_words() {
        for words in ["ttl_ms: 1 to 30000, got 0", "a lease of nothing", "count: no such thing"] {
            let error = Error::new("lock.acquire", Code::RequestInvalid, words).field("ttl_ms");
            let error = error.because(std::io::Error::other("why")).during("guard.enter").ran(true);
            let copy = error.clone();
            assert_eq!((copy.op, copy.field.as_deref()), ("guard.enter", Some("ttl_ms")));
            assert_eq!((copy.detail.as_str(), copy.may_have_run), (words, true));
            assert_eq!(std::error::Error::source(&copy).map(ToString::to_string).as_deref(), Some("why"));
        }
    }

    #[test]
    fn a_field_within_a_part_is_named_with_it() {
        let told = |field: &'static str| {
            let error = Error::new("queue.push", Code::RequestInvalid, "words").field(field).within("dedupe");
            error.field.map(Cow::into_owned).unwrap_or_default()
        };
        assert_eq!(["key.id", "dedupe", "name"].map(told), ["dedupe.key.id", "dedupe", "dedupe.name"]);
        let none = Error::new("queue.push", Code::RequestInvalid, "words").within("dedupe");
        assert_eq!(none.field, None);
    }

    #[test]
    fn a_field_has_another_name_also_in_the_words_that_begin_with_it() {
        for (words, told) in [
            ("ttl_ms: 1 to 30000", "--ttl-ms: 1 to 30000"),
            ("ttl_ms must be 1", "--ttl-ms must be 1"),
            ("the ttl_ms is 0", "the ttl_ms is 0"),
        ] {
            let error =
                Error::new("op", Code::RequestInvalid, words).field("ttl_ms").field_called("--ttl-ms");
            assert_eq!((error.field.as_deref(), error.detail.as_str()), (Some("--ttl-ms"), told));
        }
        let other = Error::new("op", Code::RequestInvalid, "ttl_ms: 1").field_called("--ttl-ms");
        assert_eq!((other.field, other.detail.as_str()), (None, "ttl_ms: 1"));
    }
}
