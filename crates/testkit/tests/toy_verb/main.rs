//! Toy verbs and a toy primitive are added by following CONTRIBUTING, "How to add a verb" and "How to add a primitive".
//!
//! The ordinary run holds the steps there against the recipe of each toy: the same files, no more than promised, and
//! every place that the recipe edits is still in the sources. Under `QUAYMASTER_SOAK=1` the recipes are applied to a copy of the
//! sources, the command of CONTRIBUTING is run, Git tells which files changed, every test that knows verbs is run, and
//! the new verbs are called on the built program.
#![expect(clippy::unwrap_used, reason = "tests")]

mod built;
mod primitive;
mod recipe;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use recipe::{TOYS, Toy};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The section of CONTRIBUTING, with the toy's names in place of the example's.
fn section(toy: &Toy) -> String {
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let titled = |section: &&str| section.lines().next() == Some(toy.title);
    let section = page.split("\n## ").find(titled).unwrap();
    section.replace("berth", toy.kind).replace("free", toy.verb)
}

/// The file that each numbered step begins with.
fn steps(section: &str) -> Vec<&str> {
    let numbered =
        |line: &&str| line.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
    section.lines().filter(numbered).map(|line| line.split('`').nth(1).unwrap_or(line)).collect()
}

#[test]
fn the_steps_of_contributing_are_the_files_a_toy_touches_and_no_more_than_promised() {
    let mut sources: BTreeMap<&str, String> = BTreeMap::new();
    for toy in TOYS {
        let section = section(toy);
        let files: Vec<&str> = toy.files.iter().map(|touched| touched.file).collect();
        assert_eq!(steps(&section), files, "CONTRIBUTING's steps, and the files of {}", toy.verb);
        assert!(files.len() <= toy.most, "{files:?}");
        for touched in toy.files {
            let before = sources.remove(touched.file);
            let before = before.or_else(|| std::fs::read_to_string(root().join(touched.file)).ok());
            // Panics where the sources no longer have what the recipe edits.
            sources.insert(touched.file, touched.edited(before));
        }
    }
}

#[test]
fn toys_build_and_answer() {
    if std::env::var_os("QUAYMASTER_SOAK").is_none() {
        return;
    }
    built::try_them(&root());
}
