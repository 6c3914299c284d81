//! `GET …/<upload_id>/progress`: server-sent events, first how far the upload is, then every change, until it ends.

use std::pin::Pin;

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use quaymaster::upload::Progress;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::route::{Asked, Route};
use super::{berth_of, unknown};
use crate::app::App;
use crate::call::Effect;
use crate::fan::Seated;
use crate::http::connection::Pace;
use crate::http::presence::Presence;
use crate::http::problem::Problem;
use crate::http::{query, sse};

pub(super) const PROGRESS: Route = Route {
    method: "GET",
    template: "/v1/upload/{name}/{upload_id}/progress",
    effect: Effect::Reads,
    answer: |app, asked| Box::pin(progress(app, asked)).boxed(),
};

/// One reader.
struct Feed {
    told: Pin<Box<dyn Stream<Item = quaymaster::Result<Progress>> + Send>>,
    first: bool,
    beat: Interval,
    stopping: CancellationToken,
    presence: Presence,
    pace: Pace,
    /// Given back when the reader is gone.
    _seat: Seated,
}

/// Progress as server-sent events.
#[utoipa::path(
    get, path = "/v1/upload/{name}/{upload_id}/progress", operation_id = "upload.progress", tag = "upload",
    params(
        ("name" = String, Path, description = "the upload's name in the schema"),
        ("upload_id" = String, Path, description = "the upload"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream",
            description = "`event: snapshot`, then `event: progress` for every change, each with the documented JSON in \
                `data` and its number in `id`; ends with the upload"),
        crate::page::openapi::Problems),
)]
pub(crate) async fn progress(app: &App, asked: Asked<'_>) -> Result<Response<Body>, Problem> {
    query::none(asked.query)?;
    let berth = berth_of(app, asked.name, asked.id)?;
    let uploads = berth.uploads().await?;
    // Also makes the store say again what it has forgotten.
    if uploads.standing(asked.id).await?.is_none() {
        return Err(unknown(asked.id));
    }
    let seat = app.fan.seat()?;
    let told = Box::pin(uploads.store().progress(asked.id).await?);
    let heartbeat = app.bounds.heartbeat;
    let mut beat = interval_at(Instant::now() + heartbeat, heartbeat);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let feed = Feed {
        told,
        first: true,
        beat,
        stopping: app.stopping.clone(),
        presence: asked.presence.clone(),
        pace: asked.activity.endless(),
        _seat: seat,
    };
    let body = futures_util::stream::unfold(feed, |mut feed| async {
        feed.pace.asked();
        let next = feed.next().await?;
        feed.pace.handed();
        Some((Ok::<_, std::convert::Infallible>(next), feed))
    });
    Ok(sse::head(Body::from_stream(body)))
}

impl Feed {
    async fn next(&mut self) -> Option<Bytes> {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => None,
            () = self.presence.gone() => None,
            told = self.told.next() => {
                let progress = match told? {
                    Ok(progress) => progress,
                    Err(error) => {
                        // The reader comes again, and begins with a snapshot.
                        tracing::debug!(%error, "progress cannot be told");
                        return None;
                    }
                };
                let event = if std::mem::take(&mut self.first) { "snapshot" } else { "progress" };
                let data = serde_json::to_string(&progress).unwrap_or_default();
                self.beat.reset();
                Some(Bytes::from(format!("event: {event}\nid: {}\ndata: {data}\n\n", progress.seq)))
            }
            _ = self.beat.tick() => Some(sse::HEARTBEAT),
        }
    }
}
