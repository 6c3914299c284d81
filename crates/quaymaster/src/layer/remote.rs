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
        let proxies =
            proxies.into_iter().map(|proxy| Network::parse(proxy.as_ref())).collect::<Result<_>>()?;
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
        // Whatever a caller sent in front must not make what proxies added unreadable.
        let lines: Vec<_> =
            headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
        for line in lines.iter().rev() {
            let mut rest = Some(&**line);
            while let Some(left) = rest {
                if !self.is_trusted(caller) {
                    return Some(caller);
                }
                let (before, element) = match header {
                    Header::Forwarded => last_element(left),
                    // Nothing is quoted there; a quote is an ordinary sign that a caller may send.
                    Header::XForwardedFor => {
                        left.rsplit_once(',').map_or((None, left), |(before, last)| (Some(before), last))
                    }
                };
                rest = before;
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

    /// Whether this address is one of the proxies: what comes from there is others' requests.
    pub fn is_trusted(&self, address: IpAddr) -> bool {
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
            let detail =
                format!("{text:?} is no address and no range of them (10.0.0.7, 10.0.0.0/8, fd00::/8)");
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
            (IpAddr::V4(first), IpAddr::V4(address)) => u128::from(first.to_bits() ^ address.to_bits()) << 96,
            (IpAddr::V6(first), IpAddr::V6(address)) => first.to_bits() ^ address.to_bits(),
            _ => return false,
        };
        differ.leading_zeros() >= self.bits
    }
}

/// The last element of a list, and what stands before it.
///
/// Quotes are paired from the end, where the nearest proxy wrote: an open quote that a caller sent in front must not
/// swallow what proxies have added.
fn last_element(list: &str) -> (Option<&str>, &str) {
    let bytes = list.as_bytes();
    let mut quoted = false;
    for at in (0..bytes.len()).rev() {
        match bytes[at] {
            b'"' => {
                let escapes = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
                quoted = !quoted || escapes % 2 == 1;
            }
            b',' if !quoted => return (Some(&list[..at]), &list[at + 1..]),
            _ => {}
        }
    }
    (None, list)
}

/// The pairs of an element, divided by `;` outside quotes.
fn pairs(element: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    element.split(move |c| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ';' => return !quoted,
            _ => {}
        }
        false
    })
}

