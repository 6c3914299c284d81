//! Gateways that are paused past their claim or their lease, and go on as if nothing had happened.

use std::time::Duration;

use rustix::process::Signal;

use crate::scene::{Scene, Store, created, eventually, execution, payment, status_update};

/// The bytes at a key.
fn bytes(scene: &mut Scene, key: &str) -> Vec<u8> {
    scene.store.server().command(&["GET", key])
}

/// Held before SQL: its claim and lock end, another gateway makes the payment, then it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_that_comes_late_writes_nothing_and_gives_the_other_ones_answer() {
    let mut scene = Scene::new(Store::redis());
    let gateways = scene.gateways(2).await;
    scene.arm("create.entered");
    let late = tokio::spawn({
        let address = gateways[0].address.clone();
        async move { crate::scene::ask(&address, "POST", "/create", &payment("T").to_string(), "").await.unwrap() }
    });
    scene.held("create.entered").await;
    let other = gateways[1].post("/create", &payment("T")).await;
    assert_eq!(
        (other.status, other.is_replayed()),
        (201, false),
        "its claim ended; this one ran it: {other:?}"
    );
    let kept = bytes(&mut scene, "idem:create:T");
    scene.let_go("create.entered");
    let late = late.await.unwrap();
    assert_eq!((late.status, &late.text), (201, &other.text));
    assert!(late.is_replayed(), "it wrote nothing, so it asked again: {late:?}");
    assert_eq!((scene.payments().await, scene.effects("create").await, scene.found().await), (1, 1, 0));
    assert_eq!(bytes(&mut scene, "idem:create:T"), kept, "its late finish changed nothing");
}

/// Held after its commit: its successor finds the payment; its own finish comes too late and is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finish_that_comes_late_is_lost_and_both_callers_have_one_answer() {
    let mut scene = Scene::new(Store::redis());
    let gateways = scene.gateways(2).await;
    scene.arm("create.committed");
    let late = tokio::spawn({
        let address = gateways[0].address.clone();
        async move { crate::scene::ask(&address, "POST", "/create", &payment("T").to_string(), "").await.unwrap() }
    });
    scene.held("create.committed").await;
    let other = gateways[1].post("/create", &payment("T")).await;
    assert_eq!(other.status, 201, "{other:?}");
    let kept = bytes(&mut scene, "idem:create:T");
    scene.let_go("create.committed");
    let late = late.await.unwrap();
    assert_eq!((late.status, &late.text), (201, &other.text));
    assert_eq!((scene.payments().await, scene.effects("create").await, scene.found().await), (1, 1, 1));
    assert_eq!(bytes(&mut scene, "idem:create:T"), kept, "its late finish changed nothing");
}

