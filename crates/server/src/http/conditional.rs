//! Conditions of a request (RFC 9110, 13): `If-Match`, `If-None-Match`, dates, and ranges that depend on them.

use std::time::SystemTime;

use axum::body::Body;
use axum::http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE,
};
use axum::http::{HeaderMap, HeaderName, Response, StatusCode};

/// What is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validators<'a> {
    /// With its quotes.
    pub(crate) etag: &'a str,
    /// In whole seconds, as HTTP writes it.
    pub(crate) modified: Option<SystemTime>,
}

/// What the conditions amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// They hold, or there are none.
    Answer,
    /// The caller has it.
    Unchanged,
    /// It is not what the caller takes it for.
    Failed,
}

impl Validators<'_> {
    /// Looks at every condition, in the order of RFC 9110.
    pub(crate) fn judge(self, headers: &HeaderMap) -> Outcome {
        let date = |name: &HeaderName| httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok();
        let weak = self.etag.starts_with("W/");
        if headers.contains_key(IF_MATCH) {
            if !names(headers, &IF_MATCH, |one| one == self.etag && !weak) {
                return Outcome::Failed;
            }
        } else if let (Some(since), Some(modified)) = (date(&IF_UNMODIFIED_SINCE), self.modified)
            && modified > since
        {
            return Outcome::Failed;
        }
        let bare = |text: &str| text.strip_prefix("W/").unwrap_or(text).to_owned();
        if headers.contains_key(IF_NONE_MATCH) {
            if names(headers, &IF_NONE_MATCH, |one| bare(one) == bare(self.etag)) {
                return Outcome::Unchanged;
            }
        } else if let (Some(since), Some(modified)) = (date(&IF_MODIFIED_SINCE), self.modified)
            && modified <= since
        {
            return Outcome::Unchanged;
        }
        Outcome::Answer
    }

    /// Whether a range is meant for this content: its ETag is named, or exactly its date.
    pub(crate) fn is_meant(self, headers: &HeaderMap) -> bool {
        let Some(value) = headers.get(IF_RANGE) else { return true };
        if value == self.etag {
            return !self.etag.starts_with("W/");
        }
        let date = value.to_str().ok().and_then(|text| httpdate::parse_http_date(text).ok());
        date.is_some() && date == self.modified
    }
}

/// Whether a header with a list of ETags has `*` or one that fits.
fn names(headers: &HeaderMap, name: &HeaderName, fits: impl Fn(&str) -> bool) -> bool {
    let all = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|text| text.split(',')).map(str::trim).any(|one| one == "*" || fits(one))
}

/// The same answer, or 304 where the caller has it already.
pub(crate) fn unless_known(mut response: Response<Body>, headers: &HeaderMap) -> Response<Body> {
    let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
    let known = etag.is_some_and(|etag| {
        headers.contains_key(IF_NONE_MATCH)
            && Validators { etag, modified: None }.judge(headers) == Outcome::Unchanged
    });
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(CONTENT_TYPE);
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    response
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::time::{Duration, UNIX_EPOCH};

    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn conditions_are_judged_in_their_order() {
        let modified = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let date = |seconds: i64| {
            let moved = Duration::from_secs(seconds.unsigned_abs());
            httpdate::fmt_http_date(if seconds < 0 { modified - moved } else { modified + moved })
        };
        let (before, at, after) = (date(-1), date(0), date(1));
        let (before, at, after) = (&*before, &*at, &*after);
        let judge = |given: &[(HeaderName, &str)]| {
            let pairs = given.iter().map(|(name, text)| (name.clone(), HeaderValue::from_str(text).unwrap()));
            let headers: HeaderMap = pairs.collect();
            Validators { etag: "\"a\"", modified: Some(modified) }.judge(&headers)
        };
        for (given, wanted) in [
            (&[(IF_MATCH, "\"a\"")][..], Outcome::Answer),
            (&[], Outcome::Answer),
            (&[(IF_MATCH, "\"b\", \"a\"")], Outcome::Answer),
            (&[(IF_MATCH, "*")], Outcome::Answer),
            (&[(IF_MATCH, "\"b\"")], Outcome::Failed),
            (&[(IF_MATCH, "W/\"a\"")], Outcome::Failed),
            (&[(IF_UNMODIFIED_SINCE, before)], Outcome::Failed),
            (&[(IF_UNMODIFIED_SINCE, at)], Outcome::Answer),
            (&[(IF_MATCH, "\"a\""), (IF_UNMODIFIED_SINCE, before)], Outcome::Answer),
            (&[(IF_NONE_MATCH, "W/\"a\"")], Outcome::Unchanged),
            (&[(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, after)], Outcome::Answer),
            (&[(IF_MODIFIED_SINCE, at)], Outcome::Unchanged),
            (&[(IF_MODIFIED_SINCE, before)], Outcome::Answer),
            (&[(IF_MODIFIED_SINCE, "yesterday")], Outcome::Answer),
            (&[(IF_MATCH, "\"b\""), (IF_NONE_MATCH, "\"a\"")], Outcome::Failed),
        ] {
            assert_eq!(judge(given), wanted, "{given:?}");
        }
    }
}
