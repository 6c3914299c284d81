//! The lines of all processes, put together job by job.

use std::collections::BTreeMap;

use super::log::{Event, Log};

/// What a call was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing: it may have run.
    Unknown,
    /// Yes, at this moment.
    Yes(i64),
    /// No, at this moment.
    No(i64),
}

/// One push, or one `then` of an ack.
#[derive(Debug, Clone)]
pub(super) struct Push {
    pub(super) queue: String,
    pub(super) jobs: Vec<String>,
    pub(super) sent: i64,
    pub(super) delay: i64,
    pub(super) id: Option<String>,
    pub(super) told: Told,
    /// The lease whose ack pushed it.
    pub(super) by: Option<String>,
}

/// A call on a lease.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) sent: i64,
    pub(super) told: Told,
}

/// How a lease was settled.
#[derive(Debug, Clone)]
pub(super) enum Settled {
    Ack(Call),
    /// With how long until it comes again, when it was told to; `None` for the last time.
    Nack {
        call: Call,
        wait: Option<i64>,
        error: String,
    },
    /// As if it had not been claimed: the attempt does not count.
    Release(Call),
}

/// One delivery of a job.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    pub(super) queue: String,
    pub(super) job: String,
    pub(super) attempt: u32,
    pub(super) lease: String,
    /// It was handed over between these moments.
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) ttl: i64,
    pub(super) extends: Vec<(Call, i64)>,
    pub(super) settled: Option<Settled>,
}

impl Delivery {
    /// The call that settled it.
    pub(super) fn call(&self) -> Option<&Call> {
        match self.settled.as_ref()? {
            Settled::Ack(call) | Settled::Nack { call, .. } | Settled::Release(call) => Some(call),
        }
    }

    /// Whether it may have been given back: then the same attempt may come again. A release is sent again by itself
    /// when its reply is lost, and then told "lost" although it was the one that gave the job back.
    pub(super) fn given_back(&self) -> bool {
        matches!(self.settled, Some(Settled::Release(_)))
    }

    /// When it was acked, if it was told so.
    pub(super) fn acked(&self) -> Option<i64> {
        match &self.settled {
            Some(Settled::Ack(Call { told: Told::Yes(at), .. })) => Some(*at),
            _ => None,
        }
    }

    /// When it was told that its job is dead.
    pub(super) fn dead(&self) -> Option<i64> {
        match &self.settled {
            Some(Settled::Nack { call: Call { told: Told::Yes(at), .. }, wait: None, .. }) => Some(*at),
            _ => None,
        }
    }

    /// When its lease ends at the earliest, as far as its holder knows.
    pub(super) fn leased_until(&self) -> i64 {
        let mut until = self.from + self.ttl;
        for (call, ttl) in &self.extends {
            match call.told {
                Told::Yes(_) => until = call.sent + ttl,
                // It may have run, and made the lease shorter: also when it was told "lost", since an extension is sent
                // again by itself when its owner dies, and the second time may be too late.
                Told::Unknown | Told::No(_) => until = until.min(call.sent + ttl),
            }
        }
        until
    }

    /// When its lease ends at the latest.
    pub(super) fn leased_at_most(&self) -> i64 {
        let extended = self.extends.iter().filter_map(|(call, ttl)| match call.told {
            Told::Yes(at) => Some(at + ttl),
            Told::Unknown => Some(i64::MAX / 2),
            Told::No(_) => None,
        });
        extended.fold(self.to + self.ttl, i64::max)
    }

    /// Until when it surely lives: the end of its lease, or the moment before it was settled.
    pub(super) fn lives_until(&self) -> i64 {
        self.call().map_or(self.leased_until(), |call| self.leased_until().min(call.sent))
    }
}

/// Everything that was told.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) pushes: Vec<Push>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) errors: BTreeMap<String, usize>,
}

impl Ledger {
    pub(super) fn read(logs: &[Log]) -> Result<Self, String> {
        let mut ledger = Self::default();
        for log in logs {
            let lanes: std::collections::BTreeSet<usize> = log.lines.iter().map(|(lane, _)| *lane).collect();
            for lane in lanes {
                let mut place = Place::default();
                for (_, event) in log.lines.iter().filter(|(other, _)| *other == lane) {
                    ledger.note(event, &mut place)?;
                }
            }
        }
        Ok(ledger)
    }

