//! The built program on a store of its own, in a folder of its own, in the time of a clock that the test holds.
//!
//! Redis and `serve` start at the first call that needs them, so a test first says how they are set up ([`Stage::var`],
//! [`Stage::settings`], [`Stage::amend`], [`Stage::redis_line`]). On Redis the clock stands still until [`Stage::pass`]
//! moves it; the embedded store counts elapsed time, so there it runs.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a stage that cannot be set up fails its test")]

mod embedded;
mod listener;
mod program;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::FromRedisValue;
use serde_json::Value;
use tempfile::TempDir;

pub use listener::Listener;
pub use program::Said;
pub use wire::{Answer, Ask, Wire};

use crate::held_clock::HeldClock;
use crate::servers::{RedisConfig, RedisServer, any_port};
use embedded::Folder;
use program::Served;

/// 2026-11-15 12:00:20 UTC: twenty seconds into a minute and an hour.
pub const NOW_US: i64 = 1_794_744_020_000_000;
/// Names the store of a command that has no `--store`.
const STORE: &str = "QUAYMASTER_STORE";
/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which store a stage has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// A Redis server.
    Redis,
    /// The embedded store in the stage's folder.
    Embedded,
}

/// A store, a folder with schemas and settings, a clock, and `serve`.
#[derive(Debug)]
pub struct Stage {
    store: Store,
    vars: Mutex<Vec<(String, String)>>,
    lines: Mutex<Vec<String>>,
    // In the order in which they end.
    served: Mutex<Option<Served>>,
    redis: Mutex<Option<RedisServer>>,
    clock: HeldClock,
    folder: TempDir,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- serve said:\n{}", self.log());
        }
    }
}

impl Stage {
    /// A folder with these schemas, each a name and its text. Nothing runs yet.
    pub fn new(store: Store, schemas: &[(&str, &str)]) -> Self {
        let clock = HeldClock::frozen(NOW_US);
        if store == Store::Embedded {
            clock.run_from(NOW_US);
        }
        let folder = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (name, text) in schemas {
            std::fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
            files.push(format!("\"{name}.toml\""));
        }
        let settings = format!("schemas = [{}]\n", files.join(", "));
        std::fs::write(folder.path().join("quaymaster.toml"), settings).unwrap();
        Self {
            store,
            folder,
            clock,
            vars: Mutex::default(),
            lines: Mutex::default(),
            served: Mutex::default(),
            redis: Mutex::default(),
        }
    }

    /// The same with the schema of one of the `systems/`.
    pub fn of(store: Store, system: &str) -> Self {
        Self::new(store, &[(system, &schema_of(system))])
    }

    /// Which store it is.
    pub fn store(&self) -> Store {
        self.store
    }

    /// Where the program runs: its settings, schemas, log, and what it writes.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    // What is set up before the first call.

    /// Sets a variable of the environment of `serve` and of every command.
    pub fn var(&self, name: &str, value: &str) {
        self.not_yet("var");
        self.vars.lock().push((name.to_owned(), value.to_owned()));
    }

    /// Appends to `quaymaster.toml`.
    pub fn settings(&self, toml: &str) {
        self.not_yet("settings");
        let file = self.folder().join("quaymaster.toml");
        let mut text = std::fs::read_to_string(&file).unwrap();
        let _ = writeln!(text, "{toml}");
        std::fs::write(file, text).unwrap();
    }

    /// Writes `to` for `from`, which the schema of `system` must have.
    pub fn amend(&self, system: &str, from: &str, to: &str) {
        self.not_yet("amend");
        let file = self.folder().join(format!("{system}.toml"));
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{system} has no {from}");
        std::fs::write(file, text.replace(from, to)).unwrap();
    }

    /// Adds a line to the configuration of Redis.
    pub fn redis_line(&self, line: &str) {
        assert!(self.redis.lock().is_none(), "redis_line {line}: Redis runs already");
        self.lines.lock().push(line.to_owned());
    }

    fn not_yet(&self, what: &str) {
        assert!(self.served.lock().is_none(), "{what} comes before the first call, or after `kill`");
    }

    // Processes.

    /// Does something with the Redis server: stops it, restarts it, asks for INFO.
    pub fn redis<T>(&self, act: impl FnOnce(&mut RedisServer) -> T) -> T {
        assert_eq!(self.store, Store::Redis);
        let mut redis = self.redis.lock();
        act(redis.get_or_insert_with(|| {
            let (env, lines) = (self.clock.environment(), self.lines.lock().clone());
            RedisServer::start(RedisConfig { lines, env, ..RedisConfig::default() })
        }))
    }

    /// The store's URL, unless the variable `QUAYMASTER_STORE` was set to another: with a password, by TLS.
    pub fn url(&self) -> String {
        let named = self.vars.lock().iter().rfind(|(name, _)| name == STORE).map(|(_, url)| url.clone());
        if let Some(named) = named {
            return named;
        }
        match self.store {
            Store::Redis => self.redis(|server| server.url()),
            Store::Embedded => "embedded".to_owned(),
        }
    }

    /// The program with nothing of the test's environment but the stage's variables and its time.
    pub fn command(&self) -> Command {
        self.program(&program::binary())
    }

    /// The same of another program of the workspace, built beside it: `camera-pipeline`.
    pub fn neighbour(&self, name: &str) -> Command {
        self.program(&program::neighbour(name))
    }

    fn program(&self, program: &Path) -> Command {
        let mut command = program::command(self.folder(), program);
        command.envs(self.clock.environment()).envs(self.vars.lock().iter().cloned());
        command
    }

