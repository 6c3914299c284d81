//! The services: a request is begun, its response finishes it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::Settings;
use super::body::StatsBody;
use super::pending::Pending;

/// A service behind [`super::StatsLayer`].
#[derive(Clone)]
pub struct StatsService<S> {
    pub(super) inner: S,
    pub(super) settings: Settings,
}

/// A service behind [`super::WholeStatsLayer`].
#[derive(Clone)]
pub struct WholeStatsService<S> {
    pub(super) inner: S,
    pub(super) settings: Settings,
}

impl<S> fmt::Debug for StatsService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsService").finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for WholeStatsService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WholeStatsService").finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for StatsService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = StatsFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut pending = Pending::begin(&self.settings, &request);
        let inner = self.inner.call(request);
        rest(&mut pending);
        StatsFuture { pending, inner }
    }
}

impl<S, B, R> Service<Request<B>> for WholeStatsService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<StatsBody<R>>;
    type Error = S::Error;
    type Future = WholeStatsFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut pending = Pending::begin(&self.settings, &request);
        let inner = self.inner.call(request);
        rest(&mut pending);
        WholeStatsFuture { pending, inner }
    }
}

pin_project! {
    /// An answer that will be recorded.
    #[derive(Debug)]
    pub struct StatsFuture<F> {
        pending: Option<Pending>,
        #[pin]
        inner: F,
    }
}

pin_project! {
    /// An answer that will be recorded once its body has ended.
    #[derive(Debug)]
    pub struct WholeStatsFuture<F> {
        pending: Option<Pending>,
        #[pin]
        inner: F,
    }
}

impl<F, R, E> Future for StatsFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<R>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(poll(this.inner, this.pending, context));
        *this.pending = None;
        Poll::Ready(answer)
    }
}

impl<F, R, E> Future for WholeStatsFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<StatsBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(poll(this.inner, this.pending, context));
        let pending = this.pending.take();
        Poll::Ready(answer.map(|response| response.map(|body| StatsBody::new(body, pending))))
    }
}

/// Asks the handler to go on, and notes what came of it.
fn poll<F, R, E>(
    inner: Pin<&mut F>,
    pending: &mut Option<Pending>,
    context: &mut Context<'_>,
) -> Poll<Result<Response<R>, E>>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    if let Some(pending) = pending {
        pending.run();
    }
    let answer = inner.poll(context);
    match (&mut *pending, &answer) {
        (Some(pending), Poll::Ready(Ok(response))) => pending.answered(response),
        (Some(pending), Poll::Ready(Err(_))) => pending.failed(),
        (pending, Poll::Pending) => rest(pending),
        (None, _) => {}
    }
    answer
}

fn rest(pending: &mut Option<Pending>) {
    if let Some(pending) = pending {
        pending.wait();
    }
}
