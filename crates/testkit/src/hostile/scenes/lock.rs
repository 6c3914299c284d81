//! Locks: held, free, and with waiters.

use std::time::Duration;

use futures_util::future::BoxFuture;
use quaymaster::lock::{Acquire, Acquired, Lease};
use quaymaster_schema::Kind;

use crate::hostile::{Row, Scene, Stage};

const SCHEMA: &str = "[lock.door]\nkey = \"lock:{id}\"\nttl = \"1h\"\n";
const KEY: &[(&str, &str)] = &[("id", "1")];
const VALUES: &[(&str, &str)] = &[("id", "1"), ("request_id", "asked")];

const ROWS: &[Row] = &[
    (Kind::Lock, "door", "lock"),
    (Kind::Lock, "door", "fence"),
    (Kind::Lock, "door", "queue"),
    (Kind::Lock, "door", "alive"),
    (Kind::Lock, "door", "request"),
];

pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "lock, held", schema: SCHEMA, values: VALUES, rows: ROWS, play: held },
    Scene { name: "lock, free", schema: SCHEMA, values: VALUES, rows: ROWS, play: free },
];

async fn acquire(stage: &Stage, wait: Duration) -> Option<Lease> {
    let lock = stage.quaymaster.lock("door").expect("declared");
    let how = Acquire { wait, ..Acquire::default() };
    match stage.call("acquire", lock.acquire(KEY, how)).await? {
        Acquired::Ours(lease) => {
            stage.fence(lease.fence);
            Some(lease)
        }
        Acquired::Held { .. } => None,
    }
}

async fn rest(stage: &Stage, lease: Option<Lease>) {
    let lock = stage.quaymaster.lock("door").expect("declared");
    acquire(stage, Duration::from_millis(1)).await;
    if let Some(lease) = lease {
        stage.call("renew", lock.renew(KEY, &lease.token, None)).await;
        stage.call("release", lock.release(KEY, &lease.token, Some("asked"))).await;
    }
    for _ in 0..4 {
        if let Some(lease) = acquire(stage, Duration::from_millis(1)).await {
            stage.call("renew", lock.renew(KEY, &lease.token, None)).await;
            stage.call("release", lock.release(KEY, &lease.token, None)).await;
        }
    }
}

fn held(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let lease = acquire(stage, Duration::ZERO).await;
        waiters(stage).await;
        stage.spoil().await;
        rest(stage, lease).await;
    })
}

fn free(stage: &Stage) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let lock = stage.quaymaster.lock("door").expect("declared");
        if let Some(lease) = acquire(stage, Duration::ZERO).await {
            stage.call("release", lock.release(KEY, &lease.token, None)).await;
        }
        waiters(stage).await;
        stage.spoil().await;
        rest(stage, None).await;
    })
}

/// Two waiters, of processes that have died.
async fn waiters(stage: &Stage) {
    for (place, token) in
        [&b"one.AAAAAAAAAAAAAAAAAAAAAA"[..], b"two.BBBBBBBBBBBBBBBBBBBBBB"].iter().enumerate()
    {
        stage.write(&[b"ZADD", b"{lock:1}:queue", (place + 1).to_string().as_bytes(), token]).await;
        stage.write(&[b"HSET", b"{lock:1}:alive", token, b"1"]).await;
    }
}
