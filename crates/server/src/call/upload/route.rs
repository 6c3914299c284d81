//! Paths below an upload: `…/<upload_id>`, `…/<upload_id>/chunk/<n>`, `…/<upload_id>/progress`, `…/<upload_id>/content`.

use axum::body::Body;
use axum::http::{HeaderMap, Method, Response};
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use quaymaster::Code;

use super::{chunk, content, progress, state};
use crate::app::App;
use crate::call::{Operation, find_at};
use crate::http::connection::Activity;
use crate::http::presence::Presence;
use crate::http::problem::{Problem, excerpt};

pub(crate) type Answer = for<'a> fn(&'a App, Asked<'a>) -> BoxFuture<'a, Result<Response<Body>, Problem>>;

/// What such a request was given.
pub(crate) struct Asked<'a> {
    /// The resource's name.
    pub(crate) name: &'a str,
    /// The upload's id, not yet checked.
    pub(crate) id: &'a str,
    /// The chunk's number as it was written; empty where the path has none.
    pub(crate) number: &'a str,
    /// The query, still encoded.
    pub(crate) query: &'a str,
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a mut Incoming,
    /// Who sends it, by its token or its address.
    pub(crate) caller: String,
    pub(crate) activity: &'a Activity,
    pub(crate) presence: &'a Presence,
}

/// Every one of them.
pub(crate) static ROUTES: [Operation; 5] =
    [state::SHOW, state::DELETE, chunk::PUT, progress::PROGRESS, content::CONTENT];

/// A route that was found, and what its path says.
pub(crate) struct Found<'a> {
    pub(crate) at: usize,
    pub(crate) operation: &'static Operation,
    pub(crate) id: &'a str,
    pub(crate) number: &'a str,
}

/// Where a request goes whose path has `rest` after the resource's name.
pub(crate) fn find<'a>(method: &Method, rest: &[&'a str]) -> Result<Found<'a>, Problem> {
    let (id, number, template) = match *rest {
        [id] if !id.is_empty() => (id, "", state::TEMPLATE),
        [id, "progress"] => (id, "", progress::PROGRESS.template),
        [id, "content"] => (id, "", content::CONTENT.template),
        [id, "chunk", number] => (id, number, chunk::PUT.template),
        _ => {
            let shown = excerpt(&rest.join("/"));
            let detail = format!(
                "{shown}: below an upload there are <upload_id>, <upload_id>/chunk/<n>, <upload_id>/progress and \
                 <upload_id>/content"
            );
            return Err(Problem::new(Code::RouteUnknown, detail));
        }
    };
    let word = if *method == Method::HEAD { "GET" } else { method.as_str() };
    match find_at(template, word) {
        Some((at, operation)) => Ok(Found { at, operation, id, number }),
        None => Err(Problem::method(allow(template), method.as_str())),
    }
}

fn allow(template: &str) -> &'static str {
    match template {
        state::TEMPLATE => "GET, HEAD, DELETE",
        _ if template == chunk::PUT.template => "PUT",
        _ => "GET, HEAD",
    }
}
