//! `status`, `retry` and `clean`: commands that look, and end.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use quaymaster::clean::{Ask, Mode, What};
use quaymaster::queue::{Push, Redrive};
use quaymaster::run::{FailuresAsk, Items, RetryAsk, Run, RunState, moment};
use quaymaster::{Code, Error, Quaymaster};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::docket::Docket;
use crate::settings::{self, NAME};
use crate::{open, say};

/// Failures listed by `status`.
const LISTED: u64 = 1_000;
/// Failures taken at once by `retry`.
const TAKEN: u64 = 500;
/// How long failures that `retry` took and did not queue are kept from the next one.
const LEASE: Duration = Duration::from_secs(300);

/// The run that was active last.
pub(crate) async fn newest(run: &Run) -> Result<Option<RunState>, Error> {
    // One that cannot be shown is left out of a page: it must not hide the others.
    Ok(run.list(20, None).await?.runs.into_iter().next())
}

async fn wanted(run: &Run, id: Option<&str>) -> Result<RunState, Error> {
    let found = match id {
        Some(id) => run.show(id, Items::Without).await?,
        None => newest(run).await?,
    };
    let missing = || match id {
        Some(id) => format!("there is no run {id:?}"),
        None => "there is no run yet".to_owned(),
    };
    found.ok_or_else(|| Error::new("run.show", Code::RunMissing, missing()))
}

