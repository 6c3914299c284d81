//! Answers to a lease: in time, too late, not at all.

use std::time::Duration;

use bytes::Bytes;
use quaymaster::queue::{Ack, Acked, Claim, ClaimNext, Extended, Nack, Nacked, Push};

use super::command_int;
use super::queue::{
    LONG, ack, claim, claim_for, dead_letters, declare, failed, leases, one, payloads, places, pressure,
    push, push_all, shorten, spelled, text,
};

crate::cases! {
    async fn nothing_is_left_of_jobs_that_are_done(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "retry = { max_attempts = 1 }");
        push_all(&queue, &["1", "2", "3", "4"]).await;
        queue.push(Push { delay: Some(Duration::from_millis(1)), ..Push::one("5") }).await.expect("push");
        subject.pass(2).await;
        let jobs = claim(&queue, 5).await;
        assert_eq!(payloads(&jobs), ["5", "1", "2", "3", "4"]);
        assert_eq!(ack(&queue, &jobs[..3]).await.acked, 3);
        assert_eq!(failed(&queue, &jobs[3], "no").await, Nacked::Dead { attempt: 1 });
        assert_eq!(queue.ack(Ack { claim: Some(ClaimNext { count: 1, lease: None, worker: None }), ..Ack::of(leases(&jobs[4..])) }).await.expect("ack").acked, 1);
        for role in ["items", "jobs", "held", "leases", "delayed"] {
            let key = spelled(subject, &quaymaster, role, &[]);
            assert_eq!(command_int(&*subject.engine, &["EXISTS", &key]).await, 0, "{role}");
        }
    }

    async fn a_job_is_acked_once_and_by_its_holder(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        push(&queue, "1").await;
        let job = one(&queue).await;
        let twice = Ack::of(vec![job.lease.clone(), job.lease.clone()]);
        assert_eq!(queue.ack(twice).await.expect("ack"), Acked { acked: 1, lost: 1, jobs: Vec::new() });
        assert_eq!(ack(&queue, std::slice::from_ref(&job)).await.lost, 1);
        assert_eq!(queue.extend(&job.lease, None).await.expect("extend"), Extended::Lost);
        assert_eq!(failed(&queue, &job, "late").await, Nacked::Lost);
        assert_eq!((places(&queue).await, pressure(&queue).await.totals.acked), ((0, 0, 0, 0), 1));
    }

    async fn a_lease_that_ended_is_lost_and_the_job_comes_again_with_the_next_attempt(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        push_all(&queue, &["1", "2"]).await;
        let old = claim_for(&queue, 1, 40).await;
        subject.pass(42).await;
        // Nobody else has it yet, and still it is over.
        assert_eq!(ack(&queue, &old).await.lost, 1);
        assert_eq!(queue.extend(&old[0].lease, None).await.expect("extend"), Extended::Lost);
        assert_eq!(failed(&queue, &old[0], "late").await, Nacked::Lost);
        let new = claim(&queue, 2).await;
        assert_eq!(payloads(&new), ["1", "2"], "what comes again is first");
        assert_eq!((new[0].attempt, &new[0].id), (2, &old[0].id));
        // Somebody else has it now, and the old lease does nothing to theirs.
        assert_eq!(ack(&queue, &old).await.lost, 1);
        assert_eq!(queue.extend(&old[0].lease, None).await.expect("extend"), Extended::Lost);
        assert_eq!(failed(&queue, &old[0], "late").await, Nacked::Lost);
        let dead = Nack { dead: true, ..Nack::of(old[0].lease.clone(), "late") };
        assert_eq!(queue.nack(dead).await.expect("nack"), Nacked::Lost);
        assert_eq!(queue.release(&leases(&old)).await.expect("release"), 0);
        assert_eq!(ack(&queue, &new).await.acked, 2);
        assert_eq!(pressure(&queue).await.totals.expired, 1);
    }

    async fn a_lease_is_held_until_its_last_millisecond_and_an_extended_one_longer(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        push_all(&queue, &["1", "2"]).await;
        let jobs = claim(&queue, 2).await;
        assert_eq!(
            queue.extend(&jobs[0].lease, Some(LONG)).await.expect("extend"),
            Extended::Ours { expires_in: LONG }
        );
        shorten(&queue, &jobs[1..], 50).await;
        subject.pass(52).await;
        assert_eq!(payloads(&claim(&queue, 5).await), ["2"], "only the one that was not extended");
        assert_eq!(ack(&queue, &jobs).await, Acked { acked: 1, lost: 1, jobs: Vec::new() });
    }

    async fn a_batch_that_expired_comes_again_in_its_order(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        let all: Vec<String> = (0..120).map(|n| n.to_string()).collect();
        queue.push(Push::many(all.iter().map(|n| Bytes::from(n.clone())).collect())).await.expect("push");
        assert_eq!(claim_for(&queue, 120, 30).await.len(), 120);
        subject.pass(32).await;
        let again = claim(&queue, 120).await;
        assert_eq!(payloads(&again), all.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(again.iter().all(|job| job.attempt == 2));
    }

    async fn a_failed_job_waits_for_its_backoff_and_comes_before_what_waits(subject: &Subject) {
        let (_, queue) = declare(subject, "retry = { max_attempts = 3, base = \"60ms\", max = \"5s\", jitter = 0.5 }");
        push_all(&queue, &["1", "2"]).await;
        let job = one(&queue).await;
        let Nacked::Retry { attempt: 1, retry_in } = queue.nack(Nack::of(job.lease.clone(), "no")).await.expect("nack")
        else { panic!("two attempts are left") };
        assert!(retry_in >= Duration::from_millis(60) && retry_in <= Duration::from_millis(90), "{retry_in:?}");
        assert_eq!(places(&queue).await, (1, 0, 1, 0));
        if subject.clock.is_some() {
            assert_eq!(payloads(&claim(&queue, 1).await), ["2"], "its time has not come");
        }
        subject.pass(92).await;
        let again = one(&queue).await;
        assert_eq!((text(&again.payload), again.attempt, &again.id), ("1", 2, &job.id));
        let Nacked::Retry { attempt: 2, retry_in } = queue.nack(Nack::of(again.lease, "no")).await.expect("nack")
        else { panic!("one attempt is left") };
        assert!(retry_in >= Duration::from_millis(120) && retry_in <= Duration::from_millis(180), "{retry_in:?}");
        assert_eq!(pressure(&queue).await.totals.retried, 2);
    }

    async fn the_last_failure_makes_the_documented_dead_letter(subject: &Subject) {
        let (_, queue) = declare(subject, "retry = { max_attempts = 2 }");
        let before = subject.time_us().await;
        push(&queue, "{\"camera_id\": \"front door\",  \"n\": 1.10}").await;
        assert_eq!(failed(&queue, &one(&queue).await, "first").await, Nacked::Retry { attempt: 1, retry_in: Duration::ZERO });
        subject.pass(3).await;
        let job = one(&queue).await;
        assert_eq!(failed(&queue, &job, "Connection \"refused\"").await, Nacked::Dead { attempt: 2 });
        assert_eq!(places(&queue).await, (0, 0, 0, 1));
        let page = queue.dead(10, 0).await.expect("dead");
        assert_eq!((page.length, page.items.len()), (1, 1));
        let letter = text(page.items[0].bytes()).to_owned();
        assert!(letter.starts_with("{\"original_job\":{\"camera_id\": \"front door\",  \"n\": 1.10},"), "{letter}");
        let letter = &dead_letters(&queue).await[0];
        assert_eq!(letter["error"], "Connection \"refused\"");
        assert_eq!(letter["attempt_count"], 2);
        assert_eq!(letter["queue_name"], "q");
        let (first, last) = (letter["first_failed_at"].as_str().expect("text"), letter["last_failed_at"].as_str().expect("text"));
        assert!(first < last && first.len() == 26, "{first} {last}");
        let after = subject.time_us().await;
        let year = |us: i64| us / 1_000_000 / 31_556_952 + 1970;
        assert!(last.starts_with(&year(before).to_string()) || last.starts_with(&year(after).to_string()), "{last}");
        assert_eq!(claim(&queue, 5).await.len(), 0);
        assert_eq!(failed(&queue, &job, "again").await, Nacked::Lost);
        assert_eq!(ack(&queue, &[job]).await.lost, 1);
    }

    async fn a_job_that_is_told_to_be_dead_has_no_more_attempts(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        push(&queue, "1").await;
        let job = one(&queue).await;
        let nack = Nack { dead: true, ..Nack::of(job.lease.clone(), "422 Unprocessable") };
        assert_eq!(queue.nack(nack).await.expect("nack"), Nacked::Dead { attempt: 1 });
        let letter = &dead_letters(&queue).await[0];
        assert_eq!((letter["attempt_count"].as_u64(), letter["error"].as_str()), (Some(1), Some("422 Unprocessable")));
        assert_eq!(letter["first_failed_at"], letter["last_failed_at"]);
    }

    async fn a_poison_job_whose_workers_all_die_ends_as_a_dead_letter(subject: &Subject) {
        let (_, queue) = declare(subject, "retry = { max_attempts = 3 }");
        push_all(&queue, &["\"poison\"", "\"good\""]).await;
        for attempt in 1..=3 {
            let how = Claim { lease: Some(Duration::from_millis(20)), worker: Some("w-7".into()), ..Claim::default() };
            let jobs = queue.claim(how).await.expect("claim");
            assert_eq!((payloads(&jobs), jobs[0].attempt), (vec!["\"poison\""], attempt));
            subject.pass(22).await;
        }
        let jobs = claim(&queue, 1).await;
        assert_eq!(payloads(&jobs), ["\"good\""], "it is not delivered a fourth time, and does not stand in the way");
        let letter = &dead_letters(&queue).await[0];
        assert_eq!((&letter["original_job"], &letter["attempt_count"]), (&serde_json::json!("poison"), &serde_json::json!(3)));
        let error = letter["error"].as_str().expect("text");
        assert!(error.contains("attempt 3") && error.contains("w-7"), "{error}");
        assert!(letter["first_failed_at"].as_str() < letter["last_failed_at"].as_str());
        assert_eq!(places(&queue).await, (0, 1, 0, 1));
    }

    async fn a_sweep_buries_and_returns_without_a_claim(subject: &Subject) {
        let (_, queue) = declare(subject, "retry = { max_attempts = 1 }");
        push_all(&queue, &["1", "2"]).await;
        let jobs = claim(&queue, 2).await;
        assert_eq!(queue.sweep().await.expect("sweep"), quaymaster::queue::Swept::default());
        shorten(&queue, &jobs, 20).await;
        subject.pass(22).await;
        let swept = queue.sweep().await.expect("sweep");
        assert_eq!((swept.returned, swept.buried), (0, 2));
        assert_eq!((places(&queue).await, ack(&queue, &jobs).await.lost), ((0, 0, 0, 2), 2));
        let (_, queue) = declare(&subject.apart("returned"), "retry = { max_attempts = 2 }");
        push_all(&queue, &["1", "2"]).await;
        let jobs = claim_for(&queue, 2, 20).await;
        subject.pass(22).await;
        let swept = queue.sweep().await.expect("sweep");
        assert_eq!((swept.returned, swept.buried), (2, 0));
        assert_eq!((places(&queue).await, ack(&queue, &jobs).await.lost), ((0, 0, 2, 0), 2));
        let again = claim(&queue, 5).await;
        assert_eq!((payloads(&again), again[0].attempt), (vec!["1", "2"], 2));
    }

    async fn what_is_released_comes_next_and_was_not_tried(subject: &Subject) {
        let (_, queue) = declare(subject, "retry = { max_attempts = 1 }");
        push_all(&queue, &["1", "2", "3"]).await;
        let jobs = claim(&queue, 2).await;
        assert_eq!(queue.release(&leases(&jobs)).await.expect("release"), 2);
        assert_eq!(queue.release(&leases(&jobs)).await.expect("release"), 0);
        assert_eq!(ack(&queue, &jobs).await.lost, 2);
        let again = claim(&queue, 3).await;
        assert_eq!((payloads(&again), again[0].attempt, again[1].attempt), (vec!["1", "2", "3"], 1, 1));
    }
}
