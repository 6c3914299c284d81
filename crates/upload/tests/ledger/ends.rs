//! How uploads end without an object, and what goes on or is found all the same.

use std::time::Duration;

use quaymaster_upload::ledger::{Claim, Errand, Moved, RecordPart, Reopen, Step};

use crate::support::databases::{
    Database, HOUR, LEASE, claimed, complete, held, lost, opened, part, record, whole,
};

pub(super) async fn a_failed_upload_goes_on_with_or_without_its_parts(database: Database) {
    let ledger = database.ledger().await;
    opened(&ledger, "a").await;
    assert!(matches!(record(&ledger, "a", &part(1, "x")).await, RecordPart::Durable { .. }));
    held(ledger.fail("a", None, "AccessDenied").await.unwrap());
    held(ledger.fail("a", None, "AccessDenied").await.unwrap());
    let failed = ledger.find("a").await.unwrap().unwrap();
    assert_eq!((failed.step, failed.error.as_deref()), (Step::Failed, Some("AccessDenied")));
    assert_eq!(ledger.node("node-a").await.unwrap().unwrap().status, "FAILED");
    assert!(matches!(record(&ledger, "a", &part(2, "y")).await, RecordPart::Closed(_)));
    // A part whose answer was lost is still durable.
    assert!(matches!(record(&ledger, "a", &part(1, "x")).await, RecordPart::Durable { .. }));

    database.advance(HOUR);
    let open = held(ledger.reopen("a", Reopen::Keep, HOUR).await.unwrap());
    assert_eq!((open.step, open.error.clone()), (Step::Open, None));
    assert_eq!(open.deadline_ms, open.updated_ms + 3_600_000, "there is time to go on");
    assert_eq!(ledger.node("node-a").await.unwrap().unwrap().status, "PENDING");
    assert_eq!(ledger.parts("a").await.unwrap().len(), 1);

    held(ledger.fail("a", None, "NoSuchUpload").await.unwrap());
    let fresh = held(ledger.reopen("a", Reopen::Afresh, HOUR).await.unwrap());
    assert_eq!((fresh.step, fresh.multipart_id), (Step::Created, None));
    assert_eq!(ledger.parts("a").await.unwrap(), []);
    held(ledger.opened("a", "second").await.unwrap());
    // Somebody who still sends to the first multipart upload is refused.
    assert!(matches!(record(&ledger, "a", &part(1, "x")).await, RecordPart::Closed(_)));

    // A completion that fails is whole: reopened, it is due at once, and its former owner is out.
    whole(&ledger, "b").await;
    let fence = claimed(&ledger, "b", "w").await;
    held(ledger.fail("b", Some(&fence), "InvalidPart").await.unwrap());
    held(ledger.reopen("b", Reopen::Keep, HOUR).await.unwrap());
    assert!(ledger.due(None, 10).await.unwrap().iter().any(|due| due.errand == Errand::Complete));
    lost(ledger.proved(&fence, "\"e\"", 20).await.unwrap());
    complete(&ledger, &claimed(&ledger, "b", "v").await).await;
    lost(ledger.fail("b", None, "too late").await.unwrap());
    lost(ledger.reopen("b", Reopen::Keep, HOUR).await.unwrap());
}

pub(super) async fn a_sender_that_is_late_gives_nothing_up(database: Database) {
    let ledger = database.ledger().await;
    opened(&ledger, "a").await;
    assert!(matches!(record(&ledger, "a", &part(1, "x")).await, RecordPart::Durable { .. }));
    // Somebody else has sent its part meanwhile.
    assert_eq!(lost(ledger.fail_part("a", "multi-a", 1, "timeout").await.unwrap()).step, Step::Open);
    for _ in 0..2 {
        held(ledger.fail_part("a", "multi-a", 2, "NoSuchUpload").await.unwrap());
    }
    held(ledger.reopen("a", Reopen::Afresh, HOUR).await.unwrap());
    // The upload goes on with another multipart upload; senders to the first one come home one by one.
    assert_eq!(lost(ledger.fail_part("a", "multi-a", 3, "NoSuchUpload").await.unwrap()).step, Step::Created);
    held(ledger.opened("a", "second").await.unwrap());
    assert_eq!(lost(ledger.fail_part("a", "multi-a", 4, "NoSuchUpload").await.unwrap()).step, Step::Open);
    held(ledger.fail_part("a", "second", 4, "AccessDenied").await.unwrap());
    assert_eq!(ledger.fail_part("none", "m", 1, "x").await.unwrap(), Moved::Unknown);
}

