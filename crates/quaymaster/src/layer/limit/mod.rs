//! Limits in front of a tower service.
//!
//! | request | answer |
//! |---|---|
//! | every limit lets it pass | the handler's, with `RateLimit-Policy` and `RateLimit` |
//! | a limit is used up | 429 `limit.exceeded`, `Retry-After`; no limit counted it |
//! | its key is not usable | 400, as the key function or the pattern says |
//! | the store cannot be asked, and the schema says `deny` | 503, `Retry-After` |
//! | the same, and it says `allow`, `local` or `database` | that policy's, with `quaymaster-outage: <policy>` |

mod headers;
mod service;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use http::request::Parts;

pub use service::LimitService;

use super::remote::{Trust, network};
use crate::limit::Limit;
use crate::{Code, Error, Result};

type KeyOf = dyn Fn(&Parts) -> Keyed + Send + Sync;
type CostOf = dyn Fn(&Parts) -> u64 + Send + Sync;
type Exempt = dyn Fn(&Parts) -> bool + Send + Sync;

/// Under which key a request is counted.
#[derive(Debug)]
pub enum Keyed {
    /// Under these values of the key's placeholders.
    By(Vec<(Cow<'static, str>, String)>),
    /// Not at all: this limit does not concern it.
    Pass,
    /// It is refused, under the error's code.
    Refuse(Error),
}

impl Keyed {
    /// The value of the key's only placeholder.
    pub fn one(placeholder: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        Self::By(vec![(placeholder.into(), value.into())])
    }

    /// The request is the caller's mistake: 400.
    pub fn bad(detail: impl Into<String>) -> Self {
        Self::Refuse(Error::new("limit.layer", Code::RequestInvalid, detail.into()))
    }
}

/// Takes limits before a tower service's handler runs. Cheap to clone.
///
/// ```
/// # use quaymaster::{Quaymaster, layer::{Keyed, LimitLayer}};
/// # fn wire(quaymaster: &Quaymaster) -> quaymaster::Result<LimitLayer> {
/// let layer = LimitLayer::by_address(quaymaster.limit("ha")?.clone())?;
/// // Router::new().route("/questions", get(questions)).layer(layer)
/// # let by_user =
/// LimitLayer::new(quaymaster.limit("users")?.clone(), |request| {
///     match request.headers.get("x-user").map(|value| value.to_str()) {
///         Some(Ok(user)) => Keyed::one("user", user),
///         Some(Err(_)) => Keyed::bad("x-user holds something other than visible ASCII"),
///         None => Keyed::Pass,
///     }
/// })
/// .cost(|request| if request.method == "POST" { 5 } else { 1 });
/// # Ok(layer)
/// # }
/// ```
#[derive(Clone)]
pub struct LimitLayer {
    rules: Vec<Rule>,
    exempt: Option<Arc<Exempt>>,
}

#[derive(Clone)]
struct Rule {
    limit: Limit,
    policy: HeaderValue,
    key_of: Arc<KeyOf>,
    cost_of: Option<Arc<CostOf>>,
}

impl fmt::Debug for LimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.rules.iter().map(|rule| rule.limit.name()).collect();
        write!(f, "LimitLayer({})", names.join(", "))
    }
}

impl LimitLayer {
    /// `key_of` says under which key a request is counted.
    pub fn new(limit: Limit, key_of: impl Fn(&Parts) -> Keyed + Send + Sync + 'static) -> Self {
        Self { rules: vec![Rule::new(limit, key_of)], exempt: None }
    }

    /// The caller's address is the value of the key's only placeholder, as [`LimitLayer::by_address_behind`] has it
    /// with nobody trusted.
    pub fn by_address(limit: Limit) -> Result<Self> {
        Self::by_address_behind(limit, Trust::nobody())
    }

    /// The caller's address is the value of the key's only placeholder; behind proxies that are trusted, the address
    /// they name. Of an IPv6 address the first 64 bits count: the rest is the caller's own to choose.
    ///
    /// A request whose address is not known is answered 500: let through, it would be under no limit at all.
    pub fn by_address_behind(limit: Limit, trust: Trust) -> Result<Self> {
        let names: Vec<&str> = limit.bound.pattern().placeholders().collect();
        let [name] = names[..] else {
            let pattern = limit.bound.pattern().text();
            let detail =
                format!("`{pattern}` has {} placeholders, an address is one: say what each is", names.len());
            return Err(Error::new("limit.layer", Code::ConfigInvalid, detail));
        };
        let name = name.to_owned();
        Ok(Self::new(limit, move |request| match trust.caller(&request.extensions, &request.headers) {
            Some(address) => Keyed::one(name.clone(), network(address)),
            None => Keyed::Refuse(Error::new("limit.layer", Code::Internal, NO_ADDRESS)),
        }))
    }

    /// One more limit. All are counted when every one lets the request pass, else none is. At most
    /// [`crate::limit::TAKE_ALL_MAX`] may concern one request, and on a cluster their keys must share a slot
    /// (`colocate`).
    pub fn and(mut self, limit: Limit, key_of: impl Fn(&Parts) -> Keyed + Send + Sync + 'static) -> Self {
        self.rules.push(Rule::new(limit, key_of));
        self
    }

    /// All limits of `other` too. What passes is said once, by [`LimitLayer::unless`] of the whole: that of `other` is
    /// not taken over.
    pub fn and_all(mut self, other: Self) -> Self {
        self.rules.extend(other.rules);
        self
    }

    /// Requests that pass whatever the limits say, and are not counted: probes, say.
    pub fn unless(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.exempt = Some(Arc::new(exempt));
        self
    }

    /// What a request costs under the limit named last; 1 unless told otherwise. 0 is not counted and passes.
    pub fn cost(mut self, of: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        if let Some(rule) = self.rules.last_mut() {
            rule.cost_of = Some(Arc::new(of));
        }
        self
    }
}

const NO_ADDRESS: &str = "the caller's address is not known: serve with its ConnectInfo, or put a Peer among the \
                          request's extensions";

impl Rule {
    fn new(limit: Limit, key_of: impl Fn(&Parts) -> Keyed + Send + Sync + 'static) -> Self {
        let policy = headers::policy(limit.name(), limit.spec());
        Self { limit, policy, key_of: Arc::new(key_of), cost_of: None }
    }
}

impl<S> tower_layer::Layer<S> for LimitLayer {
    type Service = LimitService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitService { inner, rules: self.rules.clone().into(), exempt: self.exempt.clone() }
    }
}
