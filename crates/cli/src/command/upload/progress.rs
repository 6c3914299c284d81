//! `upload progress NAME --upload-id ID`: how far the upload is, and every change, a line each, until it ends.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt as _;
use quaymaster::upload::{Progress, Status};
use quaymaster::{Code, Error};

use super::args::Follow;
use super::looking::look;
use super::way::{Tried, Trying, Way};
use crate::args::Global;
use crate::failure::NothingRan;
use crate::output;

/// Between two attempts to hear of it from a store or a server that went away.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: Follow, global: &Global) -> anyhow::Result<ExitCode> {
    let id = &args.upload_id;
    let followed = async |way: &Way| Ok(follow(way, id).await.map_err(NothingRan::from)?);
    look(&args.remote, &args.name, args.place, global, followed).await
}

/// Where a follower is.
#[derive(Default)]
struct Heard {
    /// The number of the last progress that was printed.
    seen: Option<u64>,
    /// It was said that nobody answers.
    away: bool,
}

async fn follow(way: &Way, id: &str) -> Result<ExitCode, Error> {
    // Also makes the store say again what it has forgotten.
    if way.standing(id).await.map_err(Trying::error)?.is_none() {
        let detail = format!("there is no upload {id}");
        return Err(Error::new("upload.progress", Code::UploadUnknown, detail));
    }
    let mut heard = Heard::default();
    loop {
        match listen(way, id, &mut heard).await {
            Ok(Some(code)) => return Ok(code),
            Ok(None) => {}
            // Whoever asks wrongly is told at once; what goes away later may come back.
            Err(Trying::Never(error)) => return Err(error),
            Err(Trying::Later(_, error)) if heard.seen.is_none() => return Err(error),
            Err(Trying::Later(_, error)) => {
                if !std::mem::replace(&mut heard.away, true) {
                    output::error(&format!("{}; asking again", error.detail));
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Prints what comes until nothing more does; the exit code if the upload has ended.
async fn listen(way: &Way, id: &str, heard: &mut Heard) -> Tried<Option<ExitCode>> {
    let mut told = way.progress(id).await?;
    while let Some(progress) = told.next().await {
        let progress = progress?;
        heard.away = false;
        if heard.seen.is_none_or(|seen| progress.seq > seen) {
            heard.seen = Some(progress.seq);
            if let Some(code) = tell(&progress) {
                return Ok(Some(code));
            }
        }
    }
    // It was called off or forgotten, or the store has lost it, and is told again by this look.
    Ok(match way.standing(id).await? {
        Some(seen) if seen.status == Status::Completed => Some(ExitCode::SUCCESS),
        Some(seen) if !seen.aborted && seen.status != Status::Expired => None,
        _ => Some(ExitCode::from(1)),
    })
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
