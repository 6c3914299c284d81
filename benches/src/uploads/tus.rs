//! `@tus/server`: the resumable uploads most services have. One upload takes one PATCH at a time, by its protocol.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::load::{CHUNK, Load};
use super::seaweed::{BUCKET, KEY_ID, SECRET};
use super::wire::Connection;
use crate::Settings;
use crate::process::{Owned, free_port};
use crate::sample::Sample;

/// Where it keeps what it gets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Store<'a> {
    /// In files, each PATCH synced before it is answered, as our chunks are.
    Files(&'a Path),
    /// In an object store.
    S3 { port: u16 },
}

pub(super) struct Server {
    process: Owned,
    port: u16,
}

impl Server {
    pub(super) fn start(settings: &Settings, store: Store<'_>) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new("node");
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/tus.mjs"))
            .env("NODE_MODULES", &settings.node)
            .env("PORT", port.to_string())
            .env("CHUNK", CHUNK.to_string());
        match store {
            Store::Files(folder) => command.env("STORE", "file").env("FOLDER", folder),
            Store::S3 { port } => command
                .env("STORE", "s3")
                .env("ENDPOINT", format!("http://127.0.0.1:{port}"))
                .env("BUCKET", BUCKET)
                .env("KEY_ID", KEY_ID)
                .env("SECRET", SECRET),
        };
        Ok(Self { process: Owned::serving(command, port)?, port })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends the load as one upload; its name in the store, and how long that took.
    pub(super) async fn upload(&self, load: &Load) -> Result<(String, Sample)> {
        let began = Instant::now();
        let name = self.send(load).await?;
        Ok((name, Sample::new(load.mib(), began.elapsed())))
    }

    async fn send(&self, load: &Load) -> Result<String> {
        const VERSION: &str = "tus-resumable: 1.0.0\r\n";
        let mut connection = Connection::open(self.port).await?;
        let headers = format!("{VERSION}upload-length: {}\r\n", load.bytes());
        let created = connection.ask("POST", "/files", &headers, &[]).await?.good()?;
        let location = created.header("location").context("an upload without its place")?;
        let at = location.find("/files/").with_context(|| format!("an unknown place: {location}"))?;
        let path = location[at..].to_owned();
        for number in 0..load.chunks {
            let offset = u64::from(number) * CHUNK as u64;
            let headers = format!(
                "{VERSION}upload-offset: {offset}\r\ncontent-type: application/offset+octet-stream\r\n"
            );
            connection.ask("PATCH", &path, &headers, &load.chunk(number)).await?.good()?;
        }
        Ok(path["/files/".len()..].to_owned())
    }
}
