//! `upload put FILE…`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use quaymaster::schema::Kind;
use quaymaster::{Code, Error, Quaymaster};
use quaymaster_server::{Depot, upload_request};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::args::{Put, fields_of_put};
use super::bar::{Bar, Doing};
use super::file::{Sending, Uploaded, name_of};
use super::remote::Remote;
use super::way::Way;
use super::{INTERRUPTED, resource};
use crate::args::Global;
use crate::command::call::in_flags;
use crate::command::serve::signalled;
use crate::setup::{self, Intent};
use crate::{failure, output};

/// How long chunks on their way may take when all files are done.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) async fn run(put: Put, global: &Global) -> anyhow::Result<ExitCode> {
    check(&put)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (way, help) = tokio::select! {
        opened = open(&put, global) => opened?,
        _ = signalled(&mut terminate, &mut interrupt) => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let mut ended: Vec<(&Path, Result<Uploaded, Value>)> = Vec::new();
    let mut failed = None;
    for path in &put.files {
        let size = std::fs::metadata(path).map_or(0, |facts| facts.len());
        let bar = Bar::new(Doing::Sending, name_of(path), size);
        let sending = Sending { way: &way, put: &put, path, bar: &bar };
        let sent = tokio::select! {
            sent = sending.run() => Some(sent),
            _ = signalled(&mut terminate, &mut interrupt) => None,
        };
        bar.end();
        let Some(sent) = sent else {
            output::error(&format!("interrupted; {}", put.afterwards()));
            failed = Some(ExitCode::from(INTERRUPTED));
            break;
        };
        let sent = sent.map_err(|error| {
            // The files that are there are told all the same.
            output::error(&format!("{}: {}", path.display(), failure::describe(&error)));
            failed.get_or_insert(failure::exit_code(&error));
            failure_of(&error)
        });
        ended.push((path, sent));
    }
    for path in &put.files[ended.len()..] {
        ended.push((path, Err(json!({ "error": "interrupted" }))));
    }
    if let Some(help) = help {
        // Chunks that nobody would ship until their leases end are given back; a second signal does not wait for that.
        tokio::select! {
            ended = help.end() => ended?,
            _ = signalled(&mut terminate, &mut interrupt) => failed = Some(ExitCode::from(INTERRUPTED)),
        }
    }
    let text =
        if global.json { as_json(&ended).to_string() } else { output::printable_lines(&as_text(&ended)) };
    if !text.is_empty() {
        output::print(&text)?;
    }
    Ok(failed.unwrap_or(ExitCode::SUCCESS))
}

/// Refuses flags that nobody would take, before anything is opened.
fn check(put: &Put) -> anyhow::Result<()> {
    for (name, flag) in [("name", "--name"), ("node_id", "--node-id")] {
        if put.files.len() > 1 && put.given.fields.contains_key(name) {
            let detail = format!("{flag} is for one file, and several are given");
            return Err(Error::new("upload.put", Code::RequestInvalid, detail).field(flag).into());
        }
    }
    for path in &put.files {
        upload_request(&put.fields(path)?).map_err(|error| in_flags(error, fields_of_put()))?;
    }
    Ok(())
}

/// Where the files go; straight on the store, this process also ships and completes.
async fn open(put: &Put, global: &Global) -> anyhow::Result<(Way, Option<Help>)> {
    let place = put.place.clone();
    if let Some(client) = put.remote.client()? {
        // The server's schema may be another one than the one here, so nothing is looked up here.
        let Some(name) = &put.resource else {
            let detail = "--resource is needed with --server: it names the upload in the server's schema";
            return Err(Error::new("upload.put", Code::RequestInvalid, detail).field("--resource").into());
        };
        return Ok((Way::Server(Remote::new(client, name)?), None));
    }
    let (quaymaster, depot) =
        setup::open_for_call(global, place, Intent::Change, Kind::Upload, put.resource.as_deref()).await?;
    let name = resource(quaymaster.schema(), put.resource.clone())?;
    quaymaster.upload(&name)?;
    depot.examine(&quaymaster).await?;
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

/// Why a file is not there, for programs: the problem document that a call would have got.
fn failure_of(error: &anyhow::Error) -> Value {
    let problem: Value = serde_json::from_str(&failure::problem(error)).unwrap_or_default();
    json!({ "error": problem["detail"], "code": problem["code"], "problem": problem })
}

fn as_json(ended: &[(&Path, Result<Uploaded, Value>)]) -> Value {
    let files = ended.iter().map(|(path, ended)| match ended {
        Ok(uploaded) => json!({
            "file": path.display().to_string(),
            "upload_id": uploaded.upload_id,
            "node_id": uploaded.node_id,
            "size": uploaded.size,
            "sha256": uploaded.sha256.map(|sha| sha.to_string()),
            "kept_bytes": uploaded.kept,
        }),
        Err(why) => {
            let mut told = why.clone();
            told["file"] = json!(path.display().to_string());
            told
        }
    });
    json!({ "files": files.collect::<Vec<_>>() })
}

/// The files that are there; the others were told as they failed.
fn as_text(ended: &[(&Path, Result<Uploaded, Value>)]) -> String {
    let mut text = String::new();
    for (path, ended) in ended {
        let Ok(Uploaded { upload_id, node_id, size, sha256, .. }) = ended else { continue };
        let sha = sha256.map_or_else(|| "not compared".to_owned(), |sha| sha.to_string());
        let _ = writeln!(text, "{}", path.display());
        let _ =
            writeln!(text, "  upload  {upload_id}\n  node    {node_id}\n  size    {size}\n  sha256  {sha}");
    }
    text
}
