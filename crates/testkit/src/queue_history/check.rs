//! The plain model: what must hold between what the workers were told and what the store held.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::ledger::{Call, Delivery, Ledger, Push, Settled, Told};
use super::log::Log;
use super::observer::{Snapshot, Where};
use super::{ATTEMPTS, TOLERANCE_US};

/// What was seen, so that a run in which nothing happened is noticed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Jobs that were accepted, or seen although nobody was told.
    pub jobs: usize,
    /// Looks at a queue.
    pub snapshots: usize,
    /// Deliveries.
    pub deliveries: usize,
    /// Deliveries of jobs that somebody had before.
    pub again: usize,
    /// Jobs whose ack was told.
    pub acked: usize,
    /// Acks, nacks and extensions that were told "lost".
    pub lost: usize,
    /// Leases made longer.
    pub extended: usize,
    /// Jobs given back as if they had not been claimed.
    pub given_back: usize,
    /// Nacks that were told to come again.
    pub retried: usize,
    /// Jobs in the dead-letter lists.
    pub dead: usize,
    /// Jobs moved out of a full queue.
    pub overflow: usize,
    /// Pushes with a delay.
    pub delayed: usize,
    /// Pushes refused because the queue was full.
    pub refused: usize,
    /// Ids that more than one had pushed.
    pub shared_ids: usize,
    /// Jobs pushed by an ack.
    pub then: usize,
    /// Calls of any kind that may have run.
    pub unknown: usize,
    /// Calls without an answer, by code.
    pub errors: BTreeMap<String, usize>,
}

/// One job's life.
#[derive(Default)]
struct Life<'a> {
    push: Option<&'a Push>,
    deliveries: Vec<&'a Delivery>,
    /// Where it was seen last.
    at_last: Option<&'a Where>,
    /// When it was first seen dead or moved out; later looks may leave it out.
    settled: Option<i64>,
    seen: bool,
}

/// Checks every job's life; the first thing that must not be, or what was seen. The last snapshot of each queue was
/// taken when everything had been drained, and leaves nothing out.
pub fn check(logs: &[Log], snapshots: &[Snapshot]) -> Result<Tally, String> {
    let ledger = Ledger::read(logs)?;
    let mut lives: HashMap<(&str, &str), Life<'_>> = HashMap::new();
    for push in &ledger.pushes {
        for job in &push.jobs {
            lives.entry((&push.queue, job)).or_default().push = Some(push);
        }
    }
    for delivery in &ledger.deliveries {
        let life = lives.entry((&delivery.queue, &delivery.job)).or_default();
        life.deliveries.push(delivery);
        life.seen = true;
    }
    let mut by_queue: BTreeMap<&str, Vec<&Snapshot>> = BTreeMap::new();
    for snapshot in snapshots {
        by_queue.entry(&snapshot.queue).or_default().push(snapshot);
        for (job, place) in &snapshot.jobs {
            let life = lives.entry((&snapshot.queue, job)).or_default();
            life.seen = true;
            if matches!(place, Where::Dead(_) | Where::Overflow) {
                life.settled = Some(life.settled.map_or(snapshot.time, |first| first.min(snapshot.time)));
            }
        }
    }
    for (queue, looks) in &mut by_queue {
        looks.sort_by_key(|look| look.time);
        let last = looks.last().ok_or("nobody looked")?;
        if last.live() > 0 {
            return Err(format!("{queue}: {} jobs never came back: {:?}", last.live(), last.jobs));
        }
        for (job, place) in &last.jobs {
            lives.entry((queue, job)).or_default().at_last = Some(place);
        }
    }
    let mut tally = Tally { snapshots: snapshots.len(), errors: ledger.errors.clone(), ..Tally::default() };
    for ((queue, job), life) in &mut lives {
        life.deliveries.sort_by_key(|delivery| (delivery.attempt, delivery.to));
        let looks = by_queue.get(queue).map(Vec::as_slice).unwrap_or_default();
        life.check(job, looks).map_err(|wrong| format!("{queue} {job}: {wrong}"))?;
        life.count(&mut tally);
    }
    ids_are_pushed_once(&ledger, &lives, &mut tally)?;
    bulks_are_whole(&ledger, &lives)?;
    acks_and_what_follows_are_one(&ledger, &lives)?;
    Ok(tally)
}

