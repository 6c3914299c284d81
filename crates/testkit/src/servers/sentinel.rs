//! A primary, its replicas and three sentinels that fail over within a second or two.

use std::net::SocketAddr;
use std::path::Path;

use crate::servers::address::free_address;
use crate::servers::process::Process;
use crate::servers::redis::{RedisConfig, RedisServer, wait_until};
use crate::servers::tools::Binary;

/// The name the sentinels watch the primary under.
const SERVICE: &str = "quay";
const SENTINELS: usize = 3;
/// How long a primary is silent before the sentinels fail over.
const DOWN_AFTER_MS: u32 = 500;
/// Longer than any test.
const NEVER_MS: u32 = 3_600_000;

/// How the group is set up.
#[derive(Debug, Clone)]
pub struct SentinelConfig {
    /// Which program, for servers and sentinels.
    pub binary: Binary,
    /// How many replicas.
    pub replicas: usize,
    /// Lines for every server's configuration file.
    pub lines: Vec<String>,
}

impl Default for SentinelConfig {
    fn default() -> Self {
        Self { binary: Binary::Redis7, replicas: 1, lines: Vec::new() }
    }
}

/// A running group.
#[derive(Debug)]
pub struct Sentinel {
    /// The servers; the first was the primary at the start.
    pub servers: Vec<RedisServer>,
    sentinels: Vec<(Process, SocketAddr)>,
    _folder: tempfile::TempDir,
}

impl Sentinel {
    /// Starts everything and waits until every sentinel knows all the others and every replica.
    pub fn start(config: SentinelConfig) -> Self {
        let server = |lines: Vec<String>| {
            let lines = config.lines.iter().cloned().chain(lines).collect();
            RedisServer::start(RedisConfig { binary: config.binary, lines, ..RedisConfig::default() })
        };
        let primary = server(vec!["repl-diskless-sync-delay 0".into()]);
        let follow = primary.followed_by();
        let mut servers = vec![primary];
        servers.extend((0..config.replicas).map(|_| server(vec![follow.clone()])));
        for replica in &servers[1..] {
            wait_until("the replica follows", || {
                replica.info("replication", "master_link_status").is_some_and(|status| status == "up")
            });
        }
        let folder =
            tempfile::Builder::new().prefix("quaymaster-sentinel-").tempdir().expect("a temporary folder");
        let sentinels = (0..SENTINELS)
            .map(|index| start_sentinel(config.binary, folder.path(), index, servers[0].address()))
            .collect();
        let group = Self { servers, sentinels, _folder: folder };
        for (_, address) in &group.sentinels {
            let expected = (SENTINELS - 1, config.replicas);
            wait_until("the sentinels know the group", || group_seen_by(*address) == Some(expected));
        }
        group
    }

    /// `redis+sentinel://…/quay`.
    pub fn url(&self) -> String {
        let all: Vec<String> = self.sentinels.iter().map(|(_, address)| address.to_string()).collect();
        format!("redis+sentinel://{}/{SERVICE}", all.join(","))
    }

    /// The port of the primary as the first sentinel sees it.
    pub fn primary_port(&self) -> u16 {
        let (_, port): (String, u16) =
            ask(self.sentinels[0].1, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE])
                .expect("a sentinel answers");
        port
    }

    /// From now on the sentinels leave a dead primary as it is, until [`Sentinel::fail_over_again`].
    pub fn never_fail_over(&self) {
        self.down_after(NEVER_MS);
    }

    /// The sentinels fail over as at the start; at once where the primary is dead already.
    pub fn fail_over_again(&self) {
        self.down_after(DOWN_AFTER_MS);
    }

    fn down_after(&self, ms: u32) {
        for (_, address) in &self.sentinels {
            let words = ["SENTINEL", "SET", SERVICE, "down-after-milliseconds", &ms.to_string()];
            ask::<()>(*address, &words).expect("a sentinel takes the setting");
        }
    }

    /// Asks the first sentinel to make a replica the primary; false when it is not ready to.
    pub fn fail_over(&self) -> bool {
        ask::<String>(self.sentinels[0].1, &["SENTINEL", "FAILOVER", SERVICE]).is_ok()
    }
}

fn start_sentinel(binary: Binary, folder: &Path, index: usize, primary: SocketAddr) -> (Process, SocketAddr) {
    loop {
        let address = free_address();
        let (ip, port) = (address.ip(), address.port());
        let home = folder.join(format!("{index}-{port}"));
        std::fs::create_dir(&home).expect("a folder for the sentinel");
        let lines = [
            format!("port {port}"),
            format!("bind {ip}"),
            format!("dir {}", home.display()),
            format!("sentinel announce-ip {ip}"),
            format!("sentinel monitor {SERVICE} {} {} 2", primary.ip(), primary.port()),
            format!("sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}"),
            format!("sentinel failover-timeout {SERVICE} 3000"),
        ];
        let file = home.join("sentinel.conf");
        std::fs::write(&file, lines.join("\n") + "\n").expect("the configuration can be written");
        let args = [file.display().to_string(), "--sentinel".to_owned()];
        let mut process = Process::spawn(&binary.path(), &args, &[], &home.join("sentinel.log"));
        let mut taken = false;
        wait_until("the sentinel answers", || {
            taken = process.ended().is_some();
            taken || ask::<String>(address, &["PING"]).is_ok()
        });
        if !taken {
            return (process, address);
        }
    }
}

/// How many other sentinels, and how many replicas, this one knows.
fn group_seen_by(address: SocketAddr) -> Option<(usize, usize)> {
    let facts: std::collections::HashMap<String, String> =
        ask(address, &["SENTINEL", "MASTER", SERVICE]).ok()?;
    let number = |name: &str| facts.get(name)?.parse().ok();
    Some((number("num-other-sentinels")?, number("num-slaves")?))
}

fn ask<T: redis::FromRedisValue>(address: SocketAddr, words: &[&str]) -> redis::RedisResult<T> {
    let mut connection = redis::Client::open(format!("redis://{address}"))?.get_connection()?;
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query(&mut connection)
}
