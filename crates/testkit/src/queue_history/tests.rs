//! The model finds what must not be, and nothing else.

use std::collections::HashMap;

use super::observer::Where;
use super::*;
use crate::crew::Log as _;

/// Lines of one lane, and looks at `work`: a moment, and where job `a` and others are.
fn checked(lines: &[&str], looks: &[(i64, &[(&str, Where)])]) -> Result<Tally, String> {
    let mut log = Log::default();
    for line in lines {
        log.note(&format!("0 {line} ."));
    }
    assert_eq!(log.lines.len(), lines.len(), "a line was not read");
    let look = |(time, jobs): &(i64, &[(&str, Where)])| {
        let jobs: HashMap<String, Where> =
            jobs.iter().map(|(job, place)| ((*job).to_owned(), place.clone())).collect();
        Snapshot { queue: "work".to_owned(), time: *time, jobs }
    };
    let mut snapshots: Vec<Snapshot> = looks.iter().map(look).collect();
    snapshots.push(Snapshot { queue: "after".to_owned(), time: 0, jobs: HashMap::new() });
    check(&[log], &snapshots)
}

fn found(lines: &[&str], looks: &[(i64, &[(&str, Where)])]) -> String {
    checked(lines, looks).expect_err("it must be found")
}

const PUSHED: [&str; 2] = ["pushing 0 work a 0 -", "pushed 100 1"];

