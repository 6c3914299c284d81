//! Every promise of the ledger, on SQLite and on PostgreSQL.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod ends;
mod events;
mod nodes;
#[path = "../support/servers.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quaymaster_upload::Trouble;
use quaymaster_upload::ledger::{
    Claim, Created, Errand, Ledger, LedgerOptions, Moved, RecordPart, Step, Total,
};
use support::databases::{
    Database, HOUR, LEASE, Server, claimed, complete, held, lost, new, opened, part, record, whole,
};

/// Each of these on both engines.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::Database::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::Database::postgres()).await;
            })*
        }
    };
}

use ends::*;
use events::*;
use nodes::*;

on_both! {
    a_new_upload_is_kept_with_its_pending_node
    one_key_and_one_request_make_one_upload
    creates_at_once_make_one_upload_and_one_node
    a_stricter_database_refuses_nobody
    parts_are_kept_by_number_and_refuse_other_bytes
    parts_of_another_multipart_upload_are_refused
    whoever_records_the_last_part_is_told
    a_total_that_disagrees_is_refused
    only_one_of_many_claims_is_ours
    a_former_owner_moves_nothing
    a_repeated_move_gets_the_same_answer_and_one_event
    row_and_event_are_written_both_or_none
    a_failed_upload_goes_on_with_or_without_its_parts
    a_sender_that_is_late_gives_nothing_up
    what_fails_past_its_deadline_can_still_be_gone_on_with
    an_upload_that_begins_anew_knows_its_object_from_the_former_ones
    an_upload_expires_after_its_deadline_unless_it_is_whole
    a_clock_that_is_set_back_holds_nothing_for_longer_than_declared
    an_ending_upload_whose_object_is_there_is_rescued
    an_upload_that_completes_cannot_be_called_off
    a_sweep_finds_what_waits_and_nothing_else
    a_reader_of_events_misses_none
    events_are_removed_once_they_are_told_kept_and_their_upload_forgotten
    an_event_that_somebody_removed_is_put_back_as_it_was
    a_reason_to_wait_ends_with_the_waiting
    tables_are_made_once_and_newer_ones_refused
    a_foreign_nodes_table_is_used_or_refused
    a_node_stays_with_its_resource
    nodes_of_an_older_build_stay_with_the_resource_of_their_object
    a_node_of_an_older_server_that_ran_beside_stays_with_its_resource
    keys_of_an_older_build_get_their_prefix_once
    a_history_tells_every_move
}

async fn a_new_upload_is_kept_with_its_pending_node(database: Database) {
    let ledger = database.ledger().await;
    let request = new("a");
    let Created::Created(made) = ledger.create(&request).await.unwrap() else { panic!("it is new") };
    assert_eq!((made.step, made.fence, made.expected_size), (Step::Created, 0, Some(30)));
    assert_eq!(made.deadline_ms, made.created_ms + 3_600_000);

    // Somebody else sees the same.
    let other = database.ledger().await;
    assert_eq!(other.find("a").await.unwrap(), Some(*made));
    let node = other.node("node-a").await.unwrap().unwrap();
    assert_eq!(node.status, "PENDING");
    assert_eq!(node.facts, request.node);
    assert_eq!(node.s3_key.as_deref(), Some("connectors/default/node-a.pb"));

    let open = held(ledger.opened("a", "m1").await.unwrap());
    assert_eq!((open.step, open.multipart_id.as_deref()), (Step::Open, Some("m1")));
    held(other.opened("a", "m1").await.unwrap());
    // A second multipart upload is an orphan, and whoever made it learns so.
    assert_eq!(lost(other.opened("a", "m2").await.unwrap()).multipart_id.as_deref(), Some("m1"));
    assert_eq!(ledger.opened("none", "m").await.unwrap(), Moved::Unknown);
}

