//! Events: one per upload, written with its row, told in their order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quaymaster_upload::Trouble;
use quaymaster_upload::ledger::{Event, Fence, Moved, Step};

use crate::run;
use crate::support::databases::{Database, HOUR, LEASE, claimed, held, whole};

pub(super) async fn a_repeated_move_gets_the_same_answer_and_one_event(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    let fence = claimed(&ledger, "a", "w").await;
    for _ in 0..2 {
        held(ledger.renew(&fence, LEASE).await.unwrap());
        assert_eq!(held(ledger.proved(&fence, "\"e\"", 20).await.unwrap()).step, Step::Proved);
    }
    for _ in 0..2 {
        assert_eq!(held(ledger.recorded(&fence, "topic").await.unwrap()).step, Step::Recorded);
    }
    let untold = ledger.untold(0, 10).await.unwrap();
    for _ in 0..2 {
        assert_eq!(held(ledger.announced(&fence).await.unwrap()).step, Step::Announced);
    }
    for _ in 0..2 {
        assert_eq!(held(ledger.finished(&fence, HOUR).await.unwrap()).step, Step::Done);
    }
    let events = ledger.events(0, 10).await.unwrap();
    assert_eq!((untold.len(), events.len()), (1, 1));
    assert_eq!(ledger.untold(0, 10).await.unwrap(), []);
    let event = &events[0];
    assert_eq!(ledger.event_of("a").await.unwrap().as_ref(), Some(event));
    assert_eq!((event.event_id.as_str(), event.topic.as_str(), event.seq), ("a.completed", "topic", 1));
    assert_eq!(
        event.payload,
        format!(
            "{{\"node_id\":\"node-a\",\"s3_key\":\"connectors/default/node-a.pb\",\"etag\":\"\\\"e\\\"\",\"size\":20,\
             \"timestamp\":{},\"event_id\":\"a.completed\",\"upload_id\":\"a\",\"resource\":\"documents\"}}",
            event.created_ms
        )
    );
}

pub(super) async fn row_and_event_are_written_both_or_none(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    whole(&ledger, "b").await;
    let (a, b) = (claimed(&ledger, "a", "w").await, claimed(&ledger, "b", "w").await);
    held(ledger.proved(&a, "\"e\"", 20).await.unwrap());
    held(ledger.proved(&b, "\"e\"", 20).await.unwrap());
    // The node of one is gone, and the event of the other cannot be written.
    run(&database, "DELETE FROM nodes WHERE node_id = 'node-a'").await;
    let squatter =
        "INSERT INTO quaymaster_outbox (event_id, seq, upload_id, node_id, topic, payload, created_ms)
        VALUES ('b.completed', 99, 'x', '', '', '', 0)";
    run(&database, squatter).await;

    let error = ledger.recorded(&a, "topic").await.unwrap_err();
    assert_eq!((error.trouble(), error.said()), (Trouble::Never, Some("node_gone")));
    let error = ledger.recorded(&b, "topic").await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Never, "{error}");
    for id in ["a", "b"] {
        assert_eq!(ledger.find(id).await.unwrap().unwrap().step, Step::Proved);
        assert_eq!(ledger.event_of(id).await.unwrap(), None);
    }
    assert_eq!(ledger.node("node-b").await.unwrap().unwrap().status, "PENDING");

    run(&database, "DELETE FROM quaymaster_outbox").await;
    held(ledger.recorded(&b, "topic").await.unwrap());
    assert_eq!(ledger.node("node-b").await.unwrap().unwrap().status, "ACTIVE");
}

