//! What is on its way to the store.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use quaymaster_schema::StatsSpec;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::super::ops::{self, Mark};
use super::super::sum::{OfInstance, Piece, Sum};
use super::super::unique;
use super::Inner;
use crate::Result;

/// How often a recorder that stops tries to deliver what is left.
const LAST_TRIES: usize = 3;

/// The longest pause between two tries while the store is away.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often a recorder looks for instances that have been silent for a day; nobody else may do so.
const SWEEP: Duration = Duration::from_secs(3600);

/// Pieces with their numbers; the first one may have been sent already.
#[derive(Debug)]
pub(super) struct Outbox {
    incarnation: String,
    sequence: u64,
    pieces: VecDeque<(u64, Piece)>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { incarnation: unique(), sequence: 0, pieces: VecDeque::new() }
    }
}

impl Inner {
    /// Sends what is frozen, then freezes and sends what was counted until now.
    pub(super) async fn deliver(&self) -> Result<()> {
        let mut outbox = self.outbox.lock().await;
        self.send_all(&mut outbox).await?;
        self.freeze(&mut outbox);
        self.send_all(&mut outbox).await
    }

    async fn send_all(&self, outbox: &mut Outbox) -> Result<()> {
        let process = format!("{} {}", outbox.incarnation, self.instance);
        while let Some((sequence, piece)) = outbox.pieces.front_mut() {
            let mark = Mark::Sequence { process: &process, sequence: *sequence };
            let sent = self.stats.send(ops::FLUSH, piece, mark).await;
            let counts = &self.stats.counts;
            match sent {
                Ok(()) => {
                    counts.flushes.fetch_add(1, Relaxed);
                    counts.recorded.fetch_add(piece.total, Relaxed);
                }
                Err(error) => {
                    counts.failures.fetch_add(1, Relaxed);
                    return Err(error);
                }
            }
            outbox.pieces.pop_front();
        }
        Ok(())
    }

    /// Takes what was counted and gives it its numbers; from now on it is sent as it is.
    fn freeze(&self, outbox: &mut Outbox) {
        let mut hours: BTreeMap<i64, Sum> = BTreeMap::new();
        for sum in self.shards.iter().flat_map(|shard| shard.take()) {
            let hour_ms = sum.hour_ms;
            let held = hours.entry(hour_ms).or_insert_with(|| Sum { hour_ms, ..Sum::default() });
            held.merge(sum);
        }
        if hours.is_empty() {
            let hour_ms = self.stats.bound.engine.now_us().div_euclid(3_600_000_000) * 3_600_000;
            hours.insert(hour_ms, Sum { hour_ms, ..Sum::default() });
        }
        let process = format!("{} {}", outbox.incarnation, self.instance);
        let last = hours.len() - 1;
        for (at, (_, sum)) in hours.into_iter().enumerate() {
            let connections = (at == last).then(|| self.connections_since());
            let instance = OfInstance {
                name: self.instance.clone(),
                process: process.clone(),
                requests: sum.total,
                connections,
            };
            let unique = format!("{}{:x}", outbox.incarnation, outbox.sequence);
            for piece in sum.cut(vec![instance], &unique) {
                outbox.sequence += 1;
                outbox.pieces.push_back((outbox.sequence, piece));
            }
        }
    }

    /// Connections open now, and the most there were since this was last asked.
    fn connections_since(&self) -> (u64, u64) {
        let open = self.open.load(Relaxed).max(0);
        let peak = self.peak.swap(open, Relaxed).max(open);
        (open.unsigned_abs(), peak.unsigned_abs())
    }

    fn waiting(&self) -> u64 {
        self.shards.iter().map(super::shard::Shard::waiting).sum()
    }
}

/// Whether a process that has nothing to tell must flush at this tick to stay alive: three times per heartbeat, as far
/// as there are ticks. A flush ends a little after its tick, so that the next one comes a little less than a whole
/// interval later; it must not be passed over for that.
fn must_beat(spec: &StatsSpec, since: Duration) -> bool {
    since + spec.flush / 2 >= (spec.heartbeat / 3).max(spec.flush)
}

/// Flushes every tick until `stop`, then what is left.
pub(super) async fn run(inner: Arc<Inner>, stop: CancellationToken) {
    let spec = &inner.stats.spec;
    let mut tick = tokio::time::interval(spec.flush);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut failures, mut told_open) = (None::<Instant>, 0_u32, -1);
    let mut swept = None::<Instant>;
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        let open = inner.open.load(Relaxed);
        let due = inner.waiting() > 0
            || open != told_open
            || last.is_none_or(|last| must_beat(spec, last.elapsed()));
        if !due {
            continue;
        }
        // Whatever has begun is let finish: the store bounds it.
        if let Err(error) = inner.deliver().await {
            failures += 1;
            if failures == 1 {
                tracing::warn!(stats = inner.stats.name(), %error, "a flush failed; it is kept and sent again");
            }
            let pause = (spec.flush * 2_u32.pow(failures.min(6))).min(LONGEST_PAUSE);
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                break;
            }
            continue;
        }
        if failures > 0 {
            tracing::info!(stats = inner.stats.name(), failures, "flushes are taken again");
        }
        (failures, told_open, last) = (0, open, Some(Instant::now()));
        if swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
            // What is not forgotten now is forgotten in an hour.
            if let Err(error) = inner.stats.sweep().await {
                tracing::debug!(stats = inner.stats.name(), %error, "instances long gone were not looked for");
            }
            swept = Some(Instant::now());
        }
    }
    for attempt in 1..=LAST_TRIES {
        match inner.deliver().await {
            Ok(()) => return,
            Err(error) if attempt == LAST_TRIES => {
                let outbox = inner.outbox.lock().await;
                let lost = outbox.pieces.iter().map(|(_, piece)| piece.total).sum::<u64>() + inner.waiting();
                inner.stats.counts.lost.fetch_add(lost, Relaxed);
                tracing::warn!(stats = inner.stats.name(), %error, lost, "stopped while the store was away");
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_requests_stays_alive_under_every_heartbeat_there_may_be() {
        let flush = Duration::from_secs(1);
        for tenths in 20..100 {
            let heartbeat = flush * tenths / 10;
            let spec = StatsSpec {
                max_endpoints: 1,
                samples: 1,
                flush,
                heartbeat,
                max_instances: 1,
                fold_ids: false,
                ignore_remote: Vec::new(),
            };
            // Flushes take a while, and ticks do not wait for them.
            let took = Duration::from_millis(20);
            let ticks = (1..20_u32)
                .find(|tick| must_beat(&spec, (flush * *tick).saturating_sub(took)))
                .unwrap_or(u32::MAX);
            assert!(flush.saturating_mul(ticks) + took < heartbeat, "{ticks} ticks under {heartbeat:?}");
        }
    }
}
