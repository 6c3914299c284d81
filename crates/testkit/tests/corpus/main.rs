//! A recorded corpus of calls: every verb, good and bad input, and what was answered, byte for byte.
//!
//! Whoever rewrites how requests are read runs it and sees what changed for callers. A difference that is intended is
//! recorded anew with `QUAYMASTER_CORPUS=record`; then the diff of the records is what a reviewer reads.
//! `QUAYMASTER_CORPUS_BINARY` names another program than the one that was just built.
#![expect(clippy::unwrap_used, reason = "tests")]

/// Declares the files of the corpus, with a test for each.
macro_rules! files {
    ($($kind:ident)*) => {
        /// Every file of the corpus.
        pub(crate) const KINDS: &[&str] = &[$(stringify!($kind)),*];

        mod played {
            $(
                #[test]
                fn $kind() {
                    crate::play::play(stringify!($kind), &crate::make::steps(stringify!($kind)));
                }
            )*
        }
    };
}

mod described;
mod make;
mod mask;
mod play;
mod step;
mod subject;

use step::Act;

/// What goes wrong when recording must not become what is expected.
#[test]
fn no_recorded_answer_is_a_defect() {
    let records = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/records");
    let mut answers = 0;
    for file in std::fs::read_dir(records).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        answers += text.lines().filter(|line| line.starts_with("< ")).count();
        let defect = text.lines().position(|line| line.starts_with("< 500"));
        assert_eq!(defect, None, "{}: the line of a defect", path.display());
    }
    assert!(answers >= 2_000, "{answers}");
}

#[test]
fn the_corpus_is_large_and_made_the_same_every_time() {
    let steps = || make::KINDS.iter().copied().map(make::steps).collect::<Vec<_>>().concat();
    assert_eq!(steps(), steps());
    let asked = steps().iter().filter(|step| matches!(step.act, Act::Ask(_) | Act::Until(..))).count();
    let run = steps().iter().filter(|step| matches!(step.act, Act::Run(_))).count();
    assert!(asked >= 2_000 && run >= 150, "{asked} requests, {run} commands");
}
