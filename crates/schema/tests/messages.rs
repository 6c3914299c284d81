//! Messages are for people: no program of ours reads one to find out what an error is about.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read is the test's failure")]

use std::path::{Path, PathBuf};

/// What a message is called.
const MESSAGES: [&str; 9] =
    ["detail", "detail()", "to_string()", "message", "message()", "reason", "why", "said", "description()"];

/// What holds a message in an error: `ended.text`, while a `text` alone may be anybody's.
const FIELDS: [&str; 3] = ["text", "told", "words"];

/// How a text is read.
const READERS: [&str; 16] = [
    "contains",
    "ends_with",
    "eq_ignore_ascii_case",
    "find",
    "matches",
    "replace",
    "replacen",
    "rfind",
    "rsplit",
    "rsplit_once",
    "split",
    "split_once",
    "splitn",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
];

/// Who may: file, place, and why.
const MAY: [(&str, &str, &str); 5] = [
    (
        "schema/src/read/document.rs",
        "message.starts_with(\"duplicate key\")",
        "TOML's reader has no kinds of errors",
    ),
    ("store/src/error.rs", "self.detail.strip_prefix(&*field)", "names a field anew that is known already"),
    ("store/src/redis/fault.rs", "", "the server's protocol, read here and nowhere else"),
    ("upload/src/complete/mod.rs", "reason.split_once(':')", "the word that `Flaw::reason` has stored"),
    ("upload/src/error.rs", "detail.contains(code)", "says no code twice"),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The code in front of a module of tests. One that is a file of its own has code behind its name.
fn before_tests(text: &str) -> &str {
    let is_module = |head: &str| head.contains("\nmod ") && !head.contains(';');
    let mut marks = text.match_indices("#[cfg(test)]").map(|(at, _)| at);
    let end = marks.find(|at| text[*at..].split('{').next().is_some_and(is_module));
    &text[..end.unwrap_or(text.len())]
}

/// Every place of `code` where a message is read.
fn readings(code: &str) -> Vec<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    // A chain of calls in one line, however it is broken.
    let code: Vec<&str> = code.split('\n').map(str::trim).filter(|line| !line.starts_with("//")).collect();
    let code = code.join("\n").replace("\n.", ".");
    let mut found = Vec::new();
    let messages = || MESSAGES.iter().chain(&FIELDS);
    for (line, message) in code.lines().flat_map(|line| messages().map(move |message| (line, *message))) {
        for (at, _) in line.match_indices(message) {
            let after = &line[at + message.len()..];
            let reader = READERS.iter().find(|reader| {
                after
                    .strip_prefix('.')
                    .and_then(|call| call.strip_prefix(**reader))
                    .is_some_and(|rest| rest.starts_with('('))
            });
            let compared = after.starts_with(" == \"") || after.starts_with(" != \"");
            let whole = !line[..at].ends_with(word);
            let held = line[..at].ends_with('.') || !FIELDS.contains(&message);
            if whole && held && (reader.is_some() || compared) {
                found.push(line.to_owned());
            }
        }
    }
    found
}

#[test]
fn no_message_is_read_to_find_out_what_an_error_is_about() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut wrong, mut used) = (Vec::new(), [false; MAY.len()]);
    for name in ["schema", "store", "quaymaster", "upload", "server", "cli"] {
        let mut files = Vec::new();
        sources(&crates.join(name).join("src"), &mut files);
        assert!(files.len() > 10, "{name} has sources");
        for path in files {
            let text = std::fs::read_to_string(&path).unwrap();
            for line in readings(before_tests(&text)) {
                let may =
                    MAY.iter().position(|(file, place, _)| path.ends_with(file) && line.contains(place));
                match may {
                    Some(at) => used[at] = true,
                    None => wrong.push(format!("{}: {line}", path.strip_prefix(crates).unwrap().display())),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "put the field or the class where the error is made:\n{}", wrong.join("\n"));
    let stale: Vec<_> = MAY.iter().zip(used).filter(|(_, used)| !used).map(|(may, _)| may).collect();
    assert!(stale.is_empty(), "nobody does this any more: {stale:?}");
}

#[test]
fn a_reading_is_found_however_it_is_written() {
    for code in [
        "if error.detail.starts_with(\"payload:\") {",
        "let rest = error\n    .detail\n    .strip_prefix(name);",
        "error.to_string().contains(\"lookup\")",
        "problem.detail = problem.detail.replacen(\"the body\", path, 1);",
        "if why.ends_with(\"key\") {",
        "error.detail() == \"gone\"",
        "Stop::None if ended.text.starts_with(\"OOM \") => Code::StoreOom,",
    ] {
        assert_eq!(readings(code).len(), 1, "{code}");
    }
    for code in [
        "// detail.contains(x)",
        "error.detail.clone()",
        "overwhy.contains(x)",
        "details.contains(x)",
        "text.contains(x)",
    ] {
        assert_eq!(readings(code), Vec::<String>::new(), "{code}");
    }
}
