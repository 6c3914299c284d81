//! The `Idempotency-Key` header for tower services: axum, hyper and whatever else speaks `http`.
//!
//! The first request with a key runs the handler and its answer is kept; the same request again gets that answer,
//! marked with [`REPLAYED`]. The handler runs in a task of its own: it goes on when the client hangs up, and the
//! client that comes back finds its answer.
//!
//! | request | answer |
//! |---|---|
//! | no key where one is required, two keys, an unusable one | 400 `idempotency.key` |
//! | the key's operation is still running | 409 `idempotency.in_progress`, `Retry-After` |
//! | the key was used for another request | 422 `idempotency.mismatch` |
//! | the operation ran, its answer was not kept | 409 `idempotency.no_response` |
//! | a body over the bound | 413 `request.too_large` |
//! | the store cannot be asked, and the schema says `deny` | 503 |
//! | the same, and it says `allow` | the handler's, with `quaymaster-outage: allow` |

mod body;
mod header;
mod message;
mod problem;
mod run;
mod service;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, Method};

pub use body::LayerBody;
pub use service::IdempotencyService;

use super::Idempotency;
use crate::{Code, Error, Result};

/// `true` on an answer that was kept from an earlier request.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The policy that answered while the store could not be asked: the operation may run twice.
const OUTAGE: HeaderName = HeaderName::from_static("quaymaster-outage");

/// The request header that names the operation.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The largest request body, unless told otherwise.
const MAX_REQUEST: usize = 1 << 20;

type KeyOf = dyn Fn(&Parts, &str) -> Result<Vec<(String, String)>> + Send + Sync;
type FingerprintOf = dyn Fn(&Parts, &[u8]) -> Vec<u8> + Send + Sync;

/// Gives a tower service the `Idempotency-Key` header. Cheap to clone.
///
/// ```
/// # use quaymaster::{Quaymaster, idempotency::IdempotencyLayer};
/// # fn wire(quaymaster: &Quaymaster) -> quaymaster::Result<IdempotencyLayer> {
/// let layer = IdempotencyLayer::new(quaymaster.idempotency("orders")?.clone())?
///     .wait(std::time::Duration::from_secs(2));
/// // Router::new().route("/orders", post(create)).layer(layer)
/// # Ok(layer)
/// # }
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer {
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    idempotency: Idempotency,
    key_of: Arc<KeyOf>,
    fingerprint_of: Option<Arc<FingerprintOf>>,
    required: bool,
    methods: Arc<[Method]>,
    wait: Duration,
    max_request: usize,
    replay_headers: Arc<[HeaderName]>,
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyLayer({})", self.settings.idempotency.name())
    }
}

impl IdempotencyLayer {
    /// The header's value is the key's only placeholder.
    ///
    /// Two callers that send the same value then mean the same operation. Where callers do not trust each other,
    /// put who they are into the key: [`IdempotencyLayer::keyed`].
    pub fn new(idempotency: Idempotency) -> Result<Self> {
        let names: Vec<&str> = idempotency.bound.pattern().placeholders().collect();
        let [name] = names[..] else {
            let pattern = idempotency.bound.pattern().text();
            let detail = format!(
                "`{pattern}` has {} placeholders, the header has one value: say what each is",
                names.len()
            );
            return Err(Error::new("idempotency.layer", Code::ConfigInvalid, detail));
        };
        let name = name.to_owned();
        Ok(Self::keyed(idempotency, move |_, key| Ok(vec![(name.clone(), key.to_owned())])))
    }

    /// `key_of` gives every placeholder its value, from the request and the header's value. What it refuses is
    /// answered under the error's code.
    pub fn keyed(
        idempotency: Idempotency,
        key_of: impl Fn(&Parts, &str) -> Result<Vec<(String, String)>> + Send + Sync + 'static,
    ) -> Self {
        use http::header::{
            CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG,
            EXPIRES, LAST_MODIFIED, LINK, LOCATION, VARY,
        };
        let replay_headers = [
            CONTENT_TYPE,
            CONTENT_ENCODING,
            CONTENT_LANGUAGE,
            CONTENT_DISPOSITION,
            LOCATION,
            ETAG,
            LAST_MODIFIED,
            CACHE_CONTROL,
            EXPIRES,
            LINK,
            VARY,
        ];
        Self {
            settings: Settings {
                idempotency,
                key_of: Arc::new(key_of),
                fingerprint_of: None,
                required: true,
                methods: Arc::new([Method::POST, Method::PATCH]),
                wait: Duration::ZERO,
                max_request: MAX_REQUEST,
                replay_headers: Arc::new(replay_headers),
            },
        }
    }

    /// A request without the header passes unguarded, instead of being refused.
    pub fn optional(mut self) -> Self {
        self.settings.required = false;
        self
    }

    /// The methods that are guarded; `POST` and `PATCH` unless told otherwise. Others pass.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.settings.methods = methods.into_iter().collect();
        self
    }

    /// How long a request waits for the one that is being run under its key, before it is told 409; not at all
    /// unless told otherwise, and an hour at most.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    /// The largest request body, in bytes; 1 MiB unless told otherwise. It is read before the handler runs.
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.settings.max_request = bytes;
        self
    }

    /// The response headers that are kept and replayed, in place of the default ones: content type, encoding,
    /// language and disposition, location, etag, last-modified, cache-control, expires, link and vary.
    pub fn replay_headers(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.replay_headers = headers.into_iter().collect();
        self
    }

    /// What makes two requests the same, in place of method, path, query and body.
    pub fn fingerprint(mut self, of: impl Fn(&Parts, &[u8]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.settings.fingerprint_of = Some(Arc::new(of));
        self
    }
}

impl<S> tower_layer::Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { inner, settings: Arc::new(self.settings.clone()) }
    }
}
