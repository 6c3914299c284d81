//! What every run must do on every store: failures, runs without life, repetitions, what others leave behind.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use quaymaster::run::{Failure, FailuresAsk, Fields, Items, MAX_ERROR_BYTES, Outcome, RetryAsk, Run};
use quaymaster::{Code, Quaymaster};
use quaymaster_store::{Reply, Topology};

use super::run::{hash, range, run, runs, show, spelled, state_key};
use super::{Subject, command, command_int, command_text};

async fn all_failures(run: &Run, ask: FailuresAsk<'_>) -> Vec<Failure> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    for _ in 0..1000 {
        let page = run.failures(FailuresAsk { cursor: cursor.as_deref(), ..ask }).await.expect("failures");
        assert!(page.failures.len() as u64 <= ask.count);
        found.extend(page.failures);
        let Some(next) = page.next else { return found };
        cursor = Some(next);
    }
    panic!("the pages do not end")
}

fn names(failures: &[Failure]) -> BTreeSet<&str> {
    failures.iter().map(|failure| failure.item.as_str()).collect()
}

/// Every key of the case, by a scan.
async fn keys(subject: &Subject) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page =
            subject.engine.scan(format!("*{}*", subject.prefix).as_bytes(), 100, cursor).await.expect("scan");
        found.extend(page.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
        cursor = page.next;
        if cursor.is_none() {
            return found;
        }
    }
}

