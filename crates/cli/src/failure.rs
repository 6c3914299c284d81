//! What an error means for whoever called: its words and its exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use quaymaster::Code;
use quaymaster::schema::Diagnostic;
use quaymaster_server::config::ConfigError;
use quaymaster_server::{Asked, reading_advice};
use serde_json::{Value, json};

use crate::output::millis;

/// The exit code of a command that stopped before it had seen everything.
pub(crate) const ONLY_A_PART: u8 = 4;

/// A schema that cannot be used; its problems were printed already.
#[derive(Debug)]
pub(crate) struct BadSchema {
    pub(crate) errors: Vec<Diagnostic>,
}

impl std::fmt::Display for BadSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.errors.len();
        let s = if count == 1 { "" } else { "s" };
        write!(f, "the schema has {count} error{s}")
    }
}

impl std::error::Error for BadSchema {}

/// What a layer below said.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A file that cannot be read, or written.
#[derive(Debug)]
pub(crate) struct Unreadable {
    told: String,
    /// The flag that names it.
    field: Option<&'static str>,
    source: Option<Cause>,
}

impl Unreadable {
    pub(crate) fn new(told: impl Into<String>) -> Self {
        Self { told: told.into(), field: None, source: None }
    }

    /// `cannot read FILE: no such file`
    pub(crate) fn because(what: impl std::fmt::Display, cause: impl Into<Cause>) -> Self {
        let cause = cause.into();
        Self { told: format!("{what}: {cause}"), field: None, source: Some(cause) }
    }

    /// The same of a file that this flag names.
    pub(crate) fn field(self, flag: &'static str) -> Self {
        Self { field: Some(flag), ..self }
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.told)
    }
}

impl std::error::Error for Unreadable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

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
        None => words(error),
    }
}

/// What an error of the command itself says.
fn words(error: &anyhow::Error) -> String {
    match error.downcast_ref::<Unreadable>() {
        // It says its cause itself.
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
    let unreadable = error.downcast_ref::<Unreadable>();
    let config = error.downcast_ref::<ConfigError>();
    let (code, field) = if let Some(NoStore(_)) = error.downcast_ref() {
        (Code::StoreRefused, Some("--data-dir"))
    } else if error.is::<BadSchema>() || unreadable.is_some() || config.is_some() {
        (Code::ConfigInvalid, unreadable.and_then(|file| file.field).or(config.and_then(ConfigError::field)))
    } else {
        (Code::Internal, None)
    };
    let mut told = quaymaster::Error::new("command", code, words(error));
    told.field = field.map(Into::into);
    let document = quaymaster_server::problem_document(&told, Asked::Looked);
    match error.downcast_ref::<BadSchema>() {
        Some(BadSchema { errors }) => with_errors(&document, errors),
        None => document,
    }
}

/// The document with what is wrong with the schema, one by one.
fn with_errors(document: &str, errors: &[Diagnostic]) -> String {
    let mut document: Value = serde_json::from_str(document).unwrap_or_default();
    document["errors"] = errors.iter().map(flaw).collect();
    document.to_string()
}

/// A flaw of a schema file, for programs.
pub(crate) fn flaw(flaw: &Diagnostic) -> Value {
    let Diagnostic { severity, code, source, line, column, message, help } = flaw;
    json!({
        "severity": severity.to_string(),
        "code": code,
        "file": source,
        "line": line,
        "column": column,
        "message": message,
        "help": help,
    })
}

fn told(error: &quaymaster::Error, advice: &str) -> String {
    let wait = error.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let wait = wait.map_or_else(String::new, |ms| format!("\n  retry in: {}", millis(ms)));
    format!("{} [{}]: {}\n  help: {advice}{wait}", error.code.title(), error.code, error.detail)
}

#[cfg(test)]
mod tests {
    use quaymaster_server::config::{Config, Overrides, RawConfig};

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
    fn a_file_and_a_setting_that_are_wrong_are_named_and_their_cause_is_told_once() {
        let cause = || std::io::Error::other("the cause");
        let file = anyhow::Error::from(Unreadable::because("--ca-file a.pem", cause()).field("--ca-file"));
        assert!(file.chain().nth(1).is_some_and(|cause| cause.is::<std::io::Error>()), "{file:?}");
        assert_eq!(describe(&file), "--ca-file a.pem: the cause");
        let flags = Overrides { max_memory: Some("much".into()), ..Overrides::default() };
        let Err(setting) = Config::resolve(RawConfig::default(), flags) else { panic!("no size") };
        let setting = anyhow::Error::from(setting);
        for (error, field) in [(file, "--ca-file"), (setting, "max_memory")] {
            let told: serde_json::Value = serde_json::from_str(&problem(&error)).unwrap_or_default();
            assert_eq!((&told["code"], &told["field"]), (&"config.invalid".into(), &field.into()), "{told}");
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
