//! How long requests take.

use quaymaster::stats::{ERROR_ONE_IN, Endpoint};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};

use crate::support::{Took, bind, home_assistant, ours, record, report_of};

const USERS: &str = "GET /api/users";

/// The percentile of the field: the smallest value with at least this share of all values at or below it.
fn nearest_rank(values: &[f64], percent: u64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as u64 * percent).div_ceil(100).max(1);
    sorted[rank as usize - 1]
}

/// What a reader of the documented zset computes with.
fn members(server: &RedisServer, key: &str) -> Vec<f64> {
    let members: Vec<String> = server.command(&["ZRANGE", key, "0", "-1"]);
    // As JavaScript's parseFloat has it: whatever follows the number is not looked at.
    let number = |text: &String| text.split('#').next().and_then(|head| head.parse().ok());
    members.iter().map(|member| number(member).expect("a number")).collect()
}

/// Percentiles within the error that they state.
fn assert_near(endpoint: &Endpoint, times: &[f64]) {
    for (said_us, percent) in [(endpoint.p50_us, 50), (endpoint.p95_us, 95), (endpoint.p99_us, 99)] {
        let (said, exact) = (said_us as f64 / 1000.0, nearest_rank(times, percent));
        assert!((said - exact).abs() <= exact / ERROR_ONE_IN as f64, "p{percent}: {said} instead of {exact}");
    }
}

#[tokio::test]
async fn equal_response_times_are_one_member_and_the_percentile_is_nobodys() {
    let server = RedisServer::start(RedisConfig::default());
    let key = "ha:response_times:GET /api/users";
    // Ninety-nine requests of 150 ms and one of nine seconds.
    let times: Vec<f64> = (0..100).map(|n| if n == 50 { 9000.0 } else { 150.0 }).collect();
    for (n, time) in times.iter().enumerate() {
        let at_ms = (1_672_531_200_000 + n).to_string();
        server.command::<i64>(&["ZADD", key, &at_ms, &time.to_string()]);
    }
    assert_eq!(members(&server, key), [9000.0, 150.0], "a hundred requests, two members");
    assert_eq!(nearest_rank(&members(&server, key), 95) as u64, 9000, "where it is 150");
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = ours(&server).await;
    record(&quaymaster, &times.iter().map(|ms| Took::get("0", "/api/users", *ms)).collect::<Vec<_>>()).await;
    let held = members(&server, key);
    assert_eq!(held.len(), 100, "what a program of the old scheme sees: every request, its number in front");
    assert_eq!(nearest_rank(&held, 95) as u64, 150);
    let endpoint = report_of(&quaymaster, USERS).await;
    assert_eq!(endpoint.count, 100);
    assert_near(&endpoint, &times);
}

#[tokio::test]
async fn a_sum_of_fractions_drifts_and_parts_from_its_count() {
    let server = RedisServer::start(RedisConfig::default());
    // The name in the document is no command of Redis; the one that is meant adds binary fractions.
    assert!(server.try_command::<String>(&["INCRBY_FLOAT", "ha:avg_response:x", "150.005"]).is_err());
    let (sum, count) = ("ha:avg_response:GET /api/users", "ha:response_count:GET /api/users");
    for _ in 0..3 {
        server.command::<String>(&["INCRBYFLOAT", sum, "150.005"]);
        server.command::<i64>(&["INCR", count]);
    }
    let drifted: String = server.command(&["GET", sum]);
    assert!(drifted.starts_with("450.015") && drifted != "450.015", "{drifted}");
    // The process dies between the two: from now on the average is of more requests than were counted.
    server.command::<String>(&["INCRBYFLOAT", sum, "150.005"]);
    let average = |server: &RedisServer| {
        let sum: f64 = server.command::<String>(&["GET", sum]).parse().expect("a number");
        sum / server.command::<i64>(&["GET", count]) as f64
    };
    assert!((average(&server) - 150.005).abs() > 50.0, "an average of {}", average(&server));
    server.command::<()>(&["FLUSHALL"]);

    let quaymaster = ours(&server).await;
    for _ in 0..3 {
        record(&quaymaster, &[Took::get("0", "/api/users", 150.005)]).await;
    }
    // What a program of the old scheme sees: the documented decimal, without a digit too many.
    assert_eq!(server.command::<String>(&["GET", sum]), "450.015");
    assert_eq!(server.command::<i64>(&["GET", count]), 3);
    assert!((average(&server) - 150.005).abs() < 1e-9);
    let endpoint = report_of(&quaymaster, USERS).await;
    assert_eq!(endpoint.avg_us, 150_005);
    // What such a program adds to the sum is written over by the next flush.
    server.command::<String>(&["INCRBYFLOAT", sum, "1000"]);
    record(&quaymaster, &[Took::get("0", "/api/users", 150.005)]).await;
    assert!((average(&server) - 150.005).abs() < 1e-9);
}

#[tokio::test]
async fn percentiles_averaged_over_instances_are_nobodys() {
    let server = RedisServer::start(RedisConfig::default());
    // One instance answers fast and often, the other slowly and seldom.
    let fast: Vec<f64> = (0..9900).map(|n| 10.0 + (n % 10) as f64).collect();
    let slow: Vec<f64> = (0..100).map(|n| 2000.0 + n as f64).collect();
    let all: Vec<f64> = fast.iter().chain(&slow).copied().collect();
    let exact = nearest_rank(&all, 95);
    let averaged = f64::midpoint(nearest_rank(&fast, 95), nearest_rank(&slow, 95));
    assert!(averaged > 50.0 * exact, "{averaged} where it is {exact}");
    // The documented thousand samples are no way out: the newest thousand may all be of one instance.
    let key = "ha:response_times:GET /api/users";
    let mut samples = redis::cmd("ZADD");
    samples.arg(key);
    for (n, time) in all.iter().enumerate() {
        // Even with members that stay apart.
        samples.arg(1_672_531_200_000_u64 + n as u64).arg(format!("{time}#{n}"));
    }
    samples.query_async::<()>(&mut server.client().await).await.expect("added");
    server.command::<i64>(&["ZREMRANGEBYRANK", key, "0", "-1001"]);
    let sampled = nearest_rank(&members(&server, key), 99);
    let exact_99 = nearest_rank(&all, 99);
    assert!(sampled > 50.0 * exact_99, "{sampled} where it is {exact_99}");
    server.command::<()>(&["FLUSHALL"]);

    let nodes = [ours(&server).await, bind(&server.url(), home_assistant(), &[]).await];
    for (node, (instance, times)) in nodes.iter().zip([("0", &fast), ("1", &slow)]) {
        for part in times.chunks(1000) {
            let took: Vec<Took> = part.iter().map(|ms| Took::get(instance, "/api/users", *ms)).collect();
            record(node, &took).await;
        }
    }
    let endpoint = report_of(&nodes[0], USERS).await;
    assert_eq!(endpoint.count, 10_000);
    assert_near(&endpoint, &all);
    // What a program of the old scheme sees: the newest thousand samples, as before.
    assert_eq!(server.command::<i64>(&["ZCARD", key]), 1000);
}
