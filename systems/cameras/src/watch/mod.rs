//! Watches a folder of images, one sub-folder a camera, and queues every image once.
//!
//! | file | what it knows |
//! |---|---|
//! | `ears` | the file system's events |
//! | `walk` | a walk through the folder |
//! | `pending` | which files are whole |
//! | `read` | SHA-256, piece by piece |
//! | `outlet` | de-duplicate and queue in one step |
//! | `ledger`, `stamp` | which versions of which files were handed over |
//! | `online` | which cameras have sent something lately |
//!
//! Nothing is taken out of the folder: a file is lost only if somebody else removes it before it is detected. A
//! watcher that is killed finds what it had not handed over by walking through the folder again.

mod ears;
mod ledger;
mod online;
mod outlet;
mod pending;
mod read;
mod stamp;
mod walk;

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use jiff::Timestamp;
use quaymaster::Error;
use quaymaster::queue::Queue;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use online::Online;

use crate::camera;
use crate::item::{Image, moment};
use ears::{Ears, Heard};
use ledger::Ledger;
use outlet::{Handed, Outlet};
use pending::{Pending, Sign};
use read::Found;
use stamp::{Mark, Stamp};
use walk::Step;

/// Files held in memory; the others wait in the folder.
const ROOM: usize = 10_000;
/// Versions remembered as no images, and troubles that were told once.
const REMEMBERED: usize = 100_000;
/// Files looked at in one go of the loop.
const GLANCE: Duration = Duration::from_millis(50);
/// Between a hint that something was missed and the walk that finds it: hints come in flocks.
const SOON: Duration = Duration::from_millis(200);

/// Which images are handed over once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// All that are in the folder.
    All,
    /// Those that were changed so lately.
    Since(Duration),
}

/// How a folder is watched.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The folder; its sub-folders are the cameras.
    pub(crate) root: PathBuf,
    /// Where the ledger lies.
    pub(crate) state: PathBuf,
    /// A file that nobody closed is whole after so long without a change.
    pub(crate) settle: Duration,
    /// The folder is walked through this often, whatever events say.
    pub(crate) rescan: Duration,
    /// Files read and handed over at once.
    pub(crate) readers: usize,
    /// What the ledger forgets at the start, because the store has lost it.
    pub(crate) again: Option<Again>,
}

/// What was done so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    queued: u64,
    duplicates: u64,
    passed_over: u64,
}

/// What became of one version of one file.
enum Outcome {
    Handed(Handed),
    NoImage,
    Changed,
    Gone,
    Unreadable(std::io::Error),
    Refused(Error),
}

type Done = (PathBuf, Stamp, Outcome);

/// A watcher of one folder.
#[derive(Debug)]
pub(crate) struct Watcher {
    options: Options,
    outlet: Arc<Outlet>,
    online: Online,
    counts: Counts,
    /// As last logged.
    logged: Counts,
    ledger: Ledger,
    pending: Pending,
    /// Whole files that wait for a reader; paths are below the root, as everywhere here.
    ready: VecDeque<(PathBuf, Stamp, String)>,
    /// Those, and the ones being read: a newer version of them waits.
    busy: HashSet<PathBuf>,
    running: JoinSet<Done>,
    no_images: HashSet<Mark>,
    told: HashSet<(PathBuf, String)>,
    walk: Option<Walk>,
}

/// A walk that is under way.
#[derive(Debug)]
struct Walk {
    steps: Receiver<Step>,
    present: HashSet<Mark>,
    whole: bool,
}

impl Watcher {
    /// Opens the folder and the ledger.
    pub(crate) fn open(mut options: Options, queue: Queue, online: Online) -> anyhow::Result<Self> {
        let given = options.root.clone();
        let wrong = || format!("cannot watch {}", given.display());
        std::fs::create_dir_all(&given).with_context(wrong)?;
        // Jobs carry absolute paths: the detector runs elsewhere.
        options.root = given.canonicalize().with_context(wrong)?;
        anyhow::ensure!(options.root.to_str().is_some(), "{}: not UTF-8, which jobs are", wrong());
        let mut ledger = Ledger::open(&options.state)?;
        if let Some(again) = options.again {
            let forgotten = forget(&mut ledger, &options.root, again)?;
            tracing::info!(images = forgotten, "handed over before, and handed over again");
        }
        tracing::info!(folder = %options.root.display(), known = ledger.len(), "watching");
        Ok(Self {
            pending: Pending::new(options.settle, ROOM),
            outlet: Arc::new(Outlet::new(queue, ledger.again())),
            online,
            counts: Counts::default(),
            logged: Counts::default(),
            ledger,
            ready: VecDeque::new(),
            busy: HashSet::new(),
            running: JoinSet::new(),
            no_images: HashSet::new(),
            told: HashSet::new(),
            walk: None,
            options,
        })
    }

