//! What is wrong with a key, by its name and what the store knows of it.
#![expect(clippy::unwrap_used, reason = "tests")]

use quaymaster_schema::{Kind, Schema, Source, load};
use quaymaster_store::KeyFacts;

use super::judge::{Verdict, can_err, judge};

const HOUR_MS: i64 = 3_600_000;
/// 2024-09-17 14:00 UTC.
const START_MS: i64 = 1_726_581_600_000;
const KEY: &[u8] = b"rate:2024-09-17_14";

fn schema() -> Schema {
    let text = r#"
        [limit.calls]
        key = "rate:{hour}"
        algorithm = "fixed_window"
        limit = 10
        window = "1h"
        ttl = "2h"

        [queue.jobs]

        [key.theirs]
        key = "theirs:{id}"
        type = "string"
        ttl = "1h"
    "#;
    load(&[Source { name: "test", text }], &|_| None).schema.unwrap()
}

fn facts(kind: &str, ttl_ms: Option<u64>) -> KeyFacts {
    KeyFacts { kind: kind.to_owned(), ttl_ms, bytes: None }
}

fn verdict(facts: &KeyFacts, now_ms: i64) -> Option<Verdict> {
    let schema = schema();
    let found = schema.explain(KEY).unwrap();
    assert_eq!(found.bucket.unwrap().start_ms, START_MS);
    judge(found.row, found.bucket, facts, now_ms)
}

#[test]
fn a_key_is_stale_on_the_millisecond_its_life_after_the_bucket_is_over() {
    let over_ms = START_MS + HOUR_MS + 2 * HOUR_MS;
    let living = facts("string", Some(1));
    assert_eq!(verdict(&living, over_ms - 1), None);
    assert_eq!(verdict(&living, over_ms), Some(Verdict::Stale { over_ms }));
    // One without a TTL is put right while it may live, and only then deleted.
    let immortal = facts("string", None);
    assert_eq!(verdict(&immortal, over_ms - 1), Some(Verdict::Immortal { ttl_ms: 2 * HOUR_MS }));
    assert_eq!(verdict(&immortal, over_ms), Some(Verdict::Stale { over_ms }));
}

#[test]
fn what_holds_something_else_is_nobodys_to_change() {
    for now_ms in [START_MS, START_MS + 100 * HOUR_MS] {
        assert_eq!(verdict(&facts("zset", None), now_ms), Some(Verdict::OtherType));
    }
}

#[test]
fn keys_that_may_live_for_ever_and_keys_of_others_are_not_asked_about() {
    let schema = schema();
    let row = |key: &[u8]| {
        let found = schema.explain(key).unwrap();
        can_err(found.resource.kind, found.row)
    };
    assert!(row(KEY));
    assert!(!row(b"jobs"));
    assert!(!row(b"theirs:1"));
    assert!(schema.resource(Kind::Key, "theirs").is_some());
}
