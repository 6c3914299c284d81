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
    /// Only keys as the schema's `object_key` makes them: what others have in the bucket is theirs.
    pub async fn orphans(
        &self,
        prefix: &str,
        now_ms: i64,
        after: Option<&Cursor>,
        mode: Mode,
    ) -> Result<(Vec<Orphan>, Option<Cursor>)> {
        let page = self.inner.objects.pending(prefix, after).await?;
        let mut orphans = Vec::new();
        let template = &self.inner.store.spec().object_key;
        for pending in page.uploads {
            if !fits(template, &pending.key) {
                continue;
            }
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

/// Whether the template makes keys like this one: a connector of its letters, a node's UUID.
fn fits(template: &str, key: &str) -> bool {
    let (literal, rest) = template.split_at(template.find('{').unwrap_or(template.len()));
    let Some(key) = key.strip_prefix(literal) else { return false };
    if let Some(rest) = rest.strip_prefix("{node_id}") {
        return key.split_at_checked(36).is_some_and(|(node, key)| is_uuid(node) && fits(rest, key));
    }
    let Some(rest) = rest.strip_prefix("{connector_id}") else { return rest.is_empty() && key.is_empty() };
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let longest = key.bytes().take_while(|byte| plain(byte)).count();
    (1..=longest).any(|length| fits(rest, &key[length..]))
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_the_template_makes_are_ours() {
        let node = "1ad37f4f-b442-4be4-9082-744ddd47b2d7";
        let usual = "connectors/{connector_id}/{node_id}.pb";
        for (template, key, ours) in [
            (usual, format!("connectors/default/{node}.pb"), true),
            (usual, format!("connectors/a.b-c_1/{node}.pb"), true),
            (usual, format!("connectors//{node}.pb"), false),
            (usual, format!("connectors/a/b/{node}.pb"), false),
            (usual, format!("connectors/default/{node}.pb.gz"), false),
            (usual, "connectors/default/backup.pb".to_owned(), false),
            (usual, "backups/monday.tar".to_owned(), false),
            ("{node_id}", node.to_owned(), true),
            ("{node_id}", format!("{node}x"), false),
            ("{node_id}", "x".repeat(36), false),
            ("{connector_id}-{node_id}", format!("a-b-{node}"), true),
            ("{node_id}/{connector_id}", format!("{node}/ü"), false),
        ] {
            assert_eq!(fits(template, &key), ours, "{template} {key}");
        }
    }
}