    /// Watches until `stop`. What was not handed over by then is found by the next watcher.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut ears = Ears::open(&self.options.root);
        let mut walk_at = tokio::time::Instant::now();
        let mut glance = tokio::time::interval(GLANCE);
        glance.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let room = self.has_room();
            tokio::select! {
                () = stop.cancelled() => break,
                heard = ears.next() => match heard {
                    Heard::File(path, sign) => self.heard(&path, sign),
                    Heard::Missed => walk_at = walk_at.min(tokio::time::Instant::now() + SOON),
                },
                () = tokio::time::sleep_until(walk_at), if self.walk.is_none() => {
                    walk_at = tokio::time::Instant::now() + self.options.rescan;
                    if !ears.are_open(&self.options.root) {
                        ears = Ears::open(&self.options.root);
                    }
                    self.begin_walk();
                }
                step = next_step(&mut self.walk), if room && self.walk.is_some() => self.walked(step),
                Some(Ok(done)) = self.running.join_next() => self.done(done),
                _ = glance.tick() => self.glance(),
            }
            self.begin();
        }
        self.running.shutdown().await;
        self.log();
    }

    /// One line, if anything was done since the last one.
    fn log(&mut self) {
        let Counts { queued, duplicates, passed_over } = self.counts;
        if self.logged != self.counts {
            self.logged = self.counts;
            let waiting = self.pending.len() + self.ready.len() + self.running.len();
            tracing::info!(queued, duplicates, passed_over, waiting, "images so far");
        }
    }

    fn has_room(&self) -> bool {
        self.pending.has_room() && self.ready.len() < ROOM
    }

    fn heard(&mut self, path: &Path, sign: Sign) {
        let Ok(relative) = path.strip_prefix(&self.options.root) else { return };
        if camera::is_image_name(relative) && (self.ready.len() < ROOM) {
            // Without room it is found by a later walk.
            self.pending.note(relative, sign, Instant::now());
        }
    }

    fn begin_walk(&mut self) {
        let (out, steps) = channel(256);
        let root = self.options.root.clone();
        tokio::task::spawn_blocking(move || walk::walk(&root, &out));
        self.walk = Some(Walk { steps, present: HashSet::new(), whole: true });
    }

    fn walked(&mut self, step: Option<Step>) {
        let Some(walk) = &mut self.walk else { return };
        match step {
            Some(Step::File(path, stamp)) => {
                let mark = Mark::of(&path, stamp);
                walk.present.insert(mark);
                if let Some(camera) = self.camera(&path) {
                    self.online.saw(&camera, system_time(stamp));
                    if !self.ledger.has(mark) && !self.no_images.contains(&mark) && !self.busy.contains(&path)
                    {
                        self.pending.note(&path, Sign::Found, Instant::now());
                    }
                }
            }
            Some(Step::Trouble(path, error)) => {
                walk.whole = false;
                self.trouble(&path, &error.to_string());
            }
            Some(Step::End) | None => {
                let ended = self.walk.take().filter(|walk| walk.whole && step.is_some());
                if let Some(walk) = ended {
                    if let Err(error) = self.ledger.tidy(&walk.present) {
                        tracing::warn!(%error, "the ledger was not tidied");
                    }
                    tracing::debug!(files = walk.present.len(), "walked through");
                    self.log();
                }
            }
        }
    }

    /// Takes files that are whole out of those that were noticed.
    fn glance(&mut self) {
        let (root, busy) = (&self.options.root, &self.busy);
        let mut troubles = Vec::new();
        let look = |path: &Path| match Stamp::read(&root.join(path)) {
            Ok(stamp) => stamp,
            Err(error) => {
                troubles.push((path.to_owned(), error.to_string()));
                None
            }
        };
        let whole = self.pending.due(Instant::now(), usize::MAX, |path| busy.contains(path), look);
        for (path, why) in troubles {
            self.trouble(&path, &why);
        }
        for (path, stamp) in whole {
            if self.ledger.has(Mark::of(&path, stamp)) {
                continue;
            }
            if let Some(camera) = self.camera(&path) {
                self.online.saw(&camera, system_time(stamp));
                self.busy.insert(path.clone());
                self.ready.push_back((path, stamp, camera));
            }
        }
    }

    /// Gives whole files to free readers.
    fn begin(&mut self) {
        while self.running.len() < self.options.readers {
            let Some((path, stamp, camera)) = self.ready.pop_front() else { return };
            let handling =
                handle(self.options.root.clone(), path.clone(), stamp, camera, self.outlet.clone());
            self.running.spawn(async move {
                // In a task of its own, so that whatever becomes of it the file is not forgotten.
                let outcome = AbortOnDropHandle::new(tokio::spawn(handling)).await;
                let outcome =
                    outcome.unwrap_or_else(|error| Outcome::Unreadable(std::io::Error::other(error)));
                (path, stamp, outcome)
            });
        }
    }

    fn done(&mut self, (path, stamp, outcome): Done) {
        self.busy.remove(&path);
        let mark = Mark::of(&path, stamp);
        match outcome {
            Outcome::Handed(handed) => {
                let (count, what) = match handed {
                    Handed::Queued => (&mut self.counts.queued, "queued"),
                    Handed::Duplicate => (&mut self.counts.duplicates, "seen before"),
                };
                *count += 1;
                tracing::debug!(file = %path.display(), what);
                if let Err(error) = self.ledger.add(mark) {
                    self.trouble(Path::new("watched"), &error.to_string());
                }
            }
            Outcome::NoImage => {
                self.trouble(&path, "it has an image's name and is none");
                if self.no_images.len() >= REMEMBERED {
                    self.no_images.clear();
                }
                self.no_images.insert(mark);
            }
            // Whoever changed it is heard of, or was: waited for as if it had just been found.
            Outcome::Changed => drop(self.pending.note(&path, Sign::Found, Instant::now())),
            Outcome::Gone => tracing::info!(file = %path.display(), "gone before it was read"),
            // Both are tried again at the next walk: somebody may have put right what was wrong.
            Outcome::Unreadable(error) => self.trouble(&path, &error.to_string()),
            Outcome::Refused(error) => self.trouble(&path, &error.to_string()),
        }
    }

    /// The camera a file belongs to; says once why it belongs to none.
    fn camera(&mut self, path: &Path) -> Option<String> {
        let Some(folder) = camera::folder(path) else {
            self.trouble(path, "it lies in no camera's folder, or its name is not UTF-8");
            return None;
        };
        match camera::id(folder) {
            Ok(camera) if path.to_str().is_some() => Some(camera),
            Ok(_) => {
                self.trouble(path, "its name is not UTF-8, which jobs are");
                None
            }
            Err(why) => {
                let folder = PathBuf::from(folder);
                self.trouble(&folder, &why);
                None
            }
        }
    }

    fn trouble(&mut self, path: &Path, why: &str) {
        if self.told.len() >= REMEMBERED {
            self.told.clear();
        }
        if self.told.insert((path.to_owned(), why.to_owned())) {
            self.counts.passed_over += 1;
            tracing::warn!(file = %self.options.root.join(path).display(), why, "passed over");
        }
    }
}

