//! What every request can reach, and the way from a request to its answer.

use std::borrow::Cow;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use quaymaster::Code;
use quaymaster::layer::{Peer, Trust};
use quaymaster::schema::Kind;
use tracing::Instrument as _;

use crate::access::{AccessLog, Answered, Note};
use crate::call::{
    self, Call, Effect, Given, Handler, Input, Needs, Open, Opening, Operation, Reaches, Shows, upload,
};
use crate::config::Thresholds;
use crate::fan::Fan;
use crate::http::auth::{self, Caller, Deed, Denied, Guard};
use crate::http::body;
use crate::http::conditional;
use crate::http::connection::{Activity, Pace};
use crate::http::guesses::Guesses;
use crate::http::gzip;
use crate::http::origin;
use crate::http::presence::Presence;
use crate::http::problem::{Problem, excerpt, unknown};
use crate::http::query::{self, Plus, decode};
use crate::http::rights::Rights;
use crate::http::sse;
use crate::http::trace::Trace;
use crate::metrics::Metrics;
use crate::page::queues::Depths;
use crate::page::runs::Recent;
use crate::page::stats::Reports;
use crate::page::uploads::Counted;
use crate::page::{self, Page, Visit};
use crate::probe::Probe;
use crate::services::{Services, Taken};
use crate::worker::Workers;

/// Names the policy that answered while the store could not be asked.
const OUTAGE: HeaderName = HeaderName::from_static("quaymaster-outage");

/// Bounds on what one request may ask for.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) max_body_bytes: usize,
    pub(crate) max_json_depth: usize,
    pub(crate) max_requests: usize,
    pub(crate) request_timeout: Duration,
    /// How often a reader of a stream hears something.
    pub(crate) heartbeat: Duration,
}

/// What a process answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    Everything,
    /// Probes and metrics: for one that works and takes no calls.
    Probes,
}

/// The server's state.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) serves: Serves,
    /// What calls need.
    pub(crate) services: Services,
    pub(crate) bounds: Bounds,
    pub(crate) guard: Guard,
    /// Who tries tokens.
    pub(crate) guesses: Guesses,
    pub(crate) thresholds: Thresholds,
    pub(crate) metrics: Metrics,
    pub(crate) probe: Probe,
    /// Requests being answered now, probes and scrapes aside: those need no place.
    pub(crate) in_flight: AtomicUsize,
    /// Whose word about a caller's address is believed.
    pub(crate) trust: Trust,
    /// Everybody who listens to events.
    pub(crate) fan: Arc<Fan>,
    /// Workers of this process.
    pub(crate) workers: Option<Arc<Workers>>,
    /// What was last heard of the queues.
    pub(crate) depths: Depths,
    /// What was last heard of the runs.
    pub(crate) runs: Recent,
    /// What was last heard of the stats.
    pub(crate) reports: Reports,
    /// What was last heard of the uploads.
    pub(crate) counted: Counted,
    /// Where each call is noted, if anywhere.
    pub(crate) access: Option<AccessLog>,
}

/// What a request turned out to be for.
enum Target<'a> {
    Page(&'static Page),
    /// One of [`call::OPERATIONS`], and its place there.
    Operation(usize, &'static Operation, Named<'a>),
}

/// What the path of an operation says.
#[derive(Default)]
struct Named<'a> {
    /// The resource.
    name: Cow<'a, str>,
    /// The upload, and its chunk, where the path has them.
    id: Cow<'a, str>,
    number: &'a str,
}

/// The connection a request came on.
struct Line<'a> {
    presence: &'a Presence,
    activity: &'a Activity,
    upgrade: Option<OnUpgrade>,
    /// Where calls are logged, what becomes known of this one.
    note: Option<&'a Note>,
}

impl App {
    /// What a stream lives by.
    pub(crate) fn line(&self, presence: Presence, pace: Pace) -> sse::Line {
        sse::Line {
            heartbeat: self.bounds.heartbeat,
            stopping: self.services.stopping.clone(),
            presence,
            pace,
        }
    }

