//! One play of a scene: runs its calls, and watches what they do to the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use quaymaster::{Code, Engine, Error, Quaymaster};
use quaymaster_schema::{KeyRow, Schema, Spelling};

use super::recorder::Recorder;
use super::{Poison, Row, Scene, poison};
use crate::conformance::command;
use crate::differential::side::{Hand, Held, Side};

/// No call of a scene waits for anything; one that is still running after this turns in a circle.
const ENDLESS: Duration = Duration::from_secs(30);

/// How an item that must not vanish begins; a number follows.
const ITEM: &[u8] = b"item-";

type Keyspace = BTreeMap<Bytes, Held>;

/// One play of a scene.
pub struct Stage {
    /// The scene's schema on its store.
    pub quaymaster: Quaymaster,
    scene: &'static str,
    side: Side,
    recorder: Arc<Recorder>,
    poison: Option<(Bytes, Poison)>,
    seen: Mutex<Seen>,
    /// The keyspace after the last call, where nothing else has written since: the next call need not read it again.
    last: Mutex<Option<Keyspace>>,
}

#[derive(Default)]
struct Seen {
    spoiled: Option<Keyspace>,
    items: BTreeSet<Vec<u8>>,
    done: BTreeSet<Vec<u8>>,
    ids: HashMap<String, String>,
    fence: u64,
    broken: Vec<String>,
}

/// How the key of `row` is spelled with these values.
pub(super) fn spell(row: &KeyRow, values: &[(&str, &str)], now_us: i64) -> Bytes {
    let wanted: Vec<&str> = row.pattern.placeholders().collect();
    let values: Vec<(&str, &str)> =
        values.iter().copied().filter(|(name, _)| wanted.contains(name)).collect();
    let mut out = Vec::new();
    if let Err(error) = row.pattern.render(&values, now_us, Spelling::Single, &mut out) {
        panic!("{}: {}", row.pattern.text(), error);
    }
    out.into()
}