/// The stolen lock over an execution that was done before: gateway one finds it and writes no more than the fence.
async fn a_stopped_holder_whose_successor_found_all_done(store: Store) {
    let scene = Scene::new(store);
    scene.edit_schema(|text| {
        let at = "key = \"idem:execute:{transaction_id}\"\nin_progress_ttl = \"1500ms\"\nttl = ";
        assert!(text.contains(at), "{text}");
        text.replace(&format!("{at}\"24h\""), &format!("{at}\"1500ms\""))
    });
    let gateways = scene.gateways(2).await;
    let id = created(&gateways[0], "T").await;
    let _ = gateways[0].post("/execute", &execution(&id)).await.expect(200);
    scene.arm("update.entered");
    let late = tokio::spawn({
        let (address, body) = (gateways[1].address.clone(), status_update(&id, 60).to_string());
        async move { crate::scene::ask(&address, "POST", "/update", &body, "").await.unwrap() }
    });
    scene.held("update.entered").await;
    gateways[1].process.signal(Signal::STOP);
    // As in an empty store: the answer has ended, the payment is there.
    let found = eventually("the answer has ended", async || {
        let told = gateways[0].post("/execute", &execution(&id)).await;
        (!told.is_replayed()).then_some(told)
    })
    .await
    .expect(200);
    assert_eq!(found["status"], "EXECUTED");
    assert_eq!(scene.found().await, 1);
    scene.let_go("update.entered");
    gateways[1].process.signal(Signal::CONT);
    let late = late.await.unwrap();
    assert_eq!((late.status, late.code().as_str()), (409, "lock.lost"), "{late:?}");
    assert!(late.json()["detail"].as_str().unwrap().contains("is behind"), "by the fence: {late:?}");
    assert_eq!((scene.effects("execute").await, scene.effects("update").await), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_successor_only_found_the_payment_cannot_write_on_redis() {
    a_stopped_holder_whose_successor_found_all_done(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_successor_only_found_the_payment_cannot_write_on_the_embedded_store() {
    a_stopped_holder_whose_successor_found_all_done(Store::Embedded).await;
}

/// The stolen lock: its holder is stopped past the lease, the payment is executed meanwhile, the holder wakes and
/// would mark it failed. From EXECUTED a payment may become FAILED: nothing but the fence stands in the way.
async fn a_stopped_holder(store: Store) {
    let scene = Scene::new(store);
    let gateways = scene.gateways(2).await;
    let id = created(&gateways[0], "T").await;
    scene.arm("update.entered");
    let late = tokio::spawn({
        // Not the first one, which owns an embedded store: stopping it would stop everybody.
        let (address, body) = (gateways[1].address.clone(), status_update(&id, 60).to_string());
        async move { crate::scene::ask(&address, "POST", "/update", &body, "").await.unwrap() }
    });
    scene.held("update.entered").await;
    gateways[1].process.signal(Signal::STOP);
    let taken = gateways[0].post("/execute", &execution(&id)).await.expect(200);
    assert_eq!(taken["status"], "EXECUTED");
    scene.let_go("update.entered");
    gateways[1].process.signal(Signal::CONT);
    let late = late.await.unwrap();
    assert_eq!((late.status, late.code().as_str()), (409, "lock.lost"), "{late:?}");
    assert!(late.json()["detail"].as_str().unwrap().contains("nothing was written"), "{late:?}");
    let now = gateways[1].get(&format!("/status/{id}?psp_id=PSP001")).await.expect(200);
    assert_eq!(now["status"], "EXECUTED");
    assert_eq!((scene.effects("execute").await, scene.effects("update").await), (1, 0));
    // Asked again, under a lock of its own, it goes through.
    let again = gateways[1].post("/update", &status_update(&id, 60)).await.expect(200);
    assert_eq!(again["status"], "FAILED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_stopped_past_its_lease_cannot_write_on_redis() {
    a_stopped_holder(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_stopped_past_its_lease_cannot_write_on_the_embedded_store() {
    a_stopped_holder(Store::Embedded).await;
}

/// Nobody took the lock meanwhile, so the fence alone would let the late write pass.
async fn a_stopped_holder_that_nobody_followed(store: Store) {
    let mut scene = Scene::new(store);
    let gateways = scene.gateways(2).await;
    let id = created(&gateways[0], "T").await;
    scene.arm("update.entered");
    let late = tokio::spawn({
        let (address, body) = (gateways[1].address.clone(), status_update(&id, 60).to_string());
        async move { crate::scene::ask(&address, "POST", "/update", &body, "").await.unwrap() }
    });
    scene.held("update.entered").await;
    gateways[1].process.signal(Signal::STOP);
    let lock = format!("lock:update:{id}");
    let server = scene.store.server();
    eventually("the lease has ended", async || {
        (server.command::<i64>(&["EXISTS", &lock]) == 0).then_some(())
    })
    .await;
    scene.let_go("update.entered");
    gateways[1].process.signal(Signal::CONT);
    let late = late.await.unwrap();
    assert_eq!((late.status, late.code().as_str()), (409, "lock.lost"), "{late:?}");
    assert_eq!(scene.effects("update").await, 0);
    let again = gateways[1].post("/update", &status_update(&id, 60)).await.expect(200);
    assert_eq!(again["status"], "FAILED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_knows_its_lease_has_ended_does_not_write() {
    a_stopped_holder_that_nobody_followed(Store::redis()).await;
}

/// Slow is not dead: a holder that still runs renews its lease, and the other update waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_holder_keeps_its_lock() {
    let mut scene = Scene::new(Store::redis());
    let gateways = scene.gateways(2).await;
    let id = created(&gateways[0], "T").await;
    let _ = gateways[0].post("/execute", &execution(&id)).await.expect(200);
    scene.arm("update.entered");
    let update = |gateway: usize, status| {
        let (address, body) = (gateways[gateway].address.clone(), status_update(&id, status).to_string());
        tokio::spawn(async move { crate::scene::ask(&address, "POST", "/update", &body, "").await.unwrap() })
    };
    let slow = update(0, 50);
    scene.held("update.entered").await;
    let second = update(1, 60);
    // Long enough for two leases to end, by the store's clock.
    let server = scene.store.server();
    let moment = |server: &quaymaster_testkit::servers::RedisServer| {
        let (seconds, micros): (u64, u64) = server.command(&["TIME"]);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    let began = moment(server);
    eventually("two leases have passed", async || {
        (moment(server) > began + Duration::from_secs(3)).then_some(())
    })
    .await;
    assert!(!second.is_finished(), "the lock is still held");
    scene.let_go("update.entered");
    assert_eq!(slow.await.unwrap().expect(200)["status"], "SUCCESS");
    let second = second.await.unwrap();
    assert_eq!(
        (second.status, second.code().as_str()),
        (409, "payment.status"),
        "SUCCESS cannot fail: {second:?}"
    );
}
