//! Who may call: bearer tokens with a role, or, without tokens, only this machine; and which web pages.

use std::borrow::Cow;
use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Version};
use quaymaster::Code;

use super::listen::Address;
use super::origin::{Origins, authority};
use super::problem::{Problem, excerpt};
use super::rights::{Rights, Role, Token};

const FETCH_SITE: &str = "sec-fetch-site";

/// Who asks, and which server they think they ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// Host and port the request is meant for; HTTP/1.0 may leave it out.
    pub(crate) host: Option<&'a str>,
}

/// What a request does, as far as a browser's word about its page matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Looks,
    Changes,
}

impl From<Role> for Deed {
    /// An operation for readers changes nothing, also where it is a POST.
    fn from(needed: Role) -> Self {
        if needed == Role::Read { Self::Looks } else { Self::Changes }
    }
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
    /// What callers may do where there are no tokens.
    anonymous: Role,
    /// Nobody else can reach the address; only a name made to point at it could bring others in.
    loopback: bool,
    pub(crate) origins: Origins,
}

/// Why somebody was not let in.
#[derive(Debug)]
pub(crate) enum Denied {
    /// They brought a token that is none of ours.
    Unknown,
    /// Something else.
    Problem(Problem),
}

impl From<Problem> for Denied {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown => {
                Problem::new(Code::AuthRequired, "the token is not one of ours").field("authorization")
            }
            Denied::Problem(problem) => problem,
        }
    }
}

impl Guard {
    pub(crate) fn new(tokens: Vec<Token>, anonymous: Role, origins: Origins, listens: &Address) -> Self {
        let loopback = listens.tcp().is_some_and(|address| address.ip().is_loopback());
        Self { tokens, anonymous, loopback, origins }
    }

    /// What the caller may do, if they may call at all.
    pub(crate) fn admit(&self, caller: Caller<'_>, deed: Deed) -> Result<Rights<'_>, Denied> {
        if self.tokens.is_empty() {
            if self.loopback {
                self.check_host(caller.host)?;
            }
            check_site(caller.headers, deed)?;
        }
        self.check_origin(caller)?;
        if self.tokens.is_empty() {
            return Ok(Rights::anonymous(self.anonymous));
        }
        let Some(value) = caller.headers.get(AUTHORIZATION) else {
            let detail = "there is no authorization header";
            return Err(Problem::new(Code::AuthRequired, detail).field("authorization").into());
        };
        let given = bearer(value.as_bytes()).ok_or_else(|| {
            Problem::new(Code::AuthRequired, "the authorization header is not `Bearer <token>`")
                .field("authorization")
        })?;
        // All tokens are compared, each in constant time: how long it takes tells nothing about any of them.
        let mut found = None;
        for token in &self.tokens {
            if same(given, token.secret()) {
                found = Some(token);
            }
        }
        found.map(Rights::of).ok_or(Denied::Unknown)
    }

    /// The number of the token that a caller has; none for callers without one.
    pub(crate) fn number(&self, rights: Rights<'_>) -> Option<usize> {
        let token = rights.token()?;
        self.tokens.iter().position(|known| std::ptr::eq(known, token))
    }

    /// What the token of this number is called in the access log: by its name, else `token-1` for the first.
    pub(crate) fn name_of(&self, number: usize) -> Cow<'_, str> {
        match self.tokens.get(number).map(Token::name) {
            Some(name) if !name.is_empty() => Cow::Borrowed(name),
            _ => Cow::Owned(format!("token-{}", number + 1)),
        }
    }

    /// A name of another site that was made to point at this machine would turn its pages into ours, for which a
    /// browser reads answers out. It still sends the name.
    fn check_host(&self, host: Option<&str>) -> Result<(), Problem> {
        match host {
            Some(host) if !is_loopback(host) && !self.origins.is_host(host) => {
                let detail = format!(
                    "host {}: without tokens only localhost, 127.0.0.1, [::1] and the hosts of `origins` in [server] are \
                     answered",
                    excerpt(host)
                );
                Err(Problem::new(Code::AuthHost, detail).field("host"))
            }
            _ => Ok(()),
        }
    }

    /// Browsers name the origin of the page that a request comes from. A page of another origin, also of another port
    /// of this machine, must not reach the limits of whoever has it open.
    fn check_origin(&self, caller: Caller<'_>) -> Result<(), Problem> {
        let mut named = caller.headers.get_all(ORIGIN).iter();
        let Some(origin) = named.next() else { return Ok(()) };
        let text = String::from_utf8_lossy(origin.as_bytes());
        if named.next().is_none() && (is_own(&text, caller.host) || self.origins.has(&text)) {
            return Ok(());
        }
        Err(unlisted(caller.headers))
    }
}

