//! The cases of runs find the defects they look for: each is put into the scripts once, and a case must fail.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;

use quaymaster::Engine;
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::{Case, run, run_edges, run_fields, run_unclaimed};
use quaymaster_testkit::saboteur::{Defect, is_found};
use quaymaster_testkit::servers::{Cluster, ClusterConfig};

const ONCE: &str = "every_item_is_counted_once_whoever_tells_of_it_and_however_often";
const HASH: &str = "a_run_is_the_documented_hash_that_other_programs_read";
const CALLS: &str = "the_calls_of_the_hour_are_the_limits_own";
const LIST: &str = "the_list_keeps_the_order_and_any_text_over_many_pieces";
const FOLLOWS: &str = "the_documented_list_follows_by_itself";
const RESUMED: &str = "a_run_that_there_is_is_gone_on_with_and_never_wiped";
const FINAL: &str = "the_end_is_final_and_late_workers_are_counted";
const TASKS: &str = "a_task_is_timed_by_the_stores_clock";
const FIELDS: &str = "a_run_takes_fields_of_the_callers_own_and_keeps_its_others";
const REMAINING: &str = "what_is_not_done_yet_is_told_so_that_nothing_is_fetched_twice";
const FAILURES: &str = "a_failure_is_listed_with_error_and_attempts_until_it_is_processed";
const PAGES: &str = "failures_are_found_by_hour_and_by_run_page_for_page";
const RETRY: &str = "a_failure_is_handed_to_one_caller_until_its_lease_ends";
const STALE: &str = "a_run_without_a_sign_of_life_is_stale_until_the_next_one";
const LISTED: &str = "runs_are_listed_by_last_activity_and_forgotten_with_their_state";
const ENDS: &str = "every_key_of_a_run_has_an_end";
const REPEATED: &str = "a_call_that_is_repeated_under_its_id_is_answered_the_same_and_done_once";
const FOREIGN: &str = "a_run_that_another_program_began_is_taken_over_with_its_items";
const HOUR: &str = "the_hour_is_the_stores_whatever_the_nodes_clock_says";
const COST: &str = "what_adding_an_item_costs_does_not_grow_with_the_run";

const NAMES: &str = "the_hash_has_the_names_of_the_schema_and_answers_have_their_own";
const KEPT: &str = "a_run_is_kept_as_long_as_its_start_said";
const UNCLAIMED: &str = "what_another_program_listed_as_failed_is_read_and_tried_again";
const NUMBERS: &str = "a_number_that_is_none_is_refused_by_name_and_bad_members_hide_nobody";

