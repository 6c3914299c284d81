//! Uploads that another program began by the documented commands: its state, its multipart upload, its chunks.
//!
//! 1. What is there is looked at. What cannot be gone on with is refused, with the same words to whoever asks.
//! 2. The upload and its multipart id enter the ledger in one transaction: it has no token there, which says whose it is.
//! 3. Its state gets its other half, and from then on it is an upload like any other.
//! 4. Its chunks are taken where they lie. They stay there until the ledger has their parts.
//!
//! That program may go on: each chunk that it announces is taken, and a sweep finds those whose announcement was missed.
//! Its object has no token either: it is proved by size and ETag.

mod meet;

pub use meet::until_begun;

use quaymaster::Code;
use quaymaster::upload::{
    Accepted, Adopted, Foreign, Last, Offer, Refusal, Source, State, Status, Upload as Store,
};

use crate::effect::Effect;
use crate::ingest::metadata;
use crate::ledger::{Created, Moved, New, NewNode, Upload};
use crate::uploads::Uploads;
use crate::{Error, Result, Trouble, bytes};

const OP: &str = "upload.adopt";

/// What is noted in the place of a request's digest.
const FINGERPRINT: &str = "begun by another program";

/// Why an upload of another program is not gone on with.
type Why = String;

/// A chunk under its documented key: number and length.
type InPlace = (u32, u64);

impl Upload {
    /// Whether another program began it: its multipart upload and its object have no token.
    pub(crate) fn is_adopted(&self) -> bool {
        self.token.is_empty()
    }
}

/// The refusal, whoever meets it.
fn refused(id: &str, why: &str) -> Error {
    let detail = format!(
        "another program began upload {id}, and it cannot be gone on with here: {why}. Let that program finish it, or \
         send the file as a new upload"
    );
    Error::new(OP, Trouble::Never, detail).coded(Code::UploadForeign)
}

impl Uploads {
    /// An upload of this resource, taken over now if another program began it; `None` when there is none.
    pub(crate) async fn ours_by_now(&self, id: &str) -> Result<Option<Upload>> {
        match self.of_ours(id).await? {
            Some(upload) => Ok(Some(upload)),
            None if self.adopt(id).await? => self.of_ours(id).await,
            None => Ok(None),
        }
    }

    /// Takes an upload over that another program began; false when there is none. An error whose code is
    /// `upload.foreign` says why it stays that program's.
    pub async fn adopt(&self, id: &str) -> Result<bool> {
        if Store::check_id(OP, id).is_err() || !self.inner.store.meets_others() {
            return Ok(false);
        }
        let Some(foreign) = self.inner.store.foreign(id).await? else { return Ok(false) };
        let upload = match self.inner.ledger.find(id).await? {
            // One of ours whose other half was lost is restored, not adopted.
            Some(upload) if upload.resource != self.inner.store.name() || !upload.is_adopted() => {
                return Ok(false);
            }
            // Whoever wrote it there died before it could say so.
            Some(upload) => upload,
            None => self.enter(id, &foreign).await?,
        };
        let time_left = self.inner.ledger.time_left(&upload).await?;
        let adopted = self.inner.store.adopt(id, &upload.node_id, time_left, upload.expected_size);
        match Effect::CreateShown.of(adopted).await? {
            Adopted::Adopted => {}
            Adopted::Unknown => return Ok(false),
            Adopted::Changed => {
                // Its own program went on with it in the very moment, and keeps it.
                self.inner.ledger.disown(id).await?;
                return Err(refused(id, "that program went on with it meanwhile"));
            }
        }
        tracing::info!(upload_id = id, "an upload that another program began is gone on with");
        self.gather(&upload).await?;
        Ok(true)
    }

    /// Writes it into the ledger.
    async fn enter(&self, id: &str, foreign: &Foreign) -> Result<Upload> {
        let new = self.judge(id, foreign).await?.map_err(|why| refused(id, &why))?;
        let adopted = self.inner.ledger.adopt(&new, &foreign.multipart_id);
        match Effect::CreateRow.of(adopted).await? {
            Created::Created(upload) | Created::Existing(upload) => Ok(*upload),
            Created::Mismatch(_) => Err(refused(id, "its id is another upload's")),
            Created::NodeTaken => {
                Err(refused(id, "another upload is for its node, or the node is another resource's"))
            }
        }
    }

