//! A Redis that can be stopped and started again on the same folder.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::servers::free_address;
use crate::servers::process::Process;

pub struct Redis {
    process: Process,
    address: SocketAddr,
    folder: TempDir,
}

impl Redis {
    pub fn start() -> Self {
        let folder = TempDir::new().unwrap();
        loop {
            let address = free_address();
            if let Some(process) = launch(folder.path(), address) {
                return Self { process, address, folder };
            }
        }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// kill -9, and the same again with nothing of what it had.
    pub fn restart_empty(&mut self) {
        self.process.kill9();
        let gone = std::fs::remove_dir_all(self.folder.path().join("appendonlydir"));
        gone.unwrap();
        let launched = launch(self.folder.path(), self.address);
        self.process = launched.expect("its port is still free");
    }

    /// How long its log of commands is, with all that it has acknowledged.
    pub fn logged(&self) -> u64 {
        self.settle();
        std::fs::metadata(self.log()).unwrap().len()
    }

    /// While the disk is busy with the sync before, `everysec` acknowledges what it has not yet written.
    pub fn settle(&self) {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        loop {
            let info: String = redis::cmd("INFO").arg("persistence").query(&mut connection).unwrap();
            if info.lines().any(|line| line == "aof_buffer_length:0") {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// kill -9, and the same again from a log that ends here: the rest had not reached the disk when the machine went
    /// down, as the last second of `everysec`.
    pub fn restart_from(&mut self, logged: u64) {
        self.process.kill9();
        let log = std::fs::File::options().write(true).open(self.log()).unwrap();
        log.set_len(logged.min(log.metadata().unwrap().len())).unwrap();
        self.process = launch(self.folder.path(), self.address).expect("its port is still free");
    }

    /// The newest file of its log.
    fn log(&self) -> PathBuf {
        let files = std::fs::read_dir(self.folder.path().join("appendonlydir")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        files.filter(|file| file.display().to_string().ends_with(".incr.aof")).max().unwrap()
    }

    /// kill -9, and the same again from its log of commands.
    pub fn restart(&mut self) {
        self.process.kill9();
        self.process = launch(self.folder.path(), self.address).expect("its port is still free");
    }
}

/// `None` when it ended before it took connections, as it does when the port was taken.
fn launch(folder: &Path, address: SocketAddr) -> Option<Process> {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let args: Vec<String> = ["--bind", &ip, "--port", &port, "--dir"]
        .into_iter()
        .map(str::to_owned)
        .chain([folder.display().to_string()])
        .chain(["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"].map(str::to_owned))
        .collect();
    let mut process = Process::spawn(Path::new("redis-server"), &args, &[], &folder.join("server.log"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).is_err() {
        if process.ended().is_some() {
            return None;
        }
        assert!(Instant::now() < deadline, "{}", process.log_tail());
        std::thread::sleep(Duration::from_millis(5));
    }
    process.ended().is_none().then_some(process)
}
