//! A SeaweedFS of our own with its S3 gateway and an empty bucket. It syncs nothing by itself.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpRequest, HttpRequestBody};

use super::wire::Connection;
use crate::Settings;
use crate::process::{Owned, free_port};

pub(super) const BUCKET: &str = "quay";
pub(super) const KEY_ID: &str = "quay";
pub(super) const SECRET: &str = "bench-secret";

/// How long its parts may take to find each other.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of starting one whose ports somebody takes.
const TRIES: usize = 5;

pub(super) struct Seaweed {
    process: Owned,
    pub(super) port: u16,
    // After the process: that one must be gone when the folder is removed.
    _folder: tempfile::TempDir,
}

impl Seaweed {
    /// Its parts connect to each other while they start, from ports that may have been free for the next of them.
    pub(super) async fn start(settings: &Settings) -> Result<Self> {
        for _ in 1..TRIES {
            match Self::launch(settings).await {
                Err(error) if format!("{error:#}").contains("address already in use") => {}
                started => return started,
            }
        }
        Self::launch(settings).await
    }

    async fn launch(settings: &Settings) -> Result<Self> {
        let folder = settings.folder()?;
        let config = folder.path().join("s3.json");
        let identity = serde_json::json!({ "identities": [{
            "name": "bench",
            "credentials": [{ "accessKey": KEY_ID, "secretKey": SECRET }],
            "actions": ["Admin", "Read", "Write", "List"],
        }] });
        std::fs::write(&config, identity.to_string())?;
        let program = settings.tools.join("venv/bin/weed");
        ensure!(program.is_file(), "SeaweedFS is not installed: run scripts/test-tools");
        let mut command = Command::new(program);
        command.args([
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-s3",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=1024",
            "-volume.max=40",
            "-volume.preStopSeconds=0",
            "-volume.minFreeSpace=64MiB",
        ]);
        let mut s3 = 0;
        for name in ["master", "volume", "filer", "s3"] {
            let (port, grpc) = (free_port()?, free_port()?);
            command.arg(format!("-{name}.port={port}")).arg(format!("-{name}.port.grpc={grpc}"));
            s3 = port;
        }
        command.arg(format!("-dir={}", folder.path().display()));
        command.arg(format!("-s3.config={}", config.display()));
        let started = Self { process: Owned::serving(command, s3)?, port: s3, _folder: folder };
        let until = Instant::now() + PATIENCE;
        while let Err(error) = started.make_bucket().await {
            ensure!(Instant::now() < until, "SeaweedFS has no bucket: {error:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(started)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What our server takes it from.
    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("UPLOAD_OBJECTS", format!("s3://{BUCKET}/bench")),
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ACCESS_KEY_ID", KEY_ID.into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.into()),
        ]
    }

    /// `PUT /bucket`, and a small object in it: only then has every part found the others.
    async fn make_bucket(&self) -> Result<()> {
        let mut connection = Connection::open(self.port).await?;
        for path in [format!("/{BUCKET}"), format!("/{BUCKET}/ready")] {
            let headers = self.signed(&path)?;
            let answer = connection.ask("PUT", &path, &headers, &[]).await?;
            if answer.status != 409 {
                answer.good()?;
            }
        }
        Ok(())
    }

    /// The headers that sign a PUT without a body.
    fn signed(&self, path: &str) -> Result<String> {
        let credential =
            AwsCredential { key_id: KEY_ID.to_owned(), secret_key: SECRET.to_owned(), token: None };
        let uri = format!("http://127.0.0.1:{}{path}", self.port);
        let mut request: HttpRequest = http::Request::put(uri).body(HttpRequestBody::empty())?;
        AwsAuthorizer::new(&credential, "s3", "us-east-1").try_authorize(&mut request, None)?;
        let mut headers = String::new();
        for (name, value) in request.headers() {
            if name != http::header::HOST {
                write!(headers, "{name}: {}\r\n", value.to_str()?)?;
            }
        }
        Ok(headers)
    }
}
