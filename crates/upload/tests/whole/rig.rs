//! Uploads on stores that live in a folder or behind URLs: any number of processes may open the same ones.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use futures_util::{TryStreamExt as _, stream};
use quaymaster::Quaymaster;
use quaymaster::schema::{Source, load};
use quaymaster::store::backoff::Backoff;
use quaymaster::store::embedded::{Durability, EmbeddedOptions};
use quaymaster::store::{Engine, StoreOptions};
use quaymaster_upload::announce::Announcer;
use quaymaster_upload::bytes::ChunkBytes;
use quaymaster_upload::ingest::{Content, Creation, Incoming, Request, Took};
use quaymaster_upload::ledger::{Clock, Ledger, LedgerOptions, Step, Sync};
use quaymaster_upload::objects::{Checksums, Credentials, Fsync, Objects, ObjectsOptions};
use quaymaster_upload::sweep::Cursor;
use quaymaster_upload::{Hasher, Options, Sha256, Uploads};
use serde::{Deserialize, Serialize};

/// How long a chunk is whose it is; short, for whoever waits for the lease of a dead one.
pub const LEASE: Duration = Duration::from_millis(900);

/// How long events are kept that were told.
const KEEP_EVENTS: Duration = Duration::from_secs(30 * 86_400);

/// Where everything is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Place {
    pub store: String,
    pub database: String,
    pub objects: String,
    /// Address and secret of an S3 endpoint.
    pub endpoint: Option<String>,
    /// Parts are not sent with checksums.
    pub unchecked: bool,
    /// Chunks go here; without it through the store.
    pub spool: Option<PathBuf>,
    /// Or through this other store.
    pub apart: Option<String>,
    pub chunk_min: String,
    pub max_in_flight: String,
    pub keep_after_done: String,
    pub chunk_ttl: String,
    /// How long a request that says nothing keeps its reservation, in milliseconds.
    pub reservation_ms: u64,
    /// How often a chunk is tried.
    pub attempts: u32,
    /// What is uploaded.
    pub document: String,
}

impl Place {
    /// All of it in one folder.
    pub fn in_folder(folder: &Path, spooled: bool) -> Self {
        let at = |name: &str| folder.join(name).display().to_string();
        Self {
            store: format!("embedded:{}", at("store")),
            database: format!("sqlite:{}", at("uploads.db")),
            objects: format!("file:{}", at("objects")),
            endpoint: None,
            unchecked: false,
            spool: spooled.then(|| folder.join("spool")),
            apart: None,
            chunk_min: "1KiB".to_owned(),
            max_in_flight: "64MiB".to_owned(),
            reservation_ms: 60_000,
            attempts: 4,
            keep_after_done: "1h".to_owned(),
            chunk_ttl: "1h".to_owned(),
            document: "document".to_owned(),
        }
    }

    /// The same with objects in S3, at this address.
    pub fn behind(folder: &Path, s3: SocketAddr) -> Self {
        Self {
            objects: "s3://quay/files".to_owned(),
            endpoint: Some(format!("http://{s3}")),
            // As S3 has it, and SeaweedFS with it.
            chunk_min: "5MiB".to_owned(),
            ..Self::in_folder(folder, false)
        }
    }

    /// What another program does to the database.
    pub async fn run(&self, sql: &'static str) {
        use sqlx::{ConnectOptions as _, Executor as _};
        let file = self.database.strip_prefix("sqlite:").unwrap();
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
        options.connect().await.unwrap().execute(sqlx::raw_sql(sql)).await.unwrap();
    }

    pub async fn open(&self) -> Rig {
        self.open_on(self.engine().await, Clock::Database).await
    }

    /// With a ledger whose time is held.
    pub async fn open_at(&self, clock: &Arc<AtomicI64>) -> Rig {
        self.open_on(self.engine().await, Clock::Held(Arc::clone(clock))).await
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        let mut options = StoreOptions::from_url(&self.store, Path::new(".")).unwrap();
        if let StoreOptions::Embedded(_, options) = &mut options {
            // Processes are killed here, machines are not.
            *options = EmbeddedOptions { durability: Durability::EverySec, ..options.clone() };
        }
        quaymaster::store::open(options).await.unwrap()
    }

