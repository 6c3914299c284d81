//! Connections to SQLite or PostgreSQL, and one transaction on them.

use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Executor as _, Row as _};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{DatabaseOptions, wrong};
use crate::{Code, Error, Result};

/// No call on the database takes longer, connecting included.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);
/// Connections to PostgreSQL. SQLite has one writer, and so one connection.
const CONNECTIONS: usize = 8;
/// How often old rows are removed.
const PURGE_EVERY: Duration = Duration::from_secs(15);
/// Held while tables are made or cleaned.
const HOUSEKEEPING: i64 = 0x7175_6179_6d61_7374;

const TABLES: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS quaymaster_outage (
        store TEXT NOT NULL,
        store_key TEXT NOT NULL,
        slot BIGINT NOT NULL,
        limit_name TEXT NOT NULL,
        request TEXT NOT NULL,
        bucket_ms BIGINT NOT NULL,
        units BIGINT NOT NULL,
        tat_us BIGINT NOT NULL,
        tat_part BIGINT NOT NULL,
        carried BIGINT NOT NULL,
        sending BIGINT NOT NULL,
        batch BIGINT NOT NULL,
        generation TEXT NOT NULL,
        past_ms BIGINT NOT NULL,
        PRIMARY KEY (store, store_key, slot))",
    "CREATE INDEX IF NOT EXISTS quaymaster_outage_past ON quaymaster_outage (past_ms)",
    "CREATE TABLE IF NOT EXISTS quaymaster_outage_requests (
        store TEXT NOT NULL,
        request TEXT NOT NULL,
        answer TEXT NOT NULL,
        past_ms BIGINT NOT NULL,
        PRIMARY KEY (store, request))",
];

/// Before a file that somebody else is making is opened again.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Where it is.
#[derive(Clone)]
pub(super) enum Target {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

impl Target {
    pub(super) fn from_url(url: &str) -> Result<Self> {
        // A URL is not repeated in a message: there may be a password in it.
        match url.split_once(':') {
            Some(("sqlite", file)) if file.contains(":memory:") || file.trim_matches('/').is_empty() => {
                Err(wrong("sqlite: wants a file; nodes could not share one in memory"))
            }
            Some(("sqlite", _)) => {
                let options =
                    SqliteConnectOptions::from_str(url).map_err(|error| wrong(&error).because(error))?;
                let options = options
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    // A power cut may forget the last counts, never the file. A killed process forgets nothing.
                    .synchronous(SqliteSynchronous::Normal)
                    .busy_timeout(DEADLINE);
                Ok(Self::Sqlite(Box::new(options.disable_statement_logging())))
            }
            Some(("postgres" | "postgresql", _)) => {
                let options =
                    PgConnectOptions::from_str(url).map_err(|_| wrong("not a usable postgres:// URL"))?;
                Ok(Self::Postgres(Box::new(
                    options.application_name("quaymaster").disable_statement_logging(),
                )))
            }
            _ => Err(wrong("is sqlite:FILE or postgres://user:password@host/database")),
        }
    }
}

/// The database; connects when it is first needed.
pub(crate) struct Database {
    target: Target,
    store: String,
    idle: Mutex<Vec<Connection>>,
    places: Semaphore,
    /// Calls counted by this process, and how many of them are known to be in the store.
    counted: AtomicU64,
    cleaned: AtomicU64,
    purged: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("waiting", &self.is_waiting()).finish_non_exhaustive()
    }
}

enum Connection {
    Sqlite(Box<SqliteConnection>),
    Postgres(Box<PgConnection>),
}

/// A parameter.
#[derive(Clone, Copy)]
pub(super) enum Arg<'a> {
    Int(i64),
    Text(&'a str),
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
        if let Self::Int(value) = self { *value } else { 0 }
    }

    pub(super) fn as_int(&self) -> Arg<'static> {
        Arg::Int(self.int())
    }

    pub(super) fn text(&self) -> &str {
        if let Self::Text(value) = self { value } else { "" }
    }
}

