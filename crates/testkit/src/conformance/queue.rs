//! What every queue must do on every store: pushing, claiming, answering a lease.

use std::time::Duration;

use bytes::Bytes;
use quaymaster::queue::{
    Ack, Acked, Claim, ClaimNext, Extended, Item, Job, Lease, MAX_COUNT, MAX_PUSH, Nack, Nacked, Pressure,
    Push, PushDedupe, Pushed, Queue, Redriven,
};
use quaymaster::{Code, Quaymaster};
use quaymaster_schema::{Kind, Spelling};
use quaymaster_store::{Reply, Topology};

use super::{Subject, command, command_int, command_text};

/// Longer than anything takes on a busy machine: what is waited for comes long before.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// A queue `q`, and what one step of it is joined with, in one slot.
pub(super) fn declare(subject: &Subject, more: &str) -> (Quaymaster, Queue) {
    let quaymaster = subject.schema(&format!("[queue.q]\ncolocate = \"q\"\n{more}\n"));
    let queue = quaymaster.queue("q").expect("declared").clone();
    (quaymaster, queue)
}

/// The key of `q` that plays this role, as this store spells it.
pub(super) fn spelled(
    subject: &Subject,
    quaymaster: &Quaymaster,
    role: &str,
    values: &[(&str, &str)],
) -> String {
    let resource = quaymaster.schema().resource(Kind::Queue, "q").expect("declared");
    let spelling = match subject.engine.topology() {
        Topology::Single => Spelling::Single,
        Topology::Cluster => Spelling::Cluster,
    };
    let mut key = Vec::new();
    resource.key(role).expect("a role").pattern.render(values, 0, spelling, &mut key).expect("a key");
    String::from_utf8(key).expect("keys are text")
}

pub(super) fn text(payload: &Bytes) -> &str {
    std::str::from_utf8(payload).expect("JSON is text")
}

pub(super) async fn push(queue: &Queue, payload: &'static str) -> Pushed {
    queue.push(Push::one(payload)).await.expect("push answers")
}

pub(super) async fn push_all(queue: &Queue, payloads: &[&'static str]) -> Pushed {
    let payloads = payloads.iter().map(|payload| Bytes::from_static(payload.as_bytes())).collect();
    queue.push(Push::many(payloads)).await.expect("push answers")
}

pub(super) async fn claim(queue: &Queue, count: usize) -> Vec<Job> {
    queue.claim(Claim { count, ..Claim::default() }).await.expect("claim answers")
}

pub(super) async fn claim_for(queue: &Queue, count: usize, lease_ms: u64) -> Vec<Job> {
    let lease = Some(Duration::from_millis(lease_ms));
    queue.claim(Claim { count, lease, ..Claim::default() }).await.expect("claim answers")
}

pub(super) async fn one(queue: &Queue) -> Job {
    let mut jobs = claim(queue, 1).await;
    assert_eq!(jobs.len(), 1, "one job waits");
    jobs.remove(0)
}

pub(super) fn payloads(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| text(&job.payload)).collect()
}

pub(super) fn leases(jobs: &[Job]) -> Vec<Lease> {
    jobs.iter().map(|job| job.lease.clone()).collect()
}

pub(super) async fn ack(queue: &Queue, jobs: &[Job]) -> Acked {
    queue.ack(Ack::of(leases(jobs))).await.expect("ack answers")
}

pub(super) async fn pressure(queue: &Queue) -> Pressure {
    queue.pressure().await.expect("pressure answers")
}

/// The leases end so much later, and no sooner by a slow machine.
pub(super) async fn shorten(queue: &Queue, jobs: &[Job], ms: u64) {
    let all = queue.extend_all(&leases(jobs), Some(Duration::from_millis(ms))).await.expect("extend answers");
    assert!(all.iter().all(|one| matches!(one, Extended::Ours { .. })), "{all:?}");
}

/// Where the jobs are: waiting, leased, delayed, dead.
pub(super) async fn places(queue: &Queue) -> (u64, u64, u64, u64) {
    let now = pressure(queue).await;
    (now.current_length, now.leased, now.delayed, now.dead)
}

pub(super) async fn dead_letters(queue: &Queue) -> Vec<serde_json::Value> {
    let page = queue.dead(100, 0).await.expect("dead answers");
    page.items.iter().map(|item| serde_json::from_slice(item.bytes()).expect("letters are JSON")).collect()
}

