//! The table of documents, `nodes` unless told otherwise: its statements, made for the columns that are there.
//!
//! The table may be another program's: under another name, with other names of columns, without some of them, and on
//! PostgreSQL with other types. Names come from settings: they are checked ([`NodeTable::check`]) and quoted. Types come
//! from the database's own catalogue.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::connection::{Arg, Cell, Session};
use super::facts::{NewNode, Node, Upload};
use super::rows::stored;
use crate::{Error, Result, Trouble};

/// The longest identifier that PostgreSQL does not cut.
const NAME_MAX: usize = 63;

macro_rules! columns {
    ($($column:ident $name:literal $holds:ident,)*) => {
        /// A column of the table of documents.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        enum Column {
            $($column),*
        }

        impl Column {
            const ALL: &'static [Self] = &[$(Self::$column),*];

            /// As documented.
            const fn name(self) -> &'static str {
                match self { $(Self::$column => $name),* }
            }

            const fn holds(self) -> Holds {
                match self { $(Self::$column => Holds::$holds),* }
            }
        }
    };
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Text,
    Number,
    /// Milliseconds since the epoch, or a timestamp of the database's.
    Moment,
}

columns! {
    NodeId "node_id" Text,
    Status "status" Text,
    S3Key "s3_key" Text,
    S3Etag "s3_etag" Text,
    Size "size" Number,
    Drive "drive" Text,
    Name "name" Text,
    MimeType "mime_type" Text,
    ConnectorId "connector_id" Text,
    ParentId "parent_id" Text,
    Path "path" Text,
    CustomMetadata "custom_metadata" Text,
    ClientNodeId "client_node_id" Text,
    CreatedAt "created_at" Moment,
    UpdatedAt "updated_at" Moment,
}

/// Without these no end of an upload can be written.
const NEEDED: [Column; 4] = [Column::NodeId, Column::Status, Column::S3Etag, Column::Size];

/// What is said of an existing row by whoever begins an upload for it.
const SAID: [Column; 8] = [
    Column::Drive,
    Column::Name,
    Column::MimeType,
    Column::ConnectorId,
    Column::ParentId,
    Column::Path,
    Column::CustomMetadata,
    Column::ClientNodeId,
];

/// The table of documents as settings name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeTable {
    /// Its name, on PostgreSQL with a schema before a dot if need be; `None` for `nodes`, which is made where it is not
    /// there.
    pub table: Option<String>,
    /// Names of columns by their documented names. One that is named must be there.
    pub columns: BTreeMap<String, String>,
}

impl NodeTable {
    /// The documented names of the columns.
    pub fn columns() -> impl Iterator<Item = &'static str> {
        Column::ALL.iter().map(|column| column.name())
    }

    /// Why the name of a table or a column is not usable; `None` when it is.
    pub fn refuse(name: &str) -> Option<&'static str> {
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
        let fits = (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain);
        (!fits).then_some("must be 1 to 63 letters, digits and `_`")
    }

    fn check(&self) -> Result<()> {
        let wrong = |what: &str, why: &str| {
            Err(Error::new("ledger.open", Trouble::Never, format!("nodes: {what:?} {why}")).saying("nodes"))
        };
        for part in self.table.iter().flat_map(|table| table.splitn(2, '.')) {
            if let Some(why) = Self::refuse(part) {
                return wrong(part, why);
            }
        }
        for (column, name) in &self.columns {
            if !Self::columns().any(|known| known == column) {
                return wrong(column, "is no column that uploads know");
            }
            if let Some(why) = Self::refuse(name) {
                return wrong(name, why);
            }
        }
        Ok(())
    }

    fn table(&self) -> &str {
        self.table.as_deref().unwrap_or("nodes")
    }

    /// Quoted.
    fn quoted(&self) -> String {
        self.table().split('.').map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join(".")
    }

    fn name(&self, column: Column) -> &str {
        self.columns.get(column.name()).map_or(column.name(), String::as_str)
    }
}

/// A statement, and the columns whose values it takes, in their order.
#[derive(Debug)]
struct Statement {
    sql: Arc<str>,
    takes: Vec<Column>,
}

