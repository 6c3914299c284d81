//! Progress of an upload: a snapshot, then what changed, numbered; never less than the truth for long.

use std::time::Duration;

use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};

use super::answer::Status;
use super::state::State;
use super::{Upload, ops};
use crate::Result;
use crate::wake::{Wake, Woken};

/// Without a message the state is looked at again after so long: messages are hints.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How far an upload has come; as JSON the documented message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Chunks durable.
    pub uploaded_chunks: u32,
    /// How many there are; 0 while unknown.
    pub total_chunks: u32,
    /// Bytes durable.
    pub bytes_uploaded: u64,
    /// Bytes announced, 0 when they were not; the object's size once COMPLETED.
    pub total_bytes: u64,
    /// The share of the chunks that are durable, in tenths of a percent; of the bytes announced while it is unknown how
    /// many chunks there are.
    pub percent: f64,
    /// The status.
    pub status: String,
    /// Chunks received, the durable ones among them.
    #[serde(default)]
    pub received_chunks: u32,
    /// The number of the message: a higher one knows more.
    #[serde(default)]
    pub seq: u64,
    /// The client gave it up: FAILED for good.
    #[serde(default)]
    pub aborted: bool,
    /// What went wrong, when it failed; why its completion waits, while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

impl Progress {
    /// Whether nothing follows it.
    pub fn is_last(&self) -> bool {
        self.aborted || matches!(Status::parse(&self.status), Some(Status::Completed | Status::Expired))
    }
}

impl From<&State> for Progress {
    fn from(state: &State) -> Self {
        let announced = state.expected_size.unwrap_or(0);
        let total_chunks = state.receipt.total_chunks.unwrap_or(0);
        let durable = state.receipt.durable_chunks;
        let share = |part: u64, whole: u64| (u128::from(part) * 1000 / u128::from(whole)).min(1000) as u32;
        let (tenths, total_bytes) = match (state.status, total_chunks, announced) {
            (Status::Completed, ..) => (1000, state.final_size.unwrap_or(announced)),
            (_, 0, 0) => (0, 0),
            (_, 0, _) => (share(state.bytes_durable, announced), announced),
            (_, total, _) => (share(durable.into(), total.into()), announced),
        };
        Self {
            uploaded_chunks: durable,
            total_chunks,
            bytes_uploaded: state.bytes_durable,
            total_bytes,
            percent: f64::from(tenths) / 10.0,
            status: state.status.name().to_owned(),
            received_chunks: state.receipt.received_chunks,
            seq: state.seq,
            aborted: state.aborted,
            error_message: state.error.clone(),
        }
    }
}

/// Where a watcher stands.
struct Watch {
    upload: Upload,
    id: String,
    wake: Wake,
    /// The number of the last one told.
    seq: Option<u64>,
    over: bool,
}

impl Upload {
    /// Progress from now on: how far it has come, then every change, with rising numbers; ends when the upload has
    /// ended or is forgotten. Numbers that are left out were missed by a reader who was slow, and nothing is missing in
    /// what follows. An upload the store does not know gives an empty stream.
    pub async fn progress(&self, id: &str) -> Result<impl Stream<Item = Result<Progress>> + Send + use<>> {
        const OP: &str = ops::PROGRESS;
        Self::check_id(OP, id)?;
        // Listening comes before the snapshot, so that nothing in between is missed.
        let wake = Wake::on(&*self.bound.engine, &self.progress_channel(OP, id)?).await?;
        let watch = Watch { upload: self.clone(), id: id.to_owned(), wake, seq: None, over: false };
        Ok(stream::unfold(watch, |mut watch| async move {
            let told = watch.next().await.transpose()?;
            watch.over |= told.is_err();
            Some((told, watch))
        }))
    }
}

impl Watch {
    async fn next(&mut self) -> Result<Option<Progress>> {
        if self.over {
            return Ok(None);
        }
        if self.seq.is_none() {
            return self.snapshot(true).await;
        }
        loop {
            let told = match self.wake.wait(LOOK_AGAIN).await {
                Woken::Hint(message) => match serde_json::from_slice::<Progress>(&message) {
                    Ok(progress) => Some(progress).filter(|told| Some(told.seq) > self.seq),
                    // Another program's message: a hint that something changed.
                    Err(_) => self.snapshot(false).await?,
                },
                Woken::Missed | Woken::Time => self.snapshot(false).await?,
            };
            if let Some(progress) = told {
                self.seq = Some(progress.seq);
                self.over |= progress.is_last();
                return Ok(Some(progress));
            }
            if self.over {
                return Ok(None);
            }
        }
    }

    /// The state as it is, if it says anything new.
    async fn snapshot(&mut self, first: bool) -> Result<Option<Progress>> {
        let Some(state) = self.upload.status(&self.id).await? else {
            self.over = true;
            return Ok(None);
        };
        self.over |= state.is_ended();
        let progress = Progress::from(&state);
        if first || Some(progress.seq) > self.seq {
            self.seq = Some(progress.seq);
            return Ok(Some(progress));
        }
        Ok(None)
    }
}
