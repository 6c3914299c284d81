//! All parts together: the store's side, the bytes of chunks, objects, ledger and events of one upload resource.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quaymaster::store::backoff::Backoff;
use quaymaster::store::{Code, Engine, StoreOptions};
use quaymaster::upload::Upload;
use tokio::sync::Notify;

use crate::announce::Announcer;
use crate::bytes::{self, ChunkBytes, Pool, Sending, Share};
use crate::complete::Owned;
use crate::figures::Figures;
use crate::ingest::Callers;
use crate::ledger::{Ledger, LedgerOptions};
use crate::objects::{Objects, ObjectsOptions};
use crate::own::Own;
use crate::ship::Leases;
use crate::threads::WHOLE;
use crate::{Error, Result, Trouble};

/// How uploads are worked on.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a chunk belongs to whoever ships it, and an upload to whoever completes it. Renewed three times in it.
    pub lease: Duration,
    /// How long bytes in flight are reserved for a request that says nothing.
    pub reservation: Duration,
    /// How often a chunk is tried before its upload has FAILED.
    pub attempts: u32,
    /// How long to wait before a chunk or a completion is tried again.
    pub backoff: Backoff,
    /// How long to stay away from a store that failed.
    pub away: Backoff,
    /// How long a claim of chunks waits before it asks again.
    pub wait: Duration,
    /// How long events of this topic are kept after they were told, and until their upload is forgotten; for ever if
    /// `None`.
    pub keep_events: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            reservation: Duration::from_secs(60),
            attempts: 12,
            // Twelve attempts are about five minutes: an object store that restarts costs nobody an upload.
            backoff: Backoff { max: Duration::from_secs(60), ..Backoff::default() },
            away: Backoff::default(),
            wait: Duration::from_secs(10),
            keep_events: None,
        }
    }
}

/// A chunk in a store is one string, and strings of Redis end here (`proto-max-bulk-len`).
const STRING_MAX: u64 = 512 << 20;

/// One upload resource with all its parts. Cheap to clone.
#[derive(Clone)]
pub struct Uploads {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Upload,
    pub(crate) bytes: ChunkBytes,
    pub(crate) objects: Objects,
    pub(crate) ledger: Ledger,
    pub(crate) announcer: Announcer,
    pub(crate) options: Options,
    /// Rings when an upload may be completed; the ledger knows which.
    pub(crate) whole: Notify,
    pub(crate) figures: Figures,
    /// The memory of bodies that are read.
    pub(crate) pool: Arc<Pool>,
    /// The memory of what goes to a store.
    pub(crate) sending: Arc<Sending>,
    /// The memory of chunks that are read from a store, on their way out.
    pub(crate) fetching: Arc<Share>,
    /// Who has how much of the room for what comes in.
    pub(crate) callers: Arc<Callers>,
    /// Chunks that this process ships.
    pub(crate) leases: Arc<Mutex<Leases>>,
    /// Completions and ends that it works on.
    pub(crate) owned: Owned,
}

impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uploads").field("name", &self.inner.store.name()).finish_non_exhaustive()
    }
}

/// What a process brings along beside the schema.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where `file:` and `sqlite:` with a relative path lie.
    pub folder: PathBuf,
    /// Where chunks are spooled if the schema does not say; `None` keeps them in the store.
    pub spool: Option<PathBuf>,
    /// The store that the schema's `chunks` names, if somebody has opened it already.
    pub apart: Option<Arc<dyn Engine>>,
    /// How objects are reached.
    pub objects: ObjectsOptions,
    /// How the database is used.
    pub ledger: LedgerOptions,
    /// How uploads are worked on.
    pub options: Options,
}

const OP: &str = "upload.open";

/// Rows with keys of an older build that are read at once.
const BARE_KEYS: u32 = 100;

/// What all bodies together fill: of each one piece is filled while another is written.
const READING: usize = 1 << 20;

/// What of it is on its way to a store.
const SENDING: u32 = 256 << 10;

/// What all chunks that are fetched from a store should have in memory, until a part's client has taken them: that one
/// holds up to 400 KiB of what is slow to go.
const FETCHING: usize = 1 << 20;

impl Uploads {
    /// What opening would refuse, told before anything is made: chunks that their place cannot hold, events that this
    /// build cannot send, symbolic links in the data folder.
    pub fn check(store: &Upload, settings: &Settings) -> Result<()> {
        check_chunks(store, settings)?;
        Announcer::with_topic(&store.spec().events, &store.spec().topic)?;
        Own::of(store, settings).check()
    }