/// The statements on the table of documents.
#[derive(Debug)]
pub(super) struct Nodes {
    insert: Statement,
    /// What an upload says of a row that is there: nothing of an object that it has.
    begin: Statement,
    active: Statement,
    ended: Statement,
    read: Statement,
    prefix: Statement,
}

/// Where a column is, and how values are written and read.
struct Written<'a> {
    names: &'a NodeTable,
    /// Types by column; empty on SQLite, which has none.
    types: BTreeMap<Column, String>,
    sqlite: bool,
}

impl Written<'_> {
    fn has(&self, column: Column) -> bool {
        self.types.contains_key(&column)
    }

    fn quoted(&self, column: Column) -> String {
        format!("\"{}\"", self.names.name(column))
    }

    /// A parameter as the column's type.
    fn value(&self, column: Column, at: usize) -> String {
        let Some(kind) = self.types.get(&column).filter(|_| !self.sqlite) else { return format!("${at}") };
        match column.holds() {
            Holds::Text => format!("CAST(CAST(${at} AS TEXT) AS {kind})"),
            Holds::Moment if kind.starts_with("timestamp") => {
                let moment = format!("to_timestamp(CAST(${at} AS BIGINT) / 1000.0)");
                let local = if kind.ends_with("with time zone") { "" } else { " AT TIME ZONE 'UTC'" };
                format!("CAST({moment}{local} AS {kind})")
            }
            Holds::Number | Holds::Moment => format!("CAST(CAST(${at} AS BIGINT) AS {kind})"),
        }
    }

    fn read(&self, column: Column) -> String {
        let name = self.quoted(column);
        match (self.types.get(&column), column.holds()) {
            (None, _) => "CAST(NULL AS TEXT)".to_owned(),
            (Some(_), Holds::Text) => format!("CAST({name} AS TEXT)"),
            (Some(kind), Holds::Moment) if !self.sqlite && kind.starts_with("timestamp") => {
                format!("CAST(extract(epoch FROM {name}) * 1000 AS BIGINT)")
            }
            (Some(_), Holds::Number | Holds::Moment) => format!("CAST({name} AS BIGINT)"),
        }
    }

    /// `UPDATE … SET … WHERE node_id = …`, with a value for each column that is there.
    fn update(&self, columns: &[Column], set: impl Fn(&str, &str, Column) -> String, and: &str) -> Statement {
        let mut takes = vec![Column::NodeId];
        let mut sql = format!("UPDATE {} SET ", self.names.quoted());
        for &column in columns.iter().filter(|column| self.has(**column)) {
            takes.push(column);
            let (name, value) = (self.quoted(column), self.value(column, takes.len()));
            let comma = if takes.len() > 2 { ", " } else { "" };
            let _ = write!(sql, "{comma}{name} = {}", set(&name, &value, column));
        }
        let _ =
            write!(sql, " WHERE {} = {}{and}", self.quoted(Column::NodeId), self.value(Column::NodeId, 1));
        Statement { sql: sql.into(), takes }
    }

    fn nodes(&self) -> Nodes {
        use Column::{NodeId, S3Etag, S3Key, Size, Status, UpdatedAt};
        let (table, status) = (self.names.quoted(), self.quoted(Status));
        let there: Vec<Column> = Column::ALL.iter().copied().filter(|column| self.has(*column)).collect();
        let names = there.iter().map(|column| self.quoted(*column)).collect::<Vec<_>>().join(", ");
        let values = there.iter().zip(1..).map(|(column, at)| self.value(*column, at));
        let insert = format!(
            "INSERT INTO {table} ({names}) VALUES ({}) ON CONFLICT DO NOTHING",
            values.collect::<Vec<_>>().join(", ")
        );
        let all = Column::ALL.iter().map(|column| self.read(*column)).collect::<Vec<_>>().join(", ");
        let read =
            format!("SELECT {all} FROM {table} WHERE {} = {}", self.quoted(NodeId), self.value(NodeId, 1));
        let begun: Vec<Column> = [Status, S3Key, Size, UpdatedAt].into_iter().chain(SAID).collect();
        let plain = |_: &str, value: &str, _: Column| value.to_owned();
        let key = self.quoted(S3Key);
        let prefix = if self.has(S3Key) {
            format!(
                "UPDATE {table} AS node SET {key} = CAST($2 AS TEXT) || CAST(node.{key} AS TEXT)
                WHERE CAST(node.{} AS TEXT) IN (SELECT ours.node_id FROM quaymaster_uploads AS ours
                WHERE ours.resource = $1 AND ours.bare_key = 1 AND ours.object_key = CAST(node.{key} AS TEXT))",
                self.quoted(NodeId)
            )
        } else {
            String::new()
        };
        Nodes {
            insert: Statement { sql: insert.into(), takes: there },
            begin: self.update(
                &begun,
                |name, value, column| match column {
                    Status | S3Key | Size => {
                        format!("CASE WHEN {status} = 'ACTIVE' THEN {name} ELSE {value} END")
                    }
                    UpdatedAt => value.to_owned(),
                    _ => format!("COALESCE({value}, {name})"),
                },
                "",
            ),
            active: self.update(&[Status, S3Key, S3Etag, Size, UpdatedAt], plain, ""),
            ended: self.update(&[Status, UpdatedAt], plain, &format!(" AND {status} <> 'ACTIVE'")),
            read: Statement { sql: read.into(), takes: vec![NodeId] },
            prefix: Statement { sql: prefix.into(), takes: Vec::new() },
        }
    }
}

