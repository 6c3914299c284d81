//! What one thread, or a few, counted since the last flush.

use std::collections::{HashMap, HashSet};

use parking_lot::{Mutex, RwLock};

use super::super::endpoint::{self, METHODS, OVERFLOW, UNMATCHED};
use super::super::sketch;
use super::super::sum::{OfEndpoint, SECONDS, Sum};
use super::Seen;

/// The newest samples that one shard keeps of an endpoint between two flushes.
const SAMPLES: usize = 32;

/// Hours kept apart while the store is away; older ones are added together.
const HOURS: usize = 25;

/// Spellings of routes that are remembered for each endpoint there is.
const ROUTES_PER_NAME: usize = 4;

/// A route that no request of this method has matched yet.
const UNSEEN: u32 = u32::MAX;

/// Which endpoints this process tells apart: at most as many as the store does.
#[derive(Debug)]
pub(super) struct Admission {
    most: usize,
    names: HashSet<String>,
}

impl Admission {
    pub(super) fn new(most: usize) -> Self {
        Self { most, names: HashSet::new() }
    }
}

/// Whether an endpoint is told apart, now that it is met.
fn admit(admission: &RwLock<Admission>, name: &str) -> bool {
    {
        let known = admission.read();
        if known.names.contains(name) {
            return true;
        }
        // Where there is no room, scanners of paths meet here: they must not wait for each other.
        if known.names.len() >= known.most {
            return false;
        }
    }
    let mut known = admission.write();
    if known.names.len() >= known.most {
        return known.names.contains(name);
    }
    known.names.insert(name.to_owned());
    true
}

/// On a line of its own, so that threads do not wait for each other's memory.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Shard {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    hour: i64,
    total: u64,
    accepted: u64,
    errors: u64,
    /// Requests by second, the newest last.
    seconds: Vec<(i64, u64)>,
    /// Errors by status.
    statuses: Vec<(u16, u64)>,
    /// By route as it is given, the endpoint of each method.
    routes: HashMap<Box<str>, [u32; METHODS.len()]>,
    endpoints: Vec<Counted>,
    by_name: HashMap<String, u32>,
    unmatched: Option<u32>,
    /// Sums of hours that have ended.
    ended: Vec<Sum>,
}

/// An endpoint's counters. Blocks of buckets are made when a time first falls into them and kept.
#[derive(Debug)]
struct Counted {
    name: String,
    count: u64,
    errors: u64,
    sum_us: u64,
    octaves: [Option<Box<[u64; 64]>>; sketch::BUCKETS / 64],
    samples: Vec<(i64, u64)>,
    next_sample: usize,
}

impl Counted {
    fn new(name: String) -> Self {
        Self {
            name,
            count: 0,
            errors: 0,
            sum_us: 0,
            octaves: [const { None }; sketch::BUCKETS / 64],
            samples: Vec::with_capacity(SAMPLES),
            next_sample: 0,
        }
    }

    #[inline]
    fn add(&mut self, us: u64, error: bool, at_ms: i64) {
        self.count += 1;
        self.errors += u64::from(error);
        self.sum_us = self.sum_us.saturating_add(us);
        let bucket = usize::from(sketch::bucket(us));
        let octave = self.octaves[bucket / 64].get_or_insert_with(|| Box::new([0; 64]));
        octave[bucket % 64] += 1;
        if self.samples.len() < SAMPLES {
            self.samples.push((at_ms, us));
        } else {
            self.samples[self.next_sample] = (at_ms, us);
            self.next_sample = (self.next_sample + 1) % SAMPLES;
        }
    }

    fn take(&mut self) -> OfEndpoint {
        let mut taken = OfEndpoint {
            count: std::mem::take(&mut self.count),
            errors: std::mem::take(&mut self.errors),
            sum_us: std::mem::take(&mut self.sum_us),
            samples: self.samples.clone(),
            ..OfEndpoint::default()
        };
        self.samples.clear();
        self.next_sample = 0;
        for (octave, block) in self.octaves.iter_mut().enumerate() {
            let Some(block) = block else { continue };
            for (within, count) in block.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
                taken.buckets.insert((octave * 64 + within) as u16, std::mem::take(count));
            }
        }
        taken
    }
}

impl Shard {
    /// Counts one request.
    #[inline]
    pub(super) fn count(
        &self,
        seen: &Seen<'_>,
        us: u64,
        now_us: i64,
        fold: bool,
        admission: &RwLock<Admission>,
    ) {
        let method = endpoint::method_index(seen.method);
        let (second, at_ms) = (now_us.div_euclid(1_000_000), now_us.div_euclid(1000));
        let hour = second.div_euclid(3600);
        let error = seen.status >= 400;
        let mut held = self.held.lock();
        let held = &mut *held;
        if held.hour != hour {
            held.end_hour(hour);
        }
        let at = held.find(method, seen.route, fold, admission);
        held.total += 1;
        held.accepted += u64::from(seen.accepted);
        match held.seconds.last_mut() {
            Some((last, count)) if *last == second => *count += 1,
            _ => held.other_second(second),
        }
        if error {
            held.errors += 1;
            match held.statuses.iter_mut().find(|(status, _)| *status == seen.status) {
                Some((_, count)) => *count += 1,
                None => held.statuses.push((seen.status, 1)),
            }
        }
        if let Some(counted) = held.endpoints.get_mut(at as usize) {
            counted.add(us, error, at_ms);
        }
    }

