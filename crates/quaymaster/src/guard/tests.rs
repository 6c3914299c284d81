//! Which parts go into which step, and what is given back of one that was taken in a window that has passed.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use bytes::Bytes;
use quaymaster_schema::{Source, load};
use quaymaster_store::embedded::{Clock, EmbeddedOptions, EmbeddedStore};
use quaymaster_store::{Reply, Topology};

use super::answer::{self, Told};
use super::keys::{Plan, Step};
use super::ops::{self, ENTER, Units};
use super::{Enter, Entered};
use crate::{Code, Quaymaster};

fn steps(record: Option<&str>, lock: Option<&str>, limits: &[&str]) -> Vec<Step> {
    let limits: Vec<String> = limits.iter().map(|tag| (*tag).to_owned()).collect();
    Plan::new(record, lock, &limits).steps(Topology::Cluster).to_vec()
}

fn step(record: bool, lock: bool, limits: &[usize]) -> Step {
    Step { record, lock, limits: limits.to_vec() }
}

#[test]
fn parts_under_one_tag_are_one_step() {
    assert_eq!(steps(Some("t"), Some("t"), &["t", "t"]), [step(true, true, &[0, 1])]);
}

#[test]
fn parts_under_their_own_tags_are_entered_record_first_then_lock_then_limits() {
    assert_eq!(
        steps(Some("r"), Some("l"), &["a", "b", "a"]),
        [
            step(true, false, &[]),
            step(false, true, &[]),
            step(false, false, &[0, 2]),
            step(false, false, &[1])
        ]
    );
}

#[test]
fn a_limit_goes_with_the_first_part_of_its_tag() {
    assert_eq!(steps(Some("r"), Some("l"), &["l", "r"]), [step(true, false, &[1]), step(false, true, &[0])]);
    assert_eq!(steps(None, None, &["a", "b"]), [step(false, false, &[0]), step(false, false, &[1])]);
}

#[test]
fn one_keyspace_is_one_step_whatever_the_tags() {
    let plan = Plan::new(Some("r"), Some("l"), &["a".to_owned(), "b".to_owned()]);
    assert_eq!(plan.steps(Topology::Single), [step(true, true, &[0, 1])]);
}

const WHO: &[(&str, &str)] = &[("who", "w")];

/// Takes one unit at `taken_ms` and another at `again_ms`, gives the first back at `back_ms`, and tells how many are
/// used then; moments are milliseconds after a window's aligned start.
async fn used_after(algorithm: &str, taken_ms: i64, again_ms: i64, back_ms: i64) -> u64 {
    let text = format!(
        "[schema]\nname = \"t\"\nowner = \"tests\"\n[guard.g]\nlimits = [\"l\"]\n\
         [limit.l]\nkey = \"l:{{who}}\"\nalgorithm = \"{algorithm}\"\nlimit = 9\nwindow = \"10s\"\n"
    );
    let schema = load(&[Source { name: "t.toml", text: &text }], &|_| None).schema.unwrap();
    const START_US: i64 = 1_794_699_030_000_000;
    let clock = Arc::new(AtomicI64::new(START_US + taken_ms * 1000));
    let options = EmbeddedOptions { clock: Clock::Manual(clock.clone()), ..EmbeddedOptions::default() };
    let engine = Arc::new(EmbeddedStore::memory(options).await.unwrap());
    let quaymaster = Quaymaster::new(Arc::new(schema), engine);
    let guard = quaymaster.guard("g").unwrap();
    let asked = guard.asked(WHO, Enter::default()).unwrap();
    let step = &guard.plan.steps(Topology::Single)[0];
    let units = Units::new(guard, step, clock.load(SeqCst));
    let reply = guard.bound.run(ENTER, ops::enter(guard, step, &asked, &units).unwrap()).await.unwrap();
    let Told::Entered { at_ms, .. } = answer::entered(ENTER, reply, guard.limits.iter()).unwrap() else {
        panic!("there is room")
    };
    assert_eq!(at_ms, START_US / 1000 + taken_ms);
    clock.store(START_US + again_ms * 1000, SeqCst);
    let again = guard.enter(WHO, Enter::default()).await.unwrap();
    assert!(matches!(again, Entered::Entered(_)), "{again:?}");
    clock.store(START_US + back_ms * 1000, SeqCst);
    let back = ops::back(guard, step, &asked, Some((&units, at_ms))).unwrap();
    guard.bound.run(ENTER, back).await.unwrap();
    guard.limits[0].peek(WHO).await.unwrap().quota().used
}

#[tokio::test]
async fn a_unit_is_given_back_to_the_window_it_was_taken_in_and_to_no_other() {
    for algorithm in ["fixed_window", "sliding_log", "sliding_window", "token_bucket"] {
        assert_eq!(used_after(algorithm, 0, 0, 0).await, 1, "{algorithm}");
        assert_eq!(used_after(algorithm, 0, 0, 1).await, 1, "{algorithm}");
    }
    assert_eq!(used_after("fixed_window", 0, 3000, 9999).await, 1);
    assert_eq!(used_after("fixed_window", 0, 10_001, 10_002).await, 1, "not its window");
    assert_eq!(used_after("fixed_window", 4000, 14_500, 15_000).await, 1, "not its window");
    // Of the window before, what still counts of it is given back: one unit is left, of this window.
    assert_eq!(used_after("sliding_window", 0, 10_000, 10_001).await, 1);
    assert_eq!(used_after("sliding_window", 0, 9000, 10_000).await, 1);
    assert_eq!(used_after("sliding_window", 0, 20_000, 20_001).await, 1, "not its window");
    assert_eq!(used_after("sliding_window", 0, 10_000, 20_000).await, 1, "not its window");
}

#[test]
fn a_record_of_another_call_is_the_callers_mistake_and_an_unknown_word_is_nobodys_answer() {
    let said = |word: &'static [u8]| {
        let reply = Reply::Array(vec![Reply::Bytes(Bytes::from_static(word))]);
        answer::entered(ENTER, reply, std::iter::empty()).unwrap_err()
    };
    let conflict = said(b"conflict");
    assert_eq!((conflict.code, conflict.field.as_deref()), (Code::RequestReused, Some("request_id")));
    assert!(!conflict.may_have_run);
    let unknown = said(b"unheard");
    assert_eq!((unknown.code, unknown.may_have_run), (Code::StoreReply, true));
}
