//! Which parts go into which step.

use quaymaster_store::Topology;

use super::keys::{Plan, Step};

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
