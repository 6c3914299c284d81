//! Events: one per upload, written with the row they tell of, told at least once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Ledger;
use super::connection::{Arg, Cell, Cells, Session};
use super::facts::{Event, Fence, Step, Upload};
use crate::Result;

macro_rules! event_columns {
    () => {
        "event_id, seq, upload_id, node_id, topic, payload, created_ms, published_ms"
    };
}

/// Events, and whose uploads they tell of as long as those are remembered.
macro_rules! select_events {
    ($which:literal) => {
        concat!(
            "SELECT ",
            event_columns!(),
            ", (SELECT resource FROM quaymaster_uploads
                WHERE quaymaster_uploads.upload_id = quaymaster_outbox.upload_id)
              FROM quaymaster_outbox WHERE ",
            $which
        )
    };
}

pub(super) const OF: &str = select_events!("upload_id = $1");
const AFTER: &str = select_events!("seq > $1 ORDER BY seq LIMIT $2");
const WAITING: &str = select_events!("published_ms IS NULL AND seq > $1 ORDER BY seq LIMIT $2");
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
/// When an upload's event was made, and for which topic.
const RECORDED: &str = "SELECT at_ms, detail FROM quaymaster_upload_events
    WHERE upload_id = $1 AND what = 'recorded' ORDER BY n DESC LIMIT 1";
/// A page of events of one topic: where it ends, how many there are, and when the youngest was made.
const PAGE: &str = "SELECT MAX(seq), COUNT(*), MAX(created_ms) FROM (
    SELECT seq, created_ms FROM quaymaster_outbox WHERE topic = $1 AND seq > $2 ORDER BY seq LIMIT $3) AS page";
/// The doctor looks for the event of an upload that is not forgotten.
const PRUNE: &str = "DELETE FROM quaymaster_outbox
    WHERE topic = $1 AND seq > $2 AND seq <= $3 AND published_ms IS NOT NULL AND published_ms < $4
      AND NOT EXISTS (SELECT 1 FROM quaymaster_uploads
                      WHERE quaymaster_uploads.upload_id = quaymaster_outbox.upload_id)";

/// What became of a page of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// How many were removed.
    pub removed: u64,
    /// Where to go on; 0, from the beginning, when what follows is too young.
    pub next: i64,
}

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
    resource: &'a str,
}

/// What is read of it again: whose upload it was, which nothing else says once that is forgotten.
#[derive(Deserialize)]
struct Whose {
    resource: Option<String>,
}

pub(super) fn event(row: &Cells) -> Event {
    let payload = row[5].text();
    let told = || serde_json::from_str::<Whose>(&payload).ok().and_then(|whose| whose.resource);
    let resource = row[8].maybe_text().or_else(told);
    Event {
        resource,
        event_id: row[0].text(),
        seq: row[1].int(),
        upload_id: row[2].text(),
        node_id: row[3].text(),
        topic: row[4].text(),
        payload,
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
            resource: &upload.resource,
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

    /// Puts an event that somebody removed back as it was: the history has its moment and its topic. It gets a new place,
    /// where readers who went past the old one come by; whoever had it knows it by its id.
    async fn put_event_again(&mut self, upload: &Upload, topic: &str) -> Result<()> {
        let line = self.one(RECORDED, &[Arg::Text(&upload.upload_id)]).await?;
        let (at_ms, topic) = line
            .map_or_else(|| (upload.updated_ms, topic.to_owned()), |line| (line[0].int(), line[1].text()));
        self.put_event(&Upload { updated_ms: at_ms, ..upload.clone() }, &topic).await?;
        let now = Upload { updated_ms: self.now_ms().await?, ..upload.clone() };
        if upload.step != Step::Recorded {
            self.mark_published(&now).await?;
        }
        self.note(&now, "event put back", &topic).await
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

    /// The event of an upload that is recorded, put back if somebody removed it; `topic` where nobody knows any more
    /// which it had. One that was told before counts as told, and is only kept.
    ///
    /// With an owner's fence only while that holds. `None`, and nothing is put back, when the upload stands elsewhere.
    pub async fn put_event_back(
        &self,
        upload_id: &str,
        fence: Option<&Fence>,
        topic: &str,
    ) -> Result<Option<Event>> {
        self.database
            .bounded("ledger.put_event_back", async {
                let mut session = self.database.begin().await?;
                let was = session.lock(upload_id).await?.filter(|was| {
                    matches!(was.step, Step::Recorded | Step::Announced | Step::Done)
                        && fence.is_none_or(|fence| fence.number == was.fence)
                });
                let Some(was) = was else {
                    session.roll_back().await?;
                    return Ok(None);
                };
                if session.one(OF, &[Arg::Text(upload_id)]).await?.is_none() {
                    session.put_event_again(&was, topic).await?;
                }
                let row = session.one(OF, &[Arg::Text(upload_id)]).await?;
                session.commit().await?;
                Ok(row.as_ref().map(event))
            })
            .await
    }

    /// Looks at `count` events of a topic after place `after`, and removes those that were told so long ago and whose
    /// upload is forgotten.
    pub async fn prune_events(
        &self,
        topic: &str,
        told_for: Duration,
        after: i64,
        count: u32,
    ) -> Result<Pruned> {
        self.database
            .bounded("ledger.prune_events", async {
                let mut session = self.database.session().await?;
                let told_for = i64::try_from(told_for.as_millis()).unwrap_or(i64::MAX);
                let before_ms = session.now_ms().await?.saturating_sub(told_for);
                let page = [Arg::Text(topic), Arg::Int(after), Arg::Int(i64::from(count))];
                let row = session.one(PAGE, &page).await?.unwrap_or_default();
                let mut pruned = Pruned::default();
                if let Some(last) = row.first().and_then(Cell::maybe_int) {
                    let args = [Arg::Text(topic), Arg::Int(after), Arg::Int(last), Arg::Int(before_ms)];
                    pruned.removed = session.execute(PRUNE, &args).await?;
                    let whole = row[1].int() == i64::from(count) && row[2].int() < before_ms;
                    pruned.next = if whole { last } else { 0 };
                }
                session.done();
                Ok(pruned)
            })
            .await
    }
}