    /// What it would be in the ledger, or why it cannot be gone on with.
    pub(crate) async fn judge(&self, id: &str, foreign: &Foreign) -> Result<std::result::Result<New, Why>> {
        let store = &self.inner.store;
        let Foreign { node_id, multipart_id, key, drive, mime_type, .. } = foreign;
        let fields = [
            ("node_id", node_id),
            ("s3_upload_id", multipart_id),
            ("s3_key", key),
            ("status", &foreign.status),
        ];
        let missing: Vec<&str> =
            fields.iter().filter(|(_, value)| value.is_empty()).map(|(name, _)| *name).collect();
        if !missing.is_empty() {
            return Ok(Err(format!("its state has no {}", missing.join(", "))));
        }
        if !is_open(foreign) {
            return Ok(Err(format!("its status is {:?}", foreign.status)));
        }
        if !self.inner.bytes.store_of_others(store).meets_others() {
            return Ok(Err(
                "its chunks are looked for in a cluster, where their keys are other ones".to_owned()
            ));
        }
        if foreign.etags > 0 || !matches!(&*foreign.uploaded_chunks, "" | "0") {
            return Ok(Err("a worker of that program has sent parts of it".to_owned()));
        }
        let expected_size = match number(&foreign.expected_size) {
            Ok(size) => size,
            Err(why) => return Ok(Err(format!("its expected_size {why}"))),
        };
        let total = match number(&foreign.total_chunks).map(|total| total.map(u32::try_from)) {
            Ok(None) => None,
            Ok(Some(Ok(total))) if total <= quaymaster::upload::MAX_CHUNKS => Some(total),
            _ => return Ok(Err(format!("its total_chunks is {:?}", foreign.total_chunks))),
        };
        let said = store.metadata(id).await?.unwrap_or_default();
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let new = New {
            upload_id: id.to_owned(),
            resource: store.name().to_owned(),
            object_key: key.clone(),
            token: String::new(),
            expected_size,
            idempotency_key: None,
            fingerprint: FINGERPRINT.to_owned(),
            time_limit: self.time_limit(),
            node: NewNode {
                node_id: node_id.clone(),
                drive: some(drive),
                name: some(&said.name),
                mime_type: some(mime_type),
                connector_id: some(&said.connector_id),
                parent_id: some(&said.parent_id),
                path: some(&said.path),
                custom_metadata: some(&said.custom_metadata),
                client_node_id: some(&said.client_node_id),
            },
        };
        let told = quaymaster::upload::New {
            node_id,
            key,
            multipart_id,
            metadata: metadata(&new.node),
            drive,
            mime_type,
            ..quaymaster::upload::New::default()
        };
        if let Err(error) = Store::check_new(OP, &told) {
            return Ok(Err(error.detail));
        }
        if let Err(why) = self.is_pending(key, multipart_id).await? {
            return Ok(Err(why));
        }
        let chunks = self.chunks_in_place(id, 0).await?;
        Ok(self.fitting(&chunks, total, expected_size).map(|()| new))
    }

    /// Whether the object store has that multipart upload.
    async fn is_pending(&self, key: &str, multipart_id: &str) -> Result<std::result::Result<(), Why>> {
        let mut after = None;
        loop {
            let page = match self.inner.objects.pending_of(key, after.as_ref()).await {
                Ok(page) => page,
                Err(error) if error.said() == Some("key") => return Ok(Err(error.detail().to_owned())),
                Err(error) => return Err(error),
            };
            if page.uploads.iter().any(|found| found.key == key && found.id.as_str() == multipart_id) {
                return Ok(Ok(()));
            }
            after = page.next;
            if after.is_none() {
                return Ok(Err(format!(
                    "the object store has no multipart upload {multipart_id:?} of the key {key:?}"
                )));
            }
        }
    }

    /// Whether the chunks that are there may be some of one upload.
    fn fitting(
        &self,
        chunks: &[InPlace],
        total: Option<u32>,
        expected_size: Option<u64>,
    ) -> std::result::Result<(), Why> {
        let sum: u64 = chunks.iter().map(|(_, size)| size).sum();
        if let Some(expected) = expected_size
            && (sum > expected || total == Some(chunks.len() as u32) && sum < expected)
        {
            return Err(format!("its chunks have {sum} bytes, and {expected} were announced"));
        }
        for (number, size) in chunks {
            if let Some(total) = total.filter(|total| number >= total) {
                return Err(format!("there is a chunk {number}, and its chunks are {total}"));
            }
            // The highest one may turn out to be the last.
            let open = total.is_none() && chunks.last().is_some_and(|(highest, _)| highest == number);
            let refusal = self.inner.store.check(*number, *size, last(*number, total), expected_size);
            if let Some(refusal) = refusal.filter(|refusal| !open || !is_small(*refusal)) {
                return Err(format!("chunk {number} has {size} bytes: {refusal}"));
            }
        }
        Ok(())
    }

