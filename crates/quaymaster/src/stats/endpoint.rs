//! The name an endpoint is counted under: `METHOD /template`.

use http::Method;

/// Requests that matched no route; outside the cap.
pub const UNMATCHED: &str = "unmatched";

/// Requests of endpoints that the cap kept out.
pub const OVERFLOW: &str = "overflow";

/// The longest name; longer ones count as [`OVERFLOW`].
pub const MAX_ENDPOINT_BYTES: usize = 256;

/// Methods told apart; every other one is `OTHER`.
pub(crate) const METHODS: [&str; 10] =
    ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "OTHER"];

/// The place of a method in [`METHODS`].
#[inline]
pub(crate) fn method_index(method: &Method) -> usize {
    match *method {
        Method::GET => 0,
        Method::POST => 1,
        Method::PUT => 2,
        Method::DELETE => 3,
        Method::PATCH => 4,
        Method::HEAD => 5,
        Method::OPTIONS => 6,
        Method::CONNECT => 7,
        Method::TRACE => 8,
        _ => 9,
    }
}

/// The same of a method's name, in whatever case.
pub(crate) fn method_index_of(name: &str) -> usize {
    METHODS.iter().position(|method| method.eq_ignore_ascii_case(name)).unwrap_or(METHODS.len() - 1)
}

/// The name of a method and a route. A route is a template (`/users/{id}`, `/users/:id`) or a plain path; what follows
/// `?` or `#` is no part of it.
pub(crate) fn name(method: usize, route: &str, fold: bool) -> String {
    let route = route.split(['?', '#']).next().unwrap_or_default();
    if route.is_empty() || route == "*" {
        return UNMATCHED.to_owned();
    }
    let mut name = String::with_capacity(route.len() + 8);
    name.push_str(METHODS.get(method).copied().unwrap_or("OTHER"));
    name.push(' ');
    for segment in route.strip_prefix('/').unwrap_or(route).split('/') {
        name.push('/');
        if fold && is_id(segment) {
            name.push_str(":id");
        } else {
            push_segment(&mut name, segment);
        }
        if name.len() > MAX_ENDPOINT_BYTES {
            return OVERFLOW.to_owned();
        }
    }
    name
}

/// `{id}` and `{*rest}` become `:id` and `:rest`; what a key cannot contain is percent-encoded.
fn push_segment(name: &mut String, segment: &str) {
    let mut rest = segment;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((inner, after)) = after.split_once('}') else { break };
        push_text(name, before);
        name.push(':');
        // `{id:[0-9]+}` of some routers: the name is in front.
        push_text(name, inner.trim_start_matches('*').split(':').next().unwrap_or_default());
        rest = after;
    }
    push_text(name, rest);
}

fn push_text(name: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() || c == ' ' || matches!(c, '{' | '}' | '*' | '?' | '[' | ']') {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let digit = |four: u8| char::from(b"0123456789ABCDEF"[usize::from(four)]);
                name.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        } else {
            name.push(c);
        }
    }
}

/// Whether a segment is a number, a UUID, or hexadecimal of at least sixteen digits.
fn is_id(segment: &str) -> bool {
    let bytes = segment.as_bytes();
    let hex = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_hexdigit);
    let uuid = bytes.len() == 36 && {
        let mut parts = segment.split('-').map(|part| (part.len(), hex(part.as_bytes())));
        parts.by_ref().map(|(len, _)| len).eq([8, 4, 4, 4, 12])
            && segment.split('-').all(|part| hex(part.as_bytes()))
    };
    !bytes.is_empty() && (bytes.iter().all(u8::is_ascii_digit) || (bytes.len() >= 16 && hex(bytes)) || uuid)
}
