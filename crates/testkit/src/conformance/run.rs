//! What every run must do on every store.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use quaymaster::limit::Charge;
use quaymaster::run::{Fields, Items, Outcome, Run, RunState};
use quaymaster::{Code, Quaymaster};
use quaymaster_schema::{Kind, Spelling};
use quaymaster_store::{Reply, Topology};
use serde_json::{Value, json};

use super::{Subject, command, command_int, command_text};

/// `pipeline` as the document has it; `brief` is stale and forgotten within a test; `slid` counts by another algorithm; `named`
/// has names of its own in its hash.
pub(super) fn runs(subject: &Subject) -> Quaymaster {
    subject.schema(
        "[limit.calls]\nkey = \"rate_limit:{hour}\"\nalgorithm = \"fixed_window\"\nlimit = 100\nwindow = \"1h\"\nttl = \"2h\"\n\
         [limit.sliding]\nkey = \"sliding\"\nalgorithm = \"sliding_log\"\nlimit = 100\nwindow = \"1h\"\n\
         [run.pipeline]\nkey = \"pipeline:{dag_run_id}\"\ntask_key = \"task_start:{dag_run_id}:{task_id}\"\n\
         failed_key = \"failed:{hour}\"\nstate_ttl = \"25h\"\nhour_ttl = \"2h\"\nlimit = \"calls\"\n\
         [run.brief]\nkey = \"brief:{run_id}\"\ntask_key = \"brief_task:{run_id}:{task_id}\"\n\
         failed_key = \"brief_failed:{hour}\"\nstate_ttl = \"4s\"\nhour_ttl = \"2h\"\nstale_after = \"800ms\"\n\
         [run.slid]\nkey = \"slid:{run_id}\"\ntask_key = \"slid_task:{run_id}:{task_id}\"\n\
         failed_key = \"slid_failed:{hour}\"\nstate_ttl = \"1h\"\nhour_ttl = \"2h\"\nlimit = \"sliding\"\n\
         [run.named]\nkey = \"named:{job}\"\ntask_key = \"named_task:{job}:{task_id}\"\n\
         failed_key = \"named_failed:{hour}\"\nstate_ttl = \"1h\"\nhour_ttl = \"2h\"\nlimit = \"calls\"\n\
         calls_field = \"calls\"\nprocessed_field = \"pages.done\"\n",
    )
}

pub(super) fn run<'q>(quaymaster: &'q Quaymaster, name: &str) -> &'q Run {
    quaymaster.run(name).expect("declared")
}

/// A key as this store spells it.
pub(super) fn spelled(
    quaymaster: &Quaymaster,
    name: &str,
    role: &str,
    values: &[(&str, &str)],
    now_us: i64,
) -> String {
    let spelling = match quaymaster.engine().topology() {
        Topology::Single => Spelling::Single,
        Topology::Cluster => Spelling::Cluster,
    };
    let mut key = Vec::new();
    let resource = quaymaster.schema().resource(Kind::Run, name).expect("declared");
    resource.key(role).expect("a role").pattern.render(values, now_us, spelling, &mut key).expect("a key");
    String::from_utf8(key).expect("text")
}

pub(super) fn state_key(quaymaster: &Quaymaster, id: &str) -> String {
    spelled(quaymaster, "pipeline", "state", &[("dag_run_id", id)], 0)
}

/// What a foreign `HGETALL` sees.
pub(super) async fn hash(quaymaster: &Quaymaster, key: &str) -> BTreeMap<String, String> {
    let words: [&[u8]; 2] = [b"HGETALL", key.as_bytes()];
    let Reply::Array(words) = command(&**quaymaster.engine(), key.as_bytes(), &words).await.expect("a hash")
    else {
        panic!("no hash")
    };
    let text = |reply: &Reply| match reply {
        Reply::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?}"),
    };
    words.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

