//! The requirements of the five documents that the systems come from: a case each, on Redis and on the embedded store.
//!
//! `rows.txt` has a line for each: document, line of the document, name, how it holds (`works`, or the title of its
//! entry in docs/corrections.md), and where (`both`, or `redis: ` and why only there; `both: ` and what no case shows).
//! The case is the function `l037_name` in the document's file; `redis::000::l037_name` runs it.
#![expect(clippy::unwrap_used, reason = "tests")]

mod rows;

/// Lists a file's cases: functions of a `&Stage`, named after line and name of their rows.
macro_rules! cases {
    ($($name:ident)*) => {
        pub(crate) const CASES: &[crate::Case] = &[$(crate::Case { name: stringify!($name), run: $name }),*];
    };
}

mod d000;
mod d001;
mod d002;
mod d003;
mod d004;

use libtest_mimic::{Arguments, Trial};
use quaymaster_testkit::stage::{Stage, Store};

use rows::Row;

/// Where the servers of other crates' tests, which are made from the same files, look for what they stand on.
mod servers {
    pub(crate) use quaymaster_testkit::servers::{any_port, free_address, own_ip};

    pub(crate) mod process {
        pub(crate) use quaymaster_testkit::servers::Process;
    }
}

/// One requirement's check; panics when it does not hold.
struct Case {
    name: &'static str,
    run: fn(&Stage),
}

/// A document and the system that is made from it.
struct Document {
    number: &'static str,
    system: &'static str,
    /// Its requirements in `rows.txt`.
    rows: usize,
    cases: &'static [&'static [Case]],
}

const DOCUMENTS: [Document; 5] = [
    Document { number: "000", system: "courtlistener", rows: 64, cases: d000::CASES },
    Document { number: "001", system: "uploads", rows: 66, cases: d001::CASES },
    Document { number: "002", system: "home-assistant", rows: 36, cases: d002::CASES },
    Document { number: "003", system: "cameras", rows: 61, cases: d003::CASES },
    Document { number: "004", system: "psp", rows: 57, cases: d004::CASES },
];

fn main() {
    let mut arguments = Arguments::from_args();
    // Every case starts servers of its own; a few at a time are enough for two cores.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let rows = rows::read();
    let mut trials = vec![Trial::test("rows::agree_with_cases_and_corrections", || {
        let faults = rows::faults(&rows::read());
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n").into()) }
    })];
    for document in &DOCUMENTS {
        for case in document.cases.iter().copied().flatten() {
            let row = rows.iter().find(|row| row.number == document.number && row.case() == case.name);
            trials.extend(row.into_iter().flat_map(Row::stores).map(|store| trial(document, case, store)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(document: &'static Document, case: &'static Case, store: Store) -> Trial {
    let word = match store {
        Store::Redis => "redis",
        Store::Embedded => "embedded",
    };
    Trial::test(format!("{word}::{}::{}", document.number, case.name), move || {
        (case.run)(&Stage::of(store, document.system));
        Ok(())
    })
}
