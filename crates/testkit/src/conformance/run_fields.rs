//! What every run must do on every store: the names in its hash, how long it is kept, its busiest hour.

use std::time::Duration;

use quaymaster::Code;
use quaymaster::limit::Charge;
use quaymaster::run::{Fields, Items, MAX_KEPT, Outcome, StartAsk};

use super::command_int;
use super::run::{hash, run, runs, show, spelled};

crate::cases! {
    async fn the_hash_has_the_names_of_the_schema_and_answers_have_their_own(subject: &Subject) {
        let quaymaster = runs(subject);
        let (engine, named) = (&*subject.engine, run(&quaymaster, "named"));
        let key = spelled(&quaymaster, "named", "state", &[("job", "r")], 0);
        let _ = named.start(Some("r"), None).await.expect("start");
        let _ = named.processed("r", &["1", "2"], None).await.expect("processed");
        let calls = quaymaster.limit("calls").expect("declared");
        assert!(calls.take(&[], Charge::of(3)).await.expect("take").is_allowed());
        let state = show(named, "r").await;
        assert_eq!((state.calls_this_hour, state.items.expect("the list").to_vec()), (3, vec!["1".into(), "2".into()]));
        let seen = hash(&quaymaster, &key).await;
        let names: Vec<&str> = seen.keys().map(String::as_str).collect();
        assert_eq!(names, ["calls", "current_hour", "job", "pages.done", "redis_keys", "start_time", "status"]);
        assert_eq!((seen["calls"].as_str(), seen["pages.done"].as_str()), ("3", "[\"1\",\"2\"]"));
        // What is rendered is not the caller's; the names of other schemas are.
        for (name, code) in [("calls", Some(Code::RunField)), ("pages.done", Some(Code::RunField)), ("api_calls_this_hour", None)] {
            let set = Fields { own: &[(name, "7")], ..Fields::default() };
            let told = named.update("r", &set, None).await;
            assert_eq!(told.err().map(|error| error.code), code, "{name}");
        }
        let _ = named.processed("r", &["3"], None).await.expect("processed");
        assert!(calls.take(&[], Charge::of(2)).await.expect("take").is_allowed());
        let _ = named.finish("r", "completed", None).await.expect("finish");
        let seen = hash(&quaymaster, &key).await;
        assert_eq!((seen["calls"].as_str(), seen["pages.done"].as_str()), ("5", "[\"1\",\"2\",\"3\"]"));
        // A run that another program began under these names.
        let key = spelled(&quaymaster, "named", "state", &[("job", "theirs")], 0);
        for (name, value) in [("job", "theirs"), ("status", "processing"), ("pages.done", "['7', '8']")] {
            command_int(engine, &["HSET", &key, name, value]).await;
        }
        let state = named.show("theirs", Items::With).await.expect("show").expect("a run");
        assert_eq!(state.items.expect("the list").to_vec(), ["7", "8"]);
    }

    async fn a_run_is_kept_as_long_as_its_start_said(subject: &Subject) {
        let quaymaster = runs(subject);
        let (engine, brief) = (&*subject.engine, run(&quaymaster, "brief"));
        let ask = |run_id, seconds| StartAsk {
            run_id: Some(run_id),
            kept: Some(Duration::from_secs(seconds)),
            ..StartAsk::default()
        };
        let of = |role: &str, id: &str| spelled(&quaymaster, "brief", role, &[("run_id", id)], 0);
        let long = brief.start_as(ask("long", 3600)).await.expect("start");
        assert_eq!(long.outcome, Outcome::Started);
        let _ = brief.processed("long", &["1"], None).await.expect("processed");
        brief.task_start("long", "t", None).await.expect("task");
        let _ = brief.start(Some("short"), None).await.expect("start");
        // Keys that are made between two pulses have that life too.
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start_as(ask("day", 30 * 3600)).await.expect("start");
        let _ = pipeline.processed("day", &["1"], None).await.expect("processed");
        for role in ["processed", "list"] {
            let key = spelled(&quaymaster, "pipeline", role, &[("dag_run_id", "day")], 0);
            assert!(command_int(engine, &["PTTL", &key]).await > 29 * 3_600_000, "{key}");
        }
        let task = spelled(&quaymaster, "brief", "task", &[("run_id", "long"), ("task_id", "t")], 0);
        for key in [of("state", "long"), of("meta", "long"), of("processed", "long"), of("list", "long"), task] {
            let ttl = command_int(engine, &["PTTL", &key]).await;
            assert!((3_500_000..=3_600_000).contains(&ttl), "{key} {ttl}");
        }
        let kept = spelled(&quaymaster, "brief", "kept", &[], 0);
        assert_eq!(command_int(engine, &["ZCARD", &kept]).await, 1);
        // The schema keeps a run for four seconds, and the list has what there is.
        subject.pass(4_100).await;
        assert_eq!(brief.show("short", Items::Without).await.expect("show"), None);
        let _ = brief.sweep().await.expect("sweep");
        let listed = brief.list(10, None).await.expect("list").runs;
        assert_eq!(listed.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), ["long"]);
        // A sign of life, and a start that says nothing, leave it its time; another start changes it.
        let _ = brief.start(Some("long"), None).await.expect("start");
        let ttl = command_int(engine, &["PTTL", &of("state", "long")]).await;
        assert!((3_500_000..=3_600_000).contains(&ttl), "{ttl}");
        assert_eq!(brief.start_as(ask("long", 2)).await.expect("start").outcome, Outcome::Resumed);
        let ttl = command_int(engine, &["PTTL", &of("state", "long")]).await;
        assert!((1..=2000).contains(&ttl), "{ttl}");
        subject.pass(2_100).await;
        // Begun anew under its id, it is kept as long as the schema says.
        assert_eq!(brief.start(Some("long"), None).await.expect("start").outcome, Outcome::Started);
        let ttl = command_int(engine, &["PTTL", &of("state", "long")]).await;
        assert!((2001..=4000).contains(&ttl), "{ttl}");
        assert_eq!(command_int(engine, &["ZCARD", &kept]).await, 0);
    }

    async fn the_index_forgets_a_run_when_its_own_time_is_over(subject: &Subject) {
        if subject.clock.is_none() {
            return;
        }
        let quaymaster = runs(subject);
        let brief = run(&quaymaster, "brief");
        for (id, hours) in [("a", 1), ("b", 2), ("c", 0)] {
            let kept = (hours > 0).then(|| Duration::from_secs(hours * 3600));
            let _ = brief.start_as(StartAsk { run_id: Some(id), kept, ..StartAsk::default() }).await.expect("start");
        }
        let mut known = Vec::new();
        for ms in [1000, 64_000, 3_600_000, 3_600_000] {
            subject.pass(ms).await;
            known.push(brief.sweep().await.expect("sweep").known);
        }
        assert_eq!(known, [3, 2, 1, 0]);
    }

    async fn a_time_that_no_run_can_have_is_refused(subject: &Subject) {
        let quaymaster = runs(subject);
        let brief = run(&quaymaster, "brief");
        for (kept, code) in [
            (Duration::ZERO, Code::RequestInvalid),
            (MAX_KEPT + Duration::from_secs(1), Code::RequestInvalid),
            (Duration::from_millis(800), Code::ResourceMismatch),
        ] {
            let ask = StartAsk { run_id: Some("r"), kept: Some(kept), ..StartAsk::default() };
            let error = brief.start_as(ask).await.expect_err("refused");
            assert_eq!((error.code, error.field.as_deref()), (code, Some("ttl_hours")), "{kept:?}");
        }
        assert_eq!(brief.show("r", Items::Without).await.expect("show"), None);
    }

    async fn the_busiest_hour_of_a_run_stays_known(subject: &Subject) {
        let Some(clock) = &subject.clock else { return };
        let quaymaster = runs(subject);
        let (pipeline, calls) = (run(&quaymaster, "pipeline"), quaymaster.limit("calls").expect("declared"));
        let take = async |cost| assert!(calls.take(&[], Charge::of(cost)).await.expect("take").is_allowed());
        let begun = pipeline.start(Some("r"), None).await.expect("start").run;
        assert_eq!((begun.peak_calls, begun.peak_hour.as_deref()), (0, Some(begun.current_hour.as_str())));
        take(7).await;
        let busy = show(pipeline, "r").await;
        assert_eq!((busy.peak_calls, busy.peak_hour.as_deref()), (7, Some(busy.current_hour.as_str())));
        clock.fetch_add(3_600_000_000, std::sync::atomic::Ordering::SeqCst);
        take(3).await;
        let calm = show(pipeline, "r").await;
        assert_eq!((calm.calls_this_hour, calm.peak_calls, &calm.peak_hour), (3, 7, &busy.peak_hour));
        assert_ne!(calm.current_hour, busy.current_hour);
        take(5).await;
        let ended = pipeline.finish("r", "completed", None).await.expect("finish");
        assert_eq!((ended.peak_calls, ended.peak_hour), (8, Some(ended.current_hour)));
        take(5).await;
        assert_eq!(show(pipeline, "r").await.peak_calls, 8, "it counted until its end");
    }
}
