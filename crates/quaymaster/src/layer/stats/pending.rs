//! A request that is being answered: recorded once, however its future ends.

use std::borrow::Cow;
use std::time::Instant;

use http::{Method, Request, Response, StatusCode};

use super::{Head, Route, Settings};
use crate::layer::Refused;
use crate::stats::{Recorder, Seen};

/// The status of a request whose client did not wait for the answer.
const GONE: u16 = 499;

/// The route, as whoever knew it first has it.
#[derive(Debug)]
enum Template {
    #[cfg(feature = "axum")]
    Matched(axum::extract::MatchedPath),
    Named(Cow<'static, str>),
    /// The response may still tell.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Pending {
    recorder: Recorder,
    method: Method,
    template: Template,
    began: Instant,
    /// How it is recorded if nothing more happens.
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// The handler runs right now: only a panic leaves it so.
    Running,
    /// The handler waits for something.
    Waiting,
    /// The head is there, the body goes on.
    Answered { status: u16, accepted: bool },
}

impl Pending {
    /// `None` for a request that is not recorded.
    pub(super) fn begin<B>(settings: &Settings, request: &Request<B>) -> Option<Self> {
        let Settings { recorder, trust, .. } = settings;
        if let Some(caller) = trust.caller(request.extensions(), request.headers())
            && recorder.ignores(caller)
        {
            return None;
        }
        let template = template(settings, request);
        let method = request.method().clone();
        Some(Self {
            recorder: recorder.clone(),
            method,
            template,
            began: Instant::now(),
            outcome: Outcome::Running,
        })
    }

    /// The handler is asked to go on.
    pub(super) fn run(&mut self) {
        self.outcome = Outcome::Running;
    }

    /// It has nothing to go on with.
    pub(super) fn wait(&mut self) {
        self.outcome = Outcome::Waiting;
    }

    /// The head is there.
    pub(super) fn answered<R>(&mut self, response: &Response<R>) {
        let refused = response.extensions().get::<Refused>().is_some();
        let status = response.status();
        let accepted = !refused && status != StatusCode::TOO_MANY_REQUESTS;
        self.outcome = Outcome::Answered { status: status.as_u16(), accepted };
        if matches!(self.template, Template::Unknown)
            && let Some(Route(route)) = response.extensions().get()
        {
            self.template = Template::Named(route.clone());
        }
    }

    /// The inner service failed.
    pub(super) fn failed(&mut self) {
        self.outcome = Outcome::Answered { status: 500, accepted: true };
    }
}

/// Recording is what remains to be done with it: at the response's head, at its body's end, or when nobody waits for
/// either any more.
impl Drop for Pending {
    fn drop(&mut self) {
        let (status, accepted) = match self.outcome {
            Outcome::Answered { status, accepted } => (status, accepted),
            Outcome::Running => (500, true),
            Outcome::Waiting => (GONE, true),
        };
        let route = match &self.template {
            #[cfg(feature = "axum")]
            Template::Matched(path) => Some(path.as_str()),
            Template::Named(name) => Some(&**name),
            Template::Unknown => None,
        };
        let elapsed = self.began.elapsed();
        self.recorder.record(&Seen { method: &self.method, route, status, elapsed, accepted });
    }
}

fn template<B>(settings: &Settings, request: &Request<B>) -> Template {
    if let Some(of) = &settings.route_of {
        let head = Head {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        };
        return of(head).map_or(Template::Unknown, Template::Named);
    }
    #[cfg(feature = "axum")]
    if let Some(path) = request.extensions().get::<axum::extract::MatchedPath>() {
        return Template::Matched(path.clone());
    }
    Template::Unknown
}
