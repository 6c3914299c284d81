//! Runs on the command line.

use std::path::Path;

use serde_json::json;

use crate::process::{Said, command, folder, said};

fn run(here: &Path, words: &[&str]) -> Said {
    let mut call = command(here);
    call.env("QUAYMASTER_DURABILITY", "everysec");
    call.args(["run", words[0], "courtlistener"]).args(&words[1..]);
    said(&mut call)
}

#[test]
fn a_run_is_followed_from_one_command_to_the_next() {
    let folder = folder(&[]);
    let here = folder.path();
    let id = "manual_2024-09-17T14:30:00+00:00";
    let begun = run(here, &["start", "--run-id", id, "--json"]);
    assert_eq!((begun.code, &begun.json()["outcome"]), (0, &json!("started")), "{}", begun.err);
    let told = run(here, &["processed", "--run-id", id, "--items", "1,2", "--items", "3"]);
    assert_eq!((told.code, told.out.lines().next()), (0, Some("added            3")), "{told:?}");
    assert_eq!(run(here, &["failed", "--run-id", id, "--item", "4", "--error", "HTTP 500"]).code, 0);
    assert_eq!(run(here, &["failed", "--run-id", id, "--item", "1"]).code, 1, "it is processed");
    let failures = run(here, &["failures", "--json"]);
    assert_eq!(failures.json()["items"][0]["item"], "4");
    assert_eq!(run(here, &["retry", "--run-id", id]).code, 0);
    assert_eq!(run(here, &["retry", "--run-id", id]).code, 1, "nothing to hand out");
    let set =
        run(here, &["update", "--run-id", id, "--fields", r#"{"status": "storing"}"#, "--items", "false"]);
    assert!(set.code == 0 && set.out.contains("storing") && !set.out.contains("dockets"), "{set:?}");
    let many: Vec<String> = (100..400).map(|number| number.to_string()).collect();
    assert_eq!(run(here, &["processed", "--run-id", id, "--items", &many.join(",")]).code, 0);
    let shown = run(here, &["show", "--run-id", id]);
    assert!(shown.out.contains("and 203 more; --json shows them"), "{}", shown.out);
    let shown = run(here, &["show", "--run-id", id, "--json"]).json();
    assert_eq!(shown["processed"].as_array().map(Vec::len), Some(303));
    assert_eq!(run(here, &["finish", "--run-id", id, "--status", "completed"]).code, 0);
    assert_eq!(run(here, &["finish", "--run-id", id, "--status", "failed"]).code, 1, "it is finished");
    let missing = run(here, &["show", "--run-id", "other"]);
    assert!(missing.code == 1 && missing.err.contains("run.missing"), "{missing:?}");
    assert_eq!(run(here, &["list", "--json"]).json()["runs"][0]["status"], "completed");
    assert_eq!(run(here, &["start", "--items"]).code, 2);
}
