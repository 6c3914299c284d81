//! Connections to SQLite or PostgreSQL, and one transaction on them.
//!
//! Few and our own: one that failed or timed out is dropped with whatever was begun on it. What the driver keeps while
//! it talks is large, and boxed: many wait for a connection for each one that has it.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, Row as _, SqlSafeStr};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::nodes::Nodes;
use super::{Clock, LedgerOptions, Sync};
use crate::{Error, Result, Trouble};

/// A connection that rested this long is asked whether it lives before it is trusted with a call.
const RESTED: Duration = Duration::from_secs(1);

/// Before a file that somebody else is making is opened again.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Where it is.
#[derive(Clone)]
enum Target {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

impl Target {
    fn from_url(url: &str, options: &LedgerOptions) -> Result<Self> {
        // A URL is not repeated in a message: there may be a password in it.
        let wrong = |detail: &str| Error::new("ledger.open", Trouble::Never, format!("database: {detail}"));
        match url.split_once(':') {
            Some(("sqlite", file)) if file.contains(":memory:") || file.trim_matches('/').is_empty() => {
                Err(wrong("sqlite: wants a file; nothing in memory outlives a crash"))
            }
            Some(("sqlite", _)) => {
                let parsed =
                    SqliteConnectOptions::from_str(url).map_err(|error| wrong(&error.to_string()))?;
                let synchronous = match options.sync {
                    Sync::Always => SqliteSynchronous::Full,
                    Sync::Never => SqliteSynchronous::Off,
                };
                let parsed = parsed
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(synchronous)
                    .busy_timeout(options.deadline);
                Ok(Self::Sqlite(Box::new(parsed.disable_statement_logging())))
            }
            Some(("postgres" | "postgresql", _)) => {
                let parsed =
                    PgConnectOptions::from_str(url).map_err(|_| wrong("not a usable postgres:// URL"))?;
                Ok(Self::Postgres(Box::new(
                    parsed.application_name("quaymaster-upload").disable_statement_logging(),
                )))
            }
            _ => Err(wrong("is sqlite:FILE or postgres://user:password@host/database")),
        }
    }
}

/// The database.
pub(super) struct Database {
    target: Target,
    deadline: Duration,
    clock: Clock,
    /// Known once the tables are up to date.
    nodes: Option<Arc<Nodes>>,
    idle: Mutex<Vec<(Connection, Instant)>>,
    places: Semaphore,
}

enum Connection {
    Sqlite(Box<SqliteConnection>),
    Postgres(Box<PgConnection>),
}

/// A parameter.
#[derive(Debug, Clone)]
pub(super) enum Arg<'a> {
    Int(i64),
    Text(&'a str),
    MaybeInt(Option<i64>),
    MaybeText(Option<&'a str>),
}

/// A column of an answer.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    Null,
    Int(i64),
    Text(String),
}

impl Cell {
    pub(super) fn int(&self) -> i64 {
        self.maybe_int().unwrap_or(0)
    }

    pub(super) fn maybe_int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.int()).unwrap_or(0)
    }

    pub(super) fn text(&self) -> String {
        self.maybe_text().unwrap_or_default()
    }

    pub(super) fn maybe_text(&self) -> Option<String> {
        if let Self::Text(value) = self { Some(value.clone()) } else { None }
    }
}

pub(super) type Cells = Vec<Cell>;

macro_rules! bind {
    ($query:expr, $args:expr) => {{
        let mut query = $query;
        for arg in $args {
            query = match arg {
                Arg::Int(value) => query.bind(*value),
                Arg::Text(value) => query.bind((*value).to_owned()),
                Arg::MaybeInt(value) => query.bind(*value),
                Arg::MaybeText(value) => query.bind(value.map(str::to_owned)),
            };
        }
        query
    }};
}

/// A connection in use. Given back by [`Session::done`]; dropped otherwise, and with it whatever was begun on it.
pub(super) struct Session<'d> {
    database: &'d Database,
    connection: Connection,
    /// The time that came with a row, so that it need not be asked for again.
    pub(super) told_ms: Option<i64>,
    _place: SemaphorePermit<'d>,
}

/// The time of PostgreSQL in milliseconds, in SQL.
macro_rules! postgres_ms {
    () => {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
    };
}
pub(super) use postgres_ms;

