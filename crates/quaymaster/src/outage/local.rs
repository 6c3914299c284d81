//! This node's share of a limit, counted in process by the same scripts.
//!
//! Shares are whole: `limit / nodes`, rounded down, so that all nodes together never let more through than the
//! limit; a limit smaller than the number of nodes lets nothing through. Counters live on after what they
//! counted was brought back, so that a link which comes and goes does not hand out the share again and again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};

use quaymaster_schema::LimitSpec;
use quaymaster_store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{Engine as _, Invocation, Reply, Words};
use tokio::sync::Mutex;

use super::carry::{Piece, Place};
use super::pending::Pending;
use crate::{Code, Error, Result};

/// How many calls pass between two looks at the bytes that counters take.
const LOOK_EVERY: u64 = 256;
/// At a bound, how long nothing is looked for that may be forgotten: what refuses must not cost more than what counts.
const SWEEP_EVERY_MS: i64 = 1_000;
/// How long a request id is remembered, like the store does.
const REQUEST_MS: i64 = 600_000;

/// What a call did to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// Units were let through; a fixed window ends in so many milliseconds.
    Counted { units: u64, reset_ms: u64 },
    /// Units were given back.
    GivenBack { units: u64 },
}

#[derive(Debug)]
pub(crate) struct Local {
    nodes: u32,
    bounds: Bounds,
    /// Whether anything counted here is unknown to the store. Read on every call of a limit.
    waiting: AtomicBool,
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    engine: EmbeddedStore,
    clock: Arc<AtomicI64>,
    entries: HashMap<Vec<u8>, Entry>,
    /// The entries with something that is not on its way to the store.
    dirty: HashSet<Vec<u8>>,
    /// Until when each is remembered.
    requests: HashMap<Vec<u8>, i64>,
    /// On their way to the store by key, and still so if it goes away again.
    sent: HashMap<Vec<u8>, Vec<Piece>>,
    process: u64,
    pieces: u64,
    calls: u64,
    full: bool,
    /// When entries, and request ids, were last looked through for what may be forgotten.
    entries_swept_ms: i64,
    requests_swept_ms: i64,
    bounds: Bounds,
}

/// What one node holds at most.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Keys counted at once; calls on further ones are refused.
    keys: usize,
    /// Request ids remembered; a repetition of a further one is counted again.
    requests: usize,
    /// Bytes of counters; a `sliding_log` has one member per call.
    bytes: u64,
}

const BOUNDS: Bounds = Bounds { keys: 100_000, requests: 100_000, bytes: 256 << 20 };

#[derive(Debug)]
struct Entry {
    place: Arc<Place>,
    spec: LimitSpec,
    share: u64,
    pending: Pending,
    /// When its counter is gone whatever happens.
    dies_ms: i64,
}

impl Local {
    pub(super) fn new(nodes: u32) -> Self {
        Self { nodes: nodes.max(1), bounds: BOUNDS, waiting: AtomicBool::new(false), state: Mutex::new(None) }
    }

    pub(super) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The limit as this node alone may use it.
    pub(crate) fn share(&self, spec: &LimitSpec) -> LimitSpec {
        LimitSpec { limit: spec.effective() / u64::from(self.nodes), safety_buffer: 0, ..spec.clone() }
    }

