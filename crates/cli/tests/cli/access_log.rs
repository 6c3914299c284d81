//! The access log of `serve`: what is in it, what never is, and that no caller waits for it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{SCHEMA, Served, any_port, command, folder, run};

const SHOP: &str = r#"
[schema]
name = "shop"
owner = "checkout"

[limit.minute]
key = "rl:{psp_id}:{minute}"
algorithm = "fixed_window"
limit = 1
window = "60s"

[limit.pair]
key = "pair:{a}:{b}"
algorithm = "fixed_window"
limit = 1000000
window = "60s"

[cache.token]
key = "token:{id}"
ttl = "1h"
sensitive = true

[lock.door]
key = "door:{id}"
ttl = "30s"

[event.news]
channel = "news:{topic}"

[run.night]
key = "night:{id}"
state_ttl = "1h"
hour_ttl = "1h"

[guard.pay]
limits = ["minute"]
lock = "door"
"#;

const TOKENS: &str = r#"
schemas = ["shop.toml"]

[server]
access_log = "access.log"
tokens = [{ env = "WRITER" }, { env = "READER", role = "read" }]
"#;

/// Until `done` says something; the files of a log are written by a thread that nobody can wait for.
fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// A request with a token; its status.
fn asked(address: &str, token: &str, method: &str, path: &str, body: &str) -> u16 {
    named(address, &format!("authorization: Bearer {token}\r\n"), method, path, body)
}

