//! `<kind> <verb> NAME`: straight on the store, or by a running server.

use std::process::ExitCode;
use std::time::Duration;

use quaymaster::schema::Kind;
use quaymaster::{Code, Error, Quaymaster};
use quaymaster_server::command::{Command, Fields, Progress as Told};
use quaymaster_server::doctor::SEAL_KEY;
use quaymaster_server::{Field, Services};

use crate::answer::Answered;
use crate::args::Global;
use crate::calls::{Call, flag};
use crate::failure::NothingRan;
use crate::output;
use crate::progress::Progress;
use crate::remote::Client;
use crate::report;
use crate::setup::{self, Intent};

pub(crate) async fn run(call: Call, global: &Global) -> anyhow::Result<ExitCode> {
    let command = call.command;
    let answering = Answering::open(&call, global).await?;
    let progress = Progress::new(command.verb());
    let told = answering.ask(&call, &call.given.fields, &|done| progress.told(done)).await;
    progress.end();
    let closed = answering.close().await;
    let told = match told {
        Err(error) if command.only_reads() => return Err(NothingRan::from(error).into()),
        told => told?,
    };
    closed?;
    let (no, table) = read(command, &told);
    output::print(&table.filter(|_| !global.json).unwrap_or(told.text))?;
    Ok(if no { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Who answers calls.
pub(crate) enum Answering {
    /// A running server.
    Server(Client),
    /// This process, on a store that it has opened.
    Here(Box<Services>, Quaymaster),
}

impl Answering {
    pub(crate) async fn open(call: &Call, global: &Global) -> anyhow::Result<Self> {
        for (at, (name, _)) in call.key.iter().enumerate() {
            if call.key[..at].iter().any(|(known, _)| known == name) {
                let detail = format!("--key gives {name:?} twice; each placeholder has one value");
                return Err(Error::new("key", Code::RequestInvalid, detail).field("--key").into());
            }
        }
        if let Some(client) = call.remote.client()? {
            return Ok(Self::Server(client));
        }
        let intent = if call.command.only_reads() { Intent::Look } else { Intent::Change };
        let (quaymaster, depot) =
            setup::open_for_call(global, call.place.clone(), intent, call.command.kind(), Some(&call.name))
                .await?;
        warn_unsealed(&quaymaster, call.command, &call.name);
        Ok(Self::Here(Box::new(Services::new(quaymaster.clone(), depot)), quaymaster))
    }

    pub(crate) async fn ask(&self, call: &Call, fields: &Fields, told: Told<'_>) -> Result<Answered, Error> {
        let Call { command, name, key, .. } = call;
        let answer = match self {
            Self::Server(client) => {
                let wait = fields.get("wait_ms").and_then(|ms| ms.get().parse().ok()).unwrap_or(0);
                match command.sent(name, key, fields) {
                    Ok(sent) => client.ask(*command, sent, Duration::from_millis(wait)).await,
                    Err(error) => Err(error),
                }
            }
            Self::Here(services, _) => {
                command.run(services, name, key, fields, told).await.map(Answered::from)
            }
        };
        answer.map_err(|error| in_flags(error, command.fields()))
    }

    pub(crate) async fn close(self) -> Result<(), Error> {
        match self {
            Self::Server(_) => Ok(()),
            Self::Here(_, quaymaster) => quaymaster.engine().close().await,
        }
    }
}

/// Whether an answer is a "no", and its table.
///
/// What other programs stored may be JSON that cannot be read here: half of a surrogate pair, as Python writes for a
/// file name that is no UTF-8, a number that no float holds, lists in lists in lists. Whoever claimed such a job needs
/// its lease all the same, so it is printed as it came. There is no "no" with something in it.
fn read(command: Command, told: &Answered) -> (bool, Option<String>) {
    if (command.kind(), command.verb()) == (Kind::Stats, "report") {
        return (false, serde_json::from_str(&told.text).ok().map(|report| report::table(&report)));
    }
    let Ok(answer) = &told.answer else { return (false, None) };
    (command.said_no(|field| answer.field(field)), answer.table().ok())
}

/// A command that stores a secret readable says so; one that only looks stores nothing.
fn warn_unsealed(quaymaster: &Quaymaster, command: Command, name: &str) {
    let resource = quaymaster.schema().resource(command.kind(), name);
    if !quaymaster.seals() && !command.only_reads() && resource.is_some_and(|resource| resource.sensitive) {
        tracing::warn!("{}.{name} is sensitive and stored readable: {SEAL_KEY} is not set", command.kind());
    }
}

/// Requests have fields; whoever typed flags is told of flags: `ttl_ms` is `--ttl-ms`, `key.id` is `--key id`, and a part
/// of a field that holds JSON is `--requests[2].path`.
pub(crate) fn in_flags(error: Error, mut flags: impl Iterator<Item = &'static Field>) -> Error {
    let Some(field) = error.field.as_deref() else { return error };
    let (name, rest) = field.split_at(field.find(['.', '[']).unwrap_or(field.len()));
    let told = match (name, rest.strip_prefix('.')) {
        ("key", None) => "--key".to_owned(),
        ("key", Some(placeholder)) => format!("--key {placeholder}"),
        _ if flags.any(|known| known.name == name) => format!("--{}{rest}", flag(name)),
        _ => return error,
    };
    error.field_called(&told)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_field_is_told_as_its_flag_and_a_message_that_only_begins_like_one_stays() {
        let acquire = || {
            let is_it = |command: &Command| command.kind().name() == "lock" && command.verb() == "acquire";
            quaymaster_server::command::commands().find(is_it).unwrap()
        };
        let error = |words: &str| Error::new("lock.acquire", Code::RequestInvalid, words);
        for (error, field, told) in [
            (error("ttl_ms: 1 to 30000").field("ttl_ms"), Some("--ttl-ms"), "--ttl-ms: 1 to 30000"),
            (error("a lease of nothing").field("ttl_ms"), Some("--ttl-ms"), "a lease of nothing"),
            (error("ttl_ms: of another call").field("then"), Some("then"), "ttl_ms: of another call"),
            (error("ttl_ms: 1 to 30000"), None, "ttl_ms: 1 to 30000"),
            (error("key.id: empty").field("key.id"), Some("--key id"), "--key id: empty"),
            (error("no id").field("key"), Some("--key"), "no id"),
            (error("ttl_ms[2].a: 1").field("ttl_ms[2].a"), Some("--ttl-ms[2].a"), "--ttl-ms[2].a: 1"),
        ] {
            let flagged = in_flags(error, acquire().fields());
            assert_eq!((flagged.field.as_deref(), flagged.detail.as_str()), (field, told));
        }
    }
}
