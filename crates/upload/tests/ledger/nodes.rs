//! Rows of documents: in a table of another program's, and whose they are.

use quaymaster_upload::Trouble;
use quaymaster_upload::ledger::{Claim, Created, Ledger, LedgerOptions, New, NodeTable, RecordPart, Total};

use crate::run;
use crate::support::databases::{
    Database, HOUR, LEASE, Server, claimed, complete, held, new, opened, part, record, whole,
};

pub(crate) async fn a_foreign_nodes_table_is_used_or_refused(database: Database) {
    // Nothing that is needed has another name, and one column is missing.
    run(&database, "CREATE TABLE nodes (node_id TEXT PRIMARY KEY, status TEXT, size BIGINT)").await;
    let refused = async |options: &LedgerOptions, word: &str| {
        let error = Ledger::open(&database.url(), options).await.unwrap_err();
        // Somebody may mend it while the server waits.
        assert_eq!((error.trouble(), error.said()), (Trouble::Passing, Some("nodes")), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    };
    refused(&database.options(), "s3_etag").await;
    run(&database, "ALTER TABLE nodes ADD COLUMN s3_etag TEXT").await;
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    complete(&ledger, &claimed(&ledger, "a", "w").await).await;
    let node = ledger.node("node-a").await.unwrap().unwrap();
    let seen = (node.status.as_str(), node.s3_etag.as_deref(), node.size, node.s3_key);
    assert_eq!(seen, ("ACTIVE", Some("\"whole\""), Some(20), None));

    // Another table, with names and types of its own.
    let (id, moment) = match database.server {
        Server::Sqlite(_) => ("TEXT", "BIGINT"),
        Server::Postgres(_) => ("UUID", "TIMESTAMP WITH TIME ZONE"),
    };
    let table = format!(
        "CREATE TABLE documents (id {id} PRIMARY KEY, state VARCHAR(20) NOT NULL, etag TEXT, bytes INTEGER,
         location TEXT, name TEXT, updated_at {moment}, owner TEXT NOT NULL)"
    );
    run(&database, Box::leak(table.into())).await;
    let columns = [("node_id", "id"), ("status", "state"), ("s3_etag", "etag"), ("size", "bytes")];
    let columns = columns.map(|(column, name)| (column.to_owned(), name.to_owned()));
    let mut options = database.options();
    options.nodes = NodeTable { table: Some("documents".to_owned()), columns: columns.into() };
    let named = |column: &str, name: &str| {
        let mut options = options.clone();
        options.nodes.columns.insert(column.to_owned(), name.to_owned());
        options
    };
    refused(&named("drive", "disk"), "disk").await;
    refused(
        &LedgerOptions {
            nodes: NodeTable { table: Some("papers".to_owned()), ..NodeTable::default() },
            ..database.options()
        },
        "papers",
    )
    .await;
    let error = Ledger::open(&database.url(), &named("s3_key", "x\" = ''; --")).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Never, "{error}");
    let ledger = Ledger::open(&database.url(), &named("s3_key", "location")).await.unwrap();

    // A row of that program's: updated, not made.
    let there = "550e8400-e29b-41d4-a716-446655440000";
    let of_node = |id: &str, node: &str| of(id, "documents", node);
    // It cannot be made either: `owner` is needed, and nobody said it.
    let error = ledger.create(&of_node("b", there)).await.unwrap_err();
    assert_eq!(error.said(), Some("nodes"), "{error}");
    assert!(ledger.find("b").await.unwrap().is_none());
    run(
        &database,
        "INSERT INTO documents (id, state, name, owner)
         VALUES ('550e8400-e29b-41d4-a716-446655440000', 'NEW', 'theirs.pdf', 'they')",
    )
    .await;
    let Created::Created(_) = ledger.create(&of_node("b", there)).await.unwrap() else { panic!("it is new") };
    let node = ledger.node(there).await.unwrap().unwrap();
    assert_eq!((node.status.as_str(), node.facts.name.as_deref()), ("PENDING", Some("a.pdf")));
    assert_eq!(node.s3_key.as_deref(), Some("connectors/default/node-b.pb"));
    assert_eq!(ledger.create(&of_node("c", there)).await.unwrap(), Created::NodeTaken);
    let Claim::Ours(fence, _) = ledger.abort("b", "w", LEASE).await.unwrap() else { panic!("it is ours") };
    held(ledger.ended(&fence, HOUR).await.unwrap());
    assert_eq!(ledger.node(there).await.unwrap().unwrap().status, "ABORTED");
    // Whoever called it off may begin anew.
    assert!(matches!(ledger.create(&of_node("c", there)).await.unwrap(), Created::Created(_)));
    held(ledger.opened("c", "multi-c").await.unwrap());
    for number in 1..=2 {
        assert!(matches!(
            record(&ledger, "c", &part(number, "same bytes")).await,
            RecordPart::Durable { .. }
        ));
    }
    assert_eq!(ledger.learn_total("c", 2).await.unwrap(), Total::Known { all: true });
    complete(&ledger, &claimed(&ledger, "c", "w").await).await;
    let node = ledger.node(there).await.unwrap().unwrap();
    let seen = (node.status.as_str(), node.s3_etag.as_deref(), node.size, node.updated_ms);
    let now_ms = database.clock.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(seen, ("ACTIVE", Some("\"whole\""), Some(20), now_ms));
    // One that has an object keeps it until the new one is there.
    run(&database, "DELETE FROM quaymaster_uploads").await;
    assert!(matches!(ledger.create(&of_node("d", there)).await.unwrap(), Created::Created(_)));
    let node = ledger.node(there).await.unwrap().unwrap();
    assert_eq!(
        (node.status.as_str(), node.s3_key.as_deref()),
        ("ACTIVE", Some("connectors/default/node-c.pb"))
    );
    held(ledger.fail("d", None, "by hand").await.unwrap());
    assert_eq!(ledger.node(there).await.unwrap().unwrap().status, "ACTIVE");
}

