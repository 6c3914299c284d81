//! What an operator relies on: a clean stop, tokens, a log without personal data, no unsafe store.

use quaymaster_testkit::servers::{RedisConfig, RedisServer, any_port};
use rustix::process::Signal;

use crate::scene::{Scene, Store, Told, ask, created, eventually, payment};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_what_runs_finish() {
    let scene = Scene::new(Store::Embedded);
    let mut gateway = scene.gateway().await;
    scene.arm("create.entered");
    let running = tokio::spawn({
        let address = gateway.address.clone();
        async move { ask(&address, "POST", "/create", &payment("T").to_string(), "").await.unwrap() }
    });
    scene.held("create.entered").await;
    gateway.process.signal(Signal::TERM);
    eventually("new callers are turned away", async || {
        tokio::net::TcpStream::connect(&gateway.address).await.is_err().then_some(())
    })
    .await;
    scene.let_go("create.entered");
    let told = running.await.unwrap();
    assert_eq!(told.status, 201, "{told:?}");
    let ended = eventually("it ends", async || gateway.process.ended()).await;
    assert_eq!(ended.code(), Some(0));
    // Its answer is kept: the next gateway replays it.
    let next = scene.gateway().await;
    let again = next.post("/create", &payment("T")).await;
    assert_eq!((again.is_replayed(), again.text), (true, told.text));
}

/// A caller that hangs up does not leave its payment half done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_leaves_a_payment_that_can_be_asked_for() {
    let scene = Scene::new(Store::Embedded);
    let gateway = scene.gateway().await;
    scene.arm("create.committed");
    let caller = tokio::spawn({
        let address = gateway.address.clone();
        async move { ask(&address, "POST", "/create", &payment("T").to_string(), "").await }
    });
    scene.held("create.committed").await;
    caller.abort();
    assert!(caller.await.is_err());
    scene.let_go("create.committed");
    let again = gateway.post("/create", &payment("T")).await;
    assert_eq!((again.status, again.is_replayed()), (201, true), "{again:?}");
    assert_eq!((scene.effects("create").await, scene.found().await), (1, 0));
}

async fn as_psp(address: &str, token: Option<&str>) -> Told {
    let header = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    ask(address, "POST", "/create", &payment("T").to_string(), &header).await.unwrap()
}

const TOKEN: &str = "a-token-of-the-first-psp";
const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_psp_itself_may_call_and_the_store_holds_nothing_readable() {
    let mut scene = Scene::new(Store::redis());
    let tokens = format!("PSP001={TOKEN},PSP002=another-token-entirely");
    let gateway = scene.gateway_with(&[("PSP_TOKENS", &tokens), ("QUAYMASTER_SEAL_KEY", KEY)]).await;
    assert_eq!(as_psp(&gateway.address, None).await.status, 401);
    assert_eq!(as_psp(&gateway.address, Some("wrong")).await.status, 403);
    assert_eq!(
        as_psp(&gateway.address, Some("another-token-entirely")).await.status,
        403,
        "it is not PSP002"
    );
    let told = as_psp(&gateway.address, Some(TOKEN)).await;
    assert_eq!(told.status, 201, "{told:?}");
    let id = told.json()["transaction_id"].as_str().unwrap().to_owned();
    let server = scene.store.server();
    let lies_open = |key: &str, part: &str| {
        let bytes: Vec<u8> = server.command(&["GET", key]);
        assert!(!bytes.is_empty(), "{key}");
        String::from_utf8_lossy(&bytes).contains(part)
    };
    assert!(!lies_open("idem:create:T", &id), "the kept answer is sealed");
    // What SQL has is the token's digest, 64 digits; sealed it is longer and none of them is to be seen.
    let held: Vec<u8> = server.command(&["GET", "token:psp:PSP001"]);
    assert!(
        held.len() > 64 && !held.windows(64).any(|part| part.iter().all(u8::is_ascii_hexdigit)),
        "{held:?}"
    );
    // The token is cached: SQL is asked once.
    assert!(as_psp(&gateway.address, Some(TOKEN)).await.is_replayed());
    let log = gateway.log();
    assert!(!log.contains(TOKEN) && !log.contains(KEY), "{log}");
    // A token that is replaced ends with the start that replaces it, cached or not.
    assert_eq!(gateway.stop().await, 0);
    let renewed = "PSP001=a-newer-token-of-the-first-psp";
    let gateway = scene.gateway_with(&[("PSP_TOKENS", renewed), ("QUAYMASTER_SEAL_KEY", KEY)]).await;
    assert_eq!(as_psp(&gateway.address, Some(TOKEN)).await.status, 403);
    assert!(as_psp(&gateway.address, Some("a-newer-token-of-the-first-psp")).await.is_replayed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_access_log_has_a_line_a_request_and_nothing_personal() {
    let scene = Scene::new(Store::Embedded);
    let gateway = scene.gateway().await;
    let id = created(&gateway, "PSP-TX-SECRET").await;
    let _ = gateway.post("/create", &payment("PSP-TX-SECRET")).await.expect(201);
    let _ = gateway.get(&format!("/status/{id}?psp_id=PSP001")).await.expect(200);
    let _ = gateway.get("/nobody/knows").await.expect(404);
    let log = gateway.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(" access: ")).collect();
    let has =
        |parts: [&str; 3]| lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).count();
    assert_eq!(has(["route=\"/create\"", "status=201", "how=\"ran\""]), 1, "{log}");
    assert_eq!(has(["route=\"/create\"", "status=201", "how=\"replayed\""]), 1, "{log}");
    assert_eq!(has(["route=\"/status/{transaction_id}\"", "status=200", "how=\"read\""]), 1, "{log}");
    assert_eq!(has(["route=\"unmatched\"", "status=404", "outage=\"-\""]), 1, "{log}");
    for part in [id.as_str(), "PSP-TX-SECRET", "QR123", "100000", "DEMO_MERCHANT", "nobody"] {
        assert!(!log.contains(part), "{part}: {log}");
    }
}

/// The documented `allkeys-lru` would evict claims and run payments twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_evicts_is_refused() {
    let server = RedisServer::start(
        RedisConfig::default().line("maxmemory 64mb").line("maxmemory-policy allkeys-lru"),
    );
    let folder = tempfile::tempdir().unwrap();
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_psp-gateway"))
        .args(["--listen", &any_port().to_string(), "--store", &server.url(), "--database"])
        .arg(format!("sqlite:{}", folder.path().join("payments.db").display()))
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("allkeys-lru"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens_it_listens_only_where_nobody_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_psp-gateway"))
        .args(["--listen", "0.0.0.0:0", "--store", "memory", "--database"])
        .arg(format!("sqlite:{}", folder.path().join("payments.db").display()))
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("PSP_TOKENS"), "{text}");
}
