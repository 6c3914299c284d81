//! The cases of `clean` and `respell` find the defects they look for: each is put into the scripts once, and a case must fail.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;

use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_testkit::conformance::{clean, respell};
use quaymaster_testkit::saboteur::{Defect, is_found};

const CHANGED: &str = "what_somebody_changed_since_it_was_looked_at_is_left_alone";

const NUMBERS: &str = "numbers_that_no_call_can_go_on_from_are_taken_away_and_fences_only_by_name";

/// Script, what is replaced, by what, and the case that must notice.
const DEFECTS: &[Defect] = &[
    ("clean.remove", "redis.call(\"TYPE\", key).ok ~= holds", "false", CHANGED),
    ("clean.remove", "< over_ms", "< 0", "a_node_with_a_wrong_clock_removes_nothing"),
    ("clean.remove", "redis.call(\"DEL\", key)", "", "a_bucket_long_over_is_removed_and_only_when_told"),
    ("clean.heal", "redis.call(\"TYPE\", key).ok ~= holds", "false", CHANGED),
    ("clean.heal", "redis.call(\"PTTL\", key) ~= -1", "false", CHANGED),
    (
        "clean.heal",
        "redis.call(\"PEXPIRE\", key, ttl_ms)",
        "redis.call(\"DEL\", key)",
        "a_key_without_its_end_is_given_it_and_keeps_its_value",
    ),
    ("clean.reset", "(whole and \"string\" or \"hash\")", "\"none\"", NUMBERS),
    ("clean.reset", "< 8.9999e15", "< 9e15", NUMBERS),
    ("clean.reset", "number_read(held) or 9e15", "number_read(held) or 0", NUMBERS),
    ("clean.reset", "mode == \"look\"", "false", NUMBERS),
    ("clean.reset", "redis.call(\"HDEL\", key, field)", "redis.call(\"DEL\", key)", NUMBERS),
    ("clean.prune", "== ARGV[at + 1]", "~= ARGV[at]", CHANGED),
    (
        "clean.members",
        "\"ZRANGE\", index, offset,",
        "\"ZRANGE\", index, offset + 1,",
        "an_index_forgets_what_is_gone",
    ),
    ("respell.rename", "there == 1", "there == 2", "nothing_is_overwritten_by_a_new_name"),
    (
        "respell.rename",
        "redis.call(\"RENAME\", old, new)",
        "redis.call(\"DEL\", old)",
        "old_names_are_shown_first_renamed_when_told_and_work_goes_on",
    ),
    (
        "respell.rename",
        "redis.call(\"RENAME\", old, new)",
        "redis.call(\"SET\", new, redis.call(\"GET\", old)) redis.call(\"DEL\", old)",
        "a_run_that_was_stopped_is_finished_by_the_next",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_clean_is_found() {
    for defect in DEFECTS {
        let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.expect("a store");
        let found = is_found(Arc::new(store), Arc::new(()), *defect, &[clean::CASES, respell::CASES]).await;
        assert!(found, "not found: {defect:?}");
    }
}
