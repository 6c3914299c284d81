//! What somebody should look at, and everything there is.

use std::time::{Duration, Instant};

use super::Ledger;
use super::connection::{Arg, Cell};
use super::facts::{Due, Errand, Step, Upload};
use super::rows::{columns, upload};
use crate::Result;

const DUE: &str = "SELECT upload_id, step, due_ms, total_chunks,
    (SELECT COUNT(*) FROM quaymaster_upload_parts AS part WHERE part.upload_id = quaymaster_uploads.upload_id)
    FROM quaymaster_uploads
    WHERE due_ms <= $1 AND (due_ms, upload_id) > ($2, $3) ORDER BY due_ms, upload_id LIMIT $4";
const IDS: &str = "SELECT upload_id, resource FROM quaymaster_uploads
    WHERE upload_id > $1 ORDER BY upload_id LIMIT $2";
const PAGE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM quaymaster_uploads WHERE upload_id > $1 ORDER BY upload_id LIMIT $2"
);

/// A second's difference is none: other writers may be as late, and it holds nothing up.
const NONE_MS: i64 = 1000;
const FOLLOW: &str = "UPDATE quaymaster_uploads SET lease_ms = lease_ms - (updated_ms - $2),
    deadline_ms = deadline_ms - (updated_ms - $2), due_ms = due_ms - (updated_ms - $2), updated_ms = $2
    WHERE resource = $1 AND updated_ms - 1000 > $2";

const OF_OBJECT: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM quaymaster_uploads WHERE object_key = $1 ORDER BY created_ms DESC LIMIT 1"
);

impl Ledger {
    /// The newest upload whose object has this key.
    pub async fn of_object(&self, object_key: &str) -> Result<Option<Upload>> {
        self.database
            .bounded("ledger.of_object", async {
                let mut session = self.database.session().await?;
                let row = session.one(OF_OBJECT, &[Arg::Text(object_key)]).await?;
                session.done();
                row.as_ref().map(upload).transpose()
            })
            .await
    }

    /// Up to `count` uploads that wait for somebody, the longest waiting first; from `after` on, which is the last
    /// of the page before.
    pub async fn due(&self, after: Option<&Due>, count: u32) -> Result<Vec<Due>> {
        self.database
            .bounded("ledger.due", async {
                let mut session = self.database.session().await?;
                let now_ms = session.now_ms().await?;
                let (since, id) = after.map_or((i64::MIN, ""), |due| (due.due_ms, due.upload_id.as_str()));
                let args = [Arg::Int(now_ms), Arg::Int(since), Arg::Text(id), Arg::Int(i64::from(count))];
                let rows = session.fetch(DUE, &args).await?;
                session.done();
                let due = rows.iter().filter_map(|row| {
                    let all = row[3].maybe_int() == Some(row[4].int());
                    // A step of a newer build is that build's errand.
                    let errand = errand(Step::from_name(&row[1].text())?, all);
                    Some(Due { upload_id: row[0].text(), errand, due_ms: row[2].int() })
                });
                Ok(due.collect())
            })
            .await
    }

    /// Moves the moments of a resource's rows that were written before the clock was set back; how many rows. Rows are
    /// looked at only by the first call, and where the clock went on by less than the time since the last one.
    pub async fn follow_clock(&self, resource: &str) -> Result<u64> {
        self.database
            .bounded("ledger.follow_clock", async {
                let mut session = self.database.session().await?;
                let now_ms = session.now_ms().await?;
                session.done();
                let seen = *self.seen.lock();
                let least = seen.map(|(seen_ms, at)| seen_ms.saturating_add(at.elapsed().as_millis() as i64));
                if least.is_some_and(|least| now_ms + NONE_MS >= least) {
                    *self.seen.lock() = Some((now_ms, Instant::now()));
                    return Ok(0);
                }
                // Waiting for other writers takes time, too.
                let mut session = self.database.begin().await?;
                let now_ms = session.now_ms().await?;
                let moved = session.execute(FOLLOW, &[Arg::Text(resource), Arg::Int(now_ms)]).await?;
                session.commit().await?;
                *self.seen.lock() = Some((now_ms, Instant::now()));
                if moved > 0 {
                    tracing::warn!(
                        resource,
                        moved,
                        "the database's clock was set back: uploads have the time that they had when they were last written"
                    );
                }
                Ok(moved)
            })
            .await
    }

    /// How long from now an upload expires.
    pub async fn time_left(&self, upload: &Upload) -> Result<Duration> {
        self.database
            .bounded("ledger.time_left", async {
                let mut session = self.database.session().await?;
                let now_ms = session.now_ms().await?;
                session.done();
                let left_ms = upload.clone().at(now_ms).deadline_ms.saturating_sub(now_ms);
                Ok(Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)))
            })
            .await
    }

    /// Whether an upload waits for somebody.
    pub async fn is_due(&self, upload: &Upload) -> Result<bool> {
        self.database
            .bounded("ledger.is_due", async {
                let mut session = self.database.session().await?;
                let now_ms = session.now_ms().await?;
                session.done();
                Ok(upload.clone().at(now_ms).due_ms <= now_ms)
            })
            .await
    }

    /// How many uploads wait for somebody, and since when the first of them does.
    pub async fn overdue(&self) -> Result<(u64, Option<i64>)> {
        self.database
            .bounded("ledger.overdue", async {
                let mut session = self.database.session().await?;
                let now_ms = session.now_ms().await?;
                let sql = "SELECT COUNT(*), MIN(due_ms) FROM quaymaster_uploads WHERE due_ms <= $1";
                let row = session.one(sql, &[Arg::Int(now_ms)]).await?.unwrap_or_default();
                session.done();
                Ok((row.first().map_or(0, Cell::size), row.get(1).and_then(Cell::maybe_int)))
            })
            .await
    }

    /// Up to `count` uploads by id, from `after` on, as pairs of id and resource: also those whose rows nobody here can
    /// read.
    pub async fn page_of_ids(&self, after: &str, count: u32) -> Result<Vec<(String, String)>> {
        self.database
            .bounded("ledger.page_of_ids", async {
                let mut session = self.database.session().await?;
                let rows = session.fetch(IDS, &[Arg::Text(after), Arg::Int(i64::from(count))]).await?;
                session.done();
                Ok(rows.iter().map(|row| (row[0].text(), row[1].text())).collect())
            })
            .await
    }

    /// Up to `count` uploads by id, from `after` on: every one there is, page by page.
    pub async fn page(&self, after: &str, count: u32) -> Result<Vec<Upload>> {
        self.database
            .bounded("ledger.page", async {
                let mut session = self.database.session().await?;
                let rows = session.fetch(PAGE, &[Arg::Text(after), Arg::Int(i64::from(count))]).await?;
                session.done();
                rows.iter().map(upload).collect()
            })
            .await
    }
}

fn errand(step: Step, all: bool) -> Errand {
    match step {
        Step::Open if all => Errand::Complete,
        Step::Completing | Step::Proved | Step::Recorded | Step::Announced => Errand::Complete,
        Step::Created | Step::Open | Step::Failed | Step::Expiring | Step::Aborting => Errand::End,
        Step::Done | Step::Expired | Step::Aborted => Errand::Forget,
    }
}