    /// The same store, and everything else as this place says.
    pub async fn open_on(&self, engine: Arc<dyn Engine>, clock: Clock) -> Rig {
        let toml = format!(
            "[schema]\nname = \"uploads\"\nowner = \"tests\"\n[upload.documents]\nkey = \"upload:{{upload_id}}:state\"\n\
             state_ttl = \"24h\"\nchunk_ttl = \"{}\"\nkeep_after_done = \"{}\"\nchunk_min = \"{}\"\nchunk_max = \"16MiB\"\n\
             max_bytes_in_flight = \"{}\"\nobjects = \"file:unused\"\ndatabase = \"sqlite:unused\"\n",
            self.chunk_ttl, self.keep_after_done, self.chunk_min, self.max_in_flight
        );
        let loaded = load(&[Source { name: "uploads.toml", text: &toml }], &|_| None);
        let schema = Arc::new(loaded.schema.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics)));
        let store = Quaymaster::new(schema, Arc::clone(&engine));
        let upload = store.upload("documents").unwrap().clone();
        let bytes = match (&self.spool, &self.apart) {
            (Some(folder), _) => ChunkBytes::spool(folder, Fsync::Never).await.unwrap(),
            (None, Some(url)) => {
                let options = StoreOptions::from_url(url, Path::new(".")).unwrap();
                ChunkBytes::Apart(Box::new(upload.on(quaymaster::store::open(options).await.unwrap())))
            }
            (None, None) => ChunkBytes::Store,
        };
        let objects = ObjectsOptions {
            fsync: Fsync::Never,
            endpoint: self.endpoint.clone(),
            region: Some("us-east-1".to_owned()),
            credentials: self.endpoint.as_ref().map(|_| Credentials {
                key_id: "quay".to_owned(),
                secret: "master-secret".to_owned(),
                token: None,
            }),
            checksums: if self.unchecked { Checksums::Signature } else { Checksums::Sha256 },
            // What is repeated is repeated where it can be seen.
            retries: 0,
            ..ObjectsOptions::default()
        };
        let objects = Objects::open(&self.objects, &objects).await.unwrap();
        let ledger = LedgerOptions {
            sync: Sync::Never,
            deadline: Duration::from_secs(60),
            clock,
            ..LedgerOptions::default()
        };
        let ledger = Ledger::open(&self.database, &ledger).await.unwrap();
        let backoff =
            Backoff { base: Duration::from_millis(20), max: Duration::from_millis(200), jitter: 0.25 };
        let options = Options {
            lease: LEASE,
            reservation: Duration::from_millis(self.reservation_ms),
            attempts: self.attempts,
            backoff,
            away: backoff,
            wait: Duration::from_millis(200),
            keep_events: Some(KEEP_EVENTS),
        };
        let announcer = Announcer::open("outbox:").unwrap();
        let uploads = Uploads::new(upload, bytes, objects, ledger, announcer, options);
        Rig { uploads, engine }
    }
}

pub struct Rig {
    pub uploads: Uploads,
    pub engine: Arc<dyn Engine>,
}

/// A file in chunks.
#[derive(Debug, Clone)]
pub struct Document {
    pub key: String,
    pub chunks: Vec<Vec<u8>>,
}

impl Document {
    /// Four chunks of this many bytes but for the last; the first and the third are identical.
    pub fn new(key: &str, seed: u64, size: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut fresh = |length: usize| {
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            bytes
        };
        let (first, second, last) = (fresh(size), fresh(size), fresh(size / 7 + 1));
        Self { key: key.to_owned(), chunks: vec![first.clone(), second, first, last] }
    }

    pub fn size(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }

    pub fn sha256(&self) -> Sha256 {
        Sha256::of(&self.chunks.concat())
    }

    pub fn request(&self) -> Request {
        Request {
            name: format!("{}.pdf", self.key),
            size: Some(self.size()),
            mime_type: Some("application/pdf".to_owned()),
            idempotency_key: Some(self.key.clone()),
            ..Request::default()
        }
    }

    pub fn incoming(&self, number: usize) -> Incoming {
        let chunk = &self.chunks[number];
        let last = number + 1 == self.chunks.len();
        Incoming {
            number: number as u32,
            last: if last { quaymaster::upload::Last::Yes } else { quaymaster::upload::Last::No },
            size: Some(chunk.len() as u64),
            sha256: Some(Sha256::of(chunk)),
        }
    }
}

