//! The store goes away and comes back: every operation follows its declared policy, and no gateway is restarted.

use serde_json::json;

use crate::scene::{Gateway, Scene, Store, ask, created, eventually, execution, payment, status_update};

fn check(qr: &str) -> serde_json::Value {
    json!({ "psp_id": "PSP001", "merchant_provider": "DEMO_MERCHANT", "qr_tx_id": qr, "amount": 100_000 })
}

/// Asks until the store is there again; the gateway finds it by itself.
async fn recovered(gateway: &Gateway) {
    eventually("the gateway has its store again", async || {
        (gateway.get("/readyz").await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_nothing_runs_without_its_guards() {
    let mut scene = Scene::new(Store::redis());
    let gateway = scene.gateway().await;
    let id = created(&gateway, "T").await;
    scene.store.server().kill9();
    let refused = [
        ("/check", check("QR9")),
        ("/create", payment("U")),
        ("/create", payment("T")),
        ("/execute", execution(&id)),
        ("/update", status_update(&id, 60)),
    ];
    for (path, body) in &refused {
        let told = gateway.post(path, body).await;
        assert_eq!(told.status, 503, "{path}: {told:?}");
        assert!(told.code().starts_with("store."), "{path}: {told:?}");
        assert!(told.retry_after().unwrap() >= 1, "{path}: {told:?}");
        assert!(!told.text.contains("127."), "where the store is, is no caller's business: {told:?}");
    }
    // A cache that is away is a miss: SQL knows.
    let told = gateway.get(&format!("/status/{id}?psp_id=PSP001")).await;
    assert_eq!(told.header("quaymaster-outage"), Some("miss"), "{told:?}");
    let status = told.expect(200);
    assert_eq!(status["status"], "CREATED");
    assert_eq!(gateway.get("/readyz").await.status, 503);
    assert_eq!((scene.payments().await, scene.effects("execute").await), (1, 0));
    scene.store.server().restart();
    recovered(&gateway).await;
    assert_eq!(gateway.post("/create", &payment("U")).await.status, 201);
    // The store forgot T with its record; the payment is found and not made again.
    assert_eq!(gateway.post("/create", &payment("T")).await.expect(201)["transaction_id"], id);
    assert_eq!(gateway.post("/execute", &execution(&id)).await.status, 200);
    assert_eq!((scene.payments().await, scene.effects("create").await, scene.found().await), (2, 2, 1));
}

/// The operator chose to go on without: answers say so, and SQL still lets no payment happen twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_operator_allows_it_operations_go_on_and_say_so() {
    let mut scene = Scene::new(Store::redis());
    let allow = [
        ("PSP_CHECK_ON_OUTAGE", "allow"),
        ("PSP_CREATE_ON_OUTAGE", "allow"),
        ("PSP_EXECUTE_ON_OUTAGE", "allow"),
        ("PSP_UPDATE_ON_OUTAGE", "allow"),
    ];
    let gateways = [scene.gateway_with(&allow).await, scene.gateway_with(&allow).await];
    let _ = created(&gateways[0], "T").await;
    scene.store.server().kill9();
    let first = gateways[0].post("/create", &payment("U")).await;
    assert_eq!(first.header("quaymaster-outage").map(|_| first.status), Some(201), "{first:?}");
    let id = first.json()["transaction_id"].as_str().unwrap().to_owned();
    let steps = [
        ("/check", check("QR9")),
        ("/execute", execution(&id)),
        ("/update", status_update(&id, 50)),
        ("/create", payment("U")),
    ];
    for (path, body) in &steps {
        for gateway in &gateways {
            let told = gateway.post(path, body).await;
            assert!(told.status < 300, "{path}: {told:?}");
            assert!(told.header("quaymaster-outage").is_some(), "{path}: {told:?}");
        }
    }
    // Each ran on both gateways, and took effect once.
    assert_eq!((scene.payments().await, scene.effects("create").await), (2, 2));
    assert_eq!((scene.effects("execute").await, scene.effects("update").await), (1, 1));
    let mut other = payment("U");
    other["amount"] = json!(1);
    assert_eq!(gateways[1].post("/create", &other).await.code(), "payment.other");
    scene.store.server().restart();
    for gateway in &gateways {
        recovered(gateway).await;
        let again = gateway.post("/create", &payment("U")).await;
        assert_eq!((again.status, &again.text), (201, &first.text));
        assert_eq!(again.header("quaymaster-outage"), None, "the guards are back: {again:?}");
    }
}

/// Limits are counted in SQL meanwhile, over both gateways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_over_all_gateways_while_the_store_is_away() {
    let mut scene = Scene::new(Store::redis());
    let env = [("PSP_CREATE_ON_OUTAGE", "allow"), ("PSP_LIMIT", "5")];
    let gateways = [scene.gateway_with(&env).await, scene.gateway_with(&env).await];
    scene.store.server().kill9();
    let mut made = 0;
    for n in 0..20 {
        let told = gateways[n % 2].post("/create", &payment(&format!("T{n}"))).await;
        match told.status {
            201 => made += 1,
            _ => assert_eq!((told.status, told.retry_after().is_some()), (429, true), "{told:?}"),
        }
    }
    // Five a minute, and at most one minute ended meanwhile.
    assert!((5..=10).contains(&made), "{made}");
    assert_eq!(scene.payments().await, made);
}

/// A server that accepts and says nothing is as away as one that is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_hangs_is_told_within_the_deadline() {
    let mut scene = Scene::new(Store::redis());
    let gateway = scene.gateway().await;
    let id = created(&gateway, "T").await;
    scene.store.server().pause();
    let told = gateway.post("/create", &payment("U")).await;
    assert_eq!((told.status, told.retry_after().is_some()), (503, true), "{told:?}");
    let status = gateway.get(&format!("/status/{id}?psp_id=PSP001")).await;
    assert_eq!(status.status, 200, "{status:?}");
    scene.store.server().resume();
    recovered(&gateway).await;
    let told = eventually("its claim is free", async || {
        let told = gateway.post("/create", &payment("U")).await;
        (told.status == 201).then_some(told)
    })
    .await;
    assert_eq!(told.json()["psp_transaction_id"], "U");
    assert_eq!(scene.effects("create").await, 2);
}

/// A gateway that starts while its store is away waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_starts_without_its_store_and_finds_it_later() {
    let mut scene = Scene::new(Store::redis());
    scene.store.server().kill9();
    let gateway = scene.gateway().await;
    let told = ask(&gateway.address, "POST", "/create", &payment("T").to_string(), "").await.unwrap();
    assert_eq!(told.status, 503, "{told:?}");
    scene.store.server().restart();
    recovered(&gateway).await;
    assert_eq!(gateway.post("/create", &payment("T")).await.status, 201);
}
