//! The body of an answer: the handler's, or one of ours.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The handler's body, or the bytes a layer answered with in its place.
    #[derive(Debug)]
    pub struct AnswerBody<R> {
        #[pin]
        inner: Inner<R>,
    }
}

pin_project! {
    #[project = Projected]
    #[derive(Debug)]
    enum Inner<R> {
        Theirs { #[pin] body: R },
        Ours { bytes: Option<Bytes> },
    }
}

impl<R> AnswerBody<R> {
    /// The handler's body, untouched.
    pub(crate) fn theirs(body: R) -> Self {
        Self { inner: Inner::Theirs { body } }
    }

    /// These bytes.
    pub(crate) fn ours(bytes: Bytes) -> Self {
        Self { inner: Inner::Ours { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) } }
    }
}

impl<R> Body for AnswerBody<R>
where
    R: Body,
    R::Data: From<Bytes>,
{
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        match self.project().inner.project() {
            Projected::Theirs { body } => body.poll_frame(context),
            Projected::Ours { bytes } => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(R::Data::from(bytes)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Theirs { body } => body.is_end_stream(),
            Inner::Ours { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Theirs { body } => body.size_hint(),
            Inner::Ours { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}
