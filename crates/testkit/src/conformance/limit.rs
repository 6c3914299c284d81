//! What every limit must do on every store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quaymaster::limit::{Charge, Limit, Part, Together, Verdict, take_all};
use quaymaster::{Code, Quaymaster};
use quaymaster_store::Topology;

use super::{Subject, command_int, command_text};
use crate::liar::Liar;

const ALGORITHMS: [&str; 4] = ["fixed_window", "sliding_log", "sliding_window", "token_bucket"];

/// The four algorithms with one limit and window each, keyed by `id`.
fn four(subject: &Subject, limit: u64, window: &str) -> Quaymaster {
    let table = |algorithm: &&str| {
        format!(
            "[limit.{algorithm}]\nkey = \"{algorithm}:{{id}}\"\nalgorithm = \"{algorithm}\"\n\
             limit = {limit}\nwindow = \"{window}\"\n"
        )
    };
    let tables: Vec<String> = ALGORITHMS.iter().map(table).collect();
    let tables = tables.concat();
    subject.schema(&tables)
}

fn each(quaymaster: &Quaymaster) -> impl Iterator<Item = &Limit> {
    ALGORITHMS.iter().map(|name| quaymaster.limit(name).expect("declared"))
}

fn key_of(subject: &Subject, limit: &Limit) -> String {
    format!("{}{}:a", subject.prefix, limit.name())
}

const A: &[(&str, &str)] = &[("id", "a")];

async fn take(limit: &Limit, cost: u64) -> Verdict {
    limit.take(A, Charge::of(cost)).await.expect("take answers")
}

/// Takes until there is no room; a limit that never fills is broken.
async fn fill(limit: &Limit) {
    for _ in 0..100 {
        if !take(limit, 1).await.is_allowed() {
            return;
        }
    }
    panic!("{}: 100 calls passed a limit of {}", limit.name(), limit.spec().limit);
}

/// Starts right after a window of `window_ms` began, so that short runs do not straddle two.
async fn at_window_start(subject: &Subject, window_ms: i64) {
    let window_us = window_ms * 1000;
    let now = subject.time_us().await;
    subject.reach((now / window_us + 1) * window_us).await;
}