    /// Whether anything counted here is unknown to the store.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(SeqCst)
    }

    /// Runs `call`, whose limit is the share of `spec`, at the time `now_us`; `read` says what it answered and did.
    /// Also whether something waits for the store now and nothing did before: exactly one call is told so, and must
    /// see that somebody looks for the store.
    pub(crate) async fn run<T>(
        &self,
        spec: &LimitSpec,
        place: Place,
        now_us: i64,
        mut call: Invocation,
        read: impl FnOnce(Reply) -> Result<(T, Effect)>,
    ) -> Result<(T, bool)> {
        let op = call.script.id;
        let mut held = self.state.lock().await;
        let state = match &mut *held {
            Some(state) => state,
            none => none.insert(State::new(now_us, self.bounds).await?),
        };
        let now_us = state.clock.fetch_max(now_us, SeqCst).max(now_us);
        let now_ms = now_us.div_euclid(1000);
        state.make_room(op, &place.key, now_ms).await?;
        let mut repeated = false;
        if let Some(request) = call.keys.word(1).map(<[u8]>::to_vec) {
            repeated = state.engine.key_facts(&request).await?.is_some();
            if !repeated && !state.remember(request, now_ms) {
                let mut only = Words::default();
                only.push(&place.key);
                call.keys = only;
            }
        }
        let reply = state.engine.run(call).await?;
        let (answer, effect) = read(reply)?;
        let mut waits_anew = false;
        if !repeated && effect != Effect::None {
            let share = self.share(spec).limit;
            state.note(spec, share, place, effect, now_us);
            if matches!(effect, Effect::Counted { .. }) {
                // Under the lock, like every change of it.
                waits_anew = !self.waiting.swap(true, SeqCst);
            }
        }
        Ok((answer, waits_anew))
    }

    /// Whether anything of these keys is unknown to the store.
    pub(super) async fn waits_for(&self, keys: &[&[u8]]) -> bool {
        let held = self.state.lock().await;
        let Some(state) = &*held else { return false };
        keys.iter().any(|key| state.dirty.contains(*key) || state.sent.contains_key(*key))
    }

    /// Everything the store does not know, of some keys or of all; pieces handed out before come again.
    pub(super) async fn hand_over(&self, keys: Option<&[&[u8]]>, now_us: i64) -> Vec<Piece> {
        let mut held = self.state.lock().await;
        let Some(state) = &mut *held else { return Vec::new() };
        state.clock.fetch_max(now_us, SeqCst);
        state.hand_over(keys, now_us);
        match keys {
            Some(keys) => keys.iter().filter_map(|key| state.sent.get(*key)).flatten().cloned().collect(),
            None => state.sent.values().flatten().cloned().collect(),
        }
    }

    /// The store knows these pieces now, or never will.
    pub(super) async fn settled(&self, pieces: impl IntoIterator<Item = Piece>) {
        let mut held = self.state.lock().await;
        let Some(state) = &mut *held else { return };
        for piece in pieces {
            let key = &piece.place.key;
            if let Some(sent) = state.sent.get_mut(key) {
                sent.retain(|other| other.number != piece.number);
                if sent.is_empty() {
                    state.sent.remove(key);
                }
            }
        }
        self.waiting.store(!state.sent.is_empty() || !state.dirty.is_empty(), SeqCst);
    }

    /// Keys with something the store does not know.
    pub(super) async fn waiting_keys(&self) -> u64 {
        let held = self.state.lock().await;
        let Some(state) = &*held else { return 0 };
        let also_dirty = state.dirty.iter().filter(|key| !state.sent.contains_key(*key)).count();
        (state.sent.len() + also_dirty) as u64
    }
}

impl State {
    async fn new(now_us: i64, bounds: Bounds) -> Result<Self> {
        let clock = Arc::new(AtomicI64::new(now_us));
        let options = EmbeddedOptions { clock: Clock::Manual(clock.clone()), ..EmbeddedOptions::default() };
        Ok(Self {
            engine: EmbeddedStore::memory(options).await?,
            clock,
            entries: HashMap::new(),
            dirty: HashSet::new(),
            requests: HashMap::new(),
            sent: HashMap::new(),
            process: fastrand::u64(..),
            pieces: 0,
            calls: 0,
            full: false,
            entries_swept_ms: i64::MIN,
            requests_swept_ms: i64::MIN,
            bounds,
        })
    }

    /// Refuses a call that would go over a bound.
    async fn make_room(&mut self, op: &'static str, key: &[u8], now_ms: i64) -> Result<()> {
        self.calls += 1;
        if self.full || self.calls.is_multiple_of(LOOK_EVERY) {
            self.full = self
                .engine
                .deployment()
                .await?
                .used_memory_bytes
                .is_some_and(|used| used > self.bounds.bytes);
        }
        let Bounds { keys, bytes, .. } = self.bounds;
        let one_more = !self.entries.contains_key(key);
        if one_more && self.entries.len() >= keys && is_due(&mut self.entries_swept_ms, now_ms) {
            // What is past its window counts nowhere, whether the store was told or not.
            let Self { entries, dirty, .. } = self;
            entries.retain(|key, entry| {
                let stays = entry.dies_ms > now_ms || entry.pending.counts(&entry.spec, now_ms);
                if !stays {
                    dirty.remove(key);
                }
                stays
            });
        }
        let too_many = one_more && self.entries.len() >= keys;
        if too_many || self.full {
            let bound = if too_many { format!("{keys} keys") } else { format!("{} MiB", bytes >> 20) };
            let detail = format!("this node counts {bound} by itself already, its bound");
            return Err(Error::new(op, Code::StoreOom, detail));
        }
        Ok(())
    }

