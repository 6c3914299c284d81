//! Brokers that can be away for a while.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tempfile::TempDir;

use crate::servers::free_address;
use crate::servers::process::Process;
use crate::topic::TOPIC;

/// Longer than any start takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) trait Broker {
    /// `host:port`.
    fn address(&self) -> String;
    /// Nobody can reach it from now on.
    fn go(&mut self);
    /// It is there again, with all that it had.
    fn come_back(&mut self);
}

/// librdkafka's own, in this process. It keeps its port while it is away.
pub(crate) struct Mock(MockCluster<'static, DefaultProducerContext>);

impl Mock {
    pub(crate) fn start() -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, 3, 1).unwrap();
        Self(cluster)
    }
}

impl Broker for Mock {
    fn address(&self) -> String {
        self.0.bootstrap_servers()
    }

    fn go(&mut self) {
        self.0.broker_down(1).unwrap();
    }

    fn come_back(&mut self) {
        self.0.broker_up(1).unwrap();
    }
}

/// A broker that shares no code with the client, and keeps its topics in a file.
pub(crate) struct Tansu {
    process: Process,
    address: SocketAddr,
    // After the process: that one must be gone when the folder is removed.
    folder: TempDir,
}

impl Tansu {
    pub(crate) fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("quaymaster-tansu-").tempdir().unwrap();
        let (process, address) = loop {
            let address = free_address();
            if let Some(process) = launch(&folder, address) {
                break (process, address);
            }
        };
        let broker = Self { process, address, folder };
        let mut create = Command::new(program());
        create.args(["topic", "create", TOPIC, "--partitions", "3", "--broker"]);
        let made = create.arg(format!("tcp://{}", broker.address())).output().unwrap();
        assert!(made.status.success(), "no topic: {made:?}");
        broker
    }
}

impl Broker for Tansu {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn go(&mut self) {
        self.process.kill9();
    }

    fn come_back(&mut self) {
        self.process = launch(&self.folder, self.address).unwrap();
    }
}

/// `None` when it ended before it was ready, as it does when the port was taken.
fn launch(folder: &TempDir, address: SocketAddr) -> Option<Process> {
    let url = format!("tcp://{address}");
    // Its files lie where it was started, whatever path it is given.
    let mut args =
        vec!["-C".to_owned(), folder.path().display().to_string(), program().display().to_string()];
    args.extend(["broker", "--listener-url", &url, "--advertised-listener-url", &url].map(str::to_owned));
    args.extend(["--storage-engine", "sqlite://topics.db"].map(str::to_owned));
    let mut process = Process::spawn(Path::new("env"), &args, &[], &folder.path().join("broker.log"));
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        if process.ended().is_some() {
            let log = process.log_tail();
            assert!(log.contains("in use"), "tansu did not start:\n{log}");
            return None;
        }
        assert!(Instant::now() < deadline, "tansu is not ready:\n{}", process.log_tail());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Somebody else may answer there.
    process.ended().is_none().then_some(process)
}

fn program() -> PathBuf {
    let program = crate::servers::tools::installed().join("cargo/bin/tansu");
    assert!(program.is_file(), "tansu is not installed: scripts/soak builds it");
    program
}
