//! Pushes, claims, acks, nacks, extends and forgets jobs at random until its standard input closes, and tells what
//! happened.
//!
//! One line per event, written before anything else happens, ended by a full stop; times are the store's, in
//! microseconds. Jobs have names of their own, leases too:
//!
//! | line, after the lane | |
//! |---|---|
//! | `pushing time queue jobs delay_us id` | a push of these jobs, apart by commas, is about to be sent; `-` for no id |
//! | `pushed time accepted` | it was accepted |
//! | `refused time code` · `duplicate time` | it was not |
//! | `got queue job attempt lease from to ttl_us` | a claim sent at `from` and answered at `to` handed this job over |
//! | `extending time lease ttl_us` · `extended time lease` | before and after |
//! | `acking time leases then` · `acked time acked lost` | before and after; `then` is a job pushed with it, or `-` |
//! | `nacking time lease error` | before; after it one of the next three |
//! | `releasing time lease` · `released time lease` | before and after giving it back untried |
//! | `retry time lease wait_us` · `dead time lease` | it comes again, or never |
//! | `lost time lease` | a nack, release or extension was told "lost" |
//! | `error code` | the call may have run |

#![expect(clippy::expect_used, reason = "a worker that cannot do its work ends, and the test with it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use quaymaster::queue::{Ack, Claim, ClaimNext, Extended, Job, Lease, Nack, Nacked, Push, Queue, Then};
use quaymaster::{Code, Result, Retry};
use quaymaster_testkit::crew::actor::{Actor, tell};
use quaymaster_testkit::queue_history::{Event, LANES, QUEUES, SCHEMA, job_of, payload};

/// How long everybody pushes under the same ids, by the store's time.
const EPOCH_US: i64 = 100_000;

#[tokio::main]
async fn main() {
    let actor = Actor::enter(SCHEMA).await;
    let names = Arc::new(AtomicU64::new(0));
    let lanes: Vec<_> = (0..LANES)
        .map(|number| {
            let rng = Rng::with_seed(actor.seed * 1000 + number as u64);
            tokio::spawn(Lane { number, actor: actor.clone(), rng, names: names.clone() }.run())
        })
        .collect();
    for lane in lanes {
        lane.await.expect("a lane ends");
    }
    actor.leave().await;
}

struct Lane {
    number: usize,
    actor: Actor,
    rng: Rng,
    names: Arc<AtomicU64>,
}

/// A job in hand: its lease, and what the lease is called in the lines.
struct Held {
    name: String,
    lease: Lease,
    queue: &'static str,
}

impl Lane {
    async fn run(mut self) {
        while !self.actor.stopped() {
            let done = match self.rng.u8(0..20) {
                0..6 => self.push().await,
                6 => self.sweep().await,
                _ => self.consume().await,
            };
            if let Err(error) = done {
                assert!(error.code.retry() != Retry::Useless, "{error}");
                self.tell(&Event::Error { code: error.code.name().to_owned() });
                self.nap(20_000).await;
            }
        }
    }

    fn tell(&self, event: &Event) {
        tell(format_args!("{} {event} .", self.number));
    }

    async fn now(&self) -> Result<i64> {
        self.actor.now_us().await
    }

    async fn nap(&mut self, most_us: u64) {
        tokio::time::sleep(Duration::from_micros(self.rng.u64(0..=most_us))).await;
    }

    fn name(&self, of: char) -> String {
        format!("{of}{}.{}", self.actor.seed, self.names.fetch_add(1, Ordering::SeqCst))
    }

    fn queue(&self, name: &str) -> Queue {
        self.actor.quaymaster.queue(name).expect("declared").clone()
    }

    async fn push(&mut self) -> Result<()> {
        // More than is taken from the small one, so that it is full now and then.
        let name = ["work", "small", "small", "spill", "ranked"][self.rng.usize(..5)];
        let time = self.now().await?;
        let id = (self.rng.u8(..4) == 0).then(|| format!("{name}-{}", time / EPOCH_US));
        let count = if id.is_some() { 1 } else { [1, 1, 2, 5][self.rng.usize(..4)] };
        let jobs: Vec<String> = (0..count).map(|_| self.name('j')).collect();
        let delay_ms = (self.rng.u8(..4) == 0).then(|| self.rng.u64(1..120));
        let payloads = jobs.iter().map(|job| payload(job).into()).collect();
        let mut push = Push::many(payloads);
        push.delay = delay_ms.map(Duration::from_millis);
        push.id.clone_from(&id);
        push.priority = (name == "ranked").then(|| f64::from(self.rng.u8(..3)));
        let delay = delay_ms.unwrap_or(0) as i64 * 1000;
        let id = id.unwrap_or_else(|| "-".to_owned());
        self.tell(&Event::Pushing { time, queue: name.to_owned(), jobs: jobs.join(","), delay, id });
        let told = self.queue(name).push(push).await;
        let time = match told {
            Err(error) if error.code != Code::QueueFull => return Err(error),
            _ => self.now().await?,
        };
        match told {
            Ok(pushed) if pushed.duplicate => self.tell(&Event::Duplicate { time }),
            Ok(pushed) => self.tell(&Event::Pushed { time, accepted: pushed.accepted as usize }),
            Err(error) => self.tell(&Event::Refused { time, code: error.code.name().to_owned() }),
        }
        Ok(())
    }

    /// Brings back what others left, and buries what is used up.
    async fn sweep(&mut self) -> Result<()> {
        let name = QUEUES[self.rng.usize(..QUEUES.len())];
        let _ = self.queue(name).sweep().await?;
        Ok(())
    }

