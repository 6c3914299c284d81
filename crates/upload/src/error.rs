//! One error for objects, ledger and events: what failed, what its own store said, and what may be done about it.

use std::error::Error as StdError;
use std::fmt;

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
    code: Option<String>,
    detail: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure of `op`, in words.
    pub fn new(op: &'static str, trouble: Trouble, detail: impl Into<String>) -> Self {
        Self { inner: Box::new(Inner { op, trouble, code: None, detail: detail.into(), source: None }) }
    }

    /// With the code that the store itself gave: `NoSuchUpload`, `40001`, `ENOSPC`.
    #[must_use]
    pub fn coded(mut self, code: impl Into<String>) -> Self {
        self.inner.code = Some(code.into());
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

    /// The store's own code, when it gave one.
    pub fn code(&self) -> Option<&str> {
        self.inner.code.as_deref()
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
        Self::new(op, trouble, format!("{what}: {error}")).coded(code).because(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { op, code, detail, .. } = &*self.inner;
        match code {
            Some(code) if !detail.contains(code.as_str()) => write!(f, "{op}: {code}: {detail}"),
            _ => write!(f, "{op}: {detail}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { op, trouble, code, detail, source } = &*self.inner;
        f.debug_struct("Error")
            .field("op", op)
            .field("trouble", trouble)
            .field("code", code)
            .field("detail", detail)
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
