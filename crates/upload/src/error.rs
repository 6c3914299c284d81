//! One error for objects, ledger and events: what failed, what its own store said, and what may be done about it.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use quaymaster::{Code, Retry};

/// What the caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// Try again: the network, a restart, an overload. The call may have run; every call here may be repeated.
    Passing,
    /// The same call fails the same way until somebody changes it or what it is about.
    Never,
    /// Credentials are missing, wrong, expired, or may not do this. Trying again helps once they are renewed.
    Credentials,
    /// No room left. Trying again helps once there is.
    Full,
}

impl Trouble {
    /// A stable word for logs, metrics and stored reasons.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Never => "never",
            Self::Credentials => "credentials",
            Self::Full => "full",
        }
    }

    /// Whether the same call can succeed later without anybody changing it.
    pub const fn may_pass(self) -> bool {
        !matches!(self, Self::Never)
    }
}

/// Why a call gave no answer.
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    op: &'static str,
    trouble: Trouble,
    code: Option<Code>,
    said: Option<String>,
    field: Option<Cow<'static, str>>,
    detail: String,
    may_have_run: bool,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure of `op`, in words.
    pub fn new(op: &'static str, trouble: Trouble, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let (code, said, field, source) = (None, None, None, None);
        let (may_have_run, retry_after) = (false, None);
        let inner = Inner { op, trouble, code, said, field, detail, may_have_run, retry_after, source };
        Self { inner: Box::new(inner) }
    }

    /// With its code in the one table.
    #[must_use]
    pub fn coded(mut self, code: Code) -> Self {
        self.inner.code = Some(code);
        self.inner.may_have_run |= code.retry() == Retry::MayHaveRun;
        self
    }

    /// Of a call that has changed something before it failed.
    #[must_use]
    pub fn after_a_change(mut self) -> Self {
        self.inner.may_have_run = true;
        self
    }

    /// With the code that the store itself gave: `NoSuchUpload`, `40001`, `ENOSPC`.
    #[must_use]
    pub fn saying(mut self, said: impl Into<String>) -> Self {
        self.inner.said = Some(said.into());
        self
    }

    /// About this field of the request.
    #[must_use]
    pub fn field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.inner.field = Some(field.into());
        self
    }

    /// With its cause.
    #[must_use]
    pub fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.inner.source = Some(Box::new(source));
        self
    }

    /// The same failure as seen by another operation.
    #[must_use]
    pub fn during(mut self, op: &'static str) -> Self {
        self.inner.op = op;
        self
    }

    /// What was asked: `objects.complete`, `ledger.create`.
    pub fn op(&self) -> &'static str {
        self.inner.op
    }

    /// What may be done about it.
    pub fn trouble(&self) -> Trouble {
        self.inner.trouble
    }

    /// Its code in the one table, when it has one; else it is trouble of objects, ledger or events.
    pub fn code(&self) -> Option<Code> {
        self.inner.code
    }

    /// The store's own code, when it gave one.
    pub fn said(&self) -> Option<&str> {
        self.inner.said.as_deref()
    }

    /// Whether the call may have changed something, as far as that is known here. A ledger or an object store that
    /// fails says nothing of it.
    pub fn may_have_run(&self) -> bool {
        self.inner.may_have_run
    }

    /// How long to wait before trying again, where somebody said it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.inner.retry_after
    }

    /// The same failure under `code`, in the words and with the parts that it has.
    pub fn under(self, code: Code) -> quaymaster::Error {
        // Without a code of the table the operation is part of the message: nobody else would say where it was.
        let detail = if self.inner.code.is_some() { self.inner.detail.clone() } else { self.to_string() };
        let other = quaymaster::Error::new(self.inner.op, code, detail);
        // A store's error says whether it ran, whatever others of its code do.
        let may_have_run = self.inner.may_have_run || (self.inner.code != Some(code) && other.may_have_run);
        let (field, retry_after) = (self.inner.field.clone(), self.inner.retry_after);
        quaymaster::Error { field, may_have_run, retry_after, ..other }.because(self)
    }

    /// What happened, in words, without the operation.
    pub fn detail(&self) -> &str {
        &self.inner.detail
    }

    /// A file system's refusal.
    pub(crate) fn io(op: &'static str, what: impl fmt::Display, error: std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let trouble = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => Trouble::Full,
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Trouble::Credentials,
            Kind::InvalidFilename | Kind::InvalidInput | Kind::NotADirectory | Kind::IsADirectory => {
                Trouble::Never
            }
            _ => Trouble::Passing,
        };
        let code = format!("{:?}", error.kind());
        Self::new(op, trouble, format!("{what}: {error}")).saying(code).because(error)
    }
}

