//! Rows read and written: an upload as a whole, its history, its node.

use super::connection::{Arg, Cell, Cells, Session, postgres_ms};
use super::facts::{Fence, Happening, Node, Step, Upload};
use super::{Ledger, Moved};
use crate::{Error, Result, Trouble};

/// The columns of an upload, in the order [`upload`] reads them.
macro_rules! columns {
    () => {
        "upload_id, resource, node_id, object_key, token, mime_type, idempotency_key, fingerprint, step, fence,
        owner, lease_ms, multipart_id, expected_size, total_chunks, final_etag, final_size, error, deadline_ms,
        due_ms, created_ms, updated_ms"
    };
}
pub(super) use columns;

const FIND: &str = concat!("SELECT ", columns!(), " FROM quaymaster_uploads WHERE upload_id = $1");
/// Changes nothing, and nobody else changes it until the transaction ends.
const LOCK: &str = concat!(
    "UPDATE quaymaster_uploads SET upload_id = upload_id WHERE upload_id = $1 RETURNING ",
    columns!()
);
/// The same, and last the time since the row is locked.
const LOCK_AND_TIME: &str = concat!(
    "UPDATE quaymaster_uploads SET upload_id = upload_id WHERE upload_id = $1 RETURNING ",
    columns!(),
    ", ",
    postgres_ms!()
);
const PUT: &str =
    "UPDATE quaymaster_uploads SET step = $4, fence = $5, owner = $6, lease_ms = $7, multipart_id = $8,
    total_chunks = $9, final_etag = $10, final_size = $11, error = $12, deadline_ms = $13, due_ms = $14,
    updated_ms = $15, token = $16 WHERE upload_id = $1 AND step = $2 AND fence = $3";
const NOTE: &str = "INSERT INTO quaymaster_upload_events (upload_id, n, at_ms, step, fence, owner, what, detail)
    SELECT $1, COALESCE(MAX(n), 0) + 1, $2, $3, $4, $5, $6, $7 FROM quaymaster_upload_events WHERE upload_id = $1";
const HISTORY: &str = "SELECT at_ms, step, fence, owner, what, detail FROM quaymaster_upload_events
    WHERE upload_id = $1 ORDER BY n";

/// Reads [`columns!`].
pub(super) fn upload(row: &Cells) -> Result<Upload> {
    let step = row[8].text();
    let step = Step::from_name(&step).ok_or_else(|| {
        let detail = format!("an upload stands at {step:?}, which this build does not know");
        Error::new("ledger", Trouble::Never, detail).saying("newer")
    })?;
    Ok(Upload {
        upload_id: row[0].text(),
        resource: row[1].text(),
        node_id: row[2].text(),
        object_key: row[3].text(),
        token: row[4].text(),
        mime_type: row[5].text(),
        idempotency_key: row[6].maybe_text(),
        fingerprint: row[7].text(),
        step,
        fence: row[9].int(),
        owner: row[10].text(),
        lease_ms: row[11].int(),
        multipart_id: row[12].maybe_text(),
        expected_size: row[13].maybe_int().map(|_| row[13].size()),
        total_chunks: row[14].maybe_int().and_then(|total| u32::try_from(total).ok()),
        final_etag: row[15].maybe_text(),
        final_size: row[16].maybe_int().map(|_| row[16].size()),
        error: row[17].maybe_text(),
        deadline_ms: row[18].int(),
        due_ms: row[19].int(),
        created_ms: row[20].int(),
        updated_ms: row[21].int(),
    })
}

/// A size as a column holds it.
pub(super) fn stored(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// A duration after a time of the database's.
pub(super) fn after(now_ms: i64, wait: std::time::Duration) -> i64 {
    now_ms.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX))
}

impl Upload {
    /// As it is at `now_ms`. One that was written later than that was written before the clock was set back: whatever
    /// it waits for is as far away as it was then.
    pub(super) fn at(self, now_ms: i64) -> Self {
        let ahead_ms = self.updated_ms.saturating_sub(now_ms).max(0);
        Self {
            lease_ms: self.lease_ms.saturating_sub(ahead_ms),
            deadline_ms: self.deadline_ms.saturating_sub(ahead_ms),
            due_ms: self.due_ms.saturating_sub(ahead_ms),
            updated_ms: self.updated_ms.saturating_sub(ahead_ms),
            ..self
        }
    }

