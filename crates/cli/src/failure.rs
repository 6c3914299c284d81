//! What an error means for whoever called: its words and its exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use quaymaster::Code;
use quaymaster_server::config::ConfigError;
use quaymaster_server::{Asked, reading_advice};

use crate::output::millis;

/// A schema that cannot be used; its problems were printed already.
#[derive(Debug)]
pub(crate) struct BadSchema {
    pub(crate) errors: usize,
}

impl std::fmt::Display for BadSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = if self.errors == 1 { "" } else { "s" };
        write!(f, "the schema has {} error{s}", self.errors)
    }
}

impl std::error::Error for BadSchema {}

/// A file that cannot be read, or written.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// An embedded store that is not there, for a command that only looks.
#[derive(Debug)]
pub(crate) struct NoStore(pub(crate) PathBuf);

impl std::fmt::Display for NoStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "there is no data in {}, and looking does not create it\n  help: Correct --data-dir, or start \
             `quaymaster serve` on it.",
            self.0.display()
        )
    }
}

impl std::error::Error for NoStore {}

/// An error of something that changed nothing: opening the store, or a question to it.
#[derive(Debug)]
pub(crate) struct NothingRan(quaymaster::Error);

impl std::fmt::Display for NothingRan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&told(&self.0, reading_advice(self.0.code)))
    }
}

impl std::error::Error for NothingRan {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<quaymaster::Error> for NothingRan {
    fn from(error: quaymaster::Error) -> Self {
        Self(error)
    }
}

pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<NoStore>() {
        return ExitCode::from(3);
    }
    if let Some(NothingRan(error)) = error.downcast_ref() {
        return ExitCode::from(error.code.exit_code());
    }
    if let Some(error) = error.downcast_ref::<quaymaster::Error>() {
        return ExitCode::from(error.code.exit_code());
    }
    if error.is::<ConfigError>() || error.is::<Unreadable>() {
        return ExitCode::from(2);
    }
    ExitCode::from(1)
}

/// What happened and what to do about it.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    // The detail says what there is to know; causes are for those who ask for them.
    if let Some(error) = error.downcast_ref::<quaymaster::Error>() {
        return told(error, error.code.advice());
    }
    match error.downcast_ref::<NothingRan>() {
        Some(error) => error.to_string(),
        None => format!("{error:#}"),
    }
}

/// The same as the problem document that a server would answer.
pub(crate) fn problem(error: &anyhow::Error) -> String {
    if let Some(NothingRan(error)) = error.downcast_ref() {
        return quaymaster_server::problem_document(error, Asked::Looked);
    }
    if let Some(error) = error.downcast_ref::<quaymaster::Error>() {
        return quaymaster_server::problem_document(error, Asked::Changes);
    }
    let code = if error.is::<NoStore>() {
        Code::StoreRefused
    } else if error.is::<BadSchema>() || error.is::<ConfigError>() || error.is::<Unreadable>() {
        Code::ConfigInvalid
    } else {
        Code::Internal
    };
    let error = quaymaster::Error::new("command", code, format!("{error:#}"));
    quaymaster_server::problem_document(&error, Asked::Looked)
}

fn told(error: &quaymaster::Error, advice: &str) -> String {
    let wait = error.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let wait = wait.map_or_else(String::new, |ms| format!("\n  retry in: {}", millis(ms)));
    format!("{} [{}]: {}\n  help: {advice}{wait}", error.code.title(), error.code, error.detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_kept_and_not_told_beside_the_detail() {
        let error = || {
            let cause = std::io::Error::other("the cause");
            quaymaster::Error::new("store.open", Code::StoreLost, "why").because(cause)
        };
        for error in [anyhow::Error::from(error()), NothingRan::from(error()).into()] {
            assert!(error.chain().any(|cause| cause.to_string() == "the cause"), "{error:?}");
            assert!(!describe(&error).contains("the cause"), "{}", describe(&error));
        }
    }

    #[test]
    fn nobody_is_told_to_repeat_what_never_began() {
        for code in Code::ALL {
            let error = || quaymaster::Error::new("store.open", *code, "why");
            let told = describe(&NothingRan::from(error()).into());
            assert!(told.contains(&format!("[{code}]: why\n  help: ")), "{told}");
            assert!(!told.contains("request_id") && !told.contains("this call"), "{told}");
            let same = exit_code(&error().into()) == exit_code(&NothingRan::from(error()).into());
            assert!(same, "{code}");
        }
    }
}