    /// Whether there was room to remember it.
    fn remember(&mut self, request: Vec<u8>, now_ms: i64) -> bool {
        if self.requests.len() >= self.bounds.requests && is_due(&mut self.requests_swept_ms, now_ms) {
            self.requests.retain(|_, until| *until > now_ms);
        }
        let room = self.requests.len() < self.bounds.requests;
        if room {
            self.requests.insert(request, now_ms + REQUEST_MS);
        }
        room
    }

    fn note(&mut self, spec: &LimitSpec, share: u64, place: Place, effect: Effect, now_us: i64) {
        let now_ms = now_us.div_euclid(1000);
        let ttl_ms = i64::try_from(spec.ttl.max(spec.window).as_millis()).unwrap_or(i64::MAX);
        let key = place.key.clone();
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            place: Arc::new(place),
            spec: spec.clone(),
            share,
            pending: Pending::default(),
            dies_ms: 0,
        });
        entry.dies_ms = now_ms.saturating_add(ttl_ms);
        match effect {
            Effect::Counted { units, reset_ms } => {
                let end_ms = now_ms.saturating_add(i64::try_from(reset_ms).unwrap_or(i64::MAX));
                entry.pending.add(spec, share, units, now_us, end_ms);
            }
            Effect::GivenBack { units } => entry.pending.give_back(spec, share, units, now_us),
            Effect::None => {}
        }
        if entry.pending.is_empty() {
            self.dirty.remove(&key);
        } else {
            self.dirty.insert(key);
        }
    }

    fn hand_over(&mut self, keys: Option<&[&[u8]]>, now_us: i64) {
        let Self { entries, dirty, sent, process, pieces, .. } = self;
        let dirty: Vec<Vec<u8>> = match keys {
            Some(keys) => keys.iter().filter_map(|key| dirty.take(*key)).collect(),
            None => dirty.drain().collect(),
        };
        for key in dirty {
            let Some(entry) = entries.get_mut(&key) else { continue };
            let taken = entry.pending.hand_over(&entry.spec, entry.share, now_us);
            if taken.is_empty() {
                continue;
            }
            let sent = sent.entry(key).or_default();
            for taken in taken {
                *pieces += 1;
                let id = format!("local-{process:x}-{pieces:x}");
                sent.push(Piece { number: *pieces, id, place: entry.place.clone(), taken });
            }
        }
    }
}

