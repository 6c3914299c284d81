//! Chunks from their client to the object store: their keys, and the ETags of their parts.

use quaymaster_testkit::stage::{Stage, Store};
use serde_json::json;

use super::s3::S3;
use super::{
    FIRST, LONG, content, create, field, file, is, key, kind, let_time_run, send, short, spooled, status,
    until, until_durable, waiting, waits, whole,
};

/// An upload whose only chunk waits, after an attempt to send it.
fn held_up(s: &Stage) -> String {
    let id = file(s);
    send(s, &id, 0, b"binary", true);
    waits(s, &id, FIRST);
    id
}

fn l067_chunk_is_a_string_of_one_hour(s: &Stage) {
    let _s3 = S3::failing(s);
    let id = file(s);
    send(s, &id, 0, b"\x01\x02binary", true);
    let chunk = key(&id, "chunks:0");
    assert_eq!((kind(s, &chunk), s.text(&chunk)), ("string".to_owned(), Some("\x01\x02binary".to_owned())));
    s.lives(&chunk, 3600);
}

fn l077_a_waiting_chunk_exists(s: &Stage) {
    let _s3 = S3::failing(s);
    let id = held_up(s);
    let exists = |n: u32| s.raw::<i64>(&["EXISTS", &key(&id, &format!("chunks:{n}"))]);
    assert_eq!((exists(0), exists(1)), (1, 0));
    s.ok("upload/documents/abort", json!({"upload_id": id}));
    assert_eq!(exists(0), 0, "nobody wants it any more");
}

fn l078_a_shipped_chunk_is_deleted(s: &Stage) {
    short(s);
    let id = file(s);
    for n in 0..3 {
        send(s, &id, n, b"chunk", false);
    }
    until_durable(s, &id, 3);
    assert_eq!(s.keys(&key(&id, "chunks:*")), [].into());
    assert_eq!(s.keys(&key(&id, "staging:*")), [].into());
    is(s, &id, "status", "UPLOADING");
}

/// Members and scores, in their order.
fn etags(s: &Stage, id: &str) -> Vec<(String, f64)> {
    let told: Vec<String> = s.raw(&["ZRANGE", &key(id, "etags"), "0", "-1", "WITHSCORES"]);
    told.chunks(2).map(|pair| (pair[0].clone(), pair[1].parse().unwrap())).collect()
}

fn l102_etags_are_a_zset_by_chunk_number(s: &Stage) {
    short(s);
    let id = file(s);
    for (n, chunk) in [(2, b"third"), (0, b"first"), (1, b"other")] {
        send(s, &id, n, chunk, n == 2);
    }
    until(s, &id, "COMPLETED");
    assert_eq!(kind(s, &key(&id, "etags")), "zset");
    let scores: Vec<f64> = etags(s, &id).iter().map(|(_, score)| *score).collect();
    assert_eq!(scores, [0.0, 1.0, 2.0], "from 0, in their order whatever came first");
}

fn l104_etags_live_a_day(s: &Stage) {
    short(s);
    let id = file(s);
    send(s, &id, 0, b"first", false);
    until_durable(s, &id, 1);
    s.lives(&key(&id, "etags"), 86_400);
}

