//! A response's body that says when it has ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::pending::Pending;

pin_project! {
    /// The handler's body; its request is recorded when it has ended, failed or was dropped.
    #[derive(Debug)]
    pub struct StatsBody<R> {
        #[pin]
        inner: R,
        pending: Option<Pending>,
    }
}

impl<R> StatsBody<R> {
    pub(super) fn new(inner: R, pending: Option<Pending>) -> Self {
        Self { inner, pending }
    }
}

impl<R: Body> Body for StatsBody<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(context));
        // A body that knows its end is not asked again after its last frame.
        if !matches!(frame, Some(Ok(_))) || this.inner.is_end_stream() {
            *this.pending = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
