//! Queues: everything a job can meet, in a list and by priority.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quaymaster::queue::{
    Ack, Claim, ClaimNext, Job, Lease, Nack, Purge, Push, Queue, Redrive, Scores, Then, Trim,
};
use quaymaster_schema::{Kind, Order};

use crate::hostile::{Row, Scene, Stage};

const HOUR: Duration = Duration::from_secs(3600);

const LIST: &str = "
[queue.work]
max_size = 100
overflow = \"dlq\"
lease = \"1h\"
retry = { max_attempts = 3, base = \"1ms\", max = \"1ms\", jitter = 0 }
[queue.next]
max_size = 100
";

const RANKED: &str = "
[queue.work]
order = \"priority\"
max_size = 100
overflow = \"dlq\"
lease = \"1h\"
retry = { max_attempts = 3, base = \"1ms\", max = \"1ms\", jitter = 0 }
[queue.next]
order = \"priority\"
max_size = 100
";

const ROWS: &[Row] = &[
    (Kind::Queue, "work", "items"),
    (Kind::Queue, "work", "dead"),
    (Kind::Queue, "work", "overflow"),
    (Kind::Queue, "work", "leases"),
    (Kind::Queue, "work", "delayed"),
    (Kind::Queue, "work", "jobs"),
    (Kind::Queue, "work", "held"),
    (Kind::Queue, "work", "meta"),
    (Kind::Queue, "work", "stamps"),
    (Kind::Queue, "work", "id"),
    (Kind::Queue, "work", "request"),
    // What an ack pushes into.
    (Kind::Queue, "next", "meta"),
    (Kind::Queue, "next", "items"),
];

const VALUES: &[(&str, &str)] = &[("push_id", "known"), ("request_id", "asked")];

pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "queue", schema: LIST, values: VALUES, rows: ROWS, play },
    Scene { name: "priority queue", schema: RANKED, values: VALUES, rows: ROWS, play },
];

fn item(number: u32) -> Bytes {
    Bytes::from(format!("\"item-{number}\""))
}

async fn push(stage: &Stage, verb: &str, push: Push) {
    let queue = queue(stage);
    let payloads = push.payloads.clone();
    if stage.call(verb, queue.push(push)).await.is_some_and(|pushed| pushed.accepted > 0) {
        for payload in &payloads {
            stage.taken(payload);
        }
    }
}

fn queue(stage: &Stage) -> &Queue {
    stage.quaymaster.queue("work").expect("declared")
}

async fn claim(stage: &Stage, count: usize) -> Vec<Job> {
    let jobs = stage.call("claim", queue(stage).claim(Claim { count, ..Claim::default() })).await;
    let jobs = jobs.unwrap_or_default();
    for job in &jobs {
        stage.id(&job.id, &job.payload);
    }
    jobs
}

async fn ack(stage: &Stage, verb: &str, jobs: &[Job], then: Vec<Then>, count: usize) -> Vec<Job> {
    let leases: Vec<Lease> = jobs.iter().map(|job| job.lease.clone()).collect();
    let next = (count > 0).then_some(ClaimNext { count, lease: None, worker: None });
    let given = leases.len() as u64;
    let ack = Ack { then: then.clone(), claim: next, ..Ack::of(leases) };
    let Some(acked) = stage.call(verb, queue(stage).ack(ack)).await else { return Vec::new() };
    if acked.acked == given {
        for job in jobs {
            stage.done(&job.payload);
        }
    }
    for part in &then {
        if let Then::Push { payload, .. } = part
            && acked.acked == given
        {
            stage.taken(payload);
        }
    }
    for job in &acked.jobs {
        stage.id(&job.id, &job.payload);
    }
    acked.jobs
}

/// Removes everything that waits, by score.
async fn trim(stage: &Stage) {
    let queue = queue(stage);
    let Some(page) = stage.call("range", queue.range(Scores::default(), 100, 0)).await else { return };
    if stage.call("trim", queue.trim(Trim::up_to(f64::MAX), |_| {})).await.is_some() {
        for (_, item) in &page.items {
            stage.done(format!("{item:?}").as_bytes());
        }
    }
}

