//! Settings of Redis, workers, and what is measured.

use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_testkit::stage::Stage;

use super::s3::S3;
use super::{FIRST, call_off, file, key, send, short, waits, whole};

fn l434_an_evicting_store_is_refused(s: &Stage) {
    s.redis_line("maxmemory-policy allkeys-lru");
    std::fs::write(s.folder().join("a.txt"), "abc").unwrap();
    let put = s.cli(&["upload", "put", "a.txt", "--json"]);
    assert_eq!(put.code, 3, "{put:?}");
    assert!(put.err.contains("allkeys-lru") && put.err.contains("upload.documents"), "{put:?}");
    // As `serve` would say.
    let health = s.cli(&["health"]);
    assert_eq!(health.code, 3, "{health:?}");
    assert_eq!(s.raw::<i64>(&["DBSIZE"]), 0, "nothing was begun");
    let accepted = s.cli(&["upload", "put", "a.txt", "--json", "--accept-eviction"]);
    assert_eq!(accepted.code, 0, "{accepted:?}");
}

fn l439_chunks_may_have_a_redis_of_their_own(s: &Stage) {
    let own = RedisServer::start(RedisConfig::default());
    let topic = "topic = \"repository.uploads.completed\"";
    s.amend("uploads", topic, &format!("{topic}\nchunks = \"{}\"", own.url()));
    let _s3 = S3::failing(s);
    let id = file(s);
    send(s, &id, 0, b"binary", true);
    waits(s, &id, FIRST);
    let there: Vec<String> = own.command(&["KEYS", "*"]);
    assert_eq!(there.len(), 1, "the bytes and nothing else: {there:?}");
    assert_eq!(own.command::<String>(&["GET", &there[0]]), "binary");
    let left: i64 = own.command(&["TTL", &there[0]]);
    assert!((3000..=3600).contains(&left), "{} lives for {left} s", there[0]);
    assert_eq!(s.keys(&key(&id, "chunks:*")), [].into());
    assert_eq!(s.keys(&key(&id, "state")).len(), 1, "what coordinates stays where it is");
}

fn l521_the_documented_server_settings_start(s: &Stage) {
    for line in [
        "maxmemory 16gb",
        "save 900 1",
        "save 300 10",
        "save 60 10000",
        "client-output-buffer-limit pubsub 32mb 8mb 60",
        "tcp-backlog 511",
        "timeout 300",
    ] {
        s.redis_line(line);
    }
    whole(s, &["whole"]);
    let log = s.log();
    assert!(log.contains("set appendonly yes"), "a crash forgets: {log}");
    for unasked in ["client-output-buffer-limit", "timeout"] {
        assert!(!log.contains(unasked), "{log}");
    }
}

fn l542_workers_are_a_variable(s: &Stage) {
    let s3 = S3::silent(s);
    let begin = |count: usize| (0..count).for_each(|_| drop(send(s, &file(s), 0, b"binary", true)));
    // The document's twenty.
    begin(22);
    s.until("twenty are sent", || s3.parts().len() == 20);
    begin(1);
    assert_eq!(s3.parts().len(), 20);
    s.kill();
    s.var("UPLOAD_WORKERS", "2");
    let before = s3.parts().len();
    begin(3);
    s.until("two are sent", || s3.parts().len() == before + 2);
    begin(1);
    assert_eq!(s3.parts().len(), before + 2);
    s.kill();
    s.var("UPLOAD_WORKERS", "many");
    let refused = s.cli(&["check"]);
    assert!(refused.code == 1 && refused.out.contains("UPLOAD_WORKERS"), "{refused:?}");
}

fn l553_chunks_queued_are_counted(s: &Stage) {
    let _s3 = S3::failing(s);
    let queued = || s.metric("quaymaster_chunks_queued{upload=\"documents\"}");
    let ids = [file(s), file(s), file(s)];
    s.until("keys are no chunks", || queued() == Some(0.0));
    for (n, id) in (1..).zip(&ids) {
        send(s, id, 0, b"binary", true);
        s.until("it is counted", || queued() == Some(f64::from(n)));
    }
    call_off(s, &ids[1]);
    s.until("two are left", || queued() == Some(2.0));
}

/// A histogram of the document has counted so many.
fn counted(s: &Stage, family: &str, wanted: f64) {
    let text = || s.get("/metrics").text();
    assert!(text().contains(&format!("# TYPE {family} histogram")), "{}", text());
    let of = |what: &str| s.metric(&format!("{family}_{what}"));
    s.until(family, || of("count{upload=\"documents\"}") == Some(wanted));
    assert_eq!(of("bucket{upload=\"documents\",le=\"+Inf\"}"), Some(wanted), "{}", text());
    assert!(of("sum{upload=\"documents\"}").is_some_and(|sum| sum > 0.0), "{}", text());
}

fn l554_chunk_latency_is_a_histogram(s: &Stage) {
    short(s);
    let id = file(s);
    counted_none(s, "quaymaster_upload_chunk_latency_seconds");
    for n in 0..3 {
        send(s, &id, n, b"chunk", false);
    }
    counted(s, "quaymaster_upload_chunk_latency_seconds", 3.0);
}

fn counted_none(s: &Stage, family: &str) {
    let count = s.metric(&format!("{family}_count{{upload=\"documents\"}}"));
    assert!(count.is_none_or(|count| count < 1.0), "{count:?}");
}

fn l555_shipping_latency_is_a_histogram(s: &Stage) {
    short(s);
    let id = file(s);
    counted_none(s, "quaymaster_s3_upload_latency_seconds");
    for n in 0..2 {
        send(s, &id, n, b"chunk", false);
    }
    super::until_durable(s, &id, 2);
    counted(s, "quaymaster_s3_upload_latency_seconds", 2.0);
}

fn l556_completion_latency_is_a_histogram(s: &Stage) {
    short(s);
    let id = file(s);
    send(s, &id, 0, b"first", false);
    super::until_durable(s, &id, 1);
    counted_none(s, "quaymaster_upload_completion_latency_seconds");
    // From the first chunk, whenever the last one comes.
    s.pass(30_000);
    send(s, &id, 1, b"last", true);
    counted(s, "quaymaster_upload_completion_latency_seconds", 1.0);
    let sum = s.metric("quaymaster_upload_completion_latency_seconds_sum{upload=\"documents\"}").unwrap();
    assert!((30.0..120.0).contains(&sum), "{sum} s");
}

cases! {
    l434_an_evicting_store_is_refused
    l439_chunks_may_have_a_redis_of_their_own
    l521_the_documented_server_settings_start
    l542_workers_are_a_variable
    l553_chunks_queued_are_counted
    l554_chunk_latency_is_a_histogram
    l555_shipping_latency_is_a_histogram
    l556_completion_latency_is_a_histogram
}
