//! Histories of locks over several processes, and what must hold in every one of them.

#![expect(clippy::expect_used, reason = "what cannot be read fails the test that asked for it")]

use std::collections::{BTreeMap, BTreeSet};

use crate::crew;

/// The schema of the histories' locks.
pub const SCHEMA: &str = "[schema]\nname = \"history\"\nowner = \"tests\"\n[lock.history]\nkey = \"history:{id}\"\nttl = \"10s\"\n";
/// Locks worked on at once.
pub const LANES: usize = 10;
/// Lanes of each process that crowd around one lock for the whole run.
pub const CROWD: usize = 3;
/// How long a lane works on one lock, by the store's time.
pub const EPOCH_US: i64 = 500_000;
/// How long a patient waiter waits: longer than a line of all others, each with a dead waiter before it.
pub const PATIENCE_US: i64 = 60_000_000;
/// Leases are kept in milliseconds, and `TIME` may move on while a script runs.
const TOLERANCE_US: i64 = 10_000;
/// By when a waiter is surely in the queue.
const QUEUED_US: i64 = 1_000_000;
/// How often one contender may come before a waiter that is in the queue.
const OVERTAKES: usize = 2;

crate::events! {
    Ask "ask" { time: i64, wait: i64 }
    Ours "ours" { at: i64, ttl: i64, fence: u64 }
    Held "held" { time: i64 }
    Renewing "renewing" { time: i64, ttl: i64 }
    Renewed "renewed" { at: i64, ttl: i64 }
    Giving "giving" { time: i64 }
    Given "given" { time: i64 }
    Lost "lost" { time: i64 }
    Raised "raised" { time: i64, fence: u64 }
    Error "error" { code: String }
}

/// Everything one process told, lane by lane.
#[derive(Debug, Default, Clone)]
pub struct Log {
    /// Lane, lock and event, in order.
    pub lines: Vec<(usize, String, Event)>,
    /// It was killed: its last words may be missing, and its waits ended with it.
    pub killed: bool,
}

impl crew::Log for Log {
    fn note(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let parsed = (|| {
            let lane = words.next()?.parse().ok()?;
            Some((lane, words.next()?.to_owned(), parse(&mut words)?))
        })();
        self.lines.extend(parsed);
    }

    fn end_by_kill(&mut self) {
        self.killed = true;
    }
}

/// One lease as its holder could know it.
#[derive(Debug, Clone)]
struct Lease {
    contender: (usize, usize),
    from: i64,
    /// When it ends by itself.
    expires: i64,
    /// Until when its holder counts on it: its end, or the moment before it is given back.
    until: i64,
    fence: u64,
    /// The question it answers.
    asked: i64,
    waited: bool,
}

/// What was seen, so that a run in which nothing happened is noticed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Locks that were held at least once.
    pub histories: usize,
    /// Leases.
    pub leases: usize,
    /// Leases that another process waited for.
    pub waited: usize,
    /// Renewals.
    pub renewed: usize,
    /// Leases that ended by themselves.
    pub lost: usize,
    /// Fences set ahead.
    pub raised: usize,
    /// Calls without an answer, by code.
    pub errors: BTreeMap<String, usize>,
    /// The longest wait that ended in the lock, in microseconds.
    pub longest_wait_us: i64,
}

#[derive(Debug, Default)]
struct History {
    leases: Vec<Lease>,
    raised: Vec<(i64, u64)>,
    /// Waits that did not end in the lock: contender, from, until.
    starved: Vec<((usize, usize), i64, i64)>,
}

/// Checks every lock's history; the first thing that must not be, or what was seen.
pub fn check(logs: &[Log]) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut histories: BTreeMap<String, History> = BTreeMap::new();
    for (process, log) in logs.iter().enumerate() {
        let lanes: BTreeSet<usize> = log.lines.iter().map(|(lane, ..)| *lane).collect();
        for lane in lanes {
            let lines = log.lines.iter().filter(|line| line.0 == lane);
            gather((process, lane), lines, &mut histories, &mut tally)?;
        }
    }
    for (lock, history) in &mut histories {
        history.leases.sort_by_key(|lease| lease.from);
        tally.histories += usize::from(!history.leases.is_empty());
        tally.leases += history.leases.len();
        one_holder(lock, &history.leases)?;
        fences_rise(lock, history)?;
        nobody_starves(lock, history, &mut tally)?;
    }
    Ok(tally)
}

