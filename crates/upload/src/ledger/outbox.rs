//! Events: one per upload, written with the row they tell of, told at least once.

use std::time::Duration;

use serde::Serialize;

use super::Ledger;
use super::connection::{Arg, Cells, Session};
use super::facts::{Event, Upload};
use crate::Result;

macro_rules! event_columns {
    () => {
        "event_id, seq, upload_id, node_id, topic, payload, created_ms, published_ms"
    };
}

pub(super) const OF: &str =
    concat!("SELECT ", event_columns!(), " FROM quaymaster_outbox WHERE upload_id = $1");
const AFTER: &str =
    concat!("SELECT ", event_columns!(), " FROM quaymaster_outbox WHERE seq > $1 ORDER BY seq LIMIT $2");
const WAITING: &str = concat!(
    "SELECT ",
    event_columns!(),
    " FROM quaymaster_outbox WHERE published_ms IS NULL AND seq > $1 ORDER BY seq LIMIT $2"
);
/// Locked until the commit: numbers become visible in their order.
const NEXT: &str = "UPDATE quaymaster_outbox_last SET seq = seq + 1 RETURNING seq";
const LAST: &str = "SELECT seq FROM quaymaster_outbox_last";
const INSERT: &str = concat!(
    "INSERT INTO quaymaster_outbox (",
    event_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, NULL)"
);
const PUBLISHED: &str =
    "UPDATE quaymaster_outbox SET published_ms = $2 WHERE upload_id = $1 AND published_ms IS NULL";
/// Of the oldest only: there is nothing to find behind one that stays, and one call has an end.
const PRUNE: &str = "DELETE FROM quaymaster_outbox WHERE seq IN (
    SELECT seq FROM (SELECT seq, upload_id, published_ms FROM quaymaster_outbox ORDER BY seq LIMIT $2) AS oldest
    WHERE published_ms IS NOT NULL AND published_ms < $1
      AND NOT EXISTS (SELECT 1 FROM quaymaster_uploads WHERE quaymaster_uploads.upload_id = oldest.upload_id))";

/// The documented event, and by what it is recognised.
#[derive(Debug, Serialize)]
struct Payload<'a> {
    node_id: &'a str,
    s3_key: &'a str,
    etag: &'a str,
    size: u64,
    timestamp: i64,
    event_id: &'a str,
    upload_id: &'a str,
}

pub(super) fn event(row: &Cells) -> Event {
    Event {
        event_id: row[0].text(),
        seq: row[1].int(),
        upload_id: row[2].text(),
        node_id: row[3].text(),
        topic: row[4].text(),
        payload: row[5].text(),
        created_ms: row[6].int(),
        published_ms: row[7].maybe_int(),
    }
}

impl Session<'_> {
    /// Puts the event of an upload into the outbox. Its id comes from the upload's: one upload, one event, one id.
    pub(super) async fn put_event(&mut self, upload: &Upload, topic: &str) -> Result<()> {
        let seq = self.one(NEXT, &[]).await?.and_then(|row| row[0].maybe_int()).unwrap_or(0);
        let event_id = format!("{}.completed", upload.upload_id);
        let payload = Payload {
            node_id: &upload.node_id,
            s3_key: &upload.object_key,
            etag: upload.final_etag.as_deref().unwrap_or_default(),
            size: upload.final_size.unwrap_or(0),
            timestamp: upload.updated_ms,
            event_id: &event_id,
            upload_id: &upload.upload_id,
        };
        let payload = serde_json::to_string(&payload).unwrap_or_default();
        let args = [
            Arg::Text(&event_id),
            Arg::Int(seq),
            Arg::Text(&upload.upload_id),
            Arg::Text(&upload.node_id),
            Arg::Text(topic),
            Arg::Text(&payload),
            Arg::Int(upload.updated_ms),
        ];
        self.execute(INSERT, &args).await.map(drop)
    }

    pub(super) async fn mark_published(&mut self, upload: &Upload) -> Result<()> {
        let args = [Arg::Text(&upload.upload_id), Arg::Int(upload.updated_ms)];
        self.execute(PUBLISHED, &args).await.map(drop)
    }
}

impl Ledger {
    /// Up to `count` events after place `after`, in order; 0 for the first. The last one's `seq` is where to go on.
    pub async fn events(&self, after: i64, count: u32) -> Result<Vec<Event>> {
        self.events_by("ledger.events", AFTER, after, count).await
    }

    /// The same of events that were not told yet.
    pub async fn untold(&self, after: i64, count: u32) -> Result<Vec<Event>> {
        self.events_by("ledger.untold", WAITING, after, count).await
    }

    /// The place of the last event there is; 0 before the first.
    pub async fn last_event(&self) -> Result<i64> {
        self.database
            .bounded("ledger.last_event", async {
                let mut session = self.database.session().await?;
                let row = session.one(LAST, &[]).await?;
                session.done();
                Ok(row.and_then(|row| row[0].maybe_int()).unwrap_or(0))
            })
            .await
    }

    async fn events_by(
        &self,
        op: &'static str,
        sql: &'static str,
        after: i64,
        count: u32,
    ) -> Result<Vec<Event>> {
        self.database
            .bounded(op, async {
                let mut session = self.database.session().await?;
                let rows = session.fetch(sql, &[Arg::Int(after), Arg::Int(i64::from(count))]).await?;
                session.done();
                Ok(rows.iter().map(event).collect())
            })
            .await
    }

    /// Removes those of the oldest `count` events that were told so long ago and whose upload is forgotten; how many.
    pub async fn prune_events(&self, told_for: Duration, count: u32) -> Result<u64> {
        self.database
            .bounded("ledger.prune_events", async {
                let mut session = self.database.session().await?;
                let told_for = i64::try_from(told_for.as_millis()).unwrap_or(i64::MAX);
                let before_ms = session.now_ms().await?.saturating_sub(told_for);
                let removed =
                    session.execute(PRUNE, &[Arg::Int(before_ms), Arg::Int(i64::from(count))]).await?;
                session.done();
                Ok(removed)
            })
            .await
    }
}
