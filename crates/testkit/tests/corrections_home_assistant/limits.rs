//! Whoever calls too often.

use futures_util::future::join_all;
use quaymaster::limit::Charge;
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::support::{bind, home_assistant};

const WINDOW_MS: i64 = 900_000;

/// The documented sliding limit at a moment: forget what is old, count, and add what passes; two steps, as they are
/// two calls of a client.
struct Documented<'a> {
    server: &'a RedisServer,
    key: &'static str,
    limit: i64,
}

impl Documented<'_> {
    fn count(&self, now_ms: i64) -> i64 {
        let old = (now_ms - WINDOW_MS).to_string();
        self.server.command::<i64>(&["ZREMRANGEBYSCORE", self.key, "0", &old]);
        self.server.command(&["ZCARD", self.key])
    }

    fn add(&self, now_ms: i64, member: &str) {
        self.server.command::<i64>(&["ZADD", self.key, &now_ms.to_string(), member]);
    }
}

#[tokio::test]
async fn a_timestamp_as_member_counts_the_requests_of_one_millisecond_once() {
    let server = RedisServer::start(RedisConfig::default());
    let scheme = Documented { server: &server, key: "ha:rate_limit:192.168.1.100", limit: 10 };
    let mut passed = 0;
    // A burst: two hundred requests in twenty milliseconds, one after the other. Nobody races anybody.
    for request in 0..200 {
        let now_ms = 1_672_531_200_000 + request / 10;
        if scheme.count(now_ms) < scheme.limit {
            passed += 1;
            scheme.add(now_ms, &now_ms.to_string());
        }
    }
    assert_eq!(passed, 91, "nine times the limit");
    assert_eq!(server.command::<i64>(&["ZCARD", scheme.key]), 10);
    // The expiry is a command of its own; a process that dies before it leaves the address limited until somebody
    // calls from it again.
    assert_eq!(server.command::<i64>(&["TTL", scheme.key]), -1);
    server.command::<()>(&["FLUSHALL"]);

    for (name, key) in
        [("ha", "ha:rate_limit:192.168.1.100"), ("ha_sliding", "ha:sliding_limit:192.168.1.100")]
    {
        let quaymaster = bind(&server.url(), home_assistant(), &[("RATE_LIMIT_MAX", "10")]).await;
        let limit = quaymaster.limit(name).expect("declared");
        let caller = [("identifier", "192.168.1.100")];
        let takes = (0..200).map(|_| limit.take(&caller, Charge::one()));
        let answers = join_all(takes).await;
        let passed = answers.iter().filter(|answer| answer.as_ref().expect("an answer").is_allowed()).count();
        assert_eq!(passed, 10, "{name}");
        // What a program of the old scheme sees: a zset of as many members as requests, that ends with its window.
        assert_eq!(server.command::<i64>(&["ZCARD", key]), 10, "{name}");
        let scores: Vec<(String, i64)> = server.command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
        assert!(scores.iter().all(|(_, score)| *score > 1_600_000_000_000), "{scores:?}");
        assert!((1..=WINDOW_MS).contains(&server.command::<i64>(&["PTTL", key])), "{name}");
    }
}

#[tokio::test]
async fn instances_that_count_before_they_add_let_more_than_the_limit_through() {
    let server = RedisServer::start(RedisConfig::default());
    let scheme = Documented { server: &server, key: "ha:sliding_limit:192.168.1.100", limit: 10 };
    // Five instances, each with ten requests, ask before any of them has added its own. Members are unique here.
    let counts: Vec<i64> = (0..50).map(|n| scheme.count(1_672_531_200_000 + n)).collect();
    let passed = counts.iter().filter(|count| **count < scheme.limit).count();
    for n in 0..passed as i64 {
        scheme.add(1_672_531_200_000 + n, &format!("{n}-0.123"));
    }
    assert_eq!(passed, 50, "five times the limit");
    assert_eq!(server.command::<i64>(&["ZCARD", scheme.key]), 50);
    server.command::<()>(&["FLUSHALL"]);

    let env = [("RATE_LIMIT_MAX", "10")];
    let url = server.url();
    let instances = join_all((0..5).map(|_| bind(&url, home_assistant(), &env))).await;
    let takes = (0..50).map(|n| {
        let limit = instances[n % 5].limit("ha_sliding").expect("declared");
        async move { limit.take(&[("identifier", "192.168.1.100")], Charge::one()).await.expect("an answer") }
    });
    let passed = join_all(takes).await.iter().filter(|answer| answer.is_allowed()).count();
    assert_eq!((passed, server.command::<i64>(&["ZCARD", scheme.key])), (10, 10));
    // Members that a program of the old scheme added count with ours.
    server.command::<()>(&["DEL", scheme.key]);
    let now_ms = server.command::<Vec<i64>>(&["TIME"])[0] * 1000;
    for n in 0..9 {
        scheme.add(now_ms, &format!("{now_ms}-0.{n}"));
    }
    let limit = instances[0].limit("ha_sliding").expect("declared");
    let caller = [("identifier", "192.168.1.100")];
    let verdicts = [
        limit.take(&caller, Charge::one()).await.expect("an answer").is_allowed(),
        limit.take(&caller, Charge::one()).await.expect("an answer").is_allowed(),
    ];
    assert_eq!(verdicts, [true, false]);
}
