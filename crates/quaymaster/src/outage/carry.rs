//! Brings what was counted without the store back into it: each piece once, in the window it belongs to.
//!
//! A piece carries an id that the store's script recognises, so that a piece whose reply was lost is sent again.
//! It is dropped when its window is over: then it counts nowhere any more.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use parking_lot::Mutex;
use quaymaster_schema::{Algorithm, LimitSpec, Resource, Spelling};
use quaymaster_store::{Invocation, Reply, Workload};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::pending::{Taken, past_at, window_ms, window_us};
use super::{Outages, is_outage};
use crate::bound::KeyBinding::Spelled;
use crate::limit::increment;
use crate::scripts::{
    At, limit_add_fixed_window, limit_add_sliding_log, limit_add_sliding_window, limit_add_token_bucket,
};
use crate::{Code, Error, Result};

const OP: &str = "limit.add";
/// Pieces on their way at once.
const AT_ONCE: usize = 32;
/// Pieces after which those that have arrived are crossed off: calls on their keys need not tell them again.
const SETTLE_AT_ONCE: usize = 256;
/// Between two looks at a store that is away while something waits for it.
const PROBE: Duration = Duration::from_millis(100);
const PROBE_MAX: Duration = Duration::from_secs(1);
/// Between two looks for rows of nodes that ended before they could bring them back.
const LOOK: Duration = Duration::from_secs(15);
/// Repetitions are recognised for so much longer than the piece counts.
const KEEP_MARGIN_MS: i64 = 60_000;

/// Where units were counted: everything needed to count them in the store.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The limit's name.
    pub(crate) limit: String,
    /// Its key, as spelled on this store.
    pub(crate) key: Vec<u8>,
    /// The key under which request ids are kept, without the id.
    pub(crate) request: Vec<u8>,
    /// The end of the bucket in the key; 0 without one.
    pub(crate) bucket_ms: i64,
}

impl Place {
    /// The same under the names of today: an earlier version put no prefix in front of a hash tag, and rows of a database
    /// outlive the version that wrote them.
    fn under(&self, prefix: &str) -> Cow<'_, Self> {
        if prefix.is_empty() || !self.request.starts_with(b"{") {
            return Cow::Borrowed(self);
        }
        let named = |name: &[u8]| match name {
            [b'{', ..] => [prefix.as_bytes(), name].concat(),
            name => name.to_vec(),
        };
        let (key, request) = (named(&self.key), named(&self.request));
        Cow::Owned(Self { limit: self.limit.clone(), key, request, bucket_ms: self.bucket_ms })
    }
}

/// What stands in front of the hash tag of a limit's request records.
fn prefix(limit: &Resource) -> &str {
    let head = limit.key("request").map(|row| row.pattern.literal_head(Spelling::Single));
    head.and_then(|head| head.split_once('{')).map_or("", |(prefix, _)| prefix)
}

/// Units on their way to the store.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) number: u64,
    pub(super) id: String,
    pub(super) place: Arc<Place>,
    pub(super) taken: Taken,
}

/// What was counted without the store and is not in it yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uncarried {
    /// Keys counted by this node alone (`local`).
    pub local_keys: u64,
    /// Whether this node counted in the database since all of it was last brought back (`database`).
    pub database: bool,
}

/// Adds `taken` to the store's counter; once, however often it is sent under `id`.
fn addition(spec: &LimitSpec, place: &Place, taken: Taken, id: &str, now_us: i64) -> Result<Invocation> {
    let request = [place.request.as_slice(), b":", id.as_bytes()].concat();
    let (state, request) = (Spelled(&place.key), Spelled(&request));
    let at = At { workload: Workload::RateLimit, ..At::spelled(OP) };
    let units = i64::try_from(taken.units).unwrap_or(i64::MAX);
    let (window_ms, window_us) = (window_ms(spec), window_us(spec));
    let ttl_ms = i64::try_from(spec.ttl.as_millis()).unwrap_or(i64::MAX);
    let left_ms = past_at(spec, taken.slot).saturating_sub(now_us.div_euclid(1000)).max(0);
    let keep_ms = left_ms.saturating_add(window_ms).saturating_add(KEEP_MARGIN_MS);
    let call = match spec.algorithm {
        Algorithm::FixedWindow => limit_add_fixed_window::Call {
            counter: state,
            request,
            units,
            window_ms,
            ttl_ms,
            bucket_ms: place.bucket_ms,
            end_ms: taken.slot,
            keep_ms,
        }
        .on(at),
        Algorithm::SlidingLog => limit_add_sliding_log::Call {
            log: state,
            request,
            units,
            window_ms,
            ttl_ms,
            at_ms: taken.slot,
            nonce: id,
            keep_ms,
        }
        .on(at),
        Algorithm::SlidingWindow => limit_add_sliding_window::Call {
            state,
            request,
            units,
            window_ms,
            ttl_ms,
            start_ms: taken.slot,
            keep_ms,
        }
        .on(at),
        Algorithm::TokenBucket => {
            let (inc_us, inc_part) = increment(spec, taken.units);
            limit_add_token_bucket::Call {
                bucket: state,
                request,
                limit: i64::try_from(spec.effective()).unwrap_or(i64::MAX),
                window_us,
                ttl_ms,
                inc_us: inc_us as i64,
                inc_part: inc_part as i64,
                end_ms: taken.slot,
                keep_ms,
            }
            .on(at)
        }
    };
    Ok(call?.repeat_safe())
}

