//! The README's commands are run, in one shell, and answer what it says.

use std::path::Path;
use std::process::Stdio;

use quaymaster_testkit::servers::{at_own_address, set_up};

use crate::scene::PATIENCE;

const MARK: &str = "--- end of block";

/// The fenced blocks: language and text.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let parts = text.split("```").enumerate().filter(|(at, _)| at % 2 == 1);
    parts.filter_map(|(_, part)| part.split_once('\n')).collect()
}

/// Without what differs from run to run: ids, moments, and what is told by them.
fn settled(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.' | '_' | '~');
    let mut out = String::new();
    for part in text.trim().split_inclusive(|c| !word(c)) {
        let (body, end) = part.split_at(part.trim_end_matches(|c| !word(c)).len());
        let digits = body.trim_start_matches(':').bytes().all(|byte| byte.is_ascii_digit());
        let same = match body {
            _ if body.len() == 26 && body.starts_with("20") && body.contains('T') => "MOMENT",
            _ if body.starts_with("127.") => "ADDRESS",
            _ if digits && body.len() > 9 => "ID",
            _ if body.len() > 20 && body.bytes().any(|byte| byte.is_ascii_digit()) => "BATCH",
            _ => body,
        };
        out.push_str(same);
        out.push_str(end);
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readme_is_true() {
    let folder = tempfile::tempdir().unwrap();
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let programs = Path::new(env!("CARGO_BIN_EXE_camera-pipeline")).parent().unwrap();
    let mut script = "set -eu\n".to_owned();
    let mut shown = Vec::new();
    let parts = blocks(include_str!("../../README.md"));
    for (at, (language, text)) in parts.iter().enumerate() {
        if language.is_empty() && text.contains("$(mktemp -d)") {
            script += &set_up(text, project, programs, folder.path());
        }
        if *language == "sh" {
            script.extend([text, "echo '", MARK, "'\n"]);
            shown.push(
                parts.get(at + 1).filter(|(language, _)| *language == "text").map_or("", |(_, text)| text),
            );
        }
    }
    assert_eq!(shown.iter().filter(|text| !text.is_empty()).count(), 4, "blocks whose output is shown");
    let script = at_own_address(&script);
    let shell = tokio::process::Command::new("setpriv")
        // Whatever it started dies with it.
        .args(["--pdeathsig", "KILL", "--", "bash", "-c"])
        .arg(format!("trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{script}"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output();
    let output = tokio::time::timeout(PATIENCE, shell).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let log = std::fs::read_to_string(folder.path().join("pipeline.log")).unwrap_or_default();
    assert!(output.status.success(), "{out}\n{err}\n{log}");
    let told: Vec<&str> = out.split(&format!("{MARK}\n")).collect();
    for (at, shown) in shown.iter().enumerate() {
        assert_eq!(settled(told[at]), settled(shown), "block {}:\n{}", at + 1, told[at]);
    }
}
