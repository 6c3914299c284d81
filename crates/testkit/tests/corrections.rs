//! `docs/corrections.md` itself: every entry says what it has to, and names tests that exist.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "what fails here is the test")]

use std::collections::HashSet;
use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/corrections.md");

/// Takes the tests' names from a source: functions marked as tests, cases of the conformance suite and of the requirements, trials.
fn tests(text: &str, found: &mut HashSet<String>) {
    let word = |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned();
    let (mut marked, mut listed, suite) = (false, false, text.contains("cases! {"));
    for line in text.lines() {
        let trimmed = line.trim_start();
        let case = suite && line.starts_with("    async fn ") && line.ends_with(": &Subject) {")
            || suite && line.starts_with("fn l") && line.ends_with("(s: &Stage) {");
        if let Some(name) = trimmed.strip_prefix("async ").unwrap_or(trimmed).strip_prefix("fn ") {
            if marked || case {
                found.insert(word(name));
            }
            marked = false;
        }
        marked |= trimmed.starts_with("#[test]") || trimmed.starts_with("#[tokio::test");
        listed &= trimmed != "}";
        if listed {
            found.insert(word(trimmed));
        }
        listed |= trimmed.starts_with("on_both! {");
    }
    for begin in ["trial(", "Trial::test("] {
        let quoted = text.split(begin).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
        found.extend(quoted.map(|rest| word(rest.split('"').next().unwrap().rsplit("::").next().unwrap())));
    }
}

/// The names of all tests below this folder.
fn tests_below(folder: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            tests(&fs::read_to_string(&path).expect("a source"), found);
        }
    }
}

/// The tests that a text names: `*(`name`)*`, also several, with words between them.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let notes = text.split("*(").skip(1).filter_map(|rest| Some(rest.split_once(")*")?.0));
    let quoted = notes.flat_map(|note| note.split('`').skip(1).step_by(2));
    quoted.filter(|name| name.contains('_') && !name.contains('/'))
}

/// What an entry lacks.
fn wrong(entry: &str, known: &HashSet<String>) -> Vec<String> {
    let unknown = named(entry).filter(|name| !known.contains(*name));
    let mut wrong: Vec<String> = unknown.map(|name| format!("`{name}` is no test")).collect();
    for part in ["Document", "Goes wrong", "Here", "An old program"] {
        let begin = format!("- **{part}**");
        let Some(text) = entry.lines().find_map(|line| line.strip_prefix(&begin)) else {
            wrong.push(format!("{part} is missing"));
            continue;
        };
        let needs_a_test = match part {
            // What somebody else wrote.
            "Document" => false,
            // There is nothing to watch failing.
            "Goes wrong" => !text.starts_with(": nothing is lost by it"),
            // This one sentence is about nothing that we do.
            _ => text != " goes on as it did.",
        };
        if needs_a_test && !text.ends_with(")*") {
            wrong.push(format!("{part} does not end with the tests of what it says"));
        }
    }
    wrong
}

#[test]
fn every_entry_says_what_it_has_to_and_names_the_tests_of_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut known = HashSet::new();
    for folder in ["crates", "systems"] {
        tests_below(&root.join(folder), &mut known);
    }
    let entries: Vec<&str> = PAGE.split("\n### ").skip(1).collect();
    assert!(entries.len() > 50, "{} entries", entries.len());
    let mut told: Vec<String> = Vec::new();
    for entry in entries {
        let entry = entry.split("\n## ").next().unwrap();
        let title = entry.lines().next().unwrap();
        told.extend(wrong(entry, &known).into_iter().map(|wrong| format!("{title}: {wrong}")));
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
}

#[test]
fn only_tests_count_as_tests() {
    let mut found = HashSet::new();
    let marked =
        "#[test]\nfn is_one() {}\nfn helps() {}\n#[tokio::test]\n#[expect(x)]\nasync fn waits() {}\n";
    let trials =
        "vec![trial(\n\"spool::tried\",\nrun)]\n    on_both! { trials:\n        twice\n    }\nfn runs() {}";
    let cases =
        "cases! {\n    async fn holds(subject: &Subject) {\n    }\n}\nasync fn not(subject: &Subject) {";
    for source in [marked, trials, cases] {
        tests(source, &mut found);
    }
    let mut names: Vec<String> = found.into_iter().collect();
    names.sort_unstable();
    assert_eq!(names, ["holds", "is_one", "tried", "twice", "waits"]);
}

#[test]
fn an_entry_without_its_tests_is_told() {
    let known = HashSet::from(["a_test".to_owned()]);
    let whole = |wrong: &str, here: &str, old: &str| {
        format!(
            "T\n- **Document**: x\n- **Goes wrong**: {wrong}\n- **Here**: {here}\n- **An old program** {old}"
        )
    };
    let entry = |here: &str, old: &str| wrong(&whole("y *(`a_test`)*", here, old), &known);
    assert_eq!(entry("z *(`a_test`)*", "goes on as it did."), [""; 0]);
    assert_eq!(entry("z *(`a_test`)*", "reads *(`a_test`)*"), [""; 0]);
    assert_eq!(entry("z *(`helper_of_it`)*", "goes on as it did."), ["`helper_of_it` is no test"]);
    let lacks = |part: &str| format!("{part} does not end with the tests of what it says");
    assert_eq!(entry("z *(`a_test`)* And more.", "reads."), [lacks("Here"), lacks("An old program")]);
    let going_wrong = |text: &str| wrong(&whole(text, "z *(`a_test`)*", "goes on as it did."), &known);
    assert_eq!(going_wrong("y"), [lacks("Goes wrong")]);
    assert_eq!(going_wrong("nothing is lost by it; but y."), [""; 0]);
    assert_eq!(wrong("T\n- **Document**: x", &known).len(), 3);
}
