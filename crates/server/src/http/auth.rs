//! Who may call: bearer tokens with a role, or, without tokens, only this machine and no foreign web page.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, ORIGIN};
use quaymaster::Code;

use super::problem::{Problem, excerpt};

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Calls that read.
    Read,
    /// Every call.
    Write,
}

/// A bearer token and its role. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: String,
    role: Role,
}

impl Token {
    /// A token; its text comes from the environment.
    pub fn new(secret: String, role: Role) -> Self {
        Self { secret, role }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("role", &self.role).finish_non_exhaustive()
    }
}

/// Whether the caller may do what needs `role`.
pub(crate) fn check(tokens: &[Token], headers: &HeaderMap, role: Role) -> Result<(), Problem> {
    if tokens.is_empty() {
        return check_origin(headers);
    }
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Err(
            Problem::new(Code::AuthRequired, "there is no authorization header").field("authorization")
        );
    };
    let given = bearer(value.as_bytes()).ok_or_else(|| {
        Problem::new(Code::AuthRequired, "the authorization header is not `Bearer <token>`")
            .field("authorization")
    })?;
    // All tokens are compared, each in constant time: how long it takes tells nothing about any of them.
    let mut granted = None;
    for token in tokens {
        if same(given, token.secret.as_bytes()) {
            granted = Some(token.role);
        }
    }
    match granted {
        Some(has) if has >= role => Ok(()),
        Some(_) => Err(Problem::new(Code::AuthForbidden, "this token may only read").field("authorization")),
        None => Err(Problem::new(Code::AuthRequired, "the token is not one of ours").field("authorization")),
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}

fn same(a: &[u8], b: &[u8]) -> bool {
    let mut difference = u8::from(a.len() != b.len());
    for (at, wanted) in b.iter().enumerate() {
        difference |= wanted ^ a.get(at).copied().unwrap_or(!wanted);
    }
    std::hint::black_box(difference) == 0
}

/// Browsers name the page a request comes from. Without tokens a page of another site, or of a name that was
/// made to point at this machine, must not reach the limits of whoever has it open.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let text = String::from_utf8_lossy(origin.as_bytes());
    if is_loopback(&text) {
        return Ok(());
    }
    let detail =
        format!("origin {}: pages of other sites need a token, and none is configured", excerpt(&text));
    Err(Problem::new(Code::AuthForbidden, detail).field("origin"))
}

fn is_loopback(origin: &str) -> bool {
    let Some((_, host)) = origin.split_once("://") else { return false };
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split_once(']').map_or(v6, |(host, _)| host),
        None => host.split_once(':').map_or(host, |(host, _)| host),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use axum::http::HeaderValue;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn a_token_opens_what_its_role_allows() {
        let tokens = [Token::new("reader".into(), Role::Read), Token::new("writer".into(), Role::Write)];
        let told =
            |text: &str, role| check(&tokens, &headers("authorization", text), role).map_err(|p| p.code);
        assert_eq!(told("Bearer writer", Role::Write), Ok(()));
        assert_eq!(told("bearer reader", Role::Read), Ok(()));
        assert_eq!(told("Bearer reader", Role::Write), Err(Code::AuthForbidden));
        assert_eq!(told("Bearer write", Role::Read), Err(Code::AuthRequired));
        assert_eq!(told("Bearer writerr", Role::Read), Err(Code::AuthRequired));
        assert_eq!(told("Bearer ", Role::Read), Err(Code::AuthRequired));
        assert_eq!(told("Basic writer", Role::Read), Err(Code::AuthRequired));
        assert_eq!(
            check(&tokens, &HeaderMap::new(), Role::Read).map_err(|p| p.code),
            Err(Code::AuthRequired)
        );
    }

    #[test]
    fn without_tokens_only_pages_of_this_machine_may_call() {
        let told = |text: &str| check(&[], &headers("origin", text), Role::Write).is_ok();
        assert!(check(&[], &HeaderMap::new(), Role::Write).is_ok());
        assert!(told("http://localhost:7420") && told("http://127.0.0.1:7420") && told("http://[::1]:7420"));
        assert!(!told("https://example.com") && !told("null") && !told("http://127.0.0.1.example.com"));
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", Token::new("s3cret".into(), Role::Read)).contains("s3cret"));
    }
}