fn play(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let queue = queue(stage);
        push(stage, "push", Push::many((1..=8).map(item).collect())).await;
        push(stage, "push later", Push { delay: Some(HOUR), ..Push::one(item(9)) }).await;
        push(stage, "push with an id", Push { id: Some("known".to_owned()), ..Push::one(item(10)) }).await;
        stage.write(&[b"RPUSH", b"dlq:overflow:work", &item(11)]).await;
        let jobs = claim(stage, 4).await;
        let lease = |at: usize| jobs[at].lease.clone();
        let fails = Nack { delay: Some(HOUR), ..Nack::of(lease(1), "no") };
        stage.call("nack", queue.nack(fails)).await;
        stage.call("nack for good", queue.nack(Nack { dead: true, ..Nack::of(lease(2), "no") })).await;
        // One lease has ended.
        stage.write(&[b"ZADD", b"{work}:leases", b"1", lease(3).id().to_string().as_bytes()]).await;
        stage.spoil().await;

        stage.call("pressure", queue.pressure()).await;
        stage.call("peek", queue.peek(10)).await;
        stage.call("dead", queue.dead(10, 0)).await;
        push(stage, "push", Push::one(item(20))).await;
        push(stage, "push later", Push { delay: Some(HOUR), ..Push::one(item(21)) }).await;
        push(stage, "push with an id", Push { id: Some("known".to_owned()), ..Push::one(item(22)) }).await;
        let asked = Some("asked".to_owned());
        push(stage, "push with a request", Push { request_id: asked, ..Push::one(item(23)) }).await;
        stage.call("extend", queue.extend(&lease(0), None)).await;
        let claimed = claim(stage, 2).await;
        let next = Then::Push { name: "next".into(), payload: item(24), priority: None, delay: None };
        let mut more = ack(stage, "ack with what follows", &claimed, vec![next], 1).await;
        let later = Then::Push { name: "next".into(), payload: item(25), priority: None, delay: Some(HOUR) };
        more.extend(ack(stage, "ack with what follows later", &more, vec![later], 0).await);
        let again = claim(stage, 3).await;
        if let [first, second, third] = &again[..] {
            stage.call("nack", queue.nack(Nack::of(first.lease.clone(), "no"))).await;
            stage.call("release", queue.release(std::slice::from_ref(&second.lease))).await;
            let dead = Nack { dead: true, ..Nack::of(third.lease.clone(), "no") };
            stage.call("nack for good", queue.nack(dead)).await;
        }
        ack(stage, "ack with the next", &jobs[..1], Vec::new(), 1).await;
        stage.call("sweep", queue.sweep()).await;
        stage.call("redrive", queue.redrive(Redrive::default(), |_| {})).await;
        let overflow = Redrive { overflow: true, ..Redrive::default() };
        stage.call("redrive the overflow", queue.redrive(overflow, |_| {})).await;
        stage.call("pause", queue.pause()).await;
        stage.call("resume", queue.resume()).await;
        // Everything that is due is handed out in the end, each under its own id.
        for _ in 0..8 {
            let jobs = claim(stage, 10).await;
            if jobs.is_empty() {
                break;
            }
            ack(stage, "ack", &jobs, Vec::new(), 0).await;
        }
        if stage.quaymaster.queue("work").expect("declared").spec().order == Order::Priority {
            push(stage, "push what is trimmed", Push::many((30..34).map(item).collect())).await;
            trim(stage).await;
        }
        let aged = Purge { older_than: Some(Duration::ZERO), ..Purge::default() };
        let asked = Purge { request_id: Some("purged".to_owned()), ..Purge::default() };
        for (number, which) in [(40, aged), (41, asked)] {
            push(stage, "push what is buried", Push::one(item(number))).await;
            for job in claim(stage, 1).await {
                stage
                    .call("nack for good", queue.nack(Nack { dead: true, ..Nack::of(job.lease, "no") }))
                    .await;
            }
            // What was buried in this very moment is not older than it.
            let engine = stage.quaymaster.engine();
            let buried_us = engine.now_us();
            while engine.now_us() <= buried_us {
                tokio::task::yield_now().await;
            }
            if let Some(letters) = stage.call("dead", queue.dead(100, 0)).await
                && stage.call("purge", queue.purge(which, |_| {})).await.is_some()
            {
                for letter in &letters.items {
                    stage.done(format!("{letter:?}").as_bytes());
                }
            }
        }
    })
}
