//! What `clean` must do on every store.

use std::sync::Arc;

use quaymaster::clean::{Ask, Mode, Report, What};
use quaymaster::limit::Charge;
use quaymaster::lock::{Acquire, Acquired};
use quaymaster::queue::{Claim, Push};
use quaymaster::schema::{Kind, Spelling};
use quaymaster::store::Topology;
use quaymaster::{Code, Quaymaster};

use super::{Subject, command_int, command_text};
use crate::liar::Liar;
use crate::meddler::Meddler;

const LONG_AGO_US: i64 = 1_577_836_800_000_000; // 2020-01-01 00:00

fn declared(subject: &Subject) -> Quaymaster {
    subject.schema(
        "[limit.calls]\nkey = \"rate:{hour}\"\nalgorithm = \"fixed_window\"\nlimit = 10\nwindow = \"1h\"\nttl = \"2h\"\n\
         [dedupe.seen]\nkey = \"seen:{id}\"\nttl = \"1h\"\n\
         [key.theirs]\nkey = \"theirs:{id}\"\ntype = \"string\"\nttl = \"1h\"\n\
         [run.pipeline]\nkey = \"pipeline:{run_id}\"\ntask_key = \"task:{run_id}:{task_id}\"\nfailed_key = \"failed:{hour}\"\nstate_ttl = \"25h\"\nhour_ttl = \"2h\"\n",
    )
}

/// The key of `role` as this store spells it, in the bucket of `now_us`.
fn key(
    quaymaster: &Quaymaster,
    kind: Kind,
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
    let resource = quaymaster.schema().resource(kind, name).expect("declared");
    resource.key(role).expect("a key").pattern.render(values, now_us, spelling, &mut key).expect("values");
    String::from_utf8(key).expect("text")
}

fn counter(quaymaster: &Quaymaster, now_us: i64) -> String {
    key(quaymaster, Kind::Limit, "calls", "limit", &[], now_us)
}

async fn clean(quaymaster: &Quaymaster, mode: Mode) -> Report {
    let ask = Ask { mode, rate: u32::MAX, ..Ask::default() };
    quaymaster.clean(ask, |_| ()).await.expect("clean")
}

async fn exists(subject: &Subject, key: &str) -> bool {
    command_int(&*subject.engine, &["EXISTS", key]).await == 1
}