/// As a body comes in: pieces of odd sizes.
pub fn body(
    bytes: &[u8],
) -> impl futures_util::Stream<Item = Result<bytes::Bytes, std::io::Error>> + Send + use<> {
    let pieces: Vec<_> = bytes.chunks(70_001).map(|piece| Ok(bytes::Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces)
}

impl Rig {
    /// Its upload, the same for the same document.
    pub async fn create(&self, document: &Document) -> String {
        match self.uploads.create(&document.request()).await.unwrap() {
            Creation::New(began) | Creation::Existing(began) => began.upload_id,
            other => panic!("{}: {other:?}", document.key),
        }
    }

    pub async fn send(&self, id: &str, document: &Document, number: usize) -> Took {
        self.uploads.chunk(id, &document.incoming(number), body(&document.chunks[number])).await.unwrap()
    }

    pub async fn digest(&self, id: &str) -> Option<Sha256> {
        let Content::Pieces { pieces, .. } = self.uploads.content(id, None).await.unwrap() else {
            return None;
        };
        let hasher = pieces
            .try_fold(Hasher::new(), async |mut hasher, piece| {
                hasher.update(&piece);
                Ok(hasher)
            })
            .await
            .unwrap();
        Some(hasher.finish())
    }

    /// Keys of the store that match.
    pub async fn keys(&self, pattern: &str) -> Vec<String> {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.engine.scan(pattern.as_bytes(), 1000, cursor).await.unwrap();
            found.extend(page.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
            cursor = page.next;
            if cursor.is_none() {
                return found;
            }
        }
    }

    /// Whether a received chunk is acknowledged.
    pub fn received(took: &Took) -> bool {
        matches!(took, Took::Received { .. })
    }

    /// All multipart uploads that are begun and neither completed nor aborted.
    pub async fn pending(&self) -> usize {
        self.uploads.objects().pending("", None).await.unwrap().uploads.len()
    }
}

/// Sends everything in an order of its own, and some of it twice.
pub async fn send_all(rig: &Rig, id: &str, document: &Document) {
    for number in [3, 0, 2, 1, 2] {
        let took = rig.send(id, document, number).await;
        assert!(Rig::received(&took), "chunk {number} of {id}: {took:?}");
    }
}

/// A client that comes back when it is told to, and tries again what had no answer: until a chunk is received.
pub async fn send_until_received(rig: &Rig, id: &str, document: &Document, number: usize) {
    loop {
        let sent = rig.uploads.chunk(id, &document.incoming(number), body(&document.chunks[number])).await;
        match sent {
            Ok(took) if Rig::received(&took) => return,
            Ok(Took::Busy { retry_after }) => tokio::time::sleep(retry_after.min(SHORT)).await,
            Ok(other) => panic!("chunk {number} of {id}: {other:?}"),
            Err(error) if error.trouble().may_pass() => tokio::time::sleep(SHORT).await,
            Err(error) => panic!("chunk {number} of {id}: {error}"),
        }
    }
}

/// Between two tries of a patient client.
const SHORT: Duration = Duration::from_millis(100);

impl Rig {
    /// Ships and completes until the ledger has the upload where it should be; bounded by whoever runs it. What is
    /// asked for again is sent again.
    pub async fn work_until(&self, id: &str, document: &Document, there: impl Fn(Option<Step>) -> bool) {
        loop {
            let _ = self.uploads.ship_once(10).await.unwrap();
            let _ = self.uploads.run_due().await.unwrap();
            let step = self.uploads.ledger().find(id).await.unwrap().map(|upload| upload.step);
            if there(step) {
                return;
            }
            if step == Some(Step::Open)
                && let Some(standing) = self.uploads.standing(id).await.unwrap()
            {
                for number in standing.state.resend().into_iter().flatten() {
                    send_until_received(self, id, document, number as usize).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ships until every chunk of the document is a part, and completes nothing.
    pub async fn ship_everything(&self, id: &str, document: &Document) {
        while self.uploads.ledger().parts(id).await.unwrap().len() < document.chunks.len() {
            let _ = self.uploads.ship_once(10).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What must be true once nobody works on anything any more: nothing on its way, no bytes, no reservation. What a
    /// dead one left is given back when its time is over, so this waits for that; the runner bounds it.
    pub async fn until_nothing_is_left(&self, what: &str) {
        let (mut said, mut cursor) = (tokio::time::Instant::now(), Cursor::default());
        loop {
            let _ = self.uploads.sweep(&mut cursor).await.unwrap();
            let chunks = self.keys("upload:*:chunks:*").await;
            let staged = self.keys("upload:*:staging:*").await;
            let in_flight = self.uploads.store().in_flight().await.unwrap();
            if chunks.is_empty() && staged.is_empty() && (in_flight.bytes, in_flight.names) == (0, 0) {
                return;
            }
            if said.elapsed() > Duration::from_secs(30) {
                eprintln!("{what}: still {chunks:?}, {staged:?}, {in_flight:?}");
                said = tokio::time::Instant::now();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