/// Reads the reply to an addition. `Ok` where the units are counted, or have no place there any more.
fn added(algorithm: Algorithm, reply: Reply) -> Result<()> {
    macro_rules! added {
        ($script:ident) => {{
            use crate::scripts::$script::Reply;
            match Reply::read(OP, reply)? {
                Reply::Added { .. } | Reply::Past => return Ok(()),
                Reply::Malformed => "malformed",
                Reply::Conflict => "conflict",
            }
        }};
    }
    let said = match algorithm {
        Algorithm::FixedWindow => added!(limit_add_fixed_window),
        Algorithm::SlidingLog => added!(limit_add_sliding_log),
        Algorithm::SlidingWindow => added!(limit_add_sliding_window),
        Algorithm::TokenBucket => added!(limit_add_token_bucket),
    };
    Err(Error::new(OP, Code::KeyMalformed, format!("the store said {said:?}")))
}

impl Outages {
    /// Counts a piece in the store. `Ok` when it is there, or has no place there any more.
    pub(super) async fn add(&self, place: &Place, taken: Taken, id: &str) -> Result<()> {
        let Some(spec) = self.limit(&place.limit) else { return Ok(()) };
        let prefix = self.limits.get(&place.limit).map_or("", |limit| prefix(limit));
        let call = addition(spec, &place.under(prefix), taken, id, self.engine.now_us())?;
        let answered = async { added(spec.algorithm, self.engine.run(call).await?) };
        match answered.await {
            // Whatever the store meant, the same piece under the same id may be sent again.
            Err(error) if is_outage(error.code) || error.code == Code::StoreReply => Err(error.during(OP)),
            Err(error) => {
                // Trying again would fail the same way for ever.
                let units = taken.units;
                tracing::error!(limit = place.limit, units, "counted without the store and lost: {error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Brings back what this node counted under these keys by itself, if it did. Fails while the store is away.
    pub(crate) async fn carry_keys(&self, keys: &[&[u8]]) -> Result<()> {
        // Most calls come for keys that were not counted here: one look, no round trip.
        if self.local.waits_for(keys).await { self.carry_local(Some(keys)).await } else { Ok(()) }
    }

    /// Brings back everything this node counted by itself, one caller at a time. Fails while the store is away.
    async fn carry_all(&self) -> Result<()> {
        let _one = self.carrying.lock().await;
        if self.local.is_waiting() { self.carry_local(None).await } else { Ok(()) }
    }

    async fn carry_local(&self, keys: Option<&[&[u8]]>) -> Result<()> {
        // A piece that was once on its way cannot be given back any more: none leaves before the store answers.
        self.engine.time_us().await.map_err(|error| error.during(OP))?;
        let pieces = self.local.hand_over(keys, self.engine.now_us()).await;
        let mut sending = stream::iter(pieces)
            .map(|piece| async move {
                let sent = self.add(&piece.place, piece.taken, &piece.id).await;
                (piece, sent)
            })
            .buffer_unordered(AT_ONCE);
        let (mut settled, mut told, mut units, mut away) = (Vec::new(), 0, 0, None);
        while let Some((piece, sent)) = sending.next().await {
            match sent {
                Ok(()) => {
                    told += 1;
                    units += piece.taken.units;
                    settled.push(piece);
                    if settled.len() >= SETTLE_AT_ONCE {
                        self.local.settled(std::mem::take(&mut settled)).await;
                    }
                }
                Err(error) => {
                    away = Some(error);
                    break;
                }
            }
        }
        drop(sending);
        if units > 0 {
            tracing::info!(units, pieces = told, "the store knows now what this node let through alone");
        }
        self.local.settled(settled).await;
        away.map_or(Ok(()), Err)
    }

    /// Brings back what was counted in the database, by this node or by others.
    async fn carry_database(&self) -> Result<()> {
        let Some(database) = &self.database else { return Ok(()) };
        let counted_before = database.counted();
        let mut units = 0;
        let (mut after, mut told) = (None, 0);
        loop {
            let (rows, next) = database.uncarried(after.take(), |name| self.limit(name)).await?;
            let mut sending = stream::iter(rows)
                .map(|row| async move {
                    self.add(&row.place, row.taken, &row.id).await?;
                    database.carried(&row).await?;
                    Ok::<u64, Error>(row.taken.units)
                })
                .buffer_unordered(AT_ONCE);
            while let Some(sent) = sending.next().await {
                told += sent?;
            }
            // At the end once more from the beginning, until nothing is left: a row may be told in several pieces.
            if next.is_none() && told == 0 {
                break;
            }
            if next.is_none() {
                units += std::mem::take(&mut told);
            }
            after = next;
        }
        if units > 0 {
            tracing::info!(units, "the store knows now what was counted in the database");
        }
        database.clean(counted_before);
        Ok(())
    }

    /// What is not in the store yet.
    pub async fn uncarried(&self) -> Uncarried {
        let database = self.database.as_ref().is_some_and(|database| database.is_waiting());
        Uncarried { local_keys: self.local.waiting_keys().await, database }
    }

    /// Brings back what waits, now; for a process that is about to end. Fails while the store is away.
    pub async fn settle(&self) -> Result<()> {
        self.carry_all().await?;
        if self.database.as_ref().is_some_and(|database| database.is_waiting()) {
            self.carry_database().await?;
        }
        Ok(())
    }

    /// Something waits for the store since now: look for it.
    pub(crate) fn look_for_store(&self) {
        self.keeper.wake();
    }

    /// One look; how long until the next, `None` when there is nothing to look for.
    async fn round(&self, failures: &mut u32) -> Option<Duration> {
        let waits =
            self.local.is_waiting() || self.database.as_ref().is_some_and(|database| database.is_waiting());
        let idle = self.database.as_ref().map(|_| LOOK);
        if let Some(database) = &self.database {
            database.purge().await;
        }
        let looked = async {
            self.engine.time_us().await?;
            self.carry_all().await?;
            self.carry_database().await
        };
        match looked.await {
            Ok(()) => {
                *failures = 0;
                let waits =
                    self.local.is_waiting() || self.database.as_ref().is_some_and(|db| db.is_waiting());
                if waits { Some(PROBE) } else { idle }
            }
            Err(error) => {
                tracing::debug!(%error, "what was counted without the store still waits");
                *failures = failures.saturating_add(1);
                let pause = (PROBE * 2u32.saturating_pow(failures.saturating_sub(1).min(8))).min(PROBE_MAX);
                if waits { Some(pause) } else { idle }
            }
        }
    }
}

/// The task that looks for the store while something waits for it; ends with its [`Outages`].
#[derive(Debug)]
pub(super) struct Keeper {
    outages: Weak<Outages>,
    woken: Arc<Notify>,
    running: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
}

impl Keeper {
    pub(super) fn new(outages: Weak<Outages>) -> Self {
        Self { outages, woken: Arc::default(), running: AtomicBool::new(false), task: Mutex::new(None) }
    }

    /// Starts the task, or ends its rest.
    pub(super) fn wake(&self) {
        self.woken.notify_one();
        self.start();
    }

    /// Starts the task. Outside of a runtime nothing happens: whoever has something to carry is inside one.
    pub(super) fn start(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.running.swap(true, SeqCst) {
            let task = runtime.spawn(keep(self.outages.clone(), self.woken.clone()));
            *self.task.lock() = Some(task.abort_handle());
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

async fn keep(outages: Weak<Outages>, woken: Arc<Notify>) {
    let mut failures = 0;
    // A command that runs once is gone before the first look.
    let mut pause = Some(PROBE_MAX);
    loop {
        match pause {
            Some(pause) => {
                let _ = tokio::time::timeout(pause, woken.notified()).await;
            }
            None => woken.notified().await,
        }
        let Some(outages) = outages.upgrade() else { return };
        pause = outages.round(&mut failures).await;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use quaymaster_schema::{Kind, Source, load};

    use super::*;

    #[test]
    fn what_an_earlier_version_wrote_into_a_database_is_counted_under_the_names_of_today() {
        let limit = |prefix: &str| {
            let text = format!(
                "[schema]\nprefix = \"{prefix}\"\n[limit.l]\nkey = \"rl:{{id}}:{{minute}}\"\nalgorithm = \"fixed_window\"\n\
                 limit = 9\nwindow = \"60s\"\n"
            );
            let schema = load(&[Source { name: "s", text: &text }], &|_| None).schema.unwrap();
            schema.resource(Kind::Limit, "l").unwrap().clone()
        };
        let place = |key: &str, request: &str| Place {
            limit: "l".to_owned(),
            key: key.into(),
            request: request.into(),
            bucket_ms: 0,
        };
        let named = |prefixed: &str, of: &Place| {
            let named = of.under(prefix(&limit(prefixed))).into_owned();
            [named.key, named.request].map(|name| String::from_utf8(name).unwrap())
        };
        let (old, new) = (place("ha:rl:a:1", "{ha:rl:a}:req"), place("ha:rl:a:1", "ha:{ha:rl:a}:req"));
        assert_eq!(named("ha:", &old), ["ha:rl:a:1", "ha:{ha:rl:a}:req"]);
        assert_eq!(named("ha:", &new), ["ha:rl:a:1", "ha:{ha:rl:a}:req"]);
        let cluster = place("{ha:rl:a}:1", "{ha:rl:a}:req");
        assert_eq!(named("ha:", &cluster), ["ha:{ha:rl:a}:1", "ha:{ha:rl:a}:req"]);
        assert_eq!(named("", &place("{rl:a}:1", "{rl:a}:req")), ["{rl:a}:1", "{rl:a}:req"]);
    }
}
