//! The toys in a copy of the sources: built, counted, tested and called.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use quaymaster_testkit::servers::any_port;
use serde_json::{Value, json};

use crate::recipe::{TOYS, Toy};
use crate::section;

/// Folders that are no sources.
const BESIDE: [&str; 3] = ["target", ".git", "node_modules"];
/// What the command of CONTRIBUTING writes: nobody writes it by hand, so it does not count. Nor do documents.
const GENERATED: [&str; 3] = ["docs/", "schemas/", "crates/testkit/tests/corpus/records/"];
/// What a pull request with a new verb or primitive must pass, as far as it knows them.
const CHECKED: [&str; 5] = [
    "cargo fmt --all --check",
    "cargo nextest run -p quaymaster-testkit --test verbs dedupe berth every_verb every_kind role_read",
    "cargo nextest run -p quaymaster-testkit --test conformance --test hostile_keys berth dedupe every_key every_script",
    "cargo nextest run -p quaymaster-testkit --test corpus",
    "cargo nextest run -p quaymaster-schema -p quaymaster -p quaymaster-server -p quaymaster-cli",
];

const SCHEMA: &str = "[schema]\nname = \"toy\"\nowner = \"tests\"\n[dedupe.seen]\nkey = \"seen:{id}\"\nttl = \"1h\"\n\
     [berth.pier]\nkey = \"berth:{id}\"\nttl = \"1h\"\n";

pub(crate) fn try_them(root: &Path) {
    // Always the same place: dependencies are built once, and only what changed is built again.
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toy-verb");
    let copied = Copied { source: place.join("source"), target: place.join("build"), root };
    copy(root, &copied.source);
    copied.run("git init --quiet");
    copied.commit();
    for toy in TOYS {
        let named = format!("### {} {}", toy.kind, toy.verb);
        assert!(!copied.read("docs/calls.md").contains(&named));
        copied.add(toy);
        let section = section(toy);
        let commands = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        for line in commands.lines() {
            copied.run(line);
        }
        let (generated, by_hand) = copied.changed();
        println!("{}.{}: {} files by hand: {by_hand:#?}", toy.kind, toy.verb, by_hand.len());
        println!("{} files generated: {generated:#?}", generated.len());
        let mut wanted: Vec<&str> = toy.files.iter().map(|touched| touched.file).collect();
        wanted.sort_unstable();
        assert_eq!(by_hand, wanted, "what Git calls changed, and the recipe");
        assert!(by_hand.len() <= toy.most);
        assert!(copied.read("docs/calls.md").contains(&named));
        let records = copied.read(&format!("crates/testkit/tests/corpus/records/{}.txt", toy.kind));
        assert!(records.contains(&format!("# {}.{}: body: good\n", toy.kind, toy.verb)));
        copied.commit();
    }
    for line in CHECKED {
        copied.run(line);
    }
    call(&copied.target.join("debug/quaymaster"));
}

/// A copy of the sources, under Git.
struct Copied<'a> {
    source: PathBuf,
    target: PathBuf,
    root: &'a Path,
}

impl Copied<'_> {
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(&self.source);
        // A cargo in a cargo: what the outer one says is not meant for the inner one.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        let tools = std::env::var_os("QUAYMASTER_TEST_TOOLS");
        let tools = tools.map_or(self.root.join("target/test-tools"), PathBuf::from);
        command.env("CARGO_TARGET_DIR", &self.target).env("CARGO_PROFILE_DEV_DEBUG", "false");
        command.env("QUAYMASTER_TEST_TOOLS", &tools);
        command
    }

    fn run(&self, line: &str) {
        assert!(self.command(line).status().unwrap().success(), "{line}");
    }

    fn commit(&self) {
        let who = "-c user.name=toy -c user.email=toy@localhost -c commit.gpgsign=false";
        self.run(&format!("git add --all && git {who} commit --quiet --allow-empty --no-verify -m toy"));
    }

    /// Files that differ from the last commit: those that a command wrote, and those written by hand.
    fn changed(&self) -> (Vec<String>, Vec<String>) {
        let listed = self.command("git add --all && git diff --cached --name-only").output().unwrap();
        let names = String::from_utf8(listed.stdout).unwrap();
        let is_generated = |name: &String| GENERATED.iter().any(|generated| name.starts_with(generated));
        names.lines().map(str::to_owned).partition(is_generated)
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.source.join(file)).unwrap()
    }

    fn add(&self, toy: &Toy) {
        for touched in toy.files {
            let file = self.source.join(touched.file);
            put(&file, touched.edited(std::fs::read_to_string(&file).ok()).as_bytes());
        }
    }
}

