//! The guard's cases, and those of its parts, find the defects they look for: each is put into the scripts once, and a case must fail.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;

use quaymaster::Engine;
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::conformance::{Case, guard, guard_steps, idempotency, lock};
use quaymaster_testkit::saboteur::{Defect, is_found};
use quaymaster_testkit::servers::{Cluster, ClusterConfig};

/// Script, what is replaced, by what, and the case that must notice.
const DEFECTS: &[Defect] = &[
    (
        "guard.enter",
        "if said == \"held\" then return \"held\", left_ms end",
        "",
        "the_first_no_of_the_order_is_told_and_nothing_is_taken",
    ),
    (
        "guard.enter",
        "if said ~= \"free\" and said ~= \"ours\" then",
        "if said == \"mismatch\" then",
        "a_guard_takes_every_part_and_gives_back_what_is_leased",
    ),
    (
        "guard.enter",
        "if word == \"limited\" then reply[1] = \"limited\" end",
        "",
        "of_many_callers_as_many_enter_as_may",
    ),
    (
        "guard.enter",
        "if entered then",
        "if true then",
        "the_first_no_of_the_order_is_told_and_nothing_is_taken",
    ),
    (
        "guard.enter",
        "if entered and not counted then",
        "if not counted then",
        "a_guard_of_limits_alone_takes_all_or_none",
    ),
    (
        "guard.enter",
        "y, word == \"ours\", word == \"ours\" or",
        "y, false,",
        "a_call_that_the_engine_sends_again_by_itself_counts_once",
    ),
    (
        "guard.enter",
        "word == \"ours\" or ARGV[7] == \"1\"",
        "false",
        "a_guard_of_limits_alone_takes_all_or_none",
    ),
    (
        "guard.enter",
        "word == \"ours\" or ARGV[7] == \"1\"",
        "true",
        "an_enter_whose_leases_have_ended_is_a_new_one_and_counts",
    ),
    (
        "guard.enter",
        "if word == \"stale\" then return",
        "if word == \"never\" then return",
        "a_stale_bucket_is_rendered_again",
    ),
    (
        "guard.leave",
        "if redis.call(\"GET\", lock) ~= token then return \"lost\" end",
        "",
        "a_stale_token_leaves_nothing_behind_and_writes_nothing",
    ),
    ("guard.leave", "holder ~= token or", "", "a_stale_token_leaves_nothing_behind_and_writes_nothing"),
    ("guard.leave", "lease = kept[3]", "", "a_guard_of_a_lock_alone_is_a_lock"),
    (
        "guard.leave",
        "local op = \"leave:\" .. verb .. \":\" .. token",
        "local op = \"leave\"",
        "a_leave_under_an_id_of_another_lease_ends_its_own",
    ),
    (
        "guard.leave",
        "if x == enc and held == bytes then",
        "if true then",
        "a_leave_under_an_id_of_another_lease_ends_its_own",
    ),
    (
        "guard.leave",
        "if fence_ttl_ms ~= \"0\" then\n",
        "if claim == \"malformed\" then return { claim } end\nif fence_ttl_ms ~= \"0\" then\n",
        "a_leave_releases_the_lock_also_when_the_record_is_not_ours_to_read",
    ),
    (
        "lock.release",
        "local op = \"release:\" .. token\n",
        "local op = \"release:\" .. token\nlocal first = request and replay_read(request, op, \"^released$\")\nif first then return first end\n",
        "a_lease_that_comes_again_under_the_same_ids_is_given_back_again",
    ),
    (
        "idempotency.abandon",
        "local op = \"abandon:\" .. token\n",
        "local op = \"abandon\"\nlocal first = request and replay_read(request, op, \"^abandoned$\")\nif first then return first end\n",
        "an_abandon_under_an_id_of_another_claim_gives_its_own_claim_back",
    ),
    (
        "idempotency.finish",
        "if x == enc and held == bytes then",
        "if true then",
        "a_finish_says_whether_its_own_response_is_the_one_kept",
    ),
];

/// The same where the keys are parted.
const PARTED: &[Defect] = &[
    (
        "guard.back",
        "for index = 1, count do",
        "for index = 1, 0 do",
        "parts_in_different_slots_are_entered_in_steps_and_given_back",
    ),
    (
        "guard.back",
        "redis.call(\"DEL\", record)",
        "",
        "parts_in_different_slots_are_entered_in_steps_and_given_back",
    ),
    (
        "guard.back",
        "redis.call(\"DEL\", lock)",
        "",
        "parts_in_different_slots_are_entered_in_steps_and_given_back",
    ),
    (
        "guard.back",
        "if request then redis.call(\"DEL\", request) end",
        "",
        "a_request_that_was_given_back_is_counted_when_it_comes_again",
    ),
    (
        "guard.enter",
        "word == \"ours\" or ARGV[7] == \"1\"",
        "true",
        "a_request_id_that_comes_again_after_its_leave_is_counted_again",
    ),
    (
        "guard.look",
        "return holder == token and \"ours\" or \"held\", left_ms",
        "return \"free\", 0",
        "a_held_lock_is_told_before_a_full_limit_whatever_the_slots",
    ),
];

/// Where the cases are.
const CASES: &[&[Case]] = &[guard::CASES, guard_steps::CASES, lock::CASES, idempotency::CASES];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_entering_and_leaving_is_found() {
    for defect in DEFECTS {
        let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.expect("a store");
        assert!(is_found(Arc::new(store), Arc::new(()), *defect, CASES).await, "not found: {defect:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_giving_back_is_found() {
    let cluster = Arc::new(Cluster::start(ClusterConfig::default()));
    let options = RedisOptions::from_url(&cluster.url()).expect("a good URL");
    let store: Arc<dyn Engine> = Arc::new(RedisStore::connect(options).await.expect("connect"));
    for defect in PARTED {
        assert!(is_found(store.clone(), cluster.clone(), *defect, CASES).await, "not found: {defect:?}");
    }
}
