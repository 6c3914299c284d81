//! One instance of a service that records its share of the traffic, keeps its connections open, and ends when its
//! standard input closes.
//!
//! It says `flushed` once everything it recorded is in the store.

#![expect(clippy::expect_used, reason = "a worker that cannot do its work ends, and the test with it")]

use std::time::Duration;

use quaymaster_testkit::crew::actor::{Actor, tell};
use quaymaster_testkit::traffic::{SCHEMA, asked, open, share};

const TASKS: u64 = 4;

#[tokio::main]
async fn main() {
    let actor = Actor::enter(SCHEMA).await;
    let stats = actor.quaymaster.stats("web").expect("declared");
    let recorder = stats.recorder(format!("i{}", actor.seed));
    let connections: Vec<_> = (0..open(actor.seed)).map(|_| recorder.connected()).collect();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (recorder, seed) = (recorder.clone(), actor.seed);
            tokio::spawn(async move {
                for number in (task..share(seed)).step_by(TASKS as usize) {
                    recorder.record(&asked(seed, number).seen());
                    if number % 256 == task {
                        // Spread over many flushes.
                        tokio::time::sleep(Duration::from_millis(3)).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task ends");
    }
    while let Err(error) = recorder.flush().await {
        tell(format_args!("failed {}", error.code));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let counts = stats.counts();
    tell(format_args!("flushed {} {} {}", counts.flushes(), counts.repeats(), counts.failures()));
    while !actor.stopped() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(connections);
    recorder.shutdown().await;
    assert_eq!(stats.counts().lost(), 0, "nothing may be lost while the store is there");
    actor.leave().await;
}
