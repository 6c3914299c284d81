//! How many uploads there are and which have failed, for whoever watches.

use super::Ledger;
use super::connection::{Arg, Cell};
use super::facts::Step;
use crate::Result;

/// The uploads of a resource, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// How many stand at each step.
    pub by_step: Vec<(Step, u64)>,
    /// There are more than were counted.
    pub more: bool,
    /// The last that have failed, the newest first.
    pub failures: Vec<Failure>,
}

/// An upload that was given up, for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which.
    pub upload_id: String,
    /// Of which node.
    pub node_id: String,
    /// Why.
    pub reason: String,
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
}

/// More are not counted: whoever watches must not cost those who upload.
const COUNTED: u32 = 10_000;

const BY_STEP: &str = "SELECT step, COUNT(*) FROM
    (SELECT step FROM quaymaster_uploads WHERE resource = $1 LIMIT $2) AS counted GROUP BY step";
/// By an index of its own, which holds nothing else.
const FAILED: &str = "SELECT upload_id, node_id, error, updated_ms FROM quaymaster_uploads
    WHERE resource = $1 AND step = 'failed' ORDER BY updated_ms DESC LIMIT $2";

impl Ledger {
    /// Uploads of a resource by step, as far as they are counted, and its last failures, the newest first.
    pub async fn tally(&self, resource: &str, failures: u32) -> Result<Tally> {
        self.database
            .bounded("ledger.tally", async {
                let mut session = self.database.session().await?;
                let args = [Arg::Text(resource), Arg::Int(i64::from(COUNTED) + 1)];
                let steps = session.fetch(BY_STEP, &args).await?;
                let failed = session.fetch(FAILED, &[args[0].clone(), Arg::Int(i64::from(failures))]).await?;
                session.done();
                let all: u64 = steps.iter().map(|row| row.get(1).map_or(0, Cell::size)).sum();
                let by_step: Vec<(Step, u64)> = steps
                    .iter()
                    // A step of a newer build is counted there.
                    .filter_map(|row| Some((Step::from_name(&row[0].text())?, row[1].size())))
                    .collect();
                let failures = failed.iter().map(|row| Failure {
                    upload_id: row[0].text(),
                    node_id: row[1].text(),
                    reason: row[2].maybe_text().unwrap_or_default(),
                    at_ms: row[3].int(),
                });
                Ok(Tally { by_step, more: all > u64::from(COUNTED), failures: failures.collect() })
            })
            .await
    }
}
