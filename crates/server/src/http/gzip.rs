//! Answers packed with gzip, for callers that take it. Only documents of the server's own that nobody else can write
//! into are packed: what a caller may choose beside a secret would tell the secret by its length.

use std::io::Write as _;

use axum::body::Body;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use axum::http::{HeaderMap, HeaderValue, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt as _;

/// Less is not worth packing.
const LEAST: usize = 1024;

/// The same answer, packed where the caller takes that.
pub(crate) async fn packed(response: Response<Body>, asked: &HeaderMap) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    head.headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    // It lies in memory already.
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return Response::from_parts(head, Body::empty());
    };
    if body.len() < LEAST || !is_wanted(asked) {
        return Response::from_parts(head, Body::from(body));
    }
    let mut packer = GzEncoder::new(Vec::with_capacity(body.len() / 6), Compression::fast());
    match packer.write_all(&body).and_then(|()| packer.finish()) {
        Ok(packed) => {
            head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            head.headers.remove(CONTENT_LENGTH);
            Response::from_parts(head, Body::from(packed))
        }
        // Writing into memory does not fail.
        Err(_) => Response::from_parts(head, Body::from(body)),
    }
}

/// Whether the caller takes gzip: by its name, or by `*` where it is not named; not with a weight of 0.
fn is_wanted(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let (mut named, mut any) = (None, None);
    for one in lists.flat_map(|list| list.split(',')) {
        let mut parts = one.split(';').map(str::trim);
        let word = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let taken = weight.is_none_or(|weight| weight.parse::<f64>().is_ok_and(|weight| weight > 0.0));
        if word.eq_ignore_ascii_case("gzip") || word.eq_ignore_ascii_case("x-gzip") {
            named = Some(taken);
        } else if word == "*" {
            any = Some(taken);
        }
    }
    named.or(any).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_only_to_who_takes_it() {
        for (asked, wanted) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("*", true),
            ("gzip;q=0, *", false),
            ("gzip; q=0.000", false),
            ("identity", false),
            ("", false),
            ("gzipped", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(asked))]);
            assert_eq!(is_wanted(&headers), wanted, "{asked}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }
}
