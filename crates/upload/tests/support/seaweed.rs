//! One SeaweedFS with its S3 gateway and an empty bucket.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::servers::process::Process;
use crate::servers::{free_address, own_ip};
use quaymaster_upload::objects::{About, Credentials, Objects, ObjectsOptions};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(90);
/// Of its one identity, `quay`.
pub const SECRET: &str = "master-secret";

/// SeaweedFS also listens on 127.0.0.1 and on sockets in /tmp that are named after its ports, so nobody else may have
/// the number.
fn free_port() -> u16 {
    loop {
        let port = free_address().port();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A running server.
pub struct Seaweed {
    address: SocketAddr,
    _process: Process,
    // After the process: that one must be gone when the folder is removed.
    _folder: TempDir,
}

impl Seaweed {
    /// Starts one on the test's own address and waits until its bucket `quay` is there.
    pub async fn start() -> Self {
        loop {
            if let Some(server) = Self::launch().await {
                return server;
            }
        }
    }

    /// `None` when it ended before it was ready, as it does when a port was taken.
    async fn launch() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("quaymaster-seaweed-").tempdir().unwrap();
        let config = folder.path().join("s3.json");
        let identity = format!(
            "{{\"identities\":[{{\"name\":\"q\",\"credentials\":[{{\"accessKey\":\"quay\",\"secretKey\":\"{SECRET}\"}}],\
             \"actions\":[\"Admin\",\"Read\",\"Write\",\"List\"]}}]}}"
        );
        std::fs::write(&config, identity).unwrap();
        let ports: Vec<u16> = (0..8).map(|_| free_port()).collect();
        let address = SocketAddr::from((own_ip(), ports[6]));
        let mut args: Vec<String> = [
            "server",
            &format!("-ip={}", own_ip()),
            &format!("-ip.bind={}", own_ip()),
            "-s3",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=40",
            "-volume.preStopSeconds=0",
            // By default it takes no more objects once a hundredth of the disk is left, however much that is.
            "-volume.minFreeSpace=64MiB",
        ]
        .map(str::to_owned)
        .to_vec();
        let names = ["master", "volume", "filer", "s3"];
        for (name, ports) in names.iter().zip(ports.chunks(2)) {
            args.push(format!("-{name}.port={}", ports[0]));
            args.push(format!("-{name}.port.grpc={}", ports[1]));
        }
        args.push(format!("-dir={}", folder.path().display()));
        args.push(format!("-s3.config={}", config.display()));
        let mut process = Process::spawn(&program(), &args, &[], &folder.path().join("server.log"));
        let deadline = Instant::now() + PATIENCE;
        let objects = Objects::open("s3://quay", &options(address)).await.unwrap();
        // A bucket is made by the first request that wants it, once every part of the server has found the others.
        loop {
            if process.ended().is_some() {
                let log = process.log_tail();
                assert!(log.contains("address already in use"), "SeaweedFS did not start:\n{log}");
                return None;
            }
            if make_bucket(address).await && objects.put_empty("ready", &About::default()).await.is_ok() {
                return Some(Self { address, _process: process, _folder: folder });
            }
            assert!(Instant::now() < deadline, "SeaweedFS is not ready:\n{}", process.log_tail());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// How to reach a server, or what stands before it.
pub fn options(address: SocketAddr) -> ObjectsOptions {
    ObjectsOptions {
        endpoint: Some(format!("http://{address}")),
        region: Some("us-east-1".to_owned()),
        credentials: Some(Credentials { key_id: "quay".to_owned(), secret: SECRET.to_owned(), token: None }),
        retries: 0,
        ..ObjectsOptions::default()
    }
}

/// A bucket is an object store's `PUT /bucket`, which none of our own calls says: asked for as an object without a key.
async fn make_bucket(address: SocketAddr) -> bool {
    use object_store::aws::{AwsAuthorizer, AwsCredential};
    use object_store::client::{HttpRequest, HttpRequestBody};
    let url = format!("http://{address}/quay");
    let credential = AwsCredential { key_id: "quay".to_owned(), secret_key: SECRET.to_owned(), token: None };
    let mut request: HttpRequest = http::Request::put(&url).body(HttpRequestBody::empty()).unwrap();
    AwsAuthorizer::new(&credential, "s3", "us-east-1").try_authorize(&mut request, None).unwrap();
    let asked = reqwest::Client::new().put(&url).headers(request.headers().clone()).send().await;
    asked.is_ok_and(|answer| answer.status().is_success() || answer.status().as_u16() == 409)
}

fn program() -> PathBuf {
    let tools = std::env::var_os("QUAYMASTER_TEST_TOOLS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools"),
        PathBuf::from,
    );
    let program = tools.join("venv/bin/weed");
    assert!(program.is_file(), "SeaweedFS is not installed: run scripts/test-tools");
    program
}