impl Life<'_> {
    fn check(&self, job: &str, looks: &[&Snapshot]) -> Result<(), String> {
        let Some(push) = self.push else { return Err("nobody pushed it".to_owned()) };
        if self.seen && matches!(push.told, Told::No(_)) {
            return Err(format!("refused, and there: {push:?}"));
        }
        self.is_never_lost(job, push, looks)?;
        self.deliveries_follow_each_other(push)?;
        self.leases_are_told_the_truth()?;
        self.ends_once(job, looks)?;
        self.dies_with_its_reason()
    }

    /// From its acceptance to the first ack that may have run, every look finds it.
    fn is_never_lost(&self, job: &str, push: &Push, looks: &[&Snapshot]) -> Result<(), String> {
        let Told::Yes(accepted) = push.told else { return Ok(()) };
        let acks = self.deliveries.iter().filter_map(|delivery| match &delivery.settled {
            Some(Settled::Ack(call)) if !matches!(call.told, Told::No(_)) => Some(call.sent),
            _ => None,
        });
        let until = acks.min().unwrap_or(i64::MAX);
        let first = looks.partition_point(|look| look.time <= accepted);
        for look in looks[first..].iter().take_while(|look| look.time < until) {
            if !look.jobs.contains_key(job) && self.settled.is_none_or(|settled| settled > look.time) {
                return Err(format!(
                    "lost: accepted at {accepted}, not there at {}: {:?}",
                    look.time, self.deliveries
                ));
            }
        }
        Ok(())
    }

    fn deliveries_follow_each_other(&self, push: &Push) -> Result<(), String> {
        for (at, one) in self.deliveries.iter().enumerate() {
            if one.attempt < 1 || one.attempt > ATTEMPTS {
                return Err(format!("attempt {} of {ATTEMPTS}: {one:?}", one.attempt));
            }
            if one.to + TOLERANCE_US < push.sent + push.delay {
                return Err(format!("delivered before it was due: {push:?} {one:?}"));
            }
            for two in &self.deliveries[at + 1..] {
                if one.attempt == two.attempt && !one.given_back() {
                    return Err(format!("two deliveries count as one attempt: {one:?} and {two:?}"));
                }
                if two.to < one.from {
                    return Err(format!("attempts run backwards: {one:?} and {two:?}"));
                }
                if two.from > one.to && two.to + TOLERANCE_US < one.lives_until() {
                    return Err(format!("delivered while another one's lease lives: {one:?} and {two:?}"));
                }
                if let Some(Settled::Nack { call, wait: Some(wait), .. }) = &one.settled
                    && two.to + TOLERANCE_US < call.sent + wait
                {
                    return Err(format!("a retry came too early: {one:?} and {two:?}"));
                }
            }
        }
        Ok(())
    }

    /// Who holds a live lease is not told that it is lost; who holds one that another has taken over changes nothing.
    fn leases_are_told_the_truth(&self) -> Result<(), String> {
        for one in &self.deliveries {
            let extends = one.extends.iter().map(|(call, _)| call);
            let later = |two: &&&Delivery| (two.attempt, two.to) > (one.attempt, one.to);
            let next = self.deliveries.iter().find(later);
            let alive = one.leased_until();
            for call in one.call().into_iter().chain(extends) {
                match call {
                    Call { told: Told::No(at), .. } if at + TOLERANCE_US < alive && !one.given_back() => {
                        return Err(format!("told that it is lost while it lives: {one:?}"));
                    }
                    Call { told: Told::Yes(_), sent } => {
                        if *sent > one.leased_at_most() + TOLERANCE_US {
                            return Err(format!("a lease was honoured that had ended: {one:?}"));
                        }
                        if let Some(two) = next.filter(|two| two.to < *sent) {
                            return Err(format!("a stale lease was honoured: {one:?} after {two:?}"));
                        }
                    }
                    Call { .. } => {}
                }
            }
        }
        Ok(())
    }

    /// Acked or dead once, and nothing afterwards.
    fn ends_once(&self, job: &str, looks: &[&Snapshot]) -> Result<(), String> {
        let acked: Vec<i64> = self.deliveries.iter().filter_map(|delivery| delivery.acked()).collect();
        if acked.len() > 1 {
            return Err(format!("acked twice: {:?}", self.deliveries));
        }
        let dead = self.deliveries.iter().find_map(|delivery| delivery.dead());
        if let (Some(acked), Some(dead)) = (acked.first(), dead) {
            return Err(format!("acked at {acked} and dead at {dead}: {:?}", self.deliveries));
        }
        if let Some(ended) = acked.first().copied().or(dead)
            && let Some(late) = self.deliveries.iter().find(|delivery| delivery.from > ended)
        {
            return Err(format!("delivered after it had ended at {ended}: {late:?}"));
        }
        if let Some(acked) = acked.first() {
            let first = looks.partition_point(|look| look.time <= *acked);
            if let Some(look) = looks[first..].iter().find(|look| look.jobs.contains_key(job)) {
                return Err(format!("acked at {acked}, and {:?} at {}", look.jobs.get(job), look.time));
            }
        }
        Ok(())
    }

    fn dies_with_its_reason(&self) -> Result<(), String> {
        let Some(Where::Dead(dead)) = self.at_last else { return Ok(()) };
        if dead.attempts != ATTEMPTS {
            return Err(format!("died after {} attempts of {ATTEMPTS}", dead.attempts));
        }
        match self.deliveries.iter().find(|delivery| delivery.dead().is_some()).map(|last| &last.settled) {
            Some(Some(Settled::Nack { error, .. })) if *error != dead.error => {
                Err(format!("died of {error}, and its letter says {}", dead.error))
            }
            _ => Ok(()),
        }
    }

    fn count(&self, tally: &mut Tally) {
        let Some(push) = self.push else { return };
        let accepted = matches!(push.told, Told::Yes(_)) || self.seen;
        tally.jobs += usize::from(accepted);
        tally.deliveries += self.deliveries.len();
        tally.again += self.deliveries.len().saturating_sub(1);
        tally.delayed += usize::from(push.delay > 0 && accepted);
        tally.refused +=
            usize::from(push.id.is_none() && push.by.is_none() && matches!(push.told, Told::No(_)));
        tally.then += usize::from(push.by.is_some() && accepted);
        tally.unknown += usize::from(push.told == Told::Unknown);
        tally.dead += usize::from(matches!(self.at_last, Some(Where::Dead(_))));
        tally.overflow += usize::from(matches!(self.at_last, Some(Where::Overflow)));
        for delivery in &self.deliveries {
            tally.acked += usize::from(delivery.acked().is_some());
            let extends = delivery.extends.iter().map(|(call, _)| call);
            tally.extended += extends.clone().filter(|call| matches!(call.told, Told::Yes(_))).count();
            for call in extends.chain(delivery.call()) {
                tally.lost += usize::from(matches!(call.told, Told::No(_)));
                tally.unknown += usize::from(call.told == Told::Unknown);
            }
            tally.given_back += usize::from(
                delivery.given_back()
                    && delivery.call().is_some_and(|call| matches!(call.told, Told::Yes(_))),
            );
            tally.retried +=
                usize::from(matches!(delivery.settled, Some(Settled::Nack { wait: Some(_), .. })));
        }
    }
}