fn after(lines: &[&'static str]) -> Vec<&'static str> {
    PUSHED.iter().chain(lines).copied().collect()
}

fn dead(attempts: u32, error: &str) -> Where {
    Where::Dead(Dead { error: error.to_owned(), attempts })
}

#[test]
fn a_job_that_is_tried_twice_and_acked_is_fine() {
    let lines = after(&[
        "got work a 1 l1 200 300 50000",
        "extending 20000 l1 50000",
        "extended 20100 l1",
        "got work a 2 l2 90000 90100 50000",
        "acking 95000 l1 -",
        "acked 95100 0 1",
        "acking 100000 l2 t1",
        "acked 100100 1 0",
        "got after t1 1 l3 110000 110100 50000",
        "acking 120000 l3 -",
        "acked 120100 1 0",
    ]);
    let looks: &[(i64, &[(&str, Where)])] = &[
        (150, &[("a", Where::Waiting)]),
        (30_000, &[("a", Where::Leased)]),
        (99_000, &[("a", Where::Leased)]),
        (200_000, &[]),
    ];
    let tally = checked(&lines, looks).expect("nothing is wrong");
    assert_eq!((tally.jobs, tally.deliveries, tally.again, tally.acked), (2, 3, 1, 2));
    assert_eq!((tally.lost, tally.extended, tally.then, tally.snapshots), (1, 1, 1, 5));
}

#[test]
fn a_job_that_is_nowhere_is_found() {
    let gone: &[(i64, &[(&str, Where)])] = &[(150, &[("a", Where::Waiting)]), (5_000, &[])];
    assert!(found(&PUSHED, gone).contains("lost"));
    // Its consumer was killed with the job in hand.
    assert!(found(&after(&["got work a 1 l1 200 300 50000"]), gone).contains("lost"));
    let refused = ["pushing 0 work a 0 -", "refused 100 queue.full"];
    assert!(found(&refused, &[(150, &[("a", dead(3, "x"))])]).contains("refused, and there"));
    assert!(found(&[], &[(150, &[("a", dead(3, "x"))])]).contains("nobody pushed"));
    assert!(found(&PUSHED, &[(150, &[("a", Where::Leased)])]).contains("never came back"));
    // Not told, it may be there or not.
    let silent = ["pushing 0 work a 0 -"];
    assert!(
        checked(&silent, &[(150, &[])]).is_ok() && checked(&silent, &[(150, &[("a", dead(3, "x"))])]).is_ok()
    );
}

#[test]
fn what_must_not_be_is_found() {
    for (lines, what) in [
        (&["got work a 1 l1 200 300 50000", "got work a 2 l2 10000 10100 50000"][..], "lease lives"),
        (&["got work a 1 l1 200 300 50000", "got work a 1 l2 60000 60100 50000"], "one attempt"),
        (&["got work a 2 l1 200 300 50000", "got work a 1 l2 60000 60100 50000"], "backwards"),
        (&["got work a 4 l1 200 300 50000"], "attempt 4"),
        (&["got work a 1 l1 200 300 50000", "acking 20000 l1 -", "acked 20100 0 1"], "while it lives"),
        (&["got work a 1 l1 200 300 50000", "extending 20000 l1 50000", "lost 20100 l1"], "while it lives"),
        (&["got work a 1 l1 200 300 50000", "acking 90000 l1 -", "acked 90100 1 0"], "had ended"),
        (
            &[
                "got work a 1 l1 200 300 50000",
                "got work a 2 l2 52000 52100 50000",
                "acking 55000 l1 -",
                "acked 55100 1 0",
            ],
            "stale lease",
        ),
        (
            &[
                "got work a 1 l1 200 300 50000",
                "got work a 2 l2 51000 60100 50000",
                "acking 55000 l1 -",
                "acked 55100 1 0",
                "acking 61000 l2 -",
                "acked 61100 1 0",
            ],
            "acked twice",
        ),
        (
            &[
                "got work a 1 l1 200 300 50000",
                "acking 20000 l1 -",
                "acked 20100 1 0",
                "got work a 2 l2 60000 60100 50000",
            ],
            "after it had ended",
        ),
        (
            &[
                "got work a 1 l1 200 300 50000",
                "nacking 20000 l1 e1",
                "retry 20100 l1 90000",
                "got work a 2 l2 60000 60100 50000",
            ],
            "too early",
        ),
    ] {
        let wrong = found(&after(lines), &[]);
        assert!(wrong.contains(what), "{what}: {wrong}");
    }
    let released = after(&[
        "got work a 1 l1 200 300 50000",
        "releasing 400 l1",
        "released 500 l1",
        "got work a 1 l2 600 700 50000",
    ]);
    assert!(checked(&released, &[]).is_ok_and(|tally| tally.given_back == 1));
    let early = ["pushing 0 work a 90000 -", "pushed 100 1", "got work a 1 l1 200 300 50000"];
    assert!(found(&early, &[]).contains("before it was due"));
}

#[test]
fn a_dead_letter_that_lies_is_found() {
    let lines = after(&["got work a 3 l1 200 300 50000", "nacking 400 l1 e1", "dead 500 l1"]);
    assert!(checked(&lines, &[(1000, &[("a", dead(3, "e1"))])]).is_ok());
    assert!(found(&lines, &[(1000, &[("a", dead(2, "e1"))])]).contains("after 2 attempts"));
    assert!(found(&lines, &[(1000, &[("a", dead(3, "e2"))])]).contains("its letter says"));
    let acked = after(&["got work a 3 l1 200 300 50000", "acking 400 l1 -", "acked 500 1 0"]);
    assert!(found(&acked, &[(1000, &[("a", dead(3, "x"))])]).contains("acked at 500"));
}

#[test]
fn halves_are_found() {
    let bulk = ["pushing 0 work a,b 0 -"];
    assert!(found(&bulk, &[(150, &[("a", dead(3, "x"))])]).contains("of a bulk"));
    let twice = ["pushing 0 work a 0 i", "pushed 100 1", "pushing 200 work b 0 i", "pushed 300 1"];
    let both: &[(&str, Where)] = &[("a", dead(3, "x")), ("b", dead(3, "x"))];
    assert!(found(&twice, &[(400, both)]).contains("under the id"));
    let nobody = ["pushing 0 work a 0 i", "duplicate 100", "pushing 200 work b 0 i", "duplicate 300"];
    assert!(found(&nobody, &[]).contains("refused to everybody"));
    let lines = after(&["got work a 1 l1 200 300 50000", "acking 400 l1 t1", "acked 500 1 0"]);
    assert!(found(&lines, &[(600, &[])]).contains("without what follows"));
    let unheard =
        after(&["got work a 1 l1 200 300 50000", "acking 400 l1 t1", "got after t1 1 l2 500 600 50000"]);
    assert!(checked(&unheard, &[(600, &[])]).is_ok());
    assert!(found(&unheard, &[(600, &[("a", dead(3, "x"))])]).contains("still there"));
}