/// Forgets which images were handed over; answers how many.
fn forget(ledger: &mut Ledger, root: &Path, again: Again) -> anyhow::Result<usize> {
    let now = SystemTime::now();
    let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let Again::Since(lately) = again else { return ledger.forget(since_epoch, |_| true) };
    let from = now.checked_sub(lately).unwrap_or(SystemTime::UNIX_EPOCH);
    let files = walk::all(root)?.into_iter().filter(|(_, stamp)| system_time(*stamp) >= from);
    let young: HashSet<Mark> = files.map(|(path, stamp)| Mark::of(&path, stamp)).collect();
    ledger.forget(since_epoch, |mark| young.contains(&mark))
}

async fn next_step(walk: &mut Option<Walk>) -> Option<Step> {
    match walk {
        Some(walk) => walk.steps.recv().await,
        None => std::future::pending().await,
    }
}

async fn handle(root: PathBuf, path: PathBuf, stamp: Stamp, camera: String, outlet: Arc<Outlet>) -> Outcome {
    let full = root.join(&path);
    let reading = tokio::task::spawn_blocking({
        let full = full.clone();
        move || read::read(&full, stamp)
    });
    let sha256 = match reading.await {
        Ok(Ok(Found::Image(sha256))) => sha256,
        Ok(Ok(Found::NoImage)) => return Outcome::NoImage,
        Ok(Ok(Found::Changed)) => return Outcome::Changed,
        Ok(Ok(Found::Gone)) => return Outcome::Gone,
        Ok(Err(error)) => return Outcome::Unreadable(error),
        Err(error) => return Outcome::Unreadable(std::io::Error::other(error)),
    };
    let image = Image {
        camera_id: camera,
        file_path: full.display().to_string(),
        timestamp: moment(Timestamp::from_nanosecond(stamp.modified_ns).unwrap_or_else(|_| Timestamp::now())),
    };
    match outlet.hand_over(&image, &sha256, Mark::with_content(&path, stamp, &sha256)).await {
        Ok(handed) => Outcome::Handed(handed),
        Err(error) => Outcome::Refused(error),
    }
}

fn system_time(stamp: Stamp) -> SystemTime {
    let since = u64::try_from(stamp.modified_ns).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_nanos(since)
}