pub(super) async fn a_reader_of_events_misses_none(database: Database) {
    const UPLOADS: usize = 40;
    let ledgers = [Arc::new(database.ledger().await), Arc::new(database.ledger().await)];
    let mut fences = Vec::new();
    for n in 0..UPLOADS {
        let id = format!("u{n}");
        whole(&ledgers[0], &id).await;
        let fence = claimed(&ledgers[0], &id, "w").await;
        held(ledgers[0].proved(&fence, "\"e\"", 20).await.unwrap());
        fences.push(fence);
    }
    let reader = Arc::new(database.ledger().await);
    let reading = tokio::spawn(async move {
        let (mut seen, mut after) = (Vec::new(), 0);
        while seen.len() < UPLOADS {
            for event in reader.events(after, 3).await.unwrap() {
                after = event.seq;
                seen.push(event);
            }
        }
        seen
    });
    let writes = fences.into_iter().enumerate().map(|(n, fence)| {
        let ledger = Arc::clone(&ledgers[n % 2]);
        tokio::spawn(async move { held(ledger.recorded(&fence, "topic").await.unwrap()) })
    });
    for write in writes.collect::<Vec<_>>() {
        write.await.unwrap();
    }
    let seen = tokio::time::timeout(Duration::from_secs(60), reading).await.expect("none is missed").unwrap();
    assert_eq!(
        seen.iter().map(|event| event.seq).collect::<Vec<_>>(),
        (1..=UPLOADS as i64).collect::<Vec<_>>()
    );
    let ids: BTreeSet<_> = seen.iter().map(|event| &event.event_id).collect();
    assert_eq!(ids.len(), UPLOADS);
}

pub(super) async fn events_are_removed_once_they_are_told_kept_and_their_upload_forgotten(
    database: Database,
) {
    const MINUTE: Duration = Duration::from_secs(60);
    let ledger = database.ledger().await;
    let fences = {
        let mut fences = Vec::new();
        for id in ["a", "b", "c"] {
            whole(&ledger, id).await;
            let fence = claimed(&ledger, id, "w").await;
            held(ledger.proved(&fence, "\"e\"", 20).await.unwrap());
            held(ledger.recorded(&fence, "topic").await.unwrap());
            fences.push(fence);
        }
        fences
    };
    let look = async |topic: &str, kept, after, count| {
        let pruned = ledger.prune_events(topic, kept, after, count).await.unwrap();
        (pruned.removed, pruned.next)
    };
    let prune = async |kept, count| look("topic", kept, 0, count).await.0;
    let left = async || {
        let events = ledger.events(0, 10).await.unwrap();
        events.into_iter().map(|event| event.upload_id).collect::<Vec<_>>()
    };
    assert_eq!(prune(Duration::ZERO, 10).await, 0, "what was not told stays");
    for fence in &fences[..2] {
        held(ledger.announced(fence).await.unwrap());
        held(ledger.finished(fence, Duration::ZERO).await.unwrap());
    }
    run(&database, "UPDATE quaymaster_outbox SET published_ms = published_ms - 60001").await;
    assert_eq!(prune(MINUTE, 10).await, 0, "the doctor looks for an upload's event");
    for id in ["a", "b"] {
        assert!(matches!(ledger.forget(id).await.unwrap(), Moved::Moved(_)));
    }
    // Whose event it is stays known; of one written before events said it, only as long as its upload is remembered.
    run(&database, "UPDATE quaymaster_outbox SET payload = '{}' WHERE upload_id IN ('b', 'c')").await;
    let whose: Vec<_> = ledger.events(0, 3).await.unwrap().into_iter().map(|event| event.resource).collect();
    assert_eq!(whose, [Some("documents".to_owned()), None, Some("documents".to_owned())]);
    assert_eq!(prune(HOUR, 10).await, 0, "not kept long enough");
    assert_eq!(look("another", MINUTE, 0, 10).await, (0, 0), "somebody else's are not touched");
    run(&database, "UPDATE quaymaster_outbox SET created_ms = created_ms - 60001").await;
    assert_eq!(look("topic", MINUTE, 0, 1).await, (1, 1), "no more than it may look at");
    assert_eq!(left().await, ["b", "c"]);
    assert_eq!(look("topic", MINUTE, 2, 1).await, (0, 3), "one that stays is looked behind");
    assert_eq!(look("topic", MINUTE, 3, 1).await, (0, 0), "from the beginning");
    assert_eq!(look("topic", MINUTE, 0, 10).await, (1, 0));
    assert_eq!(left().await, ["c"], "the one that was not told");
}