/// Opens the file. Whoever finds it new switches it to its log, and SQLite tells a second one who does so at that moment
/// that it is busy, whatever the timeout: that one comes again, until the call's deadline.
async fn open_file(options: &SqliteConnectOptions) -> Result<SqliteConnection> {
    loop {
        match options.connect().await {
            Err(error) if is_busy(&error) => tokio::time::sleep(BUSY_PAUSE).await,
            opened => {
                // SQLite says only that it cannot.
                return opened.map_err(|error| {
                    let (refused, file) = (failed(error), options.get_filename().display());
                    let named =
                        Error::new("ledger", refused.trouble(), format!("{}: {file}", refused.detail()));
                    named.saying(refused.said().unwrap_or("sqlite").to_owned()).because(refused)
                });
            }
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    const BUSY: u32 = 5;
    let code = error.as_database_error().and_then(|refusal| refusal.code()?.parse::<u32>().ok());
    // The upper bits say why.
    code.is_some_and(|code| code & 0xff == BUSY)
}

impl Database {
    pub(super) fn new(url: &str, options: &LedgerOptions) -> Result<Self> {
        let target = Target::from_url(url, options)?;
        // SQLite has one writer, and so one connection.
        let places = match target {
            Target::Sqlite(_) => 1,
            Target::Postgres(_) => options.connections.max(1),
        };
        Ok(Self {
            target,
            deadline: options.deadline,
            clock: options.clock.clone(),
            nodes: None,
            idle: Mutex::default(),
            places: Semaphore::new(places),
        })
    }

    pub(super) fn with_nodes(self, nodes: Nodes) -> Self {
        Self { nodes: Some(Arc::new(nodes)), ..self }
    }

    pub(super) fn is_sqlite(&self) -> bool {
        matches!(self.target, Target::Sqlite(_))
    }

    /// Runs with the deadline every call on the database has.
    pub(super) async fn bounded<T>(
        &self,
        op: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.bounded_by(self.deadline, op, work).await
    }

    /// Runs with a deadline of its own.
    pub(super) async fn bounded_by<T>(
        &self,
        deadline: Duration,
        op: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let done = tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| {
            let detail = format!("the database said nothing for {} ms", deadline.as_millis());
            Err(Error::new(op, Trouble::Passing, detail).saying("timeout"))
        });
        done.map_err(|error| {
            // A database that was restarted has closed the others too.
            self.idle.lock().clear();
            error.during(op)
        })
    }

    /// A connection.
    pub(super) async fn session(&self) -> Result<Session<'_>> {
        let place = self.places.acquire().await.map_err(|_| {
            Error::new("ledger", Trouble::Passing, "the connections to the database were closed")
        })?;
        while let Some((mut connection, since)) = self.take_idle() {
            if since.elapsed() < RESTED || connection.lives().await {
                return Ok(Session { database: self, connection, told_ms: None, _place: place });
            }
        }
        let connection = match &self.target {
            Target::Sqlite(options) => Connection::Sqlite(Box::new(Box::pin(open_file(options)).await?)),
            Target::Postgres(options) => {
                Connection::Postgres(Box::new(Box::pin(options.connect()).await.map_err(failed)?))
            }
        };
        let mut session = Session { database: self, connection, told_ms: None, _place: place };
        session.agree().await?;
        Ok(session)
    }

    fn take_idle(&self) -> Option<(Connection, Instant)> {
        self.idle.lock().pop()
    }

    /// A transaction that writes. On SQLite nobody else writes until it ends; on PostgreSQL its first statement
    /// locks the rows it is about.
    pub(super) async fn begin(&self) -> Result<Session<'_>> {
        let mut session = self.session().await?;
        // Whatever the database's default is: under a stricter one whoever waits for a row is refused it.
        let begin = if self.is_sqlite() { "BEGIN IMMEDIATE" } else { "BEGIN ISOLATION LEVEL READ COMMITTED" };
        session.execute(begin, &[]).await?;
        Ok(session)
    }
}

impl Connection {
    async fn lives(&mut self) -> bool {
        match self {
            // A file does not hang up.
            Self::Sqlite(_) => true,
            Self::Postgres(connection) => Box::pin(connection.ping()).await.is_ok(),
        }
    }
}