    /// Runs a command on the stage's store to its end.
    pub fn cli(&self, words: &[&str]) -> Said {
        program::said(self.command().args(words).env(STORE, self.url()))
    }

    /// Where `serve` listens; starts it if it does not run.
    pub fn address(&self) -> SocketAddr {
        if let Some(served) = &*self.served.lock() {
            return served.address;
        }
        self.serve(&[])
    }

    /// Starts `serve` with more words after the usual ones; where it listens.
    pub fn serve(&self, words: &[&str]) -> SocketAddr {
        self.not_yet("serve");
        let mut command = self.command();
        command.args(["serve", "--listen", &any_port().to_string(), "--store", &self.url()]).args(words);
        self.served.lock().insert(Served::start(&mut command, &self.log_file())).address
    }

    /// The process id of `serve`.
    pub fn pid(&self) -> u32 {
        self.address();
        self.served.lock().as_ref().expect("it runs").pid()
    }

    /// Stops `serve` by SIGTERM; the exit code.
    pub fn stop(&self) -> i32 {
        self.served.lock().take().expect("it runs").stop()
    }

    /// Ends `serve` by SIGKILL, if it runs. The next call starts it again.
    pub fn kill(&self) {
        self.served.lock().take();
    }

    /// What every `serve` of this stage wrote to standard error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder().join("log")
    }

    // Calls over HTTP.

    /// Sends a request on a connection of its own and takes its whole answer.
    pub fn ask(&self, ask: &Ask) -> Answer {
        Wire::open(self.address()).ask(ask).0
    }

    /// `POST /v1/{path}` with a JSON body.
    pub fn post(&self, path: &str, body: Value) -> Answer {
        self.ask(&Ask::new("POST", &format!("/v1/{path}")).json(&body.to_string()))
    }

    /// The same where the answer must be 200; its body.
    pub fn ok(&self, path: &str, body: Value) -> Value {
        self.post(path, body).expect(200)
    }

    /// `GET` of a whole path: `/v1/limit/psp/peek?key.psp_id=A`, `/metrics`.
    pub fn get(&self, path: &str) -> Answer {
        self.ask(&Ask::new("GET", path))
    }

    /// `PUT /v1/{path}` of bytes: a chunk of an upload.
    pub fn put(&self, path: &str, bytes: &[u8]) -> Answer {
        self.ask(&Ask::new("PUT", &format!("/v1/{path}")).carrying(bytes))
    }

    /// The value of a metric, named with its labels as `/metrics` writes it.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics").text();
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    // Keys, as another program sees them.

    /// One command: on Redis any, on the embedded store those of `crates/store/commands.txt`, whose second word is a
    /// key. The type of the answer is that of `redis-rs`.
    pub fn raw<T: FromRedisValue>(&self, words: &[&str]) -> T {
        match self.store {
            Store::Redis => self.redis(|server| server.command(words)),
            Store::Embedded => {
                let reply = self.attached(|folder| folder.command(words));
                redis::from_redis_value(reply).unwrap_or_else(|error| panic!("{words:?}: {error}"))
            }
        }
    }

    /// The string at `key`.
    pub fn text(&self, key: &str) -> Option<String> {
        self.raw(&["GET", key])
    }

    /// One field of the hash at `key`.
    pub fn field(&self, key: &str, field: &str) -> Option<String> {
        self.raw(&["HGET", key, field])
    }

    /// The keys that match a glob.
    pub fn keys(&self, pattern: &str) -> BTreeSet<String> {
        match self.store {
            Store::Redis => self.raw(&["KEYS", pattern]),
            Store::Embedded => self.attached(|folder| folder.keys(pattern)),
        }
    }

    /// Checks that `key` was given `seconds` to live: exact on Redis, whose clock stands still. On the embedded store it
    /// has no more, and less only by what the test may have taken: half of it, a minute at most.
    pub fn lives(&self, key: &str, seconds: i64) {
        let left: i64 = self.raw(&["PTTL", key]);
        let most = seconds * 1000;
        let taken = if self.store == Store::Redis { 0 } else { (most / 2).min(60_000) };
        assert!((most - taken..=most).contains(&left), "{key} has {left} ms left, not {most}");
    }

    /// Subscribes to a channel.
    pub fn listen(&self, channel: &str) -> Listener {
        self.address();
        match self.store {
            Store::Redis => Listener::on_redis(&self.url(), channel),
            Store::Embedded => Listener::on_embedded(self.data(), channel),
        }
    }

    fn attached<T>(&self, act: impl FnOnce(&Folder) -> T) -> T {
        // It must be the server's: nobody else would own the folder while the test looks.
        self.address();
        act(&Folder::of(self.data()))
    }

    fn data(&self) -> PathBuf {
        self.folder().join("quaymaster-data")
    }

    // Time.

    /// The clock of every process of this stage.
    pub fn clock(&self) -> &HeldClock {
        &self.clock
    }

    /// Lets this many milliseconds pass. An embedded store counts elapsed time, so its server is killed and started in
    /// the later time.
    pub fn pass(&self, ms: u64) {
        let later = self.clock.now_us() + i64::try_from(ms).unwrap() * 1000;
        match self.store {
            Store::Redis => self.clock.freeze(later),
            Store::Embedded => {
                self.kill();
                self.clock.run_from(later);
                if self.data().is_dir() {
                    // Otherwise the store believes elapsed time, and not a date that jumped.
                    std::fs::write(self.data().join("take-date"), "").unwrap();
                }
            }
        }
    }

    /// Looks until something holds; panics when it never does.
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "never: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The schema of one of the `systems/`.
pub fn schema_of(system: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems").join(system).join("schema.toml");
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