crate::cases! {
    async fn a_number_that_is_none_is_refused_by_name_and_bad_members_hide_nobody(subject: &Subject) {
        let quaymaster = runs(subject);
        let (engine, pipeline) = (&*subject.engine, run(&quaymaster, "pipeline"));
        let own = [("dag_run_id", "r")];
        let of = |role: &str| spelled(&quaymaster, "pipeline", role, &own, 0);
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        let _ = pipeline.failed("r", "x", Some("no"), None).await.expect("failed");
        pipeline.task_start("r", "t", None).await.expect("task");
        for (role, field, value) in [
            ("meta", "active_us", "nan"),
            ("meta", "start_us", "text"),
            ("meta", "bytes", "9007199254740992"),
            ("meta", "pulsed_us", "1e32"),
            ("meta", "ttl_ms", "-1"),
            ("meta", "peak_calls", "0x7"),
            ("failures", "x", "99999999999999999999 1 0 no"),
            ("tasks", "t", "text"),
        ] {
            let key = of(role);
            let held = command_text(engine, &["HGET", &key, field]).await;
            command_int(engine, &["HSET", &key, field, value]).await;
            let kept = hash(&quaymaster, &key).await;
            let errors = match role {
                "meta" => vec![
                    pipeline.processed("r", &["y"], None).await.expect_err("no number"),
                    pipeline.show("r", Items::With).await.expect_err("no number"),
                    pipeline.finish("r", "completed", None).await.expect_err("no number"),
                ],
                "failures" => vec![pipeline.failed("r", "x", None, None).await.expect_err("no number")],
                _ => vec![
                    pipeline.task_start("r", "t", None).await.expect_err("no number"),
                    pipeline.task_finish("r", "t", None).await.expect_err("no number"),
                ],
            };
            for error in errors {
                assert!(error.code == Code::KeyMalformed && error.detail.contains(&key), "{role} {field}: {error}");
            }
            assert_eq!(hash(&quaymaster, &key).await, kept, "{role} {field}");
            match held {
                Some(held) => command_int(engine, &["HSET", &key, field, &held]).await,
                None => command_int(engine, &["HDEL", &key, field]).await,
            };
        }
        for (role, score, member) in [("failed_at", "inf", "x2"), ("failed_at", "0.5", "x")] {
            command_int(engine, &["ZADD", &of(role), score, member]).await;
        }
        assert_eq!(pipeline.failures(FailuresAsk::default()).await.expect("failures").failures.len(), 1);
        for role in ["runs", "live"] {
            for (score, member) in [("inf", "r"), ("inf", ""), ("1e32", "ghost"), ("-1", "old"), ("0.5", "older")] {
                command_int(engine, &["ZADD", &spelled(&quaymaster, "pipeline", role, &[], 0), score, member]).await;
            }
        }
        let _ = pipeline.sweep().await.expect("sweep");
        let listed = pipeline.list(10, None).await.expect("list");
        assert!(listed.runs.iter().any(|run| run.run_id == "r"), "the sweep put it right: {listed:?}");
    }

    async fn a_failure_is_listed_with_error_and_attempts_until_it_is_processed(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        for attempt in 1..=3 {
            let told = pipeline.failed("r", "77", Some(&format!("HTTP 50{attempt}")), None).await.expect("failed");
            assert_eq!((told.listed, told.attempts, told.failed_count), (true, attempt, 1));
        }
        let told = pipeline.failed("r", "77", None, None).await.expect("failed");
        assert_eq!(told.attempts, 4, "the reason that is known stays");
        let _ = pipeline.failed("r", "78", None, None).await.expect("failed");
        let long = "ä".repeat(MAX_ERROR_BYTES);
        let _ = pipeline.failed("r", "79 with spaces", Some(&long), None).await.expect("failed");
        let found = all_failures(pipeline, FailuresAsk::default()).await;
        let told: Vec<(&str, &str, u64)> =
            found.iter().take(2).map(|one| (one.item.as_str(), one.error.as_str(), one.attempts)).collect();
        assert_eq!(told, [("77", "HTTP 503", 4), ("78", "", 1)]);
        assert_eq!((found[2].error.len(), found[2].error_cut, found[0].error_cut), (MAX_ERROR_BYTES, true, false));
        assert!(found.iter().all(|one| one.run_id == "r" && one.last_failed_us > 0));
        // The documented view: every failure of the hour, newest first.
        let view = spelled(&quaymaster, "pipeline", "failed", &[], found[2].last_failed_us);
        assert_eq!(range(&quaymaster, &view).await, ["79 with spaces", "78", "77", "77", "77", "77"]);
        let ttl = command_int(&*subject.engine, &["PTTL", &view]).await;
        assert!((7_000_000..=7_200_000).contains(&ttl), "{ttl}");
        let done = pipeline.processed("r", &["77"], None).await.expect("processed");
        assert_eq!((done.added, done.failed_count), (1, 2));
        assert_eq!(names(&all_failures(pipeline, FailuresAsk::default()).await), BTreeSet::from(["78", "79 with spaces"]));
        let late = pipeline.failed("r", "77", Some("late"), None).await.expect("failed");
        assert_eq!((late.listed, late.attempts, late.failed_count, late.processed_count), (false, 0, 2, 1));
        assert_eq!(range(&quaymaster, &view).await.len(), 6, "what is done does not fail");
    }

    async fn failures_are_found_by_hour_and_by_run_page_for_page(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        for id in ["a", "b", "c"] {
            let _ = pipeline.start(Some(id), None).await.expect("start");
        }
        let mut all = BTreeSet::new();
        for number in 0..40 {
            let (id, item) = (["a", "b", "c"][number % 3], format!("{number}"));
            let _ = pipeline.failed(id, &item, Some("e"), None).await.expect("failed");
            all.insert(item);
        }
        let hour = show(pipeline, "a").await.current_hour;
        for count in [1, 7, 13, 14, 40, 1000] {
            let found = all_failures(pipeline, FailuresAsk { count, ..FailuresAsk::default() }).await;
            assert_eq!(found.len(), 40, "none twice, {count} a page");
            assert_eq!(names(&found), all.iter().map(String::as_str).collect());
        }
        let of_hour = all_failures(pipeline, FailuresAsk { hour: Some(&hour), count: 9, ..FailuresAsk::default() }).await;
        assert_eq!(of_hour.len(), 40);
        let of_run = all_failures(pipeline, FailuresAsk { run_id: Some("b"), count: 5, ..FailuresAsk::default() }).await;
        assert_eq!(of_run.len(), 13);
        assert!(of_run.iter().all(|one| one.run_id == "b"));
        let before = FailuresAsk { hour: Some("2001-01-01_00"), ..FailuresAsk::default() };
        assert_eq!(all_failures(pipeline, before).await, []);
        for bad in [
            FailuresAsk { hour: Some("2024-13-01_00"), ..FailuresAsk::default() },
            FailuresAsk { hour: Some("now"), ..FailuresAsk::default() },
            FailuresAsk { cursor: Some("?"), ..FailuresAsk::default() },
            FailuresAsk { count: 0, ..FailuresAsk::default() },
            FailuresAsk { count: 1001, ..FailuresAsk::default() },
        ] {
            let code = if bad.cursor.is_some() { Code::CursorUnknown } else { Code::RequestInvalid };
            assert_eq!(pipeline.failures(bad).await.expect_err("refused").code, code, "{bad:?}");
        }
        let nobody = FailuresAsk { run_id: Some("d"), ..FailuresAsk::default() };
        assert_eq!(pipeline.failures(nobody).await.expect_err("no run").code, Code::RunMissing);
    }

    async fn failures_of_one_moment_are_all_found_however_many(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        let failed_at = spelled(&quaymaster, "pipeline", "failed_at", &[("dag_run_id", "r")], 0);
        for number in 0..300 {
            let item = number.to_string();
            let _ = pipeline.failed("r", &item, Some("e"), None).await.expect("failed");
            command_int(&*subject.engine, &["ZADD", &failed_at, "1700000000000", &item]).await;
        }
        for count in [50, 7, 1000] {
            let found = all_failures(pipeline, FailuresAsk { count, ..FailuresAsk::default() }).await;
            assert_eq!((found.len(), names(&found).len()), (300, 300), "{count} a page");
        }
    }

    async fn a_failure_is_handed_to_one_caller_until_its_lease_ends(subject: &Subject) {
        let nodes: Vec<Quaymaster> = (0..4).map(|_| runs(subject)).collect();
        let pipeline = run(&nodes[0], "pipeline");
        for id in ["a", "b"] {
            let _ = pipeline.start(Some(id), None).await.expect("start");
            for number in 0..20 {
                let _ = pipeline.failed(id, &format!("{id}{number}"), Some("e"), None).await.expect("failed");
            }
        }
        // Long enough for four callers on a busy machine to ask eight times each.
        let lease = Duration::from_secs(3);
        let asks = nodes.iter().map(|node| async move {
            let mut got = Vec::new();
            for _ in 0..8 {
                let ask = RetryAsk { count: 3, lease, ..RetryAsk::default() };
                got.extend(run(node, "pipeline").retry(ask).await.expect("retry"));
            }
            got
        });
        let got: Vec<Failure> = join_all(asks).await.into_iter().flatten().collect();
        assert_eq!((got.len(), names(&got).len()), (40, 40), "each to one of them");
        assert!(got.iter().all(|one| one.attempts == 1 && one.error == "e"));
        assert_eq!(all_failures(pipeline, FailuresAsk::default()).await.len(), 40, "they stay listed");
        // Two end: one is done, one fails again and may be tried again at once.
        let _ = pipeline.processed("a", &["a0"], None).await.expect("processed");
        let _ = pipeline.failed("b", "b7", Some("again"), None).await.expect("failed");
        let now = pipeline.retry(RetryAsk { count: 50, lease, ..RetryAsk::default() }).await.expect("retry");
        assert_eq!((now.len(), now[0].item.as_str(), now[0].attempts), (1, "b7", 2));
        subject.pass(3_100).await;
        let rest = pipeline.retry(RetryAsk { count: 50, run_id: Some("a"), ..RetryAsk::default() }).await.expect("retry");
        assert_eq!(rest.len(), 19, "the leases have ended");
        let bad = RetryAsk { request_id: Some("q"), ..RetryAsk::default() };
        assert_eq!(pipeline.retry(bad).await.expect_err("whose?").code, Code::RequestInvalid);
    }

    async fn a_run_without_a_sign_of_life_is_stale_until_the_next_one(subject: &Subject) {
        let quaymaster = runs(subject);
        let brief = run(&quaymaster, "brief");
        let key = |id: &str| spelled(&quaymaster, "brief", "state", &[("run_id", id)], 0);
        // What another program spoils comes first, and keeps no sweep from the others.
        let _ = brief.start(Some("broken"), None).await.expect("start");
        command_int(&*subject.engine, &["DEL", &key("broken")]).await;
        command_text(&*subject.engine, &["SET", &key("broken"), "x"]).await;
        for id in ["dies", "ends", "lives", "told"] {
            let _ = brief.start(Some(id), None).await.expect("start");
            let _ = brief.update(id, &Fields { status: Some("processing"), ..Fields::default() }, None).await.expect("set");
        }
        let _ = brief.processed("dies", &["1"], None).await.expect("processed");
        let _ = brief.finish("ends", "completed", None).await.expect("finish");
        command_int(&*subject.engine, &["HSET", &key("told"), "status", "completed"]).await;
        assert!(!brief.show("dies", Items::Without).await.expect("show").expect("a run").stale);
        assert_eq!(brief.sweep().await.expect("sweep").stale, 0);
        subject.pass(500).await;
        let _ = brief.processed("lives", &["1"], None).await.expect("processed");
        subject.pass(500).await;
        let dead = brief.show("dies", Items::Without).await.expect("show").expect("a run");
        assert_eq!((dead.stale, dead.status.as_str(), dead.over), (true, "stale", false));
        assert_eq!(hash(&quaymaster, &key("dies")).await["status"], "processing", "nobody has swept");
        let swept = brief.sweep().await.expect("sweep");
        assert!(swept.stale >= 1 && swept.known == 5, "{swept:?}");
        let seen = hash(&quaymaster, &key("dies")).await;
        assert_eq!((seen["status"].as_str(), seen["dockets_processed"].as_str()), ("stale", "[\"1\"]"));
        assert_eq!(hash(&quaymaster, &key("told")).await["status"], "completed", "another program says it has ended");
        let ended = brief.show("ends", Items::Without).await.expect("show").expect("a run");
        assert_eq!((ended.stale, ended.status.as_str()), (false, "completed"));
        let live = spelled(&quaymaster, "brief", "live", &[], 0);
        assert_eq!(command_text(&*subject.engine, &["ZSCORE", &live, "dies"]).await, None, "no sweep looks at it again");
        if subject.clock.is_some() {
            assert_eq!(swept.stale, 1, "the one that lives is not stale");
            assert_eq!(brief.sweep().await.expect("sweep").stale, 0);
            assert!(!show(brief, "lives").await.stale);
        }
        let _ = brief.processed("dies", &["2"], None).await.expect("processed");
        let seen = hash(&quaymaster, &key("dies")).await;
        assert_eq!(seen["status"], "processing", "what it was");
        let back = brief.show("dies", Items::With).await.expect("show").expect("a run");
        assert_eq!((back.stale, back.processed_count), (false, 2));
        subject.pass(900).await;
        let _ = brief.sweep().await.expect("sweep");
        assert_eq!(hash(&quaymaster, &key("dies")).await["status"], "stale", "and again");
    }

    async fn runs_are_listed_by_last_activity_and_forgotten_with_their_state(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let ids: Vec<String> = (0..7).map(|number| format!("r{number}")).collect();
        for id in &ids {
            let _ = pipeline.start(Some(id), None).await.expect("start");
            subject.pass(2).await;
        }
        let _ = pipeline.failed("r2", "x", None, None).await.expect("failed");
        let (mut found, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = pipeline.list(2, cursor.as_deref()).await.expect("list");
            found.extend(page.runs.into_iter().map(|run| run.run_id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, ["r2", "r6", "r5", "r4", "r3", "r1", "r0"]);
        command_int(&*subject.engine, &["DEL", &state_key(&quaymaster, "r4")]).await;
        let meta = spelled(&quaymaster, "pipeline", "meta", &[("dag_run_id", "r4")], 0);
        command_int(&*subject.engine, &["DEL", &meta]).await;
        assert_eq!(pipeline.list(100, None).await.expect("list").runs.len(), 6);
        let index = spelled(&quaymaster, "pipeline", "runs", &[], 0);
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &index]).await, 6, "forgotten");
        command_int(&*subject.engine, &["ZADD", &index, "1", "ancient"]).await;
        assert_eq!(pipeline.sweep().await.expect("sweep").forgotten, 1);
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &index]).await, 6, "and so is what nobody asks for");
        for bad in [(0, None), (1001, None), (1, Some("x")), (1, Some("1-x"))] {
            let code = if bad.1.is_some() { Code::CursorUnknown } else { Code::RequestInvalid };
            assert_eq!(pipeline.list(bad.0, bad.1).await.expect_err("refused").code, code, "{bad:?}");
        }
    }

    async fn every_key_of_a_run_has_an_end(subject: &Subject) {
        let quaymaster = runs(subject);
        let brief = run(&quaymaster, "brief");
        let _ = brief.start(None, Some("q0")).await.expect("start");
        let _ = brief.start(Some("r"), Some("q1")).await.expect("start");
        let _ = brief.processed("r", &["1"], Some("q2")).await.expect("processed");
        let _ = brief.failed("r", "2", Some("e"), Some("q3")).await.expect("failed");
        let _ = brief.task_start("r", "t", Some("q4")).await.expect("task_start");
        let _ = brief.task_finish("r", "t", Some("q5")).await.expect("task_finish");
        let _ = brief.update("r", &Fields { own: &[("a", "b")], ..Fields::default() }, Some("q6")).await.expect("update");
        let _ = brief.retry(RetryAsk { run_id: Some("r"), request_id: Some("q7"), ..RetryAsk::default() }).await.expect("retry");
        let _ = brief.finish("r", "completed", Some("q8")).await.expect("finish");
        // Keys that a call without a pulse makes.
        let _ = brief.start(Some("s"), None).await.expect("start");
        let _ = brief.processed("s", &["1"], None).await.expect("processed");
        let found = keys(subject).await;
        assert!(found.len() >= 20, "{found:?}");
        for key in &found {
            assert!(quaymaster.schema().explain(key.as_bytes()).is_some(), "{key} is declared nowhere");
            let ttl = command_int(&*subject.engine, &["PTTL", key]).await;
            let index = key.ends_with(":runs") || key.ends_with(":live");
            assert!(ttl > 0 || (index && ttl == -1), "{key} {ttl}");
        }
        subject.pass(4_100).await;
        assert_eq!(brief.show("r", Items::Without).await.expect("show"), None);
        let swept = brief.sweep().await.expect("sweep");
        assert_eq!(swept.stale, 0, "{swept:?}");
        assert_eq!(brief.list(10, None).await.expect("list").runs, []);
        let left: Vec<String> = keys(subject).await.into_iter().filter(|key| !key.contains(":req:") && !key.contains(":start:") && !key.contains("failed")).collect();
        assert_eq!(left, Vec::<String>::new());
        // Its request is still known, and it is begun anew all the same.
        let anew = brief.start(Some("r"), Some("q1")).await.expect("start");
        assert_eq!((anew.outcome, anew.run.status.as_str(), anew.run.processed_count), (Outcome::Started, "running", 0));
        assert_eq!(brief.finish("r", "completed", Some("q8")).await.expect("finish").run_id, "r");
    }

    async fn a_call_that_is_repeated_under_its_id_is_answered_the_same_and_done_once(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let first = pipeline.start(None, Some("q")).await.expect("start");
        let again = pipeline.start(None, Some("q")).await.expect("start");
        assert_eq!((first.outcome, again.outcome), (Outcome::Started, Outcome::Started));
        assert_eq!(again.run.run_id, first.run.run_id);
        let other = pipeline.start(None, None).await.expect("start");
        assert_ne!(other.run.run_id, first.run.run_id);
        let _ = pipeline.start(Some("r"), Some("s")).await.expect("start");
        assert_eq!(pipeline.start(Some("r"), Some("s")).await.expect("start").outcome, Outcome::Started);
        for _ in 0..2 {
            let told = pipeline.processed("r", &["1", "2"], Some("p")).await.expect("processed");
            assert_eq!((told.added, told.processed_count), (2, 2));
            let told = pipeline.failed("r", "3", Some("e"), Some("f")).await.expect("failed");
            assert_eq!((told.attempts, told.failed_count), (1, 1));
            let ask = RetryAsk { run_id: Some("r"), request_id: Some("y"), ..RetryAsk::default() };
            assert_eq!(pipeline.retry(ask).await.expect("retry").len(), 1, "the same item");
        }
        assert_eq!(pipeline.retry(RetryAsk::default()).await.expect("retry"), [], "to one caller");
        let view = spelled(&quaymaster, "pipeline", "failed", &[], subject.time_us().await);
        assert_eq!(range(&quaymaster, &view).await, ["3"], "the view has it once");
        let began = pipeline.task_start("r", "t", Some("t1")).await.expect("task_start");
        let took = pipeline.task_finish("r", "t", Some("t2")).await.expect("task_finish");
        subject.pass(5).await;
        assert_eq!(pipeline.task_start("r", "t", Some("t1")).await.expect("again"), began);
        assert_eq!(pipeline.task_finish("r", "t", Some("t2")).await.expect("again"), took);
        let set = Fields { status: Some("one"), ..Fields::default() };
        let _ = pipeline.update("r", &set, Some("u1")).await.expect("update");
        let _ = pipeline.update("r", &Fields { status: Some("two"), ..Fields::default() }, Some("u2")).await.expect("update");
        assert_eq!(pipeline.update("r", &set, Some("u1")).await.expect("again").status, "two", "not set back");
        let clash = pipeline.processed("r", &["9"], Some("f")).await.expect_err("another verb");
        assert_eq!(clash.code, Code::RequestReused);
        let _ = pipeline.finish("r", "completed", Some("z")).await.expect("finish");
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        assert_eq!(pipeline.finish("r", "completed", Some("z")).await.expect("again").status, "running", "not ended again");
    }

    async fn a_run_that_another_program_began_is_taken_over_with_its_items(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let engine = &*subject.engine;
        for (id, list) in [("py", "['12345', '12346', '12347']"), ("js", "[\"12345\",12346,\"12347\"]")] {
            let key = state_key(&quaymaster, id);
            for (name, value) in [("dag_run_id", id), ("status", "processing"), ("start_time", "2024-09-17T14:30:00.123456"), ("dockets_processed", list), ("theirs", "x")] {
                command_int(engine, &["HSET", &key, name, value]).await;
            }
            assert_eq!(pipeline.remaining(id, &["12346", "12348"]).await.expect("remaining"), ["12348"]);
            let told = pipeline.processed(id, &["12347", "12348"], None).await.expect("processed");
            assert_eq!((told.added, told.processed_count), (1, 4));
            let state = show(pipeline, id).await;
            assert_eq!((state.status.as_str(), state.start_time.as_str()), ("processing", "2024-09-17T14:30:00.123456"));
            let seen = hash(&quaymaster, &key).await;
            assert_eq!(seen["dockets_processed"], "[\"12345\",\"12346\",\"12347\",\"12348\"]");
            assert_eq!(seen["theirs"], "x");
            assert!(command_int(engine, &["PTTL", &key]).await > 0, "it has an end now");
        }
        let key = state_key(&quaymaster, "odd");
        command_int(engine, &["HSET", &key, "dockets_processed", "twelve"]).await;
        assert_eq!(pipeline.start(Some("odd"), None).await.expect_err("no list").code, Code::KeyMalformed);
        assert_eq!(hash(&quaymaster, &key).await["dockets_processed"], "twelve", "and not overwritten");
        let key = state_key(&quaymaster, "other");
        command_text(engine, &["SET", &key, "x"]).await;
        assert_eq!(pipeline.start(Some("other"), None).await.expect_err("a string").code, Code::KeyWrongType);
        // One that is spoiled keeps nobody from the others.
        let _ = pipeline.failed("py", "x", None, None).await.expect("failed");
        command_int(engine, &["DEL", &state_key(&quaymaster, "js")]).await;
        command_text(engine, &["SET", &state_key(&quaymaster, "js"), "x"]).await;
        let listed = pipeline.list(10, None).await.expect("list");
        assert_eq!(listed.runs.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), ["py"]);
        assert_eq!(pipeline.retry(RetryAsk::default()).await.expect("retry").len(), 1);
        let _ = pipeline.sweep().await.expect("sweep");
        // A status that another program sets ends a run too: it is not stale, and a start reopens it.
        let _ = pipeline.start(Some("done"), None).await.expect("start");
        command_int(engine, &["HSET", &state_key(&quaymaster, "done"), "status", "completed"]).await;
        assert!(show(pipeline, "done").await.over);
        assert_eq!(pipeline.start(Some("done"), None).await.expect("start").run.status, "running");
    }

    async fn what_cannot_be_is_refused_before_anything_is_written(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        let long = "x".repeat(513);
        let many: Vec<&str> = vec!["x"; 1001];
        let code = |told: quaymaster::Result<_>| told.map(|_: quaymaster::run::Processed| ()).expect_err("refused").code;
        for items in [&[][..], &[""], &["a", ""], &[&long], &many] {
            assert_eq!(code(pipeline.processed("r", items, None).await), Code::RequestInvalid);
        }
        assert_eq!(pipeline.failed("r", "", None, None).await.expect_err("empty").code, Code::RequestInvalid);
        for status in ["", " ", "stale", "a\nb", &"s".repeat(65)] {
            let code = if status == "stale" { Code::RunField } else { Code::RequestInvalid };
            assert_eq!(pipeline.finish("r", status, None).await.expect_err("status").code, code);
        }
        for id in ["", "a*", "a{b}", "a\nb", &long] {
            assert_eq!(pipeline.start(Some(id), None).await.expect_err("id").code, Code::KeyValue, "{id:?}");
        }
        assert_eq!(pipeline.task_start("r", "a:b", None).await.expect_err("task").code, Code::KeyValue);
        assert_eq!(pipeline.processed("r", &["x"], Some("")).await.expect_err("request").code, Code::RequestInvalid);
        for told in [
            pipeline.processed("s", &["x"], None).await.map(drop),
            pipeline.failed("s", "x", None, None).await.map(drop),
            pipeline.finish("s", "completed", None).await.map(drop),
            pipeline.task_start("s", "t", None).await.map(drop),
            pipeline.task_finish("s", "t", None).await.map(drop),
            pipeline.update("s", &Fields { status: Some("x"), ..Fields::default() }, None).await.map(drop),
            pipeline.retry(RetryAsk { run_id: Some("s"), ..RetryAsk::default() }).await.map(drop),
        ] {
            assert_eq!(told.expect_err("no run").code, Code::RunMissing);
        }
        assert_eq!(pipeline.show("s", Items::With).await.expect("show"), None);
        assert_eq!(show(pipeline, "r").await.processed_count, 0);
    }

    async fn the_hour_is_the_stores_whatever_the_nodes_clock_says(subject: &Subject) {
        let right = runs(subject);
        for (id, lie_ms) in [("ahead", 3_600_000), ("behind", -3_600_000)] {
            let lying = std::sync::Arc::new(crate::liar::Liar::new(subject.engine.clone(), lie_ms));
            let wrong = Quaymaster::new(right.schema().clone(), lying);
            let started = run(&wrong, "pipeline").start(Some(id), None).await.expect("start");
            let state = show(run(&right, "pipeline"), id).await;
            assert_eq!(started.run.current_hour, state.current_hour, "{id}");
            let _ = run(&wrong, "pipeline").failed(id, id, None, None).await.expect("failed");
            let view = spelled(&right, "pipeline", "failed", &[], subject.time_us().await);
            assert_eq!(range(&right, &view).await[0], id);
            let ask = FailuresAsk { hour: Some(&state.current_hour), run_id: Some(id), ..FailuresAsk::default() };
            assert_eq!(all_failures(run(&right, "pipeline"), ask).await.len(), 1);
        }
    }

    async fn what_adding_an_item_costs_does_not_grow_with_the_run(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        let all: Vec<String> = (0..20_000).map(|number| format!("docket-{number:08}")).collect();
        for chunk in all.chunks(1000) {
            let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
            let _ = pipeline.processed("r", &chunk, None).await.expect("processed");
        }
        // What one more item writes is a piece of the list, which no run makes longer.
        let list = spelled(&quaymaster, "pipeline", "list", &[("dag_run_id", "r")], 0);
        let _ = pipeline.processed("r", &["one more"], None).await.expect("processed");
        let words: [&[u8]; 3] = [b"LINDEX", list.as_bytes(), b"-1"];
        let Reply::Bytes(tail) = command(&*subject.engine, list.as_bytes(), &words).await.expect("a piece") else {
            panic!("no piece")
        };
        assert!(tail.len() <= 4096, "{}", tail.len());
        let longest = range(&quaymaster, &list).await.iter().map(String::len).max().unwrap_or(0);
        assert!(longest <= 16_384, "{longest}");
        assert_eq!(show(pipeline, "r").await.items.expect("the list").to_vec().len(), 20_001);
        assert!(subject.engine.topology() == Topology::Single || list.contains("{r}"));
    }
}