    pub(super) fn fence(&self) -> Fence {
        Fence { upload_id: self.upload_id.clone(), number: self.fence }
    }
}

impl Session<'_> {
    pub(super) async fn find(&mut self, upload_id: &str) -> Result<Option<Upload>> {
        self.one(FIND, &[Arg::Text(upload_id)]).await?.as_ref().map(upload).transpose()
    }

    /// The upload as it is now, ours until the transaction ends.
    pub(super) async fn lock(&mut self, upload_id: &str) -> Result<Option<Upload>> {
        let lock = if self.is_sqlite() { LOCK } else { LOCK_AND_TIME };
        let Some(row) = self.one(lock, &[Arg::Text(upload_id)]).await? else { return Ok(None) };
        if !self.is_sqlite() {
            self.told_ms = row.last().and_then(Cell::maybe_int);
        }
        let now_ms = self.now_ms().await?;
        Ok(Some(upload(&row)?.at(now_ms)))
    }

    /// Writes what became of `was`.
    pub(super) async fn put(&mut self, was: &Upload, now: &Upload) -> Result<()> {
        let args = [
            Arg::Text(&was.upload_id),
            Arg::Text(was.step.name()),
            Arg::Int(was.fence),
            Arg::Text(now.step.name()),
            Arg::Int(now.fence),
            Arg::Text(&now.owner),
            Arg::Int(now.lease_ms),
            Arg::MaybeText(now.multipart_id.as_deref()),
            Arg::MaybeInt(now.total_chunks.map(i64::from)),
            Arg::MaybeText(now.final_etag.as_deref()),
            Arg::MaybeInt(now.final_size.map(stored)),
            Arg::MaybeText(now.error.as_deref()),
            Arg::Int(now.deadline_ms),
            Arg::Int(now.due_ms),
            Arg::Int(now.updated_ms),
            Arg::Text(&now.token),
        ];
        match self.execute(PUT, &args).await? {
            1 => Ok(()),
            // The row is locked, so nobody can have changed it; another program deleted or rewrote it.
            _ => Err(Error::new("ledger", Trouble::Passing, "the upload changed under its lock")),
        }
    }

    /// Writes a line of history: where the upload stands now, and why.
    pub(super) async fn note(&mut self, now: &Upload, what: &str, detail: &str) -> Result<()> {
        let args = [
            Arg::Text(&now.upload_id),
            Arg::Int(now.updated_ms),
            Arg::Text(now.step.name()),
            Arg::Int(now.fence),
            Arg::Text(&now.owner),
            Arg::Text(what),
            Arg::Text(detail),
        ];
        self.execute(NOTE, &args).await.map(drop)
    }

    /// Writes a move and its line of history, and ends the transaction.
    pub(super) async fn move_on(
        mut self,
        was: &Upload,
        now: Upload,
        what: &str,
        detail: &str,
    ) -> Result<Moved> {
        self.put(was, &now).await?;
        self.note(&now, what, detail).await?;
        self.commit().await?;
        Ok(Moved::Moved(Box::new(now)))
    }
}

impl Ledger {
    /// An upload.
    pub async fn find(&self, upload_id: &str) -> Result<Option<Upload>> {
        self.database
            .bounded("ledger.find", async {
                let mut session = self.database.session().await?;
                let found = session.find(upload_id).await?;
                session.done();
                Ok(found)
            })
            .await
    }

    /// A node.
    pub async fn node(&self, node_id: &str) -> Result<Option<Node>> {
        self.database
            .bounded("ledger.node", async {
                let mut session = self.database.session().await?;
                let found = session.node(node_id).await?;
                session.done();
                Ok(found)
            })
            .await
    }

    /// What happened to an upload, oldest first.
    pub async fn history(&self, upload_id: &str) -> Result<Vec<Happening>> {
        self.database
            .bounded("ledger.history", async {
                let mut session = self.database.session().await?;
                let rows = session.fetch(HISTORY, &[Arg::Text(upload_id)]).await?;
                session.done();
                Ok(rows.iter().map(happening).collect())
            })
            .await
    }
}

fn happening(row: &Cells) -> Happening {
    let text = |at: usize| row.get(at).map(Cell::text).unwrap_or_default();
    Happening {
        at_ms: row[0].int(),
        step: text(1),
        fence: row[2].int(),
        owner: text(3),
        what: text(4),
        detail: text(5),
    }
}
