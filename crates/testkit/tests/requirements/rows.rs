//! `rows.txt`, compared with the cases and with docs/corrections.md.

use std::collections::BTreeSet;

use quaymaster_testkit::stage::Store;

use crate::{DOCUMENTS, Document};

const ROWS: &str = include_str!("rows.txt");
const CORRECTIONS: &str = include_str!("../../../../docs/corrections.md");

/// One line of `rows.txt`.
pub(crate) struct Row {
    pub(crate) number: &'static str,
    line: u32,
    name: &'static str,
    how: &'static str,
    stores: &'static str,
}

impl Row {
    /// The name of its function.
    pub(crate) fn case(&self) -> String {
        format!("l{:03}_{}", self.line, self.name)
    }

    /// Where its case runs.
    pub(crate) fn stores(&self) -> Vec<Store> {
        if self.is_of_both() { vec![Store::Redis, Store::Embedded] } else { vec![Store::Redis] }
    }

    /// With `both` there may be a word on what the case does not show.
    fn is_of_both(&self) -> bool {
        self.stores == "both" || self.stores.strip_prefix("both: ").is_some_and(|word| !word.is_empty())
    }
}

pub(crate) fn read() -> Vec<Row> {
    let row = |line: &'static str| {
        let [number, at, name, how, stores] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("not five parts: {line}")
        };
        Row { number, line: at.parse().unwrap(), name, how, stores }
    };
    ROWS.lines().map(row).collect()
}

/// Everything in which rows, cases and corrections disagree.
pub(crate) fn faults(rows: &[Row]) -> Vec<String> {
    let mut faults = Vec::new();
    for document in &DOCUMENTS {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.number == document.number).collect();
        if rows.len() != document.rows {
            faults.push(format!("{} has {} rows, not {}", document.number, rows.len(), document.rows));
        }
        let titles = titles(document);
        for row in &rows {
            if row.how != "works" && !titles.contains(row.how) {
                faults.push(format!("{} {}: no correction is called {}", row.number, row.case(), row.how));
            }
            if !row.is_of_both() && row.stores.strip_prefix("redis: ").is_none_or(str::is_empty) {
                faults.push(format!("{} {}: on which stores is {}?", row.number, row.case(), row.stores));
            }
        }
        compare(document, &rows, &mut faults);
    }
    faults
}

fn compare(document: &Document, rows: &[&Row], faults: &mut Vec<String>) {
    let wanted: BTreeSet<String> = rows.iter().map(|row| row.case()).collect();
    let names = document.cases.iter().copied().flatten().map(|case| case.name.to_owned());
    let names: Vec<String> = names.collect();
    let found: BTreeSet<String> = names.iter().cloned().collect();
    if wanted.len() != rows.len() || found.len() != names.len() {
        faults.push(format!("{}: a name is there twice", document.number));
    }
    faults.extend(found.difference(&wanted).map(|case| format!("{} {case}: no row", document.number)));
    faults.extend(wanted.difference(&found).map(|row| format!("{} {row}: no case", document.number)));
}

/// The titles of the system's entries in docs/corrections.md.
fn titles(document: &Document) -> BTreeSet<&'static str> {
    let section =
        CORRECTIONS.split("\n## ").find(|section| section.starts_with(&format!("{}:", document.system)));
    section.unwrap().lines().filter_map(|line| line.strip_prefix("### ")).collect()
}
