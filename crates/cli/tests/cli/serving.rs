//! `serve` as a process: its line, its end, and others on its folder.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::json;

use crate::process::{SCHEMA, Served, Started, any_port, command, folder, run, said};

#[test]
fn serve_prints_one_line_and_stops_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = folder(&[]);
        let served = Served::start(folder.path(), &["--store", "memory"]);
        let wanted = format!(
            "quaymaster listening on http://{} (store: memory, schemas: courtlistener, uploads, home-assistant, cameras, psp)\n",
            served.address
        );
        assert_eq!(served.line, wanted);
        assert_eq!(served.ask("GET", "/readyz", "").0, 200);
        let said = served.stop_by(signal);
        assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
    }
}

#[test]
fn serve_says_the_same_as_json() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let mut serve = command(folder.path());
    serve.args(["serve", "--json", "--schema", "shop.toml", "--store", "memory", "--listen", &any_port()]);
    let served = Served::spawn_saying(&mut serve, "{");
    let told: serde_json::Value = serde_json::from_str(&served.line).unwrap();
    assert!(told["listening"].as_str().is_some_and(|url| url.starts_with("http://")), "{told}");
    assert_eq!((&told["store"], &told["schemas"]), (&json!("memory"), &json!(["shop"])));
    assert_eq!(served.stop().code, 0);
}

#[test]
fn serve_and_the_command_line_share_one_folder_and_what_was_counted_stays() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let take = |cost: &str| {
        let args = [
            "limit",
            "take",
            "orders",
            "--schema",
            "shop.toml",
            "--key",
            "customer=ann",
            "--cost",
            cost,
            "--json",
        ];
        run(folder.path(), &args)
    };
    let served = Served::start(folder.path(), &["--schema", "shop.toml"]);
    assert!(served.line.contains("store: embedded ./quaymaster-data, schemas: shop"), "{}", served.line);
    let first = served.take("/v1/limit/orders/take", r#"{"key":{"customer":"ann"}}"#);
    assert_eq!(first["used"], 1);
    let attached = take("1");
    assert_eq!((attached.code, &attached.json()["used"]), (0, &json!(2)), "{}", attached.err);
    assert_eq!(served.take("/v1/limit/orders/take", r#"{"key":{"customer":"ann"}}"#)["used"], 3);
    let refused = take("1");
    assert_eq!((refused.code, &refused.json()["allowed"]), (1, &json!(false)));
    let health = run(folder.path(), &["health", "--json"]);
    assert_eq!(health.json()["mode"], "attached", "{}", health.err);
    assert_eq!(served.stop().code, 0);
    let after = run(
        folder.path(),
        &["limit", "peek", "orders", "--schema", "shop.toml", "--key", "customer=ann", "--json"],
    );
    assert_eq!((after.code, &after.json()["used"]), (1, &json!(3)), "{}", after.err);
    assert_eq!(run(folder.path(), &["health", "--json"]).json()["mode"], "owner");
}

#[test]
fn what_keeps_serve_from_starting_is_said_with_the_right_code() {
    let taken = TcpListener::bind(any_port()).unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let folder = folder(&[
        ("bad.toml", "[limit.x]\nkey = 7"),
        ("file", ""),
        ("unknown.toml", "[server]\nlisen = \"x\""),
    ]);
    for (args, code, part) in [
        (&["--store", "memory", "--listen", &port][..], 2, "cannot listen on"),
        (&["--store", "memory", "--listen", "0.0.0.0:0"], 2, "--insecure-listen"),
        (&["--store", "memory", "--listen", "nonsense"], 2, "not an address"),
        (&["--store", "memory", "--schema", "bad.toml"], 1, "bad.toml:2:"),
        (&["--store", "memory", "--schema", "nowhere.toml"], 2, "nowhere.toml"),
        (&["--store", "memory", "--config", "nowhere.toml"], 2, "nowhere.toml"),
        (&["--store", "memory", "--config", "unknown.toml"], 2, "unknown.toml:2:1"),
        (&["--store", "redis://a:b:c:d"], 2, "store"),
        (&["--data-dir", "file"], 3, "file"),
    ] {
        let (mut all, listen) = (vec!["serve"], any_port());
        if !args.contains(&"--listen") {
            all.extend(["--listen", &listen]);
        }
        all.extend_from_slice(args);
        let said = run(folder.path(), &all);
        assert_eq!(said.code, code, "{args:?}: {said:?}");
        assert!(said.err.contains(part), "{args:?}: {}", said.err);
        assert_eq!(said.out, "", "{args:?}: it never said it listens");
    }
}

#[test]
fn a_data_folder_nobody_may_write_is_a_store_that_cannot_be_reached() {
    if rustix::process::geteuid().is_root() {
        // Permissions do not stop root: a folder that cannot be made at all stands in for it.
        let folder = folder(&[("blocked", "")]);
        let said = run(folder.path(), &["serve", "--listen", &any_port(), "--data-dir", "blocked/data"]);
        assert_eq!(said.code, 3, "{said:?}");
        return;
    }
    let folder = folder(&[]);
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o500)).unwrap();
    let said = run(folder.path(), &["serve", "--listen", &any_port(), "--data-dir", "data"]);
    assert_eq!(said.code, 3, "{said:?}");
}

