//! Every operation in one list, wherever it is served. The server finds requests in it; OpenAPI, `describe` and
//! docs/calls.md are made from it.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use futures_util::future::BoxFuture;
use hyper::upgrade::OnUpgrade;
use quaymaster::schema::Kind;
use schemars::{Schema, SchemaGenerator};

use super::{CALLS, Call, Effect, Needs, No, Repeat, Shows, event, upload};
use crate::app::App;
use crate::http::connection::Activity;
use crate::http::presence::Presence;
use crate::http::problem::Problem;
use crate::page::{Page, explain};
use crate::request::{Field, NOTHING, Shape};

/// What everybody can know of an operation, and who answers it.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) verb: &'static str,
    /// `GET` stands for `HEAD` too, except for answers without an end.
    pub(crate) method: &'static str,
    /// The path as OpenAPI and metrics name it.
    pub(crate) template: &'static str,
    /// What it does, in one line.
    pub(crate) about: &'static str,
    /// Parts of the path beside the resource's name.
    pub(crate) path: &'static [Field],
    /// The body where that is JSON, else the query.
    pub(crate) request: &'static Shape,
    /// Headers that only some operations read.
    pub(crate) headers: &'static [Field],
    pub(crate) takes: Takes,
    pub(crate) answers: Answers,
    pub(crate) needs: Needs,
    /// What the answer shows, of an operation that needs only the role `read`.
    pub(crate) shows: Option<Shows>,
    pub(crate) repeat: Repeat,
    pub(crate) no: No,
    /// Statuses that only some operations answer with, and when.
    pub(crate) refusals: &'static [(u16, &'static str)],
    pub(crate) handler: Handler,
}

/// What the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// There is none; fields are in the query.
    Query,
    /// JSON.
    Json,
    /// Bytes; fields are in the query.
    Bytes,
}

/// What an operation answers.
#[derive(Clone, Copy)]
pub(crate) enum Answers {
    /// JSON of this schema.
    Json(AnswerSchema),
    /// The same; or, to callers that ask for them, server-sent events.
    JsonOrEvents(AnswerSchema, &'static str),
    /// Server-sent events, which are this.
    Events(&'static str),
    /// A WebSocket, whose messages are this.
    Socket(&'static str),
    /// The bytes of an object.
    Bytes,
}

/// Makes the schema of an answer.
pub(crate) type AnswerSchema = fn(&mut SchemaGenerator) -> Schema;

/// Who answers.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// A call, also of the command line.
    Call(&'static Call),
    /// An answer without an end: a stream of events, or a connection that becomes something else.
    Stream(Open),
    /// Something below an upload.
    Upload(upload::Answer),
    /// A fixed path.
    Page(&'static Page),
}

pub(crate) type Open = for<'a> fn(&'a App, Opening<'a>) -> BoxFuture<'a, Result<Response<Body>, Problem>>;

/// What the opener of an answer without an end was given.
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

/// How a call is answered whose caller would rather have a stream than a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streamed {
    /// What an event is.
    pub(crate) about: &'static str,
    /// Headers that it reads.
    pub(crate) headers: &'static [Field],
    pub(crate) open: Open,
}

impl Operation {
    /// A `GET` that only looks; its row adds what it shows.
    pub(crate) const fn get(
        (kind, verb, template): (Kind, &'static str, &'static str),
        about: &'static str,
        answers: Answers,
        handler: Handler,
    ) -> Self {
        Self {
            kind,
            verb,
            method: "GET",
            template,
            about,
            path: &[],
            request: &NOTHING,
            headers: &[],
            takes: Takes::Query,
            answers,
            needs: Needs::Read,
            shows: None,
            repeat: Repeat::Safe,
            no: No::Never,
            refusals: &[],
            handler,
        }
    }

    fn of(call: &'static Call) -> Self {
        let (method, takes) = match call.effect {
            Effect::Reads => ("GET", Takes::Query),
            Effect::Writes => ("POST", Takes::Json),
        };
        let row = &call.row;
        let (answers, headers) = match row.streamed {
            Some(streamed) => (Answers::JsonOrEvents(row.answer, streamed.about), streamed.headers),
            None => (Answers::Json(row.answer), [].as_slice()),
        };
        Self {
            method,
            request: row.request,
            headers,
            takes,
            needs: row.needs,
            shows: row.shows,
            repeat: row.repeat,
            no: row.no,
            refusals: row.refusals,
            ..Self::get((call.kind, call.verb, call.template), call.about, answers, Handler::Call(call))
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        self.method == "GET"
    }

    /// Whether it is on a resource of the schema.
    pub(crate) fn is_on_resource(&self) -> bool {
        self.template.contains("{name}")
    }

    /// Whether its path is `/v1/<kind>/<name>/<verb>`.
    fn is_plain(&self) -> bool {
        matches!(self.handler, Handler::Call(_) | Handler::Stream(_))
    }
}

/// Every operation, in the order in which they are told.
pub(crate) static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let others = event::STREAMS.iter().chain(&upload::ROUTES).chain([&explain::EXPLAIN]);
    CALLS.iter().map(Operation::of).chain(others.copied()).collect()
});

/// Finds what is served at `/v1/<kind>/<name>/<verb>`, and its place in [`OPERATIONS`].
pub(crate) fn find(kind: Kind, verb: &str) -> Option<(usize, &'static Operation)> {
    let is_it = |one: &Operation| one.kind == kind && one.verb == verb && one.is_plain();
    OPERATIONS.iter().enumerate().find(|(_, one)| is_it(one))
}

/// Finds what is served at this path under this method, and its place in [`OPERATIONS`].
pub(crate) fn find_at(template: &str, method: &str) -> Option<(usize, &'static Operation)> {
    OPERATIONS.iter().enumerate().find(|(_, one)| one.template == template && one.method == method)
}

/// The verbs of a kind.
pub(crate) fn verbs(kind: Kind) -> Vec<&'static str> {
    OPERATIONS.iter().filter(|one| one.kind == kind && one.is_plain()).map(|one| one.verb).collect()
}
