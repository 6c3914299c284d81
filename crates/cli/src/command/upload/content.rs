//! `upload content NAME --upload-id ID [--output FILE]`.

use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

use super::args::Content;
use super::bar::{Bar, Doing};
use super::file::name_of;
use super::looking::look;
use super::reading::Reading;
use super::way::Way;
use crate::args::Global;
use crate::failure::{Cause, NothingRan, Unreadable, describe, exit_code};
use crate::output;

pub(crate) async fn run(args: Content, global: &Global) -> anyhow::Result<ExitCode> {
    let (id, output) = (&args.upload_id, args.output.as_deref());
    let printed = AtomicBool::new(false);
    // What is half written is removed when it is dropped, which a signal does too.
    let copied = async |way: &Way| copy(way, id, output, &printed).await.map(|()| ExitCode::SUCCESS);
    match look(&args.remote, &args.name, args.place, global, copied).await {
        // A problem document (`--json`) behind the bytes would be read as more of them.
        Err(error) if printed.load(Relaxed) => {
            output::error(&describe(&error));
            Ok(exit_code(&error))
        }
        ended => ended,
    }
}

/// Copies the content to the file, or to standard output, and sets `printed` once bytes may be there.
async fn copy(way: &Way, id: &str, output: Option<&Path>, printed: &AtomicBool) -> anyhow::Result<()> {
    // Before there is a file for it.
    let mut content = Reading::begin(way, id).await.map_err(NothingRan::from)?;
    let Some(output) = output else {
        let shown = if std::io::stdout().is_terminal() { None } else { Some(id.to_owned()) };
        let stdout = std::io::stdout().as_fd().try_clone_to_owned()?;
        let mut stdout = File::from_std(std::fs::File::from(stdout));
        let poured = pour(&mut content, &mut stdout, shown).await;
        printed.store(content.has_begun(), Relaxed);
        return match poured {
            // Whoever read it may have enough (`| head`).
            Err(Stop::Write(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            poured => poured.map_err(|stop| stop.told(Path::new("stdout"))),
        };
    };
    let mut target = Target::open(output).await.map_err(|error| unwritable(output, error))?;
    let poured = pour(&mut content, &mut target.file, Some(name_of(output))).await;
    poured.map_err(|stop| stop.told(output))?;
    target.keep().await.map_err(|error| unwritable(output, error))?;
    Ok(())
}

/// What a copy ended with.
enum Stop {
    Read(quaymaster::Error),
    Write(std::io::Error),
}

impl Stop {
    fn told(self, to: &Path) -> anyhow::Error {
        match self {
            Self::Read(error) => NothingRan::from(error).into(),
            Self::Write(error) => unwritable(to, error).into(),
        }
    }
}

fn unwritable(path: &Path, why: impl Into<Cause>) -> Unreadable {
    Unreadable::because(format_args!("cannot write {}", path.display()), why).field("--output")
}

async fn pour(content: &mut Reading<'_>, to: &mut File, shown: Option<String>) -> Result<(), Stop> {
    let bar = shown.map(|name| Bar::new(Doing::Reading, name, content.size().unwrap_or_default()));
    while let Some(piece) = content.next().await.map_err(Stop::Read)? {
        to.write_all(&piece).await.map_err(Stop::Write)?;
        if let Some(bar) = &bar {
            bar.more(piece.len() as u64);
        }
    }
    to.flush().await.map_err(Stop::Write)
}

/// A file that gets its name when all of it is there.
struct Target {
    file: File,
    /// What it is called until then, and afterwards; `None` for what is no file, such as a pipe or `/dev/null`: that is
    /// written to, never replaced.
    names: Option<(Part, PathBuf)>,
}

impl Target {
    async fn open(path: &Path) -> std::io::Result<Self> {
        let known = tokio::fs::metadata(path).await.ok();
        if known.is_some_and(|known| !known.is_file()) {
            return Ok(Self { file: OpenOptions::new().write(true).open(path).await?, names: None });
        }
        // A link stays one: what it leads to is replaced.
        let path = tokio::fs::canonicalize(path).await.unwrap_or_else(|_| path.to_owned());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let part = format!(".quaymaster-{}-{}.part", std::process::id(), now.as_nanos());
        // Made before the file is: a signal in between finds nothing to remove.
        let part = Part(path.with_file_name(part));
        let file = OpenOptions::new().write(true).create_new(true).open(&part.0).await?;
        Ok(Self { file, names: Some((part, path)) })
    }

    async fn keep(self) -> std::io::Result<()> {
        let Some((part, path)) = self.names else { return Ok(()) };
        // Else a crash of the machine could leave the name without the bytes.
        self.file.sync_all().await?;
        tokio::fs::rename(&part.0, &path).await
    }
}

/// A file that is removed unless it was given another name.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
