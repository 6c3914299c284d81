//! Calls instances and counts the answers, so that the report can be compared with a count that shares nothing with it.

mod client;
mod compare;
mod count;
mod plan;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use client::{Target, Told, ask};
use compare::Compared;
use count::Count;
use plan::Plan;

use crate::settings;

/// Before an instance that refuses connections is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// What the connections share.
#[derive(Debug)]
struct Work {
    plan: Plan,
    requests: u64,
    next: AtomicU64,
    answered: AtomicU64,
    /// Requests somebody took and could not send.
    returned: Mutex<Vec<u64>>,
    stop: CancellationToken,
}

/// Runs the load; 0 when the report agrees, 1 when it does not.
pub(crate) async fn run(args: settings::Load, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let targets: Vec<Target> = args.to.iter().map(|url| Target::from_url(url)).collect::<Result<_, _>>()?;
    // A wrong address is told now; an instance that goes away later is waited for.
    for (target, url) in targets.iter().zip(&args.to) {
        drop(target.connect().await.with_context(|| format!("{url} cannot be reached"))?);
    }
    let comparing = match &args.compare {
        Some(url) => Some(compare::Before::look(Target::from_url(url)?).await?),
        None => None,
    };
    let work = Arc::new(Work {
        plan: Plan { seed: args.seed, callers: args.callers },
        requests: args.requests,
        next: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        returned: Mutex::default(),
        stop,
    });
    let began = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..args.connections {
        for target in &targets {
            running.spawn(work.clone().connection(target.clone()));
        }
    }
    let mut count = Count::default();
    while let Some(part) = running.join_next().await {
        count.add(&part?);
    }
    let seconds = began.elapsed().as_secs_f64();
    tracing::info!(
        requests = count.requests,
        unanswered = count.unanswered,
        a_second = (count.requests as f64 / seconds).round(),
        "done"
    );
    let agrees = match comparing {
        Some(before) => {
            let compared = before.compare(&count, Duration::from_secs(args.patience)).await?;
            print(&compared.to_string())?;
            matches!(compared, Compared { apart: 0, .. })
        }
        None => true,
    };
    match args.out {
        Some(file) if file.as_os_str() == "-" => print(&serde_json::to_string(&count)?)?,
        Some(file) => std::fs::write(file, serde_json::to_string(&count)?)?,
        None if args.compare.is_none() => {
            let lines: Vec<String> =
                count.rows().iter().map(|(name, count)| format!("{count:>10}  {name}")).collect();
            print(&lines.join("\n"))?;
        }
        None => {}
    }
    Ok(if agrees { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Work {
    async fn connection(self: Arc<Self>, target: Target) -> Count {
        let mut count = Count::default();
        while !self.is_done() {
            let connected = tokio::select! {
                connected = target.connect() => connected,
                () = self.stop.cancelled() => return count,
            };
            let Ok(mut sender) = connected else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            while let Some(number) = self.take() {
                let asked = self.plan.ask(number);
                match ask(&mut sender, &target, &asked).await {
                    Told::Answer { status, instance } => {
                        self.answered.fetch_add(1, Relaxed);
                        count.answered(asked.endpoint, &instance, status);
                    }
                    Told::NotSent => {
                        self.returned.lock().push(number);
                        break;
                    }
                    Told::Nothing => {
                        self.answered.fetch_add(1, Relaxed);
                        count.unanswered += 1;
                        break;
                    }
                }
            }
            // Others may still give back what they could not send.
            if !self.is_done() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        count
    }

    fn take(&self) -> Option<u64> {
        if self.stop.is_cancelled() {
            return None;
        }
        if let Some(number) = self.returned.lock().pop() {
            return Some(number);
        }
        self.next.fetch_update(Relaxed, Relaxed, |next| (next < self.requests).then_some(next + 1)).ok()
    }

    fn is_done(&self) -> bool {
        self.stop.is_cancelled() || self.answered.load(Relaxed) >= self.requests
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}
