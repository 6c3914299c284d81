//! What needs no store.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use bytes::Bytes;

use super::letter::{self, Corpse, Death};
use super::pack::Unpacked;
use super::{Lease, pack};

#[test]
fn an_item_comes_back_as_it_was_packed() {
    let large = Bytes::from(format!("\"{}\"", "a".repeat(5000)));
    let packed = pack::pack(&large, Some(1024));
    assert!(packed.starts_with(b"Z:") && packed.len() < 200, "{}", packed.len());
    assert_eq!(pack::unpack(&packed, 5002).unwrap(), Unpacked { json: large.clone(), text: None });
    assert!(pack::unpack(&packed, 5001).unwrap_err().to_string().contains("more than 5001 bytes"));
    assert_eq!(pack::pack(&large, None), large, "no threshold is declared");
    assert_eq!(pack::pack(&large, Some(5002)), large, "it is not over the threshold");
    let dense = Bytes::from(format!("\"{}\"", fastrand::u64(..)));
    assert_eq!(pack::pack(&dense, Some(1)), dense, "compressed it would be larger");
}

#[test]
fn text_that_is_not_json_is_a_string_and_what_is_not_even_text_says_why() {
    let text = |text: &'static str| pack::unpack(&Bytes::from_static(text.as_bytes()), 100).unwrap();
    for (item, json) in [("", "\"\""), ("item_id", "\"item_id\""), ("{\"a\":1} x", "\"{\\\"a\\\":1} x\"")] {
        assert_eq!(text(item), Unpacked { json: json.into(), text: Some(item.into()) });
    }
    let folded = pack::pack(&Bytes::from("text ".repeat(20)), Some(1));
    assert!(folded.starts_with(b"Z:"), "{folded:?}");
    assert_eq!(pack::unpack(&folded, 102).unwrap().text.unwrap(), "text ".repeat(20), "compressed text, too");
    let why = |bytes: &'static [u8]| pack::unpack(&Bytes::from_static(bytes), 100).unwrap_err().to_string();
    assert!(why(&[b'x'; 99]).contains("as a string it has more than 100 bytes"), "two quotes are too much");
    assert!(why(&[b'x'; 101]).contains("as a string it has more than 100 bytes"));
    assert!(why(b"\"\xff\"").contains("not UTF-8"));
    assert!(why(b"Z:***").contains("base64"));
    let cause = pack::unpack(&Bytes::from_static(b"Z:***"), 100).unwrap_err();
    assert!(std::error::Error::source(&cause).is_some_and(|cause| cause.is::<base64::DecodeError>()));
    assert!(why(b"Z:aGVsbG8=").contains("zstd"));
    assert!(pack::unpack(&Bytes::from_static(b" [1, 2] "), 100).is_ok());
}

#[test]
fn a_frame_that_asks_for_too_much_memory_is_refused() {
    // A header that wants a window of 2 GiB, and nothing behind it.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8];
    let item = format!("Z:{}", base64::Engine::encode(&base64::engine::general_purpose::STANDARD, frame));
    assert!(pack::unpack(&item.into(), 1 << 20).unwrap_err().to_string().contains("zstd"));
}

#[test]
fn a_lease_reads_back_and_nothing_else_is_one() {
    let text = "1794699030000001.2.AbC-_9";
    let lease = Lease::parse("queue.ack", text).unwrap();
    assert_eq!((lease.to_string().as_str(), lease.attempt()), (text, 2));
    assert_eq!(lease.prefix(), "AbC-_9 2 ");
    assert!(!format!("{lease:?}").contains("AbC-_9"));
    for wrong in [
        "",
        "1",
        "1.1",
        "1.1.",
        ".1.a",
        "1..a",
        "x.1.a",
        "1.x.a",
        "01.1.a",
        "1.01.a",
        "1.1.a b",
        "1.1.a.b",
        "1.1.-",
        "99999999999999999.1.a",
        "1.9999999999.a",
        "+1.1.a",
    ] {
        assert!(Lease::parse("queue.ack", wrong).is_err(), "{wrong:?}");
    }
    assert!(Lease::parse("queue.ack", &format!("1.1.{}", "a".repeat(100))).is_err());
}

fn death(job: Corpse<'_>) -> Death<'_> {
    Death {
        queue: "detection_queue",
        job,
        error: "Connection \"refused\"",
        attempts: 3,
        first_failed_us: 1_769_250_605_000_000,
        last_failed_us: 1_769_250_615_000_001,
        priority: None,
    }
}

#[test]
fn a_dead_letter_is_the_documented_item() {
    let letter = death(Corpse::Json("{\"a\": [1,  2], \"n\": 1.10}")).letter().unwrap();
    assert_eq!(
        String::from_utf8(letter.clone()).unwrap(),
        "{\"original_job\":{\"a\": [1,  2], \"n\": 1.10},\"error\":\"Connection \\\"refused\\\"\",\
         \"attempt_count\":3,\"first_failed_at\":\"2026-01-24T10:30:05.000000\",\
         \"last_failed_at\":\"2026-01-24T10:30:15.000001\",\"queue_name\":\"detection_queue\"}"
    );
    let read = letter::read(&letter.into()).unwrap();
    assert_eq!(read.job.unwrap(), "{\"a\": [1,  2], \"n\": 1.10}", "byte for byte");
    assert_eq!(read.last_failed_us, Some(1_769_250_615_000_001));
}

#[test]
fn text_is_pushed_again_as_it_was_and_what_no_worker_can_be_given_is_kept() {
    for (raw, kept, again) in [
        (&b"half {"[..], "half {", Some("half {")),
        (b"", "", Some("")),
        (b"Z:***", "Z:***", None),
        (b"\xff\x00", "/wA=", None),
    ] {
        let letter = death(Corpse::Raw(raw)).letter().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&letter).unwrap();
        assert_eq!(json["original_job"], kept);
        let job = letter::read(&letter.into()).unwrap().job;
        assert_eq!(job.as_deref(), again.map(str::as_bytes));
    }
}

#[test]
fn letters_of_other_programs_are_read_where_they_are_the_documented_item() {
    let read = |text: &'static str| letter::read(&Bytes::from_static(text.as_bytes()));
    let theirs =
        read("{\"original_job\": 7, \"last_failed_at\": \"2026-01-24T10:30:15.000001+00:00\"}").unwrap();
    assert_eq!(theirs.job.unwrap(), "7");
    assert_eq!(theirs.last_failed_us, Some(1_769_250_615_000_001));
    assert!(
        read("{\"original_job\": 7, \"last_failed_at\": \"yesterday\"}").unwrap().last_failed_us.is_none()
    );
    for foreign in ["", "7", "[]", "{\"job\": 1}", "{\"original_job\""] {
        assert!(read(foreign).is_none(), "{foreign}");
    }
}
