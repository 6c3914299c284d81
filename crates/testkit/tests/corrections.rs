//! `docs/corrections.md` itself: every entry says what it has to, and names tests that exist.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "what fails here is the test")]

use std::collections::HashSet;
use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/corrections.md");

/// The names of all functions below this folder.
fn functions(folder: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let name = |rest: &str| {
                rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned()
            };
            found.extend(text.split("fn ").skip(1).map(name));
        }
    }
}

/// The tests that a text names: `*(`name`)*`, also several, with words between them.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let notes = text.split("*(").skip(1).filter_map(|rest| Some(rest.split_once(")*")?.0));
    let quoted = notes.flat_map(|note| note.split('`').skip(1).step_by(2));
    quoted.filter(|name| name.contains('_') && !name.contains('/'))
}

#[test]
fn every_entry_says_what_it_has_to_and_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut known = HashSet::new();
    for folder in ["crates", "systems"] {
        functions(&root.join(folder), &mut known);
    }
    let entries: Vec<&str> = PAGE.split("\n### ").skip(1).collect();
    assert!(entries.len() > 50, "{} entries", entries.len());
    for entry in entries {
        let entry = entry.split("\n## ").next().unwrap();
        let title = entry.lines().next().unwrap();
        for part in ["\n- **Document**", "\n- **Goes wrong**", "\n- **Here**", "\n- **An old program**"] {
            assert!(entry.contains(part), "{title}: {part}");
        }
        assert!(named(entry).next().is_some(), "{title}: no test is named");
        let unknown: Vec<&str> = named(entry).filter(|name| !known.contains(*name)).collect();
        assert!(unknown.is_empty(), "{title}: {unknown:?}");
    }
}
