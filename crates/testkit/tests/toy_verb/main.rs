//! A toy verb is added by following CONTRIBUTING, "How to add a verb".
//!
//! The ordinary run holds the steps there against the recipe of the toy: the same files, at most six, and every place
//! that the recipe edits is still in the sources. Under `QUAYMASTER_SOAK=1` the recipe is applied to a copy of the
//! sources, the commands of CONTRIBUTING are run, and the new verb is called on the built program.
#![expect(clippy::unwrap_used, reason = "tests")]

mod built;
mod recipe;

use std::path::{Path, PathBuf};

use recipe::RECIPE;

/// The most files that a verb touches.
const MOST: usize = 6;
/// CONTRIBUTING's example, and ours.
const NAMES: [(&str, &str); 2] = [("berth", "dedupe"), ("free", "forget")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The section of CONTRIBUTING, with the toy's names in place of the example's.
fn section() -> String {
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("How to add a verb\n")).unwrap();
    NAMES.iter().fold(section.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

/// The file that each numbered step begins with.
fn steps(section: &str) -> Vec<&str> {
    let numbered =
        |line: &&str| line.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
    section.lines().filter(numbered).map(|line| line.split('`').nth(1).unwrap_or(line)).collect()
}

#[test]
fn the_steps_of_contributing_are_the_files_a_toy_verb_touches_and_no_more_than_six() {
    let section = section();
    let files: Vec<&str> = RECIPE.iter().map(|touched| touched.file).collect();
    assert_eq!(steps(&section), files, "CONTRIBUTING's steps, and the toy's files");
    assert!(files.len() <= MOST, "{files:?}");
    for touched in RECIPE {
        // Panics where the sources no longer have what the recipe edits.
        touched.edited(std::fs::read_to_string(root().join(touched.file)).ok());
    }
}

#[test]
fn the_toy_verb_builds_and_answers() {
    if std::env::var_os("QUAYMASTER_SOAK").is_none() {
        return;
    }
    built::try_it(&root(), &section());
}
