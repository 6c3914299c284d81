//! A new upload with its node, and the multipart upload that is opened for it.

use super::Ledger;
use super::connection::{Arg, Session};
use super::facts::{Created, Moved, New, Step, Upload};
use super::rows::{after, columns, stored, upload};
use crate::Result;

const INSERT: &str = concat!(
    "INSERT INTO quaymaster_uploads (",
    columns!(),
    ", bare_key) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'created', 0, '', 0, NULL, $9, NULL, NULL, NULL, NULL, $10, $10,
    $11, $11, 0) ON CONFLICT DO NOTHING RETURNING ",
    columns!()
);
const BY_KEY: &str =
    concat!("SELECT ", columns!(), " FROM quaymaster_uploads WHERE resource = $1 AND idempotency_key = $2");

/// Changes a row if the node is this resource's, or nobody's yet.
const OWN_NODE: &str = "INSERT INTO quaymaster_nodes AS node (node_id, resource) VALUES ($1, $2)
    ON CONFLICT (node_id) DO UPDATE SET resource = excluded.resource WHERE node.resource = excluded.resource";

const DISOWN: &str = "DELETE FROM quaymaster_uploads WHERE upload_id = $1 AND step = 'open' AND token = ''
    AND NOT EXISTS (SELECT 1 FROM quaymaster_upload_parts AS part WHERE part.upload_id = $1)";

impl Ledger {
    /// Creates an upload and its `nodes` row as PENDING, in one transaction.
    pub async fn create(&self, new: &New) -> Result<Created> {
        self.database.bounded("ledger.create", self.try_create(new, None)).await
    }

    /// The same of an upload that another program began: it is open, with the multipart upload that is there.
    pub async fn adopt(&self, new: &New, multipart_id: &str) -> Result<Created> {
        self.database.bounded("ledger.adopt", self.try_create(new, Some(multipart_id))).await
    }

    /// Forgets an adopted upload of which nothing has come yet: the program that began it goes on with it. Its node stays.
    pub async fn disown(&self, upload_id: &str) -> Result<()> {
        self.database
            .bounded("ledger.disown", async {
                let mut session = self.database.begin().await?;
                let id = [Arg::Text(upload_id)];
                if session.execute(DISOWN, &id).await? > 0 {
                    session.execute("DELETE FROM quaymaster_upload_events WHERE upload_id = $1", &id).await?;
                }
                session.commit().await
            })
            .await
    }

    async fn try_create(&self, new: &New, begun: Option<&str>) -> Result<Created> {
        let mut session = self.database.begin().await?;
        let now_ms = session.now_ms().await?;
        let node = &new.node;
        let args = [
            Arg::Text(&new.upload_id),
            Arg::Text(&new.resource),
            Arg::Text(&node.node_id),
            Arg::Text(&new.object_key),
            Arg::Text(&new.token),
            Arg::Text(node.mime_type.as_deref().unwrap_or_default()),
            Arg::MaybeText(new.idempotency_key.as_deref()),
            Arg::Text(&new.fingerprint),
            Arg::MaybeInt(new.expected_size.map(stored)),
            Arg::Int(after(now_ms, new.time_limit)),
            Arg::Int(now_ms),
        ];
        let Some(row) = session.one(INSERT, &args).await? else {
            let answer = standing(&mut session, new).await?;
            session.roll_back().await?;
            return Ok(answer);
        };
        let made = upload(&row)?;
        let owner = [Arg::Text(&node.node_id), Arg::Text(&new.resource)];
        if session.execute(OWN_NODE, &owner).await? == 0 {
            session.roll_back().await?;
            return Ok(Created::NodeTaken);
        }
        session.begin_node(node, &new.object_key, new.expected_size, now_ms).await?;
        let Some(multipart_id) = begun else {
            session.note(&made, "created", "").await?;
            session.commit().await?;
            return Ok(Created::Created(Box::new(made)));
        };
        let now = Upload { step: Step::Open, multipart_id: Some(multipart_id.to_owned()), ..made.clone() };
        session.put(&made, &now).await?;
        session.note(&now, "adopted", "").await?;
        session.commit().await?;
        Ok(Created::Created(Box::new(now)))
    }

    /// The multipart upload is there. When two nodes opened one each, the first stays and the other is told: its own
    /// is an orphan that it should abort.
    pub async fn opened(&self, upload_id: &str, multipart_id: &str) -> Result<Moved> {
        self.database
            .bounded("ledger.opened", async {
                let mut session = self.database.begin().await?;
                let Some(was) = session.lock(upload_id).await? else {
                    session.roll_back().await?;
                    return Ok(Moved::Unknown);
                };
                if was.step == Step::Created {
                    let multipart_id = Some(multipart_id.to_owned());
                    let updated_ms = session.now_ms().await?;
                    let now = Upload { step: Step::Open, multipart_id, updated_ms, ..was.clone() };
                    return session.move_on(&was, now, "opened", "").await;
                }
                session.roll_back().await?;
                let same = was.multipart_id.as_deref() == Some(multipart_id);
                Ok(if same { Moved::Moved(Box::new(was)) } else { Moved::Lost(Box::new(was)) })
            })
            .await
    }
}

/// What stands where a new upload would: found by its id, else by its key, else the node is another one's.
async fn standing(session: &mut Session<'_>, new: &New) -> Result<Created> {
    let mut found = session.find(&new.upload_id).await?;
    if let (None, Some(key)) = (&found, &new.idempotency_key) {
        let row = session.one(BY_KEY, &[Arg::Text(&new.resource), Arg::Text(key)]).await?;
        found = row.as_ref().map(upload).transpose()?;
    }
    Ok(match found {
        Some(found) if found.resource == new.resource && found.fingerprint == new.fingerprint => {
            Created::Existing(Box::new(found))
        }
        Some(found) => Created::Mismatch(Box::new(found)),
        None => Created::NodeTaken,
    })
}
