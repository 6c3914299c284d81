//! The cases of stats find the defects they look for: each is put into the scripts once, and a case must fail.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use quaymaster::Engine;
use quaymaster_store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::{Case, Subject, stats};
use quaymaster_testkit::saboteur::{Defect, Saboteur, is_found};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

const ADDS_UP: &str = "what_instances_recorded_adds_up_under_the_documented_keys";
const ONCE: &str = "the_same_flush_or_request_counts_once";
const GAUGE: &str = "a_silent_process_leaves_the_gauge_and_the_most_starts_again_when_none_is_alive";
const CAP: &str = "endpoints_over_the_cap_are_counted_together_and_seen";
const LEAVE: &str = "instances_over_the_cap_are_counted_together_and_leave_after_a_day";
const SPEED: &str = "speed_is_that_of_a_second_all_have_flushed_and_the_most_is_kept";
const HOURS: &str = "hours_are_reported_apart_and_together";
const SPOILED: &str = "a_key_that_another_program_spoiled_stops_the_flush_whole_and_later_lets_it_through";
const SAMPLES: &str = "equal_times_in_one_millisecond_are_samples_of_their_own_and_only_the_last_are_kept";
const ENDS: &str = "every_key_but_the_counters_has_an_end";

const GAUGES: &str = "a_gauge_or_a_bucket_that_is_no_number_is_refused_by_name";

/// Script, what is replaced, by what, and the case that must notice.
const DEFECTS: &[Defect] = &[
    ("stats.flush", "redis.call(\"GET\", request)", "false", ONCE),
    ("stats.flush", "if kept then return { \"conflict\" } end", "", ONCE),
    (
        "stats.flush",
        "number_read(last) >= sequence",
        "number_read(last) >= 2 * sequence",
        "a_flush_sent_twice_counts_once",
    ),
    ("stats.flush", "redis.call(\"HSET\", flushes, process, sequence)", "", "a_flush_sent_twice_counts_once"),
    (
        "stats.flush",
        "redis.call(\"HGET\", KEYS[12], process)",
        "redis.call(\"HGET\", KEYS[12], string.sub(process, 14))",
        "a_flush_sent_twice_counts_once",
    ),
    (
        "stats.flush",
        "redis.call(\"HSET\", flushes, process, sequence)",
        "redis.call(\"HSET\", flushes, string.sub(process, 14), sequence)",
        "a_flush_sent_twice_counts_once",
    ),
    ("stats.flush", "if room < 0 then", "if false then", CAP),
    ("stats.flush", "places[index] == over_at and \"overflow\" or", "", CAP),
    ("stats.flush", "    else\n      key = keys[at]\n", "", LEAVE),
    (
        "stats.flush",
        "redis.call(\"ZREM\", beats, unpack(gone))",
        "redis.call(\"ZREM\", beats, \"-\") break",
        GAUGE,
    ),
    ("stats.flush", "total = total - (number_read(held or \"0\") or 0)", "", GAUGE),
    ("stats.flush", "redis.call(\"DEL\", keys[5], keys[7], keys[17])", "", GAUGE),
    (
        "stats.flush",
        "math.max(total - (number_read(redis.call(\"HGET\", connections, process) or \"0\") or 0), 0)",
        "total",
        GAUGE,
    ),
    ("stats.flush", "if most > tonumber(redis.call(\"GET\", keys[5]) or \"-1\") then", "do", GAUGE),
    ("stats.report", "current = current - (number_read(held or \"0\") or 0)", "", GAUGE),
    ("stats.report", "beats, \"(\" .. since,", "beats, \"-inf\",", GAUGE),
    ("stats.flush", "if busiest > tonumber(redis.call(\"GET\", keys[7]) or \"-1\") then", "do", SPEED),
    ("stats.flush", "now_s - 1 - tonumber(args[9])", "now_s - tonumber(args[9])", SPEED),
    ("stats.flush", "redis.call(\"HINCRBY\", keys[at + 6], \"us\", sum_us)", "", HOURS),
    ("stats.flush", "redis.call(\"HINCRBY\", keys[at + 6], \"errors\", errors)", "", HOURS),
    ("stats.flush", "math.min(86400000, hour_ms + 90000000 - now_ms)", "86400000 * 9", HOURS),
    ("stats.flush", "redis.call(\"ZREMRANGEBYRANK\", keys[at + 2], 0, -keep - 1)", "", SAMPLES),
    ("stats.flush", "redis.call(\"PEXPIRE\", seconds, 150000)", "", ENDS),
    ("stats.flush", "redis.call(\"PEXPIRE\", keys[index], 86400000)", "", ENDS),
    ("stats.flush", "redis.call(\"PEXPIRE\", flushes, 86400000)", "", ENDS),
    ("stats.flush", "redis.call(\"INCRBY\", keys[at + 4], count)", "", ADDS_UP),
    ("stats.flush", "redis.call(\"SADD\", KEYS[15]", "redis.call(\"SREM\", KEYS[15]", ADDS_UP),
    (
        "stats.flush",
        "local sum = string.format(\"%4s\", redis.call(\"HGET\", micros, name))",
        "local sum = string.format(\"%4.0f\", redis.call(\"HINCRBY\", micros, name, 0))",
        "a_sum_beyond_the_doubles_is_rendered_to_the_last_digit",
    ),
    (
        "stats.leave",
        "if last_ms and last_ms <= day_ago_ms then",
        "if true then",
        "an_instance_that_came_back_stays",
    ),
    ("stats.leave", "redis.call(\"DEL\", KEYS[index + 1])", "", LEAVE),
    ("stats.report", "if not current or not number_read(started_ms) then", "if false then", GAUGES),
    ("stats.flush", "if gauge[index] and not number_read(gauge[index]) then", "if false then", GAUGES),
    ("stats.flush", "if not stats_fields(keys[at + 5], buckets) then", "if false then", GAUGES),
];