    /// Answers one request; never fails and never panics.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        presence: &Presence,
        activity: &Activity,
    ) -> Response<Body> {
        let started = Instant::now();
        let (mut parts, mut incoming) = request.into_parts();
        let trace = Trace::of(&parts.headers);
        let span = trace.span();
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let target = self.target(&parts.method, parts.uri.path());
        let exempt = is_exempt(&target);
        let place = (!exempt).then(|| Taken(&self.in_flight));
        let busy = !exempt && {
            // Calls that wait have places of their own.
            let waiting = self.services.waiting.load(Relaxed);
            self.in_flight.fetch_add(1, Relaxed).saturating_sub(waiting) >= self.bounds.max_requests
        };
        let route = route(&target).unwrap_or(self.metrics.unmatched());
        let note = self.access.as_ref().map(|_| Note::default());
        let (asked, preflight) = (note.as_ref().map(|_| asked_for(&target)), origin::is_preflight(&parts));
        let line = Line { presence, activity, upgrade, note: note.as_ref() };
        let listed = self.guard.origins.of(&parts.headers).cloned();
        let answered = match target {
            _ if preflight => match &listed {
                Some(_) => Ok(origin::preflight(&parts.headers)),
                None => Err(auth::unlisted(&parts.headers)),
            },
            _ if busy => Err(Problem::new(Code::ServerBusy, "every place for a request is taken")),
            Err(problem) => Err(problem),
            Ok(target) => {
                let run = self.run(target, &parts, &mut incoming, line).instrument(span.clone());
                match AssertUnwindSafe(run).catch_unwind().await {
                    Ok(answered) => answered,
                    Err(panic) => {
                        self.metrics.panicked();
                        let why = panic_text(&*panic);
                        span.in_scope(|| {
                            tracing::error!(
                                route = Metrics::template(route),
                                panic = why,
                                "a handler panicked"
                            );
                        });
                        let stopped = "the handler stopped unexpectedly; the log has the cause";
                        let problem = Problem::new(Code::Internal, stopped);
                        let looks = matches!(parts.method, Method::GET | Method::HEAD);
                        Err(if looks { problem } else { problem.may_have_run() })
                    }
                }
            }
        };
        drop(place);
        if let Err(problem) = &answered
            && problem.held_back_ms > 0
        {
            // Whoever waits here takes no place of a request, and no stop waits for them.
            let wait = Duration::from_millis(problem.held_back_ms.into());
            let _ = tokio::time::timeout(wait, self.services.stopping.cancelled()).await;
        }
        body::discard(incoming, &parts.headers);
        let code = answered.as_ref().err().map(|problem| problem.code);
        let mut response = answered.unwrap_or_else(|problem| {
            span.in_scope(|| tell(&problem, route));
            problem.into_response_to(trace)
        });
        if let Some(origin) = listed {
            origin::allow(&mut response, origin);
        }
        let took = started.elapsed();
        let status = response.status();
        self.metrics.observe(route, status.as_u16(), took);
        if let (Some(note), Some((resource, verb))) = (&note, asked) {
            let resource = resource.as_ref().map(|(kind, name)| (*kind, &**name));
            let quiet = (exempt || preflight) && !matches!(status.as_u16(), 401 | 403);
            if !quiet {
                self.noted(note, &Answered { resource, verb, status, code, took, trace });
            }
        }
        span.in_scope(|| told(&parts.method, parts.uri.path(), status, took));
        response
    }

    /// What callers are told from each other by: their token, else their address, of which one subscriber of IPv6 has
    /// 64 bits to choose from.
    fn caller_of(&self, rights: Rights<'_>, activity: &Activity, headers: &HeaderMap) -> String {
        if let Some(number) = self.guard.number(rights) {
            return format!("token {number}");
        }
        match self.address_of(activity, headers) {
            Some(IpAddr::V6(address)) => format!("{:x?}", &address.segments()[..4]),
            Some(address) => address.to_string(),
            None => String::new(),
        }
    }

    /// The address for which a request is made, as far as proxies are believed.
    fn address_of(&self, activity: &Activity, headers: &HeaderMap) -> Option<IpAddr> {
        let mut connection = Extensions::new();
        if let Some(peer) = activity.peer() {
            connection.insert(Peer(peer));
        }
        self.trust.caller(&connection, headers).map(|address| address.to_canonical())
    }

    /// What the caller may do, if they may call at all. Whoever brings a wrong token again and again waits for the answer.
    fn admit(&self, caller: Caller<'_>, deed: Deed, line: &Line<'_>) -> Result<Rights<'_>, Problem> {
        let rights = self.guard.admit(caller, deed).map_err(|denied| {
            let guessed = matches!(denied, Denied::Unknown);
            let mut problem = Problem::from(denied);
            if guessed {
                let wait = self.guesses.failed(self.address_of(line.activity, caller.headers));
                problem.held_back_ms = u16::try_from(wait.as_millis()).unwrap_or(u16::MAX);
            }
            problem
        })?;
        if let (Some(note), Some(number)) = (line.note, self.guard.number(rights)) {
            let _ = note.who.set(number);
        }
        Ok(rights)
    }

    fn target<'a>(&self, method: &Method, path: &'a str) -> Result<Target<'a>, Problem> {
        if self.serves == Serves::Everything {
            return target(method, path);
        }
        let probes = page::PAGES.iter().filter(|page| page.place == page::Place::Exempt);
        let known: Vec<&str> = probes.map(|page| page.path).collect();
        if known.contains(&path) {
            return target(method, path);
        }
        let detail = format!("{}; calls are taken by `quaymaster serve`", unknown("path", path, &known));
        Err(Problem::new(Code::RouteUnknown, detail))
    }

    /// Counts a request that a layer in front has answered.
    pub(crate) fn turned_away(
        &self,
        (method, path): (&Method, &str),
        status: StatusCode,
        took: Duration,
        trace: Trace<'_>,
    ) {
        let target = target(method, path);
        let route = route(&target).unwrap_or(self.metrics.unmatched());
        self.metrics.observe(route, status.as_u16(), took);
        if self.access.is_some() {
            let (resource, verb) = asked_for(&target);
            let resource = resource.as_ref().map(|(kind, name)| (*kind, &**name));
            let code = (status == StatusCode::TOO_MANY_REQUESTS).then_some(Code::LimitExceeded);
            self.noted(&Note::of("refused"), &Answered { resource, verb, status, code, took, trace });
        }
        trace.span().in_scope(|| told(method, path, status, took));
    }

    fn noted(&self, note: &Note, answered: &Answered<'_>) {
        if let Some(log) = &self.access {
            log.write(self.services.quaymaster.schema(), &self.guard, note, answered);
        }
    }

    async fn run(
        &self,
        target: Target<'_>,
        parts: &Parts,
        incoming: &mut Incoming,
        line: Line<'_>,
    ) -> Result<Response<Body>, Problem> {
        let host = auth::host(parts)?;
        let note = line.note;
        let caller = Caller { headers: &parts.headers, host };
        match target {
            Target::Page(page) => {
                let rights = match page.access {
                    page::Access::Token => self.admit(caller, Deed::Looks, &line)?,
                    page::Access::Open => Rights::owner(),
                };
                rights.need(Needs::Read)?;
                self.show(page, parts, rights).await
            }
            Target::Operation(_, operation, named) => {
                let rights = self.admit(caller, operation.needs.into(), &line)?;
                self.check_rights(rights, operation, &named.name)?;
                match operation.handler {
                    Handler::Call(call) => match call.row.streamed.filter(|_| wants_stream(parts)) {
                        Some(streamed) => self.open(streamed.open, &named.name, parts, line).await,
                        None => self.call(call, &named.name, parts, incoming, rights, &line).await,
                    },
                    Handler::Stream(open) => self.open(open, &named.name, parts, line).await,
                    Handler::Page(page) => self.show(page, parts, rights).await,
                    Handler::Upload(answer) => {
                        note.inspect(|note| note.id("upload_id", &named.id));
                        let Line { presence, activity, .. } = line;
                        let asked = upload::Asked {
                            name: &named.name,
                            id: &named.id,
                            number: named.number,
                            query: parts.uri.query().unwrap_or_default(),
                            method: &parts.method,
                            headers: &parts.headers,
                            body: incoming,
                            caller: self.caller_of(rights, activity, &parts.headers),
                            activity,
                            presence,
                        };
                        let effect = if operation.only_reads() { Effect::Reads } else { Effect::Writes };
                        call::honest(Kind::Upload, effect, answer(self, asked)).await
                    }
                }
            }
        }
    }

    /// Refuses callers whose role is too low for an operation, or for what it shows, or who do not reach its resource, or
    /// what that declares.
    fn check_rights(&self, rights: Rights<'_>, operation: &Operation, name: &str) -> Result<(), Problem> {
        rights.need(operation.needs)?;
        if !operation.is_on_resource() {
            return Ok(());
        }
        let (schema, kind) = (self.services.quaymaster.schema(), operation.kind);
        match operation.handler {
            Handler::Call(call) if call.row.reaches == Reaches::Declared => {
                rights.need_declared(schema, kind, name)?;
            }
            _ => rights.need_resource(kind, name)?,
        }
        let is_sensitive = || schema.resource(kind, name).is_some_and(|resource| resource.sensitive);
        if operation.shows == Some(Shows::Values) && is_sensitive() {
            return rights
                .need_for(&format!("{kind}.{name} is sensitive: reading its values"), call::SENSITIVE);
        }
        Ok(())
    }

    async fn show(
        &self,
        page: &'static Page,
        parts: &Parts,
        rights: Rights<'_>,
    ) -> Result<Response<Body>, Problem> {
        let visit = Visit { query: parts.uri.query().unwrap_or_default(), rights };
        // No page changes anything.
        let shown = (page.run)(self, visit).await.map_err(Problem::only_read)?;
        let shown = conditional::unless_known(shown, &parts.headers);
        Ok(match page.packs {
            page::Packs::Gzip => gzip::packed(shown, &parts.headers).await,
            page::Packs::Never => shown,
        })
    }

    /// Begins an answer without an end.
    async fn open(
        &self,
        open: Open,
        name: &str,
        parts: &Parts,
        line: Line<'_>,
    ) -> Result<Response<Body>, Problem> {
        let Line { presence, activity, upgrade, note } = line;
        let query = parts.uri.query().unwrap_or_default();
        note.inspect(|note| note.query(query));
        let opening = Opening { name, query, headers: &parts.headers, activity, presence, upgrade };
        open(self, opening).await.map_err(Problem::only_read)
    }

    async fn call(
        &self,
        call: &'static Call,
        name: &str,
        parts: &Parts,
        incoming: &mut Incoming,
        rights: Rights<'_>,
        line: &Line<'_>,
    ) -> Result<Response<Body>, Problem> {
        let bytes;
        let outage = OnceLock::new();
        let query = parts.uri.query().unwrap_or_default();
        let given = match call.effect {
            Effect::Reads => Given::Query(query),
            Effect::Writes => {
                query::none(query)?;
                body::check_type(&parts.headers, incoming)?;
                let Bounds { max_body_bytes, request_timeout, max_json_depth, .. } = self.bounds;
                bytes = body::read(incoming, &parts.headers, max_body_bytes, request_timeout).await?;
                Given::Body(&bytes, max_json_depth)
            }
        };
        let Line { presence: caller, note, .. } = *line;
        let schema = self.services.quaymaster.schema();
        let input = Input { name, given, rights, schema, outage: &outage, caller, progress: None, note };
        let answer = call.answer(&self.services, input).await?;
        note.inspect(|note| note.answered(call, &answer));
        let mut response = Response::new(Body::from(answer));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if call.effect == Effect::Reads {
            // Nobody may keep what is true now.
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        if let Some(policy) = outage.get() {
            response.headers_mut().insert(OUTAGE, HeaderValue::from_static(policy.name()));
        }
        Ok(response)
    }
}

