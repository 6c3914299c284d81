//! The uploads of the schema with all their parts: store, objects, ledger, events. Each is opened when it is first
//! needed, so that a server whose database is away answers everything else, and one that nobody uploads to leaves no
//! files behind.

pub(crate) mod tail;
mod work;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use quaymaster::store::backoff::Backoff;
use quaymaster::store::{self, StoreOptions};
use quaymaster::upload::Upload;
use quaymaster::{Code, Engine, Error, Quaymaster, Result};
use quaymaster_upload::announce::topic_of;
use quaymaster_upload::ledger::LedgerOptions;
use quaymaster_upload::objects::ObjectsOptions;
use quaymaster_upload::{Options, Settings, Trouble, Uploads};
use tokio::sync::{Notify, OnceCell};

use crate::doctor::{self, Eviction};
use crate::http::body::Slowest;
use crate::http::problem::Problem;
use tail::{Own, Tail};

/// Where uploads lie that the schema gives no place of their own, and how their parts are reached.
#[derive(Debug, Clone)]
pub struct UploadConfig {
    /// The folder of objects, databases and spools with relative names.
    pub folder: PathBuf,
    /// Where the bytes of chunks wait.
    pub chunks: ChunkPlace,
    /// In which folder, where they are spooled; `spool` unless given.
    pub spool: Option<PathBuf>,
    /// How object stores are reached.
    pub objects: ObjectsOptions,
    /// How the database is used.
    pub database: LedgerOptions,
    /// How long a chunk or a completion belongs to a process that says nothing.
    pub lease: Duration,
    /// How often a chunk is tried before its upload has FAILED.
    pub attempts: u32,
    /// How long events are kept that were told; for ever if `None`.
    pub keep_events: Option<Duration>,
    /// The slowest pace at which a chunk may come, in bytes a second …
    pub min_bytes_per_second: u64,
    /// … over this time.
    pub slow_after: Duration,
    /// Whether a store that holds nothing but chunks may evict them.
    pub eviction: Eviction,
    /// How long to stay away from a store that failed, and from parts that cannot be opened.
    pub retry: Backoff,
}

/// Where the bytes of chunks wait if the schema does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkPlace {
    /// In the store, under the documented keys.
    Store,
    /// In files of the folder.
    Spool,
}

impl Default for UploadConfig {
    fn default() -> Self {
        let Options { lease, attempts, keep_events, away, .. } = Options::default();
        Self {
            folder: PathBuf::from("./quaymaster-data"),
            chunks: ChunkPlace::Spool,
            spool: None,
            objects: ObjectsOptions::default(),
            database: LedgerOptions::default(),
            lease,
            attempts,
            keep_events,
            min_bytes_per_second: 16 << 10,
            slow_after: Duration::from_secs(10),
            eviction: Eviction::Refused,
            retry: away,
        }
    }
}

/// A claim of chunks waits no longer, so that a stop does not have to.
const CLAIM_WAIT: Duration = Duration::from_secs(1);

/// How long the start waits for a database or an object store.
const START: Duration = Duration::from_secs(3);

/// How long a call waits for them. Calls that find them closed open them one after the other: without a bound, each
/// would wait for all before it.
const OPENING: Duration = Duration::from_secs(15);

/// How many ids of documents are remembered, so that a chunk's answer costs no look for them.
const NODES: usize = 4096;

/// Every upload of a schema. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Depot(Arc<Vec<Berth>>);

/// One of them.
pub(crate) struct Berth {
    store: Upload,
    settings: Settings,
    opened: OnceCell<Uploads>,
    /// The store that `chunks` names, if it names one.
    apart: OnceCell<Arc<dyn Engine>>,
    eviction: Eviction,
    slowest: Slowest,
    /// Whether that store is examined when it is opened: by whoever stays, as the store itself is.
    examines: AtomicBool,
    /// Rings when somebody has opened it.
    bell: Notify,
    nodes: Mutex<HashMap<String, Arc<str>>>,
    tail: Arc<Tail>,
}

impl fmt::Debug for Berth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Berth").field("name", &self.store.name()).finish_non_exhaustive()
    }
}

impl Depot {
    /// The uploads `names`, or all that the schema declares; nothing is opened yet.
    pub fn of(quaymaster: &Quaymaster, config: &UploadConfig, names: &[String]) -> Result<Self> {
        for name in names {
            quaymaster.upload(name)?;
        }
        let mut all = Self::new(quaymaster, config);
        if let Some(berths) = Arc::get_mut(&mut all.0).filter(|_| !names.is_empty()) {
            berths.retain(|berth| names.iter().any(|name| name == berth.store.name()));
        }
        Ok(all)
    }