/// Script, what is replaced, by what, and the case that must notice.
const DEFECTS: &[Defect] = &[
    (
        "run.processed",
        "if redis.call(\"SADD\", keys[3], item) == 1 then",
        "if redis.call(\"SADD\", keys[3], item) then",
        ONCE,
    ),
    ("run.processed", "(bytes > 0 and \",\" or \"\")", "\"\"", LIST),
    ("run.processed", "json ~= \"\" and json or", "", LIST),
    ("run.processed", "tail .. text", "text", LIST),
    ("run.processed", "#tail + #text <= 4096", "true", COST),
    ("run.processed", "redis.call(\"HDEL\", keys[5], item) == 1", "false", FAILURES),
    (
        "run.processed",
        "if redis.call(\"SCARD\", keys[3]) == added then redis.call(\"PEXPIRE\", keys[3], run_ttl(keys, args)) end",
        "",
        ENDS,
    ),
    ("run.processed", "if not tail then redis.call(\"PEXPIRE\", keys[4], run_ttl(keys, args)) end", "", ENDS),
    (
        "run.processed",
        "if held[3] or since_us < 0 or since_us >= args[3] * 1000 then",
        "if false then",
        FOLLOWS,
    ),
    ("run.processed", "if held[1] ~= held[2] and", "if false and", FOLLOWS),
    ("run.failed", "if why == \"\" and held then", "if false then", FAILURES),
    (
        "run.failed",
        "if redis.call(\"HEXISTS\", keys[2], \"finished_us\") == 0 then run_hour",
        "if true then run_hour",
        CALLS,
    ),
    ("run.processed", "redis.call(\"GET\", request)", "false", REPEATED),
    (
        "run.start",
        "redis.call(\"HSETNX\", KEYS[1], \"status\", \"running\")",
        "redis.call(\"HSET\", KEYS[1], \"status\", \"running\")",
        FOREIGN,
    ),
    ("run.failed", "redis.call(\"HINCRBY\", known, item, 1)", "", UNCLAIMED),
    ("run.failed", "redis.call(\"PEXPIRE\", known, ARGV[11])", "", UNCLAIMED),
    ("run.take_over", "redis.call(\"SISMEMBER\", KEYS[3], item) == 0", "true", UNCLAIMED),
    ("run.take_over", "redis.call(\"HSET\", known, item, string.format(\"%.0f\", row[2]))", "", UNCLAIMED),
    ("run.take_over", "redis.call(\"ZADD\", KEYS[7], failed_ms, item)", "", UNCLAIMED),
    ("run.start", "redis.call(\"HSET\", KEYS[2], \"ttl_ms\", kept_ms)", "", KEPT),
    ("run.start", "redis.call(\"ZREM\", KEYS[at + 2], id)", "", KEPT),
    (
        "run.start",
        "redis.call(\"PEXPIRE\", keys[index], ttl_ms)",
        "redis.call(\"PEXPIRE\", keys[index], args[1])",
        KEPT,
    ),
    ("run.task_start", "\"PX\", run_ttl(KEYS, ARGV)", "\"PX\", ARGV[1]", KEPT),
    (
        "run.processed",
        "redis.call(\"PEXPIRE\", keys[3], run_ttl(keys, args))",
        "redis.call(\"PEXPIRE\", keys[3], args[1])",
        KEPT,
    ),
    ("run.finish", "args[pulse + 8], calls,", "\"api_calls_this_hour\", calls,", NAMES),
    ("run.show", "ARGV[ARGV[5] + 9]", "\"dockets_processed\"", NAMES),
    ("run.start", "redis.call(\"HGET\", KEYS[1], list_field)", "redis.call(\"HGET\", KEYS[1], \"x\")", NAMES),
    ("run.start", "redis.call(\"HDEL\", KEYS[2], \"finished_us\")", "", RESUMED),
    ("run.start", "redis.call(\"HDEL\", KEYS[2], \"rendered\")", "", RESUMED),
    ("run.start", "if text ~= \"[]\" and #text ~= read then return { \"foreign\", text } end", "", FOREIGN),
    (
        "run.start",
        "local start_us = redis.call(\"HGET\", KEYS[2], \"start_us\") or",
        "local start_us =",
        RESUMED,
    ),
    (
        "run.start",
        "redis.call(\"PEXPIRE\", keys[index], ttl_ms)",
        "redis.call(\"EXISTS\", keys[index])",
        HASH,
    ),
    ("run.start", "redis.call(\"GET\", request)", "false", REPEATED),
    ("run.start", "now_ms >= args[pulse + 2] + 0", "false", HOUR),
    ("run.start", "now_ms < args[pulse + 1] + 0", "false", HOUR),
    (
        "run.show",
        "string.match(redis.call(\"GET\", keys[counter]) or \"\", \"^%d+$\") or \"0\"",
        "\"0\"",
        CALLS,
    ),
    ("run.show", "if not run_over(KEYS) then", "if true then", CALLS),
    ("run.show", "if items == \"1\" and", "if false and", HASH),
    (
        "run.show",
        "local stale = not over and now_us - (meta[2] or \"0\") > stale_ms * 1000",
        "local stale = false",
        STALE,
    ),
    ("run.finish", "if held ~= status then return { \"ended\", held } end", "", FINAL),
    ("run.finish", "run_render(KEYS, ARGV[ARGV[5] + 9], now_us)", "", FOLLOWS),
    (
        "run.finish",
        "redis.call(\"HSET\", KEYS[2], \"finished_us\"",
        "redis.call(\"HSET\", KEYS[2], \"ended_us\"",
        FINAL,
    ),
    ("run.failed", "number_read(string.match(held, \"^(%d+) %d+ [01] \")) or 0", "1", FAILURES),
    ("run.failed", "if redis.call(\"SISMEMBER\", KEYS[3], item) == 1 then", "if false then", FAILURES),
    ("run.failed", "redis.call(\"LPUSH\", hour, item)", "redis.call(\"RPUSH\", hour, item)", FAILURES),
    ("run.failed", "redis.call(\"PEXPIRE\", hour, ARGV[11])", "", FAILURES),
    ("run.failed", "redis.call(\"ZADD\", KEYS[6], ms, item)", "", PAGES),
    ("run.failed", "redis.call(\"ZADD\", KEYS[7], ms, item)", "", RETRY),
    ("run.failed", "redis.call(\"GET\", request)", "false", REPEATED),
    ("run.failed", "run_indexed(keys[at], ms, args[pulse + 7])", "", LISTED),
    (
        "run.failures",
        "ARGV[2] == \"+inf\" and \"9007199254740992\" or ARGV[2]",
        "\"9007199254740992\"",
        PAGES,
    ),
    ("run.failures", "string.format(\"%.0f\", number_score(found[index + 1]))", "found[index + 1]", NUMBERS),
    (
        "run.processed",
        "if index ~= 3 and held[index] and not number_read(held[index]) then spoiled = keys[2] end",
        "",
        NUMBERS,
    ),
    ("run.task_finish", "if not number_read(start) or (", "if false and (", NUMBERS),
    ("run.retry", "redis.call(\"ZADD\", KEYS[7], until_ms, item)", "", RETRY),
    ("run.retry", "now_ms + lease_ms", "now_ms + 60 * lease_ms", RETRY),
    ("run.retry", "redis.call(\"GET\", request)", "nil", REPEATED),
    (
        "run.task_start",
        "local start = held and string.match(held, \"^(%d+) %-$\")",
        "local start = nil",
        TASKS,
    ),
    ("run.task_start", "string.match(held, \"^(%d+) %-$\")", "string.match(held, \"^(%d+) \")", TASKS),
    ("run.task_start", "redis.call(\"GET\", request)", "false", REPEATED),
    ("run.task_finish", "if took == \"-\" then", "if true then", TASKS),
    ("run.task_finish", "if text then return { \"elsewhere\", text } end", "", TASKS),
    ("run.update", "if total > max_fields then return { \"full\" } end", "", FIELDS),
    ("run.update", "if redis.call(\"HEXISTS\", KEYS[2], \"finished_us\") == 1 then", "if false then", FINAL),
    ("run.update", "redis.call(\"GET\", request)", "false", REPEATED),
    ("run.remaining", "== 0 then answer", "== 1 then answer", REMAINING),
    ("run.sweep", "redis.call(\"HSET\", KEYS[1], \"status\", \"stale\")", "", STALE),
    ("run.sweep", "redis.call(\"HSET\", KEYS[2], \"was\", status)", "", STALE),
    ("run.sweep", "elseif run_over(KEYS) then", "elseif false then", STALE),
    ("run.sweep", "redis.call(\"ZREM\", KEYS[at + 1], id)", "", STALE),
    ("run.sweep", "run_render(KEYS, list_field, now_us)", "", STALE),
    ("run.due", "redis.call(\"ZREM\", runs, id)", "", LISTED),
    ("run.settle", "redis.call(\"ZREM\", runs, id)", "", LISTED),
    ("run.name", "if held and held ~= taken then return { \"named\", held } end", "", REPEATED),
    ("run.adopt", "run_add(KEYS, ARGV, 8, tonumber(ARGV[7]), tonumber(ARGV[6]))", "0", FOREIGN),
];