/// Whether a stream is asked for in place of a page.
fn wants_stream(parts: &Parts) -> bool {
    parts.method == Method::GET && sse::is_wanted(&parts.headers)
}

/// Logs why a request was not answered.
fn tell(problem: &Problem, route: usize) {
    let Problem { op, code, field, detail, .. } = problem;
    // A store that is away is told once by the probe, not once per request.
    if code.http_status() == 500 {
        let cause = problem.source.as_ref().map(tracing::field::display);
        tracing::error!(route = Metrics::template(route), op, %code, field, %detail, cause, "defect");
    }
    tracing::debug!(op, %code, field, %detail, "refused");
}

/// Logs that a request was answered.
fn told(method: &Method, path: &str, status: StatusCode, took: Duration) {
    let (status, took_us) = (status.as_u16(), took.as_micros() as u64);
    tracing::debug!(%method, path, status, took_us, "request");
}

/// The route of a request, as metrics name it; `None` when it goes nowhere.
pub(crate) fn template(method: &Method, path: &str) -> Option<&'static str> {
    route(&target(method, path)).map(Metrics::template)
}

/// Whether a request is answered whatever else there is to do.
pub(crate) fn exempt(method: &Method, path: &str) -> bool {
    is_exempt(&target(method, path))
}

fn is_exempt(target: &Result<Target<'_>, Problem>) -> bool {
    matches!(target, Ok(Target::Page(page)) if page.place == page::Place::Exempt)
}