/// Of all who push under one id, one gets in.
fn ids_are_pushed_once(
    ledger: &Ledger,
    lives: &HashMap<(&str, &str), Life<'_>>,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut ids: BTreeMap<(&str, &str), Vec<&Push>> = BTreeMap::new();
    for push in &ledger.pushes {
        if let Some(id) = &push.id {
            ids.entry((&push.queue, id)).or_default().push(push);
        }
    }
    for ((queue, id), pushes) in ids {
        tally.shared_ids += usize::from(pushes.len() > 1);
        let there = |push: &&&Push| {
            let seen = lives.get(&(queue, push.jobs[0].as_str())).is_some_and(|life| life.seen);
            matches!(push.told, Told::Yes(_)) || seen
        };
        let inside: Vec<_> = pushes.iter().filter(there).collect();
        if inside.len() > 1 {
            return Err(format!("{queue}: two were pushed under the id {id}: {inside:?}"));
        }
        let refused = pushes.iter().all(|push| matches!(push.told, Told::No(_)));
        // A bounded queue may have had no room for any of them.
        if refused && inside.is_empty() && !matches!(queue, "small" | "spill") {
            return Err(format!("{queue}: the id {id} was refused to everybody: {pushes:?}"));
        }
    }
    Ok(())
}

/// All of a bulk or none of it, also when its pusher never heard.
fn bulks_are_whole(ledger: &Ledger, lives: &HashMap<(&str, &str), Life<'_>>) -> Result<(), String> {
    for push in &ledger.pushes {
        let seen =
            |job: &&String| lives.get(&(push.queue.as_str(), job.as_str())).is_some_and(|life| life.seen);
        let there = push.jobs.iter().filter(seen).count();
        if there != 0 && there != push.jobs.len() {
            return Err(format!("{there} of a bulk are there: {push:?}"));
        }
    }
    Ok(())
}

/// What an ack pushes is there exactly when the ack happened.
fn acks_and_what_follows_are_one(
    ledger: &Ledger,
    lives: &HashMap<(&str, &str), Life<'_>>,
) -> Result<(), String> {
    let by_lease: HashMap<&str, &Delivery> =
        ledger.deliveries.iter().map(|delivery| (delivery.lease.as_str(), delivery)).collect();
    let mut done = HashSet::new();
    for push in ledger.pushes.iter().filter(|push| push.by.is_some()) {
        let followed =
            push.jobs.iter().any(|job| lives.get(&("after", job.as_str())).is_some_and(|life| life.seen));
        for lease in push.by.iter().flat_map(|leases| leases.split(',')) {
            let delivery = by_lease.get(lease).ok_or_else(|| format!("nobody was given {lease}"))?;
            let cause = (delivery.queue.as_str(), delivery.job.as_str());
            let ended = lives.get(&cause).is_some_and(|life| life.at_last.is_none());
            if followed && !done.insert(cause) {
                return Err(format!("{cause:?} was acked twice: two followed from it, {push:?}"));
            }
            if followed && !ended {
                return Err(format!(
                    "{cause:?} is still there, and what follows from its ack is too: {push:?}"
                ));
            }
        }
        if !followed && matches!(push.told, Told::Yes(_)) {
            return Err(format!("an ack happened without what follows from it: {push:?}"));
        }
    }
    Ok(())
}