impl Nodes {
    /// Of the table that is there, or why it cannot be used: then somebody changes it or the settings, and it can.
    pub(super) async fn of(session: &mut Session<'_>, names: &NodeTable) -> Result<Self> {
        names.check()?;
        let wrong = |why: &str| {
            let detail = format!(
                "the table {} {why}: change it, or name another table or its columns with `nodes` in [uploads.database]",
                names.table()
            );
            Err(Error::new("ledger.open", Trouble::Passing, detail).saying("nodes"))
        };
        let sqlite = session.is_sqlite();
        let (question, table) = if sqlite {
            ("SELECT name, type FROM pragma_table_info($1)", names.table().to_owned())
        } else {
            let catalogue = "SELECT CAST(attname AS TEXT), format_type(atttypid, -1) FROM pg_attribute
                WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";
            (catalogue, names.quoted())
        };
        let rows = session.fetch(question, &[Arg::Text(&table)]).await?;
        if rows.is_empty() {
            return wrong("is not there");
        }
        let found: BTreeMap<String, String> = rows.iter().map(|row| (row[0].text(), row[1].text())).collect();
        let mut types = BTreeMap::new();
        let mut missing = Vec::new();
        for &column in Column::ALL {
            // SQLite compares names without their case.
            let name = names.name(column);
            let kind =
                found.iter().find(|(other, _)| *other == name || sqlite && other.eq_ignore_ascii_case(name));
            match kind {
                Some((_, kind)) => drop(types.insert(column, kind.clone())),
                None if NEEDED.contains(&column) || names.columns.contains_key(column.name()) => {
                    missing.push(name);
                }
                None => {}
            }
        }
        if !missing.is_empty() {
            return wrong(&format!("has no column {}", missing.join(", ")));
        }
        Ok(Written { names, types, sqlite }.nodes())
    }
}