/// Whether a page is of the very host that is asked. A proxy in front may speak TLS for the server, so both schemes are.
fn is_own(origin: &str, host: Option<&str>) -> bool {
    ["http://", "https://"].into_iter().any(|scheme| {
        let page = origin.strip_prefix(scheme).map(|page| authority(scheme, page));
        page.is_some() && page == host.map(|host| authority(scheme, host))
    })
}

/// What a page of a foreign origin is told.
pub(crate) fn unlisted(headers: &HeaderMap) -> Problem {
    let origin = headers.get(ORIGIN).map(|origin| String::from_utf8_lossy(origin.as_bytes()));
    let detail = format!(
        "origin {}: pages may call only from the server's own origin, or from one that `origins` in [server] lists",
        excerpt(&origin.unwrap_or_default())
    );
    Problem::new(Code::AuthForbidden, detail).field("origin")
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

/// What needs no script (an image, a form) has no origin, but current browsers say whence it comes. Another port of this
/// machine is the same site.
fn check_site(headers: &HeaderMap, deed: Deed) -> Result<(), Problem> {
    if headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let foreign = headers.get(FETCH_SITE).is_some_and(|site| {
        site == "cross-site" || (deed == Deed::Changes && site != "same-origin" && site != "none")
    });
    if foreign {
        let detail = "sec-fetch-site: pages of other sites need a token, and none is configured";
        return Err(Problem::new(Code::AuthForbidden, detail).field(FETCH_SITE));
    }
    Ok(())
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
        let origins = Origins::new(&["http://localhost:3000".to_owned()]).unwrap();
        let listens = Address::Tcp(([127, 0, 0, 1], 7420).into());
        let guard = Guard::new(tokens.to_vec(), Role::Admin, origins, &listens);
        let caller = Caller { headers, host: Some("localhost:7420") };
        let deed = if role == Role::Read { Deed::Looks } else { Deed::Changes };
        let admitted = guard.admit(caller, deed).map_err(Problem::from);
        admitted.and_then(|rights| rights.need(role)).map_err(|problem| problem.code)
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
    fn only_the_servers_own_pages_and_listed_ones_may_call() {
        let tokens = [Token::new("writer".into(), Role::Write)];
        for tokens in [&[][..], &tokens] {
            let from = |text: &str| {
                let mut sent = headers("origin", text);
                sent.insert("authorization", HeaderValue::from_static("Bearer writer"));
                told(tokens, &sent, Role::Write).is_ok()
            };
            assert!(from("http://localhost:7420") && from("https://LOCALHOST:7420"));
            assert!(from("http://localhost:3000"), "listed");
            for foreign in [
                "http://localhost:8080",
                "http://localhost",
                "http://127.0.0.1:7420",
                "https://example.com",
                "null",
                "",
                "ftp://localhost:7420",
                "http://localhost:7420.example.com",
            ] {
                assert!(!from(foreign), "{foreign}");
            }
        }
        let mut two = headers("origin", "http://localhost:7420");
        two.append("origin", HeaderValue::from_static("http://localhost:7420"));
        assert_eq!(told(&[], &two, Role::Read), Err(Code::AuthForbidden));
    }

    #[test]
    fn without_tokens_and_origin_the_site_decides() {
        assert!(told(&[], &HeaderMap::new(), Role::Write).is_ok());
        let site = |text: &str, role| told(&[], &headers("sec-fetch-site", text), role).is_ok();
        for role in [Role::Read, Role::Write] {
            assert!(site("same-origin", role) && site("none", role) && !site("cross-site", role));
        }
        assert!(site("same-site", Role::Read) && !site("same-site", Role::Write));
    }

    #[test]
    fn without_tokens_a_loopback_address_answers_only_to_its_own_names() {
        let named = |host: &str, listens: &str| {
            let origins = Origins::new(&["https://console.example".to_owned()]).unwrap();
            let listens = Address::Tcp(std::net::SocketAddr::new(listens.parse().unwrap(), 7420));
            let guard = Guard::new(Vec::new(), Role::Admin, origins, &listens);
            guard.admit(Caller { headers: &HeaderMap::new(), host: Some(host) }, Deed::Looks).is_ok()
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
        assert!(named("console.example", "127.0.0.1"), "a proxy passes the name of a listed page on");
        assert!(named("evil.example", "0.0.0.0"), "--insecure-listen: others reach it by names of their own");
    }
}
