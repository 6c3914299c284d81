//! The README's commands are run, in one shell, and answer what it says.

use std::path::Path;
use std::process::Stdio;

use quaymaster_testkit::servers::{at_own_address, own_ip, set_up};

use crate::scene::PATIENCE;

const MARK: &str = "--- end of block";

/// The fenced blocks: language and text.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let parts = text.split("```").enumerate().filter(|(at, _)| at % 2 == 1);
    parts.filter_map(|(_, part)| part.split_once('\n')).collect()
}

/// Without what differs from run to run: how long something lasts, and how long a caller is to wait.
fn settled(text: &str) -> String {
    let mut out = String::new();
    for line in text.trim().lines() {
        for word in line.split_inclusive(|c: char| !c.is_ascii_digit()) {
            let digits = word.bytes().take_while(u8::is_ascii_digit).count();
            // Milliseconds of a quarter of an hour.
            let (number, rest) = word.split_at(digits);
            out.push_str(if (5..=6).contains(&digits) { "MS" } else { number });
            out.push_str(rest);
        }
        out.push('\n');
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readme_is_true() {
    let folder = tempfile::tempdir().unwrap();
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let programs = Path::new(env!("CARGO_BIN_EXE_ha-backend")).parent().unwrap();
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
    let script = at_own_address(&script)
        .replace("server.mjs\" 7465", &format!("server.mjs\" 7465 {}", own_ip()))
        // Callers come from here, whatever address they call.
        .replace(&format!("HA_PROXIES={}", own_ip()), "HA_PROXIES=127.0.0.1");
    let shell = tokio::process::Command::new("setpriv")
        // Whatever it started dies with it.
        .args(["--pdeathsig", "KILL", "--", "bash", "-c"])
        .arg(format!("trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{script}"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output();
    let output = tokio::time::timeout(PATIENCE, shell).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let log = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert!(output.status.success(), "{out}\n{err}\n{}\n{}", log("serve.log"), log("instance0.log"));
    let told: Vec<&str> = out.split(&format!("{MARK}\n")).collect();
    for (at, shown) in shown.iter().enumerate() {
        assert_eq!(settled(told[at]), settled(shown), "block {}:\n{}", at + 1, told[at]);
    }
}
