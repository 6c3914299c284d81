//! How a file reaches its upload: over HTTP, or straight on the store. Both ways have the same idempotency keys, so that
//! what was begun on one goes on by the other.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use quaymaster::upload::{Last, Progress, Status};
use quaymaster::{Code, Error, Retry};
use quaymaster_server::command::Fields;
use quaymaster_server::{upload_error, upload_request};
use quaymaster_upload::ingest::{Began, Content, Creation, Incoming, Resumed, Standing, Took};
use quaymaster_upload::{Sha256, Trouble, Uploads};

use super::remote::Remote;

/// Where files go.
pub(super) enum Way {
    Server(Remote),
    Store(Uploads),
}

/// What is seen of an upload.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) status: Status,
    pub(super) aborted: bool,
    /// Chunks that are there, received or durable.
    pub(super) has: Vec<RangeInclusive<u32>>,
    /// Chunks to send again.
    pub(super) resend: Vec<u32>,
    pub(super) error: Option<String>,
}

/// The content of an upload.
pub(super) struct Body {
    /// Of all of it; `None` where nobody says it.
    pub(super) size: Option<u64>,
    pub(super) pieces: BoxStream<'static, Tried<Bytes>>,
}

/// Told how many bytes of a chunk are on their way.
pub(super) type Sent<'a> = &'a (dyn Fn(u64) + Sync);

/// Why something did not work.
#[derive(Debug)]
pub(super) enum Trying {
    /// It may work after so long, or when somebody knows.
    Later(Option<Duration>, Error),
    /// It will not.
    Never(Error),
}

pub(super) type Tried<T> = Result<T, Trying>;

impl Trying {
    /// What went wrong, whether or not it may pass.
    pub(super) fn error(self) -> Error {
        match self {
            Self::Later(_, error) | Self::Never(error) => error,
        }
    }
}

fn told(error: quaymaster_upload::Error) -> Trying {
    match error.trouble() {
        Trouble::Never => Trying::Never(upload_error(error)),
        Trouble::Passing | Trouble::Credentials | Trouble::Full => Trying::Later(None, upload_error(error)),
    }
}

/// The store itself did not answer.
fn unheard(error: Error) -> Trying {
    match error.code.retry() {
        Retry::Useless => Trying::Never(error),
        Retry::Later | Retry::MayHaveRun => Trying::Later(None, error),
    }
}

fn never(code: Code, detail: impl Into<String>) -> Trying {
    Trying::Never(Error::new("upload.put", code, detail.into()))
}

impl Way {
    /// Begins an upload, by the fields of `upload create`.
    pub(super) async fn create(&self, fields: &Fields) -> Tried<Began> {
        match self {
            Self::Server(remote) => remote.create(fields).await,
            Self::Store(uploads) => {
                let request = upload_request(fields).map_err(Trying::Never)?;
                match uploads.create(&request).await.map_err(told)? {
                    Creation::New(began) | Creation::Existing(began) => Ok(began),
                    Creation::Mismatch => {
                        Err(never(Code::UploadMismatch, "the key was used for another file"))
                    }
                    Creation::NodeTaken => Err(never(Code::UploadNode, "another upload is for this node")),
                }
            }
        }
    }

    pub(super) async fn standing(&self, id: &str) -> Tried<Option<Seen>> {
        match self {
            Self::Server(remote) => remote.standing(id).await,
            Self::Store(uploads) => Ok(uploads.standing(id).await.map_err(told)?.map(seen)),
        }
    }

    pub(super) async fn chunk(
        &self,
        id: &str,
        number: u32,
        last: Last,
        bytes: Bytes,
        sent: Sent<'_>,
    ) -> Tried<()> {
        let sha256 = Sha256::of(&bytes);
        let uploads = match self {
            Self::Server(remote) => return remote.chunk(id, number, last, sha256, bytes, sent).await,
            Self::Store(uploads) => uploads,
        };
        let incoming = Incoming { number, last, size: Some(bytes.len() as u64), sha256: Some(sha256) };
        let body = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(bytes)]);
        let later =
            |wait, detail| Err(Trying::Later(Some(wait), Error::new("upload.put", Code::UploadBusy, detail)));
        match Box::pin(uploads.receive(id, &incoming, body)).await.map_err(told)? {
            Took::Received { .. } => Ok(()),
            Took::Busy { retry_after } => later(retry_after, "too many bytes are in flight".to_owned()),
            Took::Anew { why, retry_after } => later(retry_after, format!("chunk {number}: {why}")),
            Took::Conflict => Err(never(
                Code::UploadConflict,
                format!(
                    "chunk {number} has come with other bytes: the file has changed; upload it with --again"
                ),
            )),
            Took::Refused(refusal) => Err(never(Code::UploadRefused, format!("chunk {number}: {refusal}"))),
            Took::Closed { status, error } => {
                Err(never(Code::UploadClosed, format!("the upload is {status} {error}")))
            }
            Took::Digest { .. } | Took::Length { .. } => {
                Err(never(Code::UploadDigest, format!("chunk {number} is not what was announced")))
            }
            Took::Broken(why) => Err(never(Code::RequestInvalid, why)),
            Took::Unknown => Err(never(Code::UploadUnknown, format!("there is no upload {id}"))),
        }
    }

    /// Goes on with an upload that has FAILED.
    pub(super) async fn resume(&self, id: &str) -> Tried<()> {
        match self {
            Self::Server(remote) => remote.resume(id).await,
            Self::Store(uploads) => match uploads.resume(id).await.map_err(told)? {
                Resumed::Open(_) | Resumed::Ended(_) => Ok(()),
                Resumed::Unknown => Err(never(Code::UploadUnknown, format!("there is no upload {id}"))),
            },
        }
    }

    /// How far an upload is, and every change.
    pub(super) async fn progress(&self, id: &str) -> Tried<BoxStream<'static, Tried<Progress>>> {
        match self {
            Self::Server(remote) => remote.progress(id).await,
            Self::Store(uploads) => {
                let told = uploads.store().progress(id).await.map_err(unheard)?;
                Ok(told.map(|progress| progress.map_err(unheard)).boxed())
            }
        }
    }

    /// The object's bytes from the one at `from`.
    pub(super) async fn content(&self, id: &str, from: u64) -> Tried<Body> {
        let uploads = match self {
            Self::Server(remote) => return remote.content(id, from).await,
            Self::Store(uploads) => uploads,
        };
        let range = match from {
            0 => None,
            _ => {
                let known = uploads.ledger().find(id).await.map_err(told)?;
                known.and_then(|upload| upload.final_size).map(|size| from..size)
            }
        };
        match uploads.content(id, range).await.map_err(told)? {
            Content::Pieces { size, pieces, .. } => {
                Ok(Body { size: Some(size), pieces: pieces.map(|piece| piece.map_err(told)).boxed() })
            }
            Content::Not(step) => {
                let detail = format!("there is no content: the upload is {}", step.status());
                Err(never(Code::UploadClosed, detail))
            }
            Content::Unknown => Err(never(Code::UploadUnknown, format!("there is no upload {id}"))),
        }
    }
}

fn seen(standing: Standing) -> Seen {
    let Standing { state, resend, .. } = standing;
    let mut has = state.received();
    has.extend(state.durable());
    Seen {
        status: state.status,
        aborted: state.aborted,
        has,
        resend: resend.into_iter().flatten().collect(),
        error: state.error,
    }
}
