//! `GET …/<upload_id>/content`: the object's bytes, all or a range.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, LAST_MODIFIED, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use futures_util::{FutureExt as _, StreamExt as _};
use quaymaster::Code;
use quaymaster_upload::ingest::Content;

use super::disposition::disposition;
use super::route::Asked;
use super::{below, berth_of, unknown};
use crate::app::App;
use crate::call::{Answers, Operation, Shows};
use crate::http::conditional::{Outcome, Validators};
use crate::http::connection::{Pace, Sending};
use crate::http::problem::Problem;
use crate::http::query;
use crate::request::{Field, Spec};

pub(super) const CONTENT: Operation = Operation {
    headers: &[
        Field { name: "range", about: "`bytes=from-to`, one range.", spec: Spec::text() },
        Field {
            name: "if-range",
            about: "The ETag, or date, the range is meant for; everything if it is another.",
            spec: Spec::text(),
        },
        Field {
            name: "if-match",
            about: "ETags one of which the content must have; else 412.",
            spec: Spec::text(),
        },
        Field { name: "if-none-match", about: "ETags whose content the caller has.", spec: Spec::text() },
        Field {
            name: "if-modified-since",
            about: "The date of the content that the caller has.",
            spec: Spec::text(),
        },
        Field {
            name: "if-unmodified-since",
            about: "The date after which the content must not have changed; else 412.",
            spec: Spec::text(),
        },
    ],
    shows: Some(Shows::Values),
    refusals: &[
        (410, "the object was removed, or is damaged"),
        (412, "the content is not the one that `if-match` or `if-unmodified-since` names"),
        (416, "the range lies outside"),
    ],
    ..below(
        ("content", "/v1/upload/{name}/{upload_id}/content"),
        "Read the object's bytes, all or a range",
        Answers::Bytes,
        |app, asked| Box::pin(content(app, asked)).boxed(),
    )
};

/// The object's bytes.
pub(crate) async fn content(app: &App, asked: Asked<'_>) -> Result<Response<Body>, Problem> {
    query::none(asked.query)?;
    let (id, activity) = (asked.id, asked.activity);
    let berth = berth_of(&app.services, asked.name, id)?;
    let uploads = berth.uploads().await?;
    let known = uploads.of_ours(id).await?;
    let known = known.and_then(|upload| Some((upload.final_size?, quoted(&upload.final_etag?))));
    // Not when the upload last changed: it goes on changing after its content is there.
    let modified = match &known {
        Some(_) => uploads.ledger().proved_at(id).await?.and_then(whole_seconds),
        None => None,
    };
    let range = match &known {
        Some((size, etag)) => {
            let validators = Validators { etag, modified };
            match validators.judge(asked.headers) {
                Outcome::Unchanged => return Ok(unchanged(validators)),
                Outcome::Failed => {
                    let detail = format!("the content's ETag is {etag}, which the conditions exclude");
                    return Err(Problem::new(Code::UploadChanged, detail));
                }
                Outcome::Answer => {}
            }
            // A range of no bytes is no range: HEAD tells of the whole (RFC 9110, 14.2).
            let ranged = asked.method == Method::GET && validators.is_meant(asked.headers);
            ranged.then(|| range(asked.headers, *size)).transpose()?.flatten()
        }
        None => None,
    };
    let (size, mime_type, etag, name, pieces) = match uploads.content(id, range.clone()).await? {
        Content::Pieces { size, mime_type, etag, name, pieces } => (size, mime_type, etag, name, pieces),
        Content::Not(step) => {
            let detail = format!("there is no content: the upload is {}", step.status());
            return Err(Problem::new(Code::UploadClosed, detail));
        }
        Content::Unknown => return Err(unknown(id)),
    };
    // The connection is at work until the last piece is taken, and cut when its reader takes nothing.
    let (sending, pace) = (activity.sending(), activity.endless());
    let body = futures_util::stream::unfold((pieces, sending, pace), next);
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_str(&mime_type).ok().filter(|_| !mime_type.is_empty());
    headers.insert(CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    // Somebody else's bytes, under the dashboard's own origin: never run, never shown in place.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let disposition = HeaderValue::from_str(&disposition(name.as_deref().unwrap_or_default())).ok();
    headers.insert(CONTENT_DISPOSITION, disposition.unwrap_or(HeaderValue::from_static("attachment")));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    let etag = quoted(&etag);
    name_state(headers, Validators { etag: &etag, modified });
    let length = match &range {
        None => size,
        Some(Range { start, end }) => {
            let shown = format!("bytes {start}-{}/{size}", end - 1);
            headers.extend(HeaderValue::from_str(&shown).ok().map(|shown| (CONTENT_RANGE, shown)));
            end - start
        }
    };
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    if range.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

type Flow = (quaymaster_upload::objects::Pieces, Sending, Pace);

async fn next(
    (mut pieces, sending, pace): Flow,
) -> Option<(Result<bytes::Bytes, quaymaster_upload::Error>, Flow)> {
    pace.asked();
    let piece = pieces.next().await?;
    if let Err(error) = &piece {
        tracing::warn!(%error, "content broke off");
    }
    pace.handed();
    Some((piece, (pieces, sending, pace)))
}

fn quoted(etag: &str) -> String {
    if etag.starts_with('"') || etag.starts_with("W/") { etag.to_owned() } else { format!("\"{etag}\"") }
}

/// Of the millisecond an object was proved at, what HTTP can write.
fn whole_seconds(ms: i64) -> Option<SystemTime> {
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(ms).ok()? / 1000))
}