/// A route's place among the metrics.
fn route(target: &Result<Target<'_>, Problem>) -> Option<usize> {
    Some(match target {
        Ok(Target::Page(page)) => page::index(page),
        Ok(Target::Operation(index, ..)) => page::PAGES.len() + index,
        Err(_) => return None,
    })
}

/// The resource that a request is for, and the word for what it wants: a verb, or the path of a page.
fn asked_for(target: &Result<Target<'_>, Problem>) -> (Option<(Kind, String)>, Option<&'static str>) {
    match target {
        Ok(Target::Page(page)) => (None, Some(page.path)),
        Ok(Target::Operation(_, operation, named)) => match operation.handler {
            Handler::Page(page) => (None, Some(page.path)),
            _ => (Some((operation.kind, named.name.to_string())), Some(operation.verb)),
        },
        Err(_) => (None, None),
    }
}

/// Where a request goes, from its method and path alone.
fn target<'a>(method: &Method, path: &'a str) -> Result<Target<'a>, Problem> {
    if let Some(page) = page::PAGES.iter().find(|page| page.path == path) {
        return match *method {
            Method::GET | Method::HEAD => Ok(Target::Page(page)),
            _ => Err(Problem::method("GET, HEAD", method.as_str())),
        };
    }
    let Some(rest) = path.strip_prefix("/v1/") else {
        return Err(no_route(path));
    };
    if let Some(below) = rest.strip_prefix("upload/").and_then(|rest| below_upload(method, rest)) {
        return below;
    }
    let mut segments = rest.split('/');
    let (Some(kind_word), Some(name), Some(verb), None) =
        (segments.next(), segments.next(), segments.next(), segments.next())
    else {
        return Err(Problem::new(
            Code::RouteUnknown,
            format!("{}: calls are /v1/<kind>/<name>/<verb>", excerpt(path)),
        ));
    };
    let kinds: Vec<&str>;
    let Ok(kind) = kind_word.parse::<Kind>() else {
        kinds = Kind::ALL.iter().map(|kind| kind.name()).collect();
        return Err(Problem::new(Code::RouteUnknown, unknown("kind", kind_word, &kinds)));
    };
    let decoded = || {
        decode(name, Plus::Itself).map_err(|why| {
            Problem::new(Code::RequestInvalid, format!("the resource's name {why}")).field("name")
        })
    };
    let Some((index, operation)) = call::find(kind, verb) else {
        let verbs = call::verbs(kind);
        let detail = if verbs.is_empty() {
            format!("kind \"{kind}\" has no calls in this version")
        } else {
            unknown(&format!("verb of kind \"{kind}\""), verb, &verbs)
        };
        return Err(Problem::new(Code::RouteUnknown, detail));
    };
    let endless = matches!(operation.handler, Handler::Stream(_));
    let allow = if operation.only_reads() && !endless { "GET, HEAD" } else { operation.method };
    if !allow.split(", ").any(|one| one == method.as_str()) {
        return Err(Problem::method(allow, method.as_str()));
    }
    Ok(Target::Operation(index, operation, Named { name: decoded()?, ..Named::default() }))
}

/// Paths below an upload; `None` for calls like any other.
fn below_upload<'a>(method: &Method, rest: &'a str) -> Option<Result<Target<'a>, Problem>> {
    let (name, rest) = rest.split_once('/')?;
    let rest: Vec<&str> = rest.split('/').collect();
    if let [verb] = rest[..]
        && (call::find(Kind::Upload, verb).is_some() || *method == Method::POST)
    {
        return None;
    }
    let decoded = |what: &'static str, text: &'a str| {
        decode(text, Plus::Itself)
            .map_err(|why| Problem::new(Code::RequestInvalid, format!("the {what} {why}")).field(what))
    };
    let below = |found: upload::Found<'a>| {
        let named =
            Named { name: decoded("name", name)?, id: decoded("upload_id", found.id)?, number: found.number };
        Ok(Target::Operation(found.at, found.operation, named))
    };
    Some(upload::find(method, &rest).and_then(below))
}

fn no_route(path: &str) -> Problem {
    let known: Vec<&str> = page::PAGES.iter().map(|page| page.path).filter(|path| path.len() > 1).collect();
    Problem::new(Code::RouteUnknown, unknown("path", path, &known))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
