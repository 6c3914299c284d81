//! Numbers beyond what a script can count with, left in side keys by other programs or by a clock that was once wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quaymaster::idempotency::{Begin, Begun};
use quaymaster::lock::{Acquire, Acquired, Renewed};
use quaymaster::queue::{Ack, Claim, ClaimNext, Job, Lease, Nack, Push, Queue, Redrive, Then};
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

/// The last sequence that is let through.
const LAST: &str = "8999899999999999";

/// Puts a stranger's job wherever the next `count` numbers are looked for, from `number` on.
async fn take_every_number(subject: &Subject, jobs: &str, mut number: u64, count: u64) {
    let mut step = count;
    for _ in 0..32 {
        command_int(&*subject.engine, &["HSET", jobs, &number.to_string(), "theirs"]).await;
        (number, step) = (number + step, step * 2);
    }
}

/// The lease of a job that was pushed for it, or of one that was there.
async fn one_lease(queue: &Queue) -> Lease {
    queue.push(items(1..2)).await.expect("pushed");
    queue.claim(Claim::default()).await.expect("claimed").remove(0).lease
}

/// How many jobs wait, are delayed or held.
async fn all_jobs(queue: &Queue) -> u64 {
    let pressure = queue.pressure().await.expect("pressure");
    pressure.current_length + pressure.delayed + pressure.leased
}

