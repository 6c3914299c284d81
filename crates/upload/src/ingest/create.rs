//! A new upload: a row in the ledger, a multipart upload in the object store, a state in the store, in this order. A
//! crash between two of them leaves something that the same request finishes, and the sweep otherwise ends.

use std::time::Duration;

use quaymaster::{Code, upload as store};
use serde::Serialize;

use crate::effect::Effect;
use crate::ledger::{Created, Moved, New, NewNode, Step, Upload};
use crate::objects::{About, MultipartId};
use crate::uploads::Uploads;
use crate::{Error, Result, Sha256, Trouble, names};

const OP: &str = "upload.create";

/// The longest connector, of letters, digits, `.`, `_` and `-`.
const CONNECTOR_MAX: usize = 128;

/// What a client says about a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Request {
    /// The document's UUID: of a row that is there, or of a new one. A random one unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// The file's name.
    pub name: String,
    /// Its size, if it is known.
    pub size: Option<u64>,
    /// The MIME type.
    pub mime_type: Option<String>,
    /// The drive.
    pub drive: Option<String>,
    /// The connector; the schema's unless told.
    pub connector_id: Option<String>,
    /// The relative path.
    pub path: Option<String>,
    /// UUID of the folder.
    pub parent_id: Option<String>,
    /// A JSON object, as text.
    pub custom_metadata: Option<String>,
    /// The client's own stable id.
    pub client_node_id: Option<String>,
    /// The same key and the same request get the same upload.
    #[serde(skip)]
    pub idempotency_key: Option<String>,
}

/// An upload that takes chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Began {
    /// Its id.
    pub upload_id: String,
    /// The document's.
    pub node_id: String,
    /// The fewest bytes of a chunk that is not the last; as many as it takes for all chunks to be no more than there may
    /// be, where the size is known.
    pub chunk_min_bytes: u64,
    /// The most bytes of a chunk.
    pub chunk_max_bytes: u64,
}

/// The answer of `create`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Creation {
    /// It is new.
    New(Began),
    /// The same request made it before.
    Existing(Began),
    /// The idempotency key was used for another request.
    Mismatch,
    /// Another upload is for this node: it goes on, or its object is there and it is remembered. Or the node is another
    /// resource's.
    NodeTaken,
}

impl Uploads {
    /// Creates an upload.
    pub async fn create(&self, request: &Request) -> Result<Creation> {
        let new = self.new_upload(request)?;
        let made = Effect::CreateRow.of(self.inner.ledger.create(&new)).await?;
        match made {
            // Its row is there by now, or was before.
            Created::Created(upload) => {
                let began = self.begin_new(*upload, &new.node).await;
                Ok(Creation::New(began.map_err(Error::after_a_change)?))
            }
            Created::Existing(upload) => {
                let began = self.begin_again(*upload).await;
                Ok(Creation::Existing(began.map_err(Error::after_a_change)?))
            }
            Created::Mismatch(_) => Ok(Creation::Mismatch),
            Created::NodeTaken => Ok(Creation::NodeTaken),
        }
    }

    async fn begin_new(&self, upload: Upload, node: &NewNode) -> Result<Began> {
        let upload = self.open_multipart(upload, Strays::None).await?;
        self.show_new(&upload, node).await
    }

    async fn begin_again(&self, upload: Upload) -> Result<Began> {
        let upload = self.open_multipart(upload, Strays::Cut).await?;
        let node = self.node_of(&upload).await?;
        // A store that forgot it must not learn that nothing has come.
        let over = upload.step.is_over();
        if !over && self.inner.store.status(&upload.upload_id).await?.is_none() {
            self.restore_from(&upload).await?;
        }
        self.show_new(&upload, &node).await
    }

