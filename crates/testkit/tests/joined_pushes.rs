//! Pushes of many callers at once go together, and each is answered for its own.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use quaymaster::queue::{Claim, Push};
use quaymaster::schema::{Source, load};
use quaymaster::{Code, Engine, Quaymaster};
use quaymaster_store::redis::{RedisOptions, RedisStore};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use quaymaster_testkit::toll::Toll;

const SCHEMA: &str = "
[schema]
name = \"joined\"
owner = \"tests\"
[queue.work]
max_size = 100
[queue.wide]
max_size = 100000
";

struct Bench {
    quaymaster: Quaymaster,
    toll: Arc<Toll>,
    _server: RedisServer,
}

async fn bench() -> Bench {
    let server = RedisServer::start(RedisConfig::default());
    let options = RedisOptions::from_url(&server.url()).unwrap();
    let toll = Toll::new(Arc::new(RedisStore::connect(options).await.unwrap()));
    let schema = load(&[Source { name: "joined.toml", text: SCHEMA }], &|_| None).schema.unwrap();
    let quaymaster = Quaymaster::new(Arc::new(schema), toll.clone() as Arc<dyn Engine>);
    Bench { quaymaster, toll, _server: server }
}

fn number(number: usize) -> Push {
    Push::one(Bytes::from(number.to_string()))
}

#[tokio::test]
async fn many_callers_share_few_scripts_and_every_job_is_there() {
    let bench = bench().await;
    let queue = bench.quaymaster.queue("wide").unwrap();
    let pushed = join_all((0..500).map(|n| queue.push(number(n)))).await;
    let scripts = bench.toll.runs();
    assert!(scripts < 50, "500 pushes took {scripts} scripts");
    // As if each had been added by itself: every length from 1 to 500 is told once.
    let lengths: BTreeSet<u64> = pushed.iter().map(|pushed| pushed.as_ref().unwrap().queue_length).collect();
    assert_eq!(lengths, (1..=500).collect());
    assert!(pushed.iter().all(|pushed| pushed.as_ref().is_ok_and(|pushed| pushed.accepted == 1)));
    let jobs = queue.claim(Claim { count: 1000, ..Claim::default() }).await.unwrap();
    let got: BTreeSet<usize> =
        jobs.iter().map(|job| std::str::from_utf8(&job.payload).unwrap().parse().unwrap()).collect();
    assert_eq!((jobs.len(), got), (500, (0..500).collect()));
}

#[tokio::test]
async fn a_queue_that_fills_takes_exactly_what_it_has_room_for() {
    let bench = bench().await;
    let queue = bench.quaymaster.queue("work").unwrap();
    let pushed = join_all((0..300).map(|n| queue.push(number(n)))).await;
    let refused = pushed.iter().filter_map(|pushed| pushed.as_ref().err()).map(|error| error.code);
    assert_eq!(refused.filter(|code| *code == Code::QueueFull).count(), 200);
    assert_eq!(pushed.iter().filter(|pushed| pushed.is_ok()).count(), 100);
    assert_eq!(queue.pressure().await.unwrap().current_length, 100);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nobody_waiting() {
    let bench = bench().await;
    let queue = bench.quaymaster.queue("wide").unwrap();
    // Those under way and those that wait are dropped after their first step; the rest must be answered.
    for round in 0..20 {
        let mut leaving: Vec<_> = (0..40).map(|n| Box::pin(queue.push(number(n)))).collect();
        for push in &mut leaving {
            let _ = futures_util::poll!(push.as_mut());
        }
        let staying = join_all((0..40).map(|n| queue.push(number(1000 * (round + 1) + n))));
        let (pushed, ()) = futures_util::future::join(staying, async { drop(leaving) }).await;
        assert!(pushed.iter().all(Result::is_ok), "{pushed:?}");
    }
    let jobs = queue.pressure().await.unwrap().current_length;
    assert!((800..=1600).contains(&jobs), "{jobs}");
}

#[tokio::test]
async fn a_lost_reply_is_an_error_for_everybody_it_went_with_and_no_push_is_sent_twice() {
    let bench = bench().await;
    let queue = bench.quaymaster.queue("wide").unwrap();
    let mut all = Box::pin(join_all((0..200).map(|n| queue.push(number(n)))));
    // The first few are on their way; the next script carries many.
    assert!(futures_util::poll!(all.as_mut()).is_pending());
    bench.toll.lose_next_reply();
    let pushed = all.await;
    let lost = pushed.iter().filter(|pushed| pushed.is_err()).count();
    assert!(lost > 1, "the lost reply was not that of a joined push");
    let jobs = queue.claim(Claim { count: 1000, ..Claim::default() }).await.unwrap();
    let distinct: BTreeSet<&[u8]> = jobs.iter().map(|job| &job.payload[..]).collect();
    assert_eq!(distinct.len(), jobs.len(), "a job was pushed twice");
    assert!(jobs.len() >= 200 - lost);
}