async fn one_key_and_one_request_make_one_upload(database: Database) {
    let ledger = database.ledger().await;
    let with_key = |id: &str, key: &str, fingerprint: &str| {
        let mut request = new(id);
        request.idempotency_key = Some(key.to_owned());
        fingerprint.clone_into(&mut request.fingerprint);
        request
    };
    assert!(matches!(ledger.create(&with_key("a", "k", "f")).await.unwrap(), Created::Created(_)));
    let Created::Existing(found) = ledger.create(&with_key("b", "k", "f")).await.unwrap() else { panic!() };
    assert_eq!(found.upload_id, "a");
    assert!(ledger.node("node-b").await.unwrap().is_none(), "nothing was made for the second call");
    let Created::Mismatch(found) = ledger.create(&with_key("b", "k", "g")).await.unwrap() else { panic!() };
    assert_eq!(found.upload_id, "a");

    // The same id again is the same call again, key or no key.
    assert!(matches!(ledger.create(&with_key("a", "k", "f")).await.unwrap(), Created::Existing(_)));
    assert!(matches!(ledger.create(&with_key("a", "other", "g")).await.unwrap(), Created::Mismatch(_)));

    // A key counts within its resource.
    let mut elsewhere = with_key("c", "k", "f");
    "pictures".clone_into(&mut elsewhere.resource);
    assert!(matches!(ledger.create(&elsewhere).await.unwrap(), Created::Created(_)));

    let mut taken = new("d");
    "node-a".clone_into(&mut taken.node.node_id);
    assert_eq!(ledger.create(&taken).await.unwrap(), Created::NodeTaken);
    assert!(ledger.find("d").await.unwrap().is_none());
}

async fn creates_at_once_make_one_upload_and_one_node(database: Database) {
    let ledgers = [Arc::new(database.ledger().await), Arc::new(database.ledger().await)];
    let creates = (0..16).map(|n| {
        let ledger = Arc::clone(&ledgers[n % 2]);
        let mut request = new(&format!("u{n}"));
        request.idempotency_key = Some("k".to_owned());
        tokio::spawn(async move { ledger.create(&request).await.unwrap() })
    });
    let (mut made, mut found) = (Vec::new(), BTreeSet::new());
    for create in creates.collect::<Vec<_>>() {
        match create.await.unwrap() {
            Created::Created(upload) => made.push(upload.upload_id),
            Created::Existing(upload) => drop(found.insert(upload.upload_id)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), made);
    let mut nodes = 0;
    for n in 0..16 {
        nodes += u32::from(ledgers[0].node(&format!("node-u{n}")).await.unwrap().is_some());
    }
    assert_eq!(nodes, 1);
}

async fn a_stricter_database_refuses_nobody(database: Database) {
    if let Server::Postgres(server) = &database.server {
        drop(server.ask("ALTER ROLE ALL SET default_transaction_isolation = 'serializable'"));
    }
    let ledgers = [Arc::new(database.ledger().await), Arc::new(database.ledger().await)];
    opened(&ledgers[0], "a").await;
    let records = (1..=24).map(|number| {
        let ledger = Arc::clone(&ledgers[number as usize % 2]);
        tokio::spawn(async move { record(&ledger, "a", &part(number, "x")).await })
    });
    for answer in records.collect::<Vec<_>>() {
        assert!(matches!(answer.await.unwrap(), RecordPart::Durable { .. }));
    }
    assert_eq!(ledgers[1].parts("a").await.unwrap().len(), 24);
}

async fn parts_are_kept_by_number_and_refuse_other_bytes(database: Database) {
    let ledger = database.ledger().await;
    opened(&ledger, "a").await;
    let durable = |answer| match answer {
        RecordPart::Durable { durable, durable_bytes, all } => (durable, durable_bytes, all),
        other => panic!("{other:?}"),
    };
    // Out of order, and two with the same bytes and so the same ETag.
    let (third, first) = (part(3, "same"), part(1, "same"));
    assert_eq!(durable(record(&ledger, "a", &third).await), (1, 4, false));
    assert_eq!(durable(record(&ledger, "a", &first).await), (2, 8, false));
    assert_eq!(durable(record(&ledger, "a", &third).await), (2, 8, false));
    assert_eq!(record(&ledger, "a", &part(3, "diff")).await, RecordPart::Differs(third.clone()));

    // An object store that encrypts gives the same bytes a new ETag.
    let mut again = third.clone();
    "\"newer\"".clone_into(&mut again.etag);
    assert_eq!(durable(record(&ledger, "a", &again).await), (2, 8, false));
    assert_eq!(ledger.parts("a").await.unwrap(), [first, again]);

    for number in [0, 10_001] {
        let error = ledger.record_part("a", "multi-a", &part(number, "x")).await.unwrap_err();
        assert_eq!(error.trouble(), Trouble::Never);
    }
    assert!(matches!(ledger.record_part("b", "multi-b", &part(1, "x")).await.unwrap(), RecordPart::Unknown));
}

async fn parts_of_another_multipart_upload_are_refused(database: Database) {
    let ledger = database.ledger().await;
    assert!(matches!(ledger.create(&new("a")).await.unwrap(), Created::Created(_)));
    assert!(matches!(ledger.record_part("a", "early", &part(1, "x")).await.unwrap(), RecordPart::Closed(_)));
    held(ledger.opened("a", "ours").await.unwrap());
    assert!(matches!(ledger.record_part("a", "theirs", &part(1, "x")).await.unwrap(), RecordPart::Closed(_)));
    assert_eq!(ledger.parts("a").await.unwrap(), []);
}

async fn whoever_records_the_last_part_is_told(database: Database) {
    let ledgers = [Arc::new(database.ledger().await), Arc::new(database.ledger().await)];
    opened(&ledgers[0], "a").await;
    assert_eq!(ledgers[0].learn_total("a", 24).await.unwrap(), Total::Known { all: false });
    let records = (1..=24).map(|number| {
        let ledger = Arc::clone(&ledgers[number as usize % 2]);
        tokio::spawn(async move { record(&ledger, "a", &part(number, "x")).await })
    });
    let (mut counts, mut alls) = (BTreeSet::new(), 0);
    for answer in records.collect::<Vec<_>>() {
        let RecordPart::Durable { durable, all, .. } = answer.await.unwrap() else { panic!() };
        counts.insert(durable);
        alls += u32::from(all);
    }
    assert_eq!(counts, (1..=24).collect(), "each saw a count of its own");
    assert_eq!(alls, 1, "exactly the last one was told that all are there");
    // If whoever was told dies, a sweep finds the upload at once.
    let due = ledgers[1].due(None, 10).await.unwrap();
    assert_eq!(due.iter().map(|due| due.errand).collect::<Vec<_>>(), [Errand::Complete]);
}

async fn a_total_that_disagrees_is_refused(database: Database) {
    let ledger = database.ledger().await;
    opened(&ledger, "a").await;
    assert!(matches!(record(&ledger, "a", &part(5, "x")).await, RecordPart::Durable { .. }));
    assert_eq!(ledger.learn_total("a", 4).await.unwrap(), Total::Differs { total: 5 });
    assert_eq!(ledger.learn_total("a", 6).await.unwrap(), Total::Known { all: false });
    assert_eq!(ledger.learn_total("a", 6).await.unwrap(), Total::Known { all: false });
    assert_eq!(ledger.learn_total("a", 7).await.unwrap(), Total::Differs { total: 6 });
    // As many as the highest number says, but not all of them.
    assert!(matches!(record(&ledger, "a", &part(6, "x")).await, RecordPart::Durable { all: false, .. }));
    let error = ledger.record_part("a", "multi-a", &part(7, "x")).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Never);
    assert_eq!(ledger.learn_total("none", 1).await.unwrap(), Total::Unknown);
}