/// `for=` of one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut named = pairs(element).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = named.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    address(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    bare.or_else(with_port).or_else(bracketed).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    fn caller(trust: &Trust, peer: &str, headers: &[(&'static str, &str)]) -> String {
        let mut extensions = Extensions::new();
        extensions.insert(Peer(peer.parse().unwrap()));
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        trust.caller(&extensions, &map).unwrap().to_string()
    }

    #[test]
    fn nobody_is_believed_unless_trusted() {
        let said = [("x-forwarded-for", "1.2.3.4"), ("forwarded", "for=1.2.3.4")];
        assert_eq!(caller(&Trust::nobody(), "9.9.9.9:1", &said), "9.9.9.9");
        for trust in [Trust::forwarded(["10.0.0.1"]).unwrap(), Trust::x_forwarded_for(["10.0.0.1"]).unwrap()]
        {
            assert_eq!(caller(&trust, "9.9.9.9:1", &said), "9.9.9.9");
            assert_eq!(caller(&trust, "10.0.0.1:1", &said), "1.2.3.4");
            assert_eq!(caller(&trust, "[::ffff:10.0.0.1]:1", &said), "1.2.3.4");
            assert_eq!(caller(&trust, "10.0.0.1:1", &[]), "10.0.0.1");
        }
        // Only the header that the proxies write is read: the other one is whatever the caller sent.
        let trust = Trust::x_forwarded_for(["10.0.0.1"]).unwrap();
        assert_eq!(caller(&trust, "10.0.0.1:1", &[("forwarded", "for=6.6.6.6")]), "10.0.0.1");
        assert_eq!(Trust::nobody().caller(&Extensions::new(), &HeaderMap::new()), None);
    }

    #[test]
    fn what_a_caller_wrote_himself_is_not_read_past_the_trusted_hops() {
        let trust = Trust::x_forwarded_for(["10.0.0.0/8", "fd00::/8"]).unwrap();
        for (lines, expected) in [
            (&["6.6.6.6, 1.2.3.4"][..], "1.2.3.4"),
            (&["6.6.6.6, 1.2.3.4, 10.9.9.9"], "1.2.3.4"),
            (&["6.6.6.6", "1.2.3.4,10.9.9.9", "fd00::7"], "1.2.3.4"),
            // All of them are trusted: the farthest one asked.
            (&["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
            // A hop that says nothing usable is as far as can be seen.
            (&["1.2.3.4, unknown"], "10.0.0.1"),
            (&["1.2.3.4, , 10.2.2.2"], "10.2.2.2"),
            (&[""], "10.0.0.1"),
            (&["1.2.3.4:567"], "1.2.3.4"),
            (&["[2001:db8::1]:443"], "2001:db8::1"),
            (&["2001:db8::1"], "2001:db8::1"),
        ] {
            let headers: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
            assert_eq!(caller(&trust, "10.0.0.1:1", &headers), expected, "{lines:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_hide_nobody() {
        let mut extensions = Extensions::new();
        extensions.insert(Peer("10.0.0.1:1".parse().unwrap()));
        for (trust, name, line) in [
            (Trust::x_forwarded_for(["10.0.0.1"]), "x-forwarded-for", b"\xff, 1.2.3.4".as_slice()),
            (Trust::forwarded(["10.0.0.1"]), "forwarded", b"for=\xff\", for=1.2.3.4"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, http::HeaderValue::from_bytes(line).unwrap());
            let caller = trust.unwrap().caller(&extensions, &headers).unwrap();
            assert_eq!(caller.to_string(), "1.2.3.4", "{name}");
        }
    }

    #[test]
    fn elements_of_forwarded_are_read_with_their_quotes() {
        let trust = Trust::forwarded(["10.0.0.1"]).unwrap();
        for (line, expected) in [
            ("for=1.2.3.4;proto=https;by=10.0.0.1", "1.2.3.4"),
            ("For=\"[2001:db8::1]:4711\"", "2001:db8::1"),
            ("for=\"1.2.3.4:80\"", "1.2.3.4"),
            ("proto=https;for=1.2.3.4", "1.2.3.4"),
            ("for=1.2.3.4;host=\"a,for=6.6.6.6\"", "1.2.3.4"),
            ("for=1.2.3.4;host=\"a\\\",for=6.6.6.6\"", "1.2.3.4"),
            ("for=_hidden", "10.0.0.1"),
            ("for=unknown", "10.0.0.1"),
            ("by=1.2.3.4", "10.0.0.1"),
        ] {
            assert_eq!(caller(&trust, "10.0.0.1:1", &[("forwarded", line)]), expected, "{line}");
        }
    }

    #[test]
    fn ranges_hold_what_begins_alike() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.168.1.128/25", "192.168.1.200", "192.168.1.1"),
            ("1.2.3.4", "1.2.3.4", "1.2.3.5"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("::1", "::1", "0.0.0.1"),
        ] {
            let network = Network::parse(range).unwrap();
            assert!(network.holds(inside.parse().unwrap()), "{range} {inside}");
            assert!(!network.holds(outside.parse().unwrap()), "{range} {outside}");
        }
        assert!(Network::parse("0.0.0.0/0").unwrap().holds("255.1.2.3".parse().unwrap()));
        assert!(!Network::parse("0.0.0.0/0").unwrap().holds("::1".parse().unwrap()));
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0", "10.0.0.0/8/9"] {
            assert!(Network::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_subscriber_has_one_ipv6_network() {
        assert_eq!(network("1.2.3.4".parse().unwrap()), "1.2.3.4");
        assert_eq!(network("::ffff:1.2.3.4".parse().unwrap()), "1.2.3.4");
        assert_eq!(network("2001:db8:1:2:3:4:5:6".parse().unwrap()), "2001:db8:1:2::");
    }

    mod hostile {
        use proptest::prelude::*;

        use super::*;

        /// Trusted proxies are 10.0.0.x, callers are 1.1.1.x; the rest is what a caller may write.
        fn element() -> impl Strategy<Value = String> {
            prop_oneof![
                (0..4u8).prop_map(|host| format!("10.0.0.{host}")),
                (0..4u8).prop_map(|host| format!("1.1.1.{host}")),
                "[ -~]{0,12}",
            ]
        }

        proptest! {
            /// Whatever a caller writes in front, it is read only as far as trusted proxies wrote.
            #[test]
            fn an_address_is_believed_only_from_a_trusted_hop(
                theirs in proptest::collection::vec(element(), 0..4),
                caller in 0..4u8,
                hops in proptest::collection::vec(0..4u8, 1..4),
            ) {
                let plain = |network: &str, host: u8| format!("{network}.{host}");
                let quoted = |network: &str, host: u8| {
                    format!("by=\"_a\\\",b\";for=\"{network}.{host}:80\";proto=https")
                };
                let peer = format!("10.0.0.{}:9", hops[0]);
                for (trust, name, spell) in [
                    (
                        Trust::x_forwarded_for(["10.0.0.0/8"]),
                        "x-forwarded-for",
                        &plain as &dyn Fn(&str, u8) -> String,
                    ),
                    (Trust::forwarded(["10.0.0.0/8"]), "forwarded", &quoted),
                ] {
                    let mut list = theirs.clone();
                    list.push(spell("1.1.1", caller));
                    list.extend(hops[1..].iter().map(|hop| spell("10.0.0", *hop)));
                    let told = super::caller(&trust.unwrap(), &peer, &[(name, &list.join(", "))]);
                    prop_assert_eq!(told, format!("1.1.1.{caller}"), "{}", name);
                }
            }

            /// No header makes it fail, and an untrusted peer is the caller.
            #[test]
            fn any_header_is_read(line in "[ -~]{0,80}") {
                for trust in [Trust::forwarded(["10.0.0.1"]), Trust::x_forwarded_for(["10.0.0.1"])] {
                    let trust = trust.unwrap();
                    for name in ["forwarded", "x-forwarded-for"] {
                        super::caller(&trust, "10.0.0.1:9", &[(name, &line)]);
                        prop_assert_eq!(super::caller(&trust, "9.9.9.9:9", &[(name, &line)]), "9.9.9.9");
                    }
                }
            }
        }
    }
}
