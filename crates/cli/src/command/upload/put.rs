//! `upload put FILE…`.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use quaymaster::Quaymaster;
use quaymaster_server::Depot;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::args::Put;
use super::file::{Sending, Uploaded};
use super::remote::Remote;
use super::resource;
use super::way::Way;
use crate::args::Global;
use crate::command::serve::signalled;
use crate::setup::{self, Intent};
use crate::{failure, output};

/// Nothing is shown before this.
const QUICK: Duration = Duration::from_millis(500);
/// Between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(2);
/// How long chunks on their way may take when all files are done.
const GRACE: Duration = Duration::from_secs(10);

/// The token that a server wants.
const TOKEN: &str = "QUAYMASTER_TOKEN";

/// What a shell gives for a command that was interrupted.
const INTERRUPTED: u8 = 130;

pub(crate) async fn run(put: Put, global: &Global) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (way, help) = tokio::select! {
        opened = open(&put, global) => opened?,
        _ = signalled(&mut terminate, &mut interrupt) => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let mut done = Vec::new();
    let mut failed = None;
    for path in &put.files {
        let bar = Bar::new(path);
        let tell = |bytes: u64| bar.more(bytes);
        let sending = Sending { way: &way, put: &put, path, tell: &tell };
        let ended = tokio::select! {
            ended = sending.run() => Some(ended),
            _ = signalled(&mut terminate, &mut interrupt) => None,
        };
        bar.end();
        let Some(ended) = ended else {
            output::error("interrupted; the same command goes on where it was");
            failed = Some(ExitCode::from(INTERRUPTED));
            break;
        };
        match ended {
            Ok(uploaded) => done.push((path, uploaded)),
            Err(error) => {
                // The files that are there are told all the same.
                output::error(&format!("{}: {}", path.display(), failure::describe(&error)));
                failed.get_or_insert(failure::exit_code(&error));
            }
        }
    }
    if let Some(help) = help {
        // Chunks that nobody would ship until their leases end are given back; a second signal does not wait for that.
        tokio::select! {
            ended = help.end() => ended?,
            _ = signalled(&mut terminate, &mut interrupt) => failed = Some(ExitCode::from(INTERRUPTED)),
        }
    }
    if !done.is_empty() {
        output::print(&shown(&done, put.json))?;
    }
    Ok(failed.unwrap_or(ExitCode::SUCCESS))
}

/// Where the files go; straight on the store, this process also ships and completes.
async fn open(put: &Put, global: &Global) -> anyhow::Result<(Way, Option<Help>)> {
    let place = put.place.clone();
    if let Some(server) = &put.server {
        let config = setup::config(global, setup::overrides(place))?;
        // The server's schema may be another one: a name that was given is taken as it is.
        let name = match &put.resource {
            Some(name) => name.clone(),
            None => resource(&*setup::usable(setup::load(&config.schemas)?)?, None)?,
        };
        let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
        return Ok((Way::Server(Remote::new(server, &name, token)?), None));
    }
    let (quaymaster, depot) = setup::open_all(global, place, Intent::Change).await?;
    let name = resource(quaymaster.schema(), put.resource.clone())?;
    let uploads = depot.open(&name).await?;
    Ok((Way::Store(uploads), Some(Help::begin(quaymaster, depot))))
}

/// Ships and completes beside whoever else does.
struct Help {
    quaymaster: Quaymaster,
    stop: CancellationToken,
    working: JoinHandle<()>,
}

impl Help {
    fn begin(quaymaster: Quaymaster, depot: Depot) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let working = tokio::spawn(async move { depot.work(&stopped, GRACE).await });
        Self { quaymaster, stop, working }
    }

    async fn end(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.working.await?;
        self.quaymaster.engine().close().await?;
        Ok(())
    }
}

fn shown(done: &[(&std::path::PathBuf, Uploaded)], as_json: bool) -> String {
    if as_json {
        let files = done.iter().map(|(path, uploaded)| {
            json!({
                "file": path.display().to_string(),
                "upload_id": uploaded.upload_id,
                "node_id": uploaded.node_id,
                "size": uploaded.size,
                "sha256": uploaded.sha256.map(|sha| sha.to_string()),
                "kept_bytes": uploaded.kept,
            })
        });
        return json!({ "files": files.collect::<Vec<_>>() }).to_string();
    }
    let mut text = String::new();
    for (path, uploaded) in done {
        let sha = uploaded.sha256.map_or_else(|| "not compared".to_owned(), |sha| sha.to_string());
        let Uploaded { upload_id, node_id, size, .. } = uploaded;
        let _ = writeln!(text, "{}", path.display());
        let _ =
            writeln!(text, "  upload  {upload_id}\n  node    {node_id}\n  size    {size}\n  sha256  {sha}");
    }
    text
}

/// How far a file is: a bar on a terminal, plain lines elsewhere, and nothing for what is quick.
struct Bar {
    name: String,
    size: u64,
    sent: AtomicU64,
    state: Mutex<(Instant, Option<ProgressBar>)>,
}

impl Bar {
    fn new(path: &Path) -> Self {
        let size = std::fs::metadata(path).map_or(0, |facts| facts.len());
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self { name, size, sent: AtomicU64::new(0), state: Mutex::new((Instant::now() + QUICK, None)) }
    }

    fn more(&self, bytes: u64) {
        let sent = self.sent.fetch_add(bytes, Relaxed) + bytes;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, bar) = &mut *state;
        if let Some(bar) = bar {
            bar.set_position(sent);
        } else if Instant::now() >= *next {
            if std::io::stderr().is_terminal() {
                let template = "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
                let shown = ProgressBar::new(self.size).with_message(self.name.clone());
                if let Ok(style) = ProgressStyle::with_template(template) {
                    shown.set_style(style);
                }
                shown.set_position(sent);
                *bar = Some(shown);
            } else {
                eprintln!("{}: {} of {} sent", self.name, HumanBytes(sent), HumanBytes(self.size));
                *next = Instant::now() + LINES;
            }
        }
    }

    fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = state.1.take() {
            bar.finish_and_clear();
        }
    }
}