    /// Opens everything that the schema names.
    pub async fn open(store: Upload, settings: Settings) -> Result<Self> {
        check_chunks(&store, &settings)?;
        let spec = store.spec().clone();
        // Asks nobody for anything, so it comes before what makes files.
        let announcer = Announcer::with_topic(&spec.events, &spec.topic)?;
        off(&store, &settings, Own::prepare).await??;
        let at = |path: &str| settings.folder.join(path);
        let bytes = match (
            spec.chunks.as_deref().map(|url| url.split_once(':').unwrap_or((url, ""))),
            &settings.spool,
        ) {
            (Some(("file", path)), _) if !path.is_empty() => {
                // What the ledger does not know is removed: no two of them share a spool.
                let folder = at(path.strip_prefix("//").unwrap_or(path)).join(store.name());
                ChunkBytes::spool(folder, settings.objects.fsync).await?
            }
            (Some((scheme, _)), _) if scheme.starts_with("redis") => {
                let engine = match settings.apart.clone() {
                    Some(engine) => engine,
                    None => {
                        let url = spec.chunks.as_deref().unwrap_or_default();
                        quaymaster::store::open(StoreOptions::from_url(url, &settings.folder)?).await?
                    }
                };
                ChunkBytes::Apart(Box::new(store.on(engine)))
            }
            (Some(_), _) => {
                let detail = "chunks: is file:FOLDER or redis://…; without it they are in the store, or spooled when it is embedded";
                return Err(Error::new(OP, Trouble::Never, detail).coded(Code::ConfigInvalid));
            }
            (None, Some(folder)) => {
                ChunkBytes::spool(settings.folder.join(folder), settings.objects.fsync).await?
            }
            (None, None) => ChunkBytes::Store,
        };
        // `sqlite://a.db` is `sqlite:a.db`, as everywhere; three slashes are an absolute path.
        let path_of = |rest: &'_ str| rest.strip_prefix("//").unwrap_or(rest).to_owned();
        let beside = |url: &str, scheme: &str| match url.strip_prefix(scheme).map(path_of) {
            Some(path) if !path.is_empty() && !path.starts_with('/') => {
                format!("{scheme}{}", at(&path).display())
            }
            _ => url.to_owned(),
        };
        let objects = Objects::open(&beside(&spec.objects, "file:"), &settings.objects).await?;
        let database = beside(&spec.database, "sqlite:");
        let ledger = Ledger::open(&database, &settings.ledger).await?;
        off(&store, &settings, Own::close).await?;
        let uploads = Self::new(store, bytes, objects, ledger, announcer, settings.options);
        uploads.prefix_keys().await?;
        Ok(uploads)
    }

    /// Gives keys that an older build wrote the prefix of the object store: first in the states of uploads that go on,
    /// by which their chunks are sent, then in the ledger. Repeated after a crash it changes nothing twice.
    pub async fn prefix_keys(&self) -> Result<()> {
        let (ledger, name, prefix) =
            (&self.inner.ledger, self.inner.store.name(), self.inner.objects.prefix());
        let mut after = String::new();
        while !prefix.is_empty() {
            let page = ledger.bare_keys(name, &after, BARE_KEYS).await?;
            for upload in page.iter().filter(|upload| !upload.step.is_over()) {
                let (id, was) = (&upload.upload_id, &upload.object_key);
                self.inner.store.rekey(id, was, &format!("{prefix}{was}")).await?;
            }
            match page.last() {
                Some(last) => after.clone_from(&last.upload_id),
                None => break,
            }
        }
        let changed = ledger.prefix_keys(name, prefix).await?;
        if changed > 0 && !prefix.is_empty() {
            tracing::info!(
                upload = name,
                changed,
                prefix,
                "keys of objects have the prefix of their bucket now"
            );
        }
        Ok(())
    }

    /// Puts the parts together.
    pub fn new(
        store: Upload,
        bytes: ChunkBytes,
        objects: Objects,
        ledger: Ledger,
        announcer: Announcer,
        options: Options,
    ) -> Self {
        let inner = Inner {
            callers: Arc::new(Callers::new(store.spec().max_bytes_in_flight)),
            store,
            bytes,
            objects,
            ledger,
            announcer,
            options,
            whole: Notify::new(),
            figures: Figures::default(),
            pool: Arc::new(Pool::new(Share::new(READING, 2))),
            sending: Arc::new(Sending::new(SENDING)),
            fetching: Arc::new(Share::new(FETCHING, bytes::AHEAD + 1)),
            leases: Arc::default(),
            owned: Owned::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The store's side.
    pub fn store(&self) -> &Upload {
        &self.inner.store
    }

    /// How long things took in this process.
    pub fn figures(&self) -> &Figures {
        &self.inner.figures
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.inner.ledger
    }

    /// What its events are recorded under.
    pub fn topic(&self) -> &str {
        self.inner.announcer.topic()
    }

    /// The object store.
    pub fn objects(&self) -> &Objects {
        &self.inner.objects
    }

    /// Where bytes of chunks are.
    pub fn bytes(&self) -> &ChunkBytes {
        &self.inner.bytes
    }

    /// How the key of a new object is made: all of it, as the bucket has it.
    pub(crate) fn key_template(&self) -> String {
        format!("{}{}", self.inner.objects.prefix(), self.inner.store.spec().object_key)
    }

    /// How long an upload may take.
    pub(crate) fn time_limit(&self) -> Duration {
        self.inner.store.time_limit()
    }
}

/// Does something about the data folder off the runtime's threads.
async fn off<T: Send + 'static>(store: &Upload, settings: &Settings, work: fn(&Own) -> T) -> Result<T> {
    let own = Own::of(store, settings);
    WHOLE.off(move || work(&own)).await.map_err(|error| {
        Error::new(OP, Trouble::Passing, "the data folder could not be looked at").because(error)
    })
}

/// A chunk that was let in and is one byte too long for its place would be refused by a script, as a defect.
fn check_chunks(store: &Upload, settings: &Settings) -> Result<()> {
    let spec = store.spec();
    let spooled = match &spec.chunks {
        Some(url) => url.starts_with("file:"),
        None => settings.spool.is_some(),
    };
    if spooled || spec.chunk_max <= STRING_MAX {
        return Ok(());
    }
    let detail = format!(
        "chunk_max: upload.{} takes chunks of {} bytes, and a store holds at most {STRING_MAX} (512MiB) in one key; lower \
         it, or spool chunks with `chunks = \"file:FOLDER\"`",
        store.name(),
        spec.chunk_max
    );
    Err(Error::new(OP, Trouble::Never, detail).coded(Code::ConfigInvalid))
}