fn push_to(name: &str, delay: Option<Duration>) -> Then {
    Then::Push { name: name.into(), payload: "7".into(), priority: None, delay }
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

    async fn a_repeated_claim_gets_its_jobs_again_whatever_their_numbers(subject: &Subject) {
        let quaymaster = queues(subject);
        let queue = quaymaster.queue("work").expect("declared");
        let [jobs, held, leases] = ["jobs", "held", "leases"].map(|role| subject.side("work", role));
        let tried_often = "token 99 1 - 0";
        for (id, record) in [("10413792000000000", "token 1 0 - 0"), ("10413792000000001", tried_often)] {
            command_int(&*subject.engine, &["HSET", &jobs, id, "7"]).await;
            command_int(&*subject.engine, &["HSET", &held, id, record]).await;
            command_int(&*subject.engine, &["ZADD", &leases, "1", id]).await;
        }
        queue.push(items(1..2)).await.expect("pushed");
        let three = || Claim { count: 3, request_id: Some("again".to_owned()), ..Claim::default() };
        let first = queue.claim(three()).await.expect("claimed");
        let told = |jobs: &[Job]| jobs.iter().map(|job| (job.id.clone(), job.attempt, job.lease.clone())).collect::<Vec<_>>();
        assert_eq!(first.len(), 2, "the dying one is buried");
        assert_eq!(first[0].id, "10413792000000000");
        assert_eq!(told(&queue.claim(three()).await.expect("claimed again")), told(&first));
        // An earlier version kept the numbers alone.
        let request = subject.side("work", "req:again");
        let record = format!("claim {}", first[1].id);
        command_text(&*subject.engine, &["SET", &request, &record, "PX", "60000"]).await;
        assert_eq!(told(&queue.claim(three()).await.expect("claimed again")), told(&first[1..]));

        // An ack that claims hands out such a number, too; with something that follows it, as well.
        for (request_id, then) in [("ack", vec![]), ("then", vec![push_to("work", None)])] {
            let done = one_lease(queue).await;
            command_int(&*subject.engine, &["HSET", &held, "10413792000000000", "token 1 0 - 0"]).await;
            command_int(&*subject.engine, &["ZADD", &leases, "1", "10413792000000000"]).await;
            let ack = || Ack {
                claim: Some(ClaimNext { count: 1, lease: None, worker: None }),
                then: then.clone(),
                request_id: Some(request_id.to_owned()),
                ..Ack::of(vec![done.clone()])
            };
            let acked = queue.ack(ack()).await.expect("acked");
            assert_eq!((acked.acked, acked.jobs[0].id.as_str()), (1, "10413792000000000"), "{request_id}");
            let again = queue.ack(ack()).await.expect("acked again");
            assert_eq!((again.acked, told(&again.jobs)), (1, told(&acked.jobs)), "{request_id}");
        }
    }

    async fn a_push_finds_a_place_however_many_are_taken(subject: &Subject) {
        let quaymaster = subject.schema("[queue.ranked]\norder = \"priority\"\nmax_size = 2000\n");
        let (queue, meta) = (quaymaster.queue("ranked").expect("declared"), subject.side("ranked", "meta"));
        command_int(&*subject.engine, &["HSET", &meta, "sequence", "8000000000000000"]).await;
        let taken: Vec<String> = (1..=1200).map(|step| format!("{:016}:7", 1_007_199_254_740_991u64 - step)).collect();
        let items_key = format!("{}ranked", subject.prefix);
        let mut add = vec!["ZADD", &items_key];
        add.extend(taken.iter().flat_map(|member| ["0", member.as_str()]));
        command_int(&*subject.engine, &add).await;
        queue.push(items(7..8)).await.expect("pushed");
        assert_eq!(queue.pressure().await.expect("pressure").current_length, 1201);
    }

    async fn jobs_that_take_every_number_are_told_after_what_was_acked(subject: &Subject) {
        let quaymaster = queues(subject);
        let queue = quaymaster.queue("work").expect("declared");
        let (meta, jobs) = (subject.side("work", "meta"), subject.side("work", "jobs"));
        queue.push(items(1..4)).await.expect("pushed");
        let first = queue.claim(Claim::default()).await.expect("claimed").remove(0);
        // Wherever the next number is looked for, a stranger's job is there.
        command_int(&*subject.engine, &["HSET", &meta, "sequence", "8000000000000999"]).await;
        take_every_number(subject, &jobs, 8_000_000_000_001_000, 1).await;
        let error = queue.claim(Claim::default()).await.expect_err("no number is free");
        assert_eq!((error.code, error.may_have_run), (Code::KeyMalformed, false), "{error}");
        assert!(error.detail.contains(&jobs), "{error}");
        let ack = Ack { claim: Some(ClaimNext { count: 1, lease: None, worker: None }), ..Ack::of(vec![first.lease]) };
        let done = queue.ack(ack).await.expect("acked");
        assert_eq!((done.acked, done.jobs.len()), (1, 0));
        assert_eq!(queue.pressure().await.expect("pressure").current_length, 2);
    }

    async fn the_look_for_numbers_ends_where_numbers_do(subject: &Subject) {
        let quaymaster = subject.schema("[queue.work]\nmax_size = 100000\n");
        let queue = quaymaster.queue("work").expect("declared");
        let (meta, jobs) = (subject.side("work", "meta"), subject.side("work", "jobs"));
        command_int(&*subject.engine, &["HSET", &meta, "sequence", LAST]).await;
        take_every_number(subject, &jobs, 8_999_900_000_000_000, 10_000).await;
        let error = queue.push(Push { delay: Some(Duration::from_secs(60)), ..items(0..10_000) }).await;
        let error = error.expect_err("no number is free");
        assert_eq!((error.code, error.may_have_run), (Code::KeyMalformed, false), "{error}");
        queue.push(items(1..2)).await.expect("the store answers");
    }

    async fn an_id_that_no_integer_holds_stands_in_nobodys_way(subject: &Subject) {
        let quaymaster = queues(subject);
        for (name, index) in [("work", "leases"), ("work", "delayed"), ("ranked", "leases")] {
            let queue = quaymaster.queue(name).expect("declared");
            let [jobs, index] = ["jobs", index].map(|role| subject.side(name, role));
            for id in ["99999999999999999999", "9999999999999999999", "007"] {
                command_int(&*subject.engine, &["HSET", &jobs, id, "7"]).await;
                command_int(&*subject.engine, &["ZADD", &index, "1", id]).await;
            }
            queue.push(items(1..3)).await.expect("pushed");
            let _ = queue.sweep().await.expect("swept");
            let mut got = claim(queue).await.expect("claimed");
            got.extend(claim(queue).await.expect("claimed"));
            got.sort_by(|one, two| one.payload.cmp(&two.payload));
            let told: Vec<_> = got.iter().map(|job| (&job.payload[..], job.attempt)).collect();
            assert_eq!(told, [(&b"1"[..], 1), (b"2", 1)], "{name} {index}");
            let leases = got.into_iter().map(|job| job.lease).collect();
            assert_eq!(queue.ack(Ack::of(leases)).await.expect("acked").acked, 2);
        }
    }

    async fn a_claim_that_is_refused_has_changed_nothing(subject: &Subject) {
        let quaymaster = queues(subject);
        let queue = quaymaster.queue("work").expect("declared");
        let [meta, jobs, delayed] = ["meta", "jobs", "delayed"].map(|role| subject.side("work", role));
        queue.push(items(1..2)).await.expect("pushed");
        command_int(&*subject.engine, &["HSET", &meta, "sequence", "8000000000000999"]).await;
        take_every_number(subject, &jobs, 8_000_000_000_001_000, 1).await;
        command_int(&*subject.engine, &["ZADD", &delayed, "1", "nobody"]).await;
        // The stranger in front is removed, and that is told: no error.
        assert_eq!(queue.claim(Claim::default()).await.expect("claimed").len(), 0);
        assert_eq!(command_text(&*subject.engine, &["HGET", &meta, "foreign"]).await.as_deref(), Some("1"));
        let error = queue.claim(Claim::default()).await.expect_err("no number is free");
        assert_eq!((error.code, error.may_have_run), (Code::KeyMalformed, false), "{error}");
        assert_eq!(command_text(&*subject.engine, &["HGET", &meta, "foreign"]).await.as_deref(), Some("1"));
    }

    async fn what_follows_from_an_ack_gets_its_numbers_before_anything_is_written(subject: &Subject) {
        let quaymaster = queues(subject);
        let later = Some(Duration::from_secs(60));
        let next = Some(ClaimNext { count: 1, lease: None, worker: None });
        for (name, delay) in [("ranked", None), ("ranked", later), ("work", later)] {
            let [meta, jobs] = ["meta", "jobs"].map(|role| subject.side(name, role));
            let queue = quaymaster.queue(name).expect("declared");
            let before = all_jobs(queue).await;
            let then = vec![push_to(name, delay), push_to(name, delay)];
            // The first part takes the last number that the second one's check would let through.
            let lease = one_lease(queue).await;
            command_int(&*subject.engine, &["HSET", &meta, "sequence", LAST]).await;
            let ack = Ack { then: then.clone(), claim: next.clone(), ..Ack::of(vec![lease]) };
            assert_eq!(queue.ack(ack).await.expect("all of it fits").acked, 1, "{name}");
            assert_eq!(all_jobs(queue).await, before + 2, "{name}");
            command_int(&*subject.engine, &["HDEL", &meta, "sequence"]).await;
            if delay.is_none() {
                continue;
            }
            // The second one's numbers are taken: it is refused, and nothing was done.
            let lease = one_lease(queue).await;
            command_int(&*subject.engine, &["HSET", &meta, "sequence", "7000000000000998"]).await;
            take_every_number(subject, &jobs, 7_000_000_000_001_000, 1).await;
            let error = queue.ack(Ack { then, ..Ack::of(vec![lease.clone()]) }).await.expect_err("no number is free");
            assert_eq!((error.code, error.may_have_run), (Code::KeyMalformed, false), "{error}");
            assert_eq!(all_jobs(queue).await, before + 3, "{name}");
            assert_eq!(queue.ack(Ack::of(vec![lease])).await.expect("acked").acked, 1, "it was held still");
            command_int(&*subject.engine, &["HDEL", &meta, "sequence"]).await;
        }
    }

    async fn all_letters_come_back_near_the_end_of_numbers(subject: &Subject) {
        let quaymaster = queues(subject);
        let (queue, meta) = (quaymaster.queue("ranked").expect("declared"), subject.side("ranked", "meta"));
        queue.push(items(1..4)).await.expect("pushed");
        for job in queue.claim(Claim { count: 3, ..Claim::default() }).await.expect("claimed") {
            let nack = Nack { lease: job.lease, error: "bad".into(), delay: None, dead: true, request_id: None };
            let _ = queue.nack(nack).await.expect("nacked");
        }
        command_int(&*subject.engine, &["HSET", &meta, "sequence", LAST]).await;
        let moved = queue.redrive(Redrive::default(), |_| {}).await.expect("redriven");
        let pressure = queue.pressure().await.expect("pressure");
        assert_eq!((moved.moved, pressure.current_length, pressure.dead), (3, 3, 0));
    }

    async fn delayed_jobs_of_an_ack_take_no_room_of_those_that_wait(subject: &Subject) {
        let quaymaster = subject.schema("[queue.work]\nmax_size = 2\n");
        let queue = quaymaster.queue("work").expect("declared");
        queue.push(items(1..2)).await.expect("pushed");
        let lease = queue.claim(Claim::default()).await.expect("claimed").remove(0).lease;
        let later = Some(Duration::from_secs(60));
        let then = vec![push_to("work", None), push_to("work", None), push_to("work", later), push_to("work", later)];
        let ack = |then: Vec<Then>| Ack { then, ..Ack::of(vec![lease.clone()]) };
        for extra in [None, later] {
            let mut more = then.clone();
            more.push(push_to("work", extra));
            assert_eq!(queue.ack(ack(more)).await.expect_err("one too many").code, Code::QueueFull);
        }
        assert_eq!(queue.ack(ack(then)).await.expect("all of it fits").acked, 1);
        let pressure = queue.pressure().await.expect("pressure");
        assert_eq!((pressure.current_length, pressure.delayed), (2, 2));
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
        // Whoever gets the last fence can renew it; the next one is refused.
        let _ = lock.release(A, &lease.token, None).await.expect("release");
        command(&*subject.engine, fence.as_bytes(), &[b"SET", fence.as_bytes(), LAST.as_bytes()]).await.expect("set");
        let Acquired::Ours(lease) = lock.acquire(A, Acquire::default()).await.expect("acquire") else {
            panic!("nobody has it")
        };
        assert_eq!(lease.fence, 8_999_900_000_000_000);
        assert!(matches!(lock.renew(A, &lease.token, None).await.expect("renew"), Renewed::Ours(_)));
        let _ = lock.release(A, &lease.token, None).await.expect("release");
        assert_eq!(lock.acquire(A, Acquire::default()).await.expect_err("the last one").code, Code::KeyMalformed);
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
