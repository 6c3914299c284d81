//! What the store shows of an upload's end. The ledger decides; here it is only said, and what is left of bytes goes.

use quaymaster::upload::Moved as Shown;

use crate::Result;
use crate::ingest::multipart_of;
use crate::ledger::{Step, Upload};
use crate::uploads::Uploads;

/// What a client is told who called its upload off.
const ABORTED: &str = "aborted by the client";

impl Uploads {
    /// COMPLETING, as far as the store can be reached: nothing depends on it.
    pub(super) async fn show_completing(&self, upload: &Upload) {
        let id = &upload.upload_id;
        let shown = match self.inner.store.completing(id).await {
            Ok(Shown::Moved { .. } | Shown::Already) => Ok(()),
            // It does not know what the ledger knows: whoever recorded the last part died before saying so.
            // Read anew: whoever took over from an owner that stood still may have come further.
            Ok(Shown::Incomplete { .. } | Shown::Unknown | Shown::Refused { .. }) => {
                self.restore(id).await.map(drop)
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = shown {
            tracing::warn!(upload_id = id, %error, "the store does not show that an upload completes");
        }
    }

    pub(super) async fn show_completed(&self, upload: &Upload) -> Result<()> {
        let id = &upload.upload_id;
        let (etag, size) = (upload.final_etag.as_deref().unwrap_or_default(), upload.final_size.unwrap_or(0));
        match self.inner.store.completed(id, etag, size).await? {
            Shown::Moved { .. } | Shown::Already => {}
            Shown::Unknown | Shown::Refused { .. } | Shown::Incomplete { .. } => {
                self.restore_from(upload).await?;
                let _ = self.inner.store.completed(id, etag, size).await?;
            }
        }
        // Another program's object may have been there before, of the same bytes.
        if (size == 0 || upload.is_adopted())
            && let Some(multipart) = multipart_of(upload)
        {
            // An empty object is not made of parts: its multipart upload is left over.
            let _ = self.inner.objects.abort(&upload.object_key, &multipart).await?;
        }
        // Whoever sent the same request before may have died after it asked for a multipart upload, which was begun when
        // the next one had looked for such already; and a request whose answer was lost is repeated.
        if !upload.is_adopted()
            && (upload.idempotency_key.is_some() || self.inner.objects.repeats())
            && let Err(error) = self.cut_strays(upload).await
        {
            // The upload is as complete as it will be, and a doctor finds what is left.
            tracing::warn!(upload_id = id, %error, "nobody knows whether multipart uploads of it are left");
        }
        self.clear(id).await
    }

    pub(super) async fn show_ended(&self, upload: &Upload) -> Result<()> {
        let id = &upload.upload_id;
        let shown = match upload.step {
            Step::Aborting | Step::Aborted => self.inner.store.abort(id, ABORTED).await?,
            _ => self.inner.store.expire(id).await?,
        };
        if let Shown::Refused { .. } = shown {
            self.restore_from(upload).await?;
        }
        self.clear(id).await
    }

    /// Removes what is left of an ended upload's bytes.
    pub(crate) async fn clear(&self, id: &str) -> Result<()> {
        loop {
            let dropped = self.inner.store.clear(id).await?;
            self.inner.bytes.remove_all(id, &dropped).await?;
            if dropped.is_empty() {
                return Ok(());
            }
        }
    }
}
