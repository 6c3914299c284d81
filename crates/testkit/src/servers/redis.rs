//! One Redis or Valkey server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Value};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::servers::address::free_address;
use crate::servers::faketime::FakeTime;
use crate::servers::process::Process;
use crate::servers::tools::Binary;

/// Longer than any start takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at a server that is not ready.
const GLANCE: Duration = Duration::from_millis(5);

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct RedisConfig {
    /// Which program.
    pub binary: Binary,
    /// Lines for its configuration file, `maxmemory 1mb`, after the fixture's own.
    pub lines: Vec<String>,
    /// Whether its wall clock can be set; not with [`Binary::Redis7`].
    pub faketime: bool,
    /// Environment of the process, such as that of a [`crate::held_clock::HeldClock`].
    pub env: Vec<(String, String)>,
}

impl RedisConfig {
    /// The given program.
    pub fn of(binary: Binary) -> Self {
        Self { binary, ..Self::default() }
    }

    /// One more line.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// With a clock that can be set.
    pub fn faked(mut self) -> Self {
        assert_ne!(self.binary, Binary::Redis7, "Debian's redis-server hangs under libfaketime");
        self.faketime = true;
        self
    }
}

/// A running server; its data folder survives [`RedisServer::restart`].
#[derive(Debug)]
pub struct RedisServer {
    // Before the folder: the process must be gone when the folder is removed.
    process: Process,
    config: RedisConfig,
    address: SocketAddr,
    clock: Option<FakeTime>,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    pub fn start(config: RedisConfig) -> Self {
        Self::start_with(config, |_| Vec::new())
    }

    /// The same, with lines that depend on the server's folder.
    pub fn start_with(mut config: RedisConfig, more: impl Fn(&Path) -> Vec<String>) -> Self {
        let folder =
            tempfile::Builder::new().prefix("quaymaster-redis-").tempdir().expect("a temporary folder");
        let clock = config.faketime.then(|| FakeTime::new(folder.path()));
        let fixed = config.lines.clone();
        loop {
            let address = free_address();
            config.lines = fixed.iter().cloned().chain(more(folder.path())).collect();
            if let Ok(process) = launch(&config, folder.path(), address, clock.as_ref()) {
                return Self { process, config, address, clock, folder };
            }
        }
    }

    /// `redis://<address>`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The line of configuration that makes another server a replica of this one.
    pub fn followed_by(&self) -> String {
        format!("replicaof {} {}", self.address.ip(), self.address.port())
    }

    /// Its data folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The clock of a server that was started with one.
    pub fn clock(&self) -> &FakeTime {
        self.clock.as_ref().expect("the server was started with RedisConfig::faked")
    }

    /// SIGKILL: what was not on disk is gone.
    pub fn kill9(&mut self) {
        self.process.kill9();
    }

    /// SIGSTOP: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// SIGKILL, if it still runs, and starts it again on the same address and folder.
    pub fn restart(&mut self) {
        self.process.kill9();
        self.launch_again();
    }

    /// A clean stop, which saves when the configuration says so, and a start.
    pub fn restart_cleanly(&mut self) {
        self.process.signal(Signal::TERM);
        wait_until("the server ends", || self.process.ended().is_some());
        self.launch_again();
    }

    fn launch_again(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match launch(&self.config, self.folder.path(), self.address, self.clock.as_ref()) {
                Ok(process) => {
                    self.process = process;
                    return;
                }
                Err(log) => {
                    assert!(Instant::now() < deadline, "{} is not free again:\n{log}", self.address);
                }
            }
        }
    }

    /// An asynchronous connection without a response time-out.
    pub async fn client(&self) -> MultiplexedConnection {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        redis::Client::open(self.url())
            .expect("a valid URL")
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .expect("the fixture's server accepts connections")
    }

    /// One command over a connection of its own; panics on an error reply.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_command(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// One command over a connection of its own.
    pub fn try_command<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(PATIENCE)?;
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query(&mut connection)
    }

    /// One field of INFO.
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let text: String = self.try_command(&["INFO", section]).ok()?;
        text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(|v| v.trim().to_owned()))
    }

    /// The names of the connected clients.
    pub fn client_names(&self) -> Vec<String> {
        let list: Value = self.command(&["CLIENT", "LIST"]);
        let text: String = redis::from_redis_value(list).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.strip_prefix("name=")).map(str::to_owned).collect()
    }
}

/// The log when the process ended before it was ready, as it does when the port was taken.
fn launch(
    config: &RedisConfig,
    folder: &Path,
    address: SocketAddr,
    clock: Option<&FakeTime>,
) -> Result<Process, String> {
    let mut lines = vec![
        format!("port {}", address.port()),
        format!("bind {}", address.ip()),
        // By default a replica is known by the address that its connection comes from.
        format!("replica-announce-ip {}", address.ip()),
        format!("dir {}", folder.display()),
        "save \"\"".to_owned(),
        "daemonize no".to_owned(),
    ];
    if config.binary != Binary::Redis62 {
        lines.push("enable-debug-command yes".to_owned());
    }
    lines.extend(config.lines.iter().cloned());
    let file = folder.join("server.conf");
    std::fs::write(&file, lines.join("\n") + "\n").expect("the configuration can be written");
    let mut env = clock.map(FakeTime::env).unwrap_or_default();
    env.extend(config.env.iter().cloned());
    let args = [file.display().to_string()];
    let mut process = Process::spawn(&config.binary.path(), &args, &env, &folder.join("server.log"));
    let deadline = Instant::now() + PATIENCE;
    loop {
        if process.ended().is_some() {
            let log = process.log_tail();
            assert!(log.contains("in use") || log.contains("bind"), "the server did not start:\n{log}");
            return Err(log);
        }
        if answers(address, process.pid()) {
            return Ok(process);
        }
        assert!(Instant::now() < deadline, "the server is not ready:\n{}", process.log_tail());
        std::thread::sleep(GLANCE);
    }
}

/// Whether the server with this process id answers at this address: an error such as NOAUTH is an answer,
/// LOADING is not.
fn answers(address: SocketAddr, pid: u32) -> bool {
    let ask = |question: &[u8]| -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(question)?;
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    match ask(b"PING\r\n") {
        Ok(reply) if reply.starts_with("+PONG") => ask(b"INFO server\r\n")
            .is_ok_and(|info| info.lines().any(|line| line.trim() == format!("process_id:{pid}"))),
        Ok(reply) => {
            reply.starts_with("-NOAUTH") || reply.starts_with("-NOPERM") || reply.starts_with("-MISCONF")
        }
        Err(_) => false,
    }
}

/// Looks until `ready`; panics with `what` when that takes unreasonably long.
pub(super) fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(GLANCE);
    }
}
