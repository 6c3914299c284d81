//! Payments in SQL, where the money is: every effect happens once and no stale holder writes.
//!
//! Guards keep callers apart, but a claim can expire under a gateway that is slow, paused or dead, and another
//! gateway then runs the same operation. So each operation is one transaction that
//! - finds what an earlier run of it left, and answers from that;
//! - raises the row's fence to its own, also when it has nothing else to write, and ends where the row has seen a
//!   higher one;
//! - is not committed once its lease is known to have ended.
//!
//! Two fences a row: creating holds `lock.process`, everything later holds `lock.update`; numbers of different locks
//! are not comparable.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::str::FromStr as _;
use std::time::{Duration, Instant};

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Row as _, Sqlite, Transaction};

use crate::hold::{Hold, Point};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS payments (
    transaction_id     TEXT PRIMARY KEY,
    psp_transaction_id TEXT NOT NULL UNIQUE,
    psp_id             TEXT NOT NULL,
    merchant_provider  TEXT NOT NULL,
    qr_tx_id           TEXT NOT NULL,
    amount             INTEGER NOT NULL CHECK (amount > 0),
    status             INTEGER NOT NULL,
    create_fence       INTEGER NOT NULL,
    fence              INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS payments_by_qr ON payments (merchant_provider, qr_tx_id);
CREATE TABLE IF NOT EXISTS journal (
    entry          INTEGER PRIMARY KEY,
    transaction_id TEXT NOT NULL REFERENCES payments,
    operation      TEXT NOT NULL,
    status         INTEGER NOT NULL,
    outcome        TEXT NOT NULL CHECK (outcome IN ('done', 'found')),
    fence          INTEGER,
    at             TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS journal_by_transaction ON journal (transaction_id, operation, status);
CREATE TABLE IF NOT EXISTS psps (
    psp_id       TEXT PRIMARY KEY,
    token_sha256 TEXT NOT NULL
) STRICT;
";

/// How long a writer waits for another process's transaction.
const BUSY: Duration = Duration::from_secs(5);

/// Where a payment stands; the numbers are what `update` is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Created,
    Executed,
    Success,
    Failed,
    Refunded,
}

impl Status {
    const ALL: [Status; 5] =
        [Status::Created, Status::Executed, Status::Success, Status::Failed, Status::Refunded];

    pub(crate) fn number(self) -> i64 {
        match self {
            Status::Created => 10,
            Status::Executed => 30,
            Status::Success => 50,
            Status::Failed => 60,
            Status::Refunded => 70,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Created => "CREATED",
            Status::Executed => "EXECUTED",
            Status::Success => "SUCCESS",
            Status::Failed => "FAILED",
            Status::Refunded => "REFUNDED",
        }
    }

    pub(crate) fn of(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.number() == number)
    }

    /// From where a payment may come here; the second repeats the first where there is only one.
    fn may_follow(self) -> Option<[Status; 2]> {
        match self {
            Status::Created => None,
            Status::Executed => Some([Status::Created; 2]),
            Status::Success => Some([Status::Executed; 2]),
            Status::Failed => Some([Status::Created, Status::Executed]),
            Status::Refunded => Some([Status::Success; 2]),
        }
    }
}

/// What a create asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewPayment<'a> {
    pub(crate) psp_transaction_id: &'a str,
    pub(crate) psp_id: &'a str,
    pub(crate) merchant_provider: &'a str,
    pub(crate) qr_tx_id: &'a str,
    pub(crate) amount: i64,
}

/// The lease that an operation writes under.
#[derive(Clone, Copy)]
pub(crate) struct Lease<'a> {
    /// Its fence; `None` where an outage policy answered in the store's place.
    pub(crate) fence: Option<u64>,
    /// Whether it is known to have ended.
    pub(crate) is_lost: &'a (dyn Fn() -> bool + Sync),
}

/// A row of `payments`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payment {
    pub(crate) transaction_id: String,
    pub(crate) psp_transaction_id: String,
    pub(crate) psp_id: String,
    pub(crate) merchant_provider: String,
    pub(crate) qr_tx_id: String,
    pub(crate) amount: i64,
    pub(crate) status: Status,
    create_fence: i64,
    fence: i64,
}

