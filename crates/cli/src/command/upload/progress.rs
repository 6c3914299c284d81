//! `upload progress NAME --upload-id ID`: how far the upload is, and every change, a line each, until it ends.

use std::io::Write as _;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt as _;
use quaymaster::upload::{Progress, Status};
use quaymaster::{Code, Error};
use quaymaster_server::{Depot, upload_error};
use tokio::signal::unix::{SignalKind, signal};

use super::INTERRUPTED;
use super::args::Follow;
use crate::args::Global;
use crate::command::serve::signalled;
use crate::failure::NothingRan;
use crate::output;
use crate::setup::{self, Intent};

/// Between two attempts to hear of it from a store that went away.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: Follow, global: &Global) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (quaymaster, depot) = setup::open_all(global, args.place, Intent::Look).await?;
    let followed = tokio::select! {
        followed = follow(&depot, &args.name, &args.upload_id) => followed,
        _ = signalled(&mut terminate, &mut interrupt) => Ok(ExitCode::from(INTERRUPTED)),
    };
    let closed = quaymaster.engine().close().await;
    let code = followed.map_err(NothingRan::from)?;
    closed?;
    Ok(code)
}

async fn follow(depot: &Depot, name: &str, id: &str) -> Result<ExitCode, Error> {
    let uploads = depot.open(name).await?;
    // Also makes the store say again what it has forgotten.
    if uploads.standing(id).await.map_err(upload_error)?.is_none() {
        let detail = format!("there is no upload {id}");
        return Err(Error::new("upload.progress", Code::UploadUnknown, detail));
    }
    let (mut seen, mut away) = (None, false);
    loop {
        let mut told = match uploads.store().progress(id).await {
            Ok(told) => pin!(told),
            // Whoever asks wrongly is told at once; a store that goes away later may come back.
            Err(error) if seen.is_none() => return Err(error),
            Err(error) => {
                say_away(&error, &mut away);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        loop {
            match told.next().await {
                Some(Ok(progress)) => {
                    away = false;
                    if seen.is_none_or(|seen| progress.seq > seen) {
                        seen = Some(progress.seq);
                        if let Some(code) = tell(&progress) {
                            return Ok(code);
                        }
                    }
                }
                // It was called off or forgotten, or the store has lost it, and is told again by this look.
                None => match uploads.standing(id).await {
                    Ok(Some(standing)) if !standing.state.is_ended() => {
                        tokio::time::sleep(PAUSE).await;
                        break;
                    }
                    Ok(Some(standing)) if standing.state.status == Status::Completed => {
                        return Ok(ExitCode::SUCCESS);
                    }
                    Ok(_) => return Ok(ExitCode::from(1)),
                    Err(error) => {
                        say_away(&upload_error(error), &mut away);
                        tokio::time::sleep(PAUSE).await;
                        break;
                    }
                },
                Some(Err(error)) if seen.is_none() => return Err(error),
                Some(Err(error)) => {
                    say_away(&error, &mut away);
                    tokio::time::sleep(PAUSE).await;
                    break;
                }
            }
        }
    }
}

fn say_away(error: &Error, away: &mut bool) {
    if !std::mem::replace(away, true) {
        output::error(&format!("{}; asking again", error.detail));
    }
}

/// Prints it; the exit code if it is the last.
fn tell(progress: &Progress) -> Option<ExitCode> {
    let line = serde_json::to_string(progress).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // Whoever read the lines may have gone (`| head`), and that ends the following.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        return Some(ExitCode::SUCCESS);
    }
    match Status::parse(&progress.status)? {
        Status::Completed => Some(ExitCode::SUCCESS),
        Status::Failed | Status::Expired => Some(ExitCode::from(1)),
        _ => None,
    }
}
