#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::*;
use crate::embedded::clock::Clock;
use crate::embedded::core::Core;

fn core_with(limits: VmLimits) -> Core {
    Core::new(Clock::Manual(Arc::new(AtomicI64::new(1_700_000_000_000_000))), limits).unwrap()
}

fn core() -> Core {
    core_with(VmLimits::default())
}

fn words<'a>(list: impl IntoIterator<Item = &'a str>) -> Words {
    let mut words = Words::default();
    list.into_iter().for_each(|word| words.push(word));
    words
}

fn run_with(core: &Core, source: &str, keys: &[&str], args: &[&str]) -> Result<Reply> {
    let script = ScriptRef { id: "test.script", sha: source, source };
    let (keys, args) = (words(keys.iter().copied()), words(args.iter().copied()));
    core.execute(script, &keys, &args, drop).map(|(reply, ())| reply)
}

fn run(core: &Core, source: &str) -> Result<Reply> {
    run_with(core, source, &[], &[])
}

fn text(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec().into())
}

#[test]
fn a_script_reads_and_writes_and_answers() {
    let core = core();
    let source = "redis.call('SET', KEYS[1], ARGV[1]) return {redis.call('GET', KEYS[1]), redis.call('INCRBY', KEYS[1], 2), #KEYS, #ARGV}";
    let reply = run_with(&core, source, &["k"], &["40"]).unwrap();
    assert_eq!(reply, Reply::Array(vec![text("40"), Reply::Int(42), Reply::Int(1), Reply::Int(1)]));
    let _ = (Ordering::SeqCst, Duration::ZERO);
}
