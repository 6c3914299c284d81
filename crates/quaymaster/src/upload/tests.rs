//! What needs no store: reading replies, ranges, progress, the sizes of chunks.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quaymaster_schema::{Source, load};
use quaymaster_store::Reply;
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};

use super::answer::{Accepted, Place, Refusal, Status};
use super::ask::Last;
use super::{ERROR_MAX, MAX_CHUNKS, Progress, keys, shortened, tell};
use crate::{Code, Quaymaster};

fn text(text: &str) -> Reply {
    Reply::Bytes(Bytes::copy_from_slice(text.as_bytes()))
}

fn state_reply(map: &[u8], status: &str, sized: &str, total: &str) -> Reply {
    let mut parts = vec![text("state"), text("1700000000500"), Reply::Bytes(Bytes::copy_from_slice(map))];
    let state = ["node", "multi", "key", "drive", status, "100", "9", "9", total, "true", "1700000000000"];
    parts.extend(state.map(text));
    parts.extend(
        [
            "1700000000400",
            "text/plain",
            "",
            if status == "COMPLETED" { "45" } else { "" },
            "",
            "1700000009000",
            "70",
            "33",
            sized,
            "17",
            "",
            "1700000000100",
        ]
        .map(text),
    );
    Reply::Array(parts)
}

#[test]
fn a_state_is_read_with_its_chunks_by_ranges() {
    let map = b"dd\0rrrm\0d";
    let state = tell::state("upload.status", state_reply(map, "UPLOADING", "1", "10"), "u").unwrap().unwrap();
    assert_eq!(
        (state.durable(), state.received(), state.resend()),
        (vec![0..=1, 8..=8], vec![3..=5], vec![6..=6])
    );
    assert!(state.has(0) && state.has(3) && !state.has(2) && !state.has(6) && !state.has(9));
    // The map is what counts, whatever another program wrote into the documented fields.
    assert_eq!((state.receipt.received_chunks, state.receipt.durable_chunks), (6, 3));
    assert_eq!((state.receipt.total_chunks, state.receipt.complete), (Some(10), false));
    assert_eq!((state.expected_size, state.final_size, state.error.as_deref()), (Some(100), None, None));
    assert!(!state.is_ended());
    assert_eq!(state.first_chunk_ms, Some(1_700_000_000_100));
    let error = tell::state("upload.status", state_reply(map, "LOST", "0", "10"), "u").unwrap_err();
    assert_eq!(error.code, Code::KeyMalformed);
}

#[test]
fn percent_is_by_chunks_and_by_bytes_only_until_their_number_is_known() {
    let map = b"dd\0rrrm\0d";
    // Three chunks are durable, which are 33 of 100 bytes.
    for (status, sized, total, percent, total_bytes) in [
        ("UPLOADING", "1", "10", 30.0, 100),
        ("UPLOADING", "1", "0", 33.0, 100),
        ("UPLOADING", "0", "10", 30.0, 0),
        ("UPLOADING", "0", "0", 0.0, 0),
        ("COMPLETED", "1", "10", 100.0, 45),
        ("COMPLETED", "0", "10", 100.0, 45),
    ] {
        let state =
            tell::state("upload.status", state_reply(map, status, sized, total), "u").unwrap().unwrap();
        let progress = Progress::from(&state);
        assert!((progress.percent - percent).abs() < 1e-9, "{status} {sized} {total}: {progress:?}");
        assert_eq!(progress.total_bytes, total_bytes, "{status} {sized} {total}");
        assert_eq!(state.is_ended(), status == "COMPLETED");
        assert_eq!(state.expected_size, (sized == "1").then_some(100));
    }
}

#[test]
fn a_message_of_an_older_program_is_progress_too() {
    let old = r#"{"uploaded_chunks":1,"total_chunks":2,"bytes_uploaded":5,"total_bytes":10,"percent":50.0,"status":"FAILED"}"#;
    let told: Progress = serde_json::from_str(old).unwrap();
    assert!(!told.aborted && told.error_message.is_none() && !told.is_last(), "{told:?}");
    assert!(Progress { aborted: true, ..told }.is_last(), "nothing follows what was given up");
}

#[test]
fn statuses_are_the_documented_words() {
    for status in Status::ALL {
        assert_eq!(Status::parse(status.name()), Some(status));
    }
    assert_eq!(Status::parse("completed"), None);
}

#[test]
fn facts_of_a_chunk_come_back_as_they_were_written() {
    let digest = super::Digest::Blake3(std::array::from_fn(|at| at as u8 * 7));
    let held = format!("{digest} 42 node-1/7 att");
    let facts = tell::facts(&held).unwrap();
    assert_eq!((facts.digest, facts.size, facts.attempt.as_str()), (digest, 42, "att"));
    assert_eq!(facts.place, Place::Elsewhere("node-1/7".to_owned()));
    assert_eq!(tell::facts(&format!("{digest} 0 store -")).unwrap().place, Place::Store);
    for bad in ["", "x 1 store -", "00 1 store -", &held[..64], &held.replace("42", "-1")] {
        assert_eq!(tell::facts(bad), None, "{bad}");
    }
}

