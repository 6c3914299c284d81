//! Numbers beyond what a script can count with, left in side keys by other programs or by a clock that was once wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quaymaster::idempotency::{Begin, Begun};
use quaymaster::lock::{Acquire, Acquired};
use quaymaster::queue::{Ack, Claim, Job, Push, Queue};
use quaymaster::{Code, Quaymaster, Result};

use super::{Subject, command, command_int, command_text};
use crate::saboteur::Saboteur;
use crate::toll::Toll;

const A: &[(&str, &str)] = &[("id", "a")];
/// 2^53, and what is beyond.
const BEYOND: &[&str] = &["9007199254740992", "10000000000000000", "9223372036854775808"];

fn queues(subject: &Subject) -> Quaymaster {
    subject.schema("[queue.work]\nmax_size = 1000\n[queue.ranked]\norder = \"priority\"\nmax_size = 1000\n")
}

async fn claim(queue: &Queue) -> Result<Vec<Job>> {
    queue.claim(Claim { count: 2, ..Claim::default() }).await
}

fn items(numbers: std::ops::Range<u32>) -> Push {
    Push::many(numbers.map(|number| Bytes::from(number.to_string())).collect())
}

crate::cases! {
    async fn a_sequence_at_its_end_hands_out_no_id_twice_and_loses_no_job(subject: &Subject) {
        let quaymaster = queues(subject);
        for name in ["work", "ranked"] {
            let (queue, meta) = (quaymaster.queue(name).expect("declared"), subject.side(name, "meta"));
            queue.push(items(1..7)).await.expect("pushed");
            for beyond in BEYOND {
                command_int(&*subject.engine, &["HSET", &meta, "sequence", beyond]).await;
                for _ in 0..3 {
                    let error = claim(queue).await.expect_err("no number can be given");
                    assert_eq!(error.code, Code::KeyMalformed, "{error}");
                    assert!(error.detail.contains(&meta), "{error}");
                }
                let later = Push { delay: Some(Duration::from_secs(60)), ..items(7..8) };
                assert_eq!(queue.push(later).await.expect_err("no number").code, Code::KeyMalformed);
                assert_eq!(queue.pressure().await.expect("pressure").current_length, 6, "{name}");
            }
            command_int(&*subject.engine, &["HDEL", &meta, "sequence"]).await;
            let mut ids = BTreeMap::new();
            for _ in 0..3 {
                for job in claim(queue).await.expect("claimed") {
                    assert_eq!(ids.insert(job.id.clone(), job.payload), None, "{} twice", job.id);
                }
            }
            assert_eq!(ids.len(), 6);
        }
    }

    async fn a_job_is_never_given_the_number_of_another(subject: &Subject) {
        let quaymaster = queues(subject);
        let queue = quaymaster.queue("work").expect("declared");
        let (meta, jobs) = (subject.side("work", "meta"), subject.side("work", "jobs"));
        // Somebody has set the sequence back, and jobs are there under the numbers that come next.
        command_int(&*subject.engine, &["HSET", &meta, "sequence", "8000000000000999"]).await;
        for id in ["8000000000001000", "8000000000001001", "8000000000001005"] {
            command_int(&*subject.engine, &["HSET", &jobs, id, "theirs"]).await;
        }
        queue.push(items(1..5)).await.expect("pushed");
        queue.push(Push { delay: Some(Duration::from_secs(60)), ..items(5..7) }).await.expect("pushed");
        let mut ids = Vec::new();
        for _ in 0..2 {
            ids.extend(claim(queue).await.expect("claimed").into_iter().map(|job| job.id));
        }
        assert_eq!(ids.len(), 4);
        for id in ["8000000000001000", "8000000000001001", "8000000000001005"] {
            assert!(!ids.contains(&id.to_owned()), "{ids:?}");
            let held = command_text(&*subject.engine, &["HGET", &jobs, id]).await;
            assert_eq!(held.as_deref(), Some("theirs"));
        }
        assert_eq!(command_int(&*subject.engine, &["HLEN", &jobs]).await, 9);
    }

    async fn a_job_whose_number_is_beyond_those_that_are_given_is_not_lost(subject: &Subject) {
        let quaymaster = queues(subject);
        for (name, index) in [("work", "leases"), ("work", "delayed"), ("ranked", "leases")] {
            let queue = quaymaster.queue(name).expect("declared");
            let [jobs, held, index] = ["jobs", "held", index].map(|role| subject.side(name, role));
            // As a clock in the year 2300 has left it.
            let id = "10413792000000000";
            command_int(&*subject.engine, &["HSET", &jobs, id, "7"]).await;
            command_int(&*subject.engine, &["HSET", &held, id, "token 1 0 - 0"]).await;
            command_int(&*subject.engine, &["ZADD", &index, "1", id]).await;
            command_int(&*subject.engine, &["ZADD", &index, "1", "nobody"]).await;
            let _ = queue.sweep().await.expect("swept");
            let jobs = claim(queue).await.expect("claimed");
            let told: Vec<_> = jobs.iter().map(|job| (job.id.as_str(), &job.payload[..])).collect();
            assert_eq!(told, [(id, &b"7"[..])], "{name} {index}");
            let leases = jobs.into_iter().map(|job| job.lease).collect();
            assert_eq!(queue.ack(Ack::of(leases)).await.expect("acked").acked, 1);
        }
    }

    async fn a_sequence_whose_next_number_is_beyond_its_end_is_refused(subject: &Subject) {
        let quaymaster = queues(subject);
        let (queue, meta) = (quaymaster.queue("work").expect("declared"), subject.side("work", "meta"));
        queue.push(items(1..3)).await.expect("pushed");
        command_int(&*subject.engine, &["HSET", &meta, "sequence", "8999999999999999"]).await;
        assert_eq!(claim(queue).await.expect_err("no number can be given").code, Code::KeyMalformed);
        assert_eq!(queue.pressure().await.expect("pressure").current_length, 2);
    }

    async fn a_fence_at_its_end_is_refused_and_never_goes_back(subject: &Subject) {
        let quaymaster = subject.schema("[lock.door]\nkey = \"door:{id}\"\nttl = \"30s\"\n");
        let (lock, fence) = (quaymaster.lock("door").expect("declared"), subject.side("door:a", "fence"));
        for beyond in BEYOND.iter().chain(&["text", "1e16", "007", ""]) {
            command(&*subject.engine, fence.as_bytes(), &[b"SET", fence.as_bytes(), beyond.as_bytes()])
                .await
                .expect("set");
            let error = lock.acquire(A, Acquire::default()).await.expect_err("no fence can be given");
            assert_eq!(error.code, Code::KeyMalformed, "{error}");
            assert!(error.detail.contains(&fence), "{error}");
            assert_eq!(command_text(&*subject.engine, &["GET", &fence]).await.as_deref(), Some(*beyond));
        }
        command(&*subject.engine, fence.as_bytes(), &[b"SET", fence.as_bytes(), b"8000000000000000"])
            .await
            .expect("set");
        let Acquired::Ours(lease) = lock.acquire(A, Acquire::default()).await.expect("acquire") else {
            panic!("nobody has it")
        };
        assert_eq!(lease.fence, 8_000_000_000_000_001);
    }

    async fn a_claim_that_never_ends_is_not_asked_for_over_and_over(subject: &Subject) {
        let key = format!("{}idem:a", subject.prefix);
        let schema = "[idempotency.pay]\nkey = \"idem:{id}\"\nttl = \"1h\"\n";
        let begin = Begin { wait: Duration::from_millis(300), ..Begin::default() };
        // A deadline beyond all time is not ours.
        let toll = Toll::new(subject.engine.clone());
        let counted = Quaymaster::new(subject.schema(schema).schema().clone(), toll.clone());
        let pay = counted.idempotency("pay").expect("declared");
        let record = format!("p somebody {} -", "9".repeat(32));
        command(&*subject.engine, key.as_bytes(), &[b"SET", key.as_bytes(), record.as_bytes()]).await.expect("set");
        let error = pay.begin(A, begin).await.expect_err("not ours");
        assert_eq!(error.code, Code::KeyMalformed, "{error}");
        assert!(error.detail.contains(&key), "{error}");
        assert_eq!(toll.runs(), 1);
        // A claim whose end is always now is asked for less and less often.
        command(&*subject.engine, key.as_bytes(), &[b"SET", key.as_bytes(), b"p somebody 8999999999999999 -"])
            .await
            .expect("set");
        let now = Saboteur::new(toll.clone(), "idempotency.begin", "return { word, x, bytes }", "return { word, 0, bytes }");
        let always_now = Quaymaster::new(subject.schema(schema).schema().clone(), Arc::new(now));
        let pay = always_now.idempotency("pay").expect("declared");
        let begun = pay.begin(A, begin).await.expect("begin");
        assert!(matches!(begun, Begun::InProgress { .. }), "{begun:?}");
        let runs = toll.runs();
        assert!(runs <= 16, "{runs} scripts for one answer");
    }
}
