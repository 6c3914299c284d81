//! `upload doctor [ID]`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use quaymaster::run::moment;
use quaymaster::schema::Kind;
use quaymaster::{Code, Error};
use quaymaster_server::{Depot, upload_error};
use quaymaster_upload::Uploads;
use quaymaster_upload::doctor::{At, Mode, Orphan, Report};
use serde_json::{Value, json};

use super::args::Doctor;
use super::resource;
use crate::args::Global;
use crate::output;
use crate::progress::Progress;
use crate::setup::{self, Intent};

/// Uploads looked at in one go.
const PAGE: u32 = 100;

pub(crate) async fn run(args: Doctor, global: &Global) -> anyhow::Result<ExitCode> {
    let mode = if args.repair { Mode::Repair } else { Mode::Look };
    let intent = if args.repair { Intent::Change } else { Intent::Look };
    let (quaymaster, depot) =
        setup::open_for_call(global, args.place, intent, Kind::Upload, args.resource.as_deref()).await?;
    let name = resource(quaymaster.schema(), args.resource)?;
    let looked = match args.upload_id {
        Some(id) => one(&depot, &name, &id, mode).await,
        None => all(&depot, &name, mode).await,
    };
    quaymaster.engine().close().await?;
    let (reports, orphans, told) = looked?;
    let text = if global.json {
        as_json(&reports, &orphans).to_string()
    } else {
        output::printable_lines(&as_text(&reports, &orphans, told))
    };
    output::print(&text)?;
    let wrong = reports.iter().any(|report| !report.left.is_empty());
    let wrong = wrong || orphans.iter().any(|orphan| !orphan.aborted);
    Ok(if wrong { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Whether the history is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Findings,
    History,
}

type Looked = anyhow::Result<(Vec<Report>, Vec<Orphan>, Told)>;

async fn one(depot: &Depot, name: &str, id: &str, mode: Mode) -> Looked {
    let uploads = depot.open(name).await?;
    match uploads.examine(id, mode).await.map_err(upload_error)? {
        Some(report) => Ok((vec![report], Vec::new(), Told::History)),
        None => {
            Err(Error::new("upload.doctor", Code::UploadUnknown, format!("nobody knows upload {id:?}"))
                .into())
        }
    }
}

async fn all(depot: &Depot, name: &str, mode: Mode) -> Looked {
    let uploads = depot.open(name).await?;
    let progress = Progress::new("looking");
    let (mut reports, mut looked) = (Vec::new(), 0);
    let mut next = Some(At::default());
    while let Some(at) = next {
        let page = uploads.examine_page(&at, PAGE, mode).await.map_err(upload_error)?;
        reports.extend(page.reports);
        looked += page.looked;
        progress.told(looked);
        next = page.next;
    }
    let orphans = orphans(&uploads, mode).await.map_err(upload_error)?;
    progress.end();
    Ok((reports, orphans, Told::Findings))
}

async fn orphans(uploads: &Uploads, mode: Mode) -> quaymaster_upload::Result<Vec<Orphan>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = uploads.orphans(now_ms, after.as_ref(), mode).await?;
        found.extend(page);
        if next.is_none() {
            return Ok(found);
        }
        after = next;
    }
}

fn as_json(reports: &[Report], orphans: &[Orphan]) -> Value {
    let uploads = reports.iter().map(|report| {
        let history = report.history.iter().map(|event| {
            json!({
                "at": moment(event.at_ms.saturating_mul(1000)), "step": event.step, "what": event.what,
                "detail": event.detail, "fence": event.fence, "owner": event.owner,
            })
        });
        json!({
            "upload_id": report.upload_id,
            "step": report.step.map(|step| step.name()),
            "status": report.status.map(|status| status.name()),
            "findings": report.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "repaired": report.repaired,
            "left": report.left.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "history": history.collect::<Vec<_>>(),
        })
    });
    let orphans = orphans.iter().map(|orphan| {
        json!({
            "key": orphan.pending.key, "multipart_id": orphan.pending.id.as_str(), "why": orphan.why,
            "aborted": orphan.aborted,
        })
    });
    json!({ "uploads": uploads.collect::<Vec<_>>(), "orphans": orphans.collect::<Vec<_>>() })
}

fn as_text(reports: &[Report], orphans: &[Orphan], told: Told) -> String {
    let mut text = String::new();
    for report in reports {
        let step = report.step.map_or("unknown to the ledger", |step| step.name());
        let status = report.status.map_or("no state in the store", |status| status.name());
        let _ = writeln!(text, "{}  {step}  {status}", report.upload_id);
        for finding in &report.findings {
            let _ = writeln!(text, "  found     {finding}");
        }
        for done in &report.repaired {
            let _ = writeln!(text, "  repaired  {done}");
        }
        for finding in report.left.iter().filter(|_| !report.repaired.is_empty()) {
            let _ = writeln!(text, "  left      {finding}");
        }
        if told == Told::History {
            for event in &report.history {
                let at = moment(event.at_ms.saturating_mul(1000));
                let detail =
                    if event.detail.is_empty() { String::new() } else { format!(": {}", event.detail) };
                let _ = writeln!(text, "  {at}  {:<10}  {}{detail}", event.step, event.what);
            }
        }
    }
    for orphan in orphans {
        let (pending, done) = (&orphan.pending, if orphan.aborted { "aborted" } else { "orphan" });
        let _ = writeln!(text, "{done}  {}  {}: {}", pending.key, pending.id, orphan.why);
    }
    if reports.is_empty() && orphans.is_empty() {
        text.push_str("nothing is wrong\n");
    }
    text
}
