//! The README's commands are run, in one shell, and answer what it says.

use std::path::Path;
use std::process::Stdio;

use quaymaster_testkit::servers::{at_own_address, set_up};

/// The fenced blocks: language and text.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let mut blocks = Vec::new();
    for (at, part) in text.split("```").enumerate() {
        if at % 2 == 1 {
            blocks.extend(part.split_once('\n'));
        }
    }
    blocks
}

/// Without what differs from run to run: ids, moments, fences, and how long is left to wait.
fn settled(text: &str) -> String {
    let mut out = String::new();
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.');
    for line in text.trim().lines() {
        // Refused, lost or held back by the breaker: which of them is a matter of milliseconds.
        if line.starts_with("{\"code\":\"store.") && line.contains("\"status\":503") {
            out.push_str("STORE AWAY\n");
            continue;
        }
        for part in line.split_inclusive(|c| !word(c)) {
            let (body, end) = part.split_at(part.trim_end_matches(|c| !word(c)).len());
            let digits = body.bytes().all(|c| c.is_ascii_digit());
            let same = match body {
                _ if body.len() == 36 && body.matches('-').count() == 4 => "ID",
                _ if body.len() > 20 && body.ends_with('Z') && body.starts_with("20") => "MOMENT",
                _ if digits && body.len() == 16 => "FENCE",
                _ => body,
            };
            out.push_str(same);
            out.push_str(end);
        }
        out.push('\n');
    }
    out
}

const MARK: &str = "--- end of block";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readme_is_true() {
    let folder = tempfile::tempdir().unwrap();
    let readme = include_str!("../../README.md");
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let programs = Path::new(env!("CARGO_BIN_EXE_psp-gateway")).parent().unwrap();
    let mut script = "set -eu\n".to_owned();
    let mut shown = Vec::new();
    let parts = blocks(readme);
    for (at, (language, text)) in parts.iter().enumerate() {
        if language.is_empty() && text.contains("$(mktemp -d)") {
            script += &set_up(text, project, programs, folder.path());
        }
        if *language == "sh" {
            script.push_str(text);
            script += "echo '";
            script += MARK;
            script += "'\n";
            shown.push(
                parts.get(at + 1).filter(|(language, _)| *language == "text").map_or("", |(_, text)| text),
            );
        }
    }
    assert_eq!(shown.len(), 4);
    let script = at_own_address(&script);
    // The second run finds the payments of the first.
    for run in ["first run", "second run"] {
        let told = run_in(folder.path(), &script).await;
        let told: Vec<&str> = told.split(&format!("{MARK}\n")).collect();
        for (at, shown) in shown.iter().enumerate() {
            assert_eq!(settled(told[at]), settled(shown), "{run}, block {}:\n{}", at + 1, told[at]);
        }
    }
}

/// Runs the script in one shell; what it printed.
async fn run_in(folder: &Path, script: &str) -> String {
    let shell = tokio::process::Command::new("setpriv")
        // Whatever it started dies with it.
        .args(["--pdeathsig", "KILL", "--", "bash", "-c"])
        .arg(format!("trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{script}"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = tokio::time::timeout(crate::scene::PATIENCE, shell).await else {
        let log = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        panic!("it hangs; one: {}\ntwo: {}\nredis: {}", log("one.log"), log("two.log"), log("redis.log"));
    };
    let output = output.unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{out}\n{err}");
    out
}
