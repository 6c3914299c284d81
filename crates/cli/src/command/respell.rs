//! `respell`: keys that an earlier version named get their names of today; nothing is changed without `--apply`.

use std::fmt::Write as _;
use std::process::ExitCode;

use quaymaster::respell::{Ask, LISTED, Mode, Report, What};
use quaymaster::{Code, Error, Quaymaster};
use quaymaster_server::config::{Needs, Overrides};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::serve::signalled;
use crate::args::{Global, Respell};
use crate::failure::NothingRan;
use crate::output::{self, columns, table};
use crate::progress::Progress;
use crate::setup;

/// Connections of other processes that are named.
const NAMED: usize = 5;

pub(crate) async fn run(args: Respell, global: &Global) -> anyhow::Result<ExitCode> {
    let mode = if args.apply { Mode::Apply } else { Mode::Look };
    let ask = Ask { mode, ..Ask::default() };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Opening a data folder has converted it already; what is left there are names that are taken.
    // Its connections have a name of their own: by the process alone, servers in containers look like this one.
    let client_name = Some("quaymaster-respell".to_owned());
    let overrides = Overrides { client_name, ..setup::overrides(args.place) };
    let (quaymaster, _) = setup::open_with(global, overrides, Needs::STORE).await?;
    let store = alone(&quaymaster, mode).await?;
    let stop = ask.stop.clone();
    let stopping = tokio::spawn(async move {
        signalled(&mut terminate, &mut interrupt).await;
        stop.cancel();
        signalled(&mut terminate, &mut interrupt).await;
        std::process::exit(130);
    });
    let progress = Progress::new("respell");
    let told = quaymaster.respell(ask, |report| progress.told(report.examined)).await;
    stopping.abort();
    progress.end();
    let closed = quaymaster.engine().close().await;
    let report = match (told, mode) {
        (Err(error), Mode::Look) => return Err(NothingRan::from(error).into()),
        (told, _) => told?,
    };
    closed?;
    if global.json {
        let mut told = serde_json::to_value(&report)?;
        told["applied"] = json!(mode == Mode::Apply);
        told["other_processes"] = json!(store.others);
        output::print(&serde_json::to_string_pretty(&told)?)?;
    } else {
        output::print(&describe(&report, mode, &store))?;
    }
    let done = report.complete && report.taken == 0 && report.old == report.renamed;
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What the store tells beside its keys.
struct Store {
    embedded: bool,
    /// Connections of other processes, where the store names them.
    others: Option<Vec<String>>,
}

/// Looks who else uses the store, and refuses to rename keys while somebody does.
async fn alone(quaymaster: &Quaymaster, mode: Mode) -> Result<Store, NothingRan> {
    let embedded = quaymaster.engine().deployment().await?.product == "embedded";
    let others = quaymaster.engine().other_processes().await?;
    if let (Mode::Apply, Some(names)) = (mode, &others)
        && !names.is_empty()
    {
        let more = if names.len() > NAMED { ", …" } else { "" };
        let named = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let detail = format!(
            "nothing was renamed: other processes of Quaymaster use this store ({named}{more}); stop them first"
        );
        return Err(Error::new("respell", Code::StoreNames, detail).into());
    }
    Ok(Store { embedded, others })
}

fn describe(report: &Report, mode: Mode, store: &Store) -> String {
    let mut text = String::new();
    if !report.findings.is_empty() {
        let rows = report.findings.iter().map(|finding| {
            let what = match finding.what {
                What::Old => "old",
                What::Renamed => "renamed",
                What::Taken => "taken, left alone",
            };
            [what.to_owned(), finding.old.clone(), finding.new.clone()]
        });
        text.push_str(&columns(["found", "old name", "name of today"], rows.collect()));
        let found = report.old + report.taken;
        if found > report.findings.len() as u64 {
            let _ = writeln!(text, "… the first {LISTED} of {found}");
        }
        text.push('\n');
    }
    text.push_str(&table(&[
        ("old names", report.old.to_string()),
        ("taken", report.taken.to_string()),
        ("renamed", report.renamed.to_string()),
    ]));
    if store.embedded {
        text.push_str("a data folder is converted whenever it is opened: there is nothing to apply\n");
    }
    if report.taken > 0 {
        text.push_str("taken: both names hold something; compare the two keys and delete one\n");
    }
    if !report.complete {
        text.push_str("not all was seen: run it again to go on\n");
    }
    if mode == Mode::Look && report.old > 0 {
        text.push_str(
            "nothing was changed: stop every server and worker of these schemas, then use --apply\n",
        );
    }
    if !store.embedded && store.others.is_none() {
        text.push_str(
            "the store does not say who is connected: make sure yourself that no server or worker runs\n",
        );
    }
    text
}
