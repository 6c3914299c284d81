//! The page: its commands are run, in one shell, and answer what it says.

use std::path::Path;
use std::process::Stdio;

use quaymaster_testkit::held_clock::HeldClock;
use quaymaster_testkit::servers::{at_own_address, set_up};

use crate::scene::{PATIENCE, TEN_PAST_US};

const MARK: &str = "--- end of block";

/// The fenced blocks: language and text.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let parts = text.split("```").enumerate().filter(|(at, _)| at % 2 == 1);
    parts.filter_map(|(_, part)| part.split_once('\n')).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readme_is_true() {
    let folder = tempfile::tempdir().unwrap();
    // Ten past, so that no hour turns in the middle of the page.
    let clock = HeldClock::running(TEN_PAST_US);
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let programs = Path::new(env!("CARGO_BIN_EXE_docket-pipeline")).parent().unwrap();
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
    assert_eq!(shown.iter().filter(|text| !text.is_empty()).count(), 5, "blocks whose output is shown");
    let script = at_own_address(&script);
    let shell = tokio::process::Command::new("setpriv")
        // Whatever it started dies with it.
        .args(["--pdeathsig", "KILL", "--", "bash", "-c"])
        .arg(format!("trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{script}"))
        .current_dir(folder.path())
        .envs(clock.environment())
        .stdin(Stdio::null())
        .output();
    let output = tokio::time::timeout(PATIENCE, shell).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let logs: String = ["a.log", "b.log", "c.log", "d.log"]
        .map(|log| std::fs::read_to_string(folder.path().join(log)).unwrap_or_default())
        .concat();
    assert!(output.status.success(), "{out}\n{err}\n{logs}");
    let told: Vec<&str> = out.split(&format!("{MARK}\n")).collect();
    for (at, shown) in shown.iter().enumerate() {
        assert_eq!(told[at].trim(), shown.trim(), "block {}:\n{logs}", at + 1);
    }
}
