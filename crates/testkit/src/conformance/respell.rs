//! Names of keys: all of a schema under its prefix, and those of earlier versions on their way there.

use std::sync::Arc;
use std::time::Duration;

use quaymaster::Quaymaster;
use quaymaster::limit::Charge;
use quaymaster::lock::Acquire;
use quaymaster::queue::{Ack, Claim, Lease, Push};
use quaymaster::respell::{Ask, Mode, Report, What};
use quaymaster_store::Reply;
use tokio_util::sync::CancellationToken;

use super::{Subject, command, command_int, command_text};

const SCHEMA: &str = "[limit.calls]\nkey = \"rate:{id}:{hour}\"\nalgorithm = \"fixed_window\"\nlimit = 10\nwindow = \"1h\"\n\
     [lock.door]\nkey = \"door:{id}\"\nttl = \"1m\"\n\
     [queue.jobs]\nmax_size = 100\ncolocate = \"cams\"\n\
     [run.pipeline]\nkey = \"pipeline:{run_id}\"\ntask_key = \"task:{run_id}:{task_id}\"\nfailed_key = \"failed:{hour}\"\nstate_ttl = \"25h\"\nhour_ttl = \"2h\"\n\
     [event.news]\n[stats.web]\nkey = \"web:\"\n\
     [batch.seen]\nkey = \"seen:{camera}:current\"\nby = \"camera\"\nto = \"jobs\"\nwindow = \"1h\"\nidle = \"1h\"\nmax_items = 9\nttl = \"2h\"\ncolocate = \"cams\"\n\
     [cache.page]\nkey = \"page:{id}\"\nttl = \"1h\"\n";

const A: &[(&str, &str)] = &[("id", "a")];

fn declared(subject: &Subject) -> Quaymaster {
    subject.schema(SCHEMA)
}