fn is_ours(name: &str) -> bool {
    let cargo = name.starts_with("CARGO") && name != "CARGO_HOME";
    cargo || name.starts_with("NEXTEST") || name.starts_with("QUAYMASTER")
}

/// Calls the verbs by every way there is.
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
    assert_eq!(on_store("extend"), (Some(1), json!({"outcome": "absent"})));
    assert_eq!(on_store("first"), (Some(0), json!({"first": true})));
    assert_eq!(on_store("extend"), (Some(0), json!({"outcome": "extended", "ttl_ms": 3_600_000})));

    let mut served = Command::new(program);
    served.args(["serve", "--store", "memory", "--schema", "toy.toml", "--listen", &any_port().to_string()]);
    let served = Served::start(served.current_dir(folder.path()));
    let by_http = |verb: &str| served.post(&format!("/v1/dedupe/seen/{verb}"), r#"{"key":{"id":"a"}}"#);
    assert_eq!(by_http("forget"), json!({"forgotten": false}));
    assert_eq!(by_http("first"), json!({"first": true}));
    assert_eq!(by_http("extend"), json!({"outcome": "extended", "ttl_ms": 3_600_000}));
    assert_eq!(by_http("forget"), json!({"forgotten": true}));
    // A verb knows the record that another one kept under the same id.
    let asked = |verb: &str| {
        let body = r#"{"key":{"id":"b"},"request_id":"r"}"#;
        served.post(&format!("/v1/dedupe/seen/{verb}"), body)
    };
    assert_eq!(served.post("/v1/dedupe/seen/first", r#"{"key":{"id":"b"}}"#), json!({"first": true}));
    assert_eq!(asked("forget"), json!({"forgotten": true}));
    assert_eq!(asked("first")["code"], "request.reused");
    let url = format!("http://{}", served.address);
    let take = || run(&["berth", "take", "pier", "--key", "id=a", "--server", &url, "--json"]);
    assert_eq!(take(), (Some(0), json!({"taken": true})));
    assert_eq!(take(), (Some(1), json!({"taken": false})));
    let by_command = run(&["dedupe", "forget", "seen", "--key", "id=a", "--server", &url, "--json"]);
    assert_eq!(by_command, (Some(1), json!({"forgotten": false})));

    let (_, described) = run(&["describe", "--json"]);
    let kinds = described["kinds"].as_array().unwrap();
    let verbs = kinds.iter().find(|kind| kind["kind"] == "dedupe").unwrap()["verbs"].as_array().unwrap();
    let (_, document) = run(&["openapi"]);
    for (word, role) in [("forget", "write"), ("extend", "operate")] {
        let verb = verbs.iter().find(|verb| verb["verb"] == word).unwrap();
        assert_eq!((&verb["role"], &verb["method"]), (&json!(role), &json!("POST")), "{verb}");
        let operation = &document["paths"][format!("/v1/dedupe/{{name}}/{word}")]["post"];
        assert_eq!(operation["operationId"], format!("dedupe.{word}"));
    }
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

/// Makes `to` the same as the sources in `from`. A file that is the same already is left alone.
fn copy(from: &Path, to: &Path) {
    let mut wanted = HashSet::new();
    for file in files(from) {
        let copied = to.join(file.strip_prefix(from).unwrap());
        put(&copied, &std::fs::read(&file).unwrap());
        // Scripts stay programs.
        std::fs::set_permissions(&copied, file.metadata().unwrap().permissions()).unwrap();
        wanted.insert(copied);
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
