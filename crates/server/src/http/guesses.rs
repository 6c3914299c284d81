//! Who tries tokens: failed ones are counted by address, logged, and answered ever later. A valid token is never looked
//! up here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Addresses remembered at once. Another one takes the place of the one that was quiet for longest.
const ADDRESSES: usize = 1024;
/// An address that was quiet for so long begins anew.
const FORGET: Duration = Duration::from_secs(600);
/// So many failures of an address are answered at once: somebody types a token, a deployment has the old one.
const FREE: u32 = 5;
/// The first wait; each further one is twice as long.
const FIRST: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST: Duration = Duration::from_secs(5);
/// So many log lines a minute, whatever number of addresses there is.
const LINES: u32 = 30;
const MINUTE: Duration = Duration::from_secs(60);

/// Failed tokens by address.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    table: Mutex<Table>,
    pub(crate) failed: AtomicU64,
    pub(crate) slowed: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    by_address: HashMap<Option<IpAddr>, Failures>,
    lines: Lines,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

/// Log lines of the current minute.
#[derive(Debug, Default)]
struct Lines {
    began: Option<Instant>,
    written: u32,
}

/// What a failed token costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Verdict {
    count: u32,
    wait: Duration,
    /// Whether a line is written for it.
    told: bool,
}

impl Guesses {
    /// Notes that somebody came with a token that is none of ours; how long the answer is held back.
    pub(crate) fn failed(&self, address: Option<IpAddr>) -> Duration {
        self.failed.fetch_add(1, Relaxed);
        let Verdict { count, wait, told } = self.table.lock().failed(block(address), Instant::now());
        if told {
            let from = address.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
            let held_back_ms = wait.as_millis() as u64;
            tracing::warn!(address = from, failures = count, held_back_ms, "a token that is none of ours");
        }
        if !wait.is_zero() {
            self.slowed.fetch_add(1, Relaxed);
        }
        wait
    }
}

/// What is told from each other: an address, of IPv6 the 64 bits that one subscriber has.
fn block(address: Option<IpAddr>) -> Option<IpAddr> {
    match address?.to_canonical() {
        IpAddr::V6(v6) => Some(IpAddr::V6((u128::from(v6) >> 64 << 64).into())),
        v4 @ IpAddr::V4(_) => Some(v4),
    }
}

impl Table {
    fn failed(&mut self, address: Option<IpAddr>, now: Instant) -> Verdict {
        let quiet = |failures: &Failures| now.saturating_duration_since(failures.last);
        let before = self.by_address.get(&address).filter(|known| quiet(known) < FORGET);
        let count = before.map_or(0, |known| known.count).saturating_add(1);
        if !self.by_address.contains_key(&address) && self.by_address.len() >= ADDRESSES {
            let longest =
                self.by_address.iter().max_by_key(|(_, known)| quiet(known)).map(|(known, _)| *known);
            longest.map(|quietest| self.by_address.remove(&quietest));
        }
        self.by_address.insert(address, Failures { count, last: now });
        let told = count.is_power_of_two() && self.lines.take(now);
        Verdict { count, wait: wait(count), told }
    }
}

impl Lines {
    fn take(&mut self, now: Instant) -> bool {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= MINUTE) {
            *self = Self { began: Some(now), written: 0 };
        }
        self.written = self.written.saturating_add(1);
        self.written <= LINES
    }
}

fn wait(count: u32) -> Duration {
    match count.checked_sub(FREE + 1) {
        None => Duration::ZERO,
        Some(doublings) => FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    #[test]
    fn an_address_waits_longer_with_every_failure_and_begins_anew_when_it_was_quiet() {
        let (mut table, now) = (Table::default(), Instant::now());
        let waits: Vec<u128> = (0..13).map(|_| table.failed(Some(v4(1)), now).wait.as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(table.failed(Some(v4(2)), now).wait, Duration::ZERO, "another address");
        let almost = now + (FORGET / 1000 * 999);
        assert_eq!(table.failed(Some(v4(1)), almost).wait, LONGEST);
        assert_eq!(table.failed(Some(v4(1)), almost + FORGET).count, 1);
    }

    #[test]
    fn the_table_has_a_bound_and_gives_the_place_of_the_quietest_away() {
        let (mut table, now) = (Table::default(), Instant::now());
        for number in 0..5000 {
            table.failed(Some(v4(number)), now + Duration::from_millis(number.into()));
            table.failed(Some(v4(0)), now + Duration::from_millis(number.into()));
        }
        assert_eq!(table.by_address.len(), ADDRESSES);
        let now = now + Duration::from_secs(5);
        assert_eq!(table.failed(Some(v4(4999)), now).count, 2, "a young one is still known");
        assert_eq!(table.failed(Some(v4(1)), now).count, 1, "an old one is not");
        assert_eq!(
            table.failed(Some(v4(0)), now).count,
            5002,
            "one that goes on is known however many others come"
        );
    }

    #[test]
    fn lines_of_the_log_have_a_bound_and_come_at_powers_of_two() {
        let (mut table, now) = (Table::default(), Instant::now());
        let mut told = |number, now| table.failed(Some(v4(number)), now).told;
        let first: Vec<bool> = (0..9).map(|_| told(0, now)).collect();
        assert_eq!(first, [true, true, false, true, false, false, false, true, false]);
        let lines = (1..1000).filter(|number| told(*number, now)).count();
        assert_eq!(lines, LINES as usize - 4);
        assert!(told(1001, now + MINUTE));
    }

    #[test]
    fn a_subscriber_of_ipv6_is_one_address() {
        let of = |low: u16| Some(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 7, low, 0, 0, low)));
        assert_eq!(block(of(1)), block(of(2)));
        assert_ne!(block(of(1)), block(Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 8, 1, 0, 0, 1).into())));
        let mapped = Ipv4Addr::new(10, 0, 0, 1);
        assert_eq!(block(Some(mapped.to_ipv6_mapped().into())), Some(mapped.into()));
    }
}