/// Every key of the store that has the prefix anywhere in its name.
async fn named(subject: &Subject) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), None);
    let glob = format!("*{}*", subject.prefix);
    loop {
        let page = subject.engine.scan(glob.as_bytes(), 1000, cursor).await.expect("a page");
        names.extend(page.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
        match page.next {
            None => break,
            next => cursor = next,
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Gives every key the name that an earlier version gave it; the names of today.
async fn age(subject: &Subject) -> Vec<String> {
    let tagged = format!("{}{{", subject.prefix);
    let new: Vec<String> =
        named(subject).await.into_iter().filter(|name| name.starts_with(&tagged)).collect();
    for name in &new {
        let old = &name[subject.prefix.len()..];
        let words = [b"RENAME", name.as_bytes(), old.as_bytes()];
        command(&*subject.engine, name.as_bytes(), &words).await.expect("one slot");
    }
    new
}

async fn respell(quaymaster: &Quaymaster, mode: Mode) -> Report {
    quaymaster.respell(Ask { mode, ..Ask::default() }, |_| ()).await.expect("a report")
}

/// A job that is held, a lock that is taken, and what else leaves keys behind.
async fn busy(quaymaster: &Quaymaster) -> Lease {
    let limit = quaymaster.limit("calls").expect("declared");
    assert!(limit.take(A, Charge::one().request_id("r")).await.expect("take").is_allowed());
    let _ = quaymaster.lock("door").expect("declared").acquire(A, Acquire::default()).await.expect("acquire");
    let queue = quaymaster.queue("jobs").expect("declared");
    let push = Push { payloads: vec!["{\"n\":1}".into()], id: Some("one".to_owned()), ..Push::default() };
    let _ = queue.push(push).await.expect("push");
    let jobs = queue.claim(Claim::default()).await.expect("claim");
    let run = quaymaster.run("pipeline").expect("declared");
    let _ = run.start(Some("r1"), None).await.expect("start");
    let _ =
        quaymaster.event("news").expect("declared").publish_as(&[], b"1", Some("p")).await.expect("publish");
    jobs.first().expect("a job").lease.clone()
}

crate::cases! {
    async fn the_prefix_finds_every_key_of_a_schema(subject: &Subject) {
        let quaymaster = declared(subject);
        busy(&quaymaster).await;
        let names = named(subject).await;
        assert!(names.iter().any(|name| name.contains('{')), "{names:?}");
        for name in &names {
            assert!(name.starts_with(&subject.prefix), "{name}");
            assert!(quaymaster.schema().explain(name.as_bytes()).is_some(), "{name} is not in the schema");
        }
    }

    async fn old_names_are_shown_first_renamed_when_told_and_work_goes_on(subject: &Subject) {
        let quaymaster = declared(subject);
        let lease = busy(&quaymaster).await;
        let (before, new) = (named(subject).await, age(subject).await);
        assert!(new.len() > 8, "{new:?}");
        let record = subject.side("rate:a", "req:r");
        for _ in 0..2 {
            let looked = respell(&quaymaster, Mode::Look).await;
            let all = new.len() as u64;
            assert_eq!((looked.old, looked.renamed, looked.taken, looked.complete), (all, 0, 0, true));
            assert!(looked.findings.iter().all(|found| found.what == What::Old && new.contains(&found.new)));
        }
        let left = command_int(&*subject.engine, &["PTTL", &record[subject.prefix.len()..]]).await;
        let done = respell(&quaymaster, Mode::Apply).await;
        assert_eq!((done.old, done.renamed, done.taken), (new.len() as u64, new.len() as u64, 0));
        assert_eq!(named(subject).await, before);
        let kept = command_int(&*subject.engine, &["PTTL", &record]).await;
        assert!(kept > 0 && kept <= left, "{kept} of {left}");
        let again = respell(&quaymaster, Mode::Apply).await;
        assert_eq!((again.old, again.renamed, again.complete), (0, 0, true));
        let queue = quaymaster.queue("jobs").expect("declared");
        let acked = queue.ack(Ack::of(vec![lease])).await.expect("ack");
        assert_eq!(acked.acked, 1, "the lease of before is known: {acked:?}");
        let taken = quaymaster.limit("calls").expect("declared").take(A, Charge::one().request_id("r")).await;
        assert_eq!(taken.expect("take").quota().used, 1, "the request of before is known");
    }

    async fn nothing_is_overwritten_by_a_new_name(subject: &Subject) {
        let quaymaster = declared(subject);
        let new = subject.side("door:a", "fence");
        let old = new[subject.prefix.len()..].to_owned();
        for (key, value) in [(&old, "1"), (&new, "2")] {
            command_text(&*subject.engine, &["SET", key, value]).await;
        }
        for mode in [Mode::Look, Mode::Apply, Mode::Apply] {
            let told = respell(&quaymaster, mode).await;
            assert_eq!((told.old, told.taken, told.renamed), (0, 1, 0));
            assert_eq!((&told.findings[0].old, told.findings[0].what), (&old, What::Taken));
        }
        assert_eq!(command_text(&*subject.engine, &["GET", &old]).await.as_deref(), Some("1"));
        assert_eq!(command_text(&*subject.engine, &["GET", &new]).await.as_deref(), Some("2"));
        command_int(&*subject.engine, &["DEL", &new]).await;
        assert_eq!(respell(&quaymaster, Mode::Apply).await.renamed, 1, "somebody has decided");
        assert_eq!(command_text(&*subject.engine, &["GET", &new]).await.as_deref(), Some("1"));
    }

    async fn keys_that_no_earlier_version_made_keep_their_names(subject: &Subject) {
        let quaymaster = declared(subject);
        let prefix = &subject.prefix;
        let foreign = [
            format!("{{{prefix}door:a}}:other"),
            format!("{{{prefix}door:a}}"),
            format!("{{{prefix}nobody:a}}:fence"),
            format!("{{{prefix}door:}}:fence"),
            format!("{prefix}door:a"),
            format!("{{x{prefix}door:a}}:fence"),
        ];
        for key in &foreign {
            command_text(&*subject.engine, &["SET", key, "theirs"]).await;
        }
        let before = named(subject).await;
        let told = respell(&quaymaster, Mode::Apply).await;
        assert_eq!((told.old, told.taken, told.complete), (0, 0, true), "{told:?}");
        assert_eq!(named(subject).await, before);
    }

    async fn a_run_that_was_stopped_is_finished_by_the_next(subject: &Subject) {
        const KEYS: usize = 1500;
        let quaymaster = declared(subject);
        let names: Vec<String> = (0..KEYS).map(|n| subject.side("door:a", &format!("req:{n}"))).collect();
        let engine = Arc::clone(&subject.engine);
        for some in names.chunks(64) {
            let mut writes = Vec::new();
            for name in some {
                let (engine, old) = (Arc::clone(&engine), name[subject.prefix.len()..].to_owned());
                writes.push(async move {
                    command_text(&*engine, &["SET", &old, "v", "PX", "600000"]).await;
                });
            }
            futures_util::future::join_all(writes).await;
        }
        let stop = CancellationToken::new();
        let ask = Ask { mode: Mode::Apply, stop: stop.clone() };
        let mut pages = 0;
        let first = quaymaster.respell(ask, |report| {
            pages += 1;
            // Stopped as soon as something was done.
            if report.renamed > 0 {
                stop.cancel();
            }
        });
        let first = first.await.expect("a report");
        assert!(first.renamed > 0 && first.renamed <= KEYS as u64 && pages > 0, "{first:?}");
        let second = respell(&quaymaster, Mode::Apply).await;
        assert_eq!(first.renamed + second.renamed, KEYS as u64);
        for name in names.iter().step_by(100) {
            let reply = command(&*engine, name.as_bytes(), &[b"PTTL", name.as_bytes()]).await.expect("a reply");
            assert!(matches!(reply, Reply::Int(1..=600_000)), "{name}: {reply:?}");
        }
        tokio::time::timeout(Duration::from_secs(60), quaymaster.prepare()).await.expect("in time").expect("fit");
    }
}
