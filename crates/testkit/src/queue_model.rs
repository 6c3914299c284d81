//! A queue as plainly as it can be said: what every call must answer, and where every job must be.
//!
//! One process, a clock that stands still between calls, no jitter: then everything is determined, and the queue must
//! say exactly what the model says.

use std::collections::HashSet;

/// What a full queue does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Refuses.
    Reject,
    /// Moves the oldest away.
    Move,
    /// Drops the oldest.
    Drop,
}

/// How a queue is declared.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Highest priority first, instead of first come, first served.
    pub ranked: bool,
    /// How many may wait, 0 for any number.
    pub max_size: usize,
    /// What happens then.
    pub overflow: Overflow,
    /// How often a job is tried.
    pub max_attempts: u32,
    /// The first backoff; it doubles.
    pub base_ms: i64,
    /// The longest.
    pub max_ms: i64,
}

/// A job that waits.
#[derive(Debug, Clone, PartialEq)]
struct Waiting {
    name: String,
    score: f64,
    /// Its place among those of one score.
    came: u64,
}

/// Where a job is that has been claimed or put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Leased { until_ms: i64, lease: usize },
    Delayed { due_ms: i64 },
}

#[derive(Debug, Clone, PartialEq)]
struct Known {
    name: String,
    score: f64,
    attempt: u32,
    /// In the order in which they got their numbers.
    number: u64,
    place: Place,
}

/// A dead letter: name, attempts, error; an error of the queue's own is `None`.
pub type Letter = (String, u32, Option<String>);

/// The model.
#[derive(Debug, Clone)]
pub struct Model {
    rules: Rules,
    /// The time, in milliseconds.
    pub now_ms: i64,
    /// Whether claims get nothing.
    pub paused: bool,
    waiting: Vec<Waiting>,
    known: Vec<Known>,
    /// With the priority they had.
    dead: Vec<(Letter, f64)>,
    overflow: Vec<String>,
    dropped: Vec<String>,
    ids: HashSet<String>,
    acked: Vec<String>,
    numbers: u64,
    leases: usize,
}

/// The answer to a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// So many accepted, moved and dropped, and how many wait.
    Accepted(usize, usize, usize, usize),
    /// The id is known.
    Duplicate,
    /// No room.
    Full,
}

/// The answer to a nack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nacked {
    /// After so long.
    Retry(i64),
    /// Never again.
    Dead,
    /// Not held.
    Lost,
}

/// How many jobs are where: waiting, delayed, leased, dead, in the overflow list.
pub type Places = (usize, usize, usize, usize, usize);

