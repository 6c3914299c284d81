//! What Redis really gets: every command a client sends while a few steps run, seen by MONITOR.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::runtime::Runtime;

use super::arena::{Arena, Figures};
use super::pace::Plan;
use crate::process::Redis;

/// Commands by name, and the run that sent them.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) commands: BTreeMap<String, u64>,
    pub(crate) figures: Figures,
}

/// The last thing to see: sent when the run is over.
const END: &str = "that-was-all";

/// Runs the mix slowly for a moment, on warm connections, and lists what came from clients.
pub(crate) fn watch(arena: &Arena, runtime: &Runtime, plan: Plan) -> Result<Seen> {
    arena.run(runtime, Plan { lasting: Duration::from_millis(200), ..plan })?;
    let (figures, commands) = listen(&arena.redis, || arena.run(runtime, plan))?;
    Ok(Seen { commands, figures })
}

/// What `run` answers, and the commands that clients sent meanwhile.
pub(crate) fn listen<T>(
    redis: &Redis,
    run: impl FnOnce() -> Result<T>,
) -> Result<(T, BTreeMap<String, u64>)> {
    let mut monitor = TcpStream::connect(("127.0.0.1", redis.port))?;
    monitor.set_read_timeout(Some(Duration::from_secs(20)))?;
    monitor.write_all(b"MONITOR\r\n")?;
    let mut lines = BufReader::new(monitor).lines();
    let started = lines.next().context("MONITOR was refused")??;
    ensure!(started == "+OK", "MONITOR: {started}");
    // Read while the run goes on: what nobody reads fills Redis's buffer for us, and it would hang up.
    let reader = std::thread::spawn(move || {
        let mut commands = BTreeMap::new();
        for line in lines {
            let line = line?;
            if line.contains(END) {
                return Ok(commands);
            }
            if let Some(name) = from_client(&line) {
                *commands.entry(name.to_ascii_lowercase()).or_default() += 1;
            }
        }
        anyhow::bail!("MONITOR ended early")
    });
    let answer = run()?;
    let _: String = redis::cmd("PING").arg(END).query(&mut redis.connect()?)?;
    let commands = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    Ok((answer, commands))
}

impl Seen {
    /// Everything but our own looking on and the setting up of connections.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (&str, u64)> {
        let about = ["info", "client", "hello", "ping"];
        let sent = move |name: &str| !about.contains(&name);
        self.commands.iter().map(|(name, count)| (name.as_str(), *count)).filter(move |(name, _)| sent(name))
    }

    pub(crate) fn per_operation(&self) -> f64 {
        self.sent().map(|(_, count)| count).sum::<u64>() as f64 / self.figures.operations.max(1) as f64
    }
}

/// The command of a line as MONITOR writes it, unless a script ran it:
/// `+1700000000.123456 [0 127.0.0.1:1234] "get" "key"`.
fn from_client(line: &str) -> Option<&str> {
    let (sender, command) = line.split_once('[')?.1.split_once("] \"")?;
    let name = command.split('"').next()?;
    (!sender.ends_with(" lua")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_runs_does_not_come_from_a_client() {
        assert_eq!(
            from_client("+17.1 [0 127.0.0.1:50] \"EVALSHA\" \"ab\" \"1\" \"k[0 lua]\""),
            Some("EVALSHA")
        );
        assert_eq!(from_client("+17.1 [0 lua] \"get\" \"k\""), None);
        assert_eq!(from_client("+OK"), None);
    }
}
