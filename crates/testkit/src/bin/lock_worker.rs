//! Takes, renews and gives back locks at random until its standard input closes, and tells what happened.
//!
//! Which lock a lane works on follows from the store's time, so that every process contends for the same
//! one, also after it was stopped or started late. The last lanes crowd around one lock all the time and ask
//! again at once: who lets them barge in starves those who wait. One line per event, written before anything else
//! happens; times are the store's, in microseconds:
//!
//! | line, after lane and lock | |
//! |---|---|
//! | `ask time wait_us` | an acquire is about to be sent |
//! | `ours at ttl_us fence` | it was granted |
//! | `held time` | it was not |
//! | `renewing time ttl_us` | a renewal is about to be sent |
//! | `renewed at ttl_us` | the lease began anew |
//! | `giving time` | a release is about to be sent |
//! | `given time` | it was released |
//! | `lost time` | a renewal or release was told "lost" |
//! | `raised time fence` | the fence's key was set ahead, as if by a clock that was |
//! | `error code` | the call may have run |

#![expect(clippy::expect_used, reason = "a worker that cannot do its work ends, and the test with it")]

use std::time::Duration;

use fastrand::Rng;
use quaymaster::lock::{Acquire, Acquired, Lock, Released, Renewed};
use quaymaster::store::Reply;
use quaymaster::{Result, Retry};
use quaymaster_testkit::conformance::command;
use quaymaster_testkit::crew::actor::{Actor, tell};
use quaymaster_testkit::lock_history::{CROWD, EPOCH_US, Event, LANES, PATIENCE_US, SCHEMA};

#[tokio::main]
async fn main() {
    let actor = Actor::enter(SCHEMA).await;
    let lock = actor.quaymaster.lock("history").expect("declared").clone();
    let lanes: Vec<_> = (0..LANES + CROWD)
        .map(|lane| {
            let rng = Rng::with_seed(actor.seed * 1000 + lane as u64);
            let lane =
                Lane { number: lane, lock: lock.clone(), actor: actor.clone(), rng, id: String::new() };
            tokio::spawn(lane.run())
        })
        .collect();
    for lane in lanes {
        lane.await.expect("a lane ends");
    }
    actor.leave().await;
}

struct Lane {
    number: usize,
    lock: Lock,
    actor: Actor,
    rng: Rng,
    /// The lock it works on.
    id: String,
}

impl Lane {
    async fn run(mut self) {
        while !self.actor.stopped() {
            if let Err(error) = self.one().await {
                assert!(error.code.retry() != Retry::Useless, "{error}");
                self.tell(&Event::Error { code: error.code.name().to_owned() });
                self.nap(20_000).await;
            }
        }
    }

    fn tell(&self, event: &Event) {
        tell(format_args!("{} {} {event}", self.number, self.id));
    }

    async fn now(&self) -> Result<i64> {
        self.actor.now_us().await
    }

    async fn nap(&mut self, most_us: u64) {
        tokio::time::sleep(Duration::from_micros(self.rng.u64(0..=most_us))).await;
    }

    /// Within the lease, and sometimes past its end: then it must be lost.
    async fn work(&mut self, ttl_us: u64) {
        let most = if self.rng.u8(0..5) == 0 { 2 * ttl_us } else { ttl_us / 3 };
        self.nap(most).await;
    }

    fn ttl(&mut self) -> Duration {
        Duration::from_millis(self.rng.u64(20..=150))
    }

    /// One attempt to get the lock, and what is done with it.
    async fn one(&mut self) -> Result<()> {
        let now;
        if self.number < LANES {
            self.nap(10_000).await;
            now = self.now().await?;
            self.id = format!("{}-{}", self.number, now / EPOCH_US);
        } else {
            now = self.now().await?;
            "crowd".clone_into(&mut self.id);
        }
        let wait_us = match self.rng.u8(0..10) {
            0..3 => 0,
            3..5 => self.rng.i64(1_000..60_000),
            _ => PATIENCE_US,
        };
        let ttl = self.ttl();
        self.tell(&Event::Ask { time: now, wait: wait_us });
        let wait = Duration::from_micros(wait_us as u64);
        let how = Acquire { ttl: Some(ttl), wait, ..Acquire::default() };
        let id = self.id.clone();
        let key: &[(&str, &str)] = &[("id", &id)];
        let lease = match self.lock.acquire(key, how).await? {
            Acquired::Ours(lease) => lease,
            Acquired::Held { .. } => {
                let time = self.now().await?;
                self.tell(&Event::Held { time });
                return Ok(());
            }
        };
        let ttl_us = ttl.as_micros() as i64;
        self.tell(&Event::Ours { at: lease.at_us, ttl: ttl_us, fence: lease.fence });
        for _ in 0..self.rng.u8(0..3) {
            self.work(ttl_us as u64).await;
            let ttl = self.ttl();
            let time = self.now().await?;
            self.tell(&Event::Renewing { time, ttl: ttl.as_micros() as i64 });
            match self.lock.renew(key, &lease.token, Some(ttl)).await? {
                Renewed::Ours(renewed) => {
                    assert_eq!(renewed.token, lease.token);
                    self.tell(&Event::Renewed { at: renewed.at_us, ttl: ttl.as_micros() as i64 });
                }
                Renewed::Lost => return self.lost().await,
            }
        }
        self.work(ttl_us as u64).await;
        if self.rng.u8(0..8) == 0 {
            // Forgotten: it ends by itself.
            return Ok(());
        }
        let time = self.now().await?;
        self.tell(&Event::Giving { time });
        match self.lock.release(key, &lease.token, None).await? {
            Released::Released | Released::Away(_) => {
                let time = self.now().await?;
                self.tell(&Event::Given { time });
            }
            Released::Lost => return self.lost().await,
        }
        if self.rng.u8(0..8) == 0 {
            self.raise().await?;
        }
        Ok(())
    }

    async fn lost(&self) -> Result<()> {
        let time = self.now().await?;
        self.tell(&Event::Lost { time });
        Ok(())
    }

    /// Two seconds ahead: what a store remembers whose clock was set back since.
    async fn raise(&self) -> Result<()> {
        let key = format!("{{history:{}}}:fence", self.id);
        let words: [&[u8]; 3] = [b"INCRBY", key.as_bytes(), b"2000000"];
        // When it is not known whether it ran, nothing is claimed.
        if let Reply::Int(fence) = command(&*self.actor.engine, key.as_bytes(), &words).await? {
            let time = self.now().await?;
            self.tell(&Event::Raised { time, fence: fence as u64 });
        }
        Ok(())
    }
}