/// A request with these lines in its head; its status.
fn named(address: &str, lines: &str, method: &str, path: &str, body: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn each_call_has_a_line_that_says_who_did_what_and_how_it_ended() {
    let folder = folder(&[("shop.toml", SHOP), ("quaymaster.toml", TOKENS)]);
    let mut command = command(folder.path());
    command.args(["serve", "--store", "memory", "--listen", &any_port()]);
    command.env("WRITER", "writer-writer-writer").env("READER", "reader-reader-reader");
    let served = Served::spawn(&mut command);
    let ask = |token: &str, method, path, body| asked(&served.address, token, method, path, body);
    let (writer, reader) = ("writer-writer-writer", "reader-reader-reader");
    let psp = r#"{"key":{"psp_id":"PSP001"}}"#;
    let door = r#"{"key":{"id":"T1"}}"#;
    let expected = [
        (ask(writer, "POST", "/v1/limit/minute/take", psp), "WRITER", "limit.minute", "take", "ok"),
        (ask(writer, "POST", "/v1/limit/minute/take", psp), "WRITER", "limit.minute", "take", "no"),
        (
            ask(reader, "GET", "/v1/limit/minute/peek?key.psp_id=PSP001", ""),
            "READER",
            "limit.minute",
            "peek",
            "no",
        ),
        (
            ask(reader, "POST", "/v1/lock/door/acquire", door),
            "READER",
            "lock.door",
            "acquire",
            "auth.forbidden",
        ),
        (
            ask("nobody-nobody-nobody", "POST", "/v1/lock/door/acquire", door),
            "",
            "lock.door",
            "acquire",
            "auth.required",
        ),
        (ask(writer, "POST", "/v1/lock/door/acquire", door), "WRITER", "lock.door", "acquire", "ours"),
        (ask(writer, "POST", "/v1/lock/door/acquire", door), "WRITER", "lock.door", "acquire", "held"),
        (
            ask(writer, "POST", "/v1/lock/door/acquire", r#"{"key":{"id":"a*b"}}"#),
            "WRITER",
            "lock.door",
            "acquire",
            "key.value",
        ),
        (
            ask(writer, "POST", "/v1/lock/cellar/acquire", door),
            "WRITER",
            "lock.cellar",
            "acquire",
            "resource.unknown",
        ),
        (
            ask(writer, "POST", "/v1/run/night/start", r#"{"run_id":"R1"}"#),
            "WRITER",
            "run.night",
            "start",
            "started",
        ),
        (
            ask(writer, "POST", "/v1/event/news/publish", r#"{"key":{"topic":"all"},"data":1}"#),
            "WRITER",
            "event.news",
            "publish",
            "ok",
        ),
        (
            ask(writer, "POST", "/v1/guard/pay/enter", r#"{"key":{"psp_id":"P2","id":"T1"}}"#),
            "WRITER",
            "guard.pay",
            "enter",
            "held",
        ),
        (ask(reader, "GET", "/v1/status", ""), "READER", "", "/v1/status", "ok"),
        (ask(reader, "GET", "/v1/nothing", ""), "", "", "", "route.unknown"),
        (ask("nobody-nobody-nobody", "GET", "/metrics", ""), "", "", "/metrics", "auth.required"),
    ];
    // Probes are not calls.
    assert_eq!((ask("", "GET", "/healthz", ""), ask(writer, "GET", "/metrics", "")), (200, 200));
    assert_eq!(served.stop().code, 0);
    let found = lines(&folder.path().join("access.log"));
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    let page = include_str!("../../../../docs/configuration.md");
    let documented = page.lines().find(|line| line.starts_with(r#"{"time""#)).unwrap();
    let documented: Value = serde_json::from_str(documented).unwrap();
    let word = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    for (line, (status, token, resource, verb, outcome)) in found.iter().zip(expected) {
        let got = ["status", "token", "resource", "verb", "outcome"].map(|name| line[name].clone());
        assert_eq!(got, [json!(status), word(token), word(resource), word(verb), word(outcome)], "{line}");
        let time = line["time"].as_str().unwrap();
        assert!(time.len() == "2026-11-16T12:00:00.000042Z".len() && time.ends_with('Z'), "{time}");
        assert!(line.as_object().unwrap().keys().eq(documented.as_object().unwrap().keys()), "{line}");
        assert!(line["duration_us"].as_u64().is_some_and(|us| us > 0), "{line}");
    }
    // sha256 of `rl:PSP001:{minute}`, `door:T1`, `night:R1`, `news:all`; the guard is known by its lock.
    let digests: Vec<&Value> = found.iter().map(|line| &line["key_digest"]).collect();
    assert_eq!(digests[0], &json!(digest("rl:PSP001:{minute}")));
    assert_eq!((digests[5], digests[11]), (&json!(digest("door:T1")), &json!(digest("door:T1"))));
    assert_eq!((digests[9], digests[10]), (&json!(digest("night:R1")), &json!(digest("news:all"))));
    assert!(digests[7].is_null() && digests[8].is_null() && digests[12].is_null(), "no key, no digest");
}

#[test]
fn paths_without_a_verb_have_the_one_of_their_operation_and_a_stream_has_its_key() {
    let folder = folder(&[("shop.toml", SHOP), ("quaymaster.toml", TOKENS)]);
    let mut command = command(folder.path());
    command.args(["serve", "--store", "memory", "--listen", &any_port()]);
    command.env("WRITER", "writer-writer-writer").env("READER", "reader-reader-reader");
    let served = Served::spawn(&mut command);
    let news = "/v1/event/news/stream?key.topic=all&nothing=1";
    let rows = [
        ("reader-reader-reader", "GET", "/v1/upload/inbox/U1", "upload.inbox", "show", "resource.unknown"),
        (
            "writer-writer-writer",
            "DELETE",
            "/v1/upload/inbox/U1",
            "upload.inbox",
            "delete",
            "resource.unknown",
        ),
        (
            "reader-reader-reader",
            "PUT",
            "/v1/upload/inbox/U1/chunk/0",
            "upload.inbox",
            "chunk",
            "auth.forbidden",
        ),
        (
            "reader-reader-reader",
            "GET",
            "/v1/upload/inbox/U1/content",
            "upload.inbox",
            "content",
            "resource.unknown",
        ),
        ("reader-reader-reader", "GET", news, "event.news", "stream", "request.field"),
    ];
    for (token, method, path, ..) in rows {
        asked(&served.address, token, method, path, "");
    }
    assert_eq!(served.stop().code, 0);
    let found = lines(&folder.path().join("access.log"));
    assert_eq!(found.len(), rows.len(), "{found:#?}");
    for (line, (_, _, path, resource, verb, outcome)) in found.iter().zip(rows) {
        let got = ["resource", "verb", "outcome"].map(|name| line[name].clone());
        assert_eq!(got, [json!(resource), json!(verb), json!(outcome)], "{path}: {line}");
    }
    assert_eq!(found[4]["key_digest"], json!(digest("news:all")));
}

/// The first digits of a key's SHA-256, as coreutils say it.
fn digest(key: &str) -> String {
    let said = Command::new("sh").args(["-c", r#"printf %s "$1" | sha256sum"#, "sh", key]).output().unwrap();
    String::from_utf8(said.stdout).unwrap()[..16].to_owned()
}

#[test]
fn keys_are_plain_when_asked_for_and_nothing_of_a_sensitive_resource_ever_is() {
    let settings =
        "schemas = [\"shop.toml\"]\n[server]\naccess_log = \"logs/access.log\"\naccess_log_keys = true\n";
    let folder = folder(&[("shop.toml", SHOP), ("quaymaster.toml", settings)]);
    std::fs::create_dir(folder.path().join("logs")).unwrap();
    let served = Served::start(folder.path(), &["--store", "memory"]);
    served.take("/v1/limit/minute/take", r#"{"key":{"psp_id":"PSP001"}}"#);
    served.take("/v1/cache/token/put", r#"{"key":{"id":"ann-s3cret"},"value":"hunter2-hunter2"}"#);
    assert_eq!(served.take_get("/v1/cache/token/get?key.id=ann-s3cret")["value"], "hunter2-hunter2");
    assert_eq!(served.stop().code, 0);
    let file = folder.path().join("logs/access.log");
    let found = lines(&file);
    assert_eq!(found[0]["key"], "rl:PSP001:{minute}");
    assert_eq!(found[2]["key_digest"], json!(digest("token:ann-s3cret")));
    assert!(found[2].get("key").is_none(), "{}", found[2]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("s3cret"), "{text}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "nobody else reads it");
}

#[test]
fn a_line_has_the_names_that_its_request_had() {
    let settings = "schemas = [\"shop.toml\"]\n[server]\naccess_log = \"access.log\"\n[server.limit]\nname = \"callers\"\n";
    let callers = "[limit.callers]\nkey = \"callers:{address}\"\nalgorithm = \"sliding_log\"\nlimit = 1\nwindow = \"1h\"\n";
    let folder = folder(&[("shop.toml", &format!("{SHOP}{callers}")), ("quaymaster.toml", settings)]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let names = [
        format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\r\nx-request-id: edge-7\r\n"),
        "x-request-id: edge-\"8\r\n".to_owned(),
        "traceparent: 00-1-2-3\r\nx-request-id: two words\r\n".to_owned(),
    ];
    let body = r#"{"key":{"a":"1","b":"2"}}"#;
    // The first takes the server's own limit, which turns the others away.
    for (names, status) in names.iter().zip([200, 429, 429]) {
        assert_eq!(named(&served.address, names, "POST", "/v1/limit/pair/take", body), status);
    }
    assert_eq!(served.stop().code, 0);
    let found = lines(&folder.path().join("access.log"));
    let said = |name: &str| found.iter().map(|line| line.get(name).cloned()).collect::<Vec<_>>();
    assert_eq!(said("trace_id"), [Some(json!(trace)), None, None]);
    assert_eq!(said("x_request_id"), [Some(json!("edge-7")), Some(json!("edge-\"8")), None]);
    assert_eq!(said("outcome"), ["ok", "limit.exceeded", "limit.exceeded"].map(|word| Some(json!(word))));
}

#[test]
fn a_log_that_was_moved_goes_on_in_a_new_file_and_a_sighup_makes_one_at_once() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let args = ["--store", "memory", "--schema", "shop.toml", "--access-log", "access.log"];
    let served = Served::start(folder.path(), &args);
    let file = folder.path().join("access.log");
    let take =
        |who: &str| served.take("/v1/limit/orders/take", &format!(r#"{{"key":{{"customer":"{who}"}}}}"#));
    let whole = |file: &Path| std::fs::read_to_string(file).ok().filter(|text| text.ends_with('\n'));
    take("one");
    until("the first line", || whole(&file));
    std::fs::rename(&file, folder.path().join("access.log.1")).unwrap();
    take("two");
    until("a new file", || whole(&file));
    std::fs::rename(&file, folder.path().join("access.log.2")).unwrap();
    served.signal(Signal::HUP);
    until("a new file without a call", || std::fs::read_to_string(&file).ok());
    take("three");
    assert_eq!(served.stop().code, 0, "a SIGHUP ends nothing");
    for (name, customer) in [("access.log.1", "one"), ("access.log.2", "two"), ("access.log", "three")] {
        let found = lines(&folder.path().join(name));
        let digests: Vec<&Value> = found.iter().map(|line| &line["key_digest"]).collect();
        assert_eq!(digests, [&json!(digest(&format!("orders:{customer}")))], "{name}");
    }
}

#[test]
fn a_reader_that_stands_still_costs_lines_and_no_caller_waits() {
    const CALLS: u64 = 2_300;
    let settings = "schemas = [\"shop.toml\"]\n[server]\naccess_log = \"-\"\naccess_log_keys = true\n";
    let folder = folder(&[("shop.toml", SHOP), ("quaymaster.toml", settings)]);
    // Nobody reads its standard output for now: a pipe holds 64 KiB of these lines, the server 4 MiB
    // that wait and at most as much that it has begun to write.
    let mut served = Served::start(folder.path(), &["--store", "memory"]);
    let value = "🚢".repeat(512);
    let body = format!(r#"{{"key":{{"a":"{value}","b":"{value}"}}}}"#);
    let request = format!(
        "POST /v1/limit/pair/take HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for _ in 0..CALLS {
        stream.write_all(request.as_bytes()).unwrap();
        let (mut line, mut length, mut first) = (String::new(), 0, true);
        while line != "\r\n" {
            line.clear();
            answers.read_line(&mut line).unwrap();
            assert!(!first || line.contains("200"), "{line}");
            first = false;
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.trim().parse().unwrap();
            }
        }
        let mut answer = vec![0; length];
        answers.read_exact(&mut answer).unwrap();
    }
    let metrics = served.ask("GET", "/metrics", "").1;
    let counted = metrics.lines().find_map(|line| line.strip_prefix("quaymaster_access_log_dropped_total "));
    let dropped: u64 = counted.unwrap().parse().unwrap();
    assert!(dropped > 0 && dropped < CALLS, "{dropped}");
    // Read at last, the log says itself how much of it is missing.
    let (mut line, mut seen) = (String::new(), 0);
    let missing = loop {
        line.clear();
        assert_ne!(served.read_line(&mut line), 0, "it ended without a gap");
        let said: Value = serde_json::from_str(&line).unwrap();
        match said["dropped"].as_u64() {
            Some(missing) => break missing,
            None => seen += 1,
        }
    };
    assert_eq!((missing, seen + missing), (dropped, CALLS));
    assert!(served.stop().err.contains("access log: the disk is too slow"));
}

#[test]
fn a_full_disk_costs_lines_and_is_said_once() {
    let folder = folder(&[("shop.toml", SCHEMA)]);
    let args = ["--store", "memory", "--schema", "shop.toml", "--access-log", "/dev/full"];
    let mut served = Served::start(folder.path(), &args);
    served.take("/v1/limit/orders/take", r#"{"key":{"customer":"ann"}}"#);
    served.wait_for_log("access log: it cannot be written: No space left on device");
    served.take("/v1/limit/orders/take", r#"{"key":{"customer":"ann"}}"#);
    let counted = || {
        let metrics = served.ask("GET", "/metrics", "").1;
        metrics.contains("quaymaster_access_log_dropped_total 2\n").then_some(())
    };
    until("both lines are counted", counted);
    let said = served.stop();
    assert_eq!((said.code, said.err.contains("cannot be written")), (0, false), "{}", said.err);
}

#[test]
fn a_log_that_cannot_be_opened_keeps_serve_from_starting() {
    let folder = folder(&[("keys.toml", "[server]\naccess_log_keys = true\n")]);
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    for (args, part) in [
        (["--access-log", "nowhere/access.log"], "server.access_log: cannot write to nowhere/access.log"),
        (["--access-log", "."], "it is no file"),
        (["--access-log", "pipe"], "it is no file"),
        (["--config", "keys.toml"], "server.access_log_keys: there is no access log"),
    ] {
        let listen = any_port();
        let said =
            run(folder.path(), &[&["serve", "--store", "memory", "--listen", &listen][..], &args].concat());
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{args:?}: {}", said.err);
        assert!(said.err.contains(part), "{args:?}: {}", said.err);
    }
}
