//! Flags and environment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use anyhow::Context as _;
use jiff::SignedDuration;
use quaymaster::Schema;
use quaymaster::schema::{Severity, Source, load};

use crate::standin::Temper;
use crate::watch;

/// The system's own schema.
const SCHEMA: &str = include_str!("../schema.toml");

/// Images in, events out: watches folders of images and announces what was seen on them.
///
/// Without a command everything runs in this process, on the embedded store, with stand-ins for the detector and
/// the analyser unless DETECTOR_URL or ANALYSER_URL name real ones.
#[derive(Debug, clap::Parser)]
#[command(name = "camera-pipeline", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) up: Up,
    /// What is logged, to stderr.
    #[arg(long, env = "CAMERAS_LOG", default_value = "info", global = true)]
    pub(crate) log: String,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Everything in one process (the default).
    Up(Box<Up>),
    /// The server alone: calls over HTTP, events over SSE and WebSocket, the closing of batches.
    Serve(Serve),
    /// The workers alone: jobs are sent to the detector and the analyser.
    Work(Work),
    /// The watcher alone: images become jobs.
    Watch(Watch),
    /// The stand-in detector alone.
    Detector(StandIn),
    /// The stand-in analyser alone.
    Analyser(StandIn),
}

/// Which store, which schema.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Place {
    /// `embedded`, `embedded:DIR`, `memory`, or a redis://, rediss://, redis+sentinel:// or redis+cluster:// URL.
    #[arg(long, env = "CAMERAS_STORE", default_value = "embedded", hide_env_values = true)]
    pub(crate) store: String,
    /// Where the embedded store and the watcher's ledger lie; processes on one folder work together.
    #[arg(long, env = "CAMERAS_DATA_DIR", default_value = "camera-data")]
    pub(crate) data_dir: PathBuf,
    /// Another schema than the system's own.
    #[arg(long, env = "CAMERAS_SCHEMA")]
    pub(crate) schema: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) listen: Listen,
    #[command(flatten)]
    pub(crate) watching: Watching,
    #[command(flatten)]
    pub(crate) temper: TemperArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) listen: Listen,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) watching: Watching,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StandIn {
    /// Where to listen; a free port unless told.
    #[arg(long, env = "CAMERAS_LISTEN", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) temper: TemperArgs,
    /// A file that gets a line of JSON for every job done.
    #[arg(long)]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Listen {
    /// Where the server listens; port 0 takes a free one.
    #[arg(long, env = "CAMERAS_LISTEN", default_value = "127.0.0.1:7430")]
    pub(crate) listen: String,
}

/// Which folder is watched, and how.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Watching {
    /// The folder of images; each sub-folder is a camera. Made if it is not there.
    #[arg(long, env = "CAMERAS_FOLDER", default_value = "cameras")]
    pub(crate) folder: PathBuf,
    /// Where the watcher notes what it handed over; `watch` in the data folder unless told.
    #[arg(long, env = "CAMERAS_STATE")]
    pub(crate) state: Option<PathBuf>,
    /// A file that its writer was not seen closing is whole after so long without a change.
    #[arg(long, env = "CAMERAS_SETTLE", default_value = "2s", value_parser = duration)]
    pub(crate) settle: Duration,
    /// How often the folder is walked through for what no event told of.
    #[arg(long, env = "CAMERAS_RESCAN", default_value = "30s", value_parser = duration)]
    pub(crate) rescan: Duration,
    /// Images read and handed over at once.
    #[arg(long, env = "CAMERAS_READERS", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) readers: u16,
    /// Hands images over again that were handed over before: after the store has lost its queue. All that are in the
    /// folder, or those changed lately, as `--again=2h`. Needed for one start: the next one goes on without it.
    #[arg(long, value_name = "LATELY", num_args = 0..=1, require_equals = true, default_missing_value = "all", value_parser = again)]
    pub(crate) again: Option<watch::Again>,
    /// A camera counts as online for so long after its last image.
    #[arg(long, env = "CAMERAS_ONLINE", default_value = "5m", value_parser = duration)]
    pub(crate) online: Duration,
}

impl Watching {
    pub(crate) fn options(&self, place: &Place) -> watch::Options {
        watch::Options {
            root: self.folder.clone(),
            state: self.state.clone().unwrap_or_else(|| place.data_dir.join("watch")),
            settle: self.settle,
            rescan: self.rescan,
            readers: usize::from(self.readers),
            again: self.again,
        }
    }
}

/// How a stand-in behaves.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TemperArgs {
    /// The share of its calls that a stand-in fails, from 0 to 1.
    #[arg(long, env = "STAND_IN_FAIL", default_value_t = 0.0, value_parser = share)]
    pub(crate) fail: f64,
    /// How long a stand-in takes for a call.
    #[arg(long, env = "STAND_IN_DELAY", default_value = "50ms", value_parser = duration)]
    pub(crate) delay: Duration,
    /// The same seed fails on the same calls.
    #[arg(long, env = "STAND_IN_SEED", default_value_t = 1)]
    pub(crate) seed: u64,
}

impl TemperArgs {
    pub(crate) fn temper(&self) -> Temper {
        Temper { fail: self.fail, delay: self.delay, seed: self.seed }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = SignedDuration::from_str(text).ok().and_then(|duration| Duration::try_from(duration).ok());
    parsed.ok_or_else(|| format!("{text:?} is no duration such as 500ms, 2s or 5m"))
}

fn again(text: &str) -> Result<watch::Again, String> {
    match text {
        "all" => Ok(watch::Again::All),
        lately => duration(lately).map(watch::Again::Since),
    }
}

fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("{text:?} is not from 0 to 1"))
}

/// Reads the schema; all that is wrong with it at once.
pub(crate) fn schema(file: Option<&Path>, env: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Schema> {
    let text = match file {
        Some(file) => {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
        }
        None => SCHEMA.to_owned(),
    };
    let name = file.map_or("schema.toml".to_owned(), |file| file.display().to_string());
    let loaded = load(&[Source { name: &name, text: &text }], env);
    let errors: Vec<String> = loaded
        .diagnostics
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(ToString::to_string)
        .collect();
    loaded.schema.ok_or_else(|| anyhow::anyhow!("{}", errors.join("\n")))
}

/// A variable of the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn again_is_for_all_or_for_what_was_changed_lately() {
        use clap::Parser as _;
        let given = |flags: &[&str]| {
            let args = [&["camera-pipeline", "watch"][..], flags].concat();
            let Some(Command::Watch(watch)) = Args::try_parse_from(args).ok()?.command else { return None };
            Some(watch.watching.again)
        };
        assert_eq!(given(&[]), Some(None));
        assert_eq!(given(&["--again"]), Some(Some(watch::Again::All)));
        assert_eq!(given(&["--again=2h"]), Some(Some(watch::Again::Since(Duration::from_secs(7200)))));
        assert_eq!((given(&["--again=soon"]), given(&["--again", "2h"])), (None, None));
    }

    #[test]
    fn durations_are_written_with_their_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        for text in ["", "5", "-1s", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