/// Says by what the caller can ask whether it has the same.
fn name_state(headers: &mut HeaderMap, validators: Validators<'_>) {
    headers.extend(HeaderValue::from_str(validators.etag).ok().map(|etag| (ETAG, etag)));
    let modified = validators.modified.map(httpdate::fmt_http_date);
    headers.extend(
        modified.and_then(|date| HeaderValue::from_str(&date).ok()).map(|date| (LAST_MODIFIED, date)),
    );
}

fn unchanged(validators: Validators<'_>) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    name_state(headers, validators);
    response
}

/// The one range of bytes that is asked for. What is not understood is as if it were not there (RFC 9110); several
/// ranges at once are answered with everything, too.
fn range(headers: &HeaderMap, size: u64) -> Result<Option<Range<u64>>, Problem> {
    let Some(text) = headers.get(RANGE).and_then(|value| value.to_str().ok()) else { return Ok(None) };
    let Some(spec) = text.trim().strip_prefix("bytes=").filter(|spec| !spec.contains(',')) else {
        return Ok(None);
    };
    let Some((from, to)) = spec.trim().split_once('-') else { return Ok(None) };
    let number = |text: &str| text.parse::<u64>().ok();
    let found = match (from, to) {
        ("", last) => match number(last) {
            Some(last) => size.saturating_sub(last)..size,
            None => return Ok(None),
        },
        (from, "") => match number(from) {
            Some(from) => from..size,
            None => return Ok(None),
        },
        (from, to) => match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => from..size.min(to.saturating_add(1)),
            _ => return Ok(None),
        },
    };
    if found.is_empty() {
        return Err(Problem::range(size, text));
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn one_range_is_understood_and_nothing_else_is() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_str(text).unwrap());
            range(&headers, 10)
        };
        for (text, wanted) in [
            ("bytes=0-3", Some(0..4)),
            ("bytes=4-", Some(4..10)),
            ("bytes=-3", Some(7..10)),
            ("bytes=-30", Some(0..10)),
            ("bytes=2-99", Some(2..10)),
            ("bytes=0-1,3-4", None),
            ("bytes=3-1", None),
            ("items=0-1", None),
            ("bytes=x", None),
        ] {
            assert_eq!(read(text).unwrap(), wanted, "{text}");
        }
        for outside in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
            assert_eq!(read(outside).unwrap_err().code, Code::UploadRange, "{outside}");
        }
    }
}
