//! A node from its start to its end.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use parking_lot::Mutex;
use quaymaster::queue::Queue;
use quaymaster::run::{Fields, Items, Run, RunState};
use quaymaster::store::StoreOptions;
use quaymaster::store::backoff::Backoff;
use quaymaster::worker::Worker;
use quaymaster::{Code, Error, Quaymaster};
use quaymaster_server::doctor::Eviction;
use quaymaster_server::open_store;
use ring::digest::{Context, SHA256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::fetch::Fetcher;
use crate::figures::{Figures, Told};
use crate::gate::{Gate, Waiting};
use crate::intake::{self, Intake};
use crate::keep::Keep;
use crate::patience::Patience;
use crate::progress::{Progress, Standing};
use crate::report::newest;
use crate::settings::{NAME, PAUSES, Work, schema};

/// Between two looks at how far the run is.
const LOOK: Duration = Duration::from_millis(500);
/// How often a node gives a sign of life, whatever it waits for.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);
/// How nodes end a run: with everything fetched, or with failures listed.
const COMPLETED: &str = "completed";
const INCOMPLETE: &str = "incomplete";
/// What is left to say at the end is said within this, or not at all.
const FAREWELL: Duration = Duration::from_secs(5);

/// Works until nothing is left, or until told to stop.
pub(crate) async fn work(args: Work, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.dockets {
        std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    let schema = Arc::new(schema(args.place.schema.as_deref())?);
    let node = args.node.clone().unwrap_or_else(|| format!("node-{:08x}", fastrand::u32(..)));
    let api = Api::new(&args.api, args.api_token.as_deref(), args.timeout, usize::from(args.concurrency))?;
    let keep = Keep::open(&args.out, &node)?;
    let options = StoreOptions::from_url(&args.place.store, &args.place.data_dir)?;
    let store = options.to_string();
    let engine = open_store(options, schema.clone(), Eviction::Refused, Backoff::default()).await?;
    let quaymaster = Quaymaster::new(schema, engine);
    let worked = node_of(&args, &quaymaster, node, api, keep, &store, stop).await;
    let closed = quaymaster.engine().close().await;
    let code = worked?;
    closed?;
    Ok(code)
}

async fn node_of(
    args: &Work,
    quaymaster: &Quaymaster,
    node: String,
    api: Api,
    keep: Keep,
    store: &str,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let (queue, run) = (quaymaster.queue(&args.queue)?.clone(), quaymaster.run(NAME)?.clone());
    let most = queue.spec().retry.max_attempts;
    anyhow::ensure!(
        args.attempts < most,
        "--attempts {}: queue {:?} gives up after {most}, and a docket is to be listed before",
        args.attempts,
        args.queue
    );
    let Some(run_id) = begin(&run, args.run.as_deref(), &stop).await? else { return Ok(ExitCode::from(1)) };
    crate::say(&format!("docket-pipeline works on run {run_id} as {node} (store: {store})"))?;

    let gate = Gate::new(
        quaymaster.limit(NAME)?.clone(),
        quaymaster.cache(PAUSES)?.clone(),
        quaymaster.engine().clone(),
        api.name(),
        args.recheck,
        stop.clone(),
    );
    let waiting = gate.waiting();
    let fetcher = Arc::new(Fetcher {
        api,
        gate,
        run: run.clone(),
        run_id: run_id.clone(),
        keep,
        figures: Figures::new(Instant::now()),
        attempts: args.attempts,
        incarnation: format!("{node}.{:016x}", fastrand::u64(..)),
        stop: stop.clone(),
        fatal: Mutex::new(None),
        calls: AtomicU64::new(0),
    });
    let whole = Whole { run, run_id, node, queue: queue.clone(), waiting, stay: args.stay };
    let (loaded, loading) = watch::channel(args.dockets.is_none());
    let reading = args.dockets.clone().map(|file| {
        let (whole, stop) = (whole.clone(), stop.clone());
        tokio::spawn(async move {
            let read = whole.load(&file, &stop).await;
            if read.is_err() {
                stop.cancel();
            }
            let _ = loaded.send(true);
            read
        })
    });
    let done = CancellationToken::new();
    let living = tokio::spawn(whole.clone().live(done.clone()));
    let looking = tokio::spawn(whole.clone().look(loading, stop.clone(), done.clone()));

    let worker = Worker::new(queue)
        .concurrency(usize::from(args.concurrency))
        .name(whole.node.clone())
        .drain(args.drain)
        .handlers_on(tokio::runtime::Handle::current());
    let fetching = fetcher.clone();
    let handler = move |job, lost| fetching.clone().run(job, lost);
    let working = worker.run(handler, either(&stop, &done)).await;

    done.cancel();
    let empty = looking.await?;
    let _ = living.await;
    let intake = match reading {
        Some(reading) => Some(reading.await??),
        None => None,
    };
    let _ended = working?;
    if let Some(why) = fetcher.fatal.lock().take() {
        anyhow::bail!("{why}");
    }
    whole.farewell(empty, intake, fetcher.figures.told()).await
}

/// Cancelled with either.
fn either(one: &CancellationToken, two: &CancellationToken) -> CancellationToken {
    let (both, one, two) = (CancellationToken::new(), one.clone(), two.clone());
    let told = both.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = one.cancelled() => {}
            () = two.cancelled() => {}
        }
        told.cancel();
    });
    both
}

