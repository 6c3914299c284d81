//! One docket: counted, fetched, kept, noted.
//!
//! | a node dies | what happens |
//! |---|---|
//! | before the call | the quota may be short of one call |
//! | after the call, before `run.processed` | the docket is fetched again |
//! | after `run.processed`, before the ack | the job comes again, and nothing is fetched |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quaymaster::queue::Job;
use quaymaster::run::Run;
use quaymaster::worker::{Failure, Lost};
use quaymaster::{Code, Error};
use tokio_util::sync::CancellationToken;

use crate::api::{Answer, Api};
use crate::docket::Docket;
use crate::figures::{Ended, Figures};
use crate::gate::Gate;
use crate::keep::Keep;
use crate::patience::Patience;

/// The pause after "not now" without a time: doubled each time, up to a minute.
const SLOWER: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(60);

/// What every fetch of a node shares.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pub(crate) api: Api,
    pub(crate) gate: Gate,
    pub(crate) run: Run,
    pub(crate) run_id: String,
    pub(crate) keep: Keep,
    pub(crate) figures: Figures,
    /// Attempts before a docket is listed as failed.
    pub(crate) attempts: u32,
    /// Tells the calls of this process from all others.
    pub(crate) incarnation: String,
    /// Nothing new is begun after it.
    pub(crate) stop: CancellationToken,
    /// Why the node cannot go on.
    pub(crate) fatal: Mutex<Option<String>>,
    pub(crate) calls: AtomicU64,
}

/// How one attempt ended.
enum Outcome {
    Fetched(Vec<u8>),
    /// Not begun, or not to be gone on with.
    Stopped,
    Failed {
        after: Option<Duration>,
        error: String,
    },
    Refused {
        error: String,
    },
}

impl Fetcher {
    /// Runs one job.
    pub(crate) async fn run(self: Arc<Self>, job: Job, lost: Lost) -> Result<(), Failure> {
        let docket = match Docket::of_job(&job.payload) {
            Ok(docket) => docket,
            Err(why) => return Err(Failure::new(why).dead()),
        };
        match self.needed(&docket).await {
            Ok(Some(true)) => {}
            Ok(Some(false)) => return Ok(()),
            Ok(None) => return Err(Failure::not_begun()),
            Err(error) => return Err(self.hopeless(&error)),
        }
        if job.attempt > self.attempts {
            let error =
                format!("given up: the nodes of attempts up to {} never said a word", job.attempt - 1);
            return self.give_up(&docket, &error).await;
        }
        match self.attempt(&docket, &job, &lost).await.map_err(|error| self.hopeless(&error))? {
            Outcome::Stopped => Err(Failure::not_begun()),
            Outcome::Fetched(body) => {
                // Another node may have room where this one has none.
                let kept = self.keep.put(&docket, body).await;
                kept.map_err(|error| self.hopeless(&format!("docket {docket} cannot be kept: {error}")))?;
                // What was fetched is noted even while we stop: the worker's drain bounds it.
                let noted = CancellationToken::new();
                let mut patience = Patience::new(&noted);
                loop {
                    match self.run.processed(&self.run_id, &[docket.as_str()], None).await {
                        Ok(_) => return Ok(()),
                        Err(error) => {
                            self.bear(error, &mut patience).await.map_err(|error| self.hopeless(&error))?;
                        }
                    }
                }
            }
            Outcome::Refused { error } => self.give_up(&docket, &error).await,
            Outcome::Failed { error, .. } if job.attempt >= self.attempts => {
                self.give_up(&docket, &format!("{error} ({} attempts)", job.attempt)).await
            }
            Outcome::Failed { after: None, error } => Err(Failure::new(error)),
            Outcome::Failed { after: Some(after), error } => Err(Failure::new(error).after(after)),
        }
    }

    /// Whether the docket is still to be fetched; nothing when told to stop.
    async fn needed(&self, docket: &Docket) -> Result<Option<bool>, Error> {
        let mut patience = Patience::new(&self.stop);
        loop {
            match self.run.remaining(&self.run_id, &[docket.as_str()]).await {
                Ok(left) => return Ok(Some(!left.is_empty())),
                Err(error) => {
                    if !self.bear(error, &mut patience).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Calls until there is an answer about this docket.
    async fn attempt(&self, docket: &Docket, job: &Job, lost: &Lost) -> Result<Outcome, Error> {
        let mut slower = SLOWER;
        loop {
            let call = self.calls.fetch_add(1, Relaxed);
            let request_id = format!("{}.{call}", self.incarnation);
            if !self.gate.pass(&request_id, lost).await? {
                return Ok(Outcome::Stopped);
            }
            let began = Instant::now();
            let answer = self.api.docket(docket).await;
            let (took, now) = (began.elapsed(), Instant::now());
            let told = |ended| self.figures.call(ended, took, now);
            match answer {
                Answer::Docket(body) => {
                    told(Ended::Well);
                    return Ok(Outcome::Fetched(body));
                }
                Answer::Slower { after, error } => {
                    told(Ended::Slowed);
                    // Every call takes of the quota: "at once", said again and again, is no answer to keep to.
                    let pause = after.filter(|after| *after >= Duration::from_secs(1)).unwrap_or(slower);
                    slower = (slower * 2).min(SLOWEST);
                    tracing::info!(%docket, error, ?pause, "the API is to be left alone");
                    self.gate.pause(pause).await;
                }
                Answer::Failed { after, error } => {
                    told(Ended::Badly);
                    tracing::debug!(%docket, attempt = job.attempt, error, "failed");
                    return Ok(Outcome::Failed { after, error });
                }
                Answer::Refused { error } => {
                    told(Ended::Badly);
                    return Ok(Outcome::Refused { error });
                }
                Answer::Unauthorized { error } => {
                    told(Ended::Badly);
                    let _given_back =
                        self.hopeless(&format!("the API {error}; is COURTLISTENER_API_TOKEN right?"));
                    return Ok(Outcome::Stopped);
                }
            }
        }
    }

    /// Lists the docket as failed; the job is done with that.
    async fn give_up(&self, docket: &Docket, error: &str) -> Result<(), Failure> {
        tracing::warn!(%docket, error, "listed as failed");
        let noted = CancellationToken::new();
        let mut patience = Patience::new(&noted);
        let request_id = format!("{}.f{}", self.incarnation, self.calls.fetch_add(1, Relaxed));
        loop {
            match self.run.failed(&self.run_id, docket.as_str(), Some(error), Some(&request_id)).await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    self.bear(error, &mut patience).await.map_err(|error| self.hopeless(&error))?;
                }
            }
        }
    }

    /// Waits after an error of the run's that may pass; false when told to stop.
    async fn bear(&self, error: Error, patience: &mut Patience<'_>) -> Result<bool, Error> {
        // Nobody makes room in a run that holds the most it may: another one has to be begun.
        if error.code == Code::RunFull {
            return Err(error);
        }
        if error.code != Code::RunMissing {
            return patience.after(error).await;
        }
        // The store lost it, or somebody removed it: the jobs that are left are as good as before.
        tracing::warn!(run = self.run_id, "the run is gone; begun anew");
        match self.run.start(Some(&self.run_id), None).await {
            Ok(_) => Ok(true),
            Err(error) => patience.after(error).await,
        }
    }

    /// What would go wrong with every docket ends the node, and is no docket's fault: its job goes back untried.
    fn hopeless(&self, why: &dyn std::fmt::Display) -> Failure {
        self.fatal.lock().get_or_insert_with(|| why.to_string());
        self.stop.cancel();
        Failure::not_begun()
    }
}