impl Session<'_> {
    /// What a new connection must keep to: a node that is cut off in a transaction must not hold its locks for ever.
    async fn agree(&mut self) -> Result<()> {
        if self.database.is_sqlite() {
            return Ok(());
        }
        self.execute("SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '30s'", &[])
            .await
            .map(drop)
    }

    pub(super) fn is_sqlite(&self) -> bool {
        self.database.is_sqlite()
    }

    /// The statements on the table of documents.
    pub(super) fn nodes(&self) -> Result<Arc<Nodes>> {
        self.database.nodes.clone().ok_or_else(|| {
            Error::new("ledger", Trouble::Passing, "the table of documents was not looked at yet")
        })
    }

    /// The clock that everybody goes by, in milliseconds: the database's.
    pub(super) async fn now_ms(&mut self) -> Result<i64> {
        if let Clock::Held(now) = &self.database.clock {
            return Ok(now.load(std::sync::atomic::Ordering::SeqCst));
        }
        if let Some(told_ms) = self.told_ms {
            return Ok(told_ms);
        }
        match self.connection {
            // A file is shared by processes of one machine.
            Connection::Sqlite(_) => Ok(jiff::Timestamp::now().as_millisecond()),
            Connection::Postgres(_) => {
                let rows = self.fetch(concat!("SELECT ", postgres_ms!()), &[]).await?;
                Ok(rows.first().and_then(|row| row.first()).map_or(0, Cell::int))
            }
        }
    }

    pub(super) async fn commit(mut self) -> Result<()> {
        self.execute("COMMIT", &[]).await?;
        self.done();
        Ok(())
    }

    /// Ends a transaction that is to leave nothing.
    pub(super) async fn roll_back(mut self) -> Result<()> {
        self.execute("ROLLBACK", &[]).await?;
        self.done();
        Ok(())
    }

    /// Gives the connection back; it must not be in a transaction.
    pub(super) fn done(self) {
        let Self { database, connection, .. } = self;
        database.idle.lock().push((connection, Instant::now()));
    }

    /// Runs a statement; how many rows it changed.
    pub(super) async fn execute(&mut self, sql: impl SqlSafeStr, args: &[Arg<'_>]) -> Result<u64> {
        let sql = sql.into_sql_str();
        macro_rules! run {
            ($connection:expr) => {{
                // Without parameters by the simple protocol: a statement that is prepared cannot begin a transaction.
                if args.is_empty() {
                    Box::pin($connection.execute(sqlx::raw_sql(sql))).await.map(|done| done.rows_affected())
                } else {
                    let query = bind!(sqlx::query(sql), args);
                    Box::pin(query.execute(&mut **$connection)).await.map(|done| done.rows_affected())
                }
            }};
        }
        let changed = match &mut self.connection {
            Connection::Sqlite(connection) => run!(connection),
            Connection::Postgres(connection) => run!(connection),
        };
        changed.map_err(failed)
    }

    /// Runs a question.
    pub(super) async fn fetch(&mut self, sql: impl SqlSafeStr, args: &[Arg<'_>]) -> Result<Vec<Cells>> {
        let sql = sql.into_sql_str();
        macro_rules! run {
            ($connection:expr) => {{
                let query = bind!(sqlx::query(sql), args);
                let rows = Box::pin(query.fetch_all(&mut **$connection)).await.map_err(failed)?;
                let cells = rows.iter().map(|row| {
                    (0..row.len())
                        .map(|column| match row.try_get::<Option<i64>, _>(column) {
                            Ok(value) => Ok(value.map_or(Cell::Null, Cell::Int)),
                            Err(_) => {
                                let value = row.try_get::<Option<String>, _>(column).map_err(failed)?;
                                Ok(value.map_or(Cell::Null, Cell::Text))
                            }
                        })
                        .collect::<Result<Cells>>()
                });
                cells.collect::<Result<Vec<_>>>()
            }};
        }
        match &mut self.connection {
            Connection::Sqlite(connection) => run!(connection),
            Connection::Postgres(connection) => run!(connection),
        }
    }

    /// The only row of an answer, if there is one.
    pub(super) async fn one(&mut self, sql: impl SqlSafeStr, args: &[Arg<'_>]) -> Result<Option<Cells>> {
        Ok(self.fetch(sql, args).await?.into_iter().next())
    }
}

/// What a database's failure means for the caller, by the database's own code.
fn failed(error: sqlx::Error) -> Error {
    let code = match &error {
        sqlx::Error::Database(refusal) => refusal.code().map(|code| code.into_owned()),
        _ => None,
    };
    let trouble = match (&error, code.as_deref()) {
        (sqlx::Error::Configuration(_) | sqlx::Error::ColumnDecode { .. }, _) => Trouble::Never,
        (_, Some(code)) if code.len() == 5 => postgres_trouble(code),
        (_, Some(code)) => sqlite_trouble(code),
        _ => Trouble::Passing,
    };
    let failure = Error::new("ledger", trouble, format!("the database: {error}"));
    match code {
        Some(code) => failure.saying(code).because(error),
        None => failure.because(error),
    }
}

/// By SQLSTATE: disk full; authorization and privileges; then the classes of connections, rollbacks, resources, locks,
/// interventions and system errors.
fn postgres_trouble(code: &str) -> Trouble {
    match code {
        "53100" => Trouble::Full,
        "28000" | "28P01" | "42501" | "25006" => Trouble::Credentials,
        _ if ["08", "40", "53", "55", "57", "58"].iter().any(|class| code.starts_with(class)) => {
            Trouble::Passing
        }
        _ => Trouble::Never,
    }
}

/// By primary result code: the low byte of the extended one.
fn sqlite_trouble(code: &str) -> Trouble {
    const ERROR: u32 = 1;
    const PERM: u32 = 3;
    const READONLY: u32 = 8;
    const CORRUPT: u32 = 11;
    const FULL: u32 = 13;
    const CONSTRAINT: u32 = 19;
    const AUTH: u32 = 23;
    const NOT_A_DATABASE: u32 = 26;
    match code.parse::<u32>().unwrap_or(0) & 0xff {
        FULL => Trouble::Full,
        PERM | READONLY | AUTH => Trouble::Credentials,
        ERROR | CORRUPT | CONSTRAINT | NOT_A_DATABASE => Trouble::Never,
        _ => Trouble::Passing,
    }
}
