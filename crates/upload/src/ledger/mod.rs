//! The ledger: the truth of everything durable about uploads, in SQLite or PostgreSQL.
//!
//! ```text
//! created ── open ── completing ── proved ── recorded ── announced ── done ── (forgotten)
//!    │        │  ↖________│  reopen   │ │ nodes row and outbox row
//!    │        ├── failed ─┴───────────┘ │ in one transaction
//!    └────────┴── expiring ── expired ── (forgotten)
//!             └── aborting ── aborted ── (forgotten)
//! ```
//!
//! - Every move locks the upload's row, decides, and writes only if step and fence are what the caller said: a loser
//!   is told what is there now. A call that is repeated by the same hand gets the same answer.
//! - An owned step (`completing` … `announced`, `expiring`, `aborting`) belongs to one owner until its lease ends by
//!   the database's clock. Whoever takes it over gets a higher fence, and the former owner can move nothing.
//! - `due_ms` says when somebody should look: the deadline of an open upload, the end of a lease, the end of the
//!   time a finished one is kept, and at once when the last part was recorded. So one indexed question finds
//!   everything a sweep has to do.
//! - A row tells when it was written, `updated_ms`. One that was written later than now was written before the clock
//!   was set back: its lease, its deadline and `due_ms` are moved back by as much, whenever it is locked and by
//!   [`Ledger::follow_clock`]. So none of them is ever further away than it was declared to be.
//! - Outbox numbers are handed out under a row lock that ends with the commit, so they become visible in order and
//!   a reader that asks for what came after the last it saw misses nothing.
//!
//! The owner's name must be unique to the attempt (a process id is not enough): by it a claim whose answer was lost
//! is recognised when it is repeated.

mod begin;
mod connection;
mod create;
mod end;
mod facts;
mod keys;
mod migrate;
mod nodes;
mod outbox;
mod parts;
mod progress;
mod rows;
mod sweep;
mod tally;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

pub use facts::{
    Claim, Created, Due, Errand, Event, Fence, Happening, Moved, New, NewNode, Node, Part, RecordPart,
    Reopen, Sending, Step, Total, Upload,
};
pub use migrate::MIGRATION;
pub use nodes::NodeTable;
pub use outbox::Pruned;
pub use progress::NODE_GONE;
pub use tally::{Failure, Tally};

use connection::Database;
use parking_lot::Mutex;

use crate::Result;

/// Whether a commit waits for the disk (SQLite; PostgreSQL has its own setting).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// What was acknowledged survives a power cut.
    #[default]
    Always,
    /// It survives a killed process only.
    Never,
}

/// Whose clock leases and deadlines go by.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The database's: all nodes agree, whatever their own clocks say.
    #[default]
    Database,
    /// Milliseconds since the epoch that a test moves by hand.
    Held(Arc<AtomicI64>),
}

/// How the database is used.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// No call takes longer, waiting for a connection included; to bring old tables up to date may take [`MIGRATION`].
    pub deadline: Duration,
    /// Connections to PostgreSQL. SQLite has one writer and one connection.
    pub connections: usize,
    /// Whether a commit waits for the disk.
    pub sync: Sync,
    /// Whose clock decides.
    pub clock: Clock,
    /// Where the rows of documents are.
    pub nodes: NodeTable,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            connections: 8,
            sync: Sync::default(),
            clock: Clock::default(),
            nodes: NodeTable::default(),
        }
    }
}

/// The ledger of one database. Cheap to share behind an [`Arc`].
pub struct Ledger {
    database: Database,
    /// What the clock showed when somebody last looked whether it was set back, and when that was.
    seen: Mutex<Option<(i64, Instant)>>,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("sqlite", &self.database.is_sqlite()).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Connects to `sqlite:FILE` or `postgres://user:password@host/database` and brings its tables up to date.
    ///
    /// Any number of processes may do so at once. Tables of a newer build are refused with [`crate::Trouble::Never`]. A
    /// table of documents that lacks something is refused until somebody changes it.
    pub async fn open(url: &str, options: &LedgerOptions) -> Result<Self> {
        let database = Database::new(url, options)?;
        let nodes = database.migrate(&options.nodes).await?;
        Ok(Self { database: database.with_nodes(nodes), seen: Mutex::default() })
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        self.database
            .bounded("ledger.ping", async {
                let mut session = self.database.session().await?;
                session.one("SELECT seq FROM quaymaster_outbox_last", &[]).await?;
                session.done();
                Ok(())
            })
            .await
    }
}
