//! `quaymaster.toml`: what it decides, and everything that can be wrong with it.

use serde_json::json;

use crate::process::{SCHEMA, Served, any_port, command, folder, run, said};

#[test]
fn the_file_of_the_folder_is_read_and_paths_are_meant_from_it() {
    let toml = format!(
        "schemas = [\"shop.toml\"]\n[server]\nlisten = \"{}\"\n[store]\nurl = \"embedded\"\ndata_dir = \"data\"\ndurability = \"everysec\"\n",
        any_port()
    );
    let folder = folder(&[("quaymaster.toml", &toml), ("shop.toml", SCHEMA)]);
    let served = Served::spawn(command(folder.path()).arg("serve"));
    assert!(served.line.contains("data, schemas: shop)"), "{}", served.line);
    assert_eq!(served.take("/v1/limit/orders/take", r#"{"key":{"customer":"a"}}"#)["used"], 1);
    let status: serde_json::Value = serde_json::from_str(&served.ask("GET", "/v1/status", "").1).unwrap();
    assert_eq!(status["store"]["persistence"], "everysec");
    assert_eq!(served.stop().code, 0);
    let elsewhere = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("quaymaster.toml");
    let told = run(
        elsewhere.path(),
        &["limit", "peek", "orders", "--key", "customer=a", "--json", "--config", config.to_str().unwrap()],
    );
    assert_eq!((told.code, &told.json()["used"]), (0, &json!(1)), "{}", told.err);
    let flag = run(
        folder.path(),
        &["limit", "peek", "orders", "--key", "customer=a", "--json", "--store", "memory"],
    );
    assert_eq!(flag.json()["used"], 0, "a flag wins over the file");
}

#[test]
fn every_problem_is_told_at_once_with_its_line() {
    let toml = r#"schema = ["a"]
[server]
listn = "x"
max_body_bytes = "3 bags"
max_json_depth = 5000
request_timeout = 7
tokens = [{ env = "NOT_SET" }, "plain"]
[store]
url = "redis://user:hunter2@db"
password = "hunter2"
durability = "sometimes"
[store.pools.ratelimt]
size = 0
[store.pools.cache]
size = 0
[thresholds]
memory = 1.5
"#;
    let folder = folder(&[("quaymaster.toml", toml)]);
    let told = run(folder.path(), &["serve"]);
    assert_eq!(told.code, 2, "{told:?}");
    for (line, part) in [
        (1, "did you mean `schemas`?"),
        (3, "did you mean `listen`?"),
        (4, "server.max_body_bytes"),
        (5, "server.max_json_depth"),
        (6, "server.request_timeout"),
        (7, "NOT_SET"),
        (7, "server.tokens"),
        (9, "store.url"),
        (10, "store.password"),
        (11, "store.durability"),
        (12, "did you mean `ratelimit`?"),
        (15, "store.pools.cache.size"),
        (17, "thresholds.memory"),
    ] {
        let place = format!("quaymaster.toml:{line}:");
        let lines: Vec<&str> = told.err.lines().collect();
        let found = lines.windows(2).any(|pair| pair[0].contains(&place) && pair.join(" ").contains(part));
        assert!(
            found || lines.last().is_some_and(|last| last.contains(&place) && last.contains(part)),
            "{place} {part}: {}",
            told.err
        );
    }
    assert!(!told.err.contains("hunter2"), "{}", told.err);
}

#[test]
fn broken_toml_is_told_with_its_line() {
    let folder = folder(&[("quaymaster.toml", "[server]\nlisten = = \"x\"\n")]);
    let told = run(folder.path(), &["health"]);
    assert_eq!(told.code, 2);
    assert!(told.err.contains("quaymaster.toml:2:"), "{}", told.err);
}

#[test]
fn secrets_come_from_the_environment() {
    let toml = format!(
        "[server]\nlisten = \"{}\"\ntokens = [{{ env = \"TOKEN\" }}]\n[store]\nurl = {{ env = \"STORE_URL\", default = \"memory\" }}\n",
        any_port()
    );
    let folder = folder(&[("quaymaster.toml", &toml)]);
    let served = Served::spawn(command(folder.path()).arg("serve").env("TOKEN", "0123456789abcdef"));
    assert_eq!(served.ask("GET", "/metrics", "").0, 401);
    assert_eq!(served.ask("GET", "/healthz", "").0, 200);
    assert_eq!(served.stop().code, 0);
    let short = said(command(folder.path()).args(["serve"]).env("TOKEN", "hunter2"));
    assert_eq!(short.code, 2);
    assert!(short.err.contains("shorter than 16") && !short.err.contains("hunter2"), "{}", short.err);
}

#[test]
fn what_is_wrong_with_uploads_is_told_with_its_line() {
    let toml = r#"[uploads]
foldr = "x"
fsync = "sometimes"
lease = "2h"
attempts = 0
[uploads.s3]
endpoint = "http://me:hunter2@host"
bucket = "b"
path_style = "yes"
secret_access_key = "hunter2"
checksums = "md5"
[uploads.database]
connections = 0
"#;
    let wrong = folder(&[("quaymaster.toml", toml)]);
    let told = run(wrong.path(), &["health"]);
    assert_eq!(told.code, 2, "{told:?}");
    for (line, part) in [
        (2, "did you mean `folder`?"),
        (3, "uploads.fsync"),
        (4, "uploads.lease"),
        (5, "uploads.attempts"),
        (7, "uploads.s3.endpoint"),
        (8, "[uploads.s3] has no setting"),
        (9, "uploads.s3.path_style"),
        (10, "uploads.s3.secret_access_key"),
        (11, "uploads.s3.checksums"),
        (13, "uploads.database.connections"),
    ] {
        let place = format!("quaymaster.toml:{line}:");
        let lines: Vec<&str> = told.err.lines().collect();
        let found = (0..lines.len()).any(|at| {
            lines[at].contains(&place) && lines[at..lines.len().min(at + 2)].join(" ").contains(part)
        });
        assert!(found, "{place} {part}: {}", told.err);
    }
    assert!(!told.err.contains("hunter2"), "{}", told.err);
    let half = folder(&[("quaymaster.toml", "[uploads.s3]\naccess_key_id = \"a\"\n")]);
    let told = run(half.path(), &["health"]);
    assert!(told.code == 2 && told.err.contains("of no use without secret_access_key"), "{told:?}");
    let spooled = folder(&[("quaymaster.toml", "[uploads]\nspool = \"a\"\n")]);
    let told = run(spooled.path(), &["health", "--store", "redis://127.0.0.1:1"]);
    assert!(told.code == 2 && told.err.contains("uploads.spool"), "{told:?}");
}

/// Somebody who speaks like S3, and refuses: what was asked.
fn refusing() -> (String, std::sync::mpsc::Receiver<String>) {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind(any_port()).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map(Result::unwrap) {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let _ = tell.send(String::from_utf8_lossy(&head).into_owned());
            let body = "<Error><Code>AccessDenied</Code><Message>no</Message></Error>";
            let _ = write!(
                stream,
                "HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    (url, asked)
}

#[test]
fn an_object_store_is_reached_as_the_file_says_else_as_the_environment_says() {
    let (endpoint, asked) = refusing();
    let toml = format!(
        "[uploads.s3]\nendpoint = \"{endpoint}\"\nregion = \"file-1\"\naccess_key_id = \"file-key\"\n\
         secret_access_key = {{ env = \"MY_SECRET\" }}\nsession_token = {{ env = \"MY_SESSION\" }}\nretries = 0\n"
    );
    let create = |here: &std::path::Path| {
        let mut create = command(here);
        create
            .args(["upload", "create", "documents", "--name", "a", "--log", "trace"])
            .env("UPLOAD_OBJECTS", "s3://bucket/folder")
            .env("AWS_ENDPOINT_URL", &endpoint)
            .env("AWS_REGION", "env-1")
            .env("AWS_ACCESS_KEY_ID", "env-key")
            .env("AWS_SECRET_ACCESS_KEY", "hunter3")
            .env("MY_SECRET", "hunter2")
            .env("MY_SESSION", "hunter-session");
        said(&mut create)
    };
    for (files, key, region, session) in [
        (&[("quaymaster.toml", toml.as_str())][..], "file-key", "file-1", true),
        (&[], "env-key", "env-1", false),
    ] {
        let folder = folder(files);
        let told = create(folder.path());
        assert!(told.code != 0 && told.err.contains("AccessDenied"), "{told:?}");
        assert!(!told.err.contains("hunter"), "{}", told.err);
        let head = asked.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert!(head.starts_with("POST /bucket/folder/connectors/default/"), "path style: {head}");
        let lower = head.to_lowercase();
        assert!(
            head.contains(&format!("Credential={key}/")) && head.contains(&format!("/{region}/s3/")),
            "{head}"
        );
        assert_eq!(lower.contains("x-amz-security-token: hunter-session"), session, "{head}");
        while asked.try_recv().is_ok() {}
    }
}

#[test]
fn a_store_at_its_bound_takes_nothing_more_until_something_is_removed() {
    let schema =
        "[schema]\nname = \"room\"\nowner = \"tests\"\nprefix = \"room:\"\n[queue.work]\nmax_size = 1000\n";
    let toml = "schemas = [\"room.toml\"]\n[store]\nmax_memory = \"64KiB\"\n";
    let folder = folder(&[("quaymaster.toml", toml), ("room.toml", schema)]);
    let push = |served: &Served| {
        served.ask("POST", "/v1/queue/work/push", &json!({"payload": "x".repeat(10_000)}).to_string())
    };
    let served = Served::start(folder.path(), &[]);
    assert_eq!(served.take_get("/v1/status")["store"]["max_memory_bytes"], 64 << 10);
    let (_, metrics) = served.ask("GET", "/metrics", "");
    assert!(metrics.contains("\nquaymaster_store_memory_max_bytes 65536\n"), "{metrics}");
    let taken = (0..20).take_while(|_| push(&served).0 == 200).count();
    assert!((3..10).contains(&taken), "{taken} jobs of 10 KB in 64 KiB");
    let (status, problem) = push(&served);
    assert_eq!((status, problem.contains("store.out_of_memory")), (503, true), "{problem}");
    assert_eq!(served.stop().code, 0);

    // A folder that is full is opened, also under a schema that has changed, and what frees memory goes on.
    let more = format!("{schema}[queue.more]\nmax_size = 10\n");
    std::fs::write(folder.path().join("room.toml"), more).unwrap();
    let served = Served::start(folder.path(), &[]);
    assert_eq!(push(&served).0, 503);
    let jobs = served.take("/v1/queue/work/claim", r#"{"count": 3}"#);
    let leases: Vec<_> = jobs["jobs"].as_array().unwrap().iter().map(|job| job["lease"].clone()).collect();
    assert_eq!(leases.len(), 3);
    assert_eq!(push(&served).0, 503, "a claimed job is still there");
    assert_eq!(served.take("/v1/queue/work/ack", &json!({"leases": leases}).to_string())["acked"], 3);
    assert_eq!(push(&served).0, 200);
    assert_eq!(served.stop().code, 0);
    // The flag wins over the file.
    let served = Served::start(folder.path(), &["--max-memory", "0"]);
    assert_eq!(served.take_get("/v1/status")["store"]["max_memory_bytes"], 0);
    assert!((0..20).all(|_| push(&served).0 == 200));
    assert_eq!(served.stop().code, 0);

    for (args, part) in [
        (&["--max-memory", "much"][..], "max_memory: must be a size"),
        (&["--store", "redis://127.0.0.1:1"], "max_memory: a setting of the embedded store"),
    ] {
        let told = said(command(folder.path()).arg("health").args(args));
        assert_eq!((told.code, told.err.contains(part)), (2, true), "{told:?}");
    }
}

#[test]
fn the_bound_is_half_of_the_memory_there_is_unless_told() {
    let folder = folder(&[]);
    let told = run(folder.path(), &["health", "--store", "memory", "--json"]).json();
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")).unwrap();
    let half = kib.parse::<u64>().unwrap() * 512;
    let bound = told["max_memory_bytes"].as_u64().unwrap();
    // Less where this test runs in a control group with a limit.
    assert!(bound > 0 && bound <= half, "{bound} of {half}");
}