/// Those of steps that only a cluster takes.
const STEPS: &[Defect] = &[
    ("run.hour", "redis.call(\"LPUSH\", failed, item)", "", FAILURES),
    ("run.hour", "redis.call(\"PEXPIRE\", failed, ttl_ms)", "", FAILURES),
    ("run.hour", "if ARGV[6] == \"1\" then", "if false then", REPEATED),
    ("run.hour", "if now_ms < start_ms or now_ms >= end_ms then", "if false then", HOUR),
    ("run.hour", "redis.call(\"HINCRBY\", known, item, 1)", "", UNCLAIMED),
    ("run.known", "redis.call(\"HSET\", known, ARGV[index], ARGV[index + 1])", "", UNCLAIMED),
    ("run.index", "redis.call(\"ZADD\", kept, ARGV[3], id)", "", KEPT),
    ("run.index", "redis.call(\"ZREM\", kept, id)", "", KEPT),
    ("run.index", "run_indexed(runs, now_ms, id)", "", LISTED),
    ("run.index", "run_indexed(live, now_ms, id)", "", STALE),
    ("run.settle", "if held[2] and", "if false and", STALE),
];

/// Where the cases are.
const CASES: &[&[Case]] = &[run::CASES, run_edges::CASES, run_fields::CASES, run_unclaimed::CASES];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_runs_is_found() {
    for defect in DEFECTS {
        let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.expect("a store");
        assert!(is_found(Arc::new(store), Arc::new(()), *defect, CASES).await, "not found: {defect:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_the_steps_on_a_cluster_is_found() {
    let cluster = Arc::new(Cluster::start(ClusterConfig::default()));
    let options = RedisOptions::from_url(&cluster.url()).expect("a good URL");
    let store: Arc<dyn Engine> = Arc::new(RedisStore::connect(options).await.expect("connect"));
    for defect in STEPS {
        assert!(is_found(store.clone(), cluster.clone(), *defect, CASES).await, "not found: {defect:?}");
    }
}