/// Those that only show where a script that stops half-way leaves what it wrote.
const HALVES: &[Defect] = &[
    ("stats.flush", "if spoiled then return", "if false then return", SPOILED),
    ("stats.flush", "redis.call(\"ZCARD\", keys[at + 2])", "", SPOILED),
    ("stats.flush", "if not stats_fields(keys[at + 5], buckets) then", "if false then", SPOILED),
    ("stats.flush", "if sum and not stats_sound(sum) then", "if false then", SPOILED),
    ("stats.flush", "return #text <= 18 and (", "return (", SPOILED),
];

/// On a clock that the test holds: some of the cases look at more there.
async fn is_found_by_the_clock((script, old, new, name): Defect) -> bool {
    let case: &'static Case =
        stats::CASES.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no case {name}"));
    let clock = Arc::new(AtomicI64::new(1_794_699_030_000_000));
    let options = EmbeddedOptions { clock: Clock::Manual(clock.clone()), ..EmbeddedOptions::default() };
    let engine: Arc<dyn Engine> = Arc::new(EmbeddedStore::memory(options).await.expect("a store"));
    let saboteur = Arc::new(Saboteur::new(engine, script, old, new));
    let (prefix, keep) = (format!("{name}:"), Arc::new(()));
    let subject = Subject { name: "sabotaged", engine: saboteur.clone(), clock: Some(clock), prefix, keep };
    let failed = tokio::spawn(async move { (case.run)(&subject).await }).await.is_err();
    assert!(saboteur.changed() > 0, "{script} does not say {old:?} any more");
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_stats_is_found() {
    let mut missed = Vec::new();
    for defect in DEFECTS {
        if !is_found_by_the_clock(*defect).await {
            missed.push(defect);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_that_leaves_half_a_flush_is_found() {
    let server = Arc::new(RedisServer::start(RedisConfig::default()));
    let options = RedisOptions::from_url(&server.url()).expect("a good URL");
    let store: Arc<dyn Engine> = Arc::new(RedisStore::connect(options).await.expect("connect"));
    for defect in HALVES {
        let found = is_found(store.clone(), server.clone(), *defect, &[stats::CASES]).await;
        assert!(found, "not found: {defect:?}");
    }
}
