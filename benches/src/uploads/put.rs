//! The other floor: a server that writes the body of a PUT to a file, a thread for each connection, and syncs it before it
//! answers. No library, no digest, no memory of anything: as little as can stand between a client and a disk.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::load::{Digest, Load};
use super::senders::together;
use super::wire::Connection;
use crate::process::{Owned, free_port};
use crate::sample::Sample;

/// Read and written at once.
const PIECE: usize = 256 << 10;

/// The server's part of `--put PORT --to FOLDER`; ends with its process.
pub(crate) fn serve(port: u16, folder: &Path) -> Result<()> {
    for stream in TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.incoming() {
        let (stream, folder) = (stream?, folder.to_owned());
        std::thread::spawn(move || {
            if let Err(error) = answer(stream, &folder) {
                eprintln!("PUT: {error:#}");
            }
        });
    }
    Ok(())
}

fn answer(stream: TcpStream, folder: &Path) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::with_capacity(PIECE, stream);
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let name = line.split_whitespace().nth(1).map(|path| path.trim_start_matches('/').to_owned());
        let name = name.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let path = folder.join(name.with_context(|| format!("not a number: {line}"))?);
        let mut length = None;
        loop {
            line.clear();
            input.read_line(&mut line)?;
            match line.split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = Some(value.trim().parse::<u64>()?);
                }
                Some(_) => {}
                None => break,
            }
        }
        let length = length.context("a body of no known length")?;
        let mut file = File::create(path)?;
        let copied = std::io::copy(&mut input.by_ref().take(length), &mut file)?;
        ensure!(copied == length, "the body broke off");
        file.sync_all()?;
        input.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    }
}

/// The server in a process of its own, as ours is.
pub(super) struct Server {
    process: Owned,
    port: u16,
    folder: PathBuf,
}

impl Server {
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--put", &port.to_string(), "--to"]).arg(folder);
        Ok(Self { process: Owned::serving(command, port)?, port, folder: folder.to_owned() })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) async fn upload(&self, load: &Load, senders: usize) -> Result<Sample> {
        let (began, port) = (Instant::now(), self.port);
        together(senders, load.chunks, |numbers| {
            let load = load.clone();
            async move {
                let mut connection = Connection::open(port).await?;
                while let Some(number) = numbers.take() {
                    connection.ask("PUT", &format!("/{number}"), "", &load.chunk(number)).await?.good()?;
                }
                Ok(())
            }
        })
        .await?;
        Ok(Sample::new(load.mib(), began.elapsed()))
    }

    pub(super) fn verify(&self, load: &Load) -> Result<()> {
        let mut digest = Digest::new();
        for number in 0..load.chunks {
            digest.update(&std::fs::read(self.folder.join(number.to_string()))?);
        }
        load.check("the files", digest)
    }
}
