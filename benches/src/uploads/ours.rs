//! Our side: a server of its own for every run, and uploads sent to it.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::load::{Digest, Load};
use super::senders::together;
use super::wire::Connection;
use crate::Settings;
use crate::process::{Owned, free_port};

/// The reference system's own; what it takes from the environment is set per run.
const SCHEMA: &str = include_str!("../../../systems/uploads/schema.toml");

const RESOURCE: &str = "/v1/upload/documents";

/// How soon the end is looked for, once everything is acknowledged. Then ever more seldom: a look costs the server what
/// it could spend on the upload. Exact enough is a hundredth of what the whole has taken so far, and a tenth of what it
/// has taken since the last acknowledgement.
const LOOK: Duration = Duration::from_millis(2);
const OF_ALL: u32 = 100;
const SINCE_ACKED: u32 = 10;

/// No upload of these sizes takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server and its data folder.
#[derive(Debug)]
pub(super) struct Server {
    process: Owned,
    pub(super) port: u16,
    // After the process: that one must be gone when the folder is removed.
    _folder: tempfile::TempDir,
}

/// What makes a server another.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// Where its data folder is made; the disk under test unless said.
    pub(super) data: Option<PathBuf>,
    /// `redis://…`; the embedded store unless said.
    pub(super) store: Option<String>,
    /// What the schema and the object store take from the environment.
    pub(super) environment: Vec<(&'static str, String)>,
    /// Its settings file.
    pub(super) config: &'static str,
}

/// How an upload went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    /// From the request for an upload to the last look at it.
    pub(super) whole: Duration,
    /// From the first chunk to COMPLETED.
    pub(super) first_to_completed: Duration,
    /// From the last acknowledgement to COMPLETED.
    pub(super) acked_to_completed: Duration,
}

impl Server {
    pub(super) fn start(settings: &Settings, place: &Place) -> Result<Self> {
        let folder = match &place.data {
            Some(data) => tempfile::Builder::new().prefix("quaymaster-bench-").tempdir_in(data)?,
            None => settings.folder()?,
        };
        let schema = folder.path().join("schema.toml");
        std::fs::write(&schema, SCHEMA)?;
        // Found by its name, in the folder that the server begins in.
        std::fs::write(folder.path().join("quaymaster.toml"), place.config)?;
        let port = free_port()?;
        let mut command = Command::new(settings.server.canonicalize().context("the server is not built")?);
        command.current_dir(folder.path()).arg("serve").arg("--schema").arg(&schema);
        command.arg("--data-dir").arg(folder.path());
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        command.args(place.store.iter().flat_map(|store| ["--store", store]));
        // Somebody else's settings are no part of this.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if ["UPLOAD_", "AWS_", "QUAYMASTER_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&*name);
            }
        }
        command.envs(place.environment.iter().map(|(name, value)| (name, value)));
        Ok(Self { process: Owned::serving(command, port)?, port, _folder: folder })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// One small upload, so that tables are made and connections open before anything is timed.
    pub(super) async fn warm_up(&self) -> Result<()> {
        small(self.port, 64 << 10).await.map(drop)
    }
}

/// Sends the load as one upload, waits until it is COMPLETED, and looks at its size.
pub(super) async fn upload(port: u16, load: &Load, senders: usize) -> Result<(String, Took)> {
    let began = Instant::now();
    let mut watching = Connection::open(port).await?;
    let id = create(&mut watching, load.bytes()).await?;
    let first = Instant::now();
    together(senders, load.chunks, |numbers| {
        let (load, id) = (load.clone(), id.clone());
        async move {
            let mut connection = Connection::open(port).await?;
            while let Some(number) = numbers.take() {
                send(&mut connection, &id, &load, number).await?;
            }
            Ok(())
        }
    })
    .await?;
    let acked = Instant::now();
    completed(&mut watching, &id, load.bytes(), first, acked).await?;
    let done = Instant::now();
    let took =
        Took { whole: done - began, first_to_completed: done - first, acked_to_completed: done - acked };
    Ok((id, took))
}

/// Reads the object back through the server.
pub(super) async fn verify(port: u16, id: &str, load: &Load) -> Result<()> {
    let mut digest = Digest::new();
    let path = format!("{RESOURCE}/{id}/content");
    Connection::open(port).await?.read(&path, |piece| digest.update(piece)).await?;
    load.check("the upload", digest)
}

/// An upload of one chunk of `bytes`: how long from its chunk to COMPLETED.
pub(super) async fn small(port: u16, bytes: usize) -> Result<Took> {
    let began = Instant::now();
    let mut connection = Connection::open(port).await?;
    let id = create(&mut connection, bytes as u64).await?;
    let first = Instant::now();
    let body = [bytes::Bytes::from(vec![b'q'; bytes])];
    connection.ask("PUT", &format!("{RESOURCE}/{id}/chunk/0?last=true"), "", &body).await?.good()?;
    let acked = Instant::now();
    completed(&mut connection, &id, bytes as u64, first, acked).await?;
    let done = Instant::now();
    Ok(Took { whole: done - began, first_to_completed: done - first, acked_to_completed: done - acked })
}

async fn create(connection: &mut Connection, size: u64) -> Result<String> {
    let body = format!(r#"{{"name":"bench.bin","mime_type":"application/octet-stream","size":{size}}}"#);
    let path = format!("{RESOURCE}/create");
    let headers = "content-type: application/json\r\n";
    let answer = connection.ask("POST", &path, headers, &[body.into()]).await?.good()?.json()?;
    answer["upload_id"].as_str().map(str::to_owned).context("an upload without an id")
}

/// Sends a chunk, again whenever there is no room for it yet.
async fn send(connection: &mut Connection, id: &str, load: &Load, number: u32) -> Result<()> {
    let last = if load.is_last(number) { "?last=true" } else { "" };
    let path = format!("{RESOURCE}/{id}/chunk/{number}{last}");
    loop {
        let answer = connection.ask("PUT", &path, "", &load.chunk(number)).await?;
        if answer.status != 429 {
            answer.good()?;
            return Ok(());
        }
        let wait = answer.header("retry-after").and_then(|seconds| seconds.parse().ok()).unwrap_or(1);
        tokio::time::sleep(Duration::from_secs(wait)).await;
        // What is refused may have cost the connection.
        connection.reopen().await?;
    }
}

/// Looks until it is COMPLETED, with the right size.
async fn completed(
    connection: &mut Connection,
    id: &str,
    size: u64,
    first: Instant,
    acked: Instant,
) -> Result<()> {
    let (path, until) = (format!("{RESOURCE}/{id}"), Instant::now() + PATIENCE);
    loop {
        let state = connection.ask("GET", &path, "", &[]).await?.good()?.json()?;
        match state["status"].as_str() {
            Some("COMPLETED") => {
                let found = state["final_size"].as_u64();
                ensure!(found == Some(size), "COMPLETED with {found:?} bytes, not {size}");
                return Ok(());
            }
            Some("PENDING" | "UPLOADING" | "COMPLETING") if Instant::now() < until => {}
            _ => bail!("the upload does not complete: {state}"),
        }
        tokio::time::sleep(LOOK.max((first.elapsed() / OF_ALL).min(acked.elapsed() / SINCE_ACKED))).await;
    }
}