/// An operation that is done: the payment, and when it was done first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) payment: Payment,
    pub(crate) at: String,
}

/// What became of a write.
#[must_use = "a write may have been refused"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is done, by this run or by an earlier one: the answer is the same.
    Done(Done),
    /// A holder with a higher fence was here: nothing was written.
    Stale { ours: i64, theirs: i64 },
    /// The lease ended before the write: nothing was written.
    Lost,
    /// There is no such payment of this PSP.
    Missing,
    /// The payment stands where this cannot follow: nothing was written.
    Refused(Status),
    /// The id belongs to a payment with other content: nothing was written.
    Other,
}

/// The tables, in a file that any number of gateways share.
#[derive(Debug, Clone)]
pub(crate) struct Payments {
    pool: SqlitePool,
    hold: Hold,
}

type Result<T> = std::result::Result<T, sqlx::Error>;

/// Whoever finds the file new switches it to its log, and SQLite tells a second gateway that does so at that moment
/// that it is busy, whatever the timeout: it comes again.
async fn open_file(options: SqliteConnectOptions) -> Result<SqlitePool> {
    let begun = Instant::now();
    loop {
        let opened = SqlitePoolOptions::new().max_connections(4).connect_with(options.clone()).await;
        match opened {
            Err(error) if is_busy(&error) && begun.elapsed() < BUSY => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            opened => return opened,
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|refusal| refusal.code()?.parse::<u32>().ok());
    // SQLITE_BUSY; the upper bits say why.
    code.is_some_and(|code| code & 0xff == 5)
}

impl Payments {
    /// Opens `sqlite:FILE`, creating what is missing.
    pub(crate) async fn open(url: &str, hold: Hold) -> Result<Self> {
        let options = SqliteConnectOptions::from_str(url)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // An acknowledged payment survives a power cut; under NORMAL the last commits may not.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY);
        if let Some(folder) = Path::new(options.get_filename()).parent() {
            std::fs::create_dir_all(folder).map_err(sqlx::Error::Io)?;
        }
        let pool = open_file(options).await?;
        let payments = Self { pool, hold };
        let mut tx = payments.write().await?;
        sqlx::raw_sql(TABLES).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(payments)
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    /// The write lock is taken at once: a transaction that reads first could not be upgraded when another process
    /// has written meanwhile.
    async fn write(&self) -> Result<Transaction<'static, Sqlite>> {
        self.pool.begin_with("BEGIN IMMEDIATE").await
    }

    /// Inserts the payment under `transaction_id`, or finds the one that an earlier run inserted.
    pub(crate) async fn create(
        &self,
        new: NewPayment<'_>,
        transaction_id: &str,
        lease: Lease<'_>,
    ) -> Result<Written> {
        let fence = lease.fence.map(signed);
        let mut tx = self.write().await?;
        let inserted = sqlx::query(
            "INSERT INTO payments (transaction_id, psp_transaction_id, psp_id, merchant_provider, qr_tx_id, amount,
                                   status, create_fence, fence)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce(?8, 0), 0)
             ON CONFLICT (psp_transaction_id) DO NOTHING",
        )
        .bind(transaction_id)
        .bind(new.psp_transaction_id)
        .bind(new.psp_id)
        .bind(new.merchant_provider)
        .bind(new.qr_tx_id)
        .bind(new.amount)
        .bind(Status::Created.number())
        .bind(fence)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        let Some(payment) = by_psp_transaction(&mut tx, new.psp_transaction_id).await? else {
            return Ok(Written::Missing);
        };
        if inserted == 0 {
            let raised = sqlx::query(
                "UPDATE payments SET create_fence = coalesce(?2, create_fence)
                 WHERE transaction_id = ?1 AND create_fence <= coalesce(?2, create_fence)",
            )
            .bind(&payment.transaction_id)
            .bind(fence)
            .execute(&mut *tx)
            .await?
            .rows_affected();
            if raised == 0 {
                return Ok(stale(fence, payment.create_fence));
            }
            let same = payment.psp_id == new.psp_id
                && payment.merchant_provider == new.merchant_provider
                && payment.qr_tx_id == new.qr_tx_id
                && payment.amount == new.amount;
            if !same {
                tx.commit().await?;
                return Ok(Written::Other);
            }
        }
        self.settle(tx, payment, "create", Status::Created, inserted > 0, lease).await
    }

    /// Moves a payment of `psp_id` to `to`, or finds that an earlier run of the same operation did.
    pub(crate) async fn advance(
        &self,
        operation: &'static str,
        psp_id: &str,
        transaction_id: &str,
        to: Status,
        lease: Lease<'_>,
    ) -> Result<Written> {
        let fence = lease.fence.map(signed);
        let Some([from, or_from]) = to.may_follow() else { return Ok(Written::Refused(to)) };
        let mut tx = self.write().await?;
        // Before anything else: a holder that finds the work done shuts out earlier holders as one that does it.
        let raised = sqlx::query(
            "UPDATE payments SET fence = coalesce(?3, fence)
             WHERE transaction_id = ?1 AND psp_id = ?2 AND fence <= coalesce(?3, fence)",
        )
        .bind(transaction_id)
        .bind(psp_id)
        .bind(fence)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        let row = by_transaction(&mut tx, transaction_id).await?;
        let Some(mut payment) = row.filter(|payment| payment.psp_id == psp_id) else {
            return Ok(Written::Missing);
        };
        if raised == 0 {
            return Ok(stale(fence, payment.fence));
        }
        let moves = [from, or_from].contains(&payment.status);
        if moves {
            payment.status = to;
            sqlx::query("UPDATE payments SET status = ?2 WHERE transaction_id = ?1")
                .bind(transaction_id)
                .bind(to.number())
                .execute(&mut *tx)
                .await?;
        } else if done_at(&mut tx, transaction_id, operation, to).await?.is_none() {
            tx.commit().await?;
            return Ok(Written::Refused(payment.status));
        }
        self.settle(tx, payment, operation, to, moves, lease).await
    }

    /// Notes what this run did, and commits unless the lease has ended meanwhile.
    async fn settle(
        &self,
        mut tx: Transaction<'static, Sqlite>,
        payment: Payment,
        operation: &'static str,
        status: Status,
        changed: bool,
        lease: Lease<'_>,
    ) -> Result<Written> {
        let now = crate::answer::now();
        sqlx::query(
            "INSERT INTO journal (transaction_id, operation, status, outcome, fence, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .bind(&payment.transaction_id)
        .bind(operation)
        .bind(status.number())
        .bind(if changed { "done" } else { "found" })
        .bind(lease.fence.map(signed))
        .bind(&now)
        .execute(&mut *tx)
        .await?;
        // When it was done first: every later run gives the same answer.
        let at = done_at(&mut tx, &payment.transaction_id, operation, status).await?.unwrap_or(now);
        self.hold.at(operation, Point::Writing).await;
        if (lease.is_lost)() {
            return Ok(Written::Lost);
        }
        tx.commit().await?;
        self.hold.at(operation, Point::Committed).await;
        Ok(Written::Done(Done { payment, at }))
    }

    /// What an operation left, if it is done.
    pub(crate) async fn done(
        &self,
        operation: &'static str,
        transaction_id: &str,
        status: Status,
    ) -> Result<Option<Done>> {
        let mut tx = self.pool.begin().await?;
        let Some(payment) = by_transaction(&mut tx, transaction_id).await? else { return Ok(None) };
        let at = done_at(&mut tx, transaction_id, operation, status).await?;
        Ok(at.map(|at| Done { payment, at }))
    }

    /// What a create left, if it is done.
    pub(crate) async fn created(&self, psp_transaction_id: &str) -> Result<Option<Done>> {
        let mut tx = self.pool.begin().await?;
        let Some(payment) = by_psp_transaction(&mut tx, psp_transaction_id).await? else { return Ok(None) };
        let at = done_at(&mut tx, &payment.transaction_id, "create", Status::Created).await?;
        Ok(at.map(|at| Done { payment, at }))
    }

    /// The payment of this id.
    pub(crate) async fn payment(&self, transaction_id: &str) -> Result<Option<Payment>> {
        let row = sqlx::query("SELECT * FROM payments WHERE transaction_id = ?1")
            .bind(transaction_id)
            .fetch_optional(&self.pool)
            .await?;
        row.map(payment_of).transpose()
    }

    /// Whether the merchant's code has been paid or is being paid.
    pub(crate) async fn is_taken(&self, merchant_provider: &str, qr_tx_id: &str) -> Result<bool> {
        let row = sqlx::query(
            "SELECT 1 FROM payments WHERE merchant_provider = ?1 AND qr_tx_id = ?2 AND status IN (?3, ?4) LIMIT 1",
        )
        .bind(merchant_provider)
        .bind(qr_tx_id)
        .bind(Status::Executed.number())
        .bind(Status::Success.number())
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.is_some())
    }

    /// Lets a PSP in with this token from now on.
    pub(crate) async fn register(&self, psp_id: &str, token_sha256: &str) -> Result<()> {
        sqlx::query(
            "INSERT INTO psps (psp_id, token_sha256) VALUES (?1, ?2)
             ON CONFLICT (psp_id) DO UPDATE SET token_sha256 = excluded.token_sha256",
        )
        .bind(psp_id)
        .bind(token_sha256)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The digest of a PSP's token.
    pub(crate) async fn token_sha256(&self, psp_id: &str) -> Result<Option<String>> {
        let row = sqlx::query("SELECT token_sha256 FROM psps WHERE psp_id = ?1")
            .bind(psp_id)
            .fetch_optional(&self.pool)
            .await?;
        row.map(|row| row.try_get(0)).transpose()
    }

    /// Whether any PSP is registered: then every call needs a token.
    pub(crate) async fn has_psps(&self) -> Result<bool> {
        Ok(sqlx::query("SELECT 1 FROM psps LIMIT 1").fetch_optional(&self.pool).await?.is_some())
    }
}

