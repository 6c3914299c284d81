//! The content of an upload, read to its end: where the line breaks, it is read on from there.

use bytes::Bytes;
use futures_util::StreamExt as _;
use quaymaster::{Code, Error};

use super::patience::{FIRST_PAUSE, patiently};
use super::way::{Body, Trying, Way};

/// Breaks without a byte between them, before it is an error.
const BREAKS: u32 = 5;

pub(super) struct Reading<'a> {
    way: &'a Way,
    id: &'a str,
    body: Body,
    /// Of the whole content, where somebody says it.
    size: Option<u64>,
    at: u64,
    breaks: u32,
}

impl<'a> Reading<'a> {
    pub(super) async fn begin(way: &'a Way, id: &'a str) -> Result<Self, Error> {
        let body = patiently(|| way.content(id, 0)).await?;
        Ok(Self { way, id, size: body.size, body, at: 0, breaks: 0 })
    }

    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }

    /// Whether any bytes have come.
    pub(super) fn has_begun(&self) -> bool {
        self.at > 0
    }

    /// The next bytes; `None` when these were all.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let why = match self.body.pieces.next().await {
                Some(Ok(piece)) if piece.is_empty() => continue,
                Some(Ok(piece)) => {
                    self.at += piece.len() as u64;
                    self.breaks = 0;
                    return Ok(Some(piece));
                }
                None if self.size.is_none_or(|size| self.at >= size) => return Ok(None),
                // What breaks behind the last byte takes nothing away, and nothing could be asked for.
                Some(Err(_)) if self.size == Some(self.at) => return Ok(None),
                Some(Err(Trying::Never(error))) => return Err(error),
                Some(Err(Trying::Later(_, error))) => error,
                None => {
                    let detail = format!("the content of upload {} ended after {} bytes", self.id, self.at);
                    Error::new("upload.content", Code::UploadBackend, detail)
                }
            };
            self.breaks += 1;
            if self.breaks >= BREAKS {
                return Err(why);
            }
            tracing::debug!(%why, at = self.at, "the content broke off; reading on");
            tokio::time::sleep(FIRST_PAUSE * (1 << (self.breaks - 1))).await;
            let (way, id, at) = (self.way, self.id, self.at);
            self.body = patiently(|| way.content(id, at)).await?;
        }
    }
}