/// An upload of another resource or for another document than `id` says.
fn of(id: &str, resource: &str, node_id: &str) -> New {
    let mut request = new(id);
    resource.clone_into(&mut request.resource);
    node_id.clone_into(&mut request.node.node_id);
    request
}

async fn call_off(ledger: &Ledger, id: &str) {
    let Claim::Ours(fence, _) = ledger.abort(id, "w", LEASE).await.unwrap() else { panic!("it is ours") };
    held(ledger.ended(&fence, HOUR).await.unwrap());
}

pub(crate) async fn a_node_stays_with_its_resource(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    complete(&ledger, &claimed(&ledger, "a", "w").await).await;
    let node = ledger.node("node-a").await.unwrap();
    let theirs = of("b", "pictures", "node-a");
    assert_eq!(ledger.create(&theirs).await.unwrap(), Created::NodeTaken);
    // No upload is remembered any more; the document is there.
    database.advance(HOUR);
    held(ledger.forget("a").await.unwrap());
    assert_eq!(ledger.create(&theirs).await.unwrap(), Created::NodeTaken);
    assert_eq!(ledger.adopt(&theirs, "multi-b").await.unwrap(), Created::NodeTaken);
    assert_eq!(ledger.node("node-a").await.unwrap(), node);
    assert!(ledger.find("b").await.unwrap().is_none());
    assert!(matches!(ledger.create(&of("c", "documents", "node-a")).await.unwrap(), Created::Created(_)));

    // A row that no upload made is anybody's, and then of whoever came first, however that upload ends.
    let sql = "INSERT INTO nodes (node_id, status, created_at, updated_at) VALUES ('theirs', 'NEW', 1, 1)";
    run(&database, sql).await;
    assert!(matches!(ledger.create(&of("d", "pictures", "theirs")).await.unwrap(), Created::Created(_)));
    call_off(&ledger, "d").await;
    assert_eq!(ledger.create(&of("e", "documents", "theirs")).await.unwrap(), Created::NodeTaken);
    assert!(matches!(ledger.create(&of("e", "pictures", "theirs")).await.unwrap(), Created::Created(_)));
}

pub(crate) async fn a_node_of_an_older_server_that_ran_beside_stays_with_its_resource(database: Database) {
    let ledger = database.ledger().await;
    whole(&ledger, "a").await;
    complete(&ledger, &claimed(&ledger, "a", "w").await).await;
    run(&database, "DELETE FROM quaymaster_nodes").await;
    database.advance(HOUR);
    held(ledger.forget("a").await.unwrap());
    assert_eq!(ledger.create(&of("b", "pictures", "node-a")).await.unwrap(), Created::NodeTaken);
    assert!(matches!(ledger.create(&of("c", "documents", "node-a")).await.unwrap(), Created::Created(_)));
}

pub(crate) async fn nodes_of_an_older_build_stay_with_the_resource_of_their_object(database: Database) {
    let ledger = database.ledger().await;
    // The newest upload of the node was called off, and is another resource's.
    opened(&ledger, "a").await;
    database.advance(LEASE);
    assert!(matches!(ledger.create(&of("b", "pictures", "node-b")).await.unwrap(), Created::Created(_)));
    call_off(&ledger, "b").await;
    run(&database, "UPDATE quaymaster_uploads SET node_id = 'node-a' WHERE upload_id = 'b'").await;
    run(&database, "DROP TABLE quaymaster_nodes").await;
    run(&database, "DELETE FROM quaymaster_upload_schema WHERE version > 5").await;

    let ledger = database.ledger().await;
    call_off(&ledger, "a").await;
    assert_eq!(ledger.create(&of("c", "pictures", "node-a")).await.unwrap(), Created::NodeTaken);
    assert!(matches!(ledger.create(&of("c", "documents", "node-a")).await.unwrap(), Created::Created(_)));
    // Nobody knows of an upload for it.
    assert!(matches!(ledger.create(&of("d", "pictures", "node-b")).await.unwrap(), Created::Created(_)));
}
