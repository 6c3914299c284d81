//! Who may call the API now: the quota of all nodes, and the pause the API asked for.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use quaymaster::cache::{Cache, Fetched, Put, Value};
use quaymaster::limit::{Charge, Limit, Verdict};
use quaymaster::worker::Lost;
use quaymaster::{Engine, Error};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::patience::Patience;

/// What a node waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Waiting {
    /// Nothing: it calls.
    #[default]
    Not,
    /// The next window of the quota.
    Quota(Timestamp),
    /// The end of the pause that the API asked for.
    Api(Timestamp),
}

/// The gate every call goes through.
#[derive(Debug)]
pub(crate) struct Gate {
    limit: Limit,
    pauses: Cache,
    engine: Arc<dyn Engine>,
    api: String,
    /// The longest time between two looks: a quota may be raised, and clocks are set.
    recheck: Duration,
    /// Until when this node leaves the API alone.
    paused: Mutex<Instant>,
    waiting: watch::Sender<Waiting>,
    stop: CancellationToken,
}

impl Gate {
    pub(crate) fn new(
        limit: Limit,
        pauses: Cache,
        engine: Arc<dyn Engine>,
        api: String,
        recheck: Duration,
        stop: CancellationToken,
    ) -> Self {
        let waiting = watch::Sender::new(Waiting::Not);
        Self { limit, pauses, engine, api, recheck, paused: Mutex::new(Instant::now()), waiting, stop }
    }

    /// What the node waits for, from now on.
    pub(crate) fn waiting(&self) -> watch::Receiver<Waiting> {
        self.waiting.subscribe()
    }

    /// Waits until one call may be made, and counts it. False when told to stop, or when the job is not ours any more:
    /// then nothing was counted.
    ///
    /// `request_id` is the same however often the store has to be asked, so that a lost reply costs no second call.
    pub(crate) async fn pass(&self, request_id: &str, lost: &Lost) -> Result<bool, Error> {
        let mut patience = Patience::new(&self.stop);
        loop {
            if self.stop.is_cancelled() || lost.is_lost() {
                return Ok(false);
            }
            if let Some(left) = self.pause_left().await {
                self.say(Waiting::Api(self.moment(left)));
                patience.pause(left.min(self.recheck)).await;
                continue;
            }
            let waited = *self.waiting.borrow();
            match self.limit.take(&[], Charge::one().request_id(request_id)).await {
                Ok(Verdict::Allowed(_)) => {
                    // A call that began to wait meanwhile knows better than one that was let in before.
                    if *self.waiting.borrow() == waited {
                        self.say(Waiting::Not);
                    }
                    return Ok(true);
                }
                Ok(Verdict::Limited { retry_after, .. }) => {
                    // Without an end only a limit of nothing refuses: somebody has to change it.
                    let left = retry_after.unwrap_or(Duration::from_secs(3600));
                    self.say(Waiting::Quota(self.moment(left)));
                    patience.pause(left.min(self.recheck)).await;
                }
                Err(error) => {
                    if !patience.after(error).await? {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// The API asked to be left alone for so long: this node does so from now on, and all others as soon as they hear.
    pub(crate) async fn pause(&self, pause: Duration) {
        {
            let mut paused = self.paused.lock();
            *paused = (*paused).max(Instant::now() + pause);
        }
        let until_ms = self.engine.now_us() / 1000 + i64::try_from(pause.as_millis()).unwrap_or(0);
        if self.shared_until_ms().await.is_some_and(|known_ms| known_ms >= until_ms) {
            return;
        }
        let (key, value) = ([("api", self.api.as_str())], Value::Bytes(until_ms.to_string().into()));
        let ttl = Some(pause.max(Duration::from_millis(1)));
        if let Err(error) = self.pauses.put(&key, &value, Put { ttl, ..Put::default() }).await {
            tracing::debug!(%error, "the pause is this node's alone");
        }
    }

    /// What is left of a pause, ours or another node's.
    async fn pause_left(&self) -> Option<Duration> {
        let ours = self.paused.lock().saturating_duration_since(Instant::now());
        if !ours.is_zero() {
            return Some(ours);
        }
        let left_ms = self.shared_until_ms().await? - self.engine.now_us() / 1000;
        u64::try_from(left_ms).ok().filter(|left_ms| *left_ms > 0).map(Duration::from_millis)
    }

    async fn shared_until_ms(&self) -> Option<i64> {
        // A store that is away is noticed by the take that follows.
        match self.pauses.get(&[("api", self.api.as_str())]).await {
            Ok(Fetched::Hit(Value::Bytes(text))) => std::str::from_utf8(&text).ok()?.parse().ok(),
            _ => None,
        }
    }

    fn moment(&self, left: Duration) -> Timestamp {
        let at_us = self.engine.now_us() + i64::try_from(left.as_micros()).unwrap_or(0);
        // To the second: those who wait together say the same.
        Timestamp::from_second((at_us + 500_000) / 1_000_000).unwrap_or_default()
    }

    fn say(&self, now: Waiting) {
        self.waiting.send_if_modified(|before| {
            // Calls that wait together may know of different ends: the latest is the one.
            let changed = match (*before, now) {
                (Waiting::Quota(known), Waiting::Quota(until)) | (Waiting::Api(known), Waiting::Api(until)) => {
                    until > known
                }
                (before, now) => before != now,
            };
            if changed {
                *before = now;
                match now {
                    Waiting::Not => tracing::info!("calling again"),
                    Waiting::Quota(until) => {
                        tracing::info!(%until, used = self.limit.spec().effective(), "the quota of this hour is used up; waiting");
                    }
                    Waiting::Api(until) => tracing::info!(%until, "the API asked to be left alone; waiting"),
                }
            }
            changed
        });
    }
}
