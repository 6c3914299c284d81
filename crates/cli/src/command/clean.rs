//! `clean`: what the schema's keys have left behind; nothing is changed without `--apply`.

use std::fmt::Write as _;
use std::process::ExitCode;

use quaymaster::clean::{Ask, LISTED, Mode, Report, What};
use quaymaster::schema::Kind;
use quaymaster::{Code, Error};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::serve::signalled;
use crate::args::{Clean, Global};
use crate::failure::{NothingRan, ONLY_A_PART};
use crate::output::{self, columns, table};
use crate::progress::Progress;
use crate::setup;

pub(crate) async fn run(args: Clean, global: &Global) -> anyhow::Result<ExitCode> {
    let only = args.only.as_deref().map(resource).transpose()?;
    let mode = if args.apply { Mode::Apply } else { Mode::Look };
    let ask = Ask { mode, only, rate: args.rate, most: args.most, from: args.from, ..Ask::default() };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A store that is not there has nothing to clean, and is not made for it.
    let quaymaster = setup::open(global, args.place).await?;
    let stop = ask.stop.clone();
    let stopping = tokio::spawn(async move {
        signalled(&mut terminate, &mut interrupt).await;
        stop.cancel();
        signalled(&mut terminate, &mut interrupt).await;
        std::process::exit(130);
    });
    let progress = Progress::new("clean");
    let told = quaymaster.clean(ask, |report| progress.told(report.examined)).await;
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
        output::print(&serde_json::to_string_pretty(&told)?)?;
    } else {
        output::print(&describe(&report, mode))?;
    }
    Ok(if report.next.is_some() { ExitCode::from(ONLY_A_PART) } else { ExitCode::SUCCESS })
}

/// `run.courtlistener`
fn resource(text: &str) -> Result<(Kind, String), Error> {
    let parsed = text.split_once('.').and_then(|(kind, name)| Some((kind.parse().ok()?, name.to_owned())));
    parsed.ok_or_else(|| {
        let detail =
            format!("--only {text:?}: a resource is named by its kind and name, as `limit.courtlistener`");
        Error::new("clean", Code::RequestInvalid, detail).field("--only")
    })
}

fn describe(report: &Report, mode: Mode) -> String {
    let mut text = String::new();
    if !report.findings.is_empty() {
        let rows = report.findings.iter().map(|finding| {
            let key = match &finding.member {
                Some(member) => format!("{} → {member}", finding.key),
                None => finding.key.clone(),
            };
            let key: String = key.chars().flat_map(char::escape_debug).collect();
            [spoken(finding.what, mode, finding.done).to_owned(), finding.resource.clone(), key]
        });
        text.push_str(&columns(["found", "resource", "key"], rows.collect()));
        if report.found() > report.findings.len() as u64 {
            let _ = writeln!(text, "… the first {LISTED} of {}", report.found());
        }
        text.push('\n');
    }
    text.push_str(&table(&[
        ("looked at", format!("{} keys, {} of the schema", report.examined, report.declared)),
        ("stale", report.stale.to_string()),
        ("without an end", report.immortal.to_string()),
        ("pointing nowhere", report.dangling.to_string()),
        ("of another type", report.other_type.to_string()),
        ("unusable numbers", report.unusable.to_string()),
        ("put right", report.done.to_string()),
    ]));
    if let Some(next) = &report.next {
        let _ = writeln!(text, "not all was seen: go on with --from {next}");
    }
    if mode == Mode::Look && report.found() > report.other_type {
        text.push_str("nothing was changed: --apply does\n");
    }
    text.push_str(fence_warning(report));
    text
}

/// The warning beside fences: whoever compares them may hold a higher one than the next.
fn fence_warning(report: &Report) -> &'static str {
    let mut fences = report
        .findings
        .iter()
        .filter(|found| found.what == What::Unusable && found.resource.starts_with("lock."));
    match fences.next() {
        None => "",
        Some(found) if found.done => {
            "warning: the next fences are the store's time: lower higher ones in your rows, or their writes are refused\n"
        }
        Some(_) => {
            "warning: a fence is removed only with --apply --only lock.NAME. The next one is the store's time: lower \
             higher ones in your rows, or their writes are refused\n"
        }
    }
}

fn spoken(what: What, mode: Mode, done: bool) -> &'static str {
    match (what, mode, done) {
        (What::OtherType, ..) => "of another type, left alone",
        (What::Unusable, _, false) => "unusable number",
        (What::Unusable, _, true) => "unusable number, removed",
        (_, Mode::Apply, false) => "changed meanwhile, left alone",
        (What::Stale, _, false) => "stale",
        (What::Immortal, _, false) => "without an end",
        (What::Dangling, _, false) => "points nowhere",
        (What::Stale, _, true) => "stale, removed",
        (What::Immortal, _, true) => "without an end, given one",
        (What::Dangling, _, true) => "pointed nowhere, taken out",
    }
}