pub(crate) async fn status(args: settings::Status) -> anyhow::Result<ExitCode> {
    let quaymaster = open(&args.place).await?;
    let told = examine(&quaymaster, &args).await;
    let _ = quaymaster.engine().close().await;
    let told = told?;
    say(&if args.json { serde_json::to_string_pretty(&told)? } else { describe(&told) })?;
    let well =
        told["run"]["failed_count"] == 0 && told["run"]["stale"] == false && told["queue"]["dead"] == 0;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn examine(quaymaster: &Quaymaster, args: &settings::Status) -> anyhow::Result<Value> {
    let run = quaymaster.run(NAME)?;
    let shown = wanted(run, args.run.as_deref()).await?;
    let quota = quaymaster.limit(NAME)?.peek(&[]).await?;
    let quota = quota.quota();
    let pressure = quaymaster.queue(&args.queue)?.pressure().await?;
    let deployment = quaymaster.engine().deployment().await?;
    let health = quaymaster.engine().health();
    let mut told = json!({
        "run": {
            "run_id": shown.run_id,
            "status": shown.status,
            "stale": shown.stale,
            "start_time": shown.start_time,
            "current_hour": shown.current_hour,
            "api_calls_this_hour": shown.calls_this_hour,
            "peak_calls": shown.peak_calls,
            "peak_hour": shown.peak_hour,
            "processed_count": shown.processed_count,
            "failed_count": shown.failed_count,
            "last_activity": moment(shown.last_activity_us),
            "tasks": shown.tasks.iter().map(|task| json!({
                "task_id": task.task_id,
                "started_at": moment(task.started_us),
                "duration_ms": task.duration.map(|took| took.as_millis() as u64),
            })).collect::<Vec<_>>(),
        },
        "quota": {
            "used": quota.used,
            "limit": quota.limit,
            "remaining": quota.remaining,
            "reset_after_ms": quota.reset_after.as_millis() as u64,
        },
        "queue": {
            "waiting": pressure.current_length,
            "fetching": pressure.leased,
            "delayed": pressure.delayed,
            "dead": pressure.dead,
        },
        "store": {
            "product": deployment.product,
            "version": deployment.version,
            "mode": deployment.mode,
            "persistence": deployment.persistence,
            "used_memory_bytes": deployment.used_memory_bytes,
            "connected_clients": deployment.connected_clients,
            "connect_attempts": health.connect_attempts,
            "connect_failures": health.connect_failures,
            "operations": health.operations,
            "failures": health.failures,
            "success_rate": health.success_rate(),
            "consecutive_failures": health.consecutive_failures,
            "average_us": health.mean_latency_us(),
        },
    });
    if args.failures {
        let ask = FailuresAsk { run_id: Some(&shown.run_id), count: LISTED, ..FailuresAsk::default() };
        let page = run.failures(ask).await?;
        told["failures"] = page
            .failures
            .iter()
            .map(|failure| {
                json!({
                    "item": failure.item,
                    "error": failure.error,
                    "attempts": failure.attempts,
                    "last_failed_at": moment(failure.last_failed_us),
                })
            })
            .collect();
    }
    Ok(told)
}

fn describe(told: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (run, quota, queue, store) = (&told["run"], &told["quota"], &told["queue"], &told["store"]);
    let rate = store["success_rate"].as_f64().unwrap_or(0.0) * 100.0;
    let reset_s = quota["reset_after_ms"].as_u64().unwrap_or(0).div_ceil(1000);
    let mut rows = vec![
        ("run", text(&run["run_id"])),
        ("status", text(&run["status"])),
        ("started", text(&run["start_time"])),
        ("last activity", text(&run["last_activity"])),
        ("processed", text(&run["processed_count"])),
        ("failed", text(&run["failed_count"])),
        (
            "queue",
            format!(
                "{} waiting, {} being fetched, {} to be tried again, {} dead",
                queue["waiting"], queue["fetching"], queue["delayed"], queue["dead"]
            ),
        ),
        ("calls this hour", format!("{} of {}, resets in {reset_s} s", quota["used"], quota["limit"])),
        (
            "store",
            format!(
                "{} {} ({}), {rate:.1} % of {} operations well, {} µs on average",
                text(&store["product"]),
                text(&store["version"]),
                text(&store["mode"]),
                store["operations"],
                store["average_us"]
            ),
        ),
    ];
    for task in run["tasks"].as_array().into_iter().flatten() {
        let took = match task["duration_ms"].as_u64() {
            Some(ms) => format!("took {:.1} s", ms as f64 / 1e3),
            None => "runs".to_owned(),
        };
        rows.push((
            "task",
            format!("{}, since {}, {took}", text(&task["task_id"]), text(&task["started_at"])),
        ));
    }
    for failure in told["failures"].as_array().into_iter().flatten() {
        let error: String = text(&failure["error"]).chars().filter(|c| !c.is_control()).collect();
        rows.push(("failure", format!("{}: {error}", text(&failure["item"]))));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let table = rows.iter().fold(String::new(), |mut table, (name, value)| {
        let _ = writeln!(table, "{name:width$}  {value}");
        table
    });
    table.trim_end().to_owned()
}

/// Puts what failed into the queue again; it stays listed until it is processed.
pub(crate) async fn retry(args: settings::Retry) -> anyhow::Result<ExitCode> {
    let quaymaster = open(&args.place).await?;
    let told = again(&quaymaster, &args).await;
    let closed = quaymaster.engine().close().await;
    let (queued, redriven) = told?;
    closed?;
    say(&format!("{queued} failed dockets and {redriven} dead letters are in the queue again"))?;
    Ok(if queued + redriven > 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn again(quaymaster: &Quaymaster, args: &settings::Retry) -> anyhow::Result<(u64, u64)> {
    let (run, queue) = (quaymaster.run(NAME)?, quaymaster.queue(&args.queue)?);
    let run_id = wanted(run, args.run.as_deref()).await?.run_id;
    let mut queued = 0;
    while queued < args.count {
        let count = TAKEN.min(args.count - queued);
        let ask = RetryAsk { run_id: Some(&run_id), count, lease: LEASE, request_id: None };
        let failures = run.retry(ask).await?;
        if failures.is_empty() {
            break;
        }
        for failure in failures {
            // What some other program listed may be no docket, and stays listed.
            let Ok(docket) = Docket::parse(&failure.item) else { continue };
            // One that is in the queue since its last failure is not put there twice.
            let id = format!("retry-{docket}-{}", failure.last_failed_us);
            let pushed = queue.push(Push { id: Some(id), ..Push::one(docket.job()) }).await?;
            queued += pushed.accepted;
        }
    }
    // Jobs whose nodes died every time, before anybody could list them.
    let redriven = queue.redrive(Redrive::default(), |_| ()).await?.moved;
    Ok((queued, redriven))
}

pub(crate) async fn clean(args: settings::Clean, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let quaymaster = open(&args.place).await?;
    let mode = if args.apply { Mode::Apply } else { Mode::Look };
    let ask = Ask { mode, rate: args.rate, stop, ..Ask::default() };
    let told = quaymaster.clean(ask, |report| tracing::debug!(report.examined, "looked at")).await;
    let closed = quaymaster.engine().close().await;
    let report = told?;
    closed?;
    let mut text = String::new();
    for finding in &report.findings {
        let what = match finding.what {
            What::Stale => "stale",
            What::Immortal => "without an end",
            What::Dangling => "points nowhere",
            What::OtherType => "of another type",
            What::Unusable => "has a number nobody can count on",
        };
        let done = if finding.done { ", put right" } else { "" };
        let member = finding.member.as_ref().map_or(String::new(), |member| format!(" → {member}"));
        let key: String = format!("{}{member}", finding.key).chars().flat_map(char::escape_debug).collect();
        let _ = writeln!(text, "{what}{done}: {key}");
    }
    let _ = write!(
        text,
        "{} keys looked at, {} found, {} put right{}",
        report.examined,
        report.found(),
        report.done,
        if mode == Mode::Look && report.found() > 0 { "; --apply changes them" } else { "" }
    );
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}
