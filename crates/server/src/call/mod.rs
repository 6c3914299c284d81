//! The calls under `/v1/<kind>/<name>/<verb>`: one table, one function each.

pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod dedupe;
pub(crate) mod event;
pub(crate) mod guard;
pub(crate) mod idempotency;
pub(crate) mod limit;
pub(crate) mod lock;
pub(crate) mod queue;
pub(crate) mod run;
pub(crate) mod stats;
pub(crate) mod upload;

use std::borrow::Cow;
use std::sync::OnceLock;

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::upgrade::OnUpgrade;
use quaymaster::schema::{Kind, Outage};

use crate::app::App;
use crate::command::Progress;
use crate::http::connection::Activity;
use crate::http::presence::Presence;
use crate::http::problem::Problem;

/// Whether a call only looks. Decides its method, where its input is, and the role it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// `GET`, input in the query.
    Reads,
    /// `POST`, input in a JSON body.
    Writes,
}

/// What a call was given.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// The resource's name.
    pub(crate) name: &'a str,
    /// The query, still encoded; empty for calls that write.
    pub(crate) query: &'a str,
    /// The body; empty for calls that read.
    pub(crate) body: &'a [u8],
    /// The policy that answered while the store could not be asked; becomes a header.
    pub(crate) outage: &'a OnceLock<Outage>,
    /// Whoever waits for the answer.
    pub(crate) caller: &'a Presence,
    /// Told how far a long call has come, where somebody watches.
    pub(crate) progress: Option<Progress<'a>>,
}

impl Input<'_> {
    /// Notes the policy that answered, if one did; its name is the answer's `outage`.
    pub(crate) fn under(&self, policy: Option<Outage>) -> Option<&'static str> {
        let policy = policy?;
        Some(self.outage.get_or_init(|| policy).name())
    }

    /// Tells whoever watches that so many are done.
    pub(crate) fn done(&self, count: u64) {
        if let Some(progress) = self.progress {
            progress(count);
        }
    }
}

/// A call's answer: JSON.
pub(crate) type Answer = Result<Bytes, Problem>;

type Run = for<'a> fn(&'a App, Input<'a>) -> BoxFuture<'a, Answer>;

impl Call {
    /// Runs it. An error after a step that wrote says that the call may have run; one of a call that only looks never
    /// does.
    pub(crate) async fn answer<'a>(&'a self, app: &'a App, input: Input<'a>) -> Answer {
        let (answer, wrote) = quaymaster::watched((self.run)(app, input)).await;
        answer.map_err(|problem| {
            // An upload's database and object store are written before the store is asked.
            let elsewhere = self.kind == Kind::Upload && problem.code.http_status() >= 500;
            match self.effect {
                Effect::Reads => problem.only_read(),
                Effect::Writes if elsewhere || wrote.doubts(problem.code) => problem.may_have_run(),
                Effect::Writes => problem,
            }
        })
    }
}

/// How a field of a call is written on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgType {
    /// Taken as it is.
    Text,
    /// A whole number from 0.
    Integer,
    /// A whole number from 1.
    Positive,
    /// Any JSON; what is not JSON is taken as text.
    Json,
    /// A list of texts; the flag is repeated.
    Texts,
    /// `true` when it is there.
    Flag,
}

/// A field of a call besides `key`.
#[derive(Debug, Clone, Copy)]
pub struct Arg {
    /// The field, `wait_ms`; the flag is `--wait-ms`.
    pub name: &'static str,
    /// How it is written.
    pub holds: ArgType,
    /// Whether the call is refused without it.
    pub required: bool,
    /// What it is for, in one line.
    pub help: &'static str,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) verb: &'static str,
    pub(crate) effect: Effect,
    /// The path as OpenAPI and metrics name it.
    pub(crate) template: &'static str,
    /// What it does, in one line.
    pub(crate) about: &'static str,
    /// Its fields besides `key`.
    pub(crate) args: &'static [Arg],
    /// Whether an answer is a "no" that the command line tells by its exit code.
    pub(crate) said_no: fn(&serde_json::Value) -> bool,
    pub(crate) run: Run,
}

