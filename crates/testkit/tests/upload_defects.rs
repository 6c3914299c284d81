//! The cases of uploads find the defects they look for: each is put into the scripts once, and a case must fail.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

use std::sync::Arc;

use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster_testkit::conformance::{Case, upload, upload_life, upload_tell};
use quaymaster_testkit::saboteur::{Defect, is_found};

const ONCE: &str = "a_chunk_is_taken_once_and_other_bytes_under_its_number_never";
const DOCUMENTED: &str = "an_upload_lies_under_the_documented_keys_and_tells_the_documented_messages";
const EQUAL: &str = "identical_chunks_in_any_order_are_parts_of_their_own";
const NO_CHUNK: &str = "what_cannot_be_a_chunk_of_the_upload_is_refused_and_changes_nothing";
const LATE_LAST: &str = "an_empty_file_and_a_last_chunk_found_out_late_are_complete";
const ELSEWHERE: &str = "bytes_that_lie_elsewhere_are_found_by_the_name_they_were_given";
const LEASED: &str = "a_chunk_belongs_to_one_worker_until_its_lease_ends";
const EXTENDED: &str = "a_lease_that_is_extended_goes_on_and_keeps_the_bytes";
const AGAIN: &str = "a_chunk_that_failed_comes_again_later_and_a_released_one_at_once";
const GONE: &str = "bytes_that_are_gone_are_asked_for_again_and_nothing_else_is";
const BOUND: &str = "bytes_in_flight_never_exceed_their_bound_and_come_back";
const RESERVED: &str = "a_reservation_becomes_its_chunk_and_ends_when_that_is_durable";
const NAMED: &str = "what_a_dead_node_had_on_its_way_is_named_once";
const TURNS: &str = "uploads_are_claimed_from_in_turn";
const QUICK: &str = "a_chunk_that_is_durable_before_its_sender_hears_of_it_leaves_no_debt";
const RESTING: &str = "a_chunk_that_comes_while_its_upload_is_put_to_rest_is_found_at_once";
const STATUSES: &str = "a_status_changes_only_as_it_may";
const ABORTED: &str = "an_aborted_upload_stays_so_and_leaves_nothing";
const DEADLINE: &str = "an_upload_past_its_deadline_takes_nothing_and_is_found_by_the_sweep";
const RESTORED: &str = "a_lost_state_is_made_again_from_the_ledger";
const PROGRESS: &str = "progress_is_a_snapshot_and_then_what_changes";
const CRASHED: &str = "what_a_crash_left_between_two_steps_is_put_right_by_the_sweep";
const TWICE: &str = "every_step_may_be_sent_twice";
const NOTED: &str = "why_a_completion_waits_is_shown_while_it_waits_and_only_then";
const FOLLOWED: &str = "a_follower_hears_why_an_upload_failed_and_that_nothing_follows_one_that_was_given_up";
const TYPES: &str = "a_key_of_another_type_stops_a_step_before_it_changes_anything";

const NUMBERS: &str = "a_number_that_is_none_stops_a_step_before_it_changes_anything";

