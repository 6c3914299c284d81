//! Open-loop load: steps begin when they are due, whether or not earlier ones have ended.
//!
//! Tokio's timers tick in milliseconds, ten times the gap between two steps; a kernel timer on the worker's
//! own epoll wakes it on the microsecond and costs no thread.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;

use super::book::{Book, Lap};
use super::mix::{Mix, steps_per_s};
use super::way::Way;

/// How fast and how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) operations_per_s: f64,
    pub(crate) lasting: Duration,
    /// How much of its load may wait for an answer at once before the rest is given up.
    pub(crate) patience: Duration,
}

/// What came of a plan.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) book: Arc<Book>,
    pub(crate) steps: u64,
    /// From the first step due to the last answer.
    pub(crate) took: Duration,
    /// Patience ended before the load did; the rest was not sent.
    pub(crate) overloaded: bool,
}

/// How long answers may take after the last step began.
const DRAIN: Duration = Duration::from_secs(20);

/// Runs the mix at the plan's rate. A step that fails ends it.
pub(crate) async fn run(way: Arc<Way>, mix: Arc<Mix>, plan: Plan) -> Result<Ran> {
    // On a worker, where the steps run: waking another thread for each would be measured too.
    tokio::spawn(load(way, mix, plan)).await.context("the load panicked")?
}

async fn load(way: Arc<Way>, mix: Arc<Mix>, plan: Plan) -> Result<Ran> {
    let rate = steps_per_s(plan.operations_per_s);
    ensure!(rate.is_finite() && rate > 0.0, "no rate, no load");
    let steps = (rate * plan.lasting.as_secs_f64()).ceil() as u64;
    let most_open = (rate * plan.patience.as_secs_f64()).max(500.0) as u64;
    let book = Arc::new(Book::new()?);
    let mut timer = Timer::new()?;
    let mut gaps = fastrand::Rng::new();
    let mut overloaded = false;
    let mut sent = 0;
    let (ended, mut all_ended) = mpsc::channel::<()>(1);
    let began = Instant::now();
    let mut due = began;
    while sent < steps && !book.has_failed() {
        timer.until(due).await?;
        if book.open.fetch_add(1, Relaxed) >= most_open {
            overloaded = true;
            break;
        }
        let (way, mix, book, ended) = (way.clone(), mix.clone(), book.clone(), ended.clone());
        tokio::spawn(async move {
            if let Err(error) = way.step(mix.step(), Lap::new(&book, due)).await {
                book.fail(error);
            }
            book.close_step();
            drop(ended);
        });
        sent += 1;
        // Callers who know nothing of each other: gaps are exponential, so that bursts come as they do in life.
        due += Duration::from_secs_f64(-(1.0 - gaps.f64()).ln() / rate);
        // A load that is behind never waits for its timer; the steps want their turn all the same.
        tokio::task::coop::consume_budget().await;
    }
    drop(ended);
    let drained = tokio::time::timeout(DRAIN, all_ended.recv()).await;
    book.verdict()?;
    ensure!(drained.is_ok(), "steps without an answer {DRAIN:?} after the last one began");
    Ok(Ran { book, steps: sent, took: began.elapsed(), overloaded })
}

/// A kernel timer on the runtime's epoll. To be read it is like a pipe: eight bytes when it rings, nothing before.
#[derive(Debug)]
struct Timer {
    timer: OwnedFd,
    rings: Receiver,
}

impl Timer {
    fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).context("no kernel timer")?;
        let rings = Receiver::from_owned_fd_unchecked(timer.try_clone()?)?;
        Ok(Self { timer, rings })
    }

    /// Returns at `at`, or at once when that has passed.
    async fn until(&mut self, at: Instant) -> Result<()> {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let it_value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(self.timer.as_fd(), TimerfdTimerFlags::empty(), &once)?;
        // Room for more than comes: a short read tells the runtime that there is no more.
        let read = self.rings.read(&mut [0; 16]).await?;
        ensure!(read == 8, "a timer rang with {read} bytes");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_timer_never_rings_early_and_can_be_set_again() -> Result<()> {
        let mut timer = Timer::new()?;
        for us in [100, 1, 700, 0] {
            let at = Instant::now() + Duration::from_micros(us);
            timer.until(at).await?;
            assert!(Instant::now() >= at);
        }
        Ok(())
    }
}
