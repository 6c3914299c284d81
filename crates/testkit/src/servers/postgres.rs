//! One PostgreSQL cluster of its own.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::servers::address::free_address;
use crate::servers::process::Process;
use crate::servers::redis::wait_until;
use crate::servers::tools::on_path;

/// Longer than any start takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server with an empty database; everybody on this machine may connect.
#[derive(Debug)]
pub struct PostgresServer {
    process: Process,
    address: SocketAddr,
    // After the process: that one must be gone when the folder is removed.
    folder: TempDir,
}

impl PostgresServer {
    /// Makes a cluster, starts it on the test's own address and waits until it answers.
    pub fn start() -> Self {
        let folder =
            tempfile::Builder::new().prefix("quaymaster-postgres-").tempdir().expect("a temporary folder");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("a folder for the cluster");
        if let Some((uid, gid)) = servant() {
            for path in [folder.path(), &data] {
                std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("the folder can be given away");
            }
        }
        let mut initdb = Command::new("setpriv");
        initdb.args(setpriv()).arg("--").arg(program("initdb")).arg("-D").arg(&data);
        initdb.args(["-A", "trust", "-U", "quaymaster", "-E", "UTF8", "--no-locale", "--no-sync"]);
        initdb.current_dir(folder.path());
        let made = initdb.output().expect("initdb can be started: run scripts/test-tools");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        loop {
            let address = free_address();
            if let Some(process) = launch(&data, address) {
                return Self { process, address, folder };
            }
        }
    }

    /// `postgres://quaymaster@<address>/postgres`.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same behind another address, such as a proxy's.
    pub fn url_at(&self, address: SocketAddr) -> String {
        format!("postgres://quaymaster@{address}/postgres?sslmode=disable")
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One statement; its rows, a line each.
    pub fn ask(&self, sql: &str) -> String {
        let (ip, port) = (self.address.ip().to_string(), self.address.port().to_string());
        let told = Command::new("psql")
            .args(["-h", &ip, "-p", &port, "-U", "quaymaster", "-d", "postgres", "-Atqc", sql])
            .output()
            .expect("psql can be started");
        assert!(told.status.success(), "{sql}: {}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8_lossy(&told.stdout).trim().to_owned()
    }

    /// Ends every connection and stops; what was committed is kept.
    pub fn stop(&mut self) {
        self.process.signal(Signal::INT);
        wait_until("PostgreSQL ends", || self.process.ended().is_some());
    }

    /// Starts again after [`PostgresServer::stop`].
    pub fn start_again(&mut self) {
        let data = self.folder.path().join("data");
        self.process = launch(&data, self.address).expect("its port is free again");
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // A server that is killed leaves shared memory behind; one that quits does not.
        if self.process.ended().is_none() {
            self.process.signal(Signal::QUIT);
            let deadline = Instant::now() + Duration::from_secs(5);
            while self.process.ended().is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// `None` when it ended before it was ready, as it does when the port was taken.
fn launch(data: &Path, address: SocketAddr) -> Option<Process> {
    let mut args: Vec<String> = setpriv();
    args.extend(["--pdeathsig".into(), "KILL".into(), "--".into()]);
    args.extend([program("postgres").display().to_string(), "-D".into(), data.display().to_string()]);
    for setting in [
        &format!("listen_addresses={}", address.ip()),
        &format!("port={}", address.port()),
        "unix_socket_directories=",
        "fsync=off",
        "shared_buffers=16MB",
        "autovacuum=off",
    ] {
        args.extend(["-c".to_owned(), setting.to_owned()]);
    }
    let log = data.with_file_name("server.log");
    let mut process = Process::spawn(Path::new("setpriv"), &args, &[], &log);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if process.ended().is_some() {
            let log = process.log_tail();
            assert!(log.contains("in use"), "PostgreSQL did not start:\n{log}");
            return None;
        }
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let ready = Command::new("pg_isready").args(["-q", "-h", &ip, "-p", &port]).status();
        if ready.expect("pg_isready can be started: run scripts/test-tools").success() {
            return Some(process);
        }
        assert!(Instant::now() < deadline, "PostgreSQL is not ready:\n{}", process.log_tail());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// PostgreSQL refuses to run as root: then it runs as the user its package made.
fn servant() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let home =
        std::fs::metadata("/var/lib/postgresql").expect("PostgreSQL is installed: run scripts/test-tools");
    Some((home.uid(), home.gid()))
}

fn setpriv() -> Vec<String> {
    match servant() {
        None => Vec::new(),
        Some((uid, gid)) => vec![format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into()],
    }
}

/// Debian keeps the server's programs off the path, a folder for each version.
fn program(name: &str) -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|version| version.path().join("bin").join(name))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    let found = found.pop().or_else(|| on_path(name));
    found.unwrap_or_else(|| panic!("{name} is not installed: run scripts/test-tools"))
}