/// Starts or resumes the run; nothing when told to stop.
async fn begin(run: &Run, id: Option<&str>, stop: &CancellationToken) -> anyhow::Result<Option<String>> {
    let mut patience = Patience::new(stop);
    loop {
        let started = async {
            if id.is_some() {
                return run.start(id, None).await;
            }
            match newest(run).await? {
                Some(newest) if !newest.over => run.start(Some(&newest.run_id), None).await,
                ended => run.start(None, Some(&behind(ended.as_ref()))).await,
            }
        };
        match started.await {
            Ok(started) => return Ok(Some(started.run.run_id)),
            Err(error) => {
                if !patience.after(error).await? {
                    return Ok(None);
                }
            }
        }
    }
}

/// The id of the start of the run behind this one: nodes that begin together begin one run, and a lost reply no second.
fn behind(ended: Option<&RunState>) -> String {
    let mut context = Context::new(&SHA256);
    if let Some(run) = ended {
        context.update(run.run_id.as_bytes());
        context.update(&run.finished_us.unwrap_or(0).to_le_bytes());
    }
    context.finish().as_ref().iter().take(16).fold(String::from("behind-"), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// What a node's own tasks share.
#[derive(Debug, Clone)]
struct Whole {
    run: Run,
    run_id: String,
    node: String,
    queue: Queue,
    waiting: watch::Receiver<Waiting>,
    stay: bool,
}

impl Whole {
    async fn load(&self, file: &std::path::Path, stop: &CancellationToken) -> anyhow::Result<Intake> {
        let task = format!("load-{}", self.node);
        self.told("task_start", self.run.task_start(&self.run_id, &task, None).await);
        let intake = intake::load(file, &self.queue, &self.run, &self.run_id, stop).await?;
        self.told("task_finish", self.run.task_finish(&self.run_id, &task, None).await);
        tracing::info!(
            dockets = intake.dockets,
            pushed = intake.pushed,
            done = intake.done,
            repeated = intake.repeated,
            bad = intake.bad,
            "the file is read"
        );
        Ok(intake)
    }

    /// Signs of life, and what the run waits for, until `done`.
    async fn live(mut self, done: CancellationToken) {
        let task = format!("work-{}", self.node);
        let mut known = "running";
        loop {
            // Begun again while it runs, it keeps its start: the run learns that somebody is there.
            self.told("task_start", self.run.task_start(&self.run_id, &task, None).await);
            let status = match *self.waiting.borrow_and_update() {
                Waiting::Not => "running",
                Waiting::Quota(_) => "waiting_for_quota",
                Waiting::Api(_) => "waiting_for_api",
            };
            if status != known {
                let fields = Fields { status: Some(status), ..Fields::default() };
                let updated = self.run.update(&self.run_id, &fields, None).await;
                // What could not be told now is told with the next sign of life.
                known = if updated.is_ok() { status } else { known };
                self.told("update", updated);
            }
            tokio::select! {
                () = done.cancelled() => break,
                () = tokio::time::sleep(SIGN_OF_LIFE) => {}
                Ok(()) = self.waiting.changed() => {}
            }
        }
        self.told("task_finish", self.run.task_finish(&self.run_id, &task, None).await);
    }

    /// Shows how far the run is until nothing is left, `stop` or `done`; whether nothing is left.
    async fn look(
        self,
        loading: watch::Receiver<bool>,
        stop: CancellationToken,
        done: CancellationToken,
    ) -> bool {
        let mut progress = Progress::new();
        let empty = loop {
            // Before the look at the queue: what is read later is in it already.
            let loaded = *loading.borrow();
            if let Ok((standing, ended)) = self.standing().await {
                let waiting = *self.waiting.borrow();
                progress.told(standing, waiting);
                if loaded && standing.left == 0 && !self.stay {
                    break true;
                }
                // A node that had no file, or another one, found nothing left.
                if ended && (!loaded || standing.left > 0) {
                    self.told("start", self.run.start(Some(&self.run_id), None).await);
                }
            }
            tokio::select! {
                () = stop.cancelled() => break false,
                () = done.cancelled() => break false,
                () = tokio::time::sleep(LOOK) => {}
            }
        };
        progress.end();
        done.cancel();
        empty
    }

    /// How far the run is, and whether a node has ended it.
    async fn standing(&self) -> Result<(Standing, bool), Error> {
        let shown = self.run.show(&self.run_id, Items::Without).await?;
        let pressure = self.queue.pressure().await?;
        let standing = Standing {
            processed: shown.as_ref().map_or(0, |run| run.processed_count),
            failed: shown.as_ref().map_or(0, |run| run.failed_count),
            left: pressure.current_length + pressure.leased + pressure.delayed,
        };
        Ok((standing, shown.is_some_and(|run| run.over && matches!(&run.status[..], COMPLETED | INCOMPLETE))))
    }

    /// Ends the run. A node that ended it before, with another word, knew less.
    async fn end(&self, status: &str, ended: bool) -> Result<RunState, Error> {
        match self.run.finish(&self.run_id, status, None).await {
            Err(error) if ended && error.code == Code::RunFinished => {
                let _reopened = self.run.start(Some(&self.run_id), None).await?;
                self.run.finish(&self.run_id, status, None).await
            }
            told => told,
        }
    }

    /// The last words: to the run, and to whoever started us.
    async fn farewell(&self, empty: bool, intake: Option<Intake>, told: Told) -> anyhow::Result<ExitCode> {
        let standing = tokio::time::timeout(FAREWELL, async {
            let (standing, ended) = self.standing().await?;
            let ended = match empty {
                true if standing.failed == 0 => self.end(COMPLETED, ended).await,
                true => self.end(INCOMPLETE, ended).await,
                false => {
                    let fields = Fields { status: Some("stopped"), ..Fields::default() };
                    self.run.update(&self.run_id, &fields, None).await
                }
            };
            match ended {
                // Another node has had the last word.
                Err(error) if error.code != Code::RunFinished => Err(error),
                _ => Ok(standing),
            }
        });
        let standing = match standing.await {
            Ok(standing) => standing?,
            Err(_) => anyhow::bail!("the store did not answer in the end; what was fetched is noted"),
        };
        let bad = intake.map_or(0, |intake| intake.bad);
        crate::say(&format!(
            "run {}: {} processed, {} failed, {} left, {bad} bad lines; this node made {} calls, {:.1} % well, {} ms on \
             average, {} a minute at most",
            self.run_id,
            standing.processed,
            standing.failed,
            standing.left,
            told.attempts,
            told.success_rate * 100.0,
            told.average_ms,
            told.peak_per_minute,
        ))?;
        let all = empty && standing.failed == 0 && bad == 0;
        Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// What is told by the way must not end the work.
    fn told<T>(&self, what: &str, told: Result<T, Error>) {
        if let Err(error) = told {
            tracing::debug!(run = self.run_id, what, %error, "not told");
        }
    }
}
