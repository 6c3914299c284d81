//! The queue's cases find the defects they look for: each is put into the scripts once, and a case must fail.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;

use quaymaster::Engine;
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::{
    Case, foreign, queue, queue_edges, queue_lease, queue_request, queue_scores,
};
use quaymaster_testkit::saboteur::{Defect, is_found};
use quaymaster_testkit::servers::{Binary, RedisConfig, RedisServer};

const TYPES: &str = "a_key_of_another_type_is_told_and_nothing_is_changed";
const FITS: &str = "if bounded and max_size > 0 and length + before + count > max_size then";
const OURS: &str = "string.sub(record, 1, #prefix) == prefix";
const ENDED: &str = "a_lease_that_ended_is_lost_and_the_job_comes_again_with_the_next_attempt";
const AGAIN: &str = "a_repeated_request_gets_the_same_answer";
const POISON: &str = "a_poison_job_whose_workers_all_die_ends_as_a_dead_letter";
const LARGE: &str = "large_jobs_are_handed_out_a_few_at_a_time_and_in_order";
const FOLLOWS: &str = "what_follows_from_an_ack_happens_with_it";
const BATCHES: &str = "items_go_into_their_batch_with_the_ack";
const UNUSED: &str = "a_job_is_never_given_the_number_of_another";

const PUSHING: &[Defect] = &[
    (
        "queue.push",
        FITS,
        "if false then",
        "a_full_queue_that_rejects_adds_nothing_of_a_push_that_does_not_fit_whole",
    ),
    (
        "queue.push",
        "list, length, bounded = keys[at + 6], redis.call(\"ZCARD\", keys[at + 6]), true",
        "bounded = false",
        "a_full_queue_that_rejects_adds_nothing_of_a_push_that_does_not_fit_whole",
    ),
    ("queue.push", "if seen == \"duplicate\" then known = true end", "", "dedupe_and_push_are_one_step"),
    (
        "queue.push",
        "local known = id and redis.call(\"EXISTS\", id) == 1",
        "local known = false",
        "an_id_that_was_pushed_is_not_pushed_again",
    ),
    (
        "queue.push",
        "\"LEFT\", \"RIGHT\")",
        "\"RIGHT\", \"RIGHT\")",
        "a_full_queue_moves_its_oldest_to_the_overflow_list",
    ),
    ("queue.push", "over, -1)", "0, -over - 1)", "a_full_queue_may_drop_its_oldest"),
    (
        "queue.push",
        "9007199254740991 - (number",
        "(number",
        "the_highest_priority_comes_first_and_ties_oldest_first",
    ),
    (
        "queue.push",
        "redis.call(\"ZPOPMIN\", items)",
        "redis.call(\"ZPOPMAX\", items)",
        "a_full_priority_queue_sheds_what_would_come_last",
    ),
    ("queue.push", "if request then replay_keep_all", "if false then replay_keep_all", AGAIN),
    (
        "queue.push",
        "if now_ms - stamped < 1000 then return stamped end",
        "if stamped then return stamped end",
        "the_oldest_age_is_that_of_what_waits_and_unknown_for_foreign_items",
    ),
];

const CLAIMING: &[Defect] = &[
    ("queue.claim", "if dying == 0 then attempt = attempt + 1 end", "", POISON),
    ("queue.claim", "attempt >= max_attempts and 1 or 0", "0", POISON),
    ("queue.claim", "if failed_ms == \"0\" then failed_ms = ended end", "", POISON),
    (
        "queue.claim",
        "if switches[1] == \"1\" then",
        "if false then",
        "a_paused_queue_takes_pushes_and_hands_out_nothing",
    ),
    (
        "queue.claim",
        "ids, ends, records = queue_weigh(keys[at], ids, ends, records, count)",
        "ids = ids",
        "a_job_that_comes_again_keeps_its_priority",
    ),
    (
        "queue.claim",
        "local most = count\n",
        "local most = 1\n",
        "a_batch_that_expired_comes_again_in_its_order",
    ),
    ("queue.claim", "for back = #got, index, -1 do", "for back = index, #got do", LARGE),
    ("queue.claim", "if bytes >= budget then", "if false then", LARGE),
    (
        "queue.claim",
        "redis.call(\"DEL\", keys[at + 2])",
        "",
        "the_oldest_age_is_that_of_what_waits_and_unknown_for_foreign_items",
    ),
    ("queue.claim", "if request and count > 0 then", "if false then", AGAIN),
    ("queue.claim", "if holder == token and", "if", "a_repeated_claim_does_not_get_what_somebody_else_holds"),
    (
        "queue.claim",
        "elseif #payload > largest then",
        "elseif false then",
        "an_item_too_large_to_deliver_goes_to_the_overflow_list",
    ),
    ("queue.claim", "if held then last = first + index - 1 end", "", UNUSED),
    ("queue.push", "if held then last = first + index - 1 end", "", UNUSED),
    (
        "queue.push",
        "if number + count > 9e15 then return nil end",
        "",
        "the_look_for_numbers_ends_where_numbers_do",
    ),
    (
        "queue.sweep",
        "if attempt < max_attempts then",
        "if true then",
        "a_sweep_buries_and_returns_without_a_claim",
    ),
];

