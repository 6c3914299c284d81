//! Workers that die, and an object store that refuses.

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::json;

use super::s3::S3;
use super::{FIRST, field, file, key, let_time_run, send, status, until, waiting, waits};

fn l471_a_crashed_workers_chunk_is_shipped(s: &Stage) {
    let s3 = S3::real(s);
    s3.delay_parts();
    let id = file(s);
    send(s, &id, 0, b"whole", true);
    s.until("a worker sends it", || s3.parts() == [1]);
    s.kill();
    s3.clear();
    // Longer than a lease.
    s.pass(61_000);
    until(s, &id, "COMPLETED");
    assert_eq!(s3.parts(), [1, 1], "the same part again, over the first");
    assert_eq!(s3.read(&field(s, &id, "s3_key").unwrap()), b"whole");
}

fn l488_shipping_is_repeated_with_backoff(s: &Stage) {
    let s3 = S3::real(s);
    s3.refuse("partNumber=1", 3);
    let_time_run(s);
    let id = file(s);
    send(s, &id, 0, b"whole", true);
    // 1 s, 2 s, 4 s, each and up to a quarter more, of which some has passed when it is looked at.
    for (attempt, ms) in [(1, 1000), (2, 2000), (3, 4000)] {
        waits(s, &id, ms * 3 / 4..=ms * 5 / 4);
        assert_eq!(s3.parts().len(), attempt, "not before its time");
    }
    until(s, &id, "COMPLETED");
    assert_eq!(s3.parts().len(), 4);
}

fn l489_an_upload_fails_and_keeps_its_chunks(s: &Stage) {
    s.settings("[uploads]\nattempts = 2");
    let s3 = S3::failing(s);
    let id = file(s);
    send(s, &id, 0, b"whole", true);
    waits(s, &id, FIRST);
    assert_eq!(field(s, &id, "status").as_deref(), Some("UPLOADING"), "not after the first");
    let_time_run(s);
    until(s, &id, "FAILED");
    assert_eq!(s3.parts().len(), 2);
    assert!(field(s, &id, "error_message").unwrap().contains("attempt 2"));
    assert_eq!(waiting(s, &id).as_deref(), Some(&b"whole"[..]));
    if s.store() == Store::Redis {
        let left: i64 = s.raw(&["TTL", &key(&id, "chunks:0")]);
        assert!((3590..=3600).contains(&left), "{left}");
    }
}

fn l491_a_failed_upload_resumes(s: &Stage) {
    s.settings("[uploads]\nattempts = 1");
    let s3 = S3::real(s);
    s3.refuse("partNumber=1", 1);
    let id = file(s);
    send(s, &id, 0, b"whole", true);
    until(s, &id, "FAILED");
    let resumed = s.ok("upload/documents/resume", json!({"upload_id": id}));
    assert_eq!(
        (&resumed["resend"], &resumed["received_chunks"]),
        (&json!([]), &json!(1)),
        "nothing is sent again"
    );
    until(s, &id, "COMPLETED");
    assert_eq!(s3.read(status(s, &id)["s3_key"].as_str().unwrap()), b"whole");
}

cases! {
    l471_a_crashed_workers_chunk_is_shipped
    l488_shipping_is_repeated_with_backoff
    l489_an_upload_fails_and_keeps_its_chunks
    l491_a_failed_upload_resumes
}
