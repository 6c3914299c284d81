//! Stats on the command line.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::process::{command, folder, said};

const SCHEMA: &str = "[schema]\nname = \"web\"\n[stats.web]\nkey = \"web:\"\n";

#[test]
fn requests_are_recorded_reported_and_watched() {
    let folder = folder(&[("web.toml", SCHEMA)]);
    let call = |words: &[&str]| {
        let mut call = command(folder.path());
        call.arg("stats").args(words).args(["--schema", "web.toml"]);
        call
    };
    let requests =
        r#"[{"instance": "0", "method": "GET", "path": "/users/{id}", "status": 500, "duration_ms": 2.5}]"#;
    let told =
        said(&mut call(&["record", "web", "--requests", requests, "--connections", r#"{"0": 3}"#, "--json"]));
    assert_eq!((told.code, told.json()), (0, json!({"recorded": 1, "ignored": 0})), "{}", told.err);
    let told = said(&mut call(&["report", "web"]));
    assert_eq!(told.code, 0, "{}", told.err);
    for line in ["requests     1 of which 1 accepted", "errors       1 (500: 1)", "GET /users/:id"] {
        assert!(told.out.contains(line), "{line}\n{}", told.out);
    }
    let told = said(&mut call(&["report", "web", "--hours", "25"]));
    assert!(told.code == 2 && told.err.contains("--hours"), "{told:?}");
    let told = said(&mut call(&["report", "web", "--watch=0"]));
    assert_eq!(told.code, 2, "{told:?}");
    let told = said(&mut call(&["report", "wep", "--watch"]));
    assert!(told.code == 2 && told.err.contains("did you mean"), "{told:?}");

    // Where nobody looks at a terminal, a report is a line, and a signal ends the watching.
    let watch = |more: &[&str]| {
        let mut watching = call(&["report", "web", "--watch=0.1"]);
        let mut watching = watching.args(more).stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
        let first: Vec<String> = lines.by_ref().take(3).map(Result::unwrap).collect();
        kill_process(Pid::from_child(&watching), Signal::TERM).unwrap();
        assert_eq!(watching.wait().unwrap().code(), Some(0));
        first
    };
    for line in watch(&[]) {
        assert!(line.contains(" requests=1 accepted=1 ") && line.contains(" errors=1 "), "{line}");
    }
    for line in watch(&["--json"]) {
        let told: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(told["requests"]["total"], 1);
    }
}