#[test]
fn a_name_in_flight_says_whose_bytes_they_are() {
    let one = super::Reservation::fresh("ab-1", 17);
    assert_eq!(keys::flight_chunk(one.as_str()), Some(("ab-1", 17)));
    assert_eq!(keys::flight_name("ab-1", 17, one.attempt()), one.as_str());
    assert!(one.is_for("ab-1", 17) && !one.is_for("ab-1", 18) && !one.is_for("ab", 17));
    assert_ne!(one, super::Reservation::fresh("ab-1", 17));
    assert_eq!(keys::flight_chunk("ab-1/17"), None);
}

#[test]
fn an_answer_nobody_knows_is_an_error() {
    let reply = |word: &str, rest: &[i64]| {
        Reply::Array([text(word)].into_iter().chain(rest.iter().map(|number| Reply::Int(*number))).collect())
    };
    assert_eq!(tell::accepted("op", reply("conflict", &[])).unwrap().0, Accepted::Conflict);
    let passed = Accepted::Refused(Refusal::Passed { highest: 3 });
    assert_eq!(tell::accepted("op", reply("passed", &[3])).unwrap().0, passed);
    for unknown in [reply("what", &[3]), reply("conflict", &[3, 3]), reply("passed", &[])] {
        assert_eq!(tell::accepted("op", unknown).unwrap_err().code, Code::StoreReply);
    }
    assert_eq!(tell::moved("op", reply("what", &[3])).unwrap_err().code, Code::StoreReply);
}

#[test]
fn a_long_error_keeps_its_beginning_and_whole_characters() {
    assert_eq!(shortened("short"), "short");
    let long = "é".repeat(ERROR_MAX);
    let kept = shortened(&long);
    assert!(kept.len() <= ERROR_MAX && kept.chars().all(|c| c == 'é') && kept.len() > ERROR_MAX - 2);
}

#[tokio::test]
async fn sizes_and_numbers_are_judged_before_any_byte_is_read() {
    let text = "[upload.u]\nchunk_min = \"5MiB\"\nchunk_max = \"100MiB\"\nstate_ttl = \"24h\"\n";
    let schema = load(&[Source { name: "u.toml", text }], &|_| None).schema.unwrap();
    let store = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    let quaymaster = Quaymaster::new(Arc::new(schema), Arc::new(store));
    let upload = quaymaster.upload("u").unwrap();
    const MIB: u64 = 1 << 20;
    for (number, size, last, refused) in [
        (0, 5 * MIB, Last::No, None),
        (MAX_CHUNKS - 1, 100 * MIB, Last::No, None),
        (0, 0, Last::Yes, None),
        (7, 1, Last::Yes, None),
        (0, 5 * MIB - 1, Last::No, Some(Refusal::TooSmall { least: 5 * MIB, announced: None })),
        (0, 100 * MIB + 1, Last::Yes, Some(Refusal::TooLarge { most: 100 * MIB })),
        (MAX_CHUNKS, 5 * MIB, Last::No, Some(Refusal::TooMany { most: MAX_CHUNKS })),
        (0, 0, Last::No, Some(Refusal::Empty)),
        (1, 0, Last::Yes, Some(Refusal::Empty)),
    ] {
        assert_eq!(upload.check(number, size, last, None), refused, "{number} {size} {last:?}");
    }
    // Where the size was announced, ten thousand chunks must be enough for it.
    let announced = Some(10_000 * 8 * MIB);
    let small = Refusal::TooSmall { least: 8 * MIB, announced };
    assert_eq!(upload.check(0, 8 * MIB - 1, Last::No, announced), Some(small));
    assert!(small.to_string().contains("83886080000") && small.to_string().contains("8388608,"), "{small}");
    assert_eq!(upload.check(0, 8 * MIB, Last::No, announced), None);
    assert_eq!(upload.check(0, 1, Last::Yes, announced), None);
    for (announced, least) in [
        (None, 5 * MIB),
        (Some(0), 5 * MIB),
        (Some(50_000 * MIB), 5 * MIB),
        (Some(50_000 * MIB + 1), 5 * MIB + 1),
        (Some(u64::MAX), 100 * MIB),
    ] {
        assert_eq!(upload.chunk_min(announced), least, "{announced:?}");
    }
    // 24 hours of state are 23 of uploading and one of being kept.
    assert_eq!(upload.time_limit(), Duration::from_secs(23 * 3600));
    assert!(quaymaster.upload("v").is_err());
    assert_eq!(quaymaster.uploads().count(), 1);
}
