//! What becomes of an upload as a whole, on every store: statuses, deadlines, lost state, crashes between two steps.

use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use quaymaster::upload::{
    Accepted, Claim, Created, Dropped, Forgotten, Held, Known, Last, Moved, Next, Noted, Offer, Part, Place,
    Progress, Reopen, Reopened, Resend, Reservation, Shipped, Source, Stage, Status, Upload,
};
use quaymaster::{Code, Result};

use super::upload::{
    LEASE, begin, claim, digest, docs, hash, new, send, ship, spelled, state, taken, uploads,
};
use super::{Subject, command_int, command_text};
use crate::between::Between;
use crate::toll::Toll;

async fn told(progress: &mut (impl Stream<Item = Result<Progress>> + Unpin)) -> Progress {
    let next = tokio::time::timeout(Duration::from_secs(20), progress.next()).await;
    next.expect("in time").expect("one more").expect("progress")
}

/// The next message has this percentage and these bytes in all, and the state says the same.
async fn says(
    (upload, id): (&Upload, &str),
    progress: &mut (impl Stream<Item = Result<Progress>> + Unpin),
    (percent, total_bytes): (f64, u64),
) {
    let message = told(progress).await;
    assert!((message.percent - percent).abs() < 1e-9, "{message:?} instead of {percent}");
    assert_eq!(message.total_bytes, total_bytes, "{message:?}");
    assert_eq!(Progress::from(&state(upload, id).await), message, "a message says what the state says");
}

/// An upload of `count` chunks, all of them durable.
async fn shipped(upload: &Upload, id: &str, count: u32) {
    begin(upload, id, None).await;
    for number in 0..count {
        taken(
            &send(upload, id, number, b"chunk", if number + 1 == count { Last::Yes } else { Last::No }).await,
        );
    }
    for chunk in claim(upload, 1000).await {
        ship(upload, &chunk.lease).await;
    }
    assert!(state(upload, id).await.receipt.complete);
}

fn refused(moved: &Moved) -> Status {
    match moved {
        Moved::Refused { status, .. } => *status,
        other => panic!("{other:?}"),
    }
}

/// What a node does with one chunk, again until it has an answer: every call may fail, having run or not.
async fn send_until_taken(upload: &Upload, id: &str, number: u32, last: Last) {
    let digest = digest(b"chunk");
    for _ in 0..10 {
        let (stage, name) = (Stage::fresh(), Reservation::fresh(id, number));
        let attempt = async {
            let _ = upload.admit(&name, 5, LEASE).await?;
            upload.write(id, &stage, 0, b"chunk", Some(5)).await?;
            let source = Source::Staged(&stage);
            upload
                .accept(
                    id,
                    &Offer { number, size: 5, digest: &digest, last, source, reservation: Some(&name) },
                )
                .await
        };
        match attempt.await {
            Ok(Accepted::Taken { .. } | Accepted::Known { .. }) => return,
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert_eq!(error.code, Code::StoreLost),
        }
    }
    panic!("chunk {number} was not taken");
}