    /// Takes what was counted, a sum per hour.
    pub(super) fn take(&self) -> Vec<Sum> {
        let mut held = self.held.lock();
        let mut sums = std::mem::take(&mut held.ended);
        if held.total > 0 {
            sums.push(held.take());
        }
        sums
    }

    /// How many names it keeps.
    #[cfg(test)]
    pub(super) fn told_apart(&self) -> usize {
        let held = self.held.lock();
        held.routes.len().max(held.endpoints.len())
    }

    /// How many requests it holds.
    pub(super) fn waiting(&self) -> u64 {
        let held = self.held.lock();
        held.total + held.ended.iter().map(|sum| sum.total).sum::<u64>()
    }
}

impl Held {
    /// The endpoint of a route, told apart if it may be.
    #[inline]
    fn find(&mut self, method: usize, route: Option<&str>, fold: bool, admission: &RwLock<Admission>) -> u32 {
        let Some(route) = route else {
            return match self.unmatched {
                Some(at) => at,
                None => {
                    let at = self.place(UNMATCHED.to_owned());
                    self.unmatched = Some(at);
                    at
                }
            };
        };
        // Plain paths are as many as there are ids: remembering them would only fill the table.
        if !fold
            && let Some(methods) = self.routes.get(route)
            && methods[method] != UNSEEN
        {
            return methods[method];
        }
        self.meet(method, route, fold, admission)
    }

    /// A route that this shard has not met under this method.
    #[cold]
    fn meet(&mut self, method: usize, route: &str, fold: bool, admission: &RwLock<Admission>) -> u32 {
        let name = endpoint::name(method, route, fold);
        let counts_itself = name == UNMATCHED || name == OVERFLOW;
        if !counts_itself && !self.by_name.contains_key(&name) && !admit(admission, &name) {
            return self.place(OVERFLOW.to_owned());
        }
        let at = self.place(name);
        // Many spellings have one name, `/a?b=1` and `/a?b=2`: the table is for templates, which are few.
        if !fold && !counts_itself && self.routes.len() < ROUTES_PER_NAME * self.by_name.len() {
            let methods = self.routes.entry(route.into()).or_insert([UNSEEN; METHODS.len()]);
            methods[method] = at;
        }
        at
    }

    fn place(&mut self, name: String) -> u32 {
        if let Some(at) = self.by_name.get(&name) {
            return *at;
        }
        let at = u32::try_from(self.endpoints.len()).unwrap_or(0);
        self.endpoints.push(Counted::new(name.clone()));
        self.by_name.insert(name, at);
        at
    }

    /// A second that is not the last one: the next, or, by a thread that came late, an earlier one.
    #[cold]
    fn other_second(&mut self, second: i64) {
        match self.seconds.iter_mut().find(|(at, _)| *at == second) {
            Some((_, count)) => *count += 1,
            None => {
                self.seconds.push((second, 1));
                self.seconds.sort_unstable_by_key(|(at, _)| *at);
                let over = self.seconds.len().saturating_sub(SECONDS);
                self.seconds.drain(..over);
            }
        }
    }

    #[cold]
    fn end_hour(&mut self, hour: i64) {
        if self.total > 0 {
            let sum = self.take();
            // Threads that take turns while the hour ends come back to one that has ended.
            match self.ended.iter_mut().find(|held| held.hour_ms == sum.hour_ms) {
                Some(held) => held.merge(sum),
                None => self.ended.push(sum),
            }
            if self.ended.len() > HOURS {
                // The oldest is a day old: no hour is kept for it any more, and its requests still count.
                let oldest = self.ended.remove(0);
                let hour_ms = oldest.hour_ms;
                self.ended[0].merge(oldest);
                self.ended[0].hour_ms = hour_ms;
            }
        }
        self.hour = hour;
    }

    fn take(&mut self) -> Sum {
        let mut sum = Sum {
            hour_ms: self.hour * 3_600_000,
            total: std::mem::take(&mut self.total),
            accepted: std::mem::take(&mut self.accepted),
            errors: std::mem::take(&mut self.errors),
            seconds: self.seconds.drain(..).collect(),
            statuses: self.statuses.drain(..).collect(),
            ..Sum::default()
        };
        for counted in self.endpoints.iter_mut().filter(|counted| counted.count > 0) {
            sum.endpoints.insert(counted.name.clone(), counted.take());
        }
        sum
    }
}
