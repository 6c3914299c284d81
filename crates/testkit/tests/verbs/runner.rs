//! Runs the server's calls on any store, and looks at the keyspace beside it.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use quaymaster::schema::{Source, load};
use quaymaster::store::redis::{RedisOptions, RedisStore};
use quaymaster::store::{Message, Reply};
use quaymaster::{Code, Engine, Quaymaster, Result};
use quaymaster_server::command::{Command, Fields, commands};
use quaymaster_server::{Depot, Services, UploadConfig};
use quaymaster_testkit::conformance::command;
use quaymaster_testkit::differential::{Hand, Side};
use quaymaster_testkit::verbs;
use serde_json::{Value, json};

use crate::cases::{CASES, Case};

/// A node without HTTP.
pub(crate) struct Runner {
    services: Services,
}

/// No call takes longer, so that a reply that never comes costs little.
pub(crate) const DEADLINE: Duration = Duration::from_millis(600);

pub(crate) async fn connect(url: &str) -> Arc<dyn Engine> {
    let mut options = RedisOptions::from_url(url).unwrap();
    options.deadline = DEADLINE;
    options.backoff.base = Duration::from_millis(5);
    options.backoff.max = Duration::from_millis(20);
    // On a busy machine the handshake may take longer than a call may.
    for _ in 0..20 {
        if let Ok(store) = RedisStore::connect(options.clone()).await {
            return Arc::new(store);
        }
    }
    Arc::new(RedisStore::connect(options).await.unwrap())
}

impl Runner {
    pub(crate) fn on(engine: Arc<dyn Engine>, prefix: &str, folder: &Path) -> Self {
        let text = verbs::schema(prefix, &folder.display().to_string());
        let loaded = load(&[Source { name: "verbs.toml", text: &text }], &|_| None);
        let schema = loaded.schema.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
        let quaymaster = Quaymaster::new(Arc::new(schema), engine);
        let depot =
            Depot::new(&quaymaster, &UploadConfig { folder: folder.to_owned(), ..UploadConfig::default() });
        Self { services: Services::new(quaymaster, depot) }
    }

    /// Opens what uploads keep outside of the store, so that nothing of that is taken for the effect of a call.
    pub(crate) async fn open_uploads(&self, kind: &str) {
        if kind == "upload" {
            let unknown = self.run(("upload", "status", "files"), json!({ "upload_id": "unknown" })).await;
            assert_eq!(unknown.unwrap_err().code, Code::UploadUnknown);
        }
    }

    pub(crate) async fn run(&self, call: (&str, &str, &str), fields: Value) -> Result<Value> {
        let (kind, verb, name) = call;
        let key: Vec<(String, String)> =
            verbs::key(kind, verb).iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let fields: Fields = serde_json::from_str(&fields.to_string()).unwrap();
        let command = find(kind, verb);
        let answer = command.run(&self.services, name, &key, &fields, &|_| ()).await?;
        Ok(serde_json::from_str(&answer).unwrap())
    }
}

pub(crate) fn find(kind: &str, verb: &str) -> Command {
    let found = commands().find(|command| command.kind().name() == kind && command.verb() == verb);
    found.unwrap_or_else(|| panic!("there is no {kind} {verb}"))
}

pub(crate) type Dump = BTreeMap<String, Seen>;

/// What was seen of a key.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    content: Reply,
    /// Between which milliseconds of the store's time the key ends, if it does: time passes while it is looked at.
    ends_ms: Option<(i64, i64)>,
}

impl Seen {
    /// Something that is there and is no key.
    pub(crate) const THERE: Self = Self { content: Reply::Nil, ends_ms: None };

    fn is(&self, other: &Self) -> bool {
        let same_end = match (self.ends_ms, other.ends_ms) {
            (Some(one), Some(two)) => one.0 <= two.1 && two.0 <= one.1,
            (one, two) => one == two,
        };
        self.content == other.content && same_end
    }
}

/// Every key with this in its name, and what it holds.
pub(crate) async fn dump(engine: &Arc<dyn Engine>, part: &str) -> Dump {
    let side = Side { name: "looked at", engine: engine.clone(), hand: Hand::Manual(Arc::default()) };
    let began_ms = engine.time_us().await.unwrap() / 1000;
    let held = side.keyspace(&format!("*{part}")).await;
    let ended_ms = engine.time_us().await.unwrap() / 1000;
    held.into_iter()
        .map(|(key, held)| {
            // A millisecond more on both sides: a time to live is told in whole ones.
            let ends_ms =
                (held.ttl_ms >= 0).then_some((began_ms + held.ttl_ms - 1, ended_ms + held.ttl_ms + 1));
            (String::from_utf8_lossy(&key).into_owned(), Seen { content: held.content, ends_ms })
        })
        .collect()
}

/// What differs.
pub(crate) fn changes(before: &Dump, after: &Dump) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let same = |name: &&String| match (before.get(*name), after.get(*name)) {
        (Some(before), Some(after)) => before.is(after),
        _ => false,
    };
    names.into_iter().filter(|name| !same(name)).cloned().collect()
}

/// Hears what is published on a channel.
pub(crate) struct Listener {
    store: Arc<dyn Engine>,
    channel: String,
    messages: BoxStream<'static, Message>,
}

impl Listener {
    pub(crate) async fn on(store: &Arc<dyn Engine>, channel: String) -> Self {
        let messages = store.subscribe(channel.as_bytes()).await.unwrap();
        Self { store: store.clone(), channel, messages }
    }

    /// How many messages came until now. The last one is its own.
    pub(crate) async fn count(mut self) -> usize {
        const END: &[u8] = b"the end";
        let words: &[&[u8]] = &[b"PUBLISH", self.channel.as_bytes(), END];
        command(&*self.store, self.channel.as_bytes(), words).await.unwrap();
        let mut count = 0;
        while let Some(message) = self.messages.next().await {
            match message {
                Message::Data(data) if data == END => return count,
                _ => count += 1,
            }
        }
        panic!("{} ended", self.channel)
    }
}

/// Each verb that writes has a case: a new one without fails here.
#[test]
fn every_verb_that_writes_has_a_case() {
    let mut left: HashSet<String> = commands()
        .filter(|command| !command.only_reads())
        .map(|command| format!("{} {}", command.kind().name(), command.verb()))
        .collect();
    for Case { call: (kind, verb, _), .. } in CASES.iter() {
        find(kind, verb);
        left.remove(&format!("{kind} {verb}"));
    }
    assert!(left.is_empty(), "no case in src/verbs/mod.rs for {left:?}");
}
