//! Limits counted in SQL while the store is away, so that all nodes still share them.
//!
//! One row per key and window. A call is judged and counted in one transaction that nobody else of the same
//! limit is in: on SQLite `BEGIN IMMEDIATE`, on PostgreSQL an advisory lock. The database's clock decides.
//!
//! Rows stay until their window is over, also after the store knows of them: a link that comes and goes does not
//! hand out the limit again and again.

#[cfg(feature = "sql")]
mod connection;
#[cfg(feature = "sql")]
mod count;
#[cfg(not(feature = "sql"))]
mod none;
#[cfg(feature = "sql")]
mod rows;

use std::fmt;

use quaymaster_schema::{Bucket, LimitSpec};

#[cfg(feature = "sql")]
pub(crate) use connection::Database;
#[cfg(not(feature = "sql"))]
pub(crate) use none::Database;

use super::carry::Place;
use super::pending::Taken;
use crate::limit::Verb;
use crate::{Code, Error, Result};

/// Which database counts while the store is away.
#[derive(Clone)]
pub struct DatabaseOptions {
    #[cfg(feature = "sql")]
    target: connection::Target,
    /// Whose rows are counted and brought back: those of this store.
    #[cfg(feature = "sql")]
    store: String,
}

/// The store of options that name none.
#[cfg(feature = "sql")]
const DEFAULT_STORE: &str = "default";

impl DatabaseOptions {
    /// Reads `sqlite:FILE` or `postgres://user:password@host/database`.
    pub fn from_url(url: &str) -> Result<Self> {
        #[cfg(feature = "sql")]
        return connection::Target::from_url(url)
            .map(|target| Self { target, store: DEFAULT_STORE.to_owned() });
        #[cfg(not(feature = "sql"))]
        return Err(wrong(format!(
            "this build has no SQL (cargo feature `sql`), so {} bytes of URL help nobody",
            url.len()
        )));
    }

    /// The store whose counts these are, by a name that all nodes on it give: nodes of another store may use the same
    /// database and never see them. Only a digest of it is written. `default` when nobody says.
    ///
    /// Nodes of one store that give different names do not count together.
    #[must_use]
    #[cfg_attr(not(feature = "sql"), expect(unused_mut, reason = "there is no database to tell"))]
    pub fn for_store(mut self, name: &str) -> Self {
        #[cfg(feature = "sql")]
        {
            use std::fmt::Write as _;
            let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
            self.store = digest.as_ref().iter().take(16).fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
        }
        #[cfg(not(feature = "sql"))]
        let _ = name;
        self
    }
}

fn wrong(detail: impl fmt::Display) -> Error {
    Error::new("database.open", Code::ConfigInvalid, format!("database: {detail}")).field("database")
}

/// Never shows the password.
impl fmt::Debug for DatabaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseOptions(…)")
    }
}

/// The limit's key at a time of the database's: the bucket in it too.
pub(crate) type Spell<'a> = &'a (dyn Fn(i64) -> Result<(String, Option<Bucket>)> + Send + Sync);

/// A call to be judged and counted.
#[cfg_attr(not(feature = "sql"), expect(dead_code, reason = "nobody counts without SQL"))]
pub(crate) struct Counting<'a> {
    pub(crate) op: &'static str,
    pub(crate) verb: Verb,
    pub(crate) limit: &'a str,
    pub(crate) spec: &'a LimitSpec,
    pub(crate) units: u64,
    /// The key under which request ids are kept, without the id: the same for every bucket of a key.
    pub(crate) request: &'a str,
    pub(crate) request_id: Option<&'a str>,
    pub(crate) spell: Spell<'a>,
}

/// A row on its way to the store.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "sql"), expect(dead_code, reason = "there are no rows without SQL"))]
pub(crate) struct Uncounted {
    pub(super) place: Place,
    pub(super) taken: Taken,
    /// Recognised by the store; the same for everybody who finds the row like this.
    pub(super) id: String,
    row_slot: i64,
    generation: String,
    batch: i64,
}

/// A place among the rows: key and slot.
pub(super) type Position = (String, i64);