/// What every call that writes may carry.
pub(crate) const REQUEST_ID: Arg = Arg {
    name: "request_id",
    holds: ArgType::Text,
    required: false,
    help: "The same id again within ten minutes gets the same answer and changes nothing",
};

/// Every call on a resource.
pub(crate) static CALLS: &[Call] = &[
    limit::TAKE,
    limit::PEEK,
    limit::REFUND,
    limit::RESET,
    lock::ACQUIRE,
    lock::RENEW,
    lock::RELEASE,
    idempotency::BEGIN,
    idempotency::FINISH,
    idempotency::ABANDON,
    cache::PUT,
    cache::GET,
    cache::EXISTS,
    cache::DELETE,
    dedupe::FIRST,
    guard::ENTER,
    guard::LEAVE,
    batch::ADD,
    batch::LIST,
    batch::CLOSE,
    batch::SWEEP,
    event::PUBLISH,
    event::REPORT,
    queue::PUSH,
    queue::CLAIM,
    queue::ACK,
    queue::NACK,
    queue::EXTEND,
    queue::PRESSURE,
    queue::PAUSE,
    queue::RESUME,
    queue::PEEK,
    queue::DEAD,
    queue::REDRIVE,
    queue::PURGE,
    run::START,
    run::UPDATE,
    run::FINISH,
    run::SHOW,
    run::LIST,
    run::TASK_START,
    run::TASK_FINISH,
    run::PROCESSED,
    run::FAILED,
    run::REMAINING,
    run::FAILURES,
    run::RETRY,
    run::SWEEP,
    stats::RECORD,
    stats::REPORT,
    stats::SWEEP,
    upload::CREATE,
    upload::STATUS,
    upload::ABORT,
    upload::RESUME,
    upload::EVENTS,
];

/// A call whose answer has no end: a stream of events, or a connection that becomes something else. `GET`.
pub(crate) struct Stream {
    pub(crate) kind: Kind,
    pub(crate) verb: &'static str,
    /// The path as OpenAPI and metrics name it.
    pub(crate) template: &'static str,
    pub(crate) open: Open,
}

pub(crate) type Open = for<'a> fn(&'a App, Opening<'a>) -> BoxFuture<'a, Result<Response<Body>, Problem>>;

/// What such a call was given.
pub(crate) struct Opening<'a> {
    /// The resource's name.
    pub(crate) name: &'a str,
    /// The query, still encoded.
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    /// The connection it came on.
    pub(crate) activity: &'a Activity,
    /// Whoever listens.
    pub(crate) presence: &'a Presence,
    /// The connection itself, once it stops speaking HTTP; only where the request asks for that.
    pub(crate) upgrade: Option<OnUpgrade>,
}

/// Every call whose answer has no end.
pub(crate) static STREAMS: &[Stream] = &[event::STREAM, event::WS];

/// How a call is answered whose caller would rather have a stream than a page; `None` where there is no stream.
pub(crate) fn streamed(call: &Call) -> Option<Open> {
    (call.template == upload::EVENTS.template).then_some(upload::FOLLOW)
}

/// Finds the stream `kind`/`verb` and its place in [`STREAMS`].
pub(crate) fn find_stream(kind: Kind, verb: &str) -> Option<(usize, &'static Stream)> {
    STREAMS.iter().enumerate().find(|(_, stream)| stream.kind == kind && stream.verb == verb)
}

/// Finds the call `kind`/`verb` and its place in [`CALLS`].
pub(crate) fn find(kind: Kind, verb: &str) -> Option<(usize, &'static Call)> {
    CALLS.iter().enumerate().find(|(_, call)| call.kind == kind && call.verb == verb)
}

/// The verbs of a kind.
pub(crate) fn verbs(kind: Kind) -> Vec<&'static str> {
    let calls = CALLS.iter().filter(|call| call.kind == kind).map(|call| call.verb);
    calls.chain(STREAMS.iter().filter(|stream| stream.kind == kind).map(|stream| stream.verb)).collect()
}

/// Borrows owned pairs the way primitives take them.
pub(crate) fn pairs<'a>(
    values: &'a [(Cow<'_, str>, Cow<'_, str>)],
) -> smallvec::SmallVec<[(&'a str, &'a str); 4]> {
    values.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect()
}