/// A connection in use. Given back by [`Session::done`]; dropped otherwise, and with it whatever was begun on it.
pub(super) struct Session<'d> {
    database: &'d Database,
    connection: Connection,
    _place: SemaphorePermit<'d>,
}

/// Runs with the deadline every call on the database has.
pub(super) async fn bounded<T>(op: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(DEADLINE, work).await.unwrap_or_else(|_| {
        let detail = format!("the database said nothing for {} ms", DEADLINE.as_millis());
        Err(Error::new(op, Code::StoreTimedOut, detail))
    })
}

fn failed(error: sqlx::Error) -> Error {
    Error::new("database", Code::StoreRefused, format!("the database: {error}")).because(error)
}

/// Opens the file. Whoever finds it new switches it to its log, and SQLite tells a second one who does so at that moment
/// that it is busy, whatever the timeout: that one comes again, until the call's deadline.
async fn open_file(options: &SqliteConnectOptions) -> Result<SqliteConnection> {
    loop {
        match options.connect().await {
            Err(error) if is_busy(&error) => tokio::time::sleep(BUSY_PAUSE).await,
            opened => return opened.map_err(failed),
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
    pub(crate) fn new(options: DatabaseOptions) -> Self {
        let places = match options.target {
            Target::Sqlite(_) => 1,
            Target::Postgres(_) => CONNECTIONS,
        };
        Self {
            target: options.target,
            store: options.store,
            idle: Mutex::default(),
            places: Semaphore::new(places),
            counted: AtomicU64::new(0),
            cleaned: AtomicU64::new(0),
            purged: Mutex::default(),
        }
    }

    /// Whether this process counted anything here that may not be in the store.
    pub(crate) fn is_waiting(&self) -> bool {
        self.counted() != self.cleaned.load(SeqCst)
    }

    /// Whose rows are ours.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// Calls counted so far.
    pub(in crate::outage) fn counted(&self) -> u64 {
        self.counted.load(SeqCst)
    }

    /// Whether the store knew everything before.
    pub(super) fn count_one(&self) -> bool {
        self.counted.fetch_add(1, SeqCst) == self.cleaned.load(SeqCst)
    }

    /// The first `counted` calls are in the store.
    pub(in crate::outage) fn clean(&self, counted: u64) {
        self.cleaned.fetch_max(counted, SeqCst);
    }

    /// A connection, with the tables there.
    pub(super) async fn session(&self) -> Result<Session<'_>> {
        let place = self.places.acquire().await.map_err(|_| {
            Error::new("database", Code::StoreRefused, "the database's connections were closed")
        })?;
        let idle = self.idle.lock().pop();
        if let Some(connection) = idle {
            return Ok(Session { database: self, connection, _place: place });
        }
        let connection = match &self.target {
            Target::Sqlite(options) => Connection::Sqlite(Box::new(open_file(options).await?)),
            Target::Postgres(options) => {
                Connection::Postgres(Box::new(options.connect().await.map_err(failed)?))
            }
        };
        let mut session = Session { database: self, connection, _place: place };
        session.make_tables().await?;
        Ok(session)
    }

    pub(super) fn purge_is_due(&self) -> bool {
        let mut purged = self.purged.lock();
        let due = purged.is_none_or(|at| at.elapsed() >= PURGE_EVERY);
        if due {
            *purged = Some(Instant::now());
        }
        due
    }

    /// Forgets connections nobody uses: a database that was restarted has closed them.
    pub(super) fn forget_idle(&self) {
        self.idle.lock().clear();
    }
}

impl<'d> Session<'d> {
    /// Whose rows are ours.
    pub(super) fn store(&self) -> &'d str {
        &self.database.store
    }

    /// Whoever may only use tables finds those that somebody else made.
    async fn make_tables(&mut self) -> Result<()> {
        const THERE: &str = "SELECT store FROM quaymaster_outage_requests WHERE past_ms < 0";
        if self.fetch(THERE, &[]).await.is_ok() {
            return Ok(());
        }
        self.begin(HOUSEKEEPING).await?;
        for table in TABLES {
            self.execute(table, &[]).await?;
        }
        self.execute("COMMIT", &[]).await.map(drop)
    }

    /// Begins a transaction; nobody else is in one with the same lock until it ends.
    pub(super) async fn begin(&mut self, lock: i64) -> Result<()> {
        match self.connection {
            // The whole file is the lock.
            Connection::Sqlite(_) => self.execute("BEGIN IMMEDIATE", &[]).await.map(drop),
            Connection::Postgres(_) => {
                self.execute("BEGIN", &[]).await?;
                self.fetch(
                    "SELECT 1::bigint FROM (SELECT pg_advisory_xact_lock($1)) AS taken",
                    &[Arg::Int(lock)],
                )
                .await
                .map(drop)
            }
        }
    }

    /// The clock that everybody who counts here goes by, in microseconds.
    pub(super) async fn now_us(&mut self) -> Result<i64> {
        match self.connection {
            // A file is shared by processes of one machine.
            Connection::Sqlite(_) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Ok(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
            }
            Connection::Postgres(_) => {
                let sql = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)";
                let rows = self.fetch(sql, &[]).await?;
                Ok(rows.first().and_then(|row| row.first()).map_or(0, Cell::int))
            }
        }
    }

    pub(super) async fn commit(mut self) -> Result<()> {
        self.execute("COMMIT", &[]).await?;
        self.done();
        Ok(())
    }

    /// Ends a transaction that wrote nothing.
    pub(super) async fn roll_back(mut self) -> Result<()> {
        self.execute("ROLLBACK", &[]).await?;
        self.done();
        Ok(())
    }

    /// Gives the connection back; it must not be in a transaction.
    pub(super) fn done(self) {
        let Self { database, connection, .. } = self;
        database.idle.lock().push(connection);
    }

    /// Runs a statement; how many rows it changed.
    pub(super) async fn execute(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<u64> {
        macro_rules! run {
            ($connection:expr) => {{
                // Without parameters by the simple protocol: a statement that is prepared cannot begin a transaction.
                if args.is_empty() {
                    $connection.execute(sqlx::raw_sql(sql)).await.map(|done| done.rows_affected())
                } else {
                    let mut query = sqlx::query(sql);
                    for arg in args {
                        query = match *arg {
                            Arg::Int(value) => query.bind(value),
                            Arg::Text(value) => query.bind(value.to_owned()),
                        };
                    }
                    query.execute(&mut **$connection).await.map(|done| done.rows_affected())
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
    pub(super) async fn fetch(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<Vec<Cell>>> {
        macro_rules! run {
            ($connection:expr) => {{
                let mut query = sqlx::query(sql);
                for arg in args {
                    query = match *arg {
                        Arg::Int(value) => query.bind(value),
                        Arg::Text(value) => query.bind(value.to_owned()),
                    };
                }
                let rows = query.fetch_all(&mut **$connection).await.map_err(failed)?;
                let cells = rows.iter().map(|row| {
                    (0..row.len())
                        .map(|column| match row.try_get::<Option<i64>, _>(column) {
                            Ok(value) => Ok(value.map_or(Cell::Null, Cell::Int)),
                            Err(_) => {
                                let value = row.try_get::<Option<String>, _>(column).map_err(failed)?;
                                Ok(value.map_or(Cell::Null, Cell::Text))
                            }
                        })
                        .collect::<Result<Vec<Cell>>>()
                });
                cells.collect::<Result<Vec<_>>>()
            }};
        }
        match &mut self.connection {
            Connection::Sqlite(connection) => run!(connection),
            Connection::Postgres(connection) => run!(connection),
        }
    }

    /// Begins a transaction to clean up in.
    pub(super) async fn begin_housekeeping(&mut self) -> Result<()> {
        self.begin(HOUSEKEEPING).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_is_wrong_names_its_field_and_keeps_its_cause() {
        let Err(error) = Target::from_url("sqlite:counts.db?mode=often") else {
            panic!("there is no such mode")
        };
        assert_eq!((error.code, error.field.as_deref()), (Code::ConfigInvalid, Some("database")));
        assert!(error.source.is_some_and(|cause| cause.is::<sqlx::Error>()));
    }
}