async fn by_transaction(tx: &mut Transaction<'static, Sqlite>, id: &str) -> Result<Option<Payment>> {
    let query = sqlx::query("SELECT * FROM payments WHERE transaction_id = ?1").bind(id);
    query.fetch_optional(&mut **tx).await?.map(payment_of).transpose()
}

async fn by_psp_transaction(tx: &mut Transaction<'static, Sqlite>, id: &str) -> Result<Option<Payment>> {
    let query = sqlx::query("SELECT * FROM payments WHERE psp_transaction_id = ?1").bind(id);
    query.fetch_optional(&mut **tx).await?.map(payment_of).transpose()
}

async fn done_at(
    tx: &mut Transaction<'static, Sqlite>,
    transaction_id: &str,
    operation: &str,
    status: Status,
) -> Result<Option<String>> {
    let row = sqlx::query(
        "SELECT at FROM journal WHERE transaction_id = ?1 AND operation = ?2 AND status = ?3 AND outcome = 'done'
         ORDER BY entry LIMIT 1",
    )
    .bind(transaction_id)
    .bind(operation)
    .bind(status.number())
    .fetch_optional(&mut **tx)
    .await?;
    row.map(|row| row.try_get(0)).transpose()
}

fn payment_of(row: sqlx::sqlite::SqliteRow) -> Result<Payment> {
    let number: i64 = row.try_get("status")?;
    let status = Status::of(number)
        .ok_or_else(|| sqlx::Error::Decode(format!("payments.status {number} is no status").into()))?;
    Ok(Payment {
        transaction_id: row.try_get("transaction_id")?,
        psp_transaction_id: row.try_get("psp_transaction_id")?,
        psp_id: row.try_get("psp_id")?,
        merchant_provider: row.try_get("merchant_provider")?,
        qr_tx_id: row.try_get("qr_tx_id")?,
        amount: row.try_get("amount")?,
        status,
        create_fence: row.try_get("create_fence")?,
        fence: row.try_get("fence")?,
    })
}

fn stale(ours: Option<i64>, theirs: i64) -> Written {
    Written::Stale { ours: ours.unwrap_or(0), theirs }
}

/// Fences are microseconds since the epoch at most a little ahead of the clock: far below 2^63.
fn signed(fence: u64) -> i64 {
    i64::try_from(fence).unwrap_or(i64::MAX)
}