    /// The uploads that the schema declares; nothing is opened yet.
    pub fn new(quaymaster: &Quaymaster, config: &UploadConfig) -> Self {
        let topic = |store: &Upload| topic_of(&store.spec().events, &store.spec().topic).to_owned();
        let own = |store: &Upload| Own {
            resource: store.name().to_owned(),
            topic: topic(store),
            alone: quaymaster.uploads().filter(|other| topic(other) == topic(store)).count() == 1,
        };
        let berth = |store: &Upload| Berth {
            store: store.clone(),
            settings: Settings {
                folder: config.folder.clone(),
                spool: match config.chunks {
                    ChunkPlace::Store => None,
                    // A spool belongs to one ledger: what that does not know is removed.
                    ChunkPlace::Spool => {
                        let folder = config.spool.clone().unwrap_or_else(|| PathBuf::from("spool"));
                        Some(folder.join(store.name()))
                    }
                },
                apart: None,
                objects: config.objects.clone(),
                ledger: config.database.clone(),
                options: Options {
                    lease: config.lease,
                    attempts: config.attempts,
                    wait: CLAIM_WAIT,
                    keep_events: config.keep_events,
                    away: config.retry,
                    ..Options::default()
                },
            },
            opened: OnceCell::new(),
            apart: OnceCell::new(),
            eviction: config.eviction,
            slowest: Slowest { bytes_per_second: config.min_bytes_per_second, over: config.slow_after },
            examines: AtomicBool::new(false),
            bell: Notify::new(),
            nodes: Mutex::default(),
            tail: Arc::new(Tail::new(own(store))),
        };
        let mut all: Vec<Berth> = quaymaster.uploads().map(berth).collect();
        all.sort_by(|a, b| a.store.name().cmp(b.store.name()));
        Self(Arc::new(all))
    }

    /// The names of the uploads.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|berth| berth.store.name())
    }

    pub(crate) fn berths(&self) -> &[Berth] {
        &self.0
    }

    pub(crate) fn berth(&self, name: &str) -> Option<&Berth> {
        self.0.iter().find(|berth| berth.store.name() == name)
    }

    /// One of them with all its parts, for a command that runs once.
    pub async fn open(&self, name: &str) -> Result<Uploads> {
        let Some(berth) = self.berth(name) else {
            return Err(Error::new("upload", Code::ResourceUnknown, format!("there is no upload {name:?}")));
        };
        let opened = berth.uploads().await.map_err(unopened)?;
        Ok(opened.clone())
    }

    /// Refuses a store that would evict what it acknowledged or lacks commands, for whoever takes chunks without having
    /// been started as a server, which looks for itself.
    pub async fn examine(&self, quaymaster: &Quaymaster) -> Result<()> {
        for berth in self.berths() {
            berth.examines.store(true, Relaxed);
        }
        let eviction = self.berths().first().map_or(Eviction::Refused, |berth| berth.eviction);
        let findings = doctor::examine(quaymaster.schema(), &**quaymaster.engine(), eviction).await?;
        doctor::refusal(&findings).map_or(Ok(()), Err)
    }

    /// Opens what is in use, and looks at the rest as far as that leaves nothing behind. Refused is only what no waiting
    /// would change; what is away is opened once it is there.
    pub async fn check(&self) -> Result<()> {
        for berth in self.berths() {
            berth.examines.store(true, Relaxed);
            let upload = berth.store.name();
            let ready = async {
                // First what is wrong for good: what is only away would hide it.
                Uploads::check(&berth.store, &berth.settings)?;
                if berth.is_used() {
                    berth.uploads().await.map(drop)
                } else {
                    berth.chunk_store().await.map(drop)
                }
            };
            match tokio::time::timeout(START, ready).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) if error.trouble() == Trouble::Never => return Err(unopened(error)),
                Ok(Err(error)) => tracing::warn!(upload, %error, "uploads are not ready; trying on"),
                Err(_) => tracing::warn!(upload, "uploads are not ready: no answer yet; trying on"),
            }
        }
        Ok(())
    }
}

/// An error of objects, ledger or events, as commands tell it.
pub fn told(error: quaymaster_upload::Error) -> Error {
    coded(error, Code::UploadBackend)
}

/// An error of opening them: what no waiting would change is a mistake in the settings. Of what is open it is not.
fn unopened(error: quaymaster_upload::Error) -> Error {
    let never = error.trouble() == Trouble::Never;
    coded(error, if never { Code::ConfigInvalid } else { Code::UploadBackend })
}

/// Under its own code if that is one of the table, else under `otherwise`.
fn coded(error: quaymaster_upload::Error, otherwise: Code) -> Error {
    // What an object store of files finds damaged is told without its word for that.
    let error = if error.said() == Some("damaged") { error.coded(Code::UploadDamaged) } else { error };
    let code = error.code().unwrap_or(otherwise);
    error.under(code)
}

impl Berth {
    /// The store's side.
    pub(crate) fn store(&self) -> &Upload {
        &self.store
    }