/// Turns one lane's lines into leases.
fn gather<'a>(
    contender: (usize, usize),
    lines: impl Iterator<Item = &'a (usize, String, Event)>,
    histories: &mut BTreeMap<String, History>,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut asked = (0, 0);
    for (_, lock, event) in lines {
        let history = histories.entry(lock.clone()).or_default();
        let mine = history.leases.iter_mut().rev().find(|lease| lease.contender == contender);
        match event {
            Event::Ask { time, wait } => asked = (*time, *wait),
            Event::Ours { at, ttl, fence } => history.leases.push(Lease {
                contender,
                from: *at,
                expires: at + ttl,
                until: at + ttl,
                fence: *fence,
                asked: asked.0,
                waited: at - asked.0 > 1_000 && asked.1 > 0,
            }),
            Event::Held { time } if asked.1 == PATIENCE_US => {
                history.starved.push((contender, asked.0, *time));
            }
            // It may run and make the lease shorter, and nobody hear of it.
            Event::Renewing { time, ttl } => {
                let lease = mine.expect("a lease is renewed");
                lease.expires = lease.expires.min(time + ttl);
                lease.until = lease.until.min(lease.expires);
            }
            Event::Renewed { at, ttl } => {
                tally.renewed += 1;
                let lease = mine.expect("a lease was renewed");
                (lease.expires, lease.until) = (at + ttl, at + ttl);
            }
            Event::Giving { time } => {
                let lease = mine.expect("a lease is given back");
                lease.until = lease.until.min(*time);
            }
            Event::Lost { time } => {
                tally.lost += 1;
                let lease = mine.expect("a lease was lost");
                if *time + TOLERANCE_US < lease.expires {
                    return Err(format!(
                        "{lock}: {contender:?} lost a lease at {time} that had not ended: {lease:?}"
                    ));
                }
            }
            Event::Raised { time, fence } => {
                tally.raised += 1;
                history.raised.push((*time, *fence));
            }
            Event::Error { code } => *tally.errors.entry(code.clone()).or_default() += 1,
            Event::Held { .. } | Event::Given { .. } => {}
        }
    }
    Ok(())
}

/// Never two at one moment of the store's time.
fn one_holder(lock: &str, leases: &[Lease]) -> Result<(), String> {
    for pair in leases.windows(2) {
        let [one, two] = pair else { unreachable!() };
        if two.from + TOLERANCE_US < one.until {
            return Err(format!("{lock}: two holders at {}: {one:?} and {two:?}", two.from));
        }
    }
    Ok(())
}

/// Every fence is above all that were handed out before.
fn fences_rise(lock: &str, history: &History) -> Result<(), String> {
    for pair in history.leases.windows(2) {
        let [one, two] = pair else { unreachable!() };
        if two.fence <= one.fence {
            return Err(format!(
                "{lock}: the fence fell from {} to {}: {one:?} and {two:?}",
                one.fence, two.fence
            ));
        }
    }
    for (time, fence) in &history.raised {
        let after = history.leases.iter().filter(|lease| lease.from > *time);
        if let Some(lower) = after.clone().find(|lease| lease.fence <= *fence) {
            return Err(format!("{lock}: the fence fell from {fence} at {time}: {lower:?}"));
        }
    }
    Ok(())
}

