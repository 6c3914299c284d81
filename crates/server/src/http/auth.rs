//! Who may call: bearer tokens with a role, or, without tokens, only this machine and no foreign web page.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Version};
use quaymaster::Code;

use super::problem::{Problem, excerpt};

const FETCH_SITE: &str = "sec-fetch-site";

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

/// Who asks, and which server they think they ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// Host and port the request is meant for; HTTP/1.0 may leave it out.
    pub(crate) host: Option<&'a str>,
}

/// Whom the request is meant for. HTTP/1.1 names exactly one host, and so do browsers, always.
pub(crate) fn host(parts: &Parts) -> Result<Option<&str>, Problem> {
    let wrong = |detail: &'static str| Problem::new(Code::RequestInvalid, detail).field("host");
    let mut named = parts.headers.get_all(HOST).iter();
    let (first, second) = (named.next(), named.next());
    if second.is_some() {
        return Err(wrong("there is more than one host header"));
    }
    if first.is_none() && parts.version == Version::HTTP_11 {
        return Err(wrong("HTTP/1.1 needs a host header"));
    }
    // An absolute target is what counts, whatever the header says.
    match (parts.uri.authority(), first) {
        (Some(authority), _) => Ok(Some(authority.as_str())),
        (None, Some(value)) => value.to_str().map(Some).map_err(|_| wrong("the host header is not text")),
        (None, None) => Ok(None),
    }
}

/// Decides who may call.
#[derive(Debug)]
pub(crate) struct Guard {
    tokens: Vec<Token>,
    /// Nobody else can reach the address; only a name made to point at it could bring others in.
    loopback: bool,
}

impl Guard {
    pub(crate) fn new(tokens: Vec<Token>, listens: IpAddr) -> Self {
        Self { tokens, loopback: listens.is_loopback() }
    }

    /// Whether the caller may do what needs `role`.
    pub(crate) fn check(&self, caller: Caller<'_>, role: Role) -> Result<(), Problem> {
        if self.tokens.is_empty() {
            if self.loopback {
                check_host(caller.host)?;
            }
            return check_page(caller.headers);
        }
        let Some(value) = caller.headers.get(AUTHORIZATION) else {
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
        for token in &self.tokens {
            if same(given, token.secret.as_bytes()) {
                granted = Some(token.role);
            }
        }
        match granted {
            Some(has) if has >= role => Ok(()),
            Some(_) => {
                Err(Problem::new(Code::AuthForbidden, "this token may only read").field("authorization"))
            }
            None => {
                Err(Problem::new(Code::AuthRequired, "the token is not one of ours").field("authorization"))
            }
        }
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

/// A name of another site that was made to point at this machine would turn its pages into ours, for which a
/// browser reads answers out. It still sends the name.
fn check_host(host: Option<&str>) -> Result<(), Problem> {
    match host {
        Some(host) if !is_loopback(host) => {
            let detail = format!(
                "host {}: without tokens only localhost, 127.0.0.1 and [::1] are answered",
                excerpt(host)
            );
            Err(Problem::new(Code::AuthForbidden, detail).field("host"))
        }
        _ => Ok(()),
    }
}

/// Browsers name the page a request comes from. Without tokens a page of another site must not reach the
/// limits of whoever has it open.
fn check_page(headers: &HeaderMap) -> Result<(), Problem> {
    // What needs no script (an image, a form) has no origin, but current browsers say whence it comes.
    if headers.get(FETCH_SITE).is_some_and(|site| site == "cross-site") {
        let detail =
            "sec-fetch-site is cross-site: pages of other sites need a token, and none is configured";
        return Err(Problem::new(Code::AuthForbidden, detail).field(FETCH_SITE));
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let text = String::from_utf8_lossy(origin.as_bytes());
    if text.split_once("://").is_some_and(|(_, host)| is_loopback(host)) {
        return Ok(());
    }
    let detail =
        format!("origin {}: pages of other sites need a token, and none is configured", excerpt(&text));
    Err(Problem::new(Code::AuthForbidden, detail).field("origin"))
}

/// Whether `host`, with or without a port, can only mean this machine.
fn is_loopback(host: &str) -> bool {
    let (name, rest) = match host.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((name, rest)) if name.contains(':') => (name, rest),
            _ => return false,
        },
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let here = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    port && here
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use axum::http::HeaderValue;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_str(value).unwrap())])
    }

    fn told(tokens: &[Token], headers: &HeaderMap, role: Role) -> Result<(), Code> {
        let guard = Guard::new(tokens.to_vec(), IpAddr::from([127, 0, 0, 1]));
        guard.check(Caller { headers, host: Some("localhost") }, role).map_err(|problem| problem.code)
    }

    #[test]
    fn a_token_opens_what_its_role_allows() {
        let tokens = [Token::new("reader".into(), Role::Read), Token::new("writer".into(), Role::Write)];
        let told_for = |text: &str, role| told(&tokens, &headers("authorization", text), role);
        assert_eq!(told_for("Bearer writer", Role::Write), Ok(()));
        assert_eq!(told_for("bearer reader", Role::Read), Ok(()));
        assert_eq!(told_for("Bearer reader", Role::Write), Err(Code::AuthForbidden));
        assert_eq!(told_for("Bearer write", Role::Read), Err(Code::AuthRequired));
        assert_eq!(told_for("Bearer writerr", Role::Read), Err(Code::AuthRequired));
        assert_eq!(told_for("Bearer ", Role::Read), Err(Code::AuthRequired));
        assert_eq!(told_for("Basic writer", Role::Read), Err(Code::AuthRequired));
        assert_eq!(told(&tokens, &HeaderMap::new(), Role::Read), Err(Code::AuthRequired));
    }

    #[test]
    fn without_tokens_only_pages_of_this_machine_may_call() {
        let from = |text: &str| told(&[], &headers("origin", text), Role::Write).is_ok();
        assert!(told(&[], &HeaderMap::new(), Role::Write).is_ok());
        assert!(from("http://localhost:7420") && from("http://127.0.0.1:7420") && from("http://[::1]:7420"));
        assert!(!from("https://example.com") && !from("null") && !from("http://127.0.0.1.example.com"));
        let site = |text: &str| told(&[], &headers("sec-fetch-site", text), Role::Read).is_ok();
        assert!(site("same-origin") && site("same-site") && site("none") && !site("cross-site"));
    }

    #[test]
    fn without_tokens_a_loopback_address_answers_only_to_its_own_names() {
        let named = |host: &str, listens: &str| {
            let guard = Guard::new(Vec::new(), listens.parse().unwrap());
            guard.check(Caller { headers: &HeaderMap::new(), host: Some(host) }, Role::Read).is_ok()
        };
        for host in ["localhost", "LOCALHOST:7420", "127.0.0.1", "127.9.8.7:80", "[::1]", "[::1]:7420"] {
            assert!(named(host, "127.0.0.1"), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7420",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "user@localhost",
            "localhost:80:80",
            "localhost:x",
            "[localhost]",
            "[127.0.0.1]",
            "[::1]x",
            "192.168.1.1",
            "0.0.0.0",
            "::1",
            "",
        ] {
            assert!(!named(host, "127.0.0.1") && !named(host, "::1"), "{host}");
        }
        assert!(named("evil.example", "0.0.0.0"), "--insecure-listen: others reach it by names of their own");
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", Token::new("s3cret".into(), Role::Read)).contains("s3cret"));
    }
}