const ANSWERING: &[Defect] = &[
    ("queue.ack", OURS, "true", ENDED),
    ("queue.ack", "if not ended or", "if true or", ENDED),
    (
        "queue.ack",
        "acked = acked + redis.call(\"HDEL\"",
        "acked = acked + #ours redis.call(\"HDEL\"",
        "a_job_is_acked_once_and_by_its_holder",
    ),
    ("queue.ack", "redis.call(\"HDEL\", jobs, unpack(ours))", "", "nothing_is_left_of_jobs_that_are_done"),
    ("queue.ack", "redis.call(\"ZREM\", leases, unpack(ours))", "", "nothing_is_left_of_jobs_that_are_done"),
    (
        "queue.ack.claim",
        "if request and (reply[2] > 0 or count > 0) then",
        "if false then",
        "ack_and_claim_are_one_round_trip",
    ),
    ("queue.nack", OURS, "true", ENDED),
    (
        "queue.nack",
        "if uncount == 0 and failed_ms == \"0\" then failed_ms = now end",
        "",
        "the_last_failure_makes_the_documented_dead_letter",
    ),
    ("queue.nack", "if request then replay_keep_all", "if false then replay_keep_all", AGAIN),
    ("queue.bury", "replay_keep_all(request, \"nack\", ARGV[1], { \"dead\", 0 })", "ours = nil", AGAIN),
    (
        "queue.bury",
        "if request and ARGV[1] == \"0\" then redis.call(\"DEL\", request) end",
        "",
        "a_foreign_item_that_no_worker_can_be_given_is_a_dead_letter_at_once",
    ),
    ("queue.extend", OURS, "true", ENDED),
    ("queue.release", OURS, "true", ENDED),
    ("queue.release", "attempt - uncount", "attempt", "what_is_released_comes_next_and_was_not_tried"),
    (
        "queue.redrive",
        "redis.call(\"LSET\", dead, ARGV[at], stone)",
        "",
        "dead_letters_are_paged_redriven_and_purged",
    ),
    (
        "queue.redrive",
        "redis.call(\"LREM\", dead, moved, stone)",
        "",
        "dead_letters_are_paged_redriven_and_purged",
    ),
    ("queue.redrive", FITS, "if false then", "letters_that_are_not_ours_are_left_where_they_are"),
];

const FOLLOWING: &[Defect] = &[
    ("queue.ack.then", "if ours < given then", "if false then", "nothing_follows_from_a_lease_that_is_lost"),
    (
        "queue.ack.then",
        "elseif refused > 0 then",
        "elseif false then",
        "a_full_queue_refuses_the_ack_and_the_lease_stays",
    ),
    (
        "queue.ack.then",
        "adding[list] = before + count",
        "",
        "a_full_queue_refuses_the_ack_and_the_lease_stays",
    ),
    (
        "queue.ack.then",
        "queue_fits(keys, at, words, first, {}, now_us, numbers[part])",
        "queue_fits(keys, at, words, first, {}, now_us)",
        "what_follows_from_an_ack_gets_its_numbers_before_anything_is_written",
    ),
    ("queue.ack.then", "if request and reply[1] == \"acked\" then", "if false then", FOLLOWS),
    ("queue.ack.then", "redis.pcall(\"PUBLISH\", messages[at], messages[at + 1])", "", FOLLOWS),
    ("queue.ack.then", "if word == \"elsewhere\" and begun[id] then", "if false then", BATCHES),
    ("queue.ack.then", "if word == \"duplicate\" then return", "if false then return", BATCHES),
];

const SCORES: &[Defect] = &[
    ("queue.range", "\"(\" .. min", "min", "a_range_shows_scores_and_items_lowest_first_and_both_ends_count"),
    (
        "queue.range",
        "if bytes >= ARGV[5] + 0 then break end",
        "",
        "a_range_of_large_items_ends_early_and_pages_meet",
    ),
    ("queue.trim", "\"(\" .. min", "min", "a_trim_removes_what_is_between_and_nothing_else"),
    ("queue.trim", "count + more", "count", "a_trim_removes_what_is_between_and_nothing_else"),
];

/// Only on a store that does not undo what a failing script has done.
const TYPED: &[Defect] = &[
    ("queue.claim", "redis.call(\"HLEN\", keys[at + 5])", "", TYPES),
    ("queue.push", "if words[from + 2] == \"dlq\" then redis.call(\"LLEN\", keys[at + 3]) end", "", TYPES),
];

/// Where the cases are.
const CASES: &[&[Case]] = &[
    queue::CASES,
    queue_edges::CASES,
    queue_lease::CASES,
    queue_request::CASES,
    queue_scores::CASES,
    foreign::CASES,
];

async fn all_found(defects: &[Defect]) {
    let mut missed = Vec::new();
    for defect in defects {
        let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.expect("a store");
        if !is_found(Arc::new(store), Arc::new(()), *defect, CASES).await {
            missed.push(defect);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_pushing_is_found() {
    all_found(PUSHING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_claiming_is_found() {
    all_found(CLAIMING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_answering_a_lease_is_found() {
    all_found(ANSWERING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_what_follows_is_found() {
    all_found(FOLLOWING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_scores_is_found() {
    all_found(SCORES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_before_a_check_is_found() {
    let server = Arc::new(RedisServer::start(RedisConfig::of(Binary::Redis7)));
    let options = RedisOptions::from_url(&server.url()).expect("a good URL");
    let store: Arc<dyn Engine> = Arc::new(RedisStore::connect(options).await.expect("connect"));
    let mut missed = Vec::new();
    for defect in TYPED {
        if !is_found(store.clone(), server.clone(), *defect, CASES).await {
            missed.push(defect);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
