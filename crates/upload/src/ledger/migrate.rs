//! The tables, version by version. A version is never changed once it is released: a new one follows it.

use std::time::Duration;

use super::connection::{Arg, Cell, Database, Session};
use super::nodes::{NodeTable, Nodes};
use crate::{Error, Result, Trouble};

const OP: &str = "ledger.open";

/// How long tables of an older version may take to be brought up to date: indexes of many rows take minutes.
pub const MIGRATION: Duration = Duration::from_secs(600);

/// Held while tables are made, by whoever is first.
const LOCK: i64 = 0x7175_6179_7570_6c64;

const VERSIONS: &[&[&str]] = &[FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH];

/// The newest version this build knows.
pub(super) const NEWEST: i64 = VERSIONS.len() as i64;

/// As documented; it may have been made by the program that reads it.
const NODES: &str = "CREATE TABLE IF NOT EXISTS nodes (
    node_id TEXT NOT NULL PRIMARY KEY,
    status TEXT NOT NULL,
    s3_key TEXT,
    s3_etag TEXT,
    size BIGINT,
    drive TEXT,
    name TEXT,
    mime_type TEXT,
    connector_id TEXT,
    parent_id TEXT,
    path TEXT,
    custom_metadata TEXT,
    client_node_id TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL)";

const FIRST: &[&str] = &[
    "CREATE TABLE quaymaster_uploads (
        upload_id TEXT NOT NULL PRIMARY KEY,
        resource TEXT NOT NULL,
        node_id TEXT NOT NULL,
        object_key TEXT NOT NULL,
        token TEXT NOT NULL,
        mime_type TEXT NOT NULL,
        idempotency_key TEXT,
        fingerprint TEXT NOT NULL,
        step TEXT NOT NULL,
        fence BIGINT NOT NULL,
        owner TEXT NOT NULL,
        lease_ms BIGINT NOT NULL,
        multipart_id TEXT,
        expected_size BIGINT,
        total_chunks BIGINT,
        final_etag TEXT,
        final_size BIGINT,
        error TEXT,
        deadline_ms BIGINT NOT NULL,
        due_ms BIGINT NOT NULL,
        created_ms BIGINT NOT NULL,
        updated_ms BIGINT NOT NULL)",
    "CREATE UNIQUE INDEX quaymaster_uploads_idempotency ON quaymaster_uploads (resource, idempotency_key)",
    "CREATE UNIQUE INDEX quaymaster_uploads_node ON quaymaster_uploads (node_id)",
    "CREATE INDEX quaymaster_uploads_due ON quaymaster_uploads (due_ms, upload_id)",
    "CREATE TABLE quaymaster_upload_parts (
        upload_id TEXT NOT NULL,
        part_number BIGINT NOT NULL,
        etag TEXT NOT NULL,
        size BIGINT NOT NULL,
        sha256 TEXT NOT NULL,
        PRIMARY KEY (upload_id, part_number))",
    "CREATE TABLE quaymaster_upload_events (
        upload_id TEXT NOT NULL,
        n BIGINT NOT NULL,
        at_ms BIGINT NOT NULL,
        step TEXT NOT NULL,
        fence BIGINT NOT NULL,
        owner TEXT NOT NULL,
        what TEXT NOT NULL,
        detail TEXT NOT NULL,
        PRIMARY KEY (upload_id, n))",
    "CREATE TABLE quaymaster_outbox (
        event_id TEXT NOT NULL PRIMARY KEY,
        seq BIGINT NOT NULL UNIQUE,
        upload_id TEXT NOT NULL UNIQUE,
        node_id TEXT NOT NULL,
        topic TEXT NOT NULL,
        payload TEXT NOT NULL,
        created_ms BIGINT NOT NULL,
        published_ms BIGINT)",
    "CREATE INDEX quaymaster_outbox_waiting ON quaymaster_outbox (seq) WHERE published_ms IS NULL",
    "CREATE TABLE quaymaster_outbox_last (seq BIGINT NOT NULL)",
    "INSERT INTO quaymaster_outbox_last (seq) VALUES (0)",
];

/// The doctor asks by key for every multipart upload that the object store lists.
const SECOND: &[&str] =
    &["CREATE INDEX quaymaster_uploads_object ON quaymaster_uploads (object_key, created_ms)"];

/// The failures that a dashboard shows; an upload that does not fail never enters it.
const THIRD: &[&str] = &[
    "CREATE INDEX quaymaster_uploads_failed ON quaymaster_uploads (resource, updated_ms) WHERE step = 'failed'",
];

