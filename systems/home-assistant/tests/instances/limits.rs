//! One limit for a caller, whichever instance it calls.

use crate::scene::{Part, Scene, Store, ask, reported};

const LIMIT: u64 = 20;
const REQUESTS: u64 = 2500;

async fn one_limit(store: Store) {
    let mut scene = Scene::new(store);
    scene.set("RATE_LIMIT_MAX", &LIMIT.to_string());
    let (server, instances) = scene.all(3).await;
    let all: Vec<&Part> = instances.iter().collect();
    // Far more than five callers may, at both doors: logins are under a limit of their own.
    let counted = scene.load(&all, REQUESTS, &["--callers", "5", "--connections", "4"]).count().await;
    let logins = counted.endpoints()["POST /api/auth/login"].0;
    assert!(logins > 6 * LIMIT && REQUESTS - logins > 6 * LIMIT, "{counted:?}");
    assert_eq!(
        counted.number("accepted"),
        2 * 5 * LIMIT,
        "each caller exactly its limit, twice: {counted:?}"
    );
    assert_eq!(counted.by_status()["429"], REQUESTS - 2 * 5 * LIMIT);
    let report =
        server.report_when("all is reported", |report| reported(report).number("requests") == REQUESTS).await;
    assert_eq!(reported(&report).number("accepted"), 2 * 5 * LIMIT);
    assert_eq!(reported(&report).by_status(), counted.by_status());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_have_one_limit_on_all_instances_on_redis() {
    one_limit(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_have_one_limit_on_all_instances_on_a_cluster() {
    one_limit(Store::cluster()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_have_one_limit_on_all_instances_on_the_embedded_store() {
    one_limit(Store::Embedded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_say_how_the_limit_stands() {
    let mut scene = Scene::new(Store::Embedded);
    scene.set("RATE_LIMIT_MAX", "2");
    let instance = scene.instance("0").await;
    let first = instance.get_as("203.0.113.7", "/api/users").await;
    assert_eq!(first.status, 200);
    assert_eq!(first.header("ratelimit-policy"), Some("\"ha\";q=2;w=900"), "{first:?}");
    assert!(first.header("ratelimit").unwrap().starts_with("\"ha\";r=1"), "{first:?}");
    assert_eq!(first.header("ha-instance"), Some("0"));
    assert_eq!(instance.get_as("203.0.113.7", "/api/users").await.status, 200);
    let third = instance.get_as("203.0.113.7", "/api/users").await;
    assert_eq!(third.status, 429);
    assert!(third.header("ratelimit").unwrap().starts_with("\"ha\";r=0"), "{third:?}");
    let wait: u64 = third.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=900).contains(&wait), "{wait}");
    assert_eq!(third.header("content-type"), Some("application/problem+json"));
    assert_eq!(third.json()["code"], "limit.exceeded");
    // Somebody else, and another door.
    assert_eq!(instance.get_as("203.0.113.8", "/api/users").await.status, 200);
    let login = "{\"name\":\"ada\",\"password\":\"correct horse\"}";
    let caller = "x-forwarded-for: 203.0.113.7\r\n";
    let told = ask(&instance.address, "POST", "/api/auth/login", login, caller).await.unwrap();
    assert_eq!(told.status, 200);
    assert_eq!(told.header("ratelimit-policy"), Some("\"ha_sliding\";q=2;w=900"), "{told:?}");
}

/// Without a proxy that is trusted, a caller cannot choose who it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_cannot_name_itself() {
    let mut scene = Scene::new(Store::Embedded);
    scene.set("RATE_LIMIT_MAX", "2");
    scene.set("HA_PROXIES", "192.0.2.1");
    let instance = scene.instance("0").await;
    let statuses = [
        instance.get_as("203.0.113.7", "/api/users").await.status,
        instance.get_as("203.0.113.8", "/api/users").await.status,
        instance.get_as("203.0.113.9", "/api/users").await.status,
    ];
    assert_eq!(statuses, [200, 200, 429]);
}
