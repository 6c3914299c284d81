//! `GET …/<upload_id>/progress`: server-sent events, first how far the upload is, then every change, until it ends.

use std::pin::Pin;

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use quaymaster::upload::Progress;

use super::route::Asked;
use super::{below, berth_of, unknown};
use crate::app::App;
use crate::call::{Answers, Operation, Shows};
use crate::fan::Seated;
use crate::http::problem::Problem;
use crate::http::{query, sse};

pub(super) const PROGRESS: Operation = Operation {
    shows: Some(Shows::Facts),
    ..below(
        ("progress", "/v1/upload/{name}/{upload_id}/progress"),
        "Follow an upload",
        Answers::Events(
            "`event: snapshot`, then `event: progress` for every change, each with the documented JSON in `data` and its \
             number in `id`. Ends with the upload: COMPLETED, EXPIRED, or FAILED with `aborted`.",
        ),
        |app, asked| Box::pin(progress(app, asked)).boxed(),
    )
};

/// One reader.
struct Feed {
    told: Pin<Box<dyn Stream<Item = quaymaster::Result<Progress>> + Send>>,
    first: bool,
    /// Given back when the reader is gone.
    _seat: Seated,
}

/// Progress as server-sent events.
pub(crate) async fn progress(app: &App, asked: Asked<'_>) -> Result<Response<Body>, Problem> {
    query::none(asked.query)?;
    let berth = berth_of(&app.services, asked.name, asked.id)?;
    let uploads = berth.uploads().await?;
    // Also makes the store say again what it has forgotten.
    if uploads.standing(asked.id).await?.is_none() {
        return Err(unknown(asked.id));
    }
    let seat = app.fan.seat()?;
    let told = Box::pin(uploads.store().progress(asked.id).await?);
    let feed = Feed { told, first: true, _seat: seat };
    Ok(sse::response(feed, app.line(asked.presence.clone(), asked.activity.endless())))
}

impl sse::Source for Feed {
    async fn next(&mut self) -> Option<Bytes> {
        let progress = match self.told.next().await? {
            Ok(progress) => progress,
            Err(error) => {
                // The reader comes again, and begins with a snapshot.
                tracing::debug!(%error, "progress cannot be told");
                return None;
            }
        };
        let event = if std::mem::take(&mut self.first) { "snapshot" } else { "progress" };
        let data = serde_json::to_string(&progress).unwrap_or_default();
        Some(Bytes::from(format!("event: {event}\nid: {}\ndata: {data}\n\n", progress.seq)))
    }
}
