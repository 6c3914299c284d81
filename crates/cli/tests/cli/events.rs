//! Batches and events on the command line: beside a server, on its own data.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::json;

use crate::process::{Said, Served, any_port, command, folder, said};

const SCHEMA: &str = r#"
[schema]
name = "vision"

[queue.closed]
max_size = 10

[batch.camera]
by = "camera_id"
window = "90s"
to = "closed"

[event.news]

[event.pulse]
status = { every = "1s" }
"#;

fn on(here: &Path) -> Command {
    let mut vision = command(here);
    vision.env("QUAYMASTER_SCHEMA", "vision.toml");
    vision
}

fn call(here: &Path, words: &[&str]) -> Said {
    said(on(here).args(words))
}

/// `event stream` that has begun to listen.
fn listen(here: &Path, words: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut command = on(here);
    command.args(["--log", "info", "event", "stream"]).args(words);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it listened");
    }
    (child, log)
}

#[test]
fn a_message_published_anywhere_is_printed_as_a_line() {
    let folder = folder(&[("vision.toml", SCHEMA)]);
    let here = folder.path();
    let served = Served::spawn(on(here).args(["serve", "--listen", &any_port()]));
    let (mut child, _log) = listen(here, &["news", "--count", "2"]);
    let published = call(here, &["event", "publish", "news", "--data", r#"{"z": 1.10,  "a": 2}"#, "--json"]);
    assert_eq!((published.code, published.json()), (0, json!({"receivers": 1})), "{}", published.err);
    let told = served.ask("POST", "/v1/event/news/publish", r#"{"data":"two"}"#);
    assert_eq!(told.0, 200);
    let mut heard = String::new();
    child.stdout.take().unwrap().read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "{\"z\": 1.10,  \"a\": 2}\n\"two\"\n");
    assert!(child.wait().unwrap().success());
    let (mut child, _log) = listen(here, &["pulse", "--count", "1"]);
    let mut heard = String::new();
    child.stdout.take().unwrap().read_to_string(&mut heard).unwrap();
    assert!(heard.starts_with(r#"{"type":"status","data":{"timestamp":"#), "{heard}");
    assert!(child.wait().unwrap().success());
    assert_eq!(served.stop().code, 0);
}

#[test]
fn items_are_added_listed_and_closed() {
    let folder = folder(&[("vision.toml", SCHEMA)]);
    let here = folder.path();
    let front = ["--key", "camera_id=front", "--json"];
    let add = |words: &[&str]| call(here, &[&["batch", "add", "camera"][..], words, &front].concat());
    assert_eq!(add(&["--item", "1", "--id", "d-1"]).json()["size"], 1);
    assert_eq!(add(&["--item", "1", "--id", "d-1"]).code, 1, "a duplicate is a no");
    let listed = call(here, &["batch", "list", "camera", "--count", "5", "--json"]).json();
    assert_eq!(listed["batches"][0]["key"], json!({"camera_id": "front"}));
    let close = [&["batch", "close", "camera"][..], &front].concat();
    assert_eq!(call(here, &close).json()["outcome"], "closed");
    assert_eq!(call(here, &close).code, 1, "none is a no");
    let swept = call(here, &["batch", "sweep", "camera"]);
    assert_eq!(
        (swept.code, swept.out.as_str()),
        (0, "closed   0\nwaiting  0\nexpired  0\n"),
        "{}",
        swept.err
    );
}

#[test]
fn what_cannot_be_listened_to_is_refused() {
    let folder = folder(&[("vision.toml", SCHEMA)]);
    let here = folder.path();
    let unknown = call(here, &["event", "stream", "nws", "--store", "memory"]);
    assert!(unknown.code == 2 && unknown.err.contains("did you mean \"news\""), "{unknown:?}");
    assert_eq!(call(here, &["event", "stream", "news", "--count", "0"]).code, 2);
    let away = call(here, &["event", "stream", "news", "--store", "redis://127.0.0.1:1"]);
    assert_eq!(away.code, 3, "{away:?}");
}