impl Session<'_> {
    async fn on_nodes<'a>(&mut self, sql: &Statement, value: impl Fn(Column) -> Arg<'a>) -> Result<u64> {
        let args: Vec<Arg<'a>> = sql.takes.iter().map(|column| value(*column)).collect();
        self.execute(AssertSqlSafe(Arc::clone(&sql.sql)), &args).await
    }

    /// The row of a new upload, PENDING: made, or said so of the one that is there. One that is ACTIVE keeps its status
    /// and its object until the new one is there.
    pub(super) async fn begin_node(
        &mut self,
        node: &NewNode,
        key: &str,
        size: Option<u64>,
        now_ms: i64,
    ) -> Result<()> {
        let value = |column| match column {
            Column::NodeId => Arg::Text(&node.node_id),
            Column::Status => Arg::Text("PENDING"),
            Column::S3Key => Arg::Text(key),
            Column::S3Etag => Arg::MaybeText(None),
            Column::Size => Arg::MaybeInt(size.map(stored)),
            Column::Drive => Arg::MaybeText(node.drive.as_deref()),
            Column::Name => Arg::MaybeText(node.name.as_deref()),
            Column::MimeType => Arg::MaybeText(node.mime_type.as_deref()),
            Column::ConnectorId => Arg::MaybeText(node.connector_id.as_deref()),
            Column::ParentId => Arg::MaybeText(node.parent_id.as_deref()),
            Column::Path => Arg::MaybeText(node.path.as_deref()),
            Column::CustomMetadata => Arg::MaybeText(node.custom_metadata.as_deref()),
            Column::ClientNodeId => Arg::MaybeText(node.client_node_id.as_deref()),
            Column::CreatedAt | Column::UpdatedAt => Arg::Int(now_ms),
        };
        let nodes = self.nodes()?;
        if self.on_nodes(&nodes.begin, &value).await? > 0 {
            return Ok(());
        }
        match self.on_nodes(&nodes.insert, &value).await {
            // Somebody else has made it in the very moment.
            Ok(0) => self.on_nodes(&nodes.begin, &value).await.map(drop),
            Ok(_) => Ok(()),
            Err(error) if error.trouble() == Trouble::Never => {
                let detail = format!(
                    "the table of documents takes no row of a new upload ({}): make the row first, and name it with \
                     node_id",
                    error.detail()
                );
                Err(Error::new("ledger", Trouble::Never, detail).saying("nodes").because(error))
            }
            Err(error) => Err(error),
        }
    }

    /// The node of an upload whose object is there; false when it is gone.
    pub(super) async fn activate_node(&mut self, upload: &Upload) -> Result<bool> {
        let value = |column| match column {
            Column::NodeId => Arg::Text(&upload.node_id),
            Column::Status => Arg::Text("ACTIVE"),
            Column::S3Key => Arg::Text(&upload.object_key),
            Column::S3Etag => Arg::MaybeText(upload.final_etag.as_deref()),
            Column::Size => Arg::MaybeInt(upload.final_size.map(stored)),
            _ => Arg::Int(upload.updated_ms),
        };
        let nodes = self.nodes()?;
        Ok(self.on_nodes(&nodes.active, value).await? > 0)
    }

    /// The node of an upload that ends without an object, or goes on after all; one that is ACTIVE stays so.
    pub(super) async fn mark_node(&mut self, upload: &Upload, status: &str) -> Result<()> {
        let value = |column| match column {
            Column::NodeId => Arg::Text(&upload.node_id),
            Column::Status => Arg::Text(status),
            _ => Arg::Int(upload.updated_ms),
        };
        let nodes = self.nodes()?;
        self.on_nodes(&nodes.ended, value).await.map(drop)
    }

    /// Puts `prefix` in front of the keys of nodes whose uploads have none yet.
    pub(super) async fn prefix_nodes(&mut self, resource: &str, prefix: &str) -> Result<()> {
        let nodes = self.nodes()?;
        if nodes.prefix.sql.is_empty() {
            return Ok(());
        }
        let args = [Arg::Text(resource), Arg::Text(prefix)];
        self.execute(AssertSqlSafe(Arc::clone(&nodes.prefix.sql)), &args).await.map(drop)
    }

    pub(super) async fn node(&mut self, node_id: &str) -> Result<Option<Node>> {
        let nodes = self.nodes()?;
        let sql = AssertSqlSafe(Arc::clone(&nodes.read.sql));
        let Some(row) = self.one(sql, &[Arg::Text(node_id)]).await? else { return Ok(None) };
        let text = |column: Column| row.get(column as usize).and_then(Cell::maybe_text);
        let number = |column: Column| row.get(column as usize).and_then(Cell::maybe_int);
        Ok(Some(Node {
            facts: NewNode {
                node_id: text(Column::NodeId).unwrap_or_default(),
                drive: text(Column::Drive),
                name: text(Column::Name),
                mime_type: text(Column::MimeType),
                connector_id: text(Column::ConnectorId),
                parent_id: text(Column::ParentId),
                path: text(Column::Path),
                custom_metadata: text(Column::CustomMetadata),
                client_node_id: text(Column::ClientNodeId),
            },
            status: text(Column::Status).unwrap_or_default(),
            s3_key: text(Column::S3Key),
            s3_etag: text(Column::S3Etag),
            size: number(Column::Size).and_then(|size| u64::try_from(size).ok()),
            created_ms: number(Column::CreatedAt).unwrap_or(0),
            updated_ms: number(Column::UpdatedAt).unwrap_or(0),
        }))
    }
}