pub(super) async fn an_event_that_somebody_removed_is_put_back_as_it_was(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    let former = claimed(&ledger, "a", "former").await;
    held(ledger.proved(&former, "\"e\"", 20).await.unwrap());
    assert_eq!(ledger.put_event_back("a", Some(&former), "topic").await.unwrap(), None, "there is none yet");
    held(ledger.recorded(&former, "topic").await.unwrap());
    let event = ledger.event_of("a").await.unwrap().unwrap();
    assert_eq!(ledger.put_event_back("a", Some(&former), "topic").await.unwrap().as_ref(), Some(&event));

    // Time goes by, and the upload has another owner.
    database.advance(LEASE);
    let fence = claimed(&ledger, "a", "w").await;
    let remove = "DELETE FROM quaymaster_outbox";
    run(&database, remove).await;
    assert_eq!(ledger.put_event_back("a", Some(&former), "topic").await.unwrap(), None);
    assert_eq!(ledger.event_of("a").await.unwrap(), None, "a former owner puts nothing back");
    for _ in 0..2 {
        let again = ledger.put_event_back("a", Some(&fence), "another").await.unwrap().unwrap();
        assert_eq!((again.seq, again.published_ms), (2, None), "it is still to be told");
        assert_eq!(again, Event { seq: 2, ..event.clone() });
    }
    assert_eq!(ledger.untold(0, 10).await.unwrap().len(), 1);
    held(ledger.announced(&fence).await.unwrap());
    held(ledger.finished(&fence, HOUR).await.unwrap());

    // One that was told is only kept.
    run(&database, remove).await;
    for _ in 0..2 {
        let again = ledger.put_event_back("a", None, "another").await.unwrap().unwrap();
        let published_ms = again.published_ms.filter(|told| *told > event.created_ms);
        assert!(published_ms.is_some(), "{again:?}");
        assert_eq!(again, Event { seq: 3, published_ms, ..event.clone() });
    }
    assert_eq!(ledger.untold(0, 10).await.unwrap(), []);
    let history = ledger.history("a").await.unwrap();
    assert_eq!(history.iter().filter(|line| line.what == "event put back").count(), 2);

    // Without its history nobody knows when that was, or for whom.
    run(&database, remove).await;
    run(&database, "DELETE FROM quaymaster_upload_events").await;
    let again = ledger.put_event_back("a", None, "another").await.unwrap().unwrap();
    assert_eq!((again.event_id, again.topic.as_str()), (event.event_id, "another"));
    assert_eq!(ledger.put_event_back("nobody", None, "topic").await.unwrap(), None);
}

pub(super) async fn a_reason_to_wait_ends_with_the_waiting(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    let mut fence = claimed(&ledger, "a", "w").await;
    held(ledger.proved(&fence, "\"e\"", 20).await.unwrap());
    held(ledger.recorded(&fence, "topic").await.unwrap());
    let error = async || ledger.find("a").await.unwrap().unwrap().error;
    let waits = async |fence: Fence| {
        held(ledger.release(&fence, Duration::ZERO, "it is away").await.unwrap());
        assert_eq!(error().await.as_deref(), Some("it is away"));
        claimed(&ledger, "a", "w").await
    };
    fence = waits(fence).await;
    held(ledger.announced(&fence).await.unwrap());
    assert_eq!(error().await, None, "it was told");
    fence = waits(fence).await;
    held(ledger.finished(&fence, HOUR).await.unwrap());
    assert_eq!(error().await, None, "nothing is wrong with what is done");
}