/// Script, what is replaced, by what, and the case that must notice.
#[rustfmt::skip]
const DEFECTS: &[Defect] = &[
    ("upload.accept", "if held and (held ~= digest or held_size ~= size) then", "if false then", ONCE),
    ("upload.accept", "mark == \"r\" or mark == \"d\"", "mark == \"r\"", ONCE),
    ("upload.accept", "number + 1 ~= total", "false", NO_CHUNK),
    ("upload.accept", "number + 1 < seen", "false", NO_CHUNK),
    ("upload.accept", "total > 0 and number >= total", "false", NO_CHUNK),
    ("upload.accept", "if bytes > expected then", "if false then", NO_CHUNK),
    ("upload.accept", "received >= total and bytes < expected", "false", NO_CHUNK),
    ("upload.accept", "if wanted and length ~= size then", "if false then", NO_CHUNK),
    ("upload.accept", "if ends then", "if ends and not known then", LATE_LAST),
    ("upload.accept", "attempt == ARGV[11] or", "", TWICE),
    ("upload.accept", "place ~= \"store\" and held_place == place", "false", ELSEWHERE),
    ("upload.accept", "mark == \"r\" and held_place == \"store\" and redis.call(\"EXISTS\", chunk) == 0", "false", GONE),
    ("upload.accept", "redis.call(\"PEXPIRE\", chunk, chunk_ttl_ms)", "", DOCUMENTED),
    ("upload.accept", "upload_more(own, \"bytes_received\", size)", "", NO_CHUNK),
    ("upload.accept", "<= now_ms", "< 0", DEADLINE),
    ("upload.accept", "(late or not open) and not (known and all_here)", "(late or not open) and not known", ABORTED),
    ("upload.accept", "redis.call(\"ZCARD\", own[7])", "", TYPES),
    ("upload.claim", "{ \"-inf\", string.format(\"%.0f\", now_ms) }", "{ \"-inf\", \"+inf\" }", LEASED),
    ("upload.claim", "attempts + 1, token", "attempts, token", LEASED),
    ("upload.claim", "local got = redis.call(\"GET\", claim)", "local got = false", TWICE),
    ("upload.claim", "facts[1] ~= \"PENDING\" and facts[1] ~= \"UPLOADING\"", "false", ABORTED),
    ("upload.extend", "redis.call(\"PEXPIRE\", KEYS[9 + (at - 4) / 2], ARGV[3])", "", EXTENDED),
    ("upload.extend", "redis.call(\"ZADD\", KEYS[5], \"XX\", ends, ARGV[at])", "", EXTENDED),
    ("upload.extend", "holder == token and token ~= \"-\"", "true", LEASED),
    ("upload.shipped", "holder == token and token ~= \"-\"", "true", LEASED),
    ("upload.failed", "holder == token and token ~= \"-\"", "true", LEASED),
    ("upload.failed", "now_ms + math.max(0, delay_ms)", "now_ms", AGAIN),
    ("upload.failed", "redis.call(\"HSET\", KEYS[1], \"status\", \"FAILED\"", "redis.call(\"HSET\", KEYS[1], \"status\", \"UPLOADING\"", AGAIN),
    ("upload.release", "math.max(0, attempts - 1)", "attempts", AGAIN),
    ("upload.release", "if given then", "if false then", AGAIN),
    ("upload.missing", "upload_more(own, \"bytes_received\", -size)", "", GONE),
    ("upload.missing", "if mark == \"m\" then", "if false then", GONE),
    ("upload.shipped", "redis.call(\"DEL\", KEYS[9])", "", DOCUMENTED),
    ("upload.shipped", "\"%.0f:%s\", number + 1, etag", "\"%s\", etag", EQUAL),
    ("upload.shipped", "durable >= total", "received >= total", DOCUMENTED),
    ("upload.verify", "not here and not upload_held(KEYS, number, now_ms)", "false", GONE),
    ("upload.admit", "total - held + bytes > most", "total > most", BOUND),
    ("upload.admit", "total - held + bytes > most", "total + bytes > most", BOUND),
    ("upload.admit", "flight_prune(names, ends, sum, now_ms, 100)", "", BOUND),
    ("upload.renew", "if held == 1 then", "if true then held = 1", BOUND),
    ("upload.back", "redis.call(\"HDEL\", names, name)", "", BOUND),
    ("upload.arrive", "if back ~= \"\" then", "if false then", RESERVED),
    ("upload.arrive", "redis.call(\"ZADD\", ready, string.format(\"%.0f\", due_us), id)", "", DOCUMENTED),
    ("upload.arrive", "bytes, \" c\",", "bytes, \"\",", CRASHED),
    ("upload.arrive", "if held then flight_put", "if true then flight_put", QUICK),
    ("upload.rest", "~= score then return", "== 0 then return", RESTING),
    ("upload.pick", "redis.call(\"ZADD\", ready, score, first[1])", "", TURNS),
    ("upload.move", "if needs == \"all\" then", "if false then", STATUSES),
    ("upload.move", "not string.find(from, \",\" .. status .. \",\", 1, true)", "false", STATUSES),
    ("upload.move", "if gone or", "if", ABORTED),
    ("upload.move", "redis.call(\"DEL\", KEYS[6])", "", ABORTED),
    ("upload.move", "redis.call(\"HDEL\", KEYS[1], \"error_message\")", "", NOTED),
    ("upload.move", "work[3] == \"1\" and", "false and", FOLLOWED),
    ("upload.move", ".. why .. \"}\"", ".. \"}\"", FOLLOWED),
    ("upload.note", "if status ~= \"COMPLETING\" then", "if false then", NOTED),
    ("upload.note", "or reason == facts[2]", "", NOTED),
    ("upload.note", "or redis.call(\"EXISTS\", KEYS[2]) == 0", "", NOTED),
    ("upload.note", "reason == \"\" or", "", NOTED),
    ("upload.note", "ttl_ms and 8 or 0", "8", NOTED),
    ("upload.note", "'[%c\"\\\\]'", "'[%c\"]'", NOTED),
    ("upload.status", "for at = 1, 6 do", "for at = 1, 0 do", DOCUMENTED),
    ("upload.reopen", "redis.call(\"ZREMRANGEBYSCORE\", own[7], number, number)", "", STATUSES),
    ("upload.reopen", "redis.call(\"DEL\", KEYS[6])", "", AGAIN),
    ("upload.restore", "redis.call(\"DEL\", KEYS[9 + (at - 8) / 4])", "", RESTORED),
    ("upload.restore", "upload_more(KEYS, \"bytes_received\", -before)", "", RESTORED),
    ("upload.restore", "if mark ~= \"d\" then", "if true then", RESTORED),
    ("upload.restore", "if status == \"COMPLETED\" and ARGV[5] == \"\" then", "if false then", RESTORED),
    ("upload.create", "string.format(\"%.0f\", now_us)", "\"0\"", PROGRESS),
    ("upload.mend", "redis.call(\"ZADD\", KEYS[5], \"NX\", now,", "redis.call(\"ZADD\", KEYS[5], \"XX\", now,", CRASHED),
    ("upload.lapsed", "if not taken and", "if", NAMED),
    ("upload.lapsed", "redis.call(\"ZADD\", ends, flight_beyond(now_ms + lease_ms), name)", "", NAMED),
    ("upload.lapsed", "now_ms + lease_ms), name)", "now_ms * 2), name)", NAMED),
    ("upload.admit", "if not taken and", "if false and", NAMED),
    ("upload.admit", "if flight_left(names, name) then", "if false then", NAMED),
    ("upload.renew", "bytes .. ARGV[2]", "bytes", CRASHED),
    ("upload.renew", "bytes ~= \"0 x\"", "true", NAMED),
    ("upload.recount", "if off > 0 or not", "if false and not", CRASHED),
    ("upload.accept", "if not number_read(work[at] or \"0\") then spoiled = own[2] end", "", NUMBERS),
    ("upload.accept", "upload_sound(KEYS) or upload_spoiled(KEYS, number)", "upload_sound(KEYS)", NUMBERS),
    ("upload.admit", "not number_read(held) and number_malformed(", "false and number_malformed(", NUMBERS),
    ("upload.call", "redis.call(\"ZADD\", ready", "redis.call(\"ZADD\", ready, \"XX\"", CRASHED),
    ("upload.drop", "if not ended then", "if false then", ABORTED),
    ("upload.forget", "if left > 0 then", "if false then", ABORTED),
    ("upload.delist", "redis.call(\"ZREM\", uploads, id)", "", ABORTED),
];

/// Where the cases are.
const CASES: &[&[Case]] = &[upload::CASES, upload_life::CASES, upload_tell::CASES];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_of_uploads_is_found() {
    let mut unfound = Vec::new();
    for defect in DEFECTS {
        let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.expect("a store");
        if !is_found(Arc::new(store), Arc::new(()), *defect, CASES).await {
            unfound.push(defect);
        }
    }
    assert!(unfound.is_empty(), "not found: {unfound:#?}");
}
