//! Multipart uploads that nobody will complete: whoever began them died before the ledger knew, or their upload is over.

use crate::Result;
use crate::objects::{Cursor, Pending};
use crate::uploads::Uploads;

use super::Mode;

/// A younger one may be about to enter the ledger.
const AGE_MS: i64 = 24 * 3600 * 1000;

/// A multipart upload that nobody will complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The object store's.
    pub pending: Pending,
    /// Why it is one.
    pub why: &'static str,
    /// Whether it was aborted now.
    pub aborted: bool,
}

impl Uploads {
    /// A page of multipart uploads under `prefix` that are older than a day and that no upload in the ledger will
    /// complete. Their keys are looked at first; what is there stays untouched, and only the multipart upload goes.
    ///
    /// `prefix` must be one that nobody else puts multipart uploads under.
    pub async fn orphans(
        &self,
        prefix: &str,
        now_ms: i64,
        after: Option<&Cursor>,
        mode: Mode,
    ) -> Result<(Vec<Orphan>, Option<Cursor>)> {
        let page = self.inner.objects.pending(prefix, after).await?;
        let mut orphans = Vec::new();
        for pending in page.uploads {
            // One whose age nobody knows is left alone.
            if pending.initiated_ms.is_none_or(|began| began > now_ms - AGE_MS) {
                continue;
            }
            let why = match self.inner.ledger.of_object(&pending.key).await? {
                None => "the ledger does not know its key",
                Some(upload) if upload.multipart_id.as_deref() != Some(pending.id.as_str()) => {
                    "its upload has another one"
                }
                Some(upload) if upload.step.is_over() => "its upload is over",
                Some(_) => continue,
            };
            // What the ledger forgot may have been completed: said in the log of whoever repairs.
            let head = self.inner.objects.head(&pending.key).await?;
            let aborted = mode == Mode::Repair;
            if aborted {
                tracing::info!(key = pending.key, id = %pending.id, why, object = head.is_some(), "a multipart upload is aborted");
                let _ = self.inner.objects.abort(&pending.key, &pending.id).await?;
            }
            orphans.push(Orphan { pending, why, aborted });
        }
        Ok((orphans, page.next))
    }
}