    /// The slowest pace at which its chunks may come.
    pub(crate) fn slowest(&self) -> Slowest {
        self.slowest
    }

    /// The end of its outbox.
    pub(crate) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// All parts, if somebody has opened them.
    pub(crate) fn at_hand(&self) -> Option<&Uploads> {
        self.opened.get()
    }

    /// All parts, opened now if they are not yet.
    pub(crate) async fn uploads(&self) -> quaymaster_upload::Result<&Uploads> {
        self.opened_within(OPENING).await
    }

    /// The same for whoever has more time than a call, as tables of an older version may want.
    async fn opened_within(&self, patience: Duration) -> quaymaster_upload::Result<&Uploads> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let open = || async {
            let settings = Settings { apart: self.chunk_store().await?, ..self.settings.clone() };
            // Seldom, and large: not a part of every request's future.
            let opened = Box::pin(Uploads::open(self.store.clone(), settings)).await?;
            self.warn_alone();
            self.bell.notify_one();
            Ok(opened)
        };
        tokio::time::timeout(patience, self.opened.get_or_try_init(open)).await.unwrap_or_else(|_| {
            let detail = "the database or the object store does not answer";
            Err(quaymaster_upload::Error::new("upload.open", Trouble::Passing, detail))
        })
    }

    /// The store that holds nothing but chunks, where the schema names one; opened now if it is not yet.
    async fn chunk_store(&self) -> quaymaster_upload::Result<Option<Arc<dyn Engine>>> {
        let chunks = self.store.spec().chunks.as_deref();
        let Some(url) = chunks.filter(|url| url.starts_with("redis")) else { return Ok(None) };
        let open = || async {
            let engine = store::open(StoreOptions::from_url(url, &self.settings.folder)?).await?;
            if self.examines.load(Relaxed) {
                let findings = doctor::examine_chunks(self.store.name(), &*engine, self.eviction).await;
                if let Err(error) = findings.and_then(|findings| doctor::weigh(&findings)) {
                    let _ = engine.close().await;
                    return Err(error);
                }
            }
            Ok(engine)
        };
        Ok(Some(self.apart.get_or_try_init(open).await?.clone()))
    }

    /// Nodes meet in a store that is a server of its own, and not in a folder.
    fn warn_alone(&self) {
        let (spec, upload) = (self.store.spec(), self.store.name());
        let local = spec.objects.starts_with("file:") || spec.database.starts_with("sqlite:");
        if local && self.settings.spool.is_none() {
            tracing::warn!(
                upload,
                "objects or database of uploads are files of this machine: no other node must work on this store; \
                 name an s3:// and a postgres:// in the schema, or share the folder"
            );
        }
    }

    /// Whether there may be uploads: a database that is a file and is not there has none.
    fn is_used(&self) -> bool {
        match self.store.spec().database.strip_prefix("sqlite:") {
            Some(path) => {
                let path = path.split('?').next().unwrap_or_default();
                self.settings.folder.join(path.strip_prefix("//").unwrap_or(path)).exists()
            }
            None => true,
        }
    }

    /// The document of an upload; `None` when there is no such upload.
    pub(crate) async fn node_of(&self, id: &str) -> std::result::Result<Option<Arc<str>>, Problem> {
        let known = self.nodes.lock().get(id).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let Some(standing) = self.uploads().await?.standing(id).await? else { return Ok(None) };
        Ok(Some(self.remember(id, &standing.state.node_id)))
    }

    /// Keeps the document of an upload at hand.
    pub(crate) fn remember(&self, id: &str, node_id: &str) -> Arc<str> {
        let node: Arc<str> = node_id.into();
        let mut nodes = self.nodes.lock();
        if nodes.len() >= NODES {
            nodes.clear();
        }
        nodes.insert(id.to_owned(), node.clone());
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_object_store_refuses_for_good_is_no_mistake_in_the_settings_unless_it_cannot_be_opened() {
        let error = |code: &str| {
            let error = quaymaster_upload::Error::new("objects.part", Trouble::Never, "why");
            match Code::named(code) {
                Some(code) => error.coded(code),
                None if code.is_empty() => error,
                None => error.saying(code),
            }
        };
        for (code, called, opening) in [
            ("", Code::UploadBackend, Code::ConfigInvalid),
            ("NoSuchBucket", Code::UploadBackend, Code::ConfigInvalid),
            ("damaged", Code::UploadDamaged, Code::UploadDamaged),
            ("upload.gone", Code::UploadGone, Code::UploadGone),
            ("config.invalid", Code::ConfigInvalid, Code::ConfigInvalid),
        ] {
            assert_eq!((told(error(code)).code, unopened(error(code)).code), (called, opening), "{code}");
        }
        let away = || quaymaster_upload::Error::new("objects.open", Trouble::Passing, "away");
        assert_eq!((told(away()).code, unopened(away()).code), (Code::UploadBackend, Code::UploadBackend));
    }
}
