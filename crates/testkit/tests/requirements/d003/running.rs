//! Start, health, stop, and what is found again after a loss.

use std::path::Path;
use std::process::{Child, Stdio};

use axum::Router;
use axum::routing::get;
use quaymaster::Quaymaster;
use quaymaster::extract::{MaybeReady, Ready};
use quaymaster::schema::{Source, load};
use quaymaster::store::{StoreOptions, open};
use quaymaster_testkit::servers::any_port;
use quaymaster_testkit::stage::{Answer, Ask, Stage, Store, Wire, schema_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{DETECTION, list, parsed, push};

fn l462_health_has_the_redis_version(s: &Stage) {
    let version = match s.store() {
        Store::Redis => json!(s.redis(|server| server.info("server", "redis_version")).unwrap()),
        Store::Embedded => Value::Null,
    };
    let ready = s.get("/readyz").expect(200);
    assert_eq!((&ready["status"], &ready["redis_version"]), (&json!("ready"), &version));
    let said = s.cli(&["health", "--json"]);
    let health = said.json();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!((&health["connected"], &health["redis_version"]), (&json!(true), &version));
    assert_eq!(health["status"], "healthy");
    if s.store() == Store::Redis {
        s.redis(|server| server.kill9());
        let away = s.cli(&["health", "--json"]);
        assert_eq!((away.code, &away.json()["connected"]), (3, &json!(false)), "{away:?}");
    }
}

fn l489_close_ends_cleanly(s: &Stage) {
    s.settings("[server]\nshutdown_drain = \"1ms\"");
    push(s, DETECTION, json!({"n": 1}));
    let address = s.address();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let body = json!({"wait_ms": 3_600_000}).to_string();
            Wire::open(address).ask(&Ask::new("POST", "/v1/queue/analysis_queue/claim").json(&body)).0
        });
        s.until("it waits", || {
            s.metric(r#"quaymaster_queue_waiting_claims{queue="analysis_queue"}"#) == Some(1.0)
        });
        assert_eq!(s.stop(), 0, "{}", s.log());
        assert_eq!(waiting.join().unwrap().expect(200), json!({"jobs": []}), "answered, not cut off");
    });
    if s.store() == Store::Redis {
        assert_eq!(s.redis(|server| server.client_names()), [""], "no connection is left");
    }
    assert!(s.log().contains("stopped"), "{}", s.log());
    assert_eq!(s.cli(&["queue", "peek", DETECTION]).out, "{\"n\":1}\n", "another one can open it");
}

/// A service whose handlers want the store, or do without it, asked twice: `/events`, `/health`.
async fn service(quaymaster: Quaymaster) -> impl Fn() -> [Answer; 2] {
    let app = Router::new()
        .route("/events", get(async |Ready(quaymaster): Ready| quaymaster.queues().count().to_string()))
        .route(
            "/health",
            get(async |MaybeReady(it): MaybeReady| if it.is_some() { "with" } else { "without" }),
        )
        .with_state(quaymaster);
    let listener = tokio::net::TcpListener::bind(any_port()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    move || ["/events", "/health"].map(|path| Wire::open(address).ask(&Ask::new("GET", path)).0)
}

fn l497_a_service_may_wait_for_the_store(s: &Stage) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let text = schema_of("cameras");
    let schema = load(&[Source { name: "cameras.toml", text: &text }], &|_| None).schema.unwrap();
    let options = StoreOptions::from_url(&s.url(), &s.folder().join("its-own")).unwrap();
    let quaymaster = Quaymaster::new(schema.into(), runtime.block_on(open(options)).unwrap());
    let ask = runtime.block_on(service(quaymaster.clone()));
    let texts = |answers: [Answer; 2]| answers.map(|answer| (answer.status, answer.text()));
    let there = [(200, "3".to_owned()), (200, "with".to_owned())];
    assert_eq!(texts(ask()), there);
    match s.store() {
        Store::Redis => s.redis(|server| server.kill9()),
        Store::Embedded => runtime.block_on(quaymaster.engine().close()).unwrap(),
    }
    s.until("it is noticed", || ask()[0].status == 503);
    let [wants, may] = ask();
    assert!(wants.expect(503)["code"].as_str().unwrap().starts_with("store."), "{}", wants.text());
    assert!(wants.header("retry-after").is_some());
    assert_eq!((may.status, may.text().as_str()), (200, "without"));
    if s.store() == Store::Redis {
        s.redis(|server| server.restart());
        s.until("it is there again", || texts(ask()) == there);
    }
}

/// A running `camera-pipeline watch` of the folder `images`.
struct Watcher(Child);

impl Watcher {
    fn start(s: &Stage, more: &[&str]) -> Self {
        s.address();
        let log = std::fs::File::create(s.folder().join("watch.log")).unwrap();
        let store = match s.store() {
            Store::Redis => s.url(),
            Store::Embedded => "embedded:quaymaster-data".to_owned(),
        };
        let mut command = s.neighbour("camera-pipeline");
        // Files have the time of their disk.
        command.env_remove("LD_PRELOAD").args(["watch", "--store", &store, "--schema", "cameras.toml"]);
        command.args(["--folder", "images", "--state", "watched", "--settle", "50ms", "--rescan", "200ms"]);
        command.args(["--log", "info,camera_pipeline=debug"]).args(more).stdin(Stdio::null());
        Self(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    /// Lets it walk through its folder twice more, and ends it by SIGTERM.
    fn walk_and_stop(mut self, s: &Stage) {
        let walks = || {
            std::fs::read_to_string(s.folder().join("watch.log")).unwrap().matches("walked through").count()
        };
        let before = walks();
        s.until("two more walks", || walks() >= before + 2);
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The store comes back without anything in it.
fn lose_everything(s: &Stage) {
    s.kill();
    match s.store() {
        Store::Redis => s.redis(|server| server.restart()),
        Store::Embedded => std::fs::remove_dir_all(s.folder().join("quaymaster-data")).unwrap(),
    }
}

fn l007_work_is_found_again_after_a_loss(s: &Stage) {
    let paths: Vec<String> = ["Front Door", "Garage"].map(|camera| image(s.folder(), camera)).to_vec();
    let queued = || {
        let mut paths: Vec<String> = list(s, DETECTION)
            .iter()
            .map(|job| parsed(job)["file_path"].as_str().unwrap().to_owned())
            .collect();
        paths.sort();
        paths
    };
    let first = Watcher::start(s, &[]);
    s.until("both are queued", || queued() == paths);
    first.walk_and_stop(s);
    lose_everything(s);
    Watcher::start(s, &[]).walk_and_stop(s);
    assert_eq!(queued(), [""; 0], "it notes what it handed over");
    let again = Watcher::start(s, &["--again"]);
    s.until("both are queued again", || queued() == paths);
    again.walk_and_stop(s);
    Watcher::start(s, &[]).walk_and_stop(s);
    assert_eq!(queued(), paths, "once, and not with every start");
}

/// An image of a camera; its whole path.
fn image(folder: &Path, camera: &str) -> String {
    let folder = folder.join("images").join(camera);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.canonicalize().unwrap().join("image_001.png");
    std::fs::write(
        &path,
        format!("\u{89}PNG\r\n\u{1a}\n{camera}").chars().map(|c| c as u8).collect::<Vec<_>>(),
    )
    .unwrap();
    path.display().to_string()
}

cases! {
    l462_health_has_the_redis_version
    l489_close_ends_cleanly
    l497_a_service_may_wait_for_the_store
    l007_work_is_found_again_after_a_loss
}
