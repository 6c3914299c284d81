//! What was counted and is not yet in the store, and the pieces it is sent in.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The bounds of one script; a larger sum is sent in several.
pub(crate) const PIECE_ENDPOINTS: usize = 64;
pub(crate) const PIECE_BUCKETS: usize = 1000;
pub(crate) const PIECE_SAMPLES: usize = 1000;
pub(crate) const PIECE_OTHERS: usize = 64;

/// How many of an endpoint's newest samples one flush carries.
pub(crate) const SAMPLES: usize = 100;

/// Seconds for which requests are told apart by second.
pub(crate) const SECONDS: usize = 120;

/// One endpoint's share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OfEndpoint {
    pub(crate) count: u64,
    pub(crate) errors: u64,
    pub(crate) sum_us: u64,
    pub(crate) buckets: BTreeMap<u16, u64>,
    /// When (epoch milliseconds) and how long (microseconds).
    pub(crate) samples: Vec<(i64, u64)>,
}

/// Requests of one hour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) hour_ms: i64,
    pub(crate) total: u64,
    pub(crate) accepted: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: BTreeMap<i64, u64>,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) endpoints: BTreeMap<String, OfEndpoint>,
}

/// What an instance adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OfInstance {
    pub(crate) name: String,
    /// Tells one life of the instance from another.
    pub(crate) process: String,
    pub(crate) requests: u64,
    /// Open connections and the most there were; `None` when not told.
    pub(crate) connections: Option<(u64, u64)>,
}

/// One endpoint as a script takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) count: u64,
    pub(crate) errors: u64,
    pub(crate) sum_us: u64,
    pub(crate) buckets: String,
    pub(crate) samples: String,
}

/// What one script adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) hour_ms: i64,
    pub(crate) total: u64,
    pub(crate) accepted: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: String,
    pub(crate) instances: Vec<OfInstance>,
    pub(crate) statuses: Vec<(u16, u64)>,
    pub(crate) endpoints: Vec<Entry>,
}

impl OfEndpoint {
    pub(crate) fn merge(&mut self, other: OfEndpoint) {
        self.count += other.count;
        self.errors += other.errors;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        for (bucket, count) in other.buckets {
            *self.buckets.entry(bucket).or_default() += count;
        }
        self.samples.extend(other.samples);
    }
}

impl Sum {
    /// Adds what another thread counted.
    pub(crate) fn merge(&mut self, other: Sum) {
        self.hour_ms = self.hour_ms.max(other.hour_ms);
        self.total += other.total;
        self.accepted += other.accepted;
        self.errors += other.errors;
        for (second, count) in other.seconds {
            *self.seconds.entry(second).or_default() += count;
        }
        while self.seconds.len() > SECONDS {
            self.seconds.pop_first();
        }
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (name, share) in other.endpoints {
            let held = self.endpoints.entry(name).or_default();
            held.merge(share);
            newest(&mut held.samples);
        }
    }

    /// Counts one request that came one by one; `None` for an endpoint that is not told apart.
    pub(crate) fn count(&mut self, name: String, status: u16, us: u64, accepted: bool, at_us: i64) {
        let error = status >= 400;
        self.total += 1;
        self.accepted += u64::from(accepted);
        self.errors += u64::from(error);
        *self.seconds.entry(at_us.div_euclid(1_000_000)).or_default() += 1;
        if error {
            *self.statuses.entry(status).or_default() += 1;
        }
        let share = self.endpoints.entry(name).or_default();
        share.count += 1;
        share.errors += u64::from(error);
        share.sum_us = share.sum_us.saturating_add(us);
        *share.buckets.entry(super::sketch::bucket(us)).or_default() += 1;
        share.samples.push((at_us.div_euclid(1000), us));
        if share.samples.len() >= 2 * SAMPLES {
            newest(&mut share.samples);
        }
    }

    /// Cuts the sum into pieces that a script can take; `unique` begins each sample's suffix.
    pub(crate) fn cut(self, instances: Vec<OfInstance>, unique: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut first = Piece {
            hour_ms: self.hour_ms,
            total: self.total,
            accepted: self.accepted,
            errors: self.errors,
            ..Piece::default()
        };
        for (second, count) in &self.seconds {
            let _ = write!(first.seconds, "{second}:{count} ");
        }
        pieces.push(first);
        let next = |pieces: &mut Vec<Piece>, at: usize| {
            while pieces.len() <= at {
                pieces.push(Piece { hour_ms: self.hour_ms, ..Piece::default() });
            }
        };
        for (at, some) in instances.chunks(PIECE_OTHERS).enumerate() {
            next(&mut pieces, at);
            pieces[at].instances = some.to_vec();
        }
        let statuses: Vec<(u16, u64)> = self.statuses.into_iter().collect();
        for (at, some) in statuses.chunks(PIECE_OTHERS).enumerate() {
            next(&mut pieces, at);
            pieces[at].statuses = some.to_vec();
        }
        let (mut at, mut buckets, mut samples, mut number) = (0, 0, 0, 0_u64);
        for (name, mut share) in self.endpoints {
            newest(&mut share.samples);
            let mut rest: Vec<(u16, u64)> = share.buckets.into_iter().collect();
            let mut entry = Entry {
                name,
                count: share.count,
                errors: share.errors,
                sum_us: share.sum_us,
                buckets: String::new(),
                samples: String::new(),
            };
            for (ms, us) in &share.samples {
                let _ = write!(entry.samples, "{ms} {}.{:03}#{unique}-{number:x} ", us / 1000, us % 1000);
                number += 1;
            }
            loop {
                let full =
                    pieces.get(at).is_some_and(|piece: &Piece| piece.endpoints.len() >= PIECE_ENDPOINTS);
                let whole = rest.len() <= PIECE_BUCKETS - buckets || buckets == 0;
                if full || !whole || samples + share.samples.len() > PIECE_SAMPLES {
                    (at, buckets, samples) = (at + 1, 0, 0);
                }
                next(&mut pieces, at);
                let later = rest.split_off(rest.len().min(PIECE_BUCKETS - buckets));
                buckets += rest.len();
                samples += share.samples.len();
                for (bucket, count) in &rest {
                    let _ = write!(entry.buckets, "{bucket}:{count} ");
                }
                let name = entry.name.clone();
                pieces[at].endpoints.push(entry);
                if later.is_empty() {
                    break;
                }
                rest = later;
                share.samples.clear();
                entry = Entry {
                    name,
                    count: 0,
                    errors: 0,
                    sum_us: 0,
                    buckets: String::new(),
                    samples: String::new(),
                };
            }
        }
        // A piece that only carries on still says whose it is.
        if let Some(owner) = instances.first() {
            for piece in pieces.iter_mut().filter(|piece| piece.instances.is_empty()) {
                piece.instances.push(OfInstance { requests: 0, connections: None, ..owner.clone() });
            }
        }
        pieces
    }
}

/// Keeps the newest samples of one flush.
fn newest(samples: &mut Vec<(i64, u64)>) {
    samples.sort_unstable_by_key(|(ms, _)| *ms);
    let over = samples.len().saturating_sub(SAMPLES);
    samples.drain(..over);
}