/// SHA-256 or another: the text says which.
const FOURTH: &[&str] = &["ALTER TABLE quaymaster_upload_parts RENAME COLUMN sha256 TO digest"];

/// Rows written before have keys without the prefix of their object store; [`super::Ledger::prefix_keys`] gives it to
/// them.
const FIFTH: &[&str] = &[
    "ALTER TABLE quaymaster_uploads ADD COLUMN bare_key BIGINT NOT NULL DEFAULT 1",
    "CREATE INDEX quaymaster_uploads_bare ON quaymaster_uploads (resource, upload_id) WHERE bare_key = 1",
    // A node whose upload ended without an object may have another one.
    "DROP INDEX quaymaster_uploads_node",
    "CREATE UNIQUE INDEX quaymaster_uploads_node ON quaymaster_uploads (node_id)
        WHERE step NOT IN ('expired', 'aborted')",
];

/// Which resource a node belongs to, longer than its uploads are remembered. Of several uploads of a node the one that
/// goes on or has an object decides, else the newest.
const SIXTH: &[&str] = &[
    "CREATE TABLE quaymaster_nodes (node_id TEXT NOT NULL PRIMARY KEY, resource TEXT NOT NULL)",
    "INSERT INTO quaymaster_nodes (node_id, resource)
        SELECT node_id, resource FROM quaymaster_uploads WHERE TRUE
        ORDER BY CASE WHEN step IN ('expired', 'aborted') THEN 1 ELSE 0 END, created_ms DESC
        ON CONFLICT DO NOTHING",
];

impl Database {
    /// Brings the tables to the newest version; refuses those of a newer build. What is done with `nodes`, or why that
    /// table cannot be used.
    pub(super) async fn migrate(&self, names: &NodeTable) -> Result<Nodes> {
        if let Some(nodes) = self.bounded(OP, self.newest(names)).await? {
            return Ok(nodes);
        }
        self.bounded_by(MIGRATION, OP, self.make(names)).await
    }

    /// What is done with `nodes` if the tables are of the newest version.
    async fn newest(&self, names: &NodeTable) -> Result<Option<Nodes>> {
        let mut session = self.session().await?;
        // Whoever may only use tables finds those that somebody else made.
        let found = match version(&mut session).await {
            Ok(found) => found,
            // No such table: to PostgreSQL and to SQLite.
            Err(error) if matches!(error.said(), Some("42P01" | "1")) => 0,
            Err(error) => return Err(error),
        };
        refuse_newer(found)?;
        if found < NEWEST {
            return Ok(None);
        }
        let nodes = Nodes::of(&mut session, names).await?;
        session.done();
        Ok(Some(nodes))
    }

    async fn make(&self, names: &NodeTable) -> Result<Nodes> {
        let mut session = self.begin().await?;
        if !session.is_sqlite() {
            let longer = format!("SET LOCAL statement_timeout = {}", MIGRATION.as_millis());
            session.execute(sqlx::AssertSqlSafe(longer), &[]).await?;
            let lock = "SELECT 1::bigint FROM (SELECT pg_advisory_xact_lock($1)) AS taken";
            session.fetch(lock, &[Arg::Int(LOCK)]).await?;
        }
        session
            .execute("CREATE TABLE IF NOT EXISTS quaymaster_upload_schema (version BIGINT NOT NULL)", &[])
            .await?;
        // Somebody else may have been quicker.
        let found = version(&mut session).await?;
        refuse_newer(found)?;
        if found == 0 && names.table.is_none() {
            session.execute(NODES, &[]).await?;
        }
        for (statements, version) in VERSIONS.iter().zip(1..).skip(found as usize) {
            for &statement in *statements {
                session.execute(statement, &[]).await?;
            }
            session
                .execute("INSERT INTO quaymaster_upload_schema (version) VALUES ($1)", &[Arg::Int(version)])
                .await?;
            tracing::info!(version, "tables of uploads made");
        }
        // Beside a table that cannot be used none is left.
        let nodes = Nodes::of(&mut session, names).await?;
        session.commit().await?;
        Ok(nodes)
    }
}

async fn version(session: &mut Session<'_>) -> Result<i64> {
    let row = session
        .one("SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM quaymaster_upload_schema", &[])
        .await?;
    Ok(row.and_then(|row| row.first().map(Cell::int)).unwrap_or(0))
}

fn refuse_newer(found: i64) -> Result<()> {
    if found <= NEWEST {
        return Ok(());
    }
    let detail = format!(
        "the tables are of version {found}, this build knows {NEWEST}: a newer build uses this database"
    );
    Err(Error::new(OP, Trouble::Never, detail).saying("newer"))
}
