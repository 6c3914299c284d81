//! Multipart uploads that nobody will complete: whoever began them died before the ledger knew, or their upload is over.

use std::time::Duration;

use crate::Result;
use crate::names::is_uuid;
use crate::objects::{Cursor, Pending};
use crate::uploads::Uploads;

use super::{Mode, readable};

/// A younger one may be about to enter the ledger.
const DAY: Duration = Duration::from_secs(24 * 3600);

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
    /// A page of multipart uploads that no upload in the ledger will complete, older than a day and
    /// than any upload may become. Their keys are looked at first; what is there stays untouched, and only the multipart upload goes.
    ///
    /// Only keys as the schema's `object_key` makes them: what others have in the bucket is theirs.
    pub async fn orphans(
        &self,
        now_ms: i64,
        after: Option<&Cursor>,
        mode: Mode,
    ) -> Result<(Vec<Orphan>, Option<Cursor>)> {
        let template = self.key_template();
        // What all keys of the resource begin with; others may have multipart uploads elsewhere.
        let prefix = template.split('{').next().unwrap_or_default();
        let page = self.inner.objects.pending(prefix, after).await?;
        let mut orphans = Vec::new();
        let spec = self.inner.store.spec();
        let oldest_ms = now_ms.saturating_sub(age_ms(spec.state_ttl));
        for pending in page.uploads {
            if !fits(&template, &pending.key) {
                continue;
            }
            // One whose age nobody knows is left alone.
            if pending.initiated_ms.is_none_or(|began| began > oldest_ms) {
                continue;
            }
            let known = match readable(self.inner.ledger.of_object(&pending.key).await)? {
                Ok(known) => known,
                Err(finding) => {
                    tracing::warn!(key = pending.key, %finding, "a multipart upload is left where it is");
                    continue;
                }
            };
            let why = match known {
                None => "the ledger does not know its key",
                Some(upload) if upload.multipart_id.as_deref() != Some(pending.id.as_str()) => {
                    "its upload has another one"
                }
                Some(upload) if upload.step.is_over() => "its upload is over",
                Some(_) => continue,
            };
            // What the ledger forgot may have been completed: said in the log of whoever repairs. Where nobody can
            // tell, it stays.
            let head = readable(self.inner.objects.head(&pending.key).await)?;
            let mut aborted = false;
            if mode == Mode::Repair && head.is_ok() {
                let object = matches!(head, Ok(Some(_)));
                tracing::info!(key = pending.key, id = %pending.id, why, object, "a multipart upload is aborted");
                // One that its store will not let go of keeps nobody from the next.
                aborted = readable(self.inner.objects.abort(&pending.key, &pending.id).await)?.is_ok();
            }
            orphans.push(Orphan { pending, why, aborted });
        }
        Ok((orphans, page.next))
    }
}

/// How old one must be. Another deployment may have its uploads in the same bucket, under keys of the same template, and
/// in another database, with a `state_ttl` that is longer than ours: what this ledger does not know may live there.
fn age_ms(state_ttl: Duration) -> i64 {
    let age = DAY.max(state_ttl.saturating_mul(2));
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_is_older_than_a_day_and_than_two_lives_of_an_upload() {
        for (hours, age_hours) in [(1, 24), (12, 24), (13, 26), (24, 48), (24 * 14, 24 * 28)] {
            assert_eq!(age_ms(Duration::from_secs(hours * 3600)), age_hours * 3_600_000, "{hours} h");
        }
        assert_eq!(age_ms(Duration::MAX), i64::MAX);
    }

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
