//! The service and the worker of the document, command by command; each command may be the last before its process dies.

use quaymaster_testkit::servers::RedisServer;
use quaymaster_upload::Sha256;
use quaymaster_upload::ledger::Part;
use quaymaster_upload::objects::{About, Completed, MultipartId, Objects, PartBody, Source};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::objects;

pub(crate) const ID: &str = "abc123";
const OBJECT: &str = "connectors/my-connector/550e8400-e29b-41d4-a716-446655440000.pb";

/// What `check_and_complete_upload` came to before it asked to be the one that completes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Waiting,
    /// "This shouldn't happen, but check anyway."
    Mismatch,
    Ready,
}

/// The row of `nodes`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) status: &'static str,
    pub(crate) size: u64,
}

pub(crate) struct Documented<'a> {
    server: &'a RedisServer,
    pub(crate) objects: Objects,
    multipart: MultipartId,
    /// Sizes by ETag, which an object store knows by itself.
    sizes: Vec<(String, u64)>,
    pub(crate) row: Row,
    pub(crate) events: Vec<Value>,
    _folder: TempDir,
}

pub(crate) fn key(field: &str) -> String {
    format!("upload:{ID}:{field}")
}

pub(crate) fn chunk(number: u32) -> String {
    key(&format!("chunks:{number}"))
}

impl<'a> Documented<'a> {
    pub(crate) async fn begin(server: &'a RedisServer, expected_size: u64) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let objects = objects(folder.path()).await;
        let multipart = objects.begin(OBJECT, &About::default()).await.expect("begun");
        let expected = expected_size.to_string();
        let state = key("state");
        let words = [
            ["node_id", "550e8400-e29b-41d4-a716-446655440000"],
            ["s3_upload_id", multipart.as_str()],
            ["s3_key", OBJECT],
            ["status", "PENDING"],
            ["expected_size", &expected],
            ["received_chunks", "0"],
            ["uploaded_chunks", "0"],
            ["total_chunks", "0"],
            ["is_last_received", "false"],
        ];
        let words: Vec<&str> = ["HSET", &state].into_iter().chain(words.into_iter().flatten()).collect();
        server.command::<i64>(&words);
        server.command::<i64>(&["EXPIRE", &state, "86400"]);
        let row = Row { status: "PENDING", size: 0 };
        Self { server, objects, multipart, sizes: Vec::new(), row, events: Vec::new(), _folder: folder }
    }

    pub(crate) fn field(&self, name: &str) -> String {
        self.server.command(&["HGET", &key("state"), name])
    }

    fn set(&self, name: &str, value: &str) {
        self.server.command::<i64>(&["HSET", &key("state"), name, value]);
    }

    /// Scenario 4, the service's way to recognise a repetition.
    pub(crate) fn is_duplicate(&self, number: u32) -> bool {
        self.server.command::<i64>(&["EXISTS", &chunk(number)]) == 1
    }

    /// The first command of pattern 1.
    pub(crate) fn store(&self, number: u32, data: &str) {
        self.server.command::<()>(&["SETEX", &chunk(number), "3600", data]);
    }

    /// Pattern 1 with the check of scenario 4; how many workers heard of it, `None` for a repetition. Either way the
    /// client is told that all is well.
    pub(crate) fn take(&self, number: u32, data: &str, last: bool) -> Option<u32> {
        if self.is_duplicate(number) {
            return None;
        }
        self.store(number, data);
        self.server.command::<i64>(&["HINCRBY", &key("state"), "received_chunks", "1"]);
        if last {
            self.set("is_last_received", "true");
            self.set("total_chunks", &(number + 1).to_string());
        }
        let told = json!({ "upload_id": ID, "chunk_number": number, "is_last": last }).to_string();
        Some(self.server.command(&["PUBLISH", "upload:chunk:received", &told]))
    }

    /// A worker takes a chunk; `None` is "another worker claimed it already".
    pub(crate) fn claim(&self, number: u32) -> Option<String> {
        self.server.command(&["GETDEL", &chunk(number)])
    }

    /// Pattern 2: takes the chunk, sends it, notes it.
    pub(crate) async fn process(&mut self, number: u32) -> Option<Check> {
        let data = self.claim(number)?;
        let etag = self.send(number, &data).await;
        Some(self.note(number, &etag))
    }

    pub(crate) async fn send(&mut self, number: u32, data: &str) -> String {
        let (size, digest) = (data.len() as u64, Sha256::of(data.as_bytes()).into());
        let source = Source::Pieces(vec![bytes::Bytes::copy_from_slice(data.as_bytes())]);
        let body = PartBody { size, digest, source };
        let etag = self.objects.part(OBJECT, &self.multipart, number + 1, body).await.expect("a part");
        self.sizes.push((etag.clone(), size));
        etag
    }

    pub(crate) fn note(&self, number: u32, etag: &str) -> Check {
        self.server.command::<i64>(&["ZADD", &key("etags"), &number.to_string(), etag]);
        self.server.command::<i64>(&["HINCRBY", &key("state"), "uploaded_chunks", "1"]);
        self.check()
    }

    /// Pattern 3 as far as its gate.
    pub(crate) fn check(&self) -> Check {
        let number = |name: &str| self.field(name).parse::<u64>().expect("a number");
        if self.field("is_last_received") != "true" || number("uploaded_chunks") < number("total_chunks") {
            return Check::Waiting;
        }
        let etags: u64 = self.server.command(&["ZCARD", &key("etags")]);
        if etags == number("total_chunks") { Check::Ready } else { Check::Mismatch }
    }

    /// The gate: whether this worker is the one that completes.
    pub(crate) fn is_mine(&self) -> bool {
        self.server.command::<i64>(&["HSETNX", &key("state"), "status", "COMPLETING"]) == 1
    }

    /// The parts as pattern 3 numbers them: by their place in the list.
    pub(crate) fn listed(&self) -> Vec<String> {
        self.server.command(&["ZRANGE", &key("etags"), "0", "-1"])
    }

    /// Pattern 3 behind its gate, up to the object; or why the object store refused.
    pub(crate) async fn complete(&self) -> Result<String, String> {
        let size = |etag: &String| {
            self.sizes.iter().find(|(known, _)| known == etag).map(|(_, size)| *size).unwrap_or_default()
        };
        let parts: Vec<Part> = (1..)
            .zip(self.listed())
            .map(|(number, etag)| Part { number, size: size(&etag), etag, digest: Sha256::of(b"").into() })
            .collect();
        match self.objects.complete(OBJECT, &self.multipart, &parts).await {
            Ok(Completed::Done { etag }) => Ok(etag.expect("the local store tells it")),
            Ok(Completed::Unknown(error)) | Err(error) => Err(error.said().unwrap_or_default().to_owned()),
        }
    }

    /// Then the state, the row and the event, in this order.
    pub(crate) fn show_completed(&self, etag: &str) {
        self.set("status", "COMPLETED");
        self.set("final_etag", etag);
    }

    pub(crate) fn update_row(&mut self) {
        self.row = Row { status: "ACTIVE", size: self.field("expected_size").parse().expect("a number") };
    }

    pub(crate) fn publish_event(&mut self) {
        self.events.push(json!({ "node_id": self.field("node_id"), "size": self.field("expected_size") }));
    }

    pub(crate) async fn size(&self) -> Option<u64> {
        self.objects.head(OBJECT).await.expect("a look").map(|head| head.size)
    }

    pub(crate) async fn pending(&self) -> usize {
        self.objects.pending("", None).await.expect("a page").uploads.len()
    }
}