pub(super) async fn range(quaymaster: &Quaymaster, key: &str) -> Vec<String> {
    let words: [&[u8]; 4] = [b"LRANGE", key.as_bytes(), b"0", b"-1"];
    let Reply::Array(items) = command(&**quaymaster.engine(), key.as_bytes(), &words).await.expect("a list")
    else {
        panic!("no list")
    };
    items
        .iter()
        .map(|item| match item {
            Reply::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        })
        .collect()
}

pub(super) async fn show(run: &Run, id: &str) -> RunState {
    run.show(id, Items::With).await.expect("show").expect("a run")
}

fn items(state: &RunState) -> Vec<String> {
    state.items.as_ref().expect("the list").to_vec()
}

const ID: &str = "manual_2024-09-17T14:30:00+00:00";

crate::cases! {
    async fn a_run_is_the_documented_hash_that_other_programs_read(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let started = pipeline.start(Some(ID), None).await.expect("start");
        assert_eq!(started.outcome, Outcome::Started);
        let _ = pipeline.processed(ID, &["12345", "12346"], None).await.expect("processed");
        let state = show(pipeline, ID).await;
        let key = state_key(&quaymaster, ID);
        if subject.engine.topology() == Topology::Single {
            assert_eq!(key, format!("{}pipeline:{ID}", subject.prefix));
        }
        let seen = hash(&quaymaster, &key).await;
        let names: Vec<&str> = seen.keys().map(String::as_str).collect();
        let documented = [
            "api_calls_this_hour", "current_hour", "dag_run_id", "dockets_processed", "redis_keys", "start_time", "status",
        ];
        assert_eq!(names, documented);
        assert_eq!(seen["dag_run_id"], ID);
        assert_eq!(seen["status"], "running");
        assert_eq!(seen["api_calls_this_hour"], "0");
        assert_eq!(seen["dockets_processed"], "[\"12345\",\"12346\"]");
        assert_eq!(seen["start_time"], state.start_time);
        assert_eq!(seen["current_hour"], state.current_hour);
        assert_eq!((seen["start_time"].len(), &seen["start_time"][10..11]), (26, "T"));
        assert_eq!(seen["current_hour"].len(), 13);
        let keys: Value = serde_json::from_str(&seen["redis_keys"]).expect("JSON");
        assert_eq!(keys["state_key"], json!(key));
        assert_eq!(keys["failed_key"], json!(spelled(&quaymaster, "pipeline", "failed", &[], state.started_us)));
        assert!(keys["counter_key"].as_str().is_some_and(|key| key.contains("rate_limit")));
        let ttl = command_int(&*subject.engine, &["PTTL", &key]).await;
        assert!((89_000_000..=90_000_000).contains(&ttl), "{ttl}");
        let since = subject.time_us().await - state.started_us;
        assert!((0..60_000_000).contains(&since), "{since}");
    }

    async fn the_calls_of_the_hour_are_the_limits_own(subject: &Subject) {
        let quaymaster = runs(subject);
        for (name, limit) in [("pipeline", "calls"), ("slid", "sliding")] {
            let (run, limit) = (run(&quaymaster, name), quaymaster.limit(limit).expect("declared"));
            let _ = run.start(Some("r"), None).await.expect("start");
            for _ in 0..7 {
                assert!(limit.take(&[], Charge::one()).await.expect("take").is_allowed());
            }
            assert_eq!(show(run, "r").await.calls_this_hour, 7, "{name}");
            let over = limit.take(&[], Charge::of(99)).await.expect("take");
            assert!(!over.is_allowed());
            assert_eq!(show(run, "r").await.calls_this_hour, 7, "what was refused is no call");
        }
        let seen = hash(&quaymaster, &state_key(&quaymaster, "r")).await;
        assert_eq!(seen["api_calls_this_hour"], "7", "in the hash too");
        let ended = run(&quaymaster, "pipeline").finish("r", "completed", None).await.expect("finish");
        assert_eq!(ended.calls_this_hour, 7);
        let more = quaymaster.limit("calls").expect("declared").take(&[], Charge::one()).await.expect("take");
        assert!(more.is_allowed());
        assert_eq!(show(run(&quaymaster, "pipeline"), "r").await.calls_this_hour, 7, "it counted until its end");
        let late = run(&quaymaster, "pipeline").failed("r", "late", None, None).await.expect("failed");
        assert!(late.listed);
        let seen = hash(&quaymaster, &state_key(&quaymaster, "r")).await;
        assert_eq!(seen["api_calls_this_hour"], "7", "whoever comes late");
        let _ = run(&quaymaster, "pipeline").start(Some("r"), None).await.expect("start");
        assert_eq!(show(run(&quaymaster, "pipeline"), "r").await.calls_this_hour, 8, "reopened, it counts again");
    }

    async fn every_item_is_counted_once_whoever_tells_of_it_and_however_often(subject: &Subject) {
        let nodes: Vec<Quaymaster> = (0..3).map(|_| runs(subject)).collect();
        let _ = run(&nodes[0], "pipeline").start(Some("r"), None).await.expect("start");
        let told = nodes.iter().map(|node| async move {
            let mut added = 0;
            for number in 0..100 {
                let one = format!("docket {number}");
                let counts = run(node, "pipeline").processed("r", &[&one, &one], None).await.expect("processed");
                added += counts.added;
            }
            added
        });
        let added: u64 = join_all(told).await.into_iter().sum();
        assert_eq!(added, 100, "each was new to one of them");
        let state = show(run(&nodes[1], "pipeline"), "r").await;
        assert_eq!(state.processed_count, 100);
        let mut listed = items(&state);
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), 100);
        assert!(state.items_complete);
    }

    async fn the_list_keeps_the_order_and_any_text_over_many_pieces(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        let mut told: Vec<String> = ["plain", "quo\"te", "new\nline", "back\\slash", "ümlaut 漢字 🚢", " ", "\u{1}", "/"]
            .map(str::to_owned).to_vec();
        told.extend((0..1500).map(|number| format!("{number:0>40}")));
        told.extend((0..80).map(|number| format!("{number}{}", "\"".repeat(500))));
        for chunk in told.chunks(333) {
            let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
            assert_eq!(pipeline.processed("r", &chunk, None).await.expect("processed").added, chunk.len() as u64);
        }
        for one in ["last", "very last"] {
            told.push(one.to_owned());
            let _ = pipeline.processed("r", &[one], None).await.expect("processed");
        }
        let state = show(pipeline, "r").await;
        assert_eq!(items(&state), told);
        let seen = hash(&quaymaster, &state_key(&quaymaster, "r")).await;
        let rendered: Vec<String> = serde_json::from_str(&seen["dockets_processed"]).expect("JSON");
        assert_eq!(rendered, told);
        let without = pipeline.show("r", Items::Without).await.expect("show").expect("a run");
        assert_eq!((without.items, without.processed_count), (None, told.len() as u64));
    }

    async fn the_documented_list_follows_by_itself(subject: &Subject) {
        let quaymaster = runs(subject);
        let brief = run(&quaymaster, "brief");
        let _ = brief.start(Some("r"), None).await.expect("start");
        let key = spelled(&quaymaster, "brief", "state", &[("run_id", "r")], 0);
        let mut told = Vec::new();
        for round in 0..4 {
            let _ = brief.processed("r", &[&format!("i{round}")], None).await.expect("processed");
            told.push(format!("i{round}"));
            // A pulse of this run is a fifth of a second.
            subject.pass(210).await;
        }
        let rendered: Vec<String> =
            serde_json::from_str(&hash(&quaymaster, &key).await["dockets_processed"]).expect("JSON");
        assert!(rendered.len() >= 3 && told.starts_with(&rendered), "{rendered:?}");
        // The first of these is a pulse, and the second is not.
        for late in ["late", "later"] {
            let _ = brief.processed("r", &[late], None).await.expect("processed");
            told.push(late.to_owned());
        }
        let _ = brief.finish("r", "completed", None).await.expect("finish");
        let rendered: Vec<String> =
            serde_json::from_str(&hash(&quaymaster, &key).await["dockets_processed"]).expect("JSON");
        assert_eq!(rendered, told, "the end renders all of it");
    }

    async fn a_run_that_there_is_is_gone_on_with_and_never_wiped(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let first = pipeline.start(Some("r"), None).await.expect("start").run;
        let _ = pipeline.processed("r", &["1", "2"], None).await.expect("processed");
        let _ = pipeline.failed("r", "3", Some("HTTP 500"), None).await.expect("failed");
        let _ = pipeline.update("r", &Fields { status: Some("processing"), ..Fields::default() }, None).await.expect("set");
        let again = pipeline.start(Some("r"), None).await.expect("start");
        assert_eq!(again.outcome, Outcome::Resumed);
        assert_eq!((again.run.processed_count, again.run.failed_count), (2, 1));
        assert_eq!(again.run.status, "processing");
        assert_eq!((again.run.start_time, again.run.started_us), (first.start_time.clone(), first.started_us));
        let ended = pipeline.finish("r", "completed", None).await.expect("finish");
        assert_eq!((ended.status.as_str(), ended.over), ("completed", true));
        let reopened = pipeline.start(Some("r"), None).await.expect("start");
        assert_eq!((reopened.outcome, reopened.run.status.as_str()), (Outcome::Resumed, "running"));
        assert_eq!((reopened.run.over, reopened.run.finished_us, reopened.run.processed_count), (false, None, 2));
        // Another program removes the hash; what was processed is known all the same.
        command_int(&*subject.engine, &["DEL", &state_key(&quaymaster, "r")]).await;
        assert_eq!(items(&show(pipeline, "r").await), ["1", "2"]);
        let seen = hash(&quaymaster, &state_key(&quaymaster, "r")).await;
        assert_eq!(seen["dockets_processed"], "[\"1\",\"2\"]");
        command_int(&*subject.engine, &["DEL", &state_key(&quaymaster, "r")]).await;
        let counts = pipeline.processed("r", &["2", "4"], None).await.expect("processed");
        assert_eq!((counts.added, counts.processed_count), (1, 3));
        let state = show(pipeline, "r").await;
        assert_eq!(items(&state), ["1", "2", "4"]);
        assert_eq!(state.start_time, first.start_time);
        assert_eq!(hash(&quaymaster, &state_key(&quaymaster, "r")).await.len(), 7);
    }

    async fn the_end_is_final_and_late_workers_are_counted(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        let ended = pipeline.finish("r", "failed", None).await.expect("finish");
        assert!(ended.finished_us.is_some());
        assert_eq!(pipeline.finish("r", "failed", None).await.expect("finish").finished_us, ended.finished_us);
        let other = pipeline.finish("r", "completed", None).await.expect_err("it is over");
        assert_eq!(other.code, Code::RunFinished);
        let late = pipeline.processed("r", &["1"], None).await.expect("processed");
        assert_eq!((late.added, late.processed_count), (1, 1));
        assert_eq!(pipeline.failed("r", "2", None, None).await.expect("failed").attempts, 1);
        let status = Fields { status: Some("running"), ..Fields::default() };
        assert_eq!(pipeline.update("r", &status, None).await.expect_err("it is over").code, Code::RunFinished);
        let own = Fields { own: &[("note", "late")], ..Fields::default() };
        let state = pipeline.update("r", &own, None).await.expect("fields of one's own");
        assert_eq!((state.status.as_str(), state.over, state.processed_count), ("failed", true, 1));
        assert_eq!(state.fields, [("note".to_owned(), "late".to_owned())]);
    }

    async fn a_task_is_timed_by_the_stores_clock(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start(Some(ID), None).await.expect("start");
        let first = pipeline.task_start(ID, "fetch", None).await.expect("task_start");
        let key = spelled(&quaymaster, "pipeline", "task", &[("dag_run_id", ID), ("task_id", "fetch")], 0);
        let text = command_text(&*subject.engine, &["GET", &key]).await.expect("a string");
        assert_eq!(format!("{text}Z"), quaymaster::run::moment(first.started_us), "as the document writes it");
        let ttl = command_int(&*subject.engine, &["PTTL", &key]).await;
        assert!((89_000_000..=90_000_000).contains(&ttl), "{ttl}");
        subject.pass(30).await;
        assert_eq!(pipeline.task_start(ID, "fetch", None).await.expect("again"), first, "the first start counts");
        let took = pipeline.task_finish(ID, "fetch", None).await.expect("task_finish").duration;
        assert!((Duration::from_millis(30)..Duration::from_secs(60)).contains(&took), "{took:?}");
        subject.pass(20).await;
        assert_eq!(pipeline.task_finish(ID, "fetch", None).await.expect("again").duration, took);
        let anew = pipeline.task_start(ID, "fetch", None).await.expect("anew");
        assert!(anew.started_us > first.started_us, "after its end it begins anew");
        assert_eq!(pipeline.task_finish(ID, "store", None).await.expect_err("never started").code, Code::RunTask);
        // Another program writes when a task began.
        let key = spelled(&quaymaster, "pipeline", "task", &[("dag_run_id", ID), ("task_id", "theirs")], 0);
        let began = &quaymaster::run::moment(first.started_us)[..26];
        command_text(&*subject.engine, &["SET", &key, began]).await;
        let took = pipeline.task_finish(ID, "theirs", None).await.expect("task_finish").duration;
        assert!(took >= Duration::from_millis(50), "{took:?}");
        let state = show(pipeline, ID).await;
        assert_eq!(state.tasks_total, 2);
        assert_eq!(state.tasks[0].task_id, "fetch", "the last started first");
        assert_eq!((state.tasks[0].duration, state.tasks[1].duration), (None, Some(took)));
    }

    async fn a_run_takes_fields_of_the_callers_own_and_keeps_its_others(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        let fields =
            Fields { status: Some("processing"), processed: &["7", "8", "7"], own: &[("node", "a 1"), ("pages", "12")] };
        let state = pipeline.update("r", &fields, None).await.expect("update");
        assert_eq!((state.status.as_str(), state.processed_count), ("processing", 2));
        let own = [("node".to_owned(), "a 1".to_owned()), ("pages".to_owned(), "12".to_owned())];
        assert_eq!(state.fields, own);
        let seen = hash(&quaymaster, &state_key(&quaymaster, "r")).await;
        assert_eq!((seen["node"].as_str(), seen["status"].as_str(), seen.len()), ("a 1", "processing", 9));
        for name in ["dag_run_id", "start_time", "current_hour", "api_calls_this_hour", "redis_keys", "dockets_processed"] {
            let refused = pipeline.update("r", &Fields { own: &[(name, "x")], ..Fields::default() }, None).await;
            assert_eq!(refused.expect_err("not the caller's").code, Code::RunField, "{name}");
        }
        for round in 0..4 {
            let names: Vec<String> = (0..32).map(|index| format!("f{round}_{index}")).collect();
            let own: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
            let told = pipeline.update("r", &Fields { own: &own, ..Fields::default() }, None).await;
            match (round, told) {
                (0..3, told) => assert_eq!(told.expect("update").fields.len(), 2 + 32 * (round + 1)),
                (_, told) => assert_eq!(told.expect_err("too many").code, Code::RunFull),
            }
        }
        assert_eq!(pipeline.update("r", &Fields { own: &[("node", "b")], ..Fields::default() }, None).await.expect("known").fields.len(), 98);
    }

    async fn what_is_not_done_yet_is_told_so_that_nothing_is_fetched_twice(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        let all: Vec<String> = (0..2500).map(|number| number.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        for chunk in all[..1200].chunks(400) {
            let _ = pipeline.processed("r", chunk, None).await.expect("processed");
        }
        assert_eq!(pipeline.remaining("r", &all).await.expect("remaining"), all[1200..]);
        assert_eq!(pipeline.remaining("r", &["x", "5", "y"]).await.expect("remaining"), ["x", "y"]);
        assert_eq!(pipeline.remaining("r", &[]).await.expect("remaining"), Vec::<String>::new());
        assert_eq!(pipeline.remaining("s", &["x"]).await.expect_err("no run").code, Code::RunMissing);
    }
}