pub(super) async fn what_fails_past_its_deadline_can_still_be_gone_on_with(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    // Its parts are all there, and the object store is away until after the deadline.
    database.advance(HOUR * 2);
    let fence = claimed(&ledger, "a", "w").await;
    held(ledger.fail("a", Some(&fence), "late: 503").await.unwrap());
    assert_eq!(ledger.due(None, 10).await.unwrap(), []);
    assert!(matches!(ledger.expire("a", "s", LEASE).await.unwrap(), Claim::Elsewhere(_)));
    database.advance(HOUR.saturating_sub(Duration::from_millis(1)));
    held(ledger.reopen("a", Reopen::Keep, HOUR).await.unwrap());
    let fence = claimed(&ledger, "a", "w").await;
    held(ledger.fail("a", Some(&fence), "late: 503").await.unwrap());
    database.advance(HOUR);
    assert!(matches!(ledger.expire("a", "s", LEASE).await.unwrap(), Claim::Ours(..)), "and ends in the end");
}

pub(super) async fn an_upload_that_begins_anew_knows_its_object_from_the_former_ones(database: Database) {
    let ledger = database.ledger().await;
    let first = opened(&ledger, "a").await.token;
    held(ledger.fail("a", None, "AccessDenied").await.unwrap());
    assert_eq!(held(ledger.reopen("a", Reopen::Keep, HOUR).await.unwrap()).token, first);
    held(ledger.fail("a", None, "NoSuchUpload").await.unwrap());
    let second = held(ledger.reopen("a", Reopen::Afresh, HOUR).await.unwrap()).token;
    assert_ne!(second, first);
    assert_eq!(ledger.find("a").await.unwrap().unwrap().token, second);
}

pub(super) async fn an_upload_expires_after_its_deadline_unless_it_is_whole(database: Database) {
    let ledger = database.ledger().await;
    opened(&ledger, "a").await;
    whole(&ledger, "w").await;
    database.advance(HOUR.saturating_sub(Duration::from_millis(1)));
    assert!(matches!(ledger.expire("a", "s", LEASE).await.unwrap(), Claim::Elsewhere(_)));
    database.advance(Duration::from_millis(1));
    assert!(matches!(ledger.expire("w", "s", LEASE).await.unwrap(), Claim::Elsewhere(_)));
    let Claim::Ours(fence, upload) = ledger.expire("a", "s", LEASE).await.unwrap() else { panic!() };
    assert_eq!(upload.step, Step::Expiring);
    assert!(matches!(record(&ledger, "a", &part(1, "x")).await, RecordPart::Closed(_)));
    assert!(matches!(ledger.expire("a", "t", LEASE).await.unwrap(), Claim::Taken { .. }));

    // Whoever was about to end it dies; somebody else does.
    database.advance(LEASE);
    let Claim::Ours(second, _) = ledger.expire("a", "t", LEASE).await.unwrap() else { panic!() };
    lost(ledger.ended(&fence, HOUR).await.unwrap());
    for _ in 0..2 {
        assert_eq!(held(ledger.ended(&second, HOUR).await.unwrap()).step, Step::Expired);
    }
    assert_eq!(ledger.node("node-a").await.unwrap().unwrap().status, "EXPIRED");

    // Kept an hour, then forgotten.
    lost(ledger.forget("a").await.unwrap());
    database.advance(HOUR);
    held(ledger.forget("a").await.unwrap());
    assert_eq!(ledger.forget("a").await.unwrap(), Moved::Unknown);
    assert_eq!(ledger.history("a").await.unwrap(), []);
    assert!(ledger.node("node-a").await.unwrap().is_some(), "the row is not ours to remove");
}

pub(super) async fn a_clock_that_is_set_back_holds_nothing_for_longer_than_declared(database: Database) {
    let ledger = database.ledger().await;
    assert_eq!(ledger.follow_clock("documents").await.unwrap(), 0);
    for id in ["open", "failed", "reopened"] {
        opened(&ledger, id).await;
    }
    held(ledger.fail("reopened", None, "AccessDenied").await.unwrap());
    whole(&ledger, "owned").await;
    claimed(&ledger, "owned", "dead").await;
    let open = ledger.find("open").await.unwrap().unwrap();
    assert_eq!(ledger.time_left(&open).await.unwrap(), HOUR);

    database.set_back(HOUR * 24);
    assert_eq!(ledger.time_left(&open).await.unwrap(), HOUR, "before anything is moved");
    let far = held(ledger.fail("failed", None, "AccessDenied").await.unwrap());
    assert_eq!(far.deadline_ms, far.updated_ms + 3_600_000, "what is written anew is as near");
    let anew = held(ledger.reopen("reopened", Reopen::Keep, HOUR).await.unwrap());
    assert_eq!(anew.deadline_ms, anew.updated_ms + 3_600_000);
    let Claim::Taken { until_ms, .. } = ledger.begin_completion("owned", "w", LEASE).await.unwrap() else {
        panic!("the dead one's lease is not over")
    };
    assert_eq!(until_ms, far.updated_ms + LEASE.as_millis() as i64);

    assert_eq!(database.ledger().await.follow_clock("others").await.unwrap(), 0);
    assert_eq!(ledger.follow_clock("documents").await.unwrap(), 2, "`open` and `owned`");
    // Another process looks, too, and moves nothing again.
    assert_eq!(database.ledger().await.follow_clock("documents").await.unwrap(), 0);
    assert_eq!(ledger.due(None, 10).await.unwrap(), []);
    database.advance(LEASE);
    let due: Vec<String> = ledger.due(None, 10).await.unwrap().into_iter().map(|due| due.upload_id).collect();
    assert_eq!(due, ["owned"]);
    complete(&ledger, &claimed(&ledger, "owned", "w").await).await;
    database.advance(HOUR.saturating_sub(LEASE));
    for id in ["open", "failed", "reopened"] {
        let claim = ledger.expire(id, "s", LEASE).await.unwrap();
        assert!(matches!(claim, Claim::Ours(..)), "{id}: {claim:?}");
    }
}

