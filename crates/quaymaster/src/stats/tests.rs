//! Buckets, names, pieces, and the recorder on a store in memory.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use proptest::prelude::*;
use quaymaster_schema::{Source, load};
use quaymaster_store::embedded::{EmbeddedOptions, EmbeddedStore};

use super::endpoint::{METHODS, method_index, method_index_of, name};
use super::remote::Ignored;
use super::sketch::{BUCKETS, MAX_US, Sketch, bucket, middle_us};
use super::sum::{PIECE_BUCKETS, PIECE_ENDPOINTS, PIECE_OTHERS, PIECE_SAMPLES};
use super::*;
use crate::Quaymaster;

async fn in_memory(rest: &str) -> Quaymaster {
    let text = format!("[schema]\nname = \"t\"\nowner = \"tests\"\n[stats.web]\nkey = \"web:\"\n{rest}");
    let loaded = load(&[Source { name: "t.toml", text: &text }], &|_| None);
    let engine = EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap();
    Quaymaster::new(Arc::new(loaded.schema.unwrap()), Arc::new(engine))
}

fn seen(route: &str) -> Seen<'_> {
    let elapsed = Duration::from_micros(1500);
    Seen { method: &Method::GET, route: Some(route), status: 200, elapsed, accepted: true }
}

/// Of `percent` in a hundred, the exact time by nearest rank.
fn exact(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

#[test]
fn a_bucket_is_told_within_the_stated_error_by_its_middle() {
    let near = (0..40_u32).flat_map(|bits| (0..3).map(move |more| (1_u64 << bits.min(35)) + more));
    for us in (0..100_000).chain(near).chain([MAX_US - 1, MAX_US]).filter(|us| *us <= MAX_US) {
        let told = middle_us(bucket(us));
        assert!(told.abs_diff(us) * u64::from(ERROR_ONE_IN) <= us, "{us} is told as {told}");
        assert!(us >= 128 || told == us, "{us} has a bucket of its own");
        assert!(usize::from(bucket(us)) < BUCKETS);
    }
    assert_eq!(bucket(u64::MAX), bucket(MAX_US));
    for at in 1..BUCKETS as u16 {
        assert!(middle_us(at) > middle_us(at - 1));
        assert_eq!(bucket(middle_us(at)), at);
    }
}

#[test]
fn an_instance_without_a_name_is_called_by_the_moment_of_its_start() {
    let before_ms = jiff::Timestamp::now().as_millisecond();
    let name = instance_id();
    let ms: i64 = name.strip_prefix("instance-").and_then(|ms| ms.parse().ok()).unwrap_or_default();
    // Another test of this process may have asked first.
    assert!((before_ms - 600_000..=jiff::Timestamp::now().as_millisecond()).contains(&ms), "{name}");
    assert_eq!(instance_id(), name, "asked again it is the same");
}

proptest! {
    /// Many equal values and a long tail, over several instances: merged, not averaged.
    #[test]
    fn percentiles_of_merged_sketches_are_those_of_all_requests_within_the_stated_error(
        equal in 0_u64..5_000_000,
        often in 1_usize..400,
        tail in prop::collection::vec((0_u32..36, any::<u64>()), 1..300),
        instances in 1_usize..5,
    ) {
        let tail = tail.into_iter().map(|(bits, any)| any % (1_u64 << bits).max(1));
        let mut all: Vec<u64> = std::iter::repeat_n(equal, often).chain(tail).collect();
        let mut parts = vec![Sketch::default(); instances];
        for (at, us) in all.iter().enumerate() {
            parts[at % instances].add(bucket(*us), 1);
        }
        let mut merged = Sketch::default();
        for part in parts {
            for at in 0..BUCKETS as u16 {
                let count = part.count_of(at);
                if count > 0 {
                    merged.add(at, count);
                }
            }
        }
        all.sort_unstable();
        prop_assert_eq!(merged.count(), all.len() as u64);
        for percent in [1, 50, 95, 99, 100] {
            let (told, exact) = (merged.percentile_us(percent), exact(&all, percent as usize));
            prop_assert!(told.abs_diff(exact) * u64::from(ERROR_ONE_IN) <= exact, "{percent}: {told} for {exact}");
        }
    }

    /// Nothing is lost or doubled by cutting, and every piece keeps the script's bounds.
    #[test]
    fn a_sum_is_cut_into_pieces_that_add_up(
        requests in prop::collection::vec((0_usize..150, 100_u16..700, 0_u64..2_000_000_000), 0..3000),
        instances in 1_usize..150,
    ) {
        let mut sum = Sum::default();
        for (endpoint, status, us) in &requests {
            sum.count(format!("GET /{endpoint}"), *status, *us, *status != 429, 1_000_000);
        }
        let whole = sum.clone();
        let names = (0..instances).map(|at| OfInstance {
            name: format!("i{at}"), process: format!("- i{at}"), requests: 1, connections: None,
        });
        let pieces = sum.cut(names.collect(), "u");
        let mut counted = std::collections::BTreeMap::<String, [u64; 4]>::new();
        let mut members = std::collections::BTreeSet::new();
        for piece in &pieces {
            prop_assert!(piece.endpoints.len() <= PIECE_ENDPOINTS && piece.statuses.len() <= PIECE_OTHERS);
            prop_assert!((1..=PIECE_OTHERS).contains(&piece.instances.len()));
            let (mut buckets, mut samples) = (0, 0);
            for entry in &piece.endpoints {
                let of_it = counted.entry(entry.name.clone()).or_default();
                of_it[0] += entry.count;
                of_it[1] += entry.errors;
                of_it[2] += entry.sum_us;
                for pair in entry.buckets.split_whitespace() {
                    of_it[3] += pair.split_once(':').unwrap().1.parse::<u64>().unwrap();
                    buckets += 1;
                }
                let words: Vec<&str> = entry.samples.split_whitespace().collect();
                samples += words.len() / 2;
                for member in words.chunks(2) {
                    prop_assert!(members.insert(member[1].to_owned()), "{} twice", member[1]);
                }
            }
            prop_assert!(buckets <= PIECE_BUCKETS && samples <= PIECE_SAMPLES, "{buckets} {samples}");
        }
        for (name, share) in &whole.endpoints {
            prop_assert_eq!(counted[name], [share.count, share.errors, share.sum_us, share.count]);
        }
        let total = |of: fn(&Piece) -> u64| pieces.iter().map(of).sum::<u64>();
        prop_assert_eq!(total(|piece| piece.total), requests.len() as u64);
        prop_assert_eq!(total(|piece| piece.accepted), whole.accepted);
        let statuses = |piece: &Piece| piece.statuses.iter().map(|(_, count)| count).sum::<u64>();
        prop_assert_eq!(pieces.iter().map(statuses).sum::<u64>(), whole.errors);
        let served = |piece: &Piece| piece.instances.iter().map(|of_it| of_it.requests).sum::<u64>();
        prop_assert_eq!(pieces.iter().map(served).sum::<u64>(), instances as u64);
    }

    /// Whatever a path holds, its name is one a key can hold, and names itself.
    #[test]
    fn any_path_has_a_name_that_a_key_can_hold(path in "\\PC{0,300}", method in 0_usize..METHODS.len(), fold: bool) {
        let named = name(method, &path, fold);
        prop_assert!(!named.is_empty() && named.len() <= MAX_ENDPOINT_BYTES);
        let odd = named.contains(|c: char| c.is_control() || "{}*?[]".contains(c));
        prop_assert!(!odd);
        prop_assert!(named == UNMATCHED || named == OVERFLOW || named.matches(' ').count() == 1, "{named}");
        if let Some((_, path)) = named.split_once(' ') {
            prop_assert_eq!(name(method, path, fold), named);
        }
    }
}

#[test]
fn an_endpoint_is_a_method_and_a_template() {
    let get = |path| name(method_index(&Method::GET), path, false);
    assert_eq!(get("/users/{id}/posts/{post_id}"), "GET /users/:id/posts/:post_id");
    assert_eq!(get("/users/:id"), get("/users/{id}"), "one spelling");
    assert_eq!(get("/files/{*rest}"), "GET /files/:rest");
    assert_eq!(get("/items/{id:[0-9]+}"), "GET /items/:id");
    assert_eq!(get("/a/{name}.json"), "GET /a/:name.json");
    assert_eq!(get("/search?q=1#top"), "GET /search");
    assert_eq!(get("/odd [x] *"), "GET /odd%20%5Bx%5D%20%2A");
    assert_eq!(
        (get("/"), get("*"), get("")),
        ("GET /".to_owned(), UNMATCHED.to_owned(), UNMATCHED.to_owned())
    );
    assert_eq!(get(&format!("/{}", "x".repeat(300))), OVERFLOW);
    assert_eq!(name(method_index_of("post"), "/x", false), "POST /x");
    assert_eq!(name(method_index(&Method::from_bytes(b"BREW").unwrap()), "/pot", false), "OTHER /pot");
}

#[test]
fn ids_in_paths_are_folded_where_the_schema_says_so() {
    let fold = |path| name(0, path, true);
    assert_eq!(fold("/users/123/posts/0"), "GET /users/:id/posts/:id");
    assert_eq!(fold("/o/123e4567-e89b-12d3-a456-426614174000"), "GET /o/:id");
    assert_eq!(fold("/o/deadbeefdeadbeef"), "GET /o/:id");
    for kept in ["/v2/cafe", "/o/deadbeefdeadbeeg", "/o/123e4567-e89b-12d3-a456-42661417400", "/o/1a", "/"] {
        assert_eq!(fold(kept), format!("GET {kept}"));
    }
}

#[test]
fn callers_are_ignored_by_address_network_and_name() {
    let list = ["127.0.0.1", "::1", "10.1.0.0/16", "fd00::/8", "0.0.0.0/32", "probe"].map(str::to_owned);
    let ignored = Ignored::new(&list);
    for remote in
        ["127.0.0.1", "::ffff:127.0.0.1", "127.0.0.1:80", "[::1]:80", "::1", "10.1.2.3", "fd12::9", "probe"]
    {
        assert!(ignored.has_text(remote), "{remote}");
    }
    for remote in ["127.0.0.2", "10.2.0.1", "::2", "fe00::1", "prober", ""] {
        assert!(!ignored.has_text(remote), "{remote}");
    }
    assert!(Ignored::new(&["0.0.0.0/0".to_owned()]).has_text("8.8.8.8"));
}

#[tokio::test]
async fn a_million_raw_paths_cost_no_more_memory_than_the_cap() {
    let quaymaster = in_memory("flush = \"1m\"\nmax_endpoints = 50\n").await;
    let recorder = quaymaster.stats("web").unwrap().recorder("a");
    for number in 0..100_000 {
        recorder.record(&seen(&format!("/raw/{number}")));
    }
    assert!(recorder.told_apart() <= 51, "{} names are kept", recorder.told_apart());
    recorder.flush().await.unwrap();
    let report = recorder.stats().report(ReportAsk::default()).await.unwrap();
    assert_eq!((report.total, report.endpoints.len()), (100_000, 51));
    assert_eq!((report.endpoints[0].name.as_str(), report.endpoints[0].count), (OVERFLOW, 99_950));
}

#[tokio::test]
async fn many_spellings_of_one_endpoint_cost_no_memory() {
    let quaymaster = in_memory("flush = \"1m\"\n").await;
    let recorder = quaymaster.stats("web").unwrap().recorder("a");
    for number in 0..10_000 {
        recorder.record(&seen(&format!("/search?q={number}")));
        recorder.record(&seen(&format!("/users/{{id:{number}}}")));
    }
    assert!(recorder.told_apart() <= 8, "{} spellings are kept", recorder.told_apart());
    recorder.flush().await.unwrap();
    let report = recorder.stats().report(ReportAsk::default()).await.unwrap();
    let counts: Vec<_> = report.endpoints.iter().map(|found| (found.name.as_str(), found.count)).collect();
    assert_eq!(counts, [("GET /search", 10_000), ("GET /users/:id", 10_000)]);
}

#[tokio::test]
async fn as_many_connections_as_can_be_told_stop_no_later_flush() {
    let quaymaster = in_memory("flush = \"1m\"\n").await;
    let stats = quaymaster.stats("web").unwrap();
    let names: Vec<String> = (0..MAX_INSTANCES).map(|at| at.to_string()).collect();
    let all: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), MAX_CONNECTIONS)).collect();
    for _ in 0..2 {
        let _ = stats.record(Record { connections: &all, ..Record::default() }).await.unwrap();
    }
    let report = stats.report(ReportAsk::default()).await.unwrap();
    assert_eq!(report.connections_max, MAX_CONNECTIONS * MAX_INSTANCES as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_misses_no_endpoint_while_others_are_used() {
    let quaymaster = in_memory("flush = \"1m\"\nmax_endpoints = 600\n").await;
    let stats = quaymaster.stats("web").unwrap().clone();
    let recorder = stats.recorder("a");
    let paths: Vec<String> = (0..600).map(|at| format!("/{at}")).collect();
    for path in &paths {
        recorder.record(&seen(path));
    }
    recorder.flush().await.unwrap();
    // The one that is used last is in front: a report in pages would find all of them there in turn.
    let using = tokio::spawn(async move {
        for path in paths.iter().cycle() {
            recorder.record(&seen(path));
            recorder.flush().await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..20 {
        let ask = ReportAsk { endpoints: Some(0), ..ReportAsk::default() };
        assert_eq!(stats.report(ask).await.unwrap().endpoints_total, 600);
    }
    using.abort();
}

#[tokio::test]
async fn threads_of_one_process_count_together_and_connections_are_guarded() {
    let quaymaster = in_memory("flush = \"1m\"\n").await;
    let recorder = quaymaster.stats("web").unwrap().recorder("a");
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let recorder = recorder.clone();
            std::thread::spawn(move || {
                for number in 0..5000 {
                    recorder.record(&seen(["/a", "/b/{id}"][number % 2]));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let open: Vec<Connected> = (0..3).map(|_| recorder.connected()).collect();
    drop(open);
    let _kept = recorder.connected();
    recorder.flush().await.unwrap();
    let report = recorder.stats().report(ReportAsk::default()).await.unwrap();
    assert_eq!((report.total, report.connections, report.connections_max), (40_000, 1, 3));
    assert_eq!(report.endpoints.iter().map(|found| found.count).collect::<Vec<_>>(), [20_000, 20_000]);
}

#[tokio::test]
async fn what_is_left_is_flushed_when_the_last_clone_goes_or_shuts_down() {
    let quaymaster = in_memory("flush = \"1m\"\n").await;
    let stats = quaymaster.stats("web").unwrap();
    let recorder = stats.recorder("a");
    recorder.record(&seen("/a"));
    recorder.shutdown().await;
    assert_eq!(stats.report(ReportAsk::default()).await.unwrap().total, 1);
    let other = stats.recorder("b");
    other.record(&seen("/a"));
    drop(other);
    while stats.counts().recorded() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stats.report(ReportAsk::default()).await.unwrap().total, 2);
}

#[tokio::test]
async fn what_no_record_could_hold_is_refused_and_counts_nothing() {
    let quaymaster = in_memory("").await;
    let stats = quaymaster.stats("web").unwrap();
    let elapsed = Duration::from_millis(1);
    let good = Request {
        instance: "a",
        method: "GET",
        path: "/",
        status: 200,
        elapsed,
        remote: None,
        accepted: None,
    };
    let many = vec![good; MAX_REQUESTS + 1];
    let names: Vec<String> = (0..=MAX_INSTANCES).map(|at| at.to_string()).collect();
    let instances: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let bad = [
        Record { requests: &[Request { status: 99, ..good }], ..Record::default() },
        Record { requests: &[Request { status: 1000, ..good }], ..Record::default() },
        Record { requests: &[Request { path: "users", ..good }], ..Record::default() },
        Record { requests: &[good, Request { method: "", ..good }], ..Record::default() },
        Record { requests: &[Request { instance: "a*", ..good }], ..Record::default() },
        Record { requests: &[Request { instance: OVERFLOW, ..good }], ..Record::default() },
        Record { connections: &[("", 1)], ..Record::default() },
        Record { connections: &[("a", MAX_CONNECTIONS + 1)], ..Record::default() },
        Record { requests: &[good], request_id: Some("a{"), ..Record::default() },
        Record { requests: &many, ..Record::default() },
        Record { connections: &instances, ..Record::default() },
    ];
    for record in bad {
        let refused = stats.record(record).await.unwrap_err();
        assert!(matches!(refused.code, Code::RequestInvalid | Code::RequestTooLarge), "{refused}");
    }
    assert_eq!(stats.record(Record::default()).await.unwrap(), Recorded::default());
    assert_eq!(stats.report(ReportAsk::default()).await.unwrap().total, 0);
    for hours in [0, 25] {
        let ask = ReportAsk { hours: Some(hours), endpoints: None };
        assert_eq!(stats.report(ask).await.unwrap_err().code, Code::RequestInvalid);
    }
}

#[tokio::test]
async fn a_name_that_is_another_keys_is_counted_all_the_same() {
    let quaymaster = in_memory(
        "flush = \"1m\"\n[key.one]\nkey = \"web:requests:endpoint:GET /taken\"\ntype = \"string\"\nttl = \"1h\"\n\
         [key.three]\nkey = \"web:avg_response:GET /summed\"\ntype = \"string\"\nttl = \"1h\"\n\
         [key.two]\nkey = \"web:requests:instance:a\"\ntype = \"string\"\nttl = \"1h\"\n",
    )
    .await;
    let recorder = quaymaster.stats("web").unwrap().recorder("a");
    recorder.record(&seen("/taken"));
    recorder.record(&seen("/summed"));
    recorder.record(&seen("/free"));
    recorder.flush().await.unwrap();
    let report = recorder.stats().report(ReportAsk::default()).await.unwrap();
    let mut names: Vec<&str> = report.endpoints.iter().map(|found| found.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!((report.total, names), (3, vec!["GET /free", OVERFLOW]));
    assert_eq!(report.instances, [("a-".to_owned(), 3)]);
    let told = Request {
        instance: "a",
        method: "GET",
        path: "/summed",
        status: 200,
        elapsed: Duration::ZERO,
        remote: None,
        accepted: None,
    };
    let told = recorder.stats().record(Record { requests: &[told], ..Record::default() }).await.unwrap();
    assert_eq!(told, Recorded { recorded: 1, ignored: 0 });
}