    fn lease(&mut self) -> Duration {
        Duration::from_millis(self.rng.u64(20..=150))
    }

    async fn consume(&mut self) -> Result<()> {
        let other = QUEUES[self.rng.usize(..QUEUES.len())];
        let name = if other == "small" && self.rng.bool() { "work" } else { other };
        let (queue, ttl) = (self.queue(name), self.lease());
        let wait = Duration::from_millis(if self.rng.bool() { 0 } else { self.rng.u64(1..80) });
        let count = self.rng.usize(1..=4);
        let from = self.now().await?;
        let claim = Claim {
            count,
            lease: Some(ttl),
            wait,
            worker: Some(format!("w{}", self.actor.seed)),
            ..Claim::default()
        };
        let jobs = queue.claim(claim).await?;
        let mut hands = self.got(name, jobs, from, ttl).await?;
        if hands.is_empty() {
            self.nap(5_000).await;
        }
        while !hands.is_empty() {
            // Within the lease mostly, and sometimes past its end.
            let most = if self.rng.u8(0..6) == 0 { 2 * ttl.as_micros() } else { ttl.as_micros() / 3 };
            self.nap(most as u64).await;
            let held = hands.remove(self.rng.usize(..hands.len()));
            match self.rng.u8(..10) {
                0..4 => {
                    let mut together = vec![held];
                    // Several of one claim in one ack, now and then.
                    if self.rng.u8(..3) == 0 {
                        together.append(&mut hands);
                    }
                    hands.extend(self.ack(&queue, together).await?);
                }
                4..6 => self.nack(&queue, held).await?,
                6 => self.release(&queue, held).await?,
                7..9 => hands.extend(self.extend(&queue, held).await?),
                // Forgotten: it ends by itself, and comes again.
                _ => {}
            }
        }
        Ok(())
    }

    async fn got(
        &mut self,
        queue: &'static str,
        jobs: Vec<Job>,
        from: i64,
        ttl: Duration,
    ) -> Result<Vec<Held>> {
        let to = self.now().await?;
        let mut hands = Vec::new();
        for job in jobs {
            let name = self.name('l');
            self.tell(&Event::Got {
                queue: queue.to_owned(),
                job: job_of(&job.payload).unwrap_or_else(|| format!("{:?}", job.payload).replace(' ', "_")),
                attempt: job.attempt,
                lease: name.clone(),
                from,
                to,
                ttl: ttl.as_micros() as i64,
            });
            hands.push(Held { name, lease: job.lease, queue });
        }
        Ok(hands)
    }

    /// Acks, with what follows from it, and with the next jobs in the same step.
    async fn ack(&mut self, queue: &Queue, together: Vec<Held>) -> Result<Vec<Held>> {
        let origin = together[0].queue;
        let then = (origin == "work" && self.rng.bool()).then(|| self.name('t'));
        let mut ack = Ack::of(together.iter().map(|held| held.lease.clone()).collect());
        if let Some(job) = &then {
            let (name, payload) = ("after".to_owned(), payload(job).into());
            ack.then.push(Then::Push { name, payload, priority: None, delay: None });
        }
        let ttl = self.lease();
        if self.rng.u8(..3) == 0 {
            ack.claim = Some(ClaimNext { count: self.rng.usize(1..=2), lease: Some(ttl), worker: None });
        }
        let time = self.now().await?;
        let leases: Vec<String> = together.iter().map(|held| held.name.clone()).collect();
        let then = then.unwrap_or_else(|| "-".to_owned());
        self.tell(&Event::Acking { time, leases: leases.join(","), then });
        let told = queue.ack(ack).await?;
        let now = self.now().await?;
        self.tell(&Event::Acked { time: now, acked: told.acked as usize, lost: told.lost as usize });
        self.got(origin, told.jobs, time, ttl).await
    }

    async fn nack(&mut self, queue: &Queue, held: Held) -> Result<()> {
        let error = self.name('e');
        let time = self.now().await?;
        self.tell(&Event::Nacking { time, lease: held.name.clone(), error: error.clone() });
        let told = queue.nack(Nack::of(held.lease, error)).await?;
        let (time, lease) = (self.now().await?, held.name);
        match told {
            Nacked::Retry { retry_in, .. } => {
                self.tell(&Event::Retry { time, lease, wait: retry_in.as_micros() as i64 });
            }
            Nacked::Dead { .. } => self.tell(&Event::Dead { time, lease }),
            Nacked::Lost => self.tell(&Event::Lost { time, lease }),
        }
        Ok(())
    }

    async fn release(&mut self, queue: &Queue, held: Held) -> Result<()> {
        let time = self.now().await?;
        self.tell(&Event::Releasing { time, lease: held.name.clone() });
        let released = queue.release(&[held.lease]).await?;
        let (time, lease) = (self.now().await?, held.name);
        self.tell(&if released == 1 { Event::Released { time, lease } } else { Event::Lost { time, lease } });
        Ok(())
    }

    async fn extend(&mut self, queue: &Queue, held: Held) -> Result<Option<Held>> {
        let (time, ttl) = (self.now().await?, self.lease());
        self.tell(&Event::Extending { time, lease: held.name.clone(), ttl: ttl.as_micros() as i64 });
        let told = queue.extend(&held.lease, Some(ttl)).await?;
        let (time, lease) = (self.now().await?, held.name.clone());
        match told {
            Extended::Ours { .. } => {
                self.tell(&Event::Extended { time, lease });
                Ok(Some(held))
            }
            Extended::Lost => {
                self.tell(&Event::Lost { time, lease });
                Ok(None)
            }
        }
    }
}