pub(super) async fn an_ending_upload_whose_object_is_there_is_rescued(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    let fence = claimed(&ledger, "a", "w").await;
    // Given up although the object was made: the answer was lost.
    held(ledger.fail("a", Some(&fence), "timeout").await.unwrap());
    database.advance(HOUR);
    let Claim::Ours(fence, _) = ledger.expire("a", "s", LEASE).await.unwrap() else { panic!() };
    for _ in 0..2 {
        assert_eq!(held(ledger.rescue(&fence).await.unwrap()).step, Step::Completing);
    }
    complete(&ledger, &fence).await;
    assert_eq!(ledger.node("node-a").await.unwrap().unwrap().status, "ACTIVE");
}

pub(super) async fn an_upload_that_completes_cannot_be_called_off(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    let fence = claimed(&ledger, "a", "w").await;
    assert!(matches!(ledger.abort("a", "c", LEASE).await.unwrap(), Claim::Elsewhere(_)));
    complete(&ledger, &fence).await;
    assert!(matches!(ledger.abort("a", "c", LEASE).await.unwrap(), Claim::Elsewhere(_)));

    whole(&ledger, "b").await;
    let Claim::Ours(fence, _) = ledger.abort("b", "c", LEASE).await.unwrap() else { panic!() };
    assert!(matches!(ledger.begin_completion("b", "w", LEASE).await.unwrap(), Claim::Elsewhere(_)));
    assert_eq!(held(ledger.ended(&fence, HOUR).await.unwrap()).step, Step::Aborted);
    assert_eq!(ledger.node("node-b").await.unwrap().unwrap().status, "ABORTED");
    assert_eq!(ledger.abort("none", "c", LEASE).await.unwrap(), Claim::Unknown);
}

pub(super) async fn a_sweep_finds_what_waits_and_nothing_else(database: Database) {
    let ledger = database.ledger().await;
    opened(&ledger, "quiet").await;
    whole(&ledger, "whole").await;
    whole(&ledger, "done").await;
    complete(&ledger, &claimed(&ledger, "done", "w").await).await;
    whole(&ledger, "left").await;
    let fence = claimed(&ledger, "left", "w").await;
    let found = async || {
        let due = ledger.due(None, 100).await.unwrap();
        due.into_iter().map(|due| (due.upload_id, due.errand)).collect::<Vec<_>>()
    };
    let is = |id: &str, errand| (id.to_owned(), errand);
    assert_eq!(found().await, [is("whole", Errand::Complete)]);
    // Its owner waits for something, such as a broker that is away.
    held(ledger.release(&fence, Duration::from_secs(5), "the broker is away").await.unwrap());
    database.advance(Duration::from_secs(5));
    assert_eq!(found().await, [is("whole", Errand::Complete), is("left", Errand::Complete)]);
    let fence = claimed(&ledger, "left", "w").await;
    assert_eq!(ledger.find("left").await.unwrap().unwrap().error.as_deref(), Some("the broker is away"));
    held(ledger.renew(&fence, LEASE).await.unwrap());
    assert_eq!(found().await.len(), 1);
    database.advance(HOUR);
    assert_eq!(
        found().await,
        [
            is("whole", Errand::Complete),
            is("left", Errand::Complete),
            is("done", Errand::Forget),
            is("quiet", Errand::End),
        ]
    );
    assert_eq!(ledger.overdue().await.unwrap().0, 4);
    // Page by page, the same.
    let mut paged = Vec::new();
    let mut after = None;
    while let Some(due) = ledger.due(after.as_ref(), 1).await.unwrap().pop() {
        paged.push((due.upload_id.clone(), due.errand));
        after = Some(due);
    }
    assert_eq!(paged, found().await);
    let first = ledger.page("", 3).await.unwrap();
    let rest = ledger.page(&first[2].upload_id, 3).await.unwrap();
    let ids: Vec<_> = first.iter().chain(&rest).map(|upload| upload.upload_id.as_str()).collect();
    assert_eq!(ids, ["done", "left", "quiet", "whole"]);
}
