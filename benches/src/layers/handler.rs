//! What stands behind the layers: a handler that answers at once.

use std::convert::Infallible;
use std::future::Ready;
use std::net::SocketAddr;
use std::task::{Context as TaskContext, Poll};

use anyhow::Result;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use tower_service::Service;

/// Answers with nothing.
#[derive(Clone)]
pub(super) struct Handler;

impl Service<Request<Body>> for Handler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        std::future::ready(Ok(Response::new(Body::empty())))
    }
}

/// A request of one caller.
pub(super) fn request(caller: u64) -> Result<Request<Body>> {
    let mut request = Request::get("/users/7").body(Body::empty())?;
    let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 | (caller as u32 & 0x00ff_ffff));
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((address, 4711))));
    Ok(request)
}
