//! Keys of objects that an older build wrote without the prefix of their store.

use super::Ledger;
use super::connection::Arg;
use super::facts::Upload;
use super::rows::{columns, upload};
use crate::Result;

const BARE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM quaymaster_uploads WHERE resource = $1 AND bare_key = 1 AND upload_id > $2 ORDER BY upload_id LIMIT $3"
);
const UPLOADS: &str =
    "UPDATE quaymaster_uploads SET object_key = CAST($2 AS TEXT) || object_key, bare_key = 0
    WHERE resource = $1 AND bare_key = 1";

impl Ledger {
    /// Up to `count` uploads of a resource by id, from `after` on, whose keys have no prefix yet.
    pub async fn bare_keys(&self, resource: &str, after: &str, count: u32) -> Result<Vec<Upload>> {
        self.database
            .bounded("ledger.bare_keys", async {
                let mut session = self.database.session().await?;
                let args = [Arg::Text(resource), Arg::Text(after), Arg::Int(i64::from(count))];
                let rows = session.fetch(BARE, &args).await?;
                session.done();
                rows.iter().map(upload).collect()
            })
            .await
    }

    /// Puts `prefix` in front of them, in the uploads and their nodes; how many there were.
    pub async fn prefix_keys(&self, resource: &str, prefix: &str) -> Result<u64> {
        self.database
            .bounded("ledger.prefix_keys", async {
                let mut session = self.database.begin().await?;
                session.prefix_nodes(resource, prefix).await?;
                let changed = session.execute(UPLOADS, &[Arg::Text(resource), Arg::Text(prefix)]).await?;
                session.commit().await?;
                Ok(changed)
            })
            .await
    }
}