impl Stage {
    pub(super) fn new(
        scene: &Scene,
        schema: Arc<Schema>,
        engine: Arc<dyn Engine>,
        poison: Option<(Bytes, Poison)>,
    ) -> Self {
        let recorder = Recorder::new(engine.clone());
        let quaymaster = Quaymaster::new(schema, recorder.clone());
        let side = Side { name: "hostile", engine, hand: Hand::Manual(Arc::new(AtomicI64::default())) };
        Self {
            quaymaster,
            scene: scene.name,
            side,
            recorder,
            poison,
            seen: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Writes what this play is about; everything before was in order.
    pub async fn spoil(&self) {
        let held = self.side.keyspace("").await;
        if let Some((key, poison)) = &self.poison {
            for words in poison.commands(key, held.get(key)) {
                self.write(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
            }
        }
        let spoiled = self.side.keyspace("").await;
        self.recorder.scripts();
        *self.last.lock() = Some(spoiled.clone());
        let mut seen = self.seen.lock();
        seen.items = items(&spoiled);
        seen.spoiled = Some(if self.poison.is_some() { spoiled } else { held });
    }

    /// Any one command, as another program would send it; its key is the second word.
    pub async fn write(&self, words: &[&[u8]]) {
        *self.last.lock() = None;
        if let Err(error) = command(&*self.side.engine, words[1], words).await {
            panic!("{words:?}: {error}");
        }
    }

    /// How a key of the scene's schema is spelled with these values.
    pub fn spelled(&self, (kind, name, role): Row, values: &[(&str, &str)]) -> Bytes {
        let row = self.quaymaster.schema().resource(kind, name).and_then(|resource| resource.key(role));
        let row = row.unwrap_or_else(|| panic!("{kind} {name} has no {role}"));
        spell(row, values, self.quaymaster.engine().now_us())
    }

    /// Runs one call: its answer, or nothing where it failed as it may.
    pub async fn call<T>(&self, verb: &str, run: impl Future<Output = Result<T, Error>>) -> Option<T> {
        self.run(verb, run, true).await
    }

    /// The same for a call of several parts that does the others where one is not ours: its error says that it may have
    /// run.
    pub async fn call_in_parts<T>(
        &self,
        verb: &str,
        run: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        self.run(verb, run, false).await
    }

    async fn run<T>(
        &self,
        verb: &str,
        run: impl Future<Output = Result<T, Error>>,
        whole: bool,
    ) -> Option<T> {
        let last = self.last.lock().take();
        let before = match last {
            Some(last) => last,
            None => self.side.keyspace("").await,
        };
        let Ok(answer) = tokio::time::timeout(ENDLESS, run).await else {
            self.broke(verb, "does not end".to_owned());
            return None;
        };
        let after = self.side.keyspace("").await;
        self.seen.lock().items.extend(items(&after));
        let error = match answer {
            Ok(answer) => {
                *self.last.lock() = Some(after);
                return Some(answer);
            }
            Err(error) => error,
        };
        let told = format!("{} {}", error.code, error.detail);
        let key = self.poison.as_ref().map(|(key, _)| String::from_utf8_lossy(key).into_owned());
        let foreign = matches!(error.code, Code::KeyMalformed | Code::KeyWrongType);
        if error.code.http_status() >= 500 || key.is_none() {
            self.broke(verb, told.clone());
        } else if foreign && !key.is_some_and(|key| error.detail.contains(&key)) {
            self.broke(verb, format!("does not name the key: {told}"));
        }
        let may_have_changed = error.may_have_run && !(foreign && whole);
        if let Some(change) = difference(&before, &after).filter(|_| !may_have_changed) {
            self.broke(verb, format!("failed ({told}) and changed {change}"));
        }
        *self.last.lock() = Some(after);
        None
    }

    /// An id stands for one item for as long as there are ids. What the writer put in an item's place does not count.
    pub fn id(&self, id: impl ToString, what: &[u8]) {
        if items_in(what).is_empty() {
            return;
        }
        let (id, what) = (id.to_string(), String::from_utf8_lossy(what).into_owned());
        let other = self.seen.lock().ids.insert(id.clone(), what.clone());
        if let Some(other) = other.filter(|other| *other != what) {
            self.broke("an id", format!("{id} stands for {other} and for {what}"));
        }
    }

    /// A new lease's fence is above all before.
    pub fn fence(&self, fence: u64) {
        let before = std::mem::replace(&mut self.seen.lock().fence, fence);
        if fence <= before {
            self.broke("a fence", format!("{fence} follows {before}"));
        }
    }

    /// The items in `payload` are done: they may be gone from now on.
    pub fn done(&self, payload: &[u8]) {
        self.seen.lock().done.extend(items_in(payload));
    }

    /// The items in `payload` must be in the store from now on.
    pub fn taken(&self, payload: &[u8]) {
        self.seen.lock().items.extend(items_in(payload));
    }

    /// Something else that does not hold.
    pub fn broke(&self, verb: &str, what: String) {
        let spoiled = match &self.poison {
            Some((key, poison)) => format!("{} with {poison:?}", String::from_utf8_lossy(key)),
            None => "nothing spoiled".to_owned(),
        };
        self.seen.lock().broken.push(format!("{}, {spoiled}: {verb}: {what}", self.scene));
    }

    /// Scripts that have met what was spoiled.
    pub(super) fn met(&self) -> BTreeSet<&'static str> {
        self.recorder.scripts()
    }

    pub(super) fn at_the_spoiling(&self) -> Keyspace {
        match self.seen.lock().spoiled.clone() {
            Some(spoiled) => spoiled,
            None => panic!("{} never spoils anything", self.scene),
        }
    }

    /// What did not hold. Leaves an empty store behind.
    pub(super) async fn end(self) -> Vec<String> {
        let left = items(&self.side.keyspace("").await);
        let gone: Vec<String> = {
            let seen = self.seen.lock();
            let gone = seen.items.iter().filter(|item| !left.contains(*item) && !seen.done.contains(*item));
            gone.map(|item| String::from_utf8_lossy(item).into_owned()).collect()
        };
        if !gone.is_empty() {
            self.broke("the end", format!("{} vanished", gone.join(", ")));
        }
        self.side.clear("").await;
        self.seen.into_inner().broken
    }
}

fn items(keyspace: &Keyspace) -> BTreeSet<Vec<u8>> {
    let parts = keyspace.values().flat_map(|held| poison::parts(&held.content));
    parts.flat_map(|part| items_in(&part)).collect()
}

fn items_in(text: &[u8]) -> Vec<Vec<u8>> {
    let starts = (0..text.len()).filter(|at| text[*at..].starts_with(ITEM));
    starts
        .map(|at| {
            let digits = text[at + ITEM.len()..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            text[at..at + ITEM.len() + digits].to_vec()
        })
        .collect()
}

/// The first key that is not what it was. How long a key lives is no part of it.
fn difference(before: &Keyspace, after: &Keyspace) -> Option<String> {
    let keys: BTreeSet<&Bytes> = before.keys().chain(after.keys()).collect();
    let content = |space: &Keyspace, key: &Bytes| space.get(key).map(|held| held.content.clone());
    let changed = keys.into_iter().find(|key| content(before, key) != content(after, key))?;
    Some(String::from_utf8_lossy(changed).into_owned())
}
