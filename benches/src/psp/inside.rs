//! How long Redis itself is busy with each command: everything else waits meanwhile.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use redis::Value;
use tokio::runtime::Runtime;

use super::arena::Arena;
use super::pace::Plan;
use super::way::Way;

/// Median microseconds inside Redis, by operation or plain command.
pub(crate) type Inside = BTreeMap<String, u64>;

/// Lets the slow log keep every command while the mix runs for a moment.
pub(crate) fn watch(arena: &Arena, runtime: &Runtime, plan: Plan) -> Result<Inside> {
    let mut connection = arena.redis.connect()?;
    let mut set = |name: &str, value: &str| {
        redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query::<()>(&mut connection)
    };
    let scripts = !matches!(*arena.way, Way::Documented(_));
    set("slowlog-max-len", "100000")?;
    // What a script runs is logged too, and writing that down would count as the script's own time.
    set("slowlog-log-slower-than", if scripts { "2" } else { "0" })?;
    let ran = arena.run(runtime, plan);
    set("slowlog-log-slower-than", "-1")?;
    ran?;
    let entries: Vec<Value> = redis::cmd("SLOWLOG").arg("GET").arg(-1).query(&mut connection)?;
    redis::cmd("SLOWLOG").arg("RESET").query::<()>(&mut connection)?;
    let mut took: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for entry in &entries {
        let (microseconds, words) = read(entry)?;
        let (operation, command) = names(&words);
        if let Some(name) = operation.or((!scripts).then_some(command)) {
            took.entry(name).or_default().push(microseconds);
        }
    }
    let median = |mut all: Vec<u64>| {
        all.sort_unstable();
        all[all.len() / 2]
    };
    // What only set up this look is seen once or twice.
    Ok(took.into_iter().filter(|(_, all)| all.len() > 5).map(|(name, all)| (name, median(all))).collect())
}

/// `[id, time, microseconds, [words…], …]`
fn read(entry: &Value) -> Result<(u64, Vec<String>)> {
    let Value::Array(parts) = entry else { anyhow::bail!("not an entry of the slow log: {entry:?}") };
    ensure!(parts.len() >= 4, "a short entry of the slow log: {entry:?}");
    // Sealed responses are no text.
    let words: Vec<Vec<u8>> = redis::from_redis_value_ref(&parts[3])?;
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    Ok((redis::from_redis_value_ref(&parts[2])?, words.iter().map(text).collect()))
}

/// The operation whose script ran, if one did, and the command.
fn names(words: &[String]) -> (Option<String>, String) {
    let command = words.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    let script = |sha: &String| quaymaster::operations().iter().find(|known| known.script.sha == *sha);
    let sha = words.get(1).filter(|_| command.starts_with("eval"));
    (sha.and_then(script).map(|operation| operation.script.id.to_owned()), command)
}