    /// The chunks that lie under their documented keys, in the store of chunks where the schema names one; until none comes any more; `seen` of them are known.
    async fn chunks_in_place(&self, id: &str, seen: u32) -> Result<Vec<InPlace>> {
        let store = self.inner.bytes.store_of_others(&self.inner.store);
        let (mut chunks, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let (found, next) = store.in_place(id, at).await?;
            from = next.filter(|next| !found.is_empty() || *next < seen);
            chunks.extend(found);
        }
        Ok(chunks)
    }

    /// Takes the chunks of an adopted upload that its own program has put there since somebody last looked; how many.
    pub(crate) async fn gather(&self, upload: &Upload) -> Result<u32> {
        let id = &upload.upload_id;
        let Some(state) = self.inner.store.status(id).await? else { return Ok(0) };
        if !matches!(state.status, Status::Pending | Status::Uploading) {
            return Ok(0);
        }
        let total = state.receipt.total_chunks;
        let chunks = self.chunks_in_place(id, state.receipt.received_chunks).await?;
        let highest = chunks.last().map(|(number, _)| *number);
        let mut taken = 0;
        for (number, size) in chunks.into_iter().filter(|(number, _)| !state.has(*number)) {
            let last = last(number, total);
            match self.inner.store.check(number, size, last, state.expected_size) {
                None => {}
                // It is the last one, or more of it follows: that program says so.
                Some(refusal) if total.is_none() && highest == Some(number) && is_small(refusal) => continue,
                Some(refusal) => return self.give_up_adopted(&state, number, &refusal.to_string()).await,
            }
            match self.take_in_place(id, number, size, last).await? {
                Some(Accepted::Taken { .. } | Accepted::Known { .. }) => taken += 1,
                Some(Accepted::Conflict) => {
                    return self.give_up_adopted(&state, number, "other bytes have come before").await;
                }
                Some(Accepted::Refused(refusal)) if !matches!(refusal, Refusal::Unstaged { .. }) => {
                    return self.give_up_adopted(&state, number, &refusal.to_string()).await;
                }
                // It was written anew, or is gone; or the upload has ended.
                None | Some(_) => {}
            }
        }
        // How many there are may be known by now.
        self.reconcile(upload).await?;
        Ok(taken)
    }

    /// Takes a chunk where it lies; `None` when it changes meanwhile.
    async fn take_in_place(&self, id: &str, number: u32, size: u64, last: Last) -> Result<Option<Accepted>> {
        let (store, algorithm) = (&self.inner.store, self.inner.objects.algorithm());
        let holds = self.inner.bytes.store_of_others(store);
        let digest =
            bytes::digest_in_place(holds, (id, number, size), algorithm, &self.inner.fetching).await?;
        let Some(digest) = digest else { return Ok(None) };
        let place = self.inner.bytes.place_of_others(number);
        // Taken and not shipped yet, they must not end with the other program's TTL.
        if place.is_some() && !holds.keep(id, number, size).await? {
            return Ok(None);
        }
        let source = place.as_deref().map_or(Source::InPlace, Source::Elsewhere);
        let offer = Offer { number, size, digest: &digest, last, source, reservation: None };
        Ok(Some(Effect::IngestAccept.of(store.accept(id, &offer)).await?))
    }

    /// A chunk came that cannot be one of an adopted upload: that one has FAILED.
    async fn give_up_adopted(&self, state: &State, number: u32, why: &str) -> Result<u32> {
        let id = &state.upload_id;
        let reason = format!("chunk {number}, which another program put there: {why}");
        if let Moved::Moved(_) = self.inner.ledger.fail(id, None, &reason).await? {
            let _ = self.inner.store.fail(id, &reason).await?;
            tracing::warn!(upload_id = id, reason, "an upload has FAILED");
        }
        Ok(0)
    }
}

fn is_open(foreign: &Foreign) -> bool {
    matches!(Status::parse(&foreign.status), Some(Status::Pending | Status::Uploading))
}

/// Whether a chunk is the last of so many.
fn last(number: u32, total: Option<u32>) -> Last {
    if total == Some(number + 1) { Last::Yes } else { Last::No }
}

/// Whether a last chunk would not be refused for this.
const fn is_small(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::TooSmall { .. } | Refusal::Empty)
}

/// A number of at least 1, if one is said.
fn number(text: &str) -> std::result::Result<Option<u64>, Why> {
    match text {
        "" | "0" => Ok(None),
        // Without signs and leading zeros, and no more than a script can count.
        text => match text.parse::<u64>() {
            Ok(number) if number.to_string() == text && number < 1 << 53 => Ok(Some(number)),
            _ => Err(format!("is {text:?}")),
        },
    }
}