crate::cases! {
    async fn a_status_changes_only_as_it_may(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "u", None).await;
        assert_eq!(upload.completing("u").await.expect("completing"), Moved::Incomplete { durable: 0, total: None });
        taken(&send(upload, "u", 0, b"chunk", Last::Yes).await);
        assert_eq!(upload.completing("u").await.expect("completing"), Moved::Incomplete { durable: 0, total: Some(1) });
        let chunk = claim(upload, 1).await.remove(0);
        ship(upload, &chunk.lease).await;
        assert_eq!(upload.completing("u").await.expect("completing"), Moved::Moved { from: Status::Uploading });
        assert_eq!(upload.completing("u").await.expect("completing"), Moved::Already);
        assert_eq!(refused(&upload.expire("u").await.expect("expire")), Status::Completing, "its end is being made");
        assert_eq!(refused(&upload.abort("u", "no").await.expect("abort")), Status::Completing);
        let known = send(upload, "u", 0, b"chunk", Last::Yes).await;
        assert!(matches!(known, Accepted::Known { durable: true, status: Status::Completing, .. }), "{known:?}");
        assert_eq!(upload.completed("u", "\"final-1\"", 5).await.expect("completed"), Moved::Moved { from: Status::Completing });
        assert_eq!(upload.completed("u", "\"final-1\"", 5).await.expect("completed"), Moved::Already);
        for moved in [
            upload.fail("u", "late").await.expect("fail"),
            upload.expire("u").await.expect("expire"),
            upload.abort("u", "late").await.expect("abort"),
            upload.completing("u").await.expect("completing"),
        ] {
            assert_eq!(refused(&moved), Status::Completed, "what is completed stays so");
        }
        let reopened = upload.reopen("u", &Reopen::default()).await.expect("reopen");
        assert!(matches!(reopened, Reopened::Refused { status: Status::Completed, .. }), "{reopened:?}");
        let stored = state(upload, "u").await;
        assert_eq!((stored.final_etag.as_deref(), stored.final_size, stored.error), (Some("\"final-1\""), Some(5), None));
        let key = spelled(&quaymaster, "docs", "state", &[("upload_id", "u")]);
        assert_eq!(hash(&quaymaster, &key).await.get("status").map(String::as_str), Some("COMPLETED"));
        for role in ["state", "work", "received", "map", "etags", "metadata"] {
            let key = spelled(&quaymaster, "docs", role, &[("upload_id", "u")]);
            let ttl = command_int(&*subject.engine, &["PTTL", &key]).await;
            assert!((3_500_000..=3_600_000).contains(&ttl), "{role} is kept an hour, not {ttl} ms");
        }
        // FAILED from completing, and on again with what the object store has lost.
        shipped(upload, "again", 3).await;
        assert_eq!(upload.completing("again").await.expect("completing"), Moved::Moved { from: Status::Uploading });
        assert_eq!(upload.fail("again", "InvalidPart").await.expect("fail"), Moved::Moved { from: Status::Completing });
        let reopen = Reopen { multipart_id: Some("multi-2"), resend: Resend::Chunks(&[1, 7]), ..Reopen::default() };
        let Reopened::Open { waiting, receipt } = upload.reopen("again", &reopen).await.expect("reopen") else {
            panic!("it may")
        };
        assert_eq!((waiting, receipt.durable_chunks, receipt.complete), (0, 2, false));
        let stored = state(upload, "again").await;
        assert_eq!((stored.resend(), stored.multipart_id.as_str(), stored.bytes_durable), (vec![1..=1], "multi-2", 10));
        let all = Reopen { resend: Resend::All, ..Reopen::default() };
        assert!(matches!(upload.reopen("again", &all).await.expect("reopen"), Reopened::Open { waiting: 0, .. }));
        let stored = state(upload, "again").await;
        assert_eq!((stored.resend(), stored.bytes_received, stored.receipt.durable_chunks), (vec![0..=2], 0, 0));
        let etags = spelled(&quaymaster, "docs", "etags", &[("upload_id", "again")]);
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &etags]).await, 0);
        for unknown in [upload.completing("nobody").await, upload.expire("nobody").await, upload.fail("nobody", "").await] {
            assert_eq!(unknown.expect("answered"), Moved::Unknown);
        }
    }

    async fn an_aborted_upload_stays_so_and_leaves_nothing(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        begin(upload, "u", None).await;
        for number in 0..3 {
            taken(&send(upload, "u", number, b"chunk", Last::No).await);
        }
        let held = claim(upload, 1).await.remove(0);
        assert_eq!(upload.clear("u").await.expect("clear"), [], "nothing of an open upload is removed");
        assert_eq!(upload.forget("u").await.expect("forget"), Forgotten::Open(Status::Uploading));
        assert_eq!(upload.abort("u", "aborted by the client").await.expect("abort"), Moved::Moved { from: Status::Uploading });
        assert_eq!(upload.abort("u", "aborted by the client").await.expect("abort"), Moved::Already);
        assert_eq!(claim(upload, 9).await, [], "nothing of it is shipped any more");
        assert_eq!(upload.shipped(&held.lease, "e").await.expect("shipped"), Shipped::Lost);
        let stored = state(upload, "u").await;
        assert!(stored.aborted && stored.is_ended());
        assert_eq!((stored.status, stored.error.as_deref()), (Status::Failed, Some("aborted by the client")));
        let reopened = upload.reopen("u", &Reopen::default()).await.expect("reopen");
        assert!(matches!(reopened, Reopened::Refused { .. }), "{reopened:?}");
        assert_eq!(refused(&upload.expire("u").await.expect("expire")), Status::Failed);
        assert!(matches!(send(upload, "u", 0, b"chunk", Last::No).await, Accepted::Closed { .. }));
        assert_eq!(upload.forget("u").await.expect("forget"), Forgotten::Bytes);
        let dropped = upload.clear("u").await.expect("clear");
        let numbers: std::collections::BTreeSet<u32> = dropped.iter().map(|chunk| chunk.number).collect();
        assert_eq!(numbers.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(upload.clear("u").await.expect("clear"), []);
        assert_eq!(upload.in_flight().await.expect("in flight").bytes, 0);
        assert_eq!(upload.forget("u").await.expect("forget"), Forgotten::Forgotten);
        assert_eq!(upload.forget("u").await.expect("forget"), Forgotten::Forgotten, "said twice");
        assert_eq!(upload.status("u").await.expect("status"), None);
        for role in ["state", "work", "received", "map", "todo", "leases", "etags", "metadata"] {
            let key = spelled(&quaymaster, "docs", role, &[("upload_id", "u")]);
            assert_eq!(command_int(&*subject.engine, &["EXISTS", &key]).await, 0, "{role}");
        }
        for number in ["0", "1", "2"] {
            let key = spelled(&quaymaster, "docs", "chunk", &[("upload_id", "u"), ("chunk_number", number)]);
            assert_eq!(command_int(&*subject.engine, &["EXISTS", &key]).await, 0, "chunk {number}");
        }
        assert_eq!(upload.page(0, 10).await.expect("page"), Vec::<String>::new());
        assert_eq!(claim(upload, 1).await, []);
    }

    async fn an_upload_past_its_deadline_takes_nothing_and_is_found_by_the_sweep(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = quaymaster.upload("brief").expect("declared");
        let soon = quaymaster::upload::New { time_left: Duration::from_millis(500), ..new(upload, None) };
        assert_eq!(upload.create("soon", &soon).await.expect("create"), Created::New);
        assert_eq!(upload.create("soon", &soon).await.expect("create"), Created::Existing(Status::Pending));
        begin(upload, "later", None).await;
        taken(&send(upload, "soon", 0, b"chunk", Last::No).await);
        let digest = digest(b"spooled");
        let source = Source::Elsewhere("node/1");
        let offer = Offer { number: 1, size: 7, digest: &digest, last: Last::No, source, reservation: None };
        taken(&upload.accept("soon", &offer).await.expect("accept"));
        let deadline_ms = state(upload, "soon").await.deadline_ms;
        let due = upload.due(10, 0).await.expect("due");
        assert!(due.ids.is_empty() && due.next.is_some_and(|next| next <= Duration::from_millis(500)), "{due:?}");
        assert_eq!(upload.page(0, 10).await.expect("page"), ["soon", "later"]);
        subject.reach(deadline_ms * 1000).await;
        let late = send(upload, "soon", 2, b"chunk", Last::No).await;
        assert_eq!(late, Accepted::Closed { status: Status::Expired, error: String::new() });
        assert_eq!(upload.due(10, 0).await.expect("due").ids, ["soon"]);
        assert_eq!(upload.expire("soon").await.expect("expire"), Moved::Moved { from: Status::Uploading });
        assert_eq!(upload.due(10, 0).await.expect("due").ids, Vec::<String>::new(), "it is kept for a while");
        assert_eq!(state(upload, "soon").await.status, Status::Expired);
        let mut dropped = upload.clear("soon").await.expect("clear");
        dropped.sort_by_key(|chunk| chunk.number);
        assert_eq!(
            dropped,
            [
                Dropped { number: 0, place: Place::Store },
                Dropped { number: 1, place: Place::Elsewhere("node/1".to_owned()) }
            ]
        );
        subject.pass(401).await;
        assert_eq!(upload.due(10, 0).await.expect("due").ids, ["soon"]);
        assert_eq!(upload.status("soon").await.expect("status"), None, "its keys have ended by themselves");
        assert_eq!(upload.tend("soon").await.expect("tend").status, None);
        assert_eq!(upload.forget("soon").await.expect("forget"), Forgotten::Forgotten);
        assert_eq!(upload.page(0, 10).await.expect("page"), ["later"]);
    }

    async fn a_lost_state_is_made_again_from_the_ledger(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        let new = new(upload, Some(20));
        let part = |number: u32, bytes: &[u8]| Part {
            number,
            size: bytes.len() as u64,
            digest: digest(bytes),
            etag: format!("\"{number}\""),
        };
        let parts = [part(0, b"chunk"), part(2, b"chunk")];
        // Nothing is left of it.
        let known = Known { parts: &parts, total_chunks: Some(4), ..Known::default() };
        let receipt = upload.restore("u", &new, &known).await.expect("restore");
        assert_eq!((receipt.received_chunks, receipt.durable_chunks, receipt.total_chunks), (2, 2, Some(4)));
        let stored = state(upload, "u").await;
        assert_eq!((stored.durable(), stored.bytes_durable, stored.status), (vec![0..=0, 2..=2], 10, Status::Uploading));
        assert!(matches!(send(upload, "u", 2, b"chunk", Last::No).await, Accepted::Known { durable: true, .. }));
        assert_eq!(send(upload, "u", 2, b"other", Last::No).await, Accepted::Conflict);
        taken(&send(upload, "u", 1, b"chunk", Last::No).await);
        taken(&send(upload, "u", 3, b"chunk", Last::Yes).await);
        // The store forgot the last second: the ledger knows more of it.
        let more = [part(0, b"chunk"), part(1, b"chunk"), part(2, b"chunk")];
        let receipt = upload.restore("u", &new, &Known { parts: &more, ..Known::default() }).await.expect("restore");
        assert_eq!((receipt.received_chunks, receipt.durable_chunks, receipt.complete), (4, 3, false));
        let stored = state(upload, "u").await;
        assert_eq!((stored.bytes_received, stored.bytes_durable), (20, 15));
        assert_eq!(stored.received(), [3..=3], "what is here and not durable is still here");
        let key = spelled(&quaymaster, "docs", "chunk", &[("upload_id", "u"), ("chunk_number", "1")]);
        assert_eq!(command_int(&*subject.engine, &["EXISTS", &key]).await, 0);
        let chunks = claim(upload, 9).await;
        assert_eq!(chunks.iter().map(|chunk| chunk.lease.number()).collect::<Vec<_>>(), [3]);
        assert!(ship(upload, &chunks[0].lease).await.complete);
        assert_eq!(upload.in_flight().await.expect("in flight").bytes, 0);
        // Many parts, and how it ended.
        let many: Vec<Part> = (0..450).map(|number| part(number, b"chunk")).collect();
        let known = Known {
            parts: &many,
            total_chunks: Some(450),
            status: Some(Status::Completed),
            final_etag: "\"whole\"",
            final_size: Some(2250),
            error: "",
        };
        let big = quaymaster::upload::New { expected_size: Some(2250), ..new };
        let receipt = upload.restore("many", &big, &known).await.expect("restore");
        assert!(receipt.complete);
        let stored = state(upload, "many").await;
        assert_eq!((stored.status, stored.final_size, stored.durable()), (Status::Completed, Some(2250), vec![0..=449]));
        let again = upload.restore("many", &big, &known).await.expect("restore");
        assert_eq!(again, receipt, "said twice");
        // The ledger knows the end of what the store believes to wait.
        begin(upload, "waits", Some(5)).await;
        taken(&send(upload, "waits", 0, b"chunk", Last::Yes).await);
        let chunk = claim(upload, 1).await.remove(0);
        ship(upload, &chunk.lease).await;
        assert_eq!(upload.completing("waits").await.expect("completing"), Moved::Moved { from: Status::Uploading });
        assert_eq!(upload.note("waits", "no broker").await.expect("note"), Noted::Noted);
        let parts = [part(0, b"chunk")];
        let known = Known { parts: &parts, total_chunks: Some(1), final_size: Some(5), ..known };
        upload.restore("waits", &new, &known).await.expect("restore");
        let stored = state(upload, "waits").await;
        assert_eq!((stored.status, stored.error), (Status::Completed, None));
    }

    async fn percent_is_by_chunks_whatever_their_bytes(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        for (id, announced) in [("sized", Some(10)), ("unsized", None)] {
            begin(upload, id, announced).await;
            let total = announced.unwrap_or(0);
            let mut progress = Box::pin(upload.progress(id).await.expect("progress"));
            told(&mut progress).await;
            taken(&send(upload, id, 0, b"12345678", Last::No).await);
            says((upload, id), &mut progress, (0.0, total)).await;
            let chunk = claim(upload, 1).await.remove(0);
            ship(upload, &chunk.lease).await;
            // It is unknown how many there are: by bytes, where their number was announced.
            says((upload, id), &mut progress, (if announced.is_some() { 80.0 } else { 0.0 }, total)).await;
            taken(&send(upload, id, 1, b"90", Last::Yes).await);
            says((upload, id), &mut progress, (50.0, total)).await;
            let chunk = claim(upload, 1).await.remove(0);
            ship(upload, &chunk.lease).await;
            says((upload, id), &mut progress, (100.0, total)).await;
            assert_eq!(upload.completing(id).await.expect("completing"), Moved::Moved { from: Status::Uploading });
            says((upload, id), &mut progress, (100.0, total)).await;
            assert_eq!(upload.completed(id, "e", 10).await.expect("completed"), Moved::Moved { from: Status::Completing });
            says((upload, id), &mut progress, (100.0, 10)).await;
        }
    }

    async fn progress_is_a_snapshot_and_then_what_changes(subject: &Subject) {
        let quaymaster = uploads(subject);
        let upload = docs(&quaymaster);
        let mut nobody = Box::pin(upload.progress("nobody").await.expect("progress"));
        assert!(nobody.next().await.is_none());
        begin(upload, "u", Some(10)).await;
        taken(&send(upload, "u", 0, b"chunk", Last::No).await);
        let mut progress = Box::pin(upload.progress("u").await.expect("progress"));
        let first = told(&mut progress).await;
        assert_eq!((first.received_chunks, first.uploaded_chunks, first.status.as_str()), (1, 0, "UPLOADING"));
        let chunk = claim(upload, 1).await.remove(0);
        ship(upload, &chunk.lease).await;
        let second = told(&mut progress).await;
        assert_eq!((second.uploaded_chunks, second.bytes_uploaded, second.total_bytes), (1, 5, 10));
        assert!((second.percent - 50.0).abs() < 1e-9, "{second:?}");
        assert_eq!(second.seq, first.seq + 1);
        assert_eq!(Progress::from(&state(upload, "u").await), second, "a message says what the state says");
        taken(&send(upload, "u", 1, b"chunk", Last::Yes).await);
        assert_eq!(told(&mut progress).await.received_chunks, 2);
        let chunk = claim(upload, 1).await.remove(0);
        ship(upload, &chunk.lease).await;
        assert_eq!(upload.completing("u").await.expect("completing"), Moved::Moved { from: Status::Uploading });
        assert_eq!(upload.completed("u", "e", 10).await.expect("completed"), Moved::Moved { from: Status::Completing });
        let mut last = told(&mut progress).await;
        let mut seen = vec![second.seq + 1];
        while !last.is_last() {
            seen.push(last.seq);
            last = told(&mut progress).await;
        }
        assert_eq!((last.status.as_str(), last.total_chunks), ("COMPLETED", 2));
        assert!((last.percent - 100.0).abs() < 1e-9, "{last:?}");
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
        assert!(progress.next().await.is_none(), "nothing follows the end");
        let mut after = Box::pin(upload.progress("u").await.expect("progress"));
        assert_eq!(told(&mut after).await.status, "COMPLETED");
        assert!(after.next().await.is_none());
        // A state that was lost and made again is told by higher numbers.
        let key = spelled(&quaymaster, "docs", "state", &[("upload_id", "u")]);
        command_int(&*subject.engine, &["DEL", &key]).await;
        subject.pass(1).await;
        begin(upload, "u", Some(10)).await;
        assert!(state(upload, "u").await.seq > last.seq);
    }

    async fn what_a_crash_left_between_two_steps_is_put_right_by_the_sweep(subject: &Subject) {
        let quaymaster = uploads(subject);
        let (engine, upload) = (&*subject.engine, docs(&quaymaster));
        begin(upload, "u", None).await;
        for number in 0..3 {
            taken(&send(upload, "u", number, b"chunk", if number == 2 { Last::Yes } else { Last::No }).await);
        }
        let index = |role: &str| spelled(&quaymaster, "docs", role, &[]);
        let counted = hash(&quaymaster, &index("in_flight")).await;
        assert_eq!(counted.values().map(String::as_str).collect::<Vec<_>>(), ["5 c", "5 c", "5 c"]);
        // The node died before the index knew of the chunk, and before it was counted.
        command_int(engine, &["DEL", &index("ready")]).await;
        command_int(engine, &["DEL", &index("in_flight")]).await;
        command_int(engine, &["DEL", &index("in_flight_until")]).await;
        command_text(engine, &["SET", &index("in_flight_total"), "0"]).await;
        assert_eq!(claim(upload, 9).await, []);
        let tended = upload.tend("u").await.expect("tend");
        assert_eq!((tended.status, tended.waiting, tended.lost), (Some(Status::Uploading), 3, vec![]));
        assert_eq!(upload.in_flight().await.expect("in flight").bytes, 15);
        let chunks = claim(upload, 2).await;
        assert_eq!(chunks.len(), 2);
        // The worker died after it shipped, before the bytes were given back.
        ship(upload, &chunks[0].lease).await;
        let name = format!("u/{}/attempt", chunks[0].lease.number());
        command_int(engine, &["HSET", &index("in_flight"), &name, "5 c"]).await;
        command_int(engine, &["ZADD", &index("in_flight_until"), "9999999999999", &name]).await;
        // And somebody has spoilt the sum.
        command_text(engine, &["SET", &index("in_flight_total"), "61"]).await;
        let audited = upload.audit(0, 100).await.expect("audit");
        assert_eq!((audited.looked, audited.given_back, audited.off_bytes), (3, 1, 46));
        assert_eq!(upload.in_flight().await.expect("in flight").bytes, 10);
        assert_eq!(upload.audit(0, 100).await.expect("audit").given_back, 0);
        // The node died between taking a chunk and saying so in the account; then whoever shipped it died, too.
        let waits = hash(&quaymaster, &index("in_flight")).await.into_keys().next().expect("two wait");
        command_int(engine, &["HSET", &index("in_flight"), &waits, "5"]).await;
        assert_eq!(upload.tend("u").await.expect("tend").waiting, 2);
        assert_eq!(hash(&quaymaster, &index("in_flight")).await[&waits], "5 c", "it is a chunk's");
        // The schedule was lost.
        let todo = spelled(&quaymaster, "docs", "todo", &[("upload_id", "u")]);
        command_int(engine, &["DEL", &todo]).await;
        command_int(engine, &["DEL", &index("ready")]).await;
        assert_eq!(upload.tend("u").await.expect("tend").waiting, 2);
        // So nobody waits for a lease that is not there any more; the holder's own stays good until then.
        let again = claim(upload, 9).await;
        assert_eq!(again.len(), 2);
        assert_eq!(upload.shipped(&chunks[1].lease, "e").await.expect("shipped"), Shipped::Lost);
        for chunk in &again {
            ship(upload, &chunk.lease).await;
        }
        assert!(state(upload, "u").await.receipt.complete);
    }

    async fn bytes_of_an_upload_that_failed_do_not_keep_others_out_until_its_deadline(subject: &Subject) {
        let quaymaster = uploads(subject);
        let (engine, upload) = (&*subject.engine, docs(&quaymaster));
        begin(upload, "u", None).await;
        taken(&send(upload, "u", 0, b"chunk", Last::No).await);
        let until = spelled(&quaymaster, "docs", "in_flight_until", &[]);
        let names = hash(&quaymaster, &spelled(&quaymaster, "docs", "in_flight", &[])).await;
        let name = names.keys().next().expect("the chunk counts").clone();
        let ends = async || command_text(engine, &["ZSCORE", &until, &name]).await;
        let before = ends().await;
        subject.pass(5).await;
        assert!(matches!(upload.fail("u", "503").await.expect("fail"), Moved::Moved { .. }));
        assert_eq!(upload.tend("u").await.expect("tend").waiting, 1);
        assert_eq!(ends().await, before);
        assert!(matches!(upload.reopen("u", &Reopen::default()).await.expect("reopen"), Reopened::Open { .. }));
        assert_eq!(upload.tend("u").await.expect("tend").waiting, 1);
        assert_ne!(ends().await, before, "what goes on counts for as long as it waits");
    }

    async fn a_chunk_that_is_durable_before_its_sender_hears_of_it_leaves_no_debt(subject: &Subject) {
        let others = uploads(subject);
        begin(docs(&others), "u", None).await;
        let quick = others.clone();
        let worker = Box::pin(async move {
            // The sweep finds the chunk before its sender has said that it is there.
            let upload = docs(&quick);
            assert_eq!(upload.tend("u").await.expect("tend").waiting, 1);
            for chunk in claim(upload, 9).await {
                assert!(ship(upload, &chunk.lease).await.complete);
            }
        });
        let between = Between::new(subject.engine.clone(), "upload.arrive", worker);
        let quaymaster = uploads(&Subject { engine: between.clone(), ..subject.clone() });
        taken(&send(docs(&quaymaster), "u", 0, b"chunk", Last::Yes).await);
        assert!(between.happened() && state(docs(&others), "u").await.receipt.complete);
        let left = docs(&others).in_flight().await.expect("in flight");
        assert_eq!((left.bytes, left.names), (0, 0));
    }

    async fn a_chunk_that_comes_while_its_upload_is_put_to_rest_is_found_at_once(subject: &Subject) {
        let others = uploads(subject);
        begin(docs(&others), "u", None).await;
        taken(&send(docs(&others), "u", 0, b"chunk", Last::No).await);
        let sender = others.clone();
        let sends = Box::pin(async move {
            taken(&send(docs(&sender), "u", 1, b"chunk", Last::Yes).await);
        });
        let between = Between::new(subject.engine.clone(), "upload.rest", sends);
        let quaymaster = uploads(&Subject { engine: between.clone(), ..subject.clone() });
        let one = claim(docs(&quaymaster), 1).await;
        assert_eq!((one.len(), between.happened()), (1, true));
        let two = claim(docs(&quaymaster), 1).await;
        assert_eq!(two.iter().map(|chunk| chunk.lease.number()).collect::<Vec<_>>(), [1]);
    }

    async fn every_step_may_be_sent_twice(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        toll.send_twice();
        let twice = Subject { engine: toll, ..subject.clone() };
        let quaymaster = uploads(&twice);
        let upload = docs(&quaymaster);
        let created = upload.create("u", &new(upload, Some(15))).await.expect("create");
        assert_eq!(created, Created::Existing(Status::Pending), "the second answer is told");
        taken(&send(upload, "u", 0, b"chunk", Last::No).await);
        for number in 1..3 {
            send_until_taken(upload, "u", number, if number == 2 { Last::Yes } else { Last::No }).await;
        }
        assert_eq!(upload.in_flight().await.expect("in flight").bytes, 15);
        let one = upload.claim(Claim { lease: LEASE, ..Claim::default() }).await.expect("claim").chunks.remove(0);
        assert_eq!((one.attempt, one.size), (1, 5));
        assert_eq!(upload.extend(&[&one.lease], LEASE).await.expect("extend"), [Held::Ours]);
        let retry = upload.failed(&one.lease, "503", Next::Retry(Duration::ZERO)).await.expect("failed");
        assert_eq!(retry, quaymaster::upload::Failed::Retry { attempt: 1 });
        let chunks = claim(upload, 9).await;
        assert_eq!(chunks.len(), 3);
        let attempts: u32 = chunks.iter().map(|chunk| chunk.attempt).sum();
        assert_eq!(attempts, 4, "one of them comes for the second time");
        assert_eq!(upload.missing(&chunks[2].lease).await.expect("missing"), Held::Ours);
        let lost = chunks[2].lease.number();
        for chunk in &chunks[..2] {
            ship(upload, &chunk.lease).await;
        }
        assert_eq!(state(upload, "u").await.resend(), [lost..=lost]);
        send_until_taken(upload, "u", lost, if lost == 2 { Last::Yes } else { Last::No }).await;
        let last = claim(upload, 9).await;
        assert!(ship(upload, &last[0].lease).await.complete);
        let stored = state(upload, "u").await;
        assert_eq!((stored.bytes_received, stored.bytes_durable), (15, 15));
        assert_eq!(upload.in_flight().await.expect("in flight").bytes, 0);
        assert_eq!(upload.completing("u").await.expect("completing"), Moved::Already);
        assert_eq!(upload.completed("u", "e", 15).await.expect("completed"), Moved::Already);
        assert_eq!(upload.forget("u").await.expect("forget"), Forgotten::Forgotten);
    }

    async fn whichever_answer_is_lost_every_chunk_is_shipped_and_nothing_stays_in_flight(subject: &Subject) {
        for lost in 0..22 {
            let toll = Toll::new(subject.engine.clone());
            let failing = Subject { engine: toll.clone(), prefix: format!("{}{lost}:", subject.prefix), ..subject.clone() };
            let quaymaster = uploads(&failing);
            let upload = docs(&quaymaster);
            begin(upload, "u", Some(10)).await;
            toll.lose_after(lost);
            for (number, last) in [(1, Last::Yes), (0, Last::No)] {
                send_until_taken(upload, "u", number, last).await;
            }
            let mut rounds = 0;
            while !is_complete(upload).await {
                rounds += 1;
                assert!(rounds < 20, "answer {lost} lost: it does not get complete");
                // A worker that hears nothing goes on; the sweep and the end of leases do the rest.
                let claim = Claim { count: 1, lease: Duration::from_millis(200), ..Claim::default() };
                let Ok(claimed) = upload.claim(claim).await else { continue };
                for chunk in claimed.chunks {
                    let _ = upload.shipped(&chunk.lease, "etag").await;
                }
                let _ = upload.tend("u").await;
                subject.pass(201).await;
            }
            let stored = state(upload, "u").await;
            assert_eq!((stored.bytes_received, stored.bytes_durable), (10, 10), "answer {lost} lost");
            // What was admitted and never came is given up when its lease is over; what was shipped is found here.
            upload.audit(0, 100).await.expect("audit");
            subject.pass(1).await;
            let left = upload.in_flight().await.expect("in flight");
            assert!(left.bytes <= 5, "answer {lost} lost: {left:?}");
        }
    }

    async fn a_key_of_another_type_stops_a_step_before_it_changes_anything(subject: &Subject) {
        let quaymaster = uploads(subject);
        let (engine, upload) = (&*subject.engine, docs(&quaymaster));
        begin(upload, "u", None).await;
        taken(&send(upload, "u", 0, b"chunk", Last::No).await);
        let before = state(upload, "u").await;
        let etags = spelled(&quaymaster, "docs", "etags", &[("upload_id", "u")]);
        command_text(engine, &["SET", &etags, "a word"]).await;
        let (stage, digest) = (Stage::fresh(), digest(b"other"));
        upload.write("u", &stage, 0, b"other", None).await.expect("write");
        let offer = Offer { number: 1, size: 5, digest: &digest, last: Last::No, source: Source::Staged(&stage), reservation: None };
        let error = upload.accept("u", &offer).await.expect_err("stopped");
        assert_eq!(error.code, Code::KeyWrongType, "{error}");
        let claimed = upload.claim(Claim::default()).await.expect("others may be claimed");
        assert_eq!(claimed.chunks, []);
        assert_eq!(state(upload, "u").await.receipt, before.receipt);
        command_int(engine, &["DEL", &etags]).await;
        assert!(matches!(upload.accept("u", &offer).await.expect("accept"), Accepted::Taken { .. }));
    }

    async fn a_number_that_is_none_stops_a_step_before_it_changes_anything(subject: &Subject) {
        let quaymaster = uploads(subject);
        let (engine, upload) = (&*subject.engine, docs(&quaymaster));
        begin(upload, "u", None).await;
        taken(&send(upload, "u", 0, b"chunk", Last::No).await);
        let before = upload.in_flight().await.expect("in flight");
        let own = [("upload_id", "u")];
        for (role, field, value) in [
            ("work", "bytes_received", "9223372036854775807"),
            ("work", "deadline", "nan"),
            ("state", "total_chunks", "1e32"),
            ("state", "status", "text"),
            ("received", "0", "many words of somebody else"),
            ("leases", "0", "9007199254740993 token"),
        ] {
            let key = spelled(&quaymaster, "docs", role, &own);
            let held = command_text(engine, &["HGET", &key, field]).await;
            command_int(engine, &["HSET", &key, field, value]).await;
            let kept = hash(&quaymaster, &key).await;
            let (stage, digest) = (Stage::fresh(), digest(b"chunk"));
            upload.write("u", &stage, 0, b"chunk", None).await.expect("write");
            let offer = Offer { number: 0, size: 5, digest: &digest, last: Last::No, source: Source::Staged(&stage), reservation: None };
            let error = upload.accept("u", &offer).await.expect_err("stopped");
            assert_eq!(error.code, Code::KeyMalformed, "{role} {field}: {error}");
            assert!(error.detail.contains(&key), "{error}");
            assert_eq!(upload.claim(Claim::default()).await.expect("claim").chunks, [], "{role} {field}");
            assert_eq!(hash(&quaymaster, &key).await, kept, "{role} {field}");
            assert_eq!(upload.in_flight().await.expect("in flight"), before, "{role} {field}");
            match held {
                Some(held) => command_int(engine, &["HSET", &key, field, &held]).await,
                None => command_int(engine, &["HDEL", &key, field]).await,
            };
        }
        let sum = spelled(&quaymaster, "docs", "in_flight_total", &[]);
        command_text(engine, &["SET", &sum, "nan"]).await;
        let name = Reservation::fresh("u", 1);
        let error = upload.admit(&name, 5, LEASE).await.expect_err("no sum");
        assert!(error.code == Code::KeyMalformed && error.detail.contains(&sum), "{error}");
        let _ = upload.audit(0, 10).await.expect("counted anew");
        assert_eq!(upload.in_flight().await.expect("in flight").bytes, before.bytes);
    }
}

/// Whether all is durable; asked until there is an answer.
async fn is_complete(upload: &Upload) -> bool {
    loop {
        match upload.status("u").await {
            Ok(Some(state)) => return state.receipt.complete,
            Ok(None) => panic!("it is there"),
            Err(error) => assert_eq!(error.code, Code::StoreLost),
        }
    }
}
