//! `upload content` and `upload progress`: the bytes of an upload, and how far it is.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::process::{Said, Served, any_port, command, folder, run, said};
use crate::uploads::{file, first, put};

fn content(here: &Path, id: &str, words: &[&str]) -> Said {
    run(here, &[&["upload", "content", "documents", "--upload-id", id], words].concat())
}

fn names(here: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(here).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn content_goes_to_stdout_or_to_a_file_that_is_whole() {
    let folder = folder(&[("small", "abc\n"), ("old", "something else, and longer")]);
    let here = folder.path();
    let small = first(&put(here, &["small"]))["upload_id"].as_str().unwrap().to_owned();
    let shown = content(here, &small, &[]);
    assert_eq!((shown.code, shown.out.as_str()), (0, "abc\n"), "{shown:?}");
    let bytes = file(here, "a.bin", 12 << 20);
    let large = first(&put(here, &["a.bin"]))["upload_id"].as_str().unwrap().to_owned();
    std::os::unix::fs::symlink("old", here.join("link")).unwrap();
    let written = content(here, &large, &["--output", "link"]);
    assert_eq!((written.code, written.out.as_str()), (0, ""), "{written:?}");
    assert!(std::fs::read(here.join("old")).unwrap() == bytes, "other bytes");
    assert!(here.join("link").is_symlink());
    assert_eq!(names(here), ["a.bin", "link", "old", "quaymaster-data", "small"]);
    let nobody = content(here, &"0".repeat(32), &["--output", "new"]);
    assert!(nobody.code == 1 && nobody.err.contains("upload.unknown"), "{nobody:?}");
    let wrong = content(here, "../x", &[]);
    assert!(wrong.code == 2 && wrong.err.contains("--upload-id"), "{wrong:?}");
    let nowhere = content(here, &small, &["--output", "none/new"]);
    assert!(nowhere.code == 2 && nowhere.err.contains("cannot write none/new"), "{nowhere:?}");
    let other = run(here, &["upload", "content", "other", "--upload-id", &small]);
    assert!(other.code == 2 && other.err.contains("other"), "{other:?}");
    assert_eq!(names(here).len(), 5);
}

#[test]
fn content_that_breaks_off_leaves_nothing_under_the_files_name() {
    let folder = folder(&[("kept", "as it was")]);
    let here = folder.path();
    file(here, "a.bin", 12 << 20);
    let id = first(&put(here, &["a.bin"]))["upload_id"].as_str().unwrap().to_owned();
    let status = run(here, &["upload", "status", "documents", "--upload-id", &id, "--json"]).json();
    let object = here.join("quaymaster-data/objects/objects").join(status["s3_key"].as_str().unwrap());
    let second = names(&object).into_iter().find(|name| name.starts_with("00002-")).unwrap();
    std::fs::write(object.join(second), "short").unwrap();
    let torn = content(here, &id, &["--output", "kept"]);
    assert!(torn.code == 1 && torn.err.contains("shorter than its manifest"), "{torn:?}");
    assert!(torn.err.contains("[upload.damaged]") && torn.err.contains("upload the file again"), "{torn:?}");
    assert_eq!(std::fs::read(here.join("kept")).unwrap(), b"as it was");
    assert_eq!(names(here), ["a.bin", "kept", "quaymaster-data"]);
}

#[test]
fn what_is_no_file_is_written_to_and_not_replaced() {
    let folder = folder(&[("small", "abc")]);
    let here = folder.path();
    let id = first(&put(here, &["small"]))["upload_id"].as_str().unwrap().to_owned();
    let pipe = here.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    let written = content(here, &id, &["--output", "pipe"]);
    assert_eq!(written.code, 0, "{written:?}");
    assert_eq!(reader.join().unwrap(), b"abc");
    assert_eq!(names(here), ["pipe", "quaymaster-data", "small"]);
}

#[test]
fn progress_is_printed_until_the_upload_ends_and_the_exit_code_says_how() {
    let folder = folder(&[]);
    let here = folder.path();
    let served = Served::start(here, &[]);
    let create = || -> String {
        let made = served.take("/v1/upload/documents/create", &json!({ "name": "a" }).to_string());
        made["upload_id"].as_str().unwrap().to_owned()
    };
    let follow = |id: &str| {
        let mut follow = command(here);
        follow.args(["upload", "progress", "documents", "--upload-id", id]);
        let mut child = follow.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // It listens from its first line on.
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["status"], "PENDING", "{line}");
        (child, lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()))
    };
    let id = create();
    let (mut child, lines) = follow(&id);
    let (code, told) = served.ask("PUT", &format!("/v1/upload/documents/{id}/chunk/0?last=true"), "abc");
    assert_eq!(code, 200, "{told}");
    let lines: Vec<Value> = lines.collect();
    assert!(lines.is_sorted_by_key(|line| line["seq"].as_u64()), "{lines:?}");
    let last = lines.last().unwrap();
    assert_eq!((&last["status"], &last["bytes_uploaded"]), (&json!("COMPLETED"), &json!(3)), "{lines:?}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let id = create();
    let (mut child, lines) = follow(&id);
    served.take("/v1/upload/documents/abort", &json!({ "upload_id": id }).to_string());
    assert!(lines.last().is_none_or(|last| last["status"] != "COMPLETED"));
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let nobody = run(here, &["upload", "progress", "documents", "--upload-id", &"0".repeat(32)]);
    assert!(nobody.code == 1 && nobody.err.contains("upload.unknown"), "{nobody:?}");
    assert_eq!(served.stop().code, 0);
}

#[test]
fn content_and_progress_are_asked_of_a_server_with_its_token() {
    let config = "[server]\ntokens = [{ env = \"T\", role = \"write\" }]\n";
    let folder = folder(&[("small", "abc"), ("quaymaster.toml", config)]);
    let here = folder.path();
    let token = "a token of some length!!";
    let mut serve = command(here);
    let served =
        Served::spawn(serve.args(["serve", "--listen", &any_port(), "--store", "memory"]).env("T", token));
    let server = format!("http://{}", served.address);
    let ask = |verb: &str, words: &[&str], token: &str| {
        let mut asks = command(here);
        asks.args(["upload", verb]).args(words).args(["--server", &server]);
        said(asks.env("T", "a token of some length!!").env("QUAYMASTER_TOKEN", token))
    };
    let id = first(&ask("put", &["small", "--resource=documents", "--json"], token))["upload_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let of = |id: &str| ["documents".to_owned(), "--upload-id".to_owned(), id.to_owned()];
    let of_it = of(&id);
    let words: Vec<&str> = of_it.iter().map(String::as_str).collect();
    let shown = ask("content", &words, token);
    assert_eq!((shown.code, shown.out.as_str()), (0, "abc"), "{shown:?}");
    let told = ask("progress", &words, token);
    let last: Value = serde_json::from_str(told.out.lines().last().unwrap()).unwrap();
    assert_eq!((told.code, &last["status"]), (0, &json!("COMPLETED")), "{told:?}");
    let of_nobody = of(&"0".repeat(32));
    let nobody: Vec<&str> = of_nobody.iter().map(String::as_str).collect();
    for verb in ["content", "progress"] {
        let refused = ask(verb, &words, "another");
        assert!(refused.code == 2 && refused.err.contains("401"), "{verb}: {refused:?}");
        let unknown = ask(verb, &nobody, token);
        assert!(unknown.code == 1 && unknown.err.contains("upload.unknown"), "{verb}: {unknown:?}");
    }
    assert!(!here.join("quaymaster-data/store").exists(), "nobody has opened a store");
    assert_eq!(served.stop().code, 0);
}
