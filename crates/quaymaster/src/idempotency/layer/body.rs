//! The body of an answer: what was collected, then whatever was left of the handler's own.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// What the layer answers with: bytes of its own, or the handler's body.
#[derive(Debug)]
pub struct LayerBody<R: Body> {
    frames: VecDeque<Frame<Bytes>>,
    failed: Option<R::Error>,
    rest: Option<Pin<Box<R>>>,
}

/// What collecting a body came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Collected {
    /// All of it.
    Whole(Bytes),
    /// More than the bound.
    TooLong,
    /// It broke off.
    Failed,
}

impl<R: Body<Data = Bytes>> LayerBody<R> {
    /// The handler's body, untouched.
    pub(super) fn through(body: R) -> Self {
        Self { frames: VecDeque::new(), failed: None, rest: Some(Box::pin(body)) }
    }

    /// These bytes.
    pub(super) fn whole(bytes: Bytes) -> Self {
        let frames = if bytes.is_empty() { VecDeque::new() } else { VecDeque::from([Frame::data(bytes)]) };
        Self { frames, failed: None, rest: None }
    }

    /// Reads the handler's body up to `most` bytes; this body then gives all of it, whatever was read.
    pub(super) async fn collect(&mut self, most: usize) -> Collected {
        let Some(mut rest) = self.rest.take() else { return Collected::Whole(Bytes::new()) };
        if rest.size_hint().lower() > most as u64 {
            self.rest = Some(rest);
            return Collected::TooLong;
        }
        let mut length = 0;
        loop {
            let frame = std::future::poll_fn(|context| rest.as_mut().poll_frame(context)).await;
            match frame {
                None => break,
                Some(Err(error)) => {
                    self.failed = Some(error);
                    return Collected::Failed;
                }
                Some(Ok(frame)) => {
                    length += frame.data_ref().map_or(0, Bytes::len);
                    self.frames.push_back(frame);
                    if length > most {
                        self.rest = Some(rest);
                        return Collected::TooLong;
                    }
                }
            }
        }
        let mut data = self.frames.iter().filter_map(|frame| frame.data_ref());
        // One piece is the rule, and needs no copy.
        let (first, second) = (data.next(), data.next());
        Collected::Whole(match (first, second) {
            (None, _) => Bytes::new(),
            (Some(one), None) => one.clone(),
            (Some(one), Some(two)) => {
                let mut all = Vec::with_capacity(length);
                for piece in [one, two].into_iter().chain(data) {
                    all.extend_from_slice(piece);
                }
                all.into()
            }
        })
    }
}

impl<R: Body<Data = Bytes>> Body for LayerBody<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match &mut self.rest {
            Some(rest) => rest.as_mut().poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let rest = self.rest.as_ref().is_none_or(|rest| rest.is_end_stream());
        self.frames.is_empty() && self.failed.is_none() && rest
    }

    fn size_hint(&self) -> SizeHint {
        let collected: u64 =
            self.frames.iter().filter_map(|frame| frame.data_ref()).map(|data| data.len() as u64).sum();
        let mut hint = SizeHint::with_exact(collected);
        if self.failed.is_some() {
            hint = SizeHint::new();
            hint.set_lower(collected);
        }
        if let Some(rest) = &self.rest {
            let left = rest.size_hint();
            hint = SizeHint::new();
            hint.set_lower(collected + left.lower());
            if let Some(upper) = left.upper() {
                hint.set_upper(collected + upper);
            }
        }
        hint
    }
}

impl<R: Body> Unpin for LayerBody<R> {}
