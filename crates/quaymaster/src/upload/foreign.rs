//! Uploads that another program began by the documented commands: found, and taken over.

use std::ops::Range;
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt as _};
use quaymaster_store::{Message, ScanCursor, Topology};

use super::{MAX_CHUNKS, Upload, ops, tell};
use crate::scripts::{one_each, upload_adopt, upload_enlist, upload_foreign, upload_keep, upload_lengths};
use crate::upload::ops::When;
use crate::{Error, Result, bound};

/// Chunks looked for in one step.
const PAGE: u32 = 500;

/// The state of an upload as another program wrote it; empty text is a field that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Foreign {
    /// UUID of the document.
    pub node_id: String,
    /// The object store's multipart id.
    pub multipart_id: String,
    /// The object's key.
    pub key: String,
    /// The drive's name.
    pub drive: String,
    /// The MIME type.
    pub mime_type: String,
    /// The status.
    pub status: String,
    /// The size as announced.
    pub expected_size: String,
    /// Chunks that a worker of that program has shipped.
    pub uploaded_chunks: String,
    /// How many chunks there are.
    pub total_chunks: String,
    /// How many ETags of shipped chunks there are.
    pub etags: u64,
}

/// What became of an upload that was to be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Adopted {
    /// It goes on here, now or since somebody else was quicker.
    Adopted,
    /// It is not what was looked at any more.
    Changed,
    /// There is no such state.
    Unknown,
}

/// A page of ids of uploads that have a state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct States {
    /// The ids; one may come twice.
    pub ids: Vec<String>,
    /// Where to go on; `None` at the end.
    pub next: Option<Vec<u8>>,
}

impl Upload {
    /// Whether other programs' keys are the ones looked for here: on a cluster ours are spelled otherwise.
    pub fn meets_others(&self) -> bool {
        self.bound.engine.topology() == Topology::Single
    }

    /// The state of an upload that another program began; `None` when there is none, or it is ours.
    pub async fn foreign(&self, id: &str) -> Result<Option<Foreign>> {
        const OP: &str = ops::ADOPT;
        let reply = self.bound.run(OP, ops::foreign(self, id)?).await?;
        use upload_foreign::Reply as Told;
        let Told::Foreign {
            etags,
            node_id,
            multipart_id,
            key,
            drive,
            mime_type,
            status,
            expected_size,
            uploaded_chunks,
            total_chunks,
        } = Told::read(OP, reply)?
        else {
            return Ok(None);
        };
        Ok(Some(Foreign {
            node_id: tell::text_of(&node_id),
            multipart_id: tell::text_of(&multipart_id),
            key: tell::text_of(&key),
            drive: tell::text_of(&drive),
            mime_type: tell::text_of(&mime_type),
            status: tell::text_of(&status),
            expected_size: tell::text_of(&expected_size),
            uploaded_chunks: tell::text_of(&uploaded_chunks),
            total_chunks: tell::text_of(&total_chunks),
            etags: tell::counted(etags),
        }))
    }

    /// Takes an upload over that is in the ledger by now; its chunks are offered as [`super::Source::InPlace`] then.
    pub async fn adopt(
        &self,
        id: &str,
        node_id: &str,
        time_left: Duration,
        expected_size: Option<u64>,
    ) -> Result<Adopted> {
        const OP: &str = ops::ADOPT;
        let call = ops::adopt(self, id, node_id, time_left, expected_size.is_some())?;
        let deadline_ms = match upload_adopt::Reply::read(OP, self.bound.run(OP, call).await?)? {
            upload_adopt::Reply::Adopted { deadline_ms } | upload_adopt::Reply::Begun { deadline_ms } => {
                deadline_ms
            }
            upload_adopt::Reply::Changed => return Ok(Adopted::Changed),
            upload_adopt::Reply::Unknown => return Ok(Adopted::Unknown),
        };
        let enlisted = self.bound.run(OP, ops::enlist(self, OP, id, When::Moment(deadline_ms))?).await?;
        upload_enlist::Reply::read(OP, enlisted)?;
        Ok(Adopted::Adopted)
    }

    /// Numbers and lengths of the chunks whose bytes are under their documented keys, of those from `from` on; and where
    /// to go on, unless all were looked at.
    pub async fn in_place(&self, id: &str, from: u32) -> Result<(Vec<(u32, u64)>, Option<u32>)> {
        const OP: &str = ops::ADOPT;
        let to = from.saturating_add(PAGE).min(MAX_CHUNKS);
        let numbers: Range<u32> = from..to;
        let reply = self.bound.run(OP, ops::lengths(self, id, numbers.clone())?).await?;
        let upload_lengths::Reply::Lengths { lengths } = upload_lengths::Reply::read(OP, reply)?;
        let lengths = one_each(OP, lengths, numbers.len())?;
        let there = |(number, length)| Some((number, u64::try_from(length).ok()?));
        let found = numbers.zip(lengths).filter_map(there).collect();
        Ok((found, (to < MAX_CHUNKS).then_some(to)))
    }

    /// Lets the bytes under a chunk's documented key live as long as a chunk's from now on, in a store that holds nothing
    /// but chunks; false when there are not `size` of them. In its own store, [`Upload::accept`] does so.
    pub async fn keep(&self, id: &str, number: u32, size: u64) -> Result<bool> {
        const OP: &str = ops::ADOPT;
        let reply = self.bound.run(OP, ops::keep(self, id, number, size)?).await?;
        Ok(match upload_keep::Reply::read(OP, reply)? {
            upload_keep::Reply::Kept => true,
            upload_keep::Reply::Differs { .. } => false,
        })
    }

    /// A page of all uploads that have a state, whoever began them; a walk over about `count` keys of the store.
    pub async fn states(&self, count: usize, from: Option<Vec<u8>>) -> Result<States> {
        const OP: &str = ops::ADOPT;
        let engine = &self.bound.engine;
        let spelling = bound::spelling(engine.topology());
        let pattern = self.bound.pattern();
        let page = engine.scan(pattern.glob(spelling).as_bytes(), count, from.map(ScanCursor)).await;
        let page = page.map_err(|error: Error| error.during(OP))?;
        let id = |key: &bytes::Bytes| pattern.parse(key)?.into_iter().next().map(|(_, id)| id);
        let ids = page.keys.iter().filter_map(id).filter(|id| Self::check_id(OP, id).is_ok());
        Ok(States { ids: ids.collect(), next: page.next.map(|cursor| cursor.0) })
    }

    /// Ids of uploads of which a chunk has come, as they are told, whoever tells them: hints, of which some are missed.
    pub async fn arrivals(&self) -> Result<impl Stream<Item = String> + Send + use<>> {
        const OP: &str = ops::ADOPT;
        let messages = self.bound.engine.subscribe(&self.arrival_channel(OP)?).await?;
        Ok(messages.filter_map(async |message| {
            let Message::Data(told) = message else { return None };
            let told: serde_json::Value = serde_json::from_slice(&told).ok()?;
            let id = told.get("upload_id")?.as_str()?.to_owned();
            Self::check_id(OP, &id).is_ok().then_some(id)
        }))
    }
}