crate::cases! {
    async fn a_bucket_long_over_is_removed_and_only_when_told(subject: &Subject) {
        let quaymaster = declared(subject);
        let stale = counter(&quaymaster, LONG_AGO_US);
        let living = counter(&quaymaster, subject.time_us().await);
        command_text(&*subject.engine, &["SET", &stale, "7"]).await;
        assert!(quaymaster.limit("calls").expect("declared").take(&[], Charge::one()).await.expect("take").is_allowed());
        let report = clean(&quaymaster, Mode::Look).await;
        assert_eq!((report.stale, report.immortal, report.done), (1, 0, 0), "{report:?}");
        assert_eq!(report.findings[0].key, stale);
        assert_eq!((report.findings[0].what, report.findings[0].resource.as_str()), (What::Stale, "limit.calls"));
        assert!(exists(subject, &stale).await);
        let report = clean(&quaymaster, Mode::Apply).await;
        assert_eq!((report.stale, report.done, report.next), (1, 1, None));
        assert!(!exists(subject, &stale).await);
        assert!(exists(subject, &living).await, "it counts");
        assert_eq!(clean(&quaymaster, Mode::Apply).await.found(), 0);
    }

    async fn a_key_without_its_end_is_given_it_and_keeps_its_value(subject: &Subject) {
        let quaymaster = declared(subject);
        let (counted, seen) = (
            counter(&quaymaster, subject.time_us().await),
            key(&quaymaster, Kind::Dedupe, "seen", "first", &[("id", "a")], 0),
        );
        for key in [&counted, &seen] {
            command_text(&*subject.engine, &["SET", key, "7"]).await;
        }
        let report = clean(&quaymaster, Mode::Look).await;
        assert_eq!((report.immortal, report.done), (2, 0), "{report:?}");
        assert_eq!(command_int(&*subject.engine, &["PTTL", &seen]).await, -1);
        let report = clean(&quaymaster, Mode::Apply).await;
        assert_eq!((report.immortal, report.done), (2, 2), "{report:?}");
        for (key, hours) in [(&counted, 2), (&seen, 1)] {
            assert_eq!(command_text(&*subject.engine, &["GET", key]).await.as_deref(), Some("7"));
            let ttl = command_int(&*subject.engine, &["PTTL", key]).await;
            assert!((1..=hours * 3_600_000).contains(&ttl), "{ttl}");
        }
        assert_eq!(clean(&quaymaster, Mode::Apply).await.found(), 0);
    }

    async fn what_is_not_ours_is_never_touched(subject: &Subject) {
        let quaymaster = declared(subject);
        let prefix = &subject.prefix;
        let other_type = counter(&quaymaster, LONG_AGO_US);
        command_int(&*subject.engine, &["RPUSH", &other_type, "x"]).await;
        let mut left = vec![other_type];
        // The third is nearly an hour; the fourth is another program's, and declared so.
        for name in ["elsewhere", "rate", "rate:2020-13-01_00", "theirs:a", "rate:2020-01-01_00:more"] {
            let key = format!("{prefix}{name}");
            command_text(&*subject.engine, &["SET", &key, "x"]).await;
            left.push(key);
        }
        let report = clean(&quaymaster, Mode::Apply).await;
        assert_eq!((report.other_type, report.found(), report.done), (1, 1, 0), "{report:?}");
        for key in left {
            assert!(exists(subject, &key).await, "{key}");
            assert_eq!(command_int(&*subject.engine, &["PTTL", &key]).await, -1, "{key}");
        }
    }

    async fn an_index_forgets_what_is_gone(subject: &Subject) {
        let quaymaster = declared(subject);
        let of = |role: &str, values: &[(&str, &str)]| key(&quaymaster, Kind::Run, "pipeline", role, values, 0);
        let index = of("runs", &[]);
        // More than a page, so that what is taken out must not make the walk skip anything.
        for run in 0..450 {
            let (id, score) = (format!("run-{run}"), (1_000 + run).to_string());
            command_int(&*subject.engine, &["ZADD", &index, &score, &id]).await;
            if run % 3 == 0 {
                let state = of("state", &[("run_id", &id)]);
                command_int(&*subject.engine, &["HSET", &state, "status", "running"]).await;
                command_int(&*subject.engine, &["PEXPIRE", &state, "3600000"]).await;
            }
        }
        let report = clean(&quaymaster, Mode::Look).await;
        assert_eq!((report.dangling, report.done), (300, 0));
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &index]).await, 450);
        let report = clean(&quaymaster, Mode::Apply).await;
        assert_eq!((report.dangling, report.done), (300, 300));
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &index]).await, 150);
        assert_eq!(clean(&quaymaster, Mode::Look).await.found(), 0);
    }

    async fn a_scan_stops_and_goes_on_where_it_was(subject: &Subject) {
        let quaymaster = declared(subject);
        let hours = 1_600;
        for hour in 0..hours {
            let key = counter(&quaymaster, LONG_AGO_US + hour * 3_600_000_000);
            command_text(&*subject.engine, &["SET", &key, "1"]).await;
        }
        let mut from = None;
        let (mut done, mut parts) = (0, 0);
        loop {
            let ask = Ask { mode: Mode::Apply, rate: u32::MAX, most: Some(600), from: from.take(), ..Ask::default() };
            let report = quaymaster.clean(ask, |_| ()).await.expect("clean");
            done += report.done;
            parts += 1;
            match report.next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
        assert_eq!(done, hours as u64);
        assert!(parts >= 2, "{parts}");
        let wrong = Ask { from: Some("no cursor!".to_owned()), ..Ask::default() };
        assert_eq!(quaymaster.clean(wrong, |_| ()).await.expect_err("refused").code, Code::RequestInvalid);
        let wrong = Ask { rate: 0, ..Ask::default() };
        assert_eq!(quaymaster.clean(wrong, |_| ()).await.expect_err("refused").code, Code::RequestInvalid);
    }

    async fn one_resource_is_cleaned_alone(subject: &Subject) {
        let quaymaster = declared(subject);
        let stale = counter(&quaymaster, LONG_AGO_US);
        let failed = key(&quaymaster, Kind::Run, "pipeline", "failed", &[], LONG_AGO_US);
        command_text(&*subject.engine, &["SET", &stale, "1"]).await;
        command_int(&*subject.engine, &["LPUSH", &failed, "12345"]).await;
        let only = Some((Kind::Run, "pipeline".to_owned()));
        let ask = Ask { mode: Mode::Apply, only, rate: u32::MAX, ..Ask::default() };
        let report = quaymaster.clean(ask, |_| ()).await.expect("clean");
        assert_eq!((report.stale, report.done), (1, 1), "{report:?}");
        assert!(exists(subject, &stale).await);
        assert!(!exists(subject, &failed).await);
        let ask = Ask { only: Some((Kind::Run, "pipelin".to_owned())), ..Ask::default() };
        assert_eq!(quaymaster.clean(ask, |_| ()).await.expect_err("unknown").code, Code::ResourceUnknown);
    }

    async fn what_somebody_changed_since_it_was_looked_at_is_left_alone(subject: &Subject) {
        let quaymaster = declared(subject);
        let of = |role: &str, values: &[(&str, &str)]| key(&quaymaster, Kind::Run, "pipeline", role, values, 0);
        let (index, state) = (of("runs", &[]), of("state", &[("run_id", "back")]));
        let (stale, seen) =
            (counter(&quaymaster, LONG_AGO_US), key(&quaymaster, Kind::Dedupe, "seen", "first", &[("id", "a")], 0));
        let other = key(&quaymaster, Kind::Dedupe, "seen", "first", &[("id", "b")], 0);
        for key in [&stale, &seen, &other] {
            command_text(&*subject.engine, &["SET", key, "7"]).await;
        }
        command_int(&*subject.engine, &["ZADD", &index, "1000", "back"]).await;
        let meddler = Arc::new(Meddler::new(subject.engine.clone()));
        meddler.after_look(&stale, &["DEL", &stale]);
        meddler.after_look(&stale, &["RPUSH", &stale, "somebody's"]);
        meddler.after_look(&seen, &["PEXPIRE", &seen, "5000"]);
        meddler.after_look(&other, &["DEL", &other]);
        meddler.after_look(&other, &["RPUSH", &other, "somebody's"]);
        meddler.after_look(&state, &["HSET", &state, "status", "running"]);
        meddler.after_look(&state, &["PEXPIRE", &state, "3600000"]);
        meddler.after_look(&state, &["ZADD", &index, "2000", "back"]);
        let beside = Quaymaster::new(quaymaster.schema().clone(), meddler.clone());
        let report = clean(&beside, Mode::Apply).await;
        assert_eq!(meddler.left(), 0, "all of it was looked at");
        assert_eq!((report.stale, report.immortal, report.dangling, report.done), (1, 2, 1, 0), "{report:?}");
        assert!(exists(subject, &stale).await);
        assert_eq!(command_int(&*subject.engine, &["PTTL", &other]).await, -1, "a list is not ours to end");
        let ttl = command_int(&*subject.engine, &["PTTL", &seen]).await;
        assert!((1..=5000).contains(&ttl), "it keeps the life it was given: {ttl}");
        assert_eq!(command_int(&*subject.engine, &["ZCARD", &index]).await, 1, "the run is back");
    }

    async fn numbers_that_no_call_can_go_on_from_are_taken_away_and_fences_only_by_name(subject: &Subject) {
        let quaymaster = subject.schema(
            "[queue.work]\nmax_size = 9\n[lock.door]\nkey = \"door:{id}\"\nttl = \"30s\"\n[cache.page]\nkey = \"page:{id}\"\nttl = \"1h\"\n",
        );
        let (queue, lock) = (quaymaster.queue("work").expect("declared"), quaymaster.lock("door").expect("declared"));
        let (meta, fence) = (subject.side("work", "meta"), subject.side("door:a", "fence"));
        for number in ["10413792000000000", "8999900000000000", "9007199254740992", "text", "-1", "007", ""] {
            command_int(&*subject.engine, &["HSET", &meta, "sequence", number, "pushed", "7"]).await;
            command_text(&*subject.engine, &["SET", &fence, number, "PX", "3600000"]).await;
            let report = clean(&quaymaster, Mode::Look).await;
            assert_eq!((report.unusable, report.found(), report.done), (2, 2, 0), "{number}: {report:?}");
            assert!(report.findings.iter().all(|finding| finding.what == What::Unusable));
            let report = clean(&quaymaster, Mode::Apply).await;
            assert_eq!((report.unusable, report.done), (2, 1), "{number}: {report:?}");
            let done = report.findings.iter().find(|finding| finding.done).expect("one");
            assert_eq!((&done.key, done.member.as_deref()), (&meta, Some("sequence")));
            let held = ["sequence", "pushed"].map(|field| ["HGET", &meta, field]);
            assert_eq!(command_text(&*subject.engine, &held[0]).await, None);
            assert_eq!(command_text(&*subject.engine, &held[1]).await.as_deref(), Some("7"));
            assert_eq!(command_text(&*subject.engine, &["GET", &fence]).await.as_deref(), Some(number));
            for (kind, name, done) in [(Kind::Queue, "work", 0), (Kind::Cache, "page", 0), (Kind::Lock, "door", 1)] {
                let only = Some((kind, name.to_owned()));
                let ask = Ask { mode: Mode::Apply, only, rate: u32::MAX, ..Ask::default() };
                let report = quaymaster.clean(ask, |_| ()).await.expect("clean");
                assert_eq!(report.done, done, "{number}: {kind}: {report:?}");
            }
            assert!(!exists(subject, &fence).await);
        }
        // The last numbers that calls go on from stay.
        command_int(&*subject.engine, &["HSET", &meta, "sequence", "8999899999999998"]).await;
        command_text(&*subject.engine, &["SET", &fence, "8999899999999998", "PX", "3600000"]).await;
        let only = Some((Kind::Lock, "door".to_owned()));
        let ask = Ask { mode: Mode::Apply, only, rate: u32::MAX, ..Ask::default() };
        assert_eq!(quaymaster.clean(ask, |_| ()).await.expect("clean").found(), 0);
        assert_eq!(clean(&quaymaster, Mode::Apply).await.found(), 0);
        queue.push(Push::one("1")).await.expect("pushed");
        assert_eq!(queue.claim(Claim::default()).await.expect("claimed")[0].id, "8999899999999999");
        let Acquired::Ours(lease) = lock.acquire(&[("id", "a")], Acquire::default()).await.expect("acquire") else {
            panic!("nobody holds it")
        };
        assert_eq!(lease.fence, 8_999_899_999_999_999);
    }

    async fn a_node_with_a_wrong_clock_removes_nothing(subject: &Subject) {
        let quaymaster = declared(subject);
        let taken = quaymaster.limit("calls").expect("declared").take(&[], Charge::one()).await.expect("take");
        assert!(taken.is_allowed());
        let ahead = Liar::new(subject.engine.clone(), 4 * 3_600_000);
        let report = clean(&Quaymaster::new(quaymaster.schema().clone(), Arc::new(ahead)), Mode::Apply).await;
        assert_eq!((report.stale, report.done), (1, 0), "by its clock the hour is long over: {report:?}");
        assert!(exists(subject, &counter(&quaymaster, subject.time_us().await)).await);
    }
}