    fn new_upload(&self, request: &Request) -> Result<New> {
        let spec = self.inner.store.spec();
        let wrong = |field: &'static str, detail: String| {
            Err(Error::new(OP, Trouble::Never, detail).coded(Code::RequestInvalid).field(field))
        };
        let most = spec.chunk_max.saturating_mul(u64::from(store::MAX_CHUNKS));
        if let Some(size) = request.size.filter(|size| *size > most) {
            let detail = format!("size: {size} bytes; {} chunks have at most {most}", store::MAX_CHUNKS);
            return Err(Error::new(OP, Trouble::Never, detail).coded(Code::ResourceMismatch).field("size"));
        }
        let connector = request.connector_id.as_deref().unwrap_or(&spec.connector);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let usable = (1..=CONNECTOR_MAX).contains(&connector.len()) && connector.chars().all(plain);
        if !usable || matches!(connector, "." | "..") {
            return wrong(
                "connector_id",
                format!("connector_id: 1 to {CONNECTOR_MAX} letters, digits, `.`, `_` and `-`"),
            );
        }
        let visible = |c: char| matches!(c, ' '..='~');
        if !request.mime_type.as_deref().unwrap_or_default().chars().all(visible) {
            return wrong("mime_type", "mime_type: ASCII characters that can be seen".to_owned());
        }
        let node_id = match &request.node_id {
            // As it is written in keys: the doctor knows its own by it.
            Some(given) if !names::is_uuid(given) => {
                return wrong(
                    "node_id",
                    "node_id: a UUID in lower case, as 550e8400-e29b-41d4-a716-446655440000".to_owned(),
                );
            }
            Some(given) => given.clone(),
            None => names::uuid(OP)?,
        };
        let object_key =
            self.key_template().replace("{connector_id}", connector).replace("{node_id}", &node_id);
        let fingerprint = serde_json::to_vec(request).map_err(|error| {
            Error::new(OP, Trouble::Never, "the request cannot be written").because(error)
        })?;
        let new = New {
            upload_id: names::unique(OP)?,
            resource: self.inner.store.name().to_owned(),
            object_key,
            token: names::unique(OP)?,
            expected_size: request.size,
            idempotency_key: request.idempotency_key.clone(),
            fingerprint: Sha256::of(&fingerprint).to_string(),
            time_limit: self.time_limit(),
            node: NewNode {
                node_id,
                drive: request.drive.clone(),
                name: Some(request.name.clone()),
                mime_type: request.mime_type.clone(),
                connector_id: Some(connector.to_owned()),
                parent_id: request.parent_id.clone(),
                path: request.path.clone(),
                custom_metadata: request.custom_metadata.clone(),
                client_node_id: request.client_node_id.clone(),
            },
        };
        // Refused before anything is made of it: rows and multipart uploads of a refused one would wait for the sweep.
        let told = store::New {
            node_id: &new.node.node_id,
            key: &new.object_key,
            multipart_id: "",
            drive: new.node.drive.as_deref().unwrap_or_default(),
            mime_type: new.node.mime_type.as_deref().unwrap_or_default(),
            expected_size: new.expected_size,
            time_left: Duration::ZERO,
            metadata: metadata(&new.node),
        };
        store::Upload::check_new(OP, &told)?;
        Ok(new)
    }

    /// Begins the multipart upload of one that has none yet.
    pub(crate) async fn open_multipart(&self, upload: Upload, strays: Strays) -> Result<Upload> {
        if upload.step != Step::Created {
            return Ok(upload);
        }
        let key = &upload.object_key;
        let begun = Effect::CreateMultipart.of(self.inner.objects.begin(key, &about(&upload))).await?;
        let opened = self.inner.ledger.opened(&upload.upload_id, begun.as_str());
        let upload = match Effect::CreateOpened.of(opened).await? {
            Moved::Moved(upload) => *upload,
            Moved::Lost(upload) => {
                // Somebody else was quicker; nobody will ever send a part to ours.
                let _ = self.inner.objects.abort(key, &begun).await?;
                *upload
            }
            Moved::Unknown => {
                let _ = self.inner.objects.abort(key, &begun).await?;
                return Err(Error::new(OP, Trouble::Passing, "the upload was forgotten meanwhile"));
            }
        };
        if strays == Strays::Cut {
            self.cut_strays(&upload).await?;
        }
        Ok(upload)
    }

    /// Aborts multipart uploads of this upload's key that are not the recorded one: whoever began them died before it
    /// could say so, or will find that it was too late.
    pub(crate) async fn cut_strays(&self, upload: &Upload) -> Result<u32> {
        let mut cut = 0;
        let mut after = None;
        loop {
            let page = self.inner.objects.pending_of(&upload.object_key, after.as_ref()).await?;
            for pending in &page.uploads {
                let recorded = upload.multipart_id.as_deref() == Some(pending.id.as_str());
                if pending.key == upload.object_key && !recorded {
                    let _ = self.inner.objects.abort(&pending.key, &pending.id).await?;
                    cut += 1;
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(cut);
            }
        }
    }

    pub(crate) async fn node_of(&self, upload: &Upload) -> Result<NewNode> {
        let node = self.inner.ledger.node(&upload.node_id).await?;
        // Another program may have removed the row; then nothing is known of it but its id.
        Ok(node.map_or_else(
            || NewNode { node_id: upload.node_id.clone(), ..NewNode::default() },
            |node| node.facts,
        ))
    }

    async fn show_new(&self, upload: &Upload, node: &NewNode) -> Result<Began> {
        let spec = self.inner.store.spec();
        if !upload.step.is_over() {
            let time_left = self.inner.ledger.time_left(upload).await?;
            let new = in_store(upload, node, time_left);
            let _ = Effect::CreateShown.of(self.inner.store.create(&upload.upload_id, &new)).await?;
        }
        Ok(Began {
            upload_id: upload.upload_id.clone(),
            node_id: upload.node_id.clone(),
            chunk_min_bytes: self.inner.store.chunk_min(upload.expected_size),
            chunk_max_bytes: spec.chunk_max,
        })
    }
}

/// Whether somebody before may have begun a multipart upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strays {
    None,
    Cut,
}

/// What the object says of itself.
pub(crate) fn about(upload: &Upload) -> About {
    About { token: upload.token.clone(), mime_type: upload.mime_type.clone(), custom: Vec::new() }
}

/// The upload's multipart id as the object store knows it.
pub(crate) fn multipart_of(upload: &Upload) -> Option<MultipartId> {
    let id = upload.multipart_id.as_deref()?;
    Some(if upload.is_adopted() { MultipartId::of_others(id) } else { MultipartId::new(id) })
}

/// What the store is told about an upload.
pub(crate) fn in_store<'a>(upload: &'a Upload, node: &'a NewNode, time_left: Duration) -> store::New<'a> {
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    store::New {
        node_id: &upload.node_id,
        key: &upload.object_key,
        multipart_id: text(&upload.multipart_id),
        drive: text(&node.drive),
        mime_type: &upload.mime_type,
        expected_size: upload.expected_size,
        time_left,
        metadata: metadata(node),
    }
}

/// What the store is told of a node.
pub(crate) fn metadata(node: &NewNode) -> store::Metadata<'_> {
    store::Metadata {
        name: node.name.as_deref().unwrap_or_default(),
        connector_id: node.connector_id.as_deref().unwrap_or_default(),
        parent_id: node.parent_id.as_deref().unwrap_or_default(),
        path: node.path.as_deref().unwrap_or_default(),
        custom_metadata: node.custom_metadata.as_deref().unwrap_or_default(),
        client_node_id: node.client_node_id.as_deref().unwrap_or_default(),
    }
}