/// The items of the list itself, as another program sees them.
pub(super) async fn items(subject: &Subject, key: &str) -> Vec<Vec<u8>> {
    let words = [b"LRANGE", key.as_bytes(), b"0", b"-1"];
    match command(&*subject.engine, key.as_bytes(), &words).await.expect("LRANGE answers") {
        Reply::Array(items) => items
            .into_iter()
            .map(|item| match item {
                Reply::Bytes(bytes) => bytes.to_vec(),
                other => panic!("{other:?}"),
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn failed(queue: &Queue, job: &Job, error: &str) -> Nacked {
    queue
        .nack(Nack { delay: Some(Duration::ZERO), ..Nack::of(job.lease.clone(), error) })
        .await
        .expect("nack answers")
}

pub(super) fn code<T: std::fmt::Debug>(answer: quaymaster::Result<T>) -> Code {
    answer.expect_err("it must be refused").code
}

crate::cases! {
    async fn jobs_come_in_the_order_they_were_pushed_and_are_gone_when_acked(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        assert!(claim(&queue, 5).await.is_empty(), "nothing waits");
        assert_eq!(push(&queue, "{\"n\": 1}").await, Pushed { accepted: 1, queue_length: 1, ..Pushed::default() });
        assert_eq!(push_all(&queue, &["2", "\"3\""]).await, Pushed { accepted: 2, queue_length: 3, ..Pushed::default() });
        let jobs = claim(&queue, 2).await;
        assert_eq!(payloads(&jobs), ["{\"n\": 1}", "2"]);
        assert!(jobs.iter().all(|job| job.attempt == 1 && job.lease_expires_in == Duration::from_secs(30)));
        assert_ne!(jobs[0].id, jobs[1].id);
        assert_eq!(places(&queue).await, (1, 2, 0, 0));
        assert_eq!(ack(&queue, &jobs).await, Acked { acked: 2, lost: 0, jobs: Vec::new() });
        assert_eq!(payloads(&claim(&queue, 10).await), ["\"3\""]);
        assert_eq!(places(&queue).await, (0, 1, 0, 0));
        assert_eq!(pressure(&queue).await.totals.acked, 2);
    }

    async fn a_delayed_job_is_claimed_when_its_time_has_come(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        let delayed = |payload: &'static str, ms| Push { delay: Some(Duration::from_millis(ms)), ..Push::one(payload) };
        let pushed = queue.push(delayed("\"late\"", 1500)).await.expect("push");
        assert_eq!(pushed, Pushed { accepted: 1, queue_length: 0, ..Pushed::default() });
        queue.push(delayed("\"never\"", 360 * 86_400_000)).await.expect("push");
        queue.push(delayed("\"now\"", 0)).await.expect("a delay of nothing is none");
        assert_eq!(payloads(&claim(&queue, 5).await), ["\"now\""]);
        subject.pass(1502).await;
        let jobs = claim(&queue, 5).await;
        assert_eq!((payloads(&jobs), jobs[0].attempt), (vec!["\"late\""], 1));
        assert_eq!(places(&queue).await, (0, 2, 1, 0));
        let more = Push { delay: Some(Duration::from_secs(400 * 86_400)), ..Push::one("1") };
        assert_eq!(code(queue.push(more).await), Code::RequestInvalid);
    }

    async fn a_waiting_claim_wakes_for_a_push_a_due_job_and_a_foreign_one(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "");
        let waiter = |queue: &Queue| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.claim(Claim { wait: LONG, ..Claim::default() }).await.expect("claim") })
        };
        let waits = |queue: &Queue| {
            let queue = queue.clone();
            async move {
                let patience = std::time::Instant::now();
                while queue.counts().waiting() == 0 {
                    assert!(patience.elapsed() < LONG, "it never waits");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        };
        let first = waiter(&queue);
        waits(&queue).await;
        push(&queue, "1").await;
        assert_eq!(payloads(&first.await.expect("claim")), ["1"]);
        let second = waiter(&queue);
        waits(&queue).await;
        let items = spelled(subject, &quaymaster, "items", &[]);
        command_int(&*subject.engine, &["RPUSH", &items, "{\"foreign\":true}"]).await;
        assert_eq!(payloads(&second.await.expect("claim")), ["{\"foreign\":true}"]);
        let third = waiter(&queue);
        waits(&queue).await;
        queue.push(Push { delay: Some(Duration::from_millis(30)), ..Push::one("3") }).await.expect("push");
        subject.pass(31).await;
        let third = third.await.expect("claim");
        assert_eq!(payloads(&third), ["3"]);
        let fourth = waiter(&queue);
        waits(&queue).await;
        assert_eq!(failed(&queue, &third[0], "again").await, Nacked::Retry { attempt: 1, retry_in: Duration::ZERO });
        assert_eq!(fourth.await.expect("claim")[0].attempt, 2);
        assert!(queue.claim(Claim { wait: Duration::from_millis(20), ..Claim::default() }).await.expect("claim").is_empty());
        assert_eq!(queue.counts().waiting(), 0);
    }

    async fn a_waiter_that_goes_away_keeps_nothing(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        let waiting = queue.clone();
        let waiter = tokio::spawn(async move { waiting.claim(Claim { wait: LONG, ..Claim::default() }).await });
        while queue.counts().waiting() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        waiter.abort();
        assert!(waiter.await.is_err());
        push(&queue, "1").await;
        let how = Claim { wait: LONG, ..Claim::default() };
        assert_eq!(payloads(&queue.claim(how).await.expect("claim")), ["1"]);
    }

    async fn a_paused_queue_takes_pushes_and_hands_out_nothing(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        push(&queue, "1").await;
        let held = one(&queue).await;
        push(&queue, "2").await;
        queue.pause().await.expect("pause");
        assert!(pressure(&queue).await.paused);
        assert!(queue.claim(Claim { wait: Duration::from_millis(30), ..Claim::default() }).await.expect("claim").is_empty());
        let next = Some(ClaimNext { count: 5, lease: None, worker: None });
        let acked = queue.ack(Ack { claim: next, ..Ack::of(vec![held.lease]) }).await.expect("ack");
        assert_eq!((acked.acked, acked.jobs.len()), (1, 0), "what runs is finished");
        let waiting = queue.clone();
        let waiter = tokio::spawn(async move { waiting.claim(Claim { wait: LONG, ..Claim::default() }).await });
        while queue.counts().waiting() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        queue.resume().await.expect("resume");
        assert!(!pressure(&queue).await.paused);
        assert_eq!(payloads(&waiter.await.expect("task").expect("claim")), ["2"]);
    }

    async fn a_full_queue_that_rejects_adds_nothing_of_a_push_that_does_not_fit_whole(subject: &Subject) {
        let (_, queue) = declare(subject, "max_size = 3\npressure_at = 0.5");
        push_all(&queue, &["1", "2"]).await;
        let many = Push { id: Some("bulk".into()), request_id: Some("r".into()), ..Push::many(vec!["3".into(), "4".into()]) };
        assert_eq!(code(queue.push(many.clone()).await), Code::QueueFull);
        assert_eq!(pressure(&queue).await.current_length, 2);
        let now = pressure(&queue).await;
        assert!((now.fill_ratio - 2.0 / 3.0).abs() < 1e-9 && now.is_at_pressure_threshold && !now.is_full);
        assert_eq!(push(&queue, "3").await.queue_length, 3);
        assert!(pressure(&queue).await.is_full);
        assert_eq!(code(queue.push(Push::one("4")).await), Code::QueueFull);
        // Refused is not done: the same push goes through once there is room.
        let jobs = claim(&queue, 2).await;
        assert_eq!(queue.push(many).await.expect("push").queue_length, 3);
        assert_eq!(payloads(&jobs), ["1", "2"]);
        let delayed = |n: usize| Push { delay: Some(LONG), ..Push::many(vec!["0".into(); n]) };
        assert_eq!(code(queue.push(delayed(4)).await), Code::QueueFull, "delayed jobs are bounded too");
        assert_eq!(queue.push(delayed(3)).await.expect("push").accepted, 3);
        assert_eq!((queue.counts().full(), queue.counts().errors()), (3, 0));
    }

    async fn a_full_queue_moves_its_oldest_to_the_overflow_list(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "max_size = 3\noverflow = \"dlq\"");
        push_all(&queue, &["1", "2", "3"]).await;
        let pushed = push_all(&queue, &["4", "5"]).await;
        assert_eq!(pushed, Pushed { accepted: 2, queue_length: 3, moved_to_dlq: 2, ..Pushed::default() });
        let overflow = spelled(subject, &quaymaster, "overflow", &[]);
        assert_eq!(items(subject, &overflow).await, [b"1", b"2"]);
        let pushed = push_all(&queue, &["6", "7", "8", "9"]).await;
        assert_eq!((pushed.queue_length, pushed.moved_to_dlq), (3, 4), "of a push that is too long its own oldest go");
        assert_eq!(items(subject, &overflow).await.len(), 6);
        assert_eq!((pressure(&queue).await.overflowed, pressure(&queue).await.totals.overflowed), (6, 6));
        assert_eq!(payloads(&claim(&queue, 9).await), ["7", "8", "9"]);
        let moved = queue.redrive(quaymaster::queue::Redrive { overflow: true, ..quaymaster::queue::Redrive::default() }, |_| ()).await.expect("redrive");
        assert_eq!(moved, Redriven { moved: 3, left: 0, full: true });
        assert_eq!(payloads(&claim(&queue, 9).await), ["1", "2", "3"]);
        assert_eq!(pressure(&queue).await.overflowed, 3);
    }

    async fn a_full_queue_may_drop_its_oldest(subject: &Subject) {
        let (_, queue) = declare(subject, "max_size = 2\noverflow = \"drop_oldest\"");
        push_all(&queue, &["1", "2"]).await;
        let pushed = push_all(&queue, &["3", "4", "5"]).await;
        assert_eq!(pushed, Pushed { accepted: 3, queue_length: 2, dropped: 3, ..Pushed::default() });
        assert_eq!(payloads(&claim(&queue, 9).await), ["4", "5"]);
        let now = pressure(&queue).await;
        assert_eq!((now.overflowed, now.totals.dropped, now.totals.overflowed), (0, 3, 0));
    }

    async fn an_id_that_was_pushed_is_not_pushed_again(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        let with_id = |id: &str| Push { id: Some(id.into()), ..Push::one("1") };
        assert_eq!(queue.push(with_id("order:7")).await.expect("push").accepted, 1);
        let again = queue.push(with_id("order:7")).await.expect("push");
        assert_eq!(again, Pushed { accepted: 0, queue_length: 1, duplicate: true, ..Pushed::default() });
        let job = one(&queue).await;
        assert!(queue.push(with_id("order:7")).await.expect("push").duplicate, "also while it is claimed");
        ack(&queue, &[job]).await.acked.checked_sub(1).expect("acked");
        assert!(queue.push(with_id("order:7")).await.expect("push").duplicate, "and when it is done");
        assert_eq!(queue.push(with_id("order:8")).await.expect("push").accepted, 1);
        assert_eq!(code(queue.push(with_id("")).await), Code::RequestInvalid);
        assert_eq!(code(queue.push(with_id("a{b}")).await), Code::RequestInvalid);
        let bulk = Push { id: Some("bulk".into()), ..Push::many(vec!["1".into(), "2".into()]) };
        assert_eq!(queue.push(bulk.clone()).await.expect("push").accepted, 2);
        assert_eq!(queue.push(bulk).await.expect("push").accepted, 0);
    }

    async fn dedupe_and_push_are_one_step(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "max_size = 2\n[dedupe.image]\nkey = \"seen:{id}\"\nttl = \"5m\"\ncolocate = \"q\"");
        let seen = |id: &str, payload: &'static str| Push {
            dedupe: Some(PushDedupe {
                name: "image".into(),
                key: vec![("id".into(), id.into())],
                value: Some("/path".into()),
            }),
            ..Push::one(payload)
        };
        assert_eq!(queue.push(seen("a", "1")).await.expect("push").accepted, 1);
        assert_eq!(queue.push(seen("a", "2")).await.expect("push"), Pushed { queue_length: 1, duplicate: true, ..Pushed::default() });
        let told = quaymaster.dedupe("image").expect("declared").first(&[("id", "a")], quaymaster::dedupe::First::default()).await;
        assert_eq!(told.expect("first"), quaymaster::dedupe::Seen::Duplicate { value: "/path".into() });
        push(&queue, "2").await;
        assert_eq!(code(queue.push(seen("b", "3")).await), Code::QueueFull);
        claim(&queue, 1).await;
        assert_eq!(queue.push(seen("b", "3")).await.expect("push").accepted, 1, "what was refused was not seen");
        let unknown = PushDedupe { name: "nobody".into(), ..PushDedupe::default() };
        assert_eq!(code(queue.push(Push { dedupe: Some(unknown), ..Push::one("1") }).await), Code::ResourceUnknown);
        let keyless = PushDedupe { name: "image".into(), ..PushDedupe::default() };
        assert_eq!(code(queue.push(Push { dedupe: Some(keyless), ..Push::one("1") }).await), Code::KeyMissing);
    }

    async fn what_cannot_be_asked_is_refused(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "");
        for count in [0, MAX_COUNT + 1] {
            assert_eq!(code(queue.claim(Claim { count, ..Claim::default() }).await), Code::RequestInvalid, "{count}");
            assert_eq!(code(queue.peek(count).await), Code::RequestInvalid);
            assert_eq!(code(queue.dead(count, 0).await), Code::RequestInvalid);
        }
        let day = Duration::from_secs(86_400);
        for lease in [Duration::ZERO, day + Duration::from_millis(1)] {
            assert_eq!(code(queue.claim(Claim { lease: Some(lease), ..Claim::default() }).await), Code::RequestInvalid);
        }
        for worker in ["", "-", "a b", &"w".repeat(65)] {
            assert_eq!(code(queue.claim(Claim { worker: Some(worker.into()), ..Claim::default() }).await), Code::RequestInvalid);
        }
        assert_eq!(code(queue.claim(Claim { wait: Duration::from_secs(3601), ..Claim::default() }).await), Code::RequestInvalid);
        assert_eq!(code(queue.push(Push::many(Vec::new())).await), Code::RequestInvalid);
        for payload in ["", "{", "1 2", "Z:abc", "nul"] {
            assert_eq!(code(queue.push(Push::one(payload)).await), Code::RequestInvalid, "{payload:?}");
        }
        assert_eq!(code(queue.push(Push::one(&b"\"\xff\""[..])).await), Code::RequestInvalid);
        assert_eq!(code(queue.push(Push::one(format!("\"{}\"", "a".repeat(1 << 20)))).await), Code::RequestTooLarge);
        assert_eq!(code(queue.push(Push::many(vec!["1".into(); MAX_PUSH + 1])).await), Code::RequestTooLarge);
        let heavy = Bytes::from(format!("\"{}\"", "a".repeat(1 << 19)));
        assert_eq!(code(queue.push(Push::many(vec![heavy; 33])).await), Code::RequestTooLarge);
        assert_eq!(code(queue.push(Push { priority: Some(1.0), ..Push::one("1") }).await), Code::ResourceMismatch);
        assert_eq!(code(quaymaster.queue("nobody").cloned()), Code::ResourceUnknown);
        let lease = Lease::parse("queue.ack", "1794699030000001.1.AAAA").expect("it looks like one");
        assert_eq!(code(queue.ack(Ack::of(vec![lease.clone(); MAX_COUNT + 1])).await), Code::RequestInvalid);
        assert_eq!(queue.ack(Ack::of(vec![lease])).await.expect("ack").lost, 1);
        assert_eq!(queue.ack(Ack::default()).await.expect("ack"), Acked::default());
        assert_eq!(places(&queue).await, (0, 0, 0, 0));
    }

    async fn the_lease_of_another_queue_is_lost(subject: &Subject) {
        let quaymaster = subject.schema("[queue.q]\n[queue.p]\n");
        let (queue, other) = (quaymaster.queue("q").expect("declared"), quaymaster.queue("p").expect("declared"));
        push(queue, "1").await;
        push(other, "2").await;
        let (ours, theirs) = (one(queue).await, one(other).await);
        assert_eq!(ack(queue, std::slice::from_ref(&theirs)).await.lost, 1);
        assert_eq!(queue.extend(&theirs.lease, None).await.expect("extend"), Extended::Lost);
        assert_eq!((ack(queue, &[ours]).await.acked, ack(other, &[theirs]).await.acked), (1, 1));
    }

    async fn many_jobs_go_through_at_once(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        let all: Vec<Bytes> = (0..MAX_PUSH).map(|n| Bytes::from(n.to_string())).collect();
        assert_eq!(queue.push(Push::many(all.clone())).await.expect("push").queue_length, MAX_PUSH as u64);
        let mut seen = Vec::new();
        let mut jobs = claim(&queue, MAX_COUNT).await;
        while !jobs.is_empty() {
            seen.extend(jobs.iter().map(|job| job.payload.clone()));
            let next = Some(ClaimNext { count: MAX_COUNT, lease: None, worker: None });
            let acked = queue.ack(Ack { claim: next, ..Ack::of(leases(&jobs)) }).await.expect("ack");
            assert_eq!((acked.acked, acked.lost), (jobs.len() as u64, 0));
            jobs = acked.jobs;
        }
        assert_eq!(seen, all, "each once, in order");
        assert_eq!(places(&queue).await, (0, 0, 0, 0));
        assert_eq!(extended_many(&queue).await, MAX_COUNT + 1);
    }

    async fn large_jobs_are_handed_out_a_few_at_a_time_and_in_order(subject: &Subject) {
        let (_, queue) = declare(subject, "");
        let large = |n: usize| Bytes::from(format!("\"{n} {}\"", "x".repeat(1 << 20 >> 1)));
        queue.push(Push::many((0..24).map(large).collect())).await.expect("push");
        let mut seen = 0;
        while seen < 24 {
            let jobs = claim(&queue, 100).await;
            assert!(!jobs.is_empty() && jobs.len() <= 17, "{}", jobs.len());
            for job in &jobs {
                assert!(job.payload == large(seen), "{seen} comes in its turn");
                seen += 1;
            }
            assert_eq!(ack(&queue, &jobs).await.acked, jobs.len() as u64);
        }
    }

    async fn what_waits_can_be_looked_at(subject: &Subject) {
        let (_, queue) = declare(subject, "compress_over = \"100B\"");
        let long = format!("\"{}\"", "a".repeat(400));
        queue.push(Push::many(vec!["1".into(), long.clone().into(), "3".into()])).await.expect("push");
        let shown = queue.peek(2).await.expect("peek");
        assert_eq!(shown, [Item::Json("1".into()), Item::Json(long.into())]);
        assert_eq!(places(&queue).await, (3, 0, 0, 0));
    }

    async fn the_oldest_age_is_that_of_what_waits_and_unknown_for_foreign_items(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "");
        assert_eq!(pressure(&queue).await.oldest_age, None, "nothing waits");
        queue.push(Push { delay: Some(LONG), ..Push::many(vec!["0".into(); 9]) }).await.expect("push");
        assert_eq!(pressure(&queue).await.totals.pushed, 9);
        push_all(&queue, &["1", "2"]).await;
        subject.pass(1100).await;
        let at = subject.time_us().await;
        push(&queue, "3").await;
        subject.pass(50).await;
        let age = pressure(&queue).await.oldest_age.expect("known");
        assert!(age >= Duration::from_millis(1150), "{age:?}");
        claim(&queue, 2).await;
        let age = pressure(&queue).await.oldest_age.expect("known");
        let most = (subject.time_us().await - at) / 1000 + 1;
        assert!(age >= Duration::from_millis(50) && age <= Duration::from_millis(most as u64), "{age:?} {most}");
        claim(&queue, 1).await;
        command_int(&*subject.engine, &["RPUSH", &spelled(subject, &quaymaster, "items", &[]), "4"]).await;
        let now = pressure(&queue).await;
        assert_eq!((now.current_length, now.oldest_age), (1, None), "only a foreign item waits");
    }

    async fn the_list_is_exactly_what_was_pushed(subject: &Subject) {
        let (quaymaster, queue) = declare(subject, "compress_over = \"1KiB\"");
        let long = format!("\"{}\"", "a".repeat(2000));
        queue.push(Push::many(vec!["{\"a\": 1,  \"b\": [ ]}".into(), long.into()])).await.expect("push");
        let items = items(subject, &spelled(subject, &quaymaster, "items", &[])).await;
        assert_eq!(items[0], b"{\"a\": 1,  \"b\": [ ]}");
        assert!(items[1].starts_with(b"Z:KLUv/"), "{:?}", &items[1][..8]);
        let first = command_text(&*subject.engine, &["LPOP", &spelled(subject, &quaymaster, "items", &[])]).await;
        assert_eq!(first.as_deref(), Some("{\"a\": 1,  \"b\": [ ]}"), "another program takes it");
        assert_eq!(claim(&queue, 5).await.len(), 1);
    }
}

async fn extended_many(queue: &Queue) -> usize {
    let payloads = vec![Bytes::from_static(b"1"); MAX_COUNT + 1];
    queue.push(Push::many(payloads)).await.expect("push");
    let mut jobs = claim(queue, MAX_COUNT).await;
    jobs.extend(claim(queue, MAX_COUNT).await);
    let all = queue.extend_all(&leases(&jobs), Some(LONG)).await.expect("extend");
    all.iter().filter(|one| **one == Extended::Ours { expires_in: LONG }).count()
}
