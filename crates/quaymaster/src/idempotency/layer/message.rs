//! An answer as its record keeps it: `HTTP <status>`, the headers that matter, an empty line, the body.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

const MAGIC: &[u8] = b"HTTP ";

/// What goes before the body of an answer; of its headers only those `wanted`.
pub(super) fn head(status: StatusCode, headers: &HeaderMap, wanted: &[HeaderName]) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b'\n');
    for name in wanted {
        for value in headers.get_all(name) {
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            // A header's value holds no line break.
            out.extend_from_slice(value.as_bytes());
            out.push(b'\n');
        }
    }
    out.push(b'\n');
    out
}

/// The answer those bytes are. What some other program kept is a body alone.
pub(super) fn decode(bytes: &Bytes) -> (StatusCode, HeaderMap, Bytes) {
    read(bytes).unwrap_or_else(|| {
        let json = serde_json::from_slice::<serde_json::Value>(bytes).is_ok();
        let kind = if json { "application/json" } else { "application/octet-stream" };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        (StatusCode::OK, headers, bytes.clone())
    })
}

fn read(bytes: &Bytes) -> Option<(StatusCode, HeaderMap, Bytes)> {
    let mut at = bytes.strip_prefix(MAGIC).map(|_| MAGIC.len())?;
    let mut line = || {
        let rest = &bytes[at..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        at += end + 1;
        Some(&rest[..end])
    };
    let status = StatusCode::from_bytes(line()?).ok()?;
    let mut headers = HeaderMap::new();
    loop {
        let line = line()?;
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].strip_prefix(b" ")?).ok()?;
        headers.append(name, value);
    }
    Some((status, headers, bytes.slice(at..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_with_the_headers_that_were_wanted() {
        let mut headers = HeaderMap::new();
        headers.append("link", HeaderValue::from_static("<a>; rel=next"));
        headers.append("link", HeaderValue::from_static(""));
        headers.append("x-secret", HeaderValue::from_static("1"));
        let wanted = [HeaderName::from_static("etag"), HeaderName::from_static("link")];
        for body in [b"".as_slice(), b"\n\nHTTP 200\n\n", b"\xff\x00"] {
            let kept = [&head(StatusCode::CREATED, &headers, &wanted), body].concat().into();
            let (status, back, replayed) = decode(&kept);
            assert_eq!((status, &replayed[..]), (StatusCode::CREATED, body));
            assert_eq!(back.get_all("link").iter().count(), 2);
            assert_eq!(back.len(), 2);
        }
    }

    #[test]
    fn what_another_program_kept_is_a_body() {
        for (kept, kind) in [
            (b"{\"a\":1}".as_slice(), "application/json"),
            (b"HTTP", "application/octet-stream"),
            (b"HTTP 99999\n\n", "application/octet-stream"),
            (b"HTTP 200\nno colon\n\n", "application/octet-stream"),
            (b"HTTP 200\n", "application/octet-stream"),
        ] {
            let (status, headers, body) = decode(&Bytes::from_static(kept));
            assert_eq!((status, &body[..]), (StatusCode::OK, kept));
            assert_eq!(headers[CONTENT_TYPE], kind);
        }
    }
}