/// A patient waiter gets the lock, and nobody who came well after it gets it again and again before.
fn nobody_starves(lock: &str, history: &History, tally: &mut Tally) -> Result<(), String> {
    if let Some((contender, from, until)) = history.starved.first() {
        return Err(format!("{lock}: {contender:?} waited in vain from {from} to {until}"));
    }
    for lease in history.leases.iter().filter(|lease| lease.waited) {
        tally.waited += 1;
        tally.longest_wait_us = tally.longest_wait_us.max(lease.from - lease.asked);
        let mut before: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for other in &history.leases {
            if other.asked > lease.asked + QUEUED_US && other.from < lease.from {
                let times = before.entry(other.contender).or_default();
                *times += 1;
                if *times > OVERTAKES {
                    return Err(format!(
                        "{lock}: starves: {:?} overtook {lease:?} {times} times",
                        other.contender
                    ));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::Log as _;

    fn logs(processes: &[&[&str]]) -> Vec<Log> {
        let read = |lines: &&[&str]| {
            let mut log = Log::default();
            lines.iter().for_each(|line| log.note(&format!("0 a {line}")));
            log
        };
        processes.iter().map(read).collect()
    }

    fn found(processes: &[&[&str]]) -> String {
        check(&logs(processes)).expect_err("it must be found")
    }

    #[test]
    fn leases_one_after_the_other_are_fine() {
        let one: &[&str] =
            &["ask 0 0", "ours 100 50000 1", "renewed 40000 50000", "giving 60000", "given 60100"];
        let two: &[&str] = &["ask 1000 60000000", "ours 60050 50000 2", "lost 200000"];
        let tally = check(&logs(&[one, two])).expect("nothing is wrong");
        assert_eq!((tally.histories, tally.leases, tally.waited, tally.renewed, tally.lost), (1, 2, 1, 1, 1));
    }

    #[test]
    fn two_holders_at_one_moment_are_found() {
        let one: &[&str] = &["ask 0 0", "ours 100 50000 1"];
        assert!(found(&[one, &["ask 0 0", "ours 30000 50000 2"]]).contains("two holders"));
        let renewed: &[&str] = &["ask 0 0", "ours 100 50000 1", "renewed 45000 50000"];
        assert!(found(&[renewed, &["ask 0 0", "ours 60000 50000 2"]]).contains("two holders"));
        let killed: &[&str] = &["ask 0 0", "ours 100 50000 1", "renewing 10000 20000"];
        assert!(
            check(&logs(&[killed, &["ask 0 0", "ours 31000 50000 2"]])).is_ok(),
            "renewed for less, perhaps"
        );
        assert!(found(&[killed, &["ask 0 0", "ours 15000 50000 2"]]).contains("two holders"));
    }

    #[test]
    fn a_fence_that_falls_or_stays_is_found() {
        for fence in [4, 5] {
            let two = format!("ours 60000 50000 {fence}");
            assert!(
                found(&[&["ask 0 0", "ours 100 50000 5"], &["ask 0 0", &two]]).contains("the fence fell")
            );
        }
        let raised: &[&str] = &["ask 0 0", "ours 100 50000 5", "giving 200", "given 300", "raised 400 90"];
        assert!(found(&[raised, &["ask 0 0", "ours 60000 50000 60"]]).contains("the fence fell"));
    }

    #[test]
    fn a_lease_lost_before_its_end_is_found() {
        assert!(found(&[&["ask 0 0", "ours 100 50000 5", "lost 20000"]]).contains("had not ended"));
        let given: &[&str] = &["ask 0 0", "ours 100 50000 5", "giving 19000", "lost 20000"];
        assert!(found(&[given]).contains("had not ended"));
    }

    #[test]
    fn a_waiter_that_starves_is_found() {
        assert!(found(&[&["ask 0 60000000", "held 60000100"]]).contains("in vain"));
        let waiter: &[&str] = &["ask 0 60000000", "ours 9000000 50000 9"];
        let mut other = Vec::new();
        for turn in 1..=4 {
            other.push(format!("ask {}000000 0", turn + 1));
            other.push(format!("ours {}000100 50000 {turn}", turn + 1));
        }
        let other: Vec<&str> = other.iter().map(String::as_str).collect();
        assert!(found(&[waiter, &other]).contains("starves"));
    }
}
