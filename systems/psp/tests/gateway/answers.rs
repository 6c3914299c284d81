//! What callers are told: replays, refusals, and when to come back.

use std::time::Duration;

use serde_json::json;

use crate::scene::{Scene, Store, ask, created, execution, payment, status_update};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_goes_its_way_and_every_step_can_be_asked_for_again() {
    for store in [Store::redis(), Store::Embedded] {
        let scene = Scene::new(store);
        let gateways = scene.gateways(2).await;
        let check = json!({
            "psp_id": "PSP001", "merchant_provider": "DEMO_MERCHANT", "qr_tx_id": "QR123", "amount": 100_000
        });
        let checked = gateways[0].post("/check", &check).await;
        assert_eq!(checked.json()["payable"], true, "{checked:?}");
        let id = created(&gateways[0], "PSP-TX-1").await;
        let steps = [
            ("/check", check.clone()),
            ("/create", payment("PSP-TX-1")),
            ("/execute", execution(&id)),
            ("/update", status_update(&id, 50)),
        ];
        for (path, body) in steps {
            let first = gateways[0].post(path, &body).await;
            let again = gateways[1].post(path, &body).await;
            assert!(first.status < 300, "{path}: {first:?}");
            assert!(again.is_replayed(), "{path}: {again:?}");
            assert_eq!((first.status, &first.text), (again.status, &again.text), "{path}");
        }
        let status = gateways[1].get(&format!("/status/{id}?psp_id=PSP001")).await.expect(200);
        assert_eq!((&status["status"], &status["amount"]), (&json!("SUCCESS"), &json!(100_000)));
        // Another amount is another check, and the code is paid by now.
        let other = json!({ "amount": 5, "psp_id": "PSP001", "merchant_provider": "DEMO_MERCHANT", "qr_tx_id": "QR123" });
        assert_eq!(gateways[1].post("/check", &other).await.expect(200)["payable"], false);
        assert_eq!((scene.payments().await, scene.found().await), (1, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_seen_at_once_although_the_status_is_cached() {
    let mut scene = Scene::new(Store::redis());
    let gateways = scene.gateways(2).await;
    let id = created(&gateways[0], "T").await;
    let path = format!("/status/{id}?psp_id=PSP001");
    let first = gateways[0].get(&path).await;
    assert_eq!(gateways[1].get(&path).await.text, first.text, "read once, for both");
    let held: Vec<String> =
        scene.store.server().command(&["HMGET", &format!("status:{id}"), "status", "amount"]);
    assert_eq!(held, ["CREATED", "100000"], "the documented hash");
    let _ = gateways[1].post("/execute", &execution(&id)).await.expect(200);
    assert_eq!(gateways[0].get(&path).await.expect(200)["status"], "EXECUTED");
    // A program of the old scheme writes a string there: the cache is of no use, and no reason to fail.
    scene.store.server().command::<()>(&["SET", &format!("status:{id}"), "{}", "EX", "60"]);
    assert_eq!(gateways[0].get(&path).await.expect(200)["status"], "EXECUTED");
    // Another one caches the documented three fields, which do not say whose payment it is.
    let key = format!("status:{id}");
    scene.store.server().command::<()>(&["DEL", &key]);
    let fields =
        ["HSET", &key, "status", "EXECUTED", "amount", "100000", "timestamp", "2026-11-15T14:30:00Z"];
    scene.store.server().command::<()>(&fields);
    assert_eq!(gateways[0].get(&path).await.expect(200)["status"], "EXECUTED");
    let other = gateways[0].get(&format!("/status/{id}?later=1&psp_id=PSP002")).await;
    assert_eq!((other.status, other.code().as_str()), (404, "payment.unknown"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_request_under_the_same_id_is_refused() {
    let scene = Scene::new(Store::Embedded);
    let gateway = scene.gateway().await;
    let id = created(&gateway, "T").await;
    let mut other = payment("T");
    other["amount"] = json!(1);
    let told = gateway.post("/create", &other).await;
    assert_eq!((told.status, told.code().as_str()), (422, "idempotency.mismatch"));
    // Whose it is, too, is part of the request; nobody else learns that the payment is there.
    let foreign = json!({ "psp_id": "PSP002", "transaction_id": id });
    assert_eq!(gateway.post("/execute", &foreign).await.status, 404);
    assert_eq!(gateway.get(&format!("/status/{id}?psp_id=PSP002")).await.status, 404);
    assert_eq!((scene.payments().await, scene.effects("execute").await), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_while_it_runs_waits_and_is_then_told_to_come_back() {
    let scene = Scene::new(Store::redis());
    scene.edit_schema(|text| text.replace("\"1500ms\"", "\"30s\""));
    let gateway = scene.gateway_with(&[("PSP_GATEWAY_WAIT_MS", "300")]).await;
    scene.arm("create.entered");
    let first = tokio::spawn({
        let address = gateway.address.clone();
        async move { ask(&address, "POST", "/create", &payment("T").to_string(), "").await.unwrap() }
    });
    scene.held("create.entered").await;
    let began = std::time::Instant::now();
    let told = gateway.post("/create", &payment("T")).await;
    assert!(began.elapsed() >= Duration::from_millis(300), "it waited");
    assert_eq!((told.status, told.code().as_str()), (409, "idempotency.in_progress"));
    assert!((1..=30).contains(&told.retry_after().unwrap()), "{told:?}");
    // Another request is told so at once, not when the first one ends.
    let mut other = payment("T");
    other["amount"] = json!(1);
    assert_eq!(gateway.post("/create", &other).await.status, 422);
    scene.let_go("create.entered");
    let first = first.await.unwrap();
    let again = gateway.post("/create", &payment("T")).await;
    assert_eq!((again.status, again.text), (201, first.text));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_the_limit_is_told_when_to_come_back_and_replays_are_free() {
    for store in [Store::redis(), Store::Embedded] {
        let scene = Scene::new(store);
        let gateway = scene.gateway_with(&[("PSP_LIMIT", "5"), ("PSP_TRANSACTION_LIMIT", "2")]).await;
        let id = created(&gateway, "T").await;
        let _ = gateway.post("/update", &status_update(&id, 60)).await.expect(200);
        for _ in 0..2 {
            let told = gateway.post("/execute", &execution(&id)).await;
            assert_eq!(
                (told.status, told.code().as_str()),
                (409, "payment.status"),
                "tried in vain: {told:?}"
            );
        }
        let told = gateway.post("/execute", &execution(&id)).await;
        assert_eq!((told.status, told.code().as_str()), (429, "limit.limited"), "{told:?}");
        assert!((1..=300).contains(&told.retry_after().unwrap()), "{told:?}");
        // The PSP's own limit, of its minute: at most two minutes pass here.
        let mut made = 1;
        let limited = loop {
            let told = gateway.post("/create", &payment(&format!("T{made}"))).await;
            if told.status != 201 {
                break told;
            }
            made += 1;
            assert!(made <= 11, "five a minute");
        };
        assert_eq!((limited.status, limited.code().as_str()), (429, "limit.limited"), "{limited:?}");
        assert!((1..=60).contains(&limited.retry_after().unwrap()), "{limited:?}");
        assert_eq!(scene.payments().await, made, "who was refused made nothing");
        let replay = gateway.post("/create", &payment("T")).await;
        assert_eq!((replay.status, replay.is_replayed()), (201, true), "a replay takes no quota");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_the_old_scheme_counts_as_done() {
    let mut scene = Scene::new(Store::redis());
    let gateway = scene.gateway().await;
    let first = gateway.post("/create", &payment("T")).await;
    // What a program of the old scheme would have left.
    scene.store.server().command::<()>(&["SET", "idem:create:T", "1", "EX", "86400"]);
    let again = gateway.post("/create", &payment("T")).await;
    assert_eq!((again.status, &again.text), (201, &first.text), "answered from SQL");
    assert!(again.is_replayed());
    scene.store.server().command::<()>(&["SET", "idem:create:U", "1", "EX", "86400"]);
    let unknown = gateway.post("/create", &payment("U")).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (409, "idempotency.no_response"));
    assert_eq!(scene.payments().await, 1, "done is done: it does not run again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_are_refused_by_field_before_anything_is_asked() {
    let scene = Scene::new(Store::Embedded);
    let gateway = scene.gateway().await;
    let id = created(&gateway, "T").await;
    let mut no_amount = payment("A");
    no_amount["amount"] = json!(0);
    let mut spaced = payment("A");
    spaced["qr_tx_id"] = json!("a b");
    let cases = [
        ("/create", no_amount, 400, "amount"),
        ("/create", spaced, 400, "qr_tx_id"),
        ("/create", json!({}), 400, "missing field"),
        ("/create", json!([]), 400, "invalid"),
        ("/update", status_update(&id, 10), 400, "status"),
        ("/update", status_update(&id, 50), 409, "CREATED cannot become SUCCESS"),
        ("/update", status_update("nobody", 50), 404, "payment"),
        ("/execute", execution("nobody"), 404, "payment"),
        ("/nothing", json!({}), 404, "no such call"),
    ];
    for (path, body, status, part) in cases {
        let told = gateway.post(path, &body).await;
        assert_eq!(told.status, status, "{path} {body}: {told:?}");
        let detail = told.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(part), "{path} {body}: {detail}");
        assert_eq!(told.header("content-type"), Some("application/problem+json"));
    }
    let long = format!("{{\"psp_id\":\"{}\"}}", "x".repeat(17 * 1024));
    assert_eq!(ask(&gateway.address, "POST", "/create", &long, "").await.unwrap().status, 413);
    assert_eq!(gateway.get("/create").await.status, 405);
    assert_eq!(gateway.get(&format!("/status/{id}")).await.status, 400);
    // What was refused can still be done: nothing of it was kept.
    let _ = gateway.post("/execute", &execution(&id)).await.expect(200);
    let _ = gateway.post("/update", &status_update(&id, 50)).await.expect(200);
}
