//! A worker of the crate's own kind whose handlers take 5 to 50 ms, until its standard input closes.
//!
//! One line per event, ended by a full stop; times are the machine's, in microseconds: `began job attempt at`,
//! `ended job attempt at`, `failed job attempt at`, `lost job attempt at` when its lease was lost while it ran.

#![expect(clippy::expect_used, reason = "a worker that cannot do its work ends, and the test with it")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quaymaster::queue::{Job, Then};
use quaymaster::worker::{Done, Failure, Lost, Worker};
use quaymaster_testkit::crew::actor::{Actor, tell};
use quaymaster_testkit::storm::{CONCURRENCY, Event, POISON, SCHEMA, is_poison};
use tokio_util::sync::CancellationToken;

fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

#[tokio::main]
async fn main() {
    let actor = Actor::enter(SCHEMA).await;
    let queue = actor.quaymaster.queue("storm").expect("declared").clone();
    let stop = CancellationToken::new();
    let worker = Worker::new(queue).concurrency(CONCURRENCY).name(format!("storm-{}", actor.seed));
    let running = tokio::spawn(worker.run(handle, stop.clone()));
    while !actor.stopped() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    let _ = running.await.expect("the worker does not panic").expect("the worker runs");
    actor.leave().await;
}

async fn handle(job: Job, lost: Lost) -> Result<Done, Failure> {
    let (attempt, text) = (job.attempt, String::from_utf8_lossy(&job.payload).into_owned());
    let number: u64 = text.parse().expect("a job is its number");
    tell(format_args!("{} .", Event::Began { job: number, attempt, at: now_us() }));
    let work = tokio::time::sleep(Duration::from_millis(5 + number * 7 % 46));
    tokio::select! {
        () = work => {}
        () = lost.lost() => tell(format_args!("{} .", Event::Lost { job: number, attempt, at: now_us() })),
    }
    if is_poison(number) {
        tell(format_args!("{} .", Event::Failed { job: number, attempt, at: now_us() }));
        return Err(Failure::new(POISON));
    }
    tell(format_args!("{} .", Event::Ended { job: number, attempt, at: now_us() }));
    let done = Then::Push { name: "done".to_owned(), payload: text.into(), priority: None, delay: None };
    Ok(Done::then(vec![done]))
}
