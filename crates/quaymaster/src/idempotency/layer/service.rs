//! The service: which requests are guarded, and what is refused before anything is begun.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::oneshot;
use tower_service::Service;
use tracing::Instrument as _;

use super::run::{Answer, Guarded, gone, own};
use super::{LayerBody, Settings, header, problem};
use crate::Code;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A service behind [`super::IdempotencyLayer`].
#[derive(Clone)]
pub struct IdempotencyService<S> {
    pub(super) inner: S,
    pub(super) settings: Arc<Settings>,
}

impl<S> fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyService({})", self.settings.idempotency.name())
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Response = Response<LayerBody<R>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Answer<R, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled ready is used; its clone waits for its turn.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let settings = self.settings.clone();
        if !settings.methods.contains(request.method()) {
            return Box::pin(pass(inner.call(request)));
        }
        let key = match header::key(request.headers()) {
            Ok(Some(key)) => key,
            Ok(None) if !settings.required => return Box::pin(pass(inner.call(request))),
            Ok(None) => return refuse(Code::IdempotencyKey, "this request needs an Idempotency-Key header"),
            Err(why) => return refuse(Code::IdempotencyKey, why),
        };
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let key = match (settings.key_of)(&parts, &key) {
                Ok(key) => key,
                Err(error) => return Ok(own(problem::failed(&error))),
            };
            if let Some(refused) = unusable(&settings, &key) {
                return Ok(own(refused));
            }
            let body = match read(&parts, body, settings.max_request).await {
                Ok(body) => body,
                Err(refused) => return Ok(own(refused)),
            };
            let (asked, answer) = oneshot::channel();
            let guarded = Guarded { settings, inner, parts, body, key };
            tokio::spawn(guarded.run(asked).in_current_span());
            answer.await.unwrap_or_else(|_| Ok(gone()))
        })
    }
}

/// Refuses a key that no record can lie under, before anything is read: the client's mistake where a value is not
/// fit for a key, the program's where a placeholder has none.
fn unusable(settings: &Settings, key: &[(String, String)]) -> Option<Response<Bytes>> {
    let key: Vec<(&str, &str)> = key.iter().map(|(name, value)| (&**name, &**value)).collect();
    let error = settings.idempotency.check_key(&key).err()?;
    Some(match error.code {
        Code::KeyValue => problem::refuse(Code::IdempotencyKey, &error.detail),
        _ => problem::failed(&error),
    })
}

async fn pass<R: Body<Data = Bytes>, E>(
    answer: impl Future<Output = Result<Response<R>, E>>,
) -> Answer<R, E> {
    Ok(answer.await?.map(LayerBody::through))
}

fn refuse<R, E>(code: Code, detail: &str) -> BoxFuture<'static, Answer<R, E>>
where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
    E: Send + 'static,
{
    let refused = own(problem::refuse(code, detail));
    Box::pin(async move { Ok(refused) })
}

/// The whole body, or why not.
async fn read<B>(parts: &Parts, body: B, most: usize) -> Result<Bytes, Response<Bytes>>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let too_large = || {
        let detail = format!("the body is over {most} bytes");
        problem::refuse(Code::RequestTooLarge, &detail)
    };
    // Refused before it is sent, where the client says how long it is.
    let announced = parts.headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if announced.and_then(|text| text.parse::<u64>().ok()).is_some_and(|length| length > most as u64) {
        return Err(too_large());
    }
    match Limited::new(body, most).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => {
            Err(problem::refuse(Code::RequestInvalid, &format!("the body could not be read: {error}")))
        }
    }
}
