//! The toy verb in a copy of the sources: built, and called.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use quaymaster_testkit::servers::any_port;
use serde_json::{Value, json};

use crate::recipe::RECIPE;

/// Folders that are no sources.
const BESIDE: [&str; 3] = ["target", ".git", "node_modules"];

const SCHEMA: &str =
    "[schema]\nname = \"toy\"\nowner = \"tests\"\n[dedupe.seen]\nkey = \"seen:{id}\"\nttl = \"1h\"\n";

pub(crate) fn try_it(root: &Path, section: &str) {
    // Always the same place: dependencies are built once, and only what changed is built again.
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toy-verb");
    let (source, target) = (place.join("source"), place.join("build"));
    copy(root, &source);
    let docs = source.join("docs/calls.md");
    assert!(!std::fs::read_to_string(&docs).unwrap().contains("dedupe forget"));
    let tools =
        std::env::var_os("QUAYMASTER_TEST_TOOLS").map_or(root.join("target/test-tools"), PathBuf::from);
    let commands = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let checked =
        "cargo fmt --all --check\ncargo nextest run -p quaymaster-testkit --test verbs dedupe every_verb\n";
    for line in commands.lines().chain(checked.lines()) {
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(&source);
        // A cargo in a cargo: what the outer one says is not meant for the inner one.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command.env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_DEV_DEBUG", "false");
        command.env("QUAYMASTER_TEST_TOOLS", &tools);
        assert!(command.status().unwrap().success(), "{line}");
    }
    assert!(std::fs::read_to_string(&docs).unwrap().contains("### dedupe forget"));
    let records = source.join("crates/testkit/tests/corpus/records/dedupe.txt");
    assert!(std::fs::read_to_string(records).unwrap().contains("/v1/dedupe/seen/forget"));
    call(&target.join("debug/quaymaster"));
}

fn is_ours(name: &str) -> bool {
    let cargo = name.starts_with("CARGO") && name != "CARGO_HOME";
    cargo || name.starts_with("NEXTEST") || name.starts_with("QUAYMASTER")
}

/// Calls the verb by every way there is.
fn call(program: &Path) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("toy.toml"), SCHEMA).unwrap();
    let run = |words: &[&str]| {
        let output = Command::new(program).args(words).current_dir(folder.path()).output().unwrap();
        let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        (output.status.code(), answer.unwrap_or_else(|| panic!("{words:?}: {output:?}")))
    };
    let on_store =
        |verb: &str| run(&["dedupe", verb, "seen", "--key", "id=a", "--schema", "toy.toml", "--json"]);
    assert_eq!(on_store("forget"), (Some(1), json!({"forgotten": false})));
    assert_eq!(on_store("first"), (Some(0), json!({"first": true})));
    assert_eq!(on_store("forget"), (Some(0), json!({"forgotten": true})));
    assert_eq!(on_store("first"), (Some(0), json!({"first": true})));

    let mut served = Command::new(program);
    served.args(["serve", "--store", "memory", "--schema", "toy.toml", "--listen", &any_port().to_string()]);
    let served = Served::start(served.current_dir(folder.path()));
    let by_http = |verb: &str| served.post(&format!("/v1/dedupe/seen/{verb}"), r#"{"key":{"id":"a"}}"#);
    assert_eq!(by_http("forget"), json!({"forgotten": false}));
    assert_eq!(by_http("first"), json!({"first": true}));
    assert_eq!(by_http("forget"), json!({"forgotten": true}));
    let url = format!("http://{}", served.address);
    let by_command = run(&["dedupe", "forget", "seen", "--key", "id=a", "--server", &url, "--json"]);
    assert_eq!(by_command, (Some(1), json!({"forgotten": false})));

    let (_, described) = run(&["describe", "--json"]);
    let kinds = described["kinds"].as_array().unwrap();
    let verbs = kinds
        .iter()
        .filter(|kind| kind["kind"] == "dedupe")
        .flat_map(|kind| kind["verbs"].as_array().unwrap());
    let forget = verbs.into_iter().find(|verb| verb["verb"] == "forget").unwrap();
    assert_eq!((&forget["role"], &forget["method"]), (&json!("write"), &json!("POST")), "{forget}");
    let (_, document) = run(&["openapi"]);
    assert_eq!(document["paths"]["/v1/dedupe/{name}/forget"]["post"]["operationId"], "dedupe.forget");
}

/// A running server; ended when dropped.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
        Self { child, address: address.unwrap_or_default().to_owned() }
    }

    fn post(&self, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes `to` the same as the sources in `from` with the recipe applied. A file that is the same already is left alone.
fn copy(from: &Path, to: &Path) {
    let mut wanted = HashSet::new();
    for file in files(from) {
        let name = file.strip_prefix(from).unwrap();
        let held = std::fs::read(&file).unwrap();
        let touched = RECIPE.iter().find(|touched| Path::new(touched.file) == name);
        let held =
            touched.map_or(held.clone(), |touched| touched.edited(String::from_utf8(held).ok()).into());
        put(&to.join(name), &held);
        wanted.insert(to.join(name));
    }
    for touched in RECIPE.iter().filter(|touched| !from.join(touched.file).exists()) {
        put(&to.join(touched.file), touched.edited(None).as_bytes());
        wanted.insert(to.join(touched.file));
    }
    for file in files(to).into_iter().filter(|file| !wanted.contains(file)) {
        std::fs::remove_file(file).unwrap();
    }
}

fn put(file: &Path, held: &[u8]) {
    if std::fs::read(file).is_ok_and(|there| there == held) {
        return;
    }
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, held).unwrap();
}

/// Every source file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if BESIDE.iter().any(|name| entry.file_name() == **name) {
            continue;
        }
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
