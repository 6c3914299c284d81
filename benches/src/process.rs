//! Servers and loads as child processes: loopback only, stopped by their own handle.

use std::ffi::OsStr;
use std::io::{Read as _, Seek as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// A child process that ends when this value does.
#[derive(Debug)]
pub(crate) struct Owned {
    child: Child,
    name: String,
}

impl Owned {
    /// Starts `command` and waits until `port` on loopback answers.
    pub(crate) fn serving(mut command: Command, port: u16) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        // What it complains about is shown only if it does not serve; webdis grumbles at every client it loses.
        let mut complaints = tempfile::tempfile()?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(complaints.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let mut owned = Self { child, name };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = owned.child.try_wait()? {
                let mut said = String::new();
                complaints.rewind()?;
                complaints.read_to_string(&mut said)?;
                bail!("{} ended before it served: {status}: {said}", owned.name);
            }
            if Instant::now() > deadline {
                bail!("{} does not answer on port {port}", owned.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(owned)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Already ended is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A loopback port nobody listens on right now.
pub(crate) fn free_port() -> Result<u16> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    Ok(probe.local_addr()?.port())
}

/// Runs a command to its end and answers what it printed; its complaint is the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    if !done.status.success() {
        bail!("{name}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    }
    String::from_utf8(done.stdout).with_context(|| format!("{name} printed bytes that are not text"))
}

/// A Redis of our own.
#[derive(Debug)]
pub(crate) struct Redis {
    pub(crate) port: u16,
    server: Owned,
}

impl Redis {
    /// Without persistence unless `options` ask for it; `dir` is where it would go.
    pub(crate) fn start<S: AsRef<OsStr>>(dir: &Path, options: impl IntoIterator<Item = S>) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--port"])
            .arg(port.to_string())
            .arg("--dir")
            .arg(dir)
            .args(["--save", "", "--appendonly", "no"])
            .args(options);
        Ok(Self { port, server: Owned::serving(command, port)? })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// A connection for set-up and for checking what the contestants did; never inside a measurement.
    pub(crate) fn connect(&self) -> Result<redis::Connection> {
        let client = redis::Client::open(self.url())?;
        client.get_connection().context("cannot reach the Redis just started")
    }

    /// Calls of `command` so far and how many of them failed.
    pub(crate) fn calls(&self, command: &str) -> Result<Calls> {
        let info: String = redis::cmd("INFO").arg("commandstats").query(&mut self.connect()?)?;
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let field = |name: &str| {
            line.and_then(|line| line.split(',').find_map(|part| part.strip_prefix(&format!("{name}="))))
                .and_then(|value| value.parse().ok())
                .unwrap_or(0)
        };
        Ok(Calls { made: field("calls"), failed: field("failed_calls") + field("rejected_calls") })
    }
}

/// How often a command ran.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calls {
    pub(crate) made: u64,
    pub(crate) failed: u64,
}