fn l107_etag_members_are_quoted(s: &Stage) {
    let _s3 = S3::real(s);
    let id = file(s);
    let (zeros, others) = (vec![0; LONG], vec![7; LONG]);
    for (n, chunk) in [&zeros, &others, &zeros].into_iter().enumerate() {
        send(s, &id, n as u32, chunk, n == 2);
        until_durable(s, &id, n as u32 + 1);
    }
    let told = etags(s, &id);
    let [(first, _), (second, _), (third, _)] = &told[..] else { panic!("{told:?}") };
    for etag in [first, second] {
        // The MD5 of a part, as S3 says it.
        assert!(etag.len() == 34 && etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    }
    assert_ne!(first, second);
    assert_eq!(*third, format!("3:{first}"), "an equal part is a member of its own");
}

fn l113_as_many_etags_as_chunks(s: &Stage) {
    short(s);
    let id = whole(s, &["zeros", "other", "zeros", "zeros"]);
    assert_eq!(s.raw::<i64>(&["ZCARD", &key(&id, "etags")]), 4);
    is(s, &id, "total_chunks", "4");
}

fn l196_a_claim_leaves_the_chunk(s: &Stage) {
    let s3 = S3::silent(s);
    let id = file(s);
    send(s, &id, 0, b"binary", true);
    s.until("a worker sends it", || s3.parts() == [1]);
    assert_eq!(waiting(s, &id).as_deref(), Some(&b"binary"[..]), "it is still there for another one");
    if s.store() == Store::Redis {
        s.lives(&key(&id, "chunks:0"), 3600);
    }
}

fn l273_a_chunk_is_acknowledged_at_once(s: &Stage) {
    let _s3 = S3::silent(s);
    let id = file(s);
    let took = send(s, &id, 0, b"binary", true);
    assert_eq!((&took["received_chunks"], &took["durable_chunks"]), (&json!(1), &json!(0)));
    assert_eq!(took["durable"], false, "nothing has come to the object store");
}

fn l274_the_acknowledgement_has_three_fields(s: &Stage) {
    short(s);
    let made = s.ok("upload/documents/create", json!({"name": "a.pdf"}));
    let took = send(s, made["upload_id"].as_str().unwrap(), 5, b"chunk", false);
    let told = (&took["node_id"], &took["status"], &took["chunk_number"]);
    assert_eq!(told, (&made["node_id"], &json!("UPLOADING"), &json!(5)));
}

fn l298_part_number_is_chunk_number_plus_one(s: &Stage) {
    let s3 = S3::real(s);
    let id = file(s);
    send(s, &id, 1, b"end", true);
    until_durable(s, &id, 1);
    assert_eq!(s3.parts(), [2]);
    send(s, &id, 0, &vec![7; LONG], false);
    until(s, &id, "COMPLETED");
    assert_eq!(s3.parts(), [2, 1]);
}

fn l424_chunks_expire_by_themselves(s: &Stage) {
    let _s3 = S3::failing(s);
    let id = held_up(s);
    let chunk = key(&id, "chunks:0");
    s.lives(&chunk, 3600);
    // Nobody is there to delete it.
    s.kill();
    s.pass(3_599_000);
    assert_eq!(s.raw::<i64>(&["EXISTS", &chunk]), 1);
    s.pass(1001);
    assert_eq!(s.raw::<i64>(&["EXISTS", &chunk]), 0);
}

fn l428_chunks_leave_when_shipped(s: &Stage) {
    short(s);
    let id = file(s);
    for n in 0..4 {
        send(s, &id, n, b"chunk", false);
    }
    until_durable(s, &id, 4);
    assert_eq!(status(s, &id)["status"], "UPLOADING", "long before the upload ends");
    let left = || {
        if s.store() == Store::Redis { s.keys("*:chunks:*").len() } else { spooled(s, &id).len() }
    };
    assert_eq!(left(), 0);
}

fn l503_a_chunk_sent_twice_counts_once(s: &Stage) {
    short(s);
    let id = file(s);
    for _ in 0..2 {
        assert_eq!(send(s, &id, 0, b"first", false)["received_chunks"], 1);
    }
    until_durable(s, &id, 1);
    let again = send(s, &id, 0, b"first", false);
    assert_eq!((&again["received_chunks"], &again["durable"]), (&json!(1), &json!(true)), "after shipping");
    is(s, &id, "received_chunks", "1");
    is(s, &id, "uploaded_chunks", "1");
    let other = s.put(&format!("upload/documents/{id}/chunk/0"), b"other");
    assert_eq!(other.expect(409)["code"], "upload.conflict");
    send(s, &id, 1, b"last", true);
    until(s, &id, "COMPLETED");
    assert_eq!(content(s, &id), b"firstlast");
}

fn l493_a_lost_chunk_is_asked_for_again(s: &Stage) {
    let _s3 = S3::failing(s);
    let id = create(s, json!({"name": "a.pdf"}));
    send(s, &id, 0, b"binary", true);
    waits(s, &id, FIRST);
    match s.store() {
        Store::Redis => assert_eq!(s.raw::<i64>(&["DEL", &key(&id, "chunks:0")]), 1),
        Store::Embedded => spooled(s, &id).iter().for_each(|file| std::fs::remove_file(file).unwrap()),
    }
    let_time_run(s);
    s.until("it is asked for", || status(s, &id)["resend"] != json!([]));
    let told = status(s, &id);
    assert_eq!((&told["resend"], &told["status"]), (&json!([0]), &json!("UPLOADING")), "{told}");
    assert_eq!(field(s, &id, "received_chunks").as_deref(), Some("0"));
    assert_eq!(send(s, &id, 0, b"binary", true)["received_chunks"], 1);
    assert_eq!(waiting(s, &id).as_deref(), Some(&b"binary"[..]));
}

cases! {
    l067_chunk_is_a_string_of_one_hour
    l077_a_waiting_chunk_exists
    l078_a_shipped_chunk_is_deleted
    l102_etags_are_a_zset_by_chunk_number
    l104_etags_live_a_day
    l107_etag_members_are_quoted
    l113_as_many_etags_as_chunks
    l196_a_claim_leaves_the_chunk
    l273_a_chunk_is_acknowledged_at_once
    l274_the_acknowledgement_has_three_fields
    l298_part_number_is_chunk_number_plus_one
    l424_chunks_expire_by_themselves
    l428_chunks_leave_when_shipped
    l503_a_chunk_sent_twice_counts_once
    l493_a_lost_chunk_is_asked_for_again
}
