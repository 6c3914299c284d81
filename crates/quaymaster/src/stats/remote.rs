//! Callers that are not counted.

use std::net::IpAddr;

/// Addresses, networks (`10.0.0.0/8`) and names that are not counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ignored {
    networks: Vec<(IpAddr, u32)>,
    names: Vec<String>,
}

impl Ignored {
    pub(crate) fn new(list: &[String]) -> Self {
        let mut ignored = Self::default();
        for text in list {
            match network(text) {
                Some(network) => ignored.networks.push(network),
                None => ignored.names.push(text.clone()),
            }
        }
        ignored
    }

    /// Whether an address is among them; an IPv4 address in IPv6 spelling is the IPv4 address.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|(network, bits)| match (network, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32 - bits),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128 - bits),
            _ => false,
        })
    }

    /// The same of a caller as it is written.
    pub(crate) fn has_text(&self, remote: &str) -> bool {
        let bare = remote.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>().or_else(|_| remote.parse::<std::net::SocketAddr>().map(|at| at.ip())) {
            Ok(address) => self.has(address),
            Err(_) => self.names.iter().any(|name| name == remote),
        }
    }
}

fn same(a: u128, b: u128, free_bits: u32) -> bool {
    a.checked_shr(free_bits).unwrap_or(0) == b.checked_shr(free_bits).unwrap_or(0)
}

fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address = address.parse::<IpAddr>().ok()?.to_canonical();
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok().filter(|bits| *bits <= most))?;
    Some((address, bits))
}