crate::cases! {
    async fn take_counts_up_to_the_limit_and_no_further(subject: &Subject) {
        let quaymaster = four(subject, 5, "1h");
        for limit in each(&quaymaster) {
            for call in 1..=5u64 {
                let verdict = take(limit, 1).await;
                assert!(verdict.is_allowed(), "{} {call}: {verdict:?}", limit.name());
                assert_eq!(verdict.quota().used, call, "{}", limit.name());
                assert_eq!(verdict.quota().remaining, 5 - call);
                assert_eq!(verdict.retry_after(), Some(Duration::ZERO));
            }
            for _ in 0..3 {
                let verdict = take(limit, 1).await;
                assert!(!verdict.is_allowed(), "{}: {verdict:?}", limit.name());
                assert_eq!(verdict.quota().used, 5, "{}", limit.name());
                let wait = verdict.retry_after().expect("waiting helps");
                assert!(wait > Duration::ZERO && wait <= Duration::from_secs(7200), "{}: {wait:?}", limit.name());
            }
        }
    }

    async fn a_cost_is_counted_whole_or_not_at_all(subject: &Subject) {
        let quaymaster = four(subject, 10, "1h");
        for limit in each(&quaymaster) {
            assert!(take(limit, 7).await.is_allowed());
            let refused = take(limit, 4).await;
            assert!(!refused.is_allowed(), "{}", limit.name());
            assert_eq!(refused.quota().used, 7, "{}", limit.name());
            assert!(take(limit, 3).await.is_allowed(), "{}", limit.name());
        }
    }

    async fn a_cost_over_the_limit_counts_nothing(subject: &Subject) {
        let quaymaster = four(subject, 10, "1h");
        for limit in each(&quaymaster) {
            for cost in [11, 1_000_000_000_000_000, u64::MAX] {
                let refused = take(limit, cost).await;
                assert!(!refused.is_allowed(), "{}", limit.name());
                assert_eq!(refused.retry_after(), None, "{}", limit.name());
            }
            assert_eq!(limit.peek(A).await.expect("peek").quota().used, 0, "{}", limit.name());
            let error = limit.take(A, Charge::of(0)).await.expect_err("cost 0");
            assert_eq!(error.code, Code::LimitCost);
        }
    }

    async fn a_zero_limit_refuses_everything(subject: &Subject) {
        let quaymaster = four(subject, 0, "1h");
        for limit in each(&quaymaster) {
            let refused = take(limit, 1).await;
            assert!(!refused.is_allowed(), "{}", limit.name());
            assert_eq!(refused.retry_after(), None);
            assert!(!limit.peek(A).await.expect("peek").is_allowed());
            let _ = limit.refund(A, Charge::of(3)).await.expect("refund");
            assert_eq!(limit.peek(A).await.expect("peek").quota().used, 0);
        }
    }

    async fn a_huge_limit_counts_exactly(subject: &Subject) {
        let quaymaster = subject.schema(
            "[limit.huge]\nkey = \"huge:{id}\"\nalgorithm = \"fixed_window\"\n\
             limit = 1_000_000_000_000_000\nwindow = \"1h\"\n",
        );
        let limit = quaymaster.limit("huge").expect("declared");
        assert_eq!(take(limit, 999_999_999_999_998).await.quota().used, 999_999_999_999_998);
        assert_eq!(take(limit, 1).await.quota().used, 999_999_999_999_999);
        assert!(!take(limit, 2).await.is_allowed());
        assert_eq!(take(limit, 1).await.quota().remaining, 0);
        assert!(!take(limit, 1).await.is_allowed());
    }

    async fn peek_counts_nothing(subject: &Subject) {
        let quaymaster = four(subject, 2, "1h");
        for limit in each(&quaymaster) {
            for _ in 0..5 {
                assert!(limit.peek(A).await.expect("peek").is_allowed());
            }
            assert!(take(limit, 2).await.is_allowed());
            let full = limit.peek(A).await.expect("peek");
            assert!(!full.is_allowed());
            assert_eq!(full.quota().used, 2);
            assert!(full.quota().reset_after > Duration::ZERO, "{}", limit.name());
        }
    }

    async fn refund_gives_back_and_never_below_zero(subject: &Subject) {
        let quaymaster = four(subject, 5, "1h");
        for limit in each(&quaymaster) {
            assert!(take(limit, 5).await.is_allowed());
            let back = limit.refund(A, Charge::of(2)).await.expect("refund");
            assert!(back.is_allowed(), "{}", limit.name());
            assert_eq!(back.quota().used, 3, "{}", limit.name());
            assert!(take(limit, 2).await.is_allowed(), "{}", limit.name());
            let empty = limit.refund(A, Charge::of(100)).await.expect("refund");
            assert_eq!(empty.quota().used, 0, "{}", limit.name());
            if limit.name() == "fixed_window" {
                // What other programs read is never negative either.
                let held = command_text(&*subject.engine, &["GET", &key_of(subject, limit)]).await;
                assert_eq!(held.as_deref(), Some("0"));
            }
            assert_eq!(limit.refund(A, Charge::of(1)).await.expect("refund").quota().remaining, 5);
            assert!(take(limit, 5).await.is_allowed(), "{}", limit.name());
            assert!(!take(limit, 1).await.is_allowed(), "{}: a refund below zero gave credit", limit.name());
        }
    }

    async fn reset_forgets(subject: &Subject) {
        let quaymaster = four(subject, 3, "1h");
        for limit in each(&quaymaster) {
            assert!(take(limit, 3).await.is_allowed());
            let fresh = limit.reset(A, None).await.expect("reset");
            assert_eq!((fresh.quota().used, fresh.quota().remaining), (0, 3), "{}", limit.name());
            assert_eq!(command_int(&*subject.engine, &["EXISTS", &key_of(subject, limit)]).await, 0);
            assert!(take(limit, 3).await.is_allowed());
        }
    }

    async fn a_repeated_request_id_counts_once_and_gets_the_same_answer(subject: &Subject) {
        let quaymaster = four(subject, 10, "1h");
        for limit in each(&quaymaster) {
            let charge = Charge::of(2).request_id("r-1");
            let first = limit.take(A, charge).await.expect("take");
            assert!(limit.take(A, Charge::one()).await.expect("take").is_allowed());
            let again = limit.take(A, charge).await.expect("take");
            assert_eq!(first.quota().used, again.quota().used, "{}", limit.name());
            assert_eq!(limit.peek(A).await.expect("peek").quota().used, 3, "{}", limit.name());
            let conflict = limit.refund(A, charge).await.expect_err("another verb");
            assert_eq!(conflict.code, Code::RequestReused);
            let back = Charge::of(1).request_id("r-2");
            for _ in 0..3 {
                assert_eq!(limit.refund(A, back).await.expect("refund").quota().used, 2, "{}", limit.name());
            }
            for id in ["", "a{b", "new\nline", &"x".repeat(129)] {
                let error = limit.take(A, Charge::one().request_id(id)).await.expect_err("bad id");
                assert_eq!(error.code, Code::RequestInvalid);
            }
            assert_eq!(limit.peek(A).await.expect("peek").quota().used, 2, "{}", limit.name());
        }
    }

    async fn a_request_id_is_recognised_across_a_bucket_boundary(subject: &Subject) {
        let quaymaster = subject.schema(
            "[limit.minute]\nkey = \"m:{id}:{minute}\"\nalgorithm = \"fixed_window\"\nlimit = 5\nwindow = \"60s\"\n",
        );
        let limit = quaymaster.limit("minute").expect("declared");
        let charge = Charge::of(2).request_id("once");
        let first = limit.take(A, charge).await.expect("take");
        if subject.clock.is_some() {
            subject.pass(60_000).await;
            assert_eq!(limit.take(A, charge).await.expect("take").quota().used, first.quota().used);
            assert_eq!(limit.peek(A).await.expect("peek").quota().used, 0);
        } else {
            // Both buckets and the request's record must at least lie together.
            let again = limit.take(A, charge).await.expect("take");
            assert_eq!(again.quota().used, first.quota().used);
        }
    }

    async fn a_window_that_passed_counts_no_more(subject: &Subject) {
        let quaymaster = four(subject, 3, "400ms");
        for limit in each(&quaymaster) {
            at_window_start(subject, 400).await;
            assert!(take(limit, 3).await.is_allowed(), "{}", limit.name());
            assert!(!take(limit, 1).await.is_allowed(), "{}", limit.name());
            subject.pass(801).await;
            let fresh = limit.peek(A).await.expect("peek");
            assert_eq!(fresh.quota().used, 0, "{}", limit.name());
            assert!(take(limit, 3).await.is_allowed(), "{}", limit.name());
        }
    }

    async fn waiting_as_long_as_told_is_enough(subject: &Subject) {
        let quaymaster = four(subject, 4, "300ms");
        for limit in each(&quaymaster) {
            for cost in [1, 2, 4] {
                fill(limit).await;
                let wait = match take(limit, cost).await {
                    Verdict::Allowed(_) => continue,
                    Verdict::Limited { retry_after, .. } => retry_after.expect("waiting helps"),
                };
                subject.pass(i64::try_from(wait.as_millis()).expect("short")).await;
                assert!(take(limit, cost).await.is_allowed(), "{} {cost} after {wait:?}", limit.name());
            }
        }
    }

    async fn every_key_is_born_with_its_ttl(subject: &Subject) {
        let quaymaster = four(subject, 100, "1h");
        for limit in each(&quaymaster) {
            assert!(limit.take(A, Charge::one().request_id("ttl")).await.expect("take").is_allowed());
            let longest = if limit.name() == "sliding_window" { 7_200_000 } else { 3_600_000 };
            let ttl = command_int(&*subject.engine, &["PTTL", &key_of(subject, limit)]).await;
            assert!(ttl > 0 && ttl <= longest, "{}: {ttl}", limit.name());
            let request = format!("{}{{{}}}:req:ttl", subject.prefix, key_of(subject, limit));
            let ttl = command_int(&*subject.engine, &["PTTL", &request]).await;
            assert!(ttl > 0 && ttl <= 600_000, "{request}: {ttl}");
        }
    }

    async fn a_counter_that_lost_its_ttl_is_healed(subject: &Subject) {
        let quaymaster = four(subject, 3, "300ms");
        for limit in each(&quaymaster) {
            let key = key_of(subject, limit);
            fill(limit).await;
            command_int(&*subject.engine, &["PERSIST", &key]).await;
            let _ = take(limit, 1).await;
            subject.pass(901).await;
            assert!(take(limit, 1).await.is_allowed(), "{}: locked out for ever", limit.name());
            let ttl = command_int(&*subject.engine, &["PTTL", &key]).await;
            assert!(ttl > 0, "{}: {ttl}", limit.name());
        }
    }

    async fn another_type_or_another_value_is_an_error_that_names_it(subject: &Subject) {
        let quaymaster = four(subject, 3, "1h");
        for limit in each(&quaymaster) {
            let key = key_of(subject, limit);
            command_int(&*subject.engine, &["SADD", &key, "foreign"]).await;
            for error in [
                limit.take(A, Charge::one()).await.expect_err("wrong type"),
                limit.peek(A).await.expect_err("wrong type"),
                limit.refund(A, Charge::one()).await.expect_err("wrong type"),
            ] {
                assert_eq!(error.code, Code::KeyWrongType, "{}: {error}", limit.name());
            }
            assert_eq!(command_int(&*subject.engine, &["SCARD", &key]).await, 1);
            command_int(&*subject.engine, &["DEL", &key]).await;
            if matches!(limit.name(), "fixed_window" | "token_bucket") {
                for foreign in ["x", "1.5", "", "99999999999999999999"] {
                    command_text(&*subject.engine, &["SET", &key, foreign]).await;
                    let error = limit.take(A, Charge::one()).await.expect_err("malformed");
                    assert_eq!(error.code, Code::KeyMalformed, "{}: {error}", limit.name());
                    let held = command_text(&*subject.engine, &["GET", &key]).await;
                    assert_eq!(held.as_deref(), Some(foreign));
                }
            }
        }
    }

    async fn a_foreign_counter_counts(subject: &Subject) {
        let quaymaster = four(subject, 5, "1h");
        let limit = quaymaster.limit("fixed_window").expect("declared");
        let key = key_of(subject, limit);
        command_int(&*subject.engine, &["INCRBY", &key, "4"]).await;
        assert_eq!(take(limit, 1).await.quota().used, 5);
        assert!(!take(limit, 1).await.is_allowed());
        assert_eq!(command_text(&*subject.engine, &["GET", &key]).await.as_deref(), Some("5"));
        let log = quaymaster.limit("sliding_log").expect("declared");
        let now_ms = (subject.time_us().await / 1000).to_string();
        for member in ["f1", "f2"] {
            command_int(&*subject.engine, &["ZADD", &key_of(subject, log), &now_ms, member]).await;
        }
        assert_eq!(take(log, 1).await.quota().used, 3);
    }

    async fn several_limits_are_taken_together_or_not_at_all(subject: &Subject) {
        let quaymaster = subject.schema(&format!(
            "{}{}{}{}",
            "[limit.one]\nkey = \"t:one:{id}\"\nalgorithm = \"fixed_window\"\nlimit = 9\nwindow = \"1h\"\ncolocate = \"t\"\n",
            "[limit.two]\nkey = \"t:two:{id}\"\nalgorithm = \"sliding_log\"\nlimit = 2\nwindow = \"1h\"\ncolocate = \"t\"\n",
            "[limit.three]\nkey = \"t:three:{id}\"\nalgorithm = \"sliding_window\"\nlimit = 9\nwindow = \"1h\"\ncolocate = \"t\"\n",
            "[limit.four]\nkey = \"t:four:{id}\"\nalgorithm = \"token_bucket\"\nlimit = 9\nwindow = \"1h\"\ncolocate = \"t\"\n",
        ));
        let limits: Vec<&Limit> =
            ["one", "two", "three", "four"].iter().map(|name| quaymaster.limit(name).expect("declared")).collect();
        let parts: Vec<Part<'_>> = limits.iter().map(|limit| Part { limit, key: A, cost: 1 }).collect();
        for used in 1..=2 {
            let Together::Allowed(quotas) = take_all(&parts, None).await.expect("take_all") else {
                panic!("refused at {used}");
            };
            assert!(quotas.iter().all(|quota| quota.used == used), "{quotas:?}");
        }
        let Together::Limited(refused) = take_all(&parts, None).await.expect("take_all") else {
            panic!("passed over a limit");
        };
        let allowed: Vec<bool> = refused.iter().map(Verdict::is_allowed).collect();
        assert_eq!(allowed, [true, false, true, true]);
        for limit in &limits {
            assert_eq!(limit.peek(A).await.expect("peek").quota().used, 2, "{}", limit.name());
        }
        let _ = limits[1].reset(A, None).await.expect("reset");
        let first = take_all(&parts, Some("together")).await.expect("take_all");
        assert!(first.is_allowed());
        let again = take_all(&parts, Some("together")).await.expect("take_all");
        let used = |answer: &Together| match answer {
            Together::Allowed(quotas) => quotas.iter().map(|quota| quota.used).collect::<Vec<_>>(),
            Together::Limited(_) => panic!("a repeated call was refused"),
        };
        assert_eq!(used(&first), used(&again));
        assert_eq!(limits[0].peek(A).await.expect("peek").quota().used, 3, "a repeated call counted");
        let conflict = limits[0].take(A, Charge::one().request_id("together")).await.expect_err("another verb");
        assert_eq!(conflict.code, Code::RequestReused);
        let twice = [parts[0], parts[0]];
        assert_eq!(take_all(&twice, None).await.expect_err("same key").code, Code::RequestInvalid);
        assert!(take_all(&[], None).await.expect("none").is_allowed());
        let many = vec![parts[0]; 17];
        assert_eq!(take_all(&many, None).await.expect_err("too many").code, Code::RequestInvalid);
    }

    async fn a_refund_larger_than_the_limit_gives_all_of_it_back(subject: &Subject) {
        let quaymaster = four(subject, 10, "1h");
        let limit = quaymaster.limit("fixed_window").expect("declared");
        command_text(&*subject.engine, &["SET", &key_of(subject, limit), "100"]).await;
        let full = limit.refund(A, Charge::of(50)).await.expect("refund");
        assert_eq!(full.quota().used, 50);
        assert!(!full.is_allowed());
        assert!(full.retry_after().is_some_and(|wait| wait > Duration::from_secs(1)), "{full:?}");
        let log = quaymaster.limit("sliding_log").expect("declared");
        let now_ms = (subject.time_us().await / 1000).to_string();
        for member in 0..20 {
            command_int(&*subject.engine, &["ZADD", &key_of(subject, log), &now_ms, &member.to_string()]).await;
        }
        let full = log.refund(A, Charge::one()).await.expect("refund");
        assert_eq!(full.quota().used, 19);
        assert!(full.retry_after().is_some_and(|wait| wait > Duration::from_secs(60)), "{full:?}");
        let error = log.refund(A, Charge::of(10_001)).await.expect_err("too many for one call");
        assert_eq!(error.code, Code::ResourceMismatch);
    }

    async fn a_repeated_reset_gets_the_same_answer(subject: &Subject) {
        let quaymaster = subject.schema(
            "[limit.minute]\nkey = \"m:{id}:{minute}\"\nalgorithm = \"fixed_window\"\nlimit = 5\nwindow = \"60s\"\n",
        );
        let limit = quaymaster.limit("minute").expect("declared");
        let first = limit.reset(A, Some("again")).await.expect("reset");
        assert!(first.quota().reset_after > Duration::ZERO && first.quota().reset_after <= Duration::from_secs(60));
        subject.pass(if subject.clock.is_some() { 59_000 } else { 50 }).await;
        assert_eq!(limit.reset(A, Some("again")).await.expect("reset"), first);
    }

    async fn what_no_limit_wrote_is_malformed_and_what_another_clock_wrote_ends(subject: &Subject) {
        let quaymaster = four(subject, 3, "400ms");
        let engine = &*subject.engine;
        let window = quaymaster.limit("sliding_window").expect("declared");
        let start = (subject.time_us().await / 400_000 * 400).to_string();
        for count in ["nan", "inf", "-1000", "0x3", "1.5", "99999999999999999"] {
            command_int(engine, &["HSET", &key_of(subject, window), "start", &start, "current", count]).await;
            let error = window.take(A, Charge::one()).await.expect_err(count);
            assert_eq!(error.code, Code::KeyMalformed, "{count}: {error}");
        }
        let bucket = quaymaster.limit("token_bucket").expect("declared");
        command_text(engine, &["SET", &key_of(subject, bucket), "99999999999999999999999999:0"]).await;
        assert_eq!(bucket.take(A, Charge::one()).await.expect_err("too far").code, Code::KeyMalformed);
        let log = quaymaster.limit("sliding_log").expect("declared");
        for member in ["a", "b", "c"] {
            command_int(engine, &["ZADD", &key_of(subject, log), "inf", member]).await;
        }
        assert_eq!(log.take(A, Charge::one()).await.expect_err("never ends").code, Code::KeyMalformed);

        // A day ahead, and full: at most one window later there is room.
        let ahead_us = subject.time_us().await + 86_400_000_000;
        command_text(engine, &["SET", &key_of(subject, bucket), &format!("{ahead_us}:0")]).await;
        let ahead = (ahead_us / 400_000 * 400).to_string();
        let state = key_of(subject, window);
        command_int(engine, &["DEL", &state]).await;
        command_int(engine, &["HSET", &state, "start", &ahead, "current", "3", "previous", "0"]).await;
        let day_ms = (ahead_us / 1000).to_string();
        command_int(engine, &["DEL", &key_of(subject, log)]).await;
        for member in ["a", "b", "c"] {
            command_int(engine, &["ZADD", &key_of(subject, log), &day_ms, member]).await;
        }
        for limit in [bucket, window, log] {
            assert!(!take(limit, 1).await.is_allowed(), "{}", limit.name());
            subject.pass(801).await;
            assert!(take(limit, 1).await.is_allowed(), "{}: locked out by another clock", limit.name());
        }
    }

    async fn a_window_is_never_cut_short(subject: &Subject) {
        // Windows so short that calls fall into their first and last milliseconds all the time.
        let quaymaster = four(subject, 2, "10ms");
        let limit = quaymaster.limit("fixed_window").expect("declared");
        let mut began: Option<i64> = None;
        let mut windows = 0;
        for _ in 0..1_000_000 {
            let before = subject.time_us().await;
            let verdict = take(limit, 1).await;
            let after = subject.time_us().await;
            if verdict.is_allowed() && verdict.quota().used == 1 {
                if let Some(began) = began {
                    assert!(after - began >= 9_000, "two windows within {} µs", after - began);
                }
                began = Some(before);
                windows += 1;
            }
            if subject.clock.is_some() {
                subject.pass(1).await;
            }
            if windows > 30 {
                return;
            }
        }
        panic!("only {windows} windows");
    }

    async fn a_node_with_a_wrong_clock_counts_in_the_stores_hour(subject: &Subject) {
        let body = "[limit.hour]\nkey = \"h:{hour}\"\nalgorithm = \"fixed_window\"\nlimit = 5\nwindow = \"1h\"\nttl = \"2h\"\n";
        let honest = subject.schema(body);
        for offset_ms in [-7_200_000, 7_200_000, 3_600_000] {
            let liar = Subject {
                engine: Arc::new(Liar::new(subject.engine.clone(), offset_ms)),
                ..subject.clone()
            };
            let lying = liar.schema(body);
            let limit = lying.limit("hour").expect("declared");
            assert!(limit.take(&[], Charge::one()).await.expect("take").is_allowed());
            assert!(limit.counts().stale() > 0, "the bucket was never found stale");
        }
        assert_eq!(honest.limit("hour").expect("declared").peek(&[]).await.expect("peek").quota().used, 3);
    }

    async fn hostile_key_values_are_refused_and_nothing_is_written(subject: &Subject) {
        let quaymaster = four(subject, 5, "1h");
        let before = subject.engine.health().operations;
        let long = "x".repeat(513);
        for limit in each(&quaymaster) {
            for value in ["", "a*b", "a?b", "[", "]", "{", "}", "a\nb", "\u{7f}", "\u{0}", &long] {
                let error = limit.take(&[("id", value)], Charge::one()).await.expect_err("hostile");
                assert_eq!(error.code, Code::KeyValue, "{value:?}: {error}");
                assert!(error.detail.contains("id"), "{error}");
            }
            assert_eq!(limit.peek(&[]).await.expect_err("missing").code, Code::KeyMissing);
            let unknown = limit.peek(&[("id", "a"), ("idd", "b")]).await.expect_err("unknown");
            assert_eq!(unknown.code, Code::KeyUnknown);
        }
        assert_eq!(subject.engine.health().operations, before, "the store was asked");
    }

    async fn many_callers_never_get_more_than_the_limit(subject: &Subject) {
        let quaymaster = four(subject, 100, "1h");
        for limit in each(&quaymaster) {
            let callers = (0..32).map(|_| async {
                let mut allowed = 0;
                for _ in 0..10 {
                    allowed += u32::from(take(limit, 1).await.is_allowed());
                }
                allowed
            });
            let allowed: u32 = join_all(callers).await.into_iter().sum();
            // A token bucket of 100 an hour refills one in 36 s: none while this runs, or a few on a slow machine.
            if limit.name() == "token_bucket" {
                assert!((100..=103).contains(&allowed), "{allowed}");
            } else {
                assert_eq!(allowed, 100, "{}", limit.name());
            }
        }
    }

    async fn buckets_and_side_keys_share_a_slot_on_a_cluster(subject: &Subject) {
        let quaymaster = subject.schema(
            "[limit.minute]\nkey = \"s:{id}:{minute}\"\nalgorithm = \"fixed_window\"\nlimit = 50\nwindow = \"60s\"\n",
        );
        let limit = quaymaster.limit("minute").expect("declared");
        for id in 0..20 {
            let id = format!("u{id}");
            let charge = Charge::one().request_id(&id);
            assert!(limit.take(&[("id", &id)], charge).await.expect("one slot").is_allowed());
        }
        assert!(matches!(subject.engine.topology(), Topology::Single | Topology::Cluster));
    }
}