impl From<quaymaster::Error> for Error {
    fn from(error: quaymaster::Error) -> Self {
        let trouble = match (error.code, error.code.retry()) {
            (Code::StoreOom | Code::StoreMisconf, _) => Trouble::Full,
            (_, Retry::Useless) => Trouble::Never,
            (_, Retry::Later | Retry::MayHaveRun) => Trouble::Passing,
        };
        let mut wrapped = Error::new(error.op, trouble, error.detail.clone()).coded(error.code);
        let inner = &mut *wrapped.inner;
        inner.field.clone_from(&error.field);
        (inner.may_have_run, inner.retry_after) = (error.may_have_run, error.retry_after);
        wrapped.because(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { op, code, said, detail, .. } = &*self.inner;
        match code.map(Code::name).or(said.as_deref()) {
            Some(code) if !detail.contains(code) => write!(f, "{op}: {code}: {detail}"),
            _ => write!(f, "{op}: {detail}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { op, trouble, code, said, field, detail, may_have_run, retry_after, source } =
            &*self.inner;
        f.debug_struct("Error")
            .field("op", op)
            .field("trouble", trouble)
            .field("code", code)
            .field("said", said)
            .field("field", field)
            .field("detail", detail)
            .field("may_have_run", may_have_run)
            .field("retry_after", retry_after)
            .field("source", source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error as Io, ErrorKind as Kind};

    #[test]
    fn a_stores_error_comes_back_with_all_its_parts() {
        for (code, ran) in [
            (Code::ScriptFailed, true),
            (Code::ScriptFailed, false),
            (Code::StoreLost, true),
            // Known not to have run, though others of its code may have.
            (Code::StoreLost, false),
            (Code::KeyMalformed, false),
        ] {
            let wait = Duration::from_millis(42_001);
            let told = quaymaster::Error::new("upload.accept", code, "words").field("n").ran(ran).after(wait);
            let ours = Error::from(told);
            assert_eq!((ours.may_have_run(), ours.retry_after()), (ran, Some(wait)), "{code}");
            let back = ours.during("upload.chunk").under(code);
            assert_eq!((back.op, back.code, back.field.as_deref()), ("upload.chunk", code, Some("n")));
            assert_eq!((back.detail.as_str(), back.may_have_run), ("words", ran), "{code}");
            assert_eq!(back.retry_after, Some(wait));
        }
    }

    #[test]
    fn an_error_after_a_change_says_so_under_every_code() {
        let refused = || Error::new("upload.resume", Trouble::Never, "no").coded(Code::KeyMalformed);
        assert!(!refused().under(Code::KeyMalformed).may_have_run);
        assert!(refused().after_a_change().under(Code::KeyMalformed).may_have_run);
        let uncoded = Error::new("ledger.total", Trouble::Passing, "away");
        assert!(uncoded.after_a_change().under(Code::UploadBackend).may_have_run);
        let code = Error::new("upload.chunk", Trouble::Passing, "no").coded(Code::StoreLost);
        assert!(code.may_have_run(), "as every error of that code");
        assert!(Error::new("upload.chunk", Trouble::Passing, "no").under(Code::StoreLost).may_have_run);
    }

    #[test]
    fn a_file_systems_refusal_says_what_may_be_done() {
        let trouble = |error: Io| Error::io("test", "a file", error).trouble();
        assert_eq!(trouble(Io::from_raw_os_error(28)), Trouble::Full, "ENOSPC");
        assert_eq!(trouble(Io::from_raw_os_error(122)), Trouble::Full, "EDQUOT");
        assert_eq!(trouble(Io::from_raw_os_error(30)), Trouble::Credentials, "EROFS");
        assert_eq!(trouble(Kind::PermissionDenied.into()), Trouble::Credentials);
        assert_eq!(trouble(Io::from_raw_os_error(36)), Trouble::Never, "ENAMETOOLONG");
        assert_eq!(trouble(Io::from_raw_os_error(5)), Trouble::Passing, "EIO");
        let error = Error::io("objects.part", "a file", Io::from_raw_os_error(28));
        assert!(error.to_string().starts_with("objects.part: StorageFull: a file: "), "{error}");
    }
}