/// Whether what was done at `last_ms` is to be done again now; then it is.
fn is_due(last_ms: &mut i64, now_ms: i64) -> bool {
    let due = now_ms.saturating_sub(*last_ms) >= SWEEP_EVERY_MS;
    if due {
        *last_ms = now_ms;
    }
    due
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use std::time::Duration;

    use quaymaster_schema::Algorithm;
    use quaymaster_store::Parts;

    use super::*;
    use crate::bound::KeyBinding::Spelled;
    use crate::scripts::{At, limit_take_fixed_window};

    const NOW_US: i64 = 1_794_744_020_000_000;

    fn spec() -> LimitSpec {
        let window = Duration::from_secs(60);
        LimitSpec { algorithm: Algorithm::FixedWindow, limit: 10, window, safety_buffer: 0, ttl: window }
    }

    /// The call that takes one unit under `key`.
    fn one(key: &str, request: Option<&str>) -> Invocation {
        let call = limit_take_fixed_window::Call {
            counter: Spelled(key.as_bytes()),
            request: request.map(|request| Spelled(request.as_bytes())),
            cost: 1,
            limit: 10,
            window_ms: 60_000,
            ttl_ms: Some(60_000),
            start_ms: Some(0),
            end_ms: Some(0),
            keep_ms: Some(600_000),
        };
        call.on(At::spelled("test")).unwrap()
    }

    /// Takes one unit under `key`; how many are counted then.
    async fn take(local: &Local, key: &str, request: Option<&str>, now_us: i64) -> Result<i64> {
        let place = Place { limit: "l".into(), key: key.into(), request: "r".into(), bucket_ms: 0 };
        let call = one(key, request);
        let read = |reply: Reply| {
            let mut parts: Parts = reply.parts("test")?;
            parts.bytes()?;
            let (used, reset_ms) = (parts.int()?, parts.int()?.unsigned_abs());
            Ok((used, Effect::Counted { units: 1, reset_ms }))
        };
        local.run(&spec(), place, now_us, call, read).await.map(|(used, _)| used)
    }

    fn small() -> Local {
        Local { bounds: Bounds { keys: 2, requests: 1, ..BOUNDS }, ..Local::new(1) }
    }

    #[tokio::test]
    async fn keys_beyond_the_bound_are_refused_until_others_have_ended() {
        let local = small();
        assert_eq!(take(&local, "a", None, NOW_US).await.unwrap(), 1);
        assert_eq!(take(&local, "b", None, NOW_US).await.unwrap(), 1);
        let refused = take(&local, "c", None, NOW_US).await.unwrap_err();
        assert_eq!(refused.code, Code::StoreOom);
        assert_eq!(take(&local, "a", None, NOW_US).await.unwrap(), 2, "known keys go on");
        let soon = NOW_US + 59_000_000;
        assert!(take(&local, "c", None, soon).await.is_err(), "what still counts is not forgotten");
        assert_eq!(take(&local, "a", None, soon).await.unwrap(), 3);
        let later = NOW_US + 61_000_000;
        assert_eq!(take(&local, "c", None, later).await.unwrap(), 1, "in the place of b");
        assert!(take(&local, "d", None, later).await.is_err());
        let keys = local.hand_over(None, later).await.len();
        assert_eq!(keys, 1, "the store is told of c; the window of a and b is over");
    }

    #[tokio::test]
    async fn keys_beyond_the_bound_look_for_room_at_most_once_a_second() {
        let local = small();
        for key in ["a", "b"] {
            take(&local, key, None, NOW_US).await.unwrap();
        }
        assert!(take(&local, "c", None, NOW_US + 59_900_000).await.is_err());
        let refused = take(&local, "c", None, NOW_US + 60_100_000).await;
        assert!(refused.is_err(), "nothing was looked through again after 200 ms");
        assert_eq!(take(&local, "c", None, NOW_US + 60_900_000).await.unwrap(), 1);
        assert_eq!(local.waiting_keys().await, 1, "what is past its window waits for nobody");
    }

    #[tokio::test]
    async fn a_key_is_handed_over_alone_and_the_rest_stays() {
        let local = Local::new(1);
        for key in ["a", "b", "c"] {
            take(&local, key, None, NOW_US).await.unwrap();
        }
        assert!(local.waits_for(&[b"x", b"a"]).await && !local.waits_for(&[b"x"]).await);
        let pieces = local.hand_over(Some(&[b"a"]), NOW_US).await;
        assert_eq!(pieces.iter().map(|piece| &piece.place.key[..]).collect::<Vec<_>>(), [b"a"]);
        assert_eq!(local.waiting_keys().await, 3, "on its way is not there yet");
        local.settled(pieces).await;
        assert!(!local.waits_for(&[b"a"]).await && local.is_waiting());
        let rest = local.hand_over(None, NOW_US).await;
        assert_eq!(rest.len(), 2);
        local.settled(rest).await;
        assert!(!local.is_waiting());
    }

    #[tokio::test]
    async fn whoever_counts_after_everything_was_told_is_the_one_to_look_for_the_store() {
        let local = Local::new(1);
        let waits_anew = async |key: &str| {
            let place = Place { limit: "l".into(), key: key.into(), request: "r".into(), bucket_ms: 0 };
            let call = one(key, None);
            let read = |_| Ok(((), Effect::Counted { units: 1, reset_ms: 60_000 }));
            local.run(&spec(), place, NOW_US, call, read).await.unwrap().1
        };
        assert!(waits_anew("a").await);
        assert!(!waits_anew("b").await, "somebody looks already");
        // Between a caller's look at the flag and its count, all that waited may have been told.
        let pieces = local.hand_over(None, NOW_US).await;
        local.settled(pieces).await;
        assert!(waits_anew("b").await);
    }

    #[tokio::test]
    async fn request_ids_beyond_the_bound_count_again() {
        let local = small();
        for used in [1, 1] {
            assert_eq!(take(&local, "a", Some("one"), NOW_US).await.unwrap(), used);
        }
        for used in [2, 3] {
            assert_eq!(take(&local, "a", Some("two"), NOW_US).await.unwrap(), used);
        }
        let units: u64 = local.hand_over(None, NOW_US).await.iter().map(|piece| piece.taken.units).sum();
        assert_eq!(units, 3, "as many as were counted");
    }
}
