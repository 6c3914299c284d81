//! The cases of batches and events find the defects they look for: each is put into the scripts once, and a case must fail.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;

use quaymaster::Engine;
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::{Case, batch, event};
use quaymaster_testkit::saboteur::{Defect, is_found};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

const SIZES: &str = "a_size_or_a_start_that_is_no_number_is_refused_before_anything_is_added";

/// Script, what is replaced, by what, and the case that must notice.
const DEFECTS: &[Defect] = &[
    ("batch.add", "local size = number_read(count)", "local size = tonumber(count or \"\")", SIZES),
    ("batch.list", "if closes_ms < 0 or closes_ms >= 9007199254740992 then", "if false then", SIZES),
    ("batch.due", "if #answer - 2 < count then", "if false then", SIZES),
    ("batch.seal", "if id == \"\" or string.find(", "if false and string.find(", SIZES),
    (
        "batch.add",
        "if closes_ms > math.floor(now_us / 1000) then",
        "if true then",
        "a_batch_closes_when_its_window_or_its_silence_ends_and_not_before",
    ),
    (
        "batch.add",
        "math.min(started_ms + window_ms, now_ms + idle_ms)",
        "started_ms + window_ms",
        "a_batch_closes_when_its_window_or_its_silence_ends_and_not_before",
    ),
    (
        "batch.add",
        "redis.call(\"ZADD\", open, string.format(\"%.0f\", closes_ms), id)",
        "",
        "a_batch_whose_keys_expired_leaves_the_index",
    ),
    (
        "batch.add",
        "item_id ~= \"\" and redis.call(\"SISMEMBER\"",
        "false and redis.call(\"SISMEMBER\"",
        "an_id_is_added_once_to_a_batch_and_again_to_the_next",
    ),
    (
        "batch.add",
        "if length + 1 + #args[from + 3] <= tonumber(args[from + 8]) then",
        "if true then",
        "a_list_is_bounded_and_what_does_not_fit_begins_the_next_batch",
    ),
    (
        "batch.add",
        "(length > 2 and \",\" or \"\")",
        "\"\"",
        "a_batch_lies_under_the_documented_keys_and_becomes_the_documented_item",
    ),
    ("batch.add", "size >= max_items", "size > max_items", "the_last_item_closes_a_batch_at_once"),
    ("batch.add", "redis.call(\"GET\", request)", "false", "a_repeated_request_adds_and_closes_once"),
    (
        "batch.adopt",
        "redis.call(\"SET\", size, count, \"PX\", ttl_ms)",
        "",
        "a_batch_that_another_program_began_is_taken_over",
    ),
    (
        "batch.close",
        "if redis.call(\"GET\", current) == id then redis.call(\"DEL\", current) end",
        "",
        "a_batch_past_its_window_takes_no_more_though_its_queue_is_full",
    ),
    ("batch.seal", "redis.call(\"GET\", request)", "false", "a_repeated_request_adds_and_closes_once"),
    (
        "batch.close",
        "if word == \"full\" then",
        "if false then",
        "a_full_queue_keeps_its_batches_until_there_is_room",
    ),
    (
        "batch.close",
        "redis.call(\"PEXPIRE\", KEYS[index], ttl_ms)",
        "redis.call(\"EXISTS\", KEYS[index])",
        "a_full_queue_keeps_its_batches_until_there_is_room",
    ),
    (
        "batch.close",
        "redis.call(\"DEL\", KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8])",
        "",
        "a_batch_lies_under_the_documented_keys_and_becomes_the_documented_item",
    ),
    (
        "batch.close",
        "redis.call(\"ZREM\", open, id)",
        "",
        "racing_adders_closers_and_sweepers_put_every_item_into_exactly_one_batch",
    ),
    ("batch.forget", "redis.call(\"ZREM\", open, id)", "", "a_batch_whose_keys_expired_leaves_the_index"),
    ("event.publish", "redis.call(\"GET\", request)", "false", "a_repeated_request_is_published_once"),
    ("event.turn", "\"NX\", ", "", "of_any_number_of_nodes_one_publishes_the_status_of_an_interval"),
    (
        "event.turn",
        "until_ms > now_ms and until_ms <= now_ms + 86400000",
        "true",
        "a_status_tells_queue_depths_and_what_programs_reported",
    ),
    (
        "event.report",
        "if names > most then",
        "if false then",
        "what_is_reported_is_bounded_and_is_no_name_of_the_status_itself",
    ),
];

/// Those that only show where calls overlap.
const RACES: &[Defect] = &[
    (
        "batch.close",
        "if not closes_ms then return { \"gone\" } end",
        "if not closes_ms then closes_ms, length = 0, redis.call(\"STRLEN\", KEYS[4]) end",
        "racing_adders_closers_and_sweepers_put_every_item_into_exactly_one_batch",
    ),
    (
        "batch.add",
        "if id and id ~= guess then return \"elsewhere\", id end",
        "id = id and guess",
        "racing_adders_closers_and_sweepers_put_every_item_into_exactly_one_batch",
    ),
];

/// Where the cases are.
const CASES: &[&[Case]] = &[batch::CASES, event::CASES];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_batches_and_events_is_found() {
    for defect in DEFECTS {
        let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.expect("a store");
        assert!(is_found(Arc::new(store), Arc::new(()), *defect, CASES).await, "not found: {defect:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_that_needs_a_race_is_found() {
    let server = Arc::new(RedisServer::start(RedisConfig::default()));
    let options = RedisOptions::from_url(&server.url()).expect("a good URL");
    let store: Arc<dyn Engine> = Arc::new(RedisStore::connect(options).await.expect("connect"));
    for defect in RACES {
        assert!(is_found(store.clone(), server.clone(), *defect, CASES).await, "not found: {defect:?}");
    }
}