async fn only_one_of_many_claims_is_ours(database: Database) {
    let ledgers = [Arc::new(database.ledger().await), Arc::new(database.ledger().await)];
    opened(&ledgers[0], "a").await;
    let not_yet = ledgers[0].begin_completion("a", "w", LEASE).await.unwrap();
    assert_eq!(not_yet, Claim::NotYet { durable: 0, total: None });
    whole(&ledgers[0], "b").await;
    let claims = (0..16).map(|n| {
        let ledger = Arc::clone(&ledgers[n % 2]);
        tokio::spawn(async move {
            let owner = format!("w{n}");
            (owner.clone(), ledger.begin_completion("b", &owner, LEASE).await.unwrap())
        })
    });
    let (mut ours, mut holders) = (Vec::new(), BTreeSet::new());
    for claim in claims.collect::<Vec<_>>() {
        match claim.await.unwrap() {
            (owner, Claim::Ours(..)) => ours.push(owner),
            (_, Claim::Taken { owner, .. }) => drop(holders.insert(owner)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ours.len(), 1, "{ours:?}");
    assert_eq!(holders.into_iter().collect::<Vec<_>>(), ours);
    // Its answer may have been lost: it asks again and has the same fence.
    assert_eq!(claimed(&ledgers[1], "b", &ours[0]).await.number(), 1);
}

async fn a_former_owner_moves_nothing(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    let old = claimed(&ledger, "a", "first").await;
    database.advance(LEASE.saturating_sub(Duration::from_millis(1)));
    assert!(matches!(ledger.begin_completion("a", "second", LEASE).await.unwrap(), Claim::Taken { .. }));
    database.advance(Duration::from_millis(1));
    let new = claimed(&ledger, "a", "second").await;
    assert!(new.number() > old.number());

    let stopped = |moved| assert_eq!(lost(moved).owner, "second");
    for _ in 0..2 {
        stopped(ledger.renew(&old, LEASE).await.unwrap());
        stopped(ledger.release(&old, LEASE, "").await.unwrap());
        stopped(ledger.proved(&old, "\"wrong\"", 1).await.unwrap());
        stopped(ledger.fail("a", Some(&old), "stale").await.unwrap());
        stopped(ledger.rescue(&old).await.unwrap());
        stopped(ledger.ended(&old, HOUR).await.unwrap());
    }
    held(ledger.proved(&new, "\"right\"", 20).await.unwrap());
    stopped(ledger.recorded(&old, "topic").await.unwrap());
    held(ledger.recorded(&new, "topic").await.unwrap());
    stopped(ledger.announced(&old).await.unwrap());
    held(ledger.announced(&new).await.unwrap());
    stopped(ledger.finished(&old, HOUR).await.unwrap());
    held(ledger.finished(&new, HOUR).await.unwrap());
    let node = ledger.node("node-a").await.unwrap().unwrap();
    assert_eq!((node.s3_etag.as_deref(), node.size), (Some("\"right\""), Some(20)));
}

async fn tables_are_made_once_and_newer_ones_refused(database: Database) {
    let (url, options) = (database.url(), database.options());
    let opens = (0..8).map(|_| {
        let (url, options) = (url.clone(), options.clone());
        tokio::spawn(async move { Ledger::open(&url, &options).await.map(drop) })
    });
    for open in opens.collect::<Vec<_>>() {
        open.await.unwrap().unwrap();
    }
    let ledger = database.ledger().await;
    opened(&ledger, "a").await;
    let again = database.ledger().await;
    assert!(again.find("a").await.unwrap().is_some(), "what was there stays");
    again.ping().await.unwrap();

    run(&database, "INSERT INTO quaymaster_upload_schema (version) VALUES (99)").await;
    let error = Ledger::open(&url, &options).await.unwrap_err();
    assert_eq!((error.trouble(), error.said()), (Trouble::Never, Some("newer")), "{error}");
    for wrong in ["sqlite::memory:", "sqlite:", "mysql://x", "nothing", "postgres://host:port/x"] {
        let error = Ledger::open(wrong, &LedgerOptions::default()).await.unwrap_err();
        assert_eq!(error.trouble(), Trouble::Never, "{wrong}");
    }
}

async fn keys_of_an_older_build_get_their_prefix_once(database: Database) {
    let ledger = database.ledger().await;
    for id in ["a", "b", "c"] {
        opened(&ledger, id).await;
    }
    // `b` is of another resource, `c` is written by this build.
    run(&database, "UPDATE quaymaster_uploads SET bare_key = 1 WHERE upload_id <> 'c'").await;
    run(&database, "UPDATE quaymaster_uploads SET resource = 'pictures' WHERE upload_id = 'b'").await;
    let bare = ledger.bare_keys("documents", "", 10).await.unwrap();
    assert_eq!(bare.iter().map(|upload| upload.upload_id.as_str()).collect::<Vec<_>>(), ["a"]);
    for changed in [1, 0] {
        assert_eq!(ledger.prefix_keys("documents", "files/").await.unwrap(), changed);
        assert_eq!(ledger.bare_keys("documents", "", 10).await.unwrap(), []);
    }
    for (id, prefix) in [("a", "files/"), ("b", ""), ("c", "")] {
        let key = format!("{prefix}connectors/default/node-{id}.pb");
        assert_eq!(ledger.find(id).await.unwrap().unwrap().object_key, key);
        let node = ledger.node(&format!("node-{id}")).await.unwrap().unwrap();
        assert_eq!(node.s3_key, Some(key));
    }
}

async fn a_history_tells_every_move(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    claimed(&ledger, "a", "first").await;
    database.advance(LEASE);
    complete(&ledger, &claimed(&ledger, "a", "second").await).await;
    let history = ledger.history("a").await.unwrap();
    let told: Vec<_> = history.iter().map(|line| (line.what.as_str(), line.owner.as_str())).collect();
    assert_eq!(
        told,
        [
            ("created", ""),
            ("opened", ""),
            ("completing", "first"),
            ("taken over", "second"),
            ("proved", "second"),
            ("recorded", "second"),
            ("announced", "second"),
            ("done", "second"),
        ]
    );
}

/// One statement of another program's.
async fn run(database: &Database, sql: &'static str) {
    use sqlx::{ConnectOptions as _, Executor as _};
    match &database.server {
        Server::Postgres(server) => drop(server.ask(sql)),
        Server::Sqlite(folder) => {
            let options = sqlx::sqlite::SqliteConnectOptions::new()
                .filename(folder.path().join("ledger.db"))
                .create_if_missing(true);
            options.connect().await.unwrap().execute(sqlx::raw_sql(sql)).await.unwrap();
        }
    }
}
