//! Who calls: the other end of the connection, or whom trusted proxies name.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderName};

use crate::{Code, Error, Result};

/// Among a request's extensions: the other end of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Whose word about a caller's address is believed. Nobody's unless told: anybody can send the header.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    proxies: Arc<[Network]>,
    header: Option<Header>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    Forwarded,
    XForwardedFor,
}

impl Trust {
    /// The other end of the connection is the caller.
    pub fn nobody() -> Self {
        Self::default()
    }

    /// Proxies at these addresses (`10.0.0.7`, `10.0.0.0/8`, `fd00::/8`) append to `X-Forwarded-For`.
    pub fn x_forwarded_for<P: AsRef<str>>(proxies: impl IntoIterator<Item = P>) -> Result<Self> {
        Self::with(Header::XForwardedFor, proxies)
    }

    /// Proxies at these addresses append to `Forwarded` (RFC 7239).
    pub fn forwarded<P: AsRef<str>>(proxies: impl IntoIterator<Item = P>) -> Result<Self> {
        Self::with(Header::Forwarded, proxies)
    }

    fn with<P: AsRef<str>>(header: Header, proxies: impl IntoIterator<Item = P>) -> Result<Self> {
        let proxies = proxies.into_iter().map(|proxy| Network::parse(proxy.as_ref())).collect::<Result<_>>()?;
        Ok(Self { proxies, header: Some(header) })
    }

    /// The caller's address; `None` when the connection's other end is not known.
    ///
    /// The header is read from its end, where the nearest proxy wrote, for as long as what stands there was written
    /// by one that is trusted.
    pub fn caller(&self, extensions: &Extensions, headers: &HeaderMap) -> Option<IpAddr> {
        let mut caller = peer(extensions)?.ip().to_canonical();
        let Some(header) = self.header else { return Some(caller) };
        let name = match header {
            Header::Forwarded => http::header::FORWARDED,
            Header::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
        };
        let lines: Vec<&str> = headers.get_all(name).iter().map(|line| line.to_str().unwrap_or("")).collect();
        for line in lines.iter().rev() {
            for element in split(line, ',').into_iter().rev() {
                if !self.is_trusted(caller) {
                    return Some(caller);
                }
                let told = match header {
                    Header::Forwarded => forwarded_for(element),
                    Header::XForwardedFor => address(element.trim()),
                };
                // A hop that hides who it speaks for is as far as anybody can see.
                let Some(told) = told else { return Some(caller) };
                caller = told;
            }
        }
        Some(caller)
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.holds(address))
    }
}

/// The other end of the connection, where somebody noted it.
fn peer(extensions: &Extensions) -> Option<SocketAddr> {
    let noted = extensions.get::<Peer>().map(|peer| peer.0);
    #[cfg(feature = "axum")]
    let noted = noted.or_else(|| {
        use axum::extract::ConnectInfo;
        let known = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        known.or_else(|| extensions.get::<ConnectInfo<Peer>>().map(|info| info.0.0))
    });
    noted
}

/// The text a caller's address is counted under: IPv6 by its first 64 bits, which is what one subscriber gets.
pub(crate) fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).to_string()
        }
    }
}

/// A range of addresses.
#[derive(Debug, Clone, Copy)]
struct Network {
    first: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            let detail = format!("{text:?} is no address and no range of them (10.0.0.7, 10.0.0.0/8, fd00::/8)");
            Error::new("layer.trust", Code::ConfigInvalid, detail)
        };
        let (first, bits) = match text.split_once('/') {
            Some((first, bits)) => (first, Some(bits.parse::<u32>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let first: IpAddr = first.parse().map_err(|_| wrong())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { first, bits })
    }

    fn holds(&self, address: IpAddr) -> bool {
        let differ = match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                u128::from(first.to_bits() ^ address.to_bits()) << 96
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => first.to_bits() ^ address.to_bits(),
            _ => return false,
        };
        differ.leading_zeros() >= self.bits
    }
}

/// The parts of `text` between separators that stand outside quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut begin, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if c == separator && !quoted => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// `for=` of one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut pairs = split(element, ';').into_iter().filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    address(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    bare.or_else(with_port).or_else(bracketed).map(|address| address.to_canonical())
}
