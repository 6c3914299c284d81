//! Files in, killed processes and a broker that is away in between; objects, rows and events out.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use serde_json::json;

use crate::broker::Broker;
use crate::process::{Served, Started, command, folder, said};
use crate::seaweed::{Seaweed, options};
use crate::servers::free_address;
use crate::servers::{PostgresServer, RedisConfig, RedisServer};
use crate::topic::{TOPIC, check, read};
use quaymaster_upload::objects::Objects;

const CHUNK: usize = 5 << 20;

/// Whoever dies has let go of its uploads two seconds later.
const SETTINGS: &str = "[uploads]\nlease = \"2s\"\n";

/// What all processes of the system are told.
struct Site<'s> {
    here: &'s Path,
    redis: RedisServer,
    postgres: PostgresServer,
    seaweed: Seaweed,
    events: String,
}

impl Site<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = command(self.here);
        command
            .args(words)
            .env("QUAYMASTER_STORE", self.redis.url())
            .env("UPLOAD_OBJECTS", "s3://quay/repository")
            .env("AWS_ENDPOINT_URL", format!("http://{}", self.seaweed.address()))
            .envs([("AWS_ALLOW_HTTP", "true"), ("AWS_REGION", "us-east-1")])
            .envs([("AWS_ACCESS_KEY_ID", "quay"), ("AWS_SECRET_ACCESS_KEY", crate::seaweed::SECRET)])
            .env("UPLOAD_DATABASE", self.postgres.url())
            .env("UPLOAD_EVENTS", &self.events)
            // The schema is one of the bundled ones.
            .env("QUAYMASTER_DEMO", "true");
        command
    }

    fn serve(&self, address: &str) -> Served {
        Served::spawn(&mut self.command(&["serve", "--listen", address]))
    }

    fn work(&self) -> Served {
        let saying = "quaymaster working on upload.documents (store: redis";
        Served::spawn_saying(&mut self.command(&["worker", "--upload", "documents"]), saying)
    }

    /// Both, and others in their place.
    fn kill(&self, served: Served, worker: Served) -> (Served, Served) {
        let address = served.address.clone();
        served.stop_by(Signal::KILL);
        worker.stop_by(Signal::KILL);
        (self.serve(&address), self.work())
    }
}

pub(crate) fn every_upload_is_one_event_whoever_is_killed(mut broker: impl Broker, kills: usize) {
    let begun = SystemTime::now();
    let folder = folder(&[("quaymaster.toml", SETTINGS)]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let site = Site {
        here: folder.path(),
        redis: RedisServer::start(RedisConfig::default().line("appendonly yes")),
        postgres: PostgresServer::start(),
        seaweed: runtime.block_on(Seaweed::start()),
        events: format!("kafka://{}?message.timeout.ms=1000", broker.address()),
    };
    // Two chunks and a bit of the next, all alike in every other file; one with nothing in it.
    let files = 2 + kills;
    let sizes: Vec<usize> = (0..files).map(|n| if n == 1 { 0 } else { 2 * CHUNK + n }).collect();
    for (n, size) in sizes.iter().enumerate() {
        let byte = |at: usize| if n % 2 == 0 { 7 } else { (at % 251) as u8 ^ (at >> 20) as u8 };
        std::fs::write(site.here.join(n.to_string()), (0..*size).map(byte).collect::<Vec<u8>>()).unwrap();
    }
    let address = free_address().to_string();
    let (mut served, mut worker) = (site.serve(&address), site.work());
    broker.go();
    let put = |n: usize| {
        let (name, server) = (n.to_string(), format!("http://{address}"));
        let words = [
            "upload",
            "put",
            "--json",
            &name,
            "--resource=documents",
            "--server",
            &server,
            "--chunk-bytes",
            "5242880",
        ];
        Started::spawn(&mut site.command(&words))
    };
    let mut sending: Vec<Started> = Vec::new();
    for n in 0..files {
        sending.push(put(n));
        if n >= 2 {
            until("a chunk comes", || (received(&served) > 0).then_some(()));
            (served, worker) = site.kill(served, worker);
        }
    }
    // Object, row and event of each are there; only that nobody could be told keeps them from being completed.
    let waiting = "select count(*) from quaymaster_outbox where published_ms is null";
    until("all events are kept", || (site.postgres.ask(waiting) == files.to_string()).then_some(()));
    assert!(sending.iter_mut().all(|sending| !sending.has_ended()), "nothing is COMPLETED before its event");
    broker.come_back();
    // Whoever is telling them now.
    (served, worker) = site.kill(served, worker);
    let mut ids = Vec::new();
    for (n, mut sending) in sending.into_iter().enumerate() {
        until("an upload is completed", || sending.has_ended().then_some(()));
        let sent = sending.end();
        assert_eq!(sent.code, 0, "{sent:?}");
        let done = &sent.json()["files"][0];
        let sha256 = Command::new("sha256sum").arg(site.here.join(n.to_string())).output().unwrap();
        let sha256 = String::from_utf8(sha256.stdout).unwrap();
        assert_eq!(done["sha256"].as_str(), sha256.split(' ').next(), "{done}");
        ids.push(done["upload_id"].as_str().unwrap().to_owned());
    }

    let told = read(&broker.address(), TOPIC);
    let wanted: BTreeSet<String> = ids.iter().map(|id| format!("{id}.completed")).collect();
    assert_eq!(
        told.keys().cloned().collect::<BTreeSet<_>>(),
        wanted,
        "one id for every upload, and no other"
    );
    for (id, size) in ids.iter().zip(&sizes) {
        let state = served.take_get(&format!("/v1/upload/documents/{id}"));
        assert_eq!(state["status"], json!("COMPLETED"), "{state}");
        let records = &told[&format!("{id}.completed")];
        check(&records[0], &state, *size as u64, begun);
        assert!(
            records.iter().all(|record| *record == records[0]),
            "a repetition says the same: {records:?}"
        );
    }
    let repeated: usize = told.values().map(|records| records.len() - 1).sum();
    println!("{files} uploads, {} kills of server and worker each, {repeated} events told again", kills + 1);

    let rows = site.postgres.ask("select count(*), sum(size) from nodes where s3_etag is not null");
    assert_eq!(rows, format!("{files}|{}", sizes.iter().sum::<usize>()));
    let chunks: (String, Vec<String>) =
        site.redis.command(&["SCAN", "0", "MATCH", "*:chunks:*", "COUNT", "1000000"]);
    assert_eq!(chunks, ("0".to_owned(), Vec::new()), "no bytes are left");
    let pending = runtime.block_on(async {
        let objects = Objects::open("s3://quay", &options(site.seaweed.address())).await.unwrap();
        objects.pending("", None).await.unwrap()
    });
    assert_eq!(pending.uploads, [], "no multipart upload is left");
    assert_eq!((worker.stop().code, served.stop().code), (0, 0));
    let well = said(&mut site.command(&["upload", "doctor"]));
    assert_eq!((well.code, well.out.as_str()), (0, "nothing is wrong\n"), "{well:?}");
}

/// How many chunks this process of the server has taken.
fn received(served: &Served) -> u64 {
    let family = "quaymaster_upload_chunks_total{upload=\"documents\",outcome=\"received\"} ";
    let metrics = served.ask("GET", "/metrics", "").1;
    metrics.lines().find_map(|line| line.strip_prefix(family)?.parse().ok()).unwrap_or(0)
}

fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    // Completions that were tried in vain for long are tried again after a minute.
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(so) = so() {
            return so;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