    fn note(&mut self, event: &Event, place: &mut Place) -> Result<(), String> {
        match event.clone() {
            Event::Pushing { time, queue, jobs, delay, id } => {
                place.push = Some(self.pushes.len());
                let jobs = jobs.split(',').map(str::to_owned).collect();
                let id = Some(id).filter(|id| id != "-");
                self.pushes.push(Push { queue, jobs, sent: time, delay, id, told: Told::Unknown, by: None });
            }
            Event::Pushed { time, accepted } => {
                let push = self.pushes.get_mut(place.push.ok_or("nobody pushed")?).ok_or("no push")?;
                if accepted != push.jobs.len() {
                    return Err(format!("{accepted} were accepted of {push:?}"));
                }
                push.told = Told::Yes(time);
            }
            Event::Refused { time, .. } | Event::Duplicate { time } => {
                let push = self.pushes.get_mut(place.push.ok_or("nobody pushed")?).ok_or("no push")?;
                push.told = Told::No(time);
            }
            Event::Got { queue, job, attempt, lease, from, to, ttl } => self.deliveries.push(Delivery {
                queue,
                job,
                attempt,
                lease,
                from,
                to,
                ttl,
                extends: Vec::new(),
                settled: None,
            }),
            Event::Extending { time, lease, ttl } => {
                self.of(&lease)?.extends.push((Call { sent: time, told: Told::Unknown }, ttl));
            }
            Event::Extended { time, lease } => {
                self.of(&lease)?.extends.last_mut().ok_or("nothing was extended")?.0.told = Told::Yes(time);
            }
            Event::Acking { time, leases, then } => {
                place.leases = leases.split(',').map(str::to_owned).collect();
                for lease in &place.leases {
                    self.of(lease)?.settled = Some(Settled::Ack(Call { sent: time, told: Told::Unknown }));
                }
                place.push = None;
                if then != "-" {
                    place.push = Some(self.pushes.len());
                    self.pushes.push(Push {
                        queue: "after".to_owned(),
                        jobs: vec![then],
                        sent: time,
                        delay: 0,
                        id: None,
                        told: Told::Unknown,
                        by: Some(leases),
                    });
                }
            }
            Event::Acked { time, acked, lost } => {
                let (given, follows) = (place.leases.len(), place.push.is_some());
                // All or nothing where something follows: what is held stays held, and is told of neither.
                let withheld = follows && acked == 0 && (1..given).contains(&lost);
                if !withheld && (acked + lost != given || follows && acked > 0 && lost > 0) {
                    return Err(format!("{acked} acked and {lost} lost of {:?}", place.leases));
                }
                // Some of each: which is which is not told.
                let told = match (acked, lost) {
                    (_, 0) => Told::Yes(time),
                    (0, _) => Told::No(time),
                    _ => Told::Unknown,
                };
                for lease in place.leases.clone() {
                    if withheld {
                        self.of(&lease)?.settled = None;
                    } else {
                        self.of(&lease)?.settled_call()?.told = told;
                    }
                }
                if let Some(push) = place.push.and_then(|at| self.pushes.get_mut(at)) {
                    push.told = told;
                }
            }
            Event::Nacking { time, lease, error } => {
                let call = Call { sent: time, told: Told::Unknown };
                self.of(&lease)?.settled = Some(Settled::Nack { call, wait: None, error });
            }
            Event::Releasing { time, lease } => {
                self.of(&lease)?.settled = Some(Settled::Release(Call { sent: time, told: Told::Unknown }));
            }
            Event::Retry { time, lease, wait: told_wait } => {
                if let Some(Settled::Nack { call, wait, .. }) = &mut self.of(&lease)?.settled {
                    (call.told, *wait) = (Told::Yes(time), Some(told_wait));
                }
            }
            Event::Dead { time, lease } | Event::Released { time, lease } => {
                self.of(&lease)?.settled_call()?.told = Told::Yes(time);
            }
            Event::Lost { time, lease } => {
                let delivery = self.of(&lease)?;
                if delivery.settled.is_some() {
                    delivery.settled_call()?.told = Told::No(time);
                } else if let Some((call, _)) = delivery.extends.last_mut() {
                    call.told = Told::No(time);
                } else {
                    return Err(format!("nothing was asked about {lease}"));
                }
            }
            Event::Error { code } => *self.errors.entry(code).or_default() += 1,
        }
        Ok(())
    }

    fn of(&mut self, lease: &str) -> Result<&mut Delivery, String> {
        let found = self.deliveries.iter_mut().rev().find(|delivery| delivery.lease == lease);
        found.ok_or_else(|| format!("nobody was given the lease {lease}"))
    }
}

impl Delivery {
    fn settled_call(&mut self) -> Result<&mut Call, String> {
        match &mut self.settled {
            Some(Settled::Ack(call) | Settled::Nack { call, .. } | Settled::Release(call)) => Ok(call),
            None => Err(format!("{} was not settled", self.lease)),
        }
    }
}

/// Where a lane is.
#[derive(Debug, Default)]
struct Place {
    push: Option<usize>,
    leases: Vec<String>,
}
