//! Calls of a queue that come again, and how many round trips they take.

use std::time::Duration;

use quaymaster::Code;
use quaymaster::queue::{Ack, Acked, Claim, ClaimNext, Extended, Nack, Nacked, Push};

use super::queue::{
    LONG, ack, claim, code, declare, leases, one, payloads, places, pressure, push, push_all, spelled,
};
use super::{Subject, command_int};
use crate::toll::Toll;

crate::cases! {
    async fn a_repeated_request_gets_the_same_answer(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        let push = Push { request_id: Some("p".into()), ..Push::many(vec!["1".into(), "2".into(), "3".into()]) };
        let pushed = queue.push(push.clone()).await.expect("push");
        assert_eq!(queue.push(push).await.expect("push"), pushed);
        let how = Claim { count: 2, request_id: Some("c".into()), ..Claim::default() };
        let jobs = queue.claim(how.clone()).await.expect("claim");
        let again = queue.claim(how.clone()).await.expect("claim");
        assert_eq!((leases(&again), payloads(&again)), (leases(&jobs), vec!["1", "2"]));
        assert!(again.iter().all(|job| job.lease_expires_in <= Duration::from_secs(30) && job.lease_expires_in > Duration::from_secs(20)));
        let ack = Ack { request_id: Some("a".into()), ..Ack::of(vec![jobs[0].lease.clone()]) };
        assert_eq!(queue.ack(ack.clone()).await.expect("ack").acked, 1);
        assert_eq!(queue.ack(ack).await.expect("ack").acked, 1, "the same answer, and acked once");
        assert_eq!(pressure(&queue).await.totals.acked, 1);
        assert_eq!(payloads(&queue.claim(how.clone()).await.expect("claim")), ["2"], "what it still holds");
        let nack = Nack { request_id: Some("n".into()), delay: Some(LONG), ..Nack::of(jobs[1].lease.clone(), "no") };
        let retry = Nacked::Retry { attempt: 1, retry_in: LONG };
        assert_eq!(queue.nack(nack.clone()).await.expect("nack"), retry);
        assert_eq!(queue.nack(nack).await.expect("nack"), retry);
        assert!(queue.claim(how).await.expect("claim").is_empty(), "it holds nothing any more, and gets nothing new");
        let job = one(&queue).await;
        let nack = Nack { request_id: Some("d".into()), dead: true, ..Nack::of(job.lease, "no") };
        assert_eq!(queue.nack(nack.clone()).await.expect("nack"), Nacked::Dead { attempt: 1 });
        assert_eq!(queue.nack(nack).await.expect("nack"), Nacked::Dead { attempt: 1 });
        let conflict = Claim { request_id: Some("p".into()), ..Claim::default() };
        assert_eq!(code(queue.claim(conflict).await), Code::RequestReused);
    }

    async fn a_repeated_claim_does_not_get_what_somebody_else_holds(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        push(&queue, "1").await;
        let how = Claim { lease: Some(Duration::from_millis(20)), request_id: Some("c".into()), ..Claim::default() };
        assert_eq!(queue.claim(how.clone()).await.expect("claim").len(), 1);
        subject.pass(22).await;
        assert!(queue.claim(how.clone()).await.expect("claim").is_empty(), "its lease has ended");
        let theirs = one(&queue).await;
        assert!(queue.claim(how).await.expect("claim").is_empty(), "somebody else has it");
        assert_eq!(ack(&queue, &[theirs]).await.acked, 1);
    }

    async fn a_claim_that_found_nothing_is_asked_anew(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        let how = Claim { request_id: Some("c".into()), ..Claim::default() };
        assert!(queue.claim(how.clone()).await.expect("claim").is_empty());
        push(&queue, "1").await;
        assert_eq!(payloads(&queue.claim(how).await.expect("claim")), ["1"]);
    }

    async fn the_same_request_long_after_does_not_answer_for_an_old_attempt(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "");
        push(&queue, "1").await;
        let how = Claim { lease: Some(Duration::from_millis(20)), request_id: Some("c".into()), ..Claim::default() };
        let old = queue.claim(how.clone()).await.expect("claim");
        subject.pass(22).await;
        // As if ten minutes had passed: the store has forgotten the request, the token is derived anew.
        command_int(&*subject.engine, &["DEL", &spelled(subject, &quaymaster, "request", &[("request_id", "c")])]).await;
        let how = Claim { lease: None, ..how };
        let new = queue.claim(how).await.expect("claim");
        assert_eq!(new[0].attempt, 2);
        assert_eq!(ack(&queue, &old).await.lost, 1);
        assert_eq!(ack(&queue, &new).await.acked, 1);
    }

    async fn ack_and_claim_are_one_round_trip(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        let (_, queue) = declare(&Subject { engine: toll.clone(), ..subject.clone() }, "");
        push_all(&queue, &["1", "2", "3"]).await;
        let jobs = claim(&queue, 2).await;
        toll.runs();
        let next = Some(ClaimNext { count: 2, lease: Some(LONG), worker: Some("w".into()) });
        let all = Ack { claim: next.clone(), request_id: Some("r".into()), ..Ack::of(leases(&jobs)) };
        let acked = queue.ack(all.clone()).await.expect("ack");
        assert_eq!(toll.runs(), 1);
        assert_eq!((acked.acked, acked.lost, payloads(&acked.jobs)), (2, 0, vec!["3"]));
        assert_eq!(acked.jobs[0].lease_expires_in, LONG);
        let again = queue.ack(all).await.expect("ack");
        assert_eq!((again.acked, again.lost, leases(&again.jobs)), (2, 0, leases(&acked.jobs)), "told once more");
        assert_eq!(pressure(&queue).await.totals.acked, 2);
        let empty = queue.ack(Ack { claim: next, ..Ack::default() }).await.expect("ack");
        assert_eq!(empty, Acked::default());
        toll.runs();
        ack(&queue, &acked.jobs).await.acked.checked_sub(1).expect("acked");
        claim(&queue, 100).await;
        push(&queue, "4").await;
        assert_eq!(toll.runs(), 3, "one each");
    }

    async fn a_call_that_is_sent_twice_happens_once(subject: &Subject) {
        let toll = Toll::new(subject.engine.clone());
        let (_, queue) = declare(&Subject { engine: toll.clone(), ..subject.clone() }, "retry = { max_attempts = 1 }");
        toll.send_twice();
        let id = |id: &str| Some(id.to_owned());
        let pushed = queue.push(Push { request_id: id("p"), ..Push::many(vec!["1".into(), "2".into(), "3".into()]) }).await;
        assert_eq!(pushed.expect("push").queue_length, 3);
        let jobs = queue.claim(Claim { count: 3, request_id: id("c"), ..Claim::default() }).await.expect("claim");
        assert_eq!(payloads(&jobs), ["1", "2", "3"]);
        let acked = queue.ack(Ack { request_id: id("a"), ..Ack::of(vec![jobs[0].lease.clone()]) }).await.expect("ack");
        assert_eq!((acked.acked, acked.lost), (1, 0));
        let nack = Nack { request_id: id("n"), ..Nack::of(jobs[1].lease.clone(), "no") };
        assert_eq!(queue.nack(nack).await.expect("nack"), Nacked::Dead { attempt: 1 });
        assert_eq!(queue.extend(&jobs[2].lease, None).await.expect("extend"), Extended::Ours { expires_in: Duration::from_secs(30) });
        assert_eq!(places(&queue).await, (0, 1, 0, 1));
    }
}
