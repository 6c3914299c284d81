//! What every run must do on every store with failures that other programs listed.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use quaymaster::Quaymaster;
use quaymaster::run::{Failure, FailuresAsk, Items, RetryAsk, Run};

use super::command_int;
use super::run::{range, run, runs, spelled};

/// The list of the hour, as another program names it.
async fn list(subject: &super::Subject, quaymaster: &Quaymaster) -> String {
    spelled(quaymaster, "pipeline", "failed", &[], subject.time_us().await)
}

async fn push(subject: &super::Subject, list: &str, items: &[&str]) {
    for item in items {
        command_int(&*subject.engine, &["LPUSH", list, item]).await;
    }
}

/// Item, run and attempts of each.
fn told(failures: &[Failure]) -> Vec<(&str, &str, u64)> {
    failures.iter().map(|one| (one.item.as_str(), one.run_id.as_str(), one.attempts)).collect()
}

async fn failures(run: &Run) -> Vec<Failure> {
    run.failures(FailuresAsk::default()).await.expect("failures").failures
}

crate::cases! {
    async fn what_another_program_listed_as_failed_is_read_and_tried_again(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let begun = pipeline.start(Some("r"), None).await.expect("start").run;
        for _ in 0..2 {
            let _ = pipeline.failed("r", "ours", Some("HTTP 500"), None).await.expect("failed");
        }
        let known = spelled(&quaymaster, "pipeline", "known", &[], subject.time_us().await);
        let ttl = command_int(&*subject.engine, &["PTTL", &known]).await;
        assert!((1..=7_200_000).contains(&ttl), "{ttl}");
        let list = list(subject, &quaymaster).await;
        push(subject, &list, &["99999", "99998", "ours", "99999"]).await;
        let all = [("99998", "", 1), ("99999", "", 2), ("ours", "", 1), ("ours", "r", 2)];
        let found = failures(pipeline).await;
        assert_eq!(told(&found), all);
        assert_eq!(found[0].error, "listed by another program");
        assert_eq!(found[0].last_failed_us % 3_600_000_000, 0, "the hour is all that is known of it");
        let ask = FailuresAsk { hour: Some(&begun.current_hour), ..FailuresAsk::default() };
        assert_eq!(told(&pipeline.failures(ask).await.expect("failures").failures), all, "of the hour");
        let ask = FailuresAsk { run_id: Some("r"), ..FailuresAsk::default() };
        assert_eq!(told(&pipeline.failures(ask).await.expect("failures").failures), [("ours", "r", 2)], "of the run");
        let (mut paged, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let ask = FailuresAsk { count: 1, cursor: cursor.as_deref(), ..FailuresAsk::default() };
            let page = pipeline.failures(ask).await.expect("failures");
            paged.extend(page.failures);
            cursor = page.next;
            if cursor.is_none() || paged.len() > all.len() {
                break;
            }
        }
        assert_eq!(told(&paged), all, "page for page");
        // The run takes them over; each is handed out once, and the list stays as it was.
        let ask = RetryAsk { run_id: Some("r"), ..RetryAsk::default() };
        let handed = pipeline.retry(ask).await.expect("retry");
        let attempts: BTreeMap<_, _> = handed.iter().map(|one| (one.item.as_str(), one.attempts)).collect();
        assert_eq!(attempts, BTreeMap::from([("99998", 1), ("99999", 2), ("ours", 2)]));
        assert!(handed.iter().all(|one| one.run_id == "r"));
        assert_eq!(pipeline.retry(ask).await.expect("retry"), []);
        assert_eq!(range(&quaymaster, &list).await, ["99999", "ours", "99998", "99999", "ours", "ours"]);
        let _ = pipeline.processed("r", &["99999", "ours"], None).await.expect("processed");
        assert_eq!(told(&failures(pipeline).await), [("99998", "r", 1)]);
        // Pushed again it failed again; what the run has done since is none of its failures.
        push(subject, &list, &["99997", "99999"]).await;
        assert_eq!(told(&failures(pipeline).await), [("99997", "", 1), ("99999", "", 1), ("99998", "r", 1)]);
        assert_eq!(told(&pipeline.retry(ask).await.expect("retry")), [("99997", "r", 1)]);
        assert_eq!(told(&failures(pipeline).await).len(), 2);
    }

    async fn a_run_at_work_takes_over_what_others_listed_when_none_is_named(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let list = list(subject, &quaymaster).await;
        push(subject, &list, &["1"]).await;
        let handed = pipeline.retry(RetryAsk::default()).await.expect("retry");
        assert_eq!(handed.len(), 1, "{handed:?}");
        let begun = &handed[0].run_id;
        let shown = pipeline.show(begun, Items::Without).await.expect("show").expect("one was begun for it");
        assert_eq!((shown.status.as_str(), shown.failed_count), ("running", 1));
        let _ = pipeline.finish(begun, "completed", None).await.expect("finish");
        let _ = pipeline.start(Some("b"), None).await.expect("start");
        // The finished one was active last.
        subject.pass(2).await;
        let _ = pipeline.failed(begun, "2", None, None).await.expect("failed");
        push(subject, &list, &["3"]).await;
        let handed = pipeline.retry(RetryAsk::default()).await.expect("retry");
        assert!(told(&handed).contains(&("3", "b", 1)), "{handed:?}");
    }

    async fn what_others_listed_is_handed_to_one_of_many_callers(subject: &Subject) {
        let quaymaster = runs(subject);
        let pipeline = run(&quaymaster, "pipeline");
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        let list = list(subject, &quaymaster).await;
        let items: Vec<String> = (0..40).map(|item| item.to_string()).collect();
        push(subject, &list, &items.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let ask = RetryAsk { run_id: Some("r"), count: 10, ..RetryAsk::default() };
        let handed = join_all((0..8).map(|_| pipeline.retry(ask))).await;
        let mut handed: Vec<String> =
            handed.into_iter().flat_map(|told| told.expect("retry")).map(|one| one.item).collect();
        handed.sort_unstable();
        let mut wanted = items;
        wanted.sort_unstable();
        assert_eq!(handed, wanted, "each once");
    }

    async fn a_spoiled_list_of_the_hour_hides_no_failure_of_a_run(subject: &Subject) {
        let quaymaster = runs(subject);
        let (engine, pipeline) = (&*subject.engine, run(&quaymaster, "pipeline"));
        let _ = pipeline.start(Some("r"), None).await.expect("start");
        let _ = pipeline.failed("r", "ours", None, None).await.expect("failed");
        let list = list(subject, &quaymaster).await;
        command_int(engine, &["DEL", &list]).await;
        command_int(engine, &["HSET", &list, "not", "a list"]).await;
        assert_eq!(told(&failures(pipeline).await), [("ours", "r", 1)]);
        assert_eq!(told(&pipeline.retry(RetryAsk::default()).await.expect("retry")), [("ours", "r", 1)]);
        // What no item can be is passed over.
        command_int(engine, &["DEL", &list]).await;
        push(subject, &list, &["", &"x".repeat(513), "fine"]).await;
        assert_eq!(told(&failures(pipeline).await), [("fine", "", 1), ("ours", "r", 1)]);
    }
}