#[test]
fn a_redis_that_is_away_does_not_keep_serve_from_starting() {
    let folder = folder(&[]);
    let served =
        Served::start(folder.path(), &["--demo", "--store", "redis://:hunter2@127.0.0.1:1?deadline_ms=200"]);
    assert!(served.line.contains("store: redis://127.0.0.1:1,"), "{}", served.line);
    assert_eq!(served.ask("GET", "/healthz", "").0, 200);
    let (status, body) = served.ask("GET", "/readyz", "");
    assert_eq!(status, 503, "{body}");
    let (status, body) = served.ask("POST", "/v1/limit/psp/take", r#"{"key":{"psp_id":"a"}}"#);
    assert_eq!((status, body.contains("retry_after_ms")), (503, true), "{body}");
    let said = served.stop();
    assert_eq!(said.code, 0);
    assert!(said.err.contains("not ready") && !said.err.contains("hunter2"), "{}", said.err);
}

#[test]
fn no_value_of_a_key_is_logged_above_debug() {
    let folder = folder(&[]);
    let calls = |level: &str| {
        let served = Served::start(folder.path(), &["--store", "memory", "--log", level]);
        served.take("/v1/limit/psp/take", r#"{"key":{"psp_id":"secret-psp"}}"#);
        served.ask("POST", "/v1/limit/psp/take", r#"{"key":{"psp_id":"secret-psp*"}}"#);
        served.ask("GET", "/v1/limit/psp/peek?key.psp_id=secret-psp", "");
        served.ask("GET", "/v1/key/explain?key=rl:secret-psp:2026-11-15-12-00", "");
        served.stop().err
    };
    assert!(!calls("info").contains("secret-psp"));
    let debug = calls("debug");
    let lines = debug.lines().filter(|line| line.contains("took_us=")).count();
    assert_eq!(lines, 4, "one line a request: {debug}");
}

#[test]
fn json_logs_are_json() {
    let folder = folder(&[]);
    let served =
        Served::start(folder.path(), &["--store", "memory", "--log-format", "json", "--log", "debug"]);
    served.ask("GET", "/healthz", "");
    let said = served.stop();
    let lines: Vec<serde_json::Value> =
        said.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["path"] == "/healthz" && line["status"] == 200), "{}", said.err);
}

#[test]
fn a_second_signal_ends_at_once() {
    let folder = folder(&[]);
    let mut served = Served::start(folder.path(), &["--store", "memory"]);
    // A request whose body never comes keeps the first stop waiting.
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream
        .write_all(
            b"POST /v1/limit/psp/take HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{",
        )
        .unwrap();
    while !served.ask("GET", "/metrics", "").1.contains("requests_in_flight 1") {
        std::thread::yield_now();
    }
    served.signal(Signal::TERM);
    served.wait_for_log("a second signal");
    served.signal(Signal::TERM);
    assert_eq!(served.stop_code(), 130);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
}

#[test]
fn a_stop_while_the_store_is_opened_is_heard() {
    // A Redis that accepts and never answers.
    for signal in [Signal::TERM, Signal::INT] {
        let silent = TcpListener::bind(any_port()).unwrap();
        let url = format!("redis://{}?deadline_ms=600000", silent.local_addr().unwrap());
        let folder = folder(&[("quaymaster.toml", "[store.pools.default]\nconnect_timeout = \"10m\"\n")]);
        let mut serve = command(folder.path());
        serve.args(["serve", "--demo", "--listen", &any_port(), "--store", &url]);
        let started = Started::spawn(&mut serve);
        let asked = silent.accept().unwrap();
        let said = started.stop_by(signal);
        assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
        assert!(said.err.contains("while the store was being opened"), "{}", said.err);
        drop(asked);
    }
}

#[test]
fn a_server_that_cannot_listen_leaves_no_folder_behind() {
    let taken = TcpListener::bind(any_port()).unwrap();
    let folder = folder(&[]);
    let said = run(folder.path(), &["serve", "--listen", &taken.local_addr().unwrap().to_string()]);
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_server_that_does_not_start_says_why_and_nothing_else() {
    let endless = "[queue.endless]\npush = { url = \"http://127.0.0.1:9/\" }\n";
    let folder = folder(&[("shop.toml", &format!("{SCHEMA}{endless}"))]);
    let taken = TcpListener::bind(any_port()).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let serve = ["--store", "memory", "--schema", "shop.toml"];
    let refused = run(folder.path(), &[&["serve", "--listen", &address], &serve[..]].concat());
    let first = refused.err.lines().next().unwrap_or_default();
    assert!(first.starts_with("quaymaster: ") && first.contains(&address), "{refused:?}");
    assert_eq!((refused.code, refused.err.lines().count()), (2, 2), "and what to do: {refused:?}");
    drop(taken);
    let said = Served::start(folder.path(), &serve).stop();
    assert!(said.err.contains("the schema has warnings") && said.err.contains("endless"), "{said:?}");
}

#[test]
fn a_store_whose_disk_failed_is_not_ready_and_says_why() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let mut serve = std::process::Command::new("sh");
    serve.current_dir(folder.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let program = env!("CARGO_BIN_EXE_quaymaster");
    let listen = any_port();
    let script =
        format!("trap '' XFSZ; exec {program} serve --listen {listen} --schema shop.toml --data-dir data");
    let served = Served::spawn(serve.args(["-c", &script]));
    let take = || served.ask("POST", "/v1/limit/orders/take", r#"{"key":{"customer":"a"}}"#);
    assert_eq!((take().0, served.ask("GET", "/readyz", "").0), (200, 200));
    // From here on none of its writes to files succeeds: as good as a full disk.
    served.forbid_writes();
    let (status, body) = take();
    assert_eq!((status, body.contains("store.disk")), (503, true), "{body}");
    let (status, body) = served.ask("GET", "/readyz", "");
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("File too large") && !body.contains("may_have_run"), "{body}");
    let status: serde_json::Value = serde_json::from_str(&served.ask("GET", "/v1/status", "").1).unwrap();
    assert_eq!(status["store"]["connected"], false, "{}", status["store"]);
    let reason = status["store"]["reason"].as_str().unwrap();
    assert!(reason.contains("File too large"), "{reason}");
    // The folder was given up: others whose writes succeed may have it. Not so who shares the trouble.
    let script = format!("trap '' XFSZ; ulimit -f 0; exec {program} health --data-dir data --json");
    let mut health = std::process::Command::new("sh");
    let health = said(health.current_dir(folder.path()).env_clear().args(["-c", &script]));
    assert_eq!((health.code, &health.json()["connected"]), (3, &json!(false)), "{health:?}");
    assert!(health.json()["reason"].as_str().unwrap().contains("File too large"), "{health:?}");
}

#[test]
fn environment_variables_stand_for_flags_and_flags_win() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let mut served = command(folder.path());
    served.args(["serve", "--listen", &any_port()]);
    served
        .env("QUAYMASTER_STORE", "memory")
        .env("QUAYMASTER_SCHEMA", "shop.toml")
        .env("QUAYMASTER_LISTEN", "nonsense")
        .env("QUAYMASTER_ACCEPT_EVICTION", "")
        .env("QUAYMASTER_INSECURE_LISTEN", "0");
    let served = Served::spawn(&mut served);
    assert!(served.line.contains("store: memory, schemas: shop)"), "{}", served.line);
    assert_eq!(served.stop().code, 0);
}