impl Model {
    /// An empty queue at this moment.
    pub fn new(rules: Rules, now_ms: i64) -> Self {
        Self {
            rules,
            now_ms,
            paused: false,
            waiting: Vec::new(),
            known: Vec::new(),
            dead: Vec::new(),
            overflow: Vec::new(),
            dropped: Vec::new(),
            ids: HashSet::new(),
            acked: Vec::new(),
            numbers: 0,
            leases: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// All or none.
    pub fn push(&mut self, names: &[String], delay_ms: i64, score: f64, id: Option<&str>) -> Pushed {
        if id.is_some_and(|id| self.ids.contains(id)) {
            return Pushed::Duplicate;
        }
        let full = |length: usize| self.rules.max_size > 0 && length + names.len() > self.rules.max_size;
        let delayed = self.known.iter().filter(|job| matches!(job.place, Place::Delayed { .. })).count();
        if delay_ms > 0 && full(delayed)
            || delay_ms == 0 && self.rules.overflow == Overflow::Reject && full(self.waiting.len())
        {
            return Pushed::Full;
        }
        self.ids.extend(id.map(str::to_owned));
        for name in names {
            let (name, number) = (name.clone(), self.number());
            if delay_ms > 0 {
                let place = Place::Delayed { due_ms: self.now_ms + delay_ms };
                self.known.push(Known { name, score, attempt: 0, number, place });
            } else {
                self.waiting.push(Waiting { name, score, came: number });
            }
        }
        self.arrange();
        let over = if delay_ms > 0 || self.rules.max_size == 0 {
            0
        } else {
            self.waiting.len().saturating_sub(self.rules.max_size)
        };
        let mut shed = Vec::new();
        for _ in 0..over {
            // Of a ranked queue what would be claimed last.
            let one = if self.rules.ranked { self.waiting.pop() } else { Some(self.waiting.remove(0)) };
            shed.extend(one.map(|job| job.name));
        }
        let moved = self.rules.overflow == Overflow::Move;
        let place = if moved { &mut self.overflow } else { &mut self.dropped };
        place.extend(shed);
        let (moved, dropped) = if moved { (over, 0) } else { (0, over) };
        Pushed::Accepted(names.len(), moved, dropped, self.waiting.len())
    }

    fn arrange(&mut self) {
        if self.rules.ranked {
            self.waiting.sort_by(|one, two| two.score.total_cmp(&one.score).then(one.came.cmp(&two.came)));
        }
    }

    /// Whose lease has ended or whose time has come, in the order in which they are handed out.
    fn due(&self) -> Vec<usize> {
        let since = |job: &Known| match job.place {
            Place::Leased { until_ms, .. } if until_ms <= self.now_ms => Some((0, until_ms, job.number)),
            Place::Delayed { due_ms } if due_ms <= self.now_ms => Some((1, due_ms, job.number)),
            _ => None,
        };
        let mut due: Vec<_> =
            self.known.iter().enumerate().filter_map(|(at, job)| Some((since(job)?, at))).collect();
        due.sort_unstable();
        let mut due: Vec<usize> = due.into_iter().map(|(_, at)| at).collect();
        if self.rules.ranked {
            due.sort_by(|one, two| self.known[*two].score.total_cmp(&self.known[*one].score));
        }
        due
    }

    /// Hands out at most `count` once: names, attempts and the numbers of their leases. What has no attempt left is
    /// buried, and counts.
    fn hand_out(&mut self, count: usize, lease_ms: i64) -> (Vec<(String, u32, usize)>, usize) {
        let (mut jobs, mut buried, mut taken) = (Vec::new(), Vec::new(), 0);
        for at in self.due() {
            let higher = self.waiting.iter().filter(|job| job.score > self.known[at].score).count();
            if taken + if self.rules.ranked { higher } else { 0 } >= count {
                break;
            }
            taken += 1;
            if self.known[at].attempt >= self.rules.max_attempts {
                buried.push(self.known[at].number);
                continue;
            }
            self.leases += 1;
            let job = &mut self.known[at];
            job.attempt += 1;
            job.place = Place::Leased { until_ms: self.now_ms + lease_ms, lease: self.leases };
            jobs.push((job.name.clone(), job.attempt, self.leases));
        }
        for number in &buried {
            if let Some(at) = self.known.iter().position(|job| job.number == *number) {
                let job = self.known.remove(at);
                self.dead.push(((job.name, job.attempt, None), job.score));
            }
        }
        while taken < count && !self.waiting.is_empty() {
            taken += 1;
            let Waiting { name, score, .. } = self.waiting.remove(0);
            self.leases += 1;
            let place = Place::Leased { until_ms: self.now_ms + lease_ms, lease: self.leases };
            let number = self.number();
            self.known.push(Known { name: name.clone(), score, attempt: 1, number, place });
            jobs.push((name, 1, self.leases));
        }
        if self.rules.ranked {
            let score = |lease: usize| {
                let job = self
                    .known
                    .iter()
                    .find(|job| matches!(job.place, Place::Leased { lease: held, .. } if held == lease));
                job.map_or(0.0, |job| job.score)
            };
            jobs.sort_by(|one, two| score(two.2).total_cmp(&score(one.2)));
        }
        (jobs, buried.len())
    }

    /// Jobs with their attempts and leases; again while only the dead were found.
    pub fn claim(&mut self, count: usize, lease_ms: i64) -> Vec<(String, u32, usize)> {
        loop {
            if self.paused {
                return Vec::new();
            }
            let (jobs, buried) = self.hand_out(count, lease_ms);
            if !jobs.is_empty() || buried == 0 {
                return jobs;
            }
        }
    }

    /// The claim in the step of an ack: once.
    pub fn claim_once(&mut self, count: usize, lease_ms: i64) -> Vec<(String, u32, usize)> {
        if self.paused { Vec::new() } else { self.hand_out(count, lease_ms).0 }
    }

    fn held(&self, lease: usize) -> Option<usize> {
        self.known.iter().position(|job| match job.place {
            Place::Leased { until_ms, lease: held } => held == lease && until_ms > self.now_ms,
            Place::Delayed { .. } => false,
        })
    }

    /// How many were acked; each once, whether it is given twice or not.
    pub fn ack(&mut self, leases: &[usize]) -> usize {
        let mut acked = 0;
        for lease in leases {
            if let Some(at) = self.held(*lease) {
                let job = self.known.remove(at);
                self.acked.push(job.name);
                acked += 1;
            }
        }
        acked
    }

    /// Whether every lease lives, none given twice.
    pub fn all_held(&self, leases: &[usize]) -> bool {
        let each: HashSet<&usize> = leases.iter().collect();
        each.len() == leases.len() && leases.iter().all(|lease| self.held(*lease).is_some())
    }

    /// A failure.
    pub fn nack(&mut self, lease: usize, error: &str, delay_ms: Option<i64>, dead: bool) -> Nacked {
        let Some(at) = self.held(lease) else { return Nacked::Lost };
        let attempt = self.known[at].attempt;
        if dead || attempt >= self.rules.max_attempts {
            let job = self.known.remove(at);
            self.dead.push(((job.name, attempt, Some(error.to_owned())), job.score));
            return Nacked::Dead;
        }
        let backoff = (self.rules.base_ms << (attempt - 1)).min(self.rules.max_ms);
        let wait = delay_ms.unwrap_or(backoff);
        self.known[at].place = Place::Delayed { due_ms: self.now_ms + wait };
        Nacked::Retry(wait)
    }

    /// Whether it is held; it begins anew.
    pub fn extend(&mut self, lease: usize, lease_ms: i64) -> bool {
        let Some(at) = self.held(lease) else { return false };
        self.known[at].place = Place::Leased { until_ms: self.now_ms + lease_ms, lease };
        true
    }

    /// As if it had not been claimed; it is the next.
    pub fn release(&mut self, lease: usize) -> bool {
        let Some(at) = self.held(lease) else { return false };
        self.known[at].attempt -= 1;
        self.known[at].place = Place::Delayed { due_ms: self.now_ms };
        true
    }

    /// How many wait again, and how many are dead.
    pub fn sweep(&mut self) -> (usize, usize) {
        let (mut returned, mut dead) = (0, Vec::new());
        let mut ended: Vec<(i64, u64, usize)> = Vec::new();
        for (at, job) in self.known.iter().enumerate() {
            if let Place::Leased { until_ms, .. } = job.place
                && until_ms <= self.now_ms
            {
                ended.push((until_ms, job.number, at));
            }
        }
        ended.sort_unstable();
        for (until_ms, number, at) in ended {
            if self.known[at].attempt >= self.rules.max_attempts {
                dead.push(number);
            } else {
                self.known[at].place = Place::Delayed { due_ms: until_ms };
                returned += 1;
            }
        }
        for number in &dead {
            if let Some(at) = self.known.iter().position(|job| job.number == *number) {
                let job = self.known.remove(at);
                self.dead.push(((job.name, job.attempt, None), job.score));
            }
        }
        (returned, dead.len())
    }

    /// The oldest letters become jobs again, as many as fit; how many did.
    pub fn redrive(&mut self, count: usize) -> usize {
        let room = match self.rules.max_size {
            0 => usize::MAX,
            most => most.saturating_sub(self.waiting.len()),
        };
        let moved = count.min(self.dead.len()).min(room);
        for ((name, ..), score) in self.dead.drain(..moved).collect::<Vec<_>>() {
            let came = self.number();
            self.waiting.push(Waiting { name, score, came });
        }
        self.arrange();
        moved
    }

    /// The oldest letters go; how many did.
    pub fn purge(&mut self, count: usize) -> usize {
        let gone = count.min(self.dead.len());
        self.dead.drain(..gone);
        gone
    }

    /// How many jobs are where.
    pub fn places(&self) -> Places {
        let leased = self.known.iter().filter(|job| matches!(job.place, Place::Leased { .. })).count();
        (self.waiting.len(), self.known.len() - leased, leased, self.dead.len(), self.overflow.len())
    }

    /// Names that wait, in the order in which they are claimed.
    pub fn waiting(&self) -> Vec<&str> {
        self.waiting.iter().map(|job| job.name.as_str()).collect()
    }

    /// The letters, the oldest first.
    pub fn dead(&self) -> Vec<&Letter> {
        self.dead.iter().map(|(letter, _)| letter).collect()
    }

    /// How many were acked so far.
    pub fn acked(&self) -> usize {
        self.acked.len()
    }
}
