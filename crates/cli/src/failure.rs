//! What an error means for whoever called: its words and its exit code.

use std::process::ExitCode;

use quaymaster_server::config::ConfigError;

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

/// A file that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
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
    match error.downcast_ref::<quaymaster::Error>() {
        Some(error) => {
            format!(
                "{} [{}]: {}\n  help: {}",
                error.code.title(),
                error.code,
                error.detail,
                error.code.advice()
            )
        }
        None => format!("{error:#}"),
    }
}
