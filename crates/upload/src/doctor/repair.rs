//! What can be put right.

use quaymaster::Code;
use quaymaster::upload::Forgotten;

use super::look::Look;
use super::{Finding, readable};
use crate::Result;
use crate::complete::Ran;
use crate::ledger::Upload;
use crate::uploads::Uploads;

impl Uploads {
    /// Puts right what was found; what was done, in words. One that cannot be helped keeps nobody from the next.
    pub(super) async fn repair(&self, look: &Look) -> Result<Vec<String>> {
        let mut done = Vec::new();
        if let Err(finding) = readable(self.try_repair(look, &mut done).await)? {
            tracing::warn!(upload_id = look.id, %finding, "an upload is not put right");
        }
        Ok(done)
    }

    async fn try_repair(&self, look: &Look, done: &mut Vec<String>) -> Result<()> {
        match &look.upload {
            Some(upload) => self.put_right(upload, &look.findings, done).await,
            None if look.findings.contains(&Finding::UnknownToLedger) => {
                let _ = self.inner.store.expire(&look.id).await?;
                self.clear(&look.id).await?;
                if self.inner.store.forget(&look.id).await? == Forgotten::Forgotten {
                    done.push("removed from the store".to_owned());
                }
                Ok(())
            }
            None if look.findings.iter().any(|finding| matches!(finding, Finding::Foreign(_))) => {
                match self.adopt(&look.id).await {
                    Ok(true) => done.push("gone on with".to_owned()),
                    Ok(false) => {}
                    // It is told already why not.
                    Err(error) if error.code() == Some(Code::UploadForeign) => {}
                    Err(error) => return Err(error),
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn put_right(&self, upload: &Upload, findings: &[Finding], done: &mut Vec<String>) -> Result<()> {
        let id = &upload.upload_id;
        let shown = |finding: &Finding| {
            matches!(
                finding,
                Finding::StateLost | Finding::StatusDiffers { .. } | Finding::PartsDiffer { .. }
            )
        };
        if findings.iter().any(shown) && self.reconcile(upload).await? {
            done.push("the store shows what the ledger says".to_owned());
        }
        if findings.contains(&Finding::EventMissing)
            && self.inner.ledger.put_event_back(id, None, self.inner.announcer.topic()).await?.is_some()
        {
            done.push("its event is in the outbox again".to_owned());
        }
        if findings.contains(&Finding::Overdue) {
            let ran = match self.complete(id).await? {
                Ran::Elsewhere(_) | Ran::NotYet => self.expire(id).await?,
                ran => ran,
            };
            done.push(format!("gone on with: {ran:?}"));
        }
        Ok(())
    }
}
