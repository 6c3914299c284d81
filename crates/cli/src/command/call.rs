//! `<kind> <verb> NAME`: straight on the store, by the server's own table of calls.

use std::process::ExitCode;

use quaymaster::{Code, Error, Quaymaster};
use quaymaster_server::command::Command;
use quaymaster_server::doctor::SEAL_KEY;

use crate::answer;
use crate::calls::{Call, flag};
use crate::failure::NothingRan;
use crate::output;
use crate::progress::Progress;
use crate::setup::{self, Intent};

pub(crate) async fn run(call: Call, global: &crate::args::Global) -> anyhow::Result<ExitCode> {
    let Call { command, name, key, fields, place, json } = call;
    for (at, (name, _)) in key.iter().enumerate() {
        if key[..at].iter().any(|(known, _)| known == name) {
            let detail = format!("--key gives {name:?} twice; each placeholder has one value");
            return Err(Error::new("key", Code::RequestInvalid, detail).into());
        }
    }
    let intent = if command.only_reads() { Intent::Look } else { Intent::Change };
    let (quaymaster, depot) = setup::open_all(global, place, intent).await?;
    warn_unsealed(&quaymaster, command, &name);
    let progress = Progress::new(command.verb());
    let told = command.run(quaymaster.clone(), depot, &name, &key, fields, &|done| progress.told(done)).await;
    progress.end();
    let closed = quaymaster.engine().close().await;
    let told = match (told, intent) {
        (Err(error), Intent::Look) => return Err(NothingRan::from(in_flags(error, command)).into()),
        (told, _) => told.map_err(|error| in_flags(error, command))?,
    };
    closed?;
    let (no, table) = read(command, &told);
    output::print(&table.filter(|_| !json).unwrap_or(told))?;
    Ok(if no { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Whether an answer is a "no", and its table.
///
/// What other programs stored may be JSON that cannot be read here: half of a surrogate pair, as Python writes for a
/// file name that is no UTF-8, a number that no float holds, lists in lists in lists. Whoever claimed such a job needs
/// its lease all the same, so it is printed as it came. There is no "no" with something in it.
fn read(command: Command, told: &str) -> (bool, Option<String>) {
    let no = serde_json::from_str(told).is_ok_and(|answer| command.said_no(&answer));
    (no, answer::table(told).ok())
}

/// A command that stores a secret readable says so; one that only looks stores nothing.
fn warn_unsealed(quaymaster: &Quaymaster, command: Command, name: &str) {
    let resource = quaymaster.schema().resource(command.kind(), name);
    if !quaymaster.seals() && !command.only_reads() && resource.is_some_and(|resource| resource.sensitive) {
        tracing::warn!("{}.{name} is sensitive and stored readable: {SEAL_KEY} is not set", command.kind());
    }
}

/// The server speaks of fields; whoever typed flags is told of flags.
fn in_flags(mut error: Error, command: Command) -> Error {
    for arg in command.args() {
        let rest = error.detail.strip_prefix(arg.name);
        if let Some(rest) = rest.filter(|rest| rest.starts_with([' ', ':'])) {
            error.detail = format!("--{}{rest}", flag(arg.name));
            break;
        }
    }
    error
}
