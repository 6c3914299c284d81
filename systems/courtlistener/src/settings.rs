//! Flags and environment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use anyhow::Context as _;
use jiff::SignedDuration;
use quaymaster::Schema;
use quaymaster::schema::{Severity, Source, load};
use reqwest::Url;

use crate::standin::Temper;

/// The system's own schema.
const SCHEMA: &str = include_str!("../schema.toml");

/// The queue dockets wait in, unless told.
pub(crate) const QUEUE: &str = "dockets";
/// The limit and the run of the schema.
pub(crate) const NAME: &str = "courtlistener";
/// The cache in which nodes tell each other of pauses.
pub(crate) const PAUSES: &str = "courtlistener_pause";

/// Fetches dockets from a REST API on any number of nodes, under one hourly quota.
///
/// CALL_LIMIT_PER_HOUR (5000) and COURTLISTENER_SAFETY_BUFFER (25) say how many calls, REDIS_COUNTER_TTL_HOURS (2) and
/// REDIS_STATE_TTL_HOURS (25) how long counters and runs are kept.
#[derive(Debug, clap::Parser)]
#[command(name = "docket-pipeline", version, arg_required_else_help = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 something failed or is left, 2 usage, 3 the store cannot be reached."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What is logged, to stderr: `info` of a node without a terminal and of the stand-in, else `warn`, unless told.
    #[arg(long, env = "COURTLISTENER_LOG", global = true)]
    pub(crate) log: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// A node: fetches dockets until none is left.
    Work(Box<Work>),
    /// How a run, its quota, its queue and the store are.
    Status(Status),
    /// Puts failed dockets into the queue again.
    Retry(Retry),
    /// Finds keys that are over, lack an end or point nowhere; `--apply` puts them right.
    Clean(Clean),
    /// The stand-in API.
    Api(StandIn),
}

/// Which store, which schema.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Place {
    /// `embedded`, `embedded:DIR`, or a redis://, rediss://, redis+sentinel:// or redis+cluster:// URL.
    #[arg(long, env = "COURTLISTENER_STORE", default_value = "embedded", hide_env_values = true)]
    pub(crate) store: String,
    /// Where the embedded store lies; nodes on one folder work together.
    #[arg(long, env = "COURTLISTENER_DATA_DIR", default_value = "docket-data")]
    pub(crate) data_dir: PathBuf,
    /// Another schema than the system's own.
    #[arg(long, env = "COURTLISTENER_SCHEMA")]
    pub(crate) schema: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The run to work in; nodes that name the same one work together. Without it the newest that is not finished, or
    /// else a new one.
    #[arg(long, env = "COURTLISTENER_RUN", value_name = "ID")]
    pub(crate) run: Option<String>,
    /// A file of docket ids, one a line. Several nodes may be given the same. Without it only the queue is worked on.
    #[arg(long, env = "COURTLISTENER_DOCKETS", value_name = "FILE")]
    pub(crate) dockets: Option<PathBuf>,
    /// The queue of the schema that dockets wait in.
    #[arg(long, env = "COURTLISTENER_QUEUE", default_value = QUEUE)]
    pub(crate) queue: String,
    /// Where the API is; `dockets/ID/` follows.
    #[arg(long, env = "COURTLISTENER_API", value_name = "URL")]
    pub(crate) api: Url,
    /// Sent as `Authorization: Token …`.
    #[arg(long, env = "COURTLISTENER_API_TOKEN", hide_env_values = true)]
    pub(crate) api_token: Option<String>,
    /// The folder that gets a file `ID.json` for every docket.
    #[arg(long, env = "COURTLISTENER_OUT", default_value = "dockets")]
    pub(crate) out: PathBuf,
    /// What this node is called; made up unless told.
    #[arg(long, env = "COURTLISTENER_NODE", value_parser = node)]
    pub(crate) node: Option<String>,
    /// Dockets fetched at once.
    #[arg(long, env = "COURTLISTENER_CONCURRENCY", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) concurrency: u16,
    /// Attempts before a docket is listed as failed.
    #[arg(long, env = "COURTLISTENER_ATTEMPTS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: u32,
    /// How long one call of the API may take.
    #[arg(long, env = "COURTLISTENER_TIMEOUT", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// How often a node that waits looks whether it still has to.
    #[arg(long, env = "COURTLISTENER_RECHECK", default_value = "15s", value_parser = duration)]
    pub(crate) recheck: Duration,
    /// How long calls under way may take to end after a stop.
    #[arg(long, env = "COURTLISTENER_DRAIN", default_value = "30s", value_parser = duration)]
    pub(crate) drain: Duration,
    /// Stay when nothing is left, and wait for more.
    #[arg(long, env = "COURTLISTENER_STAY")]
    pub(crate) stay: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The run; the newest unless told.
    #[arg(long, env = "COURTLISTENER_RUN", value_name = "ID")]
    pub(crate) run: Option<String>,
    /// The queue of the schema that dockets wait in.
    #[arg(long, env = "COURTLISTENER_QUEUE", default_value = QUEUE)]
    pub(crate) queue: String,
    /// Also list what failed.
    #[arg(long)]
    pub(crate) failures: bool,
    /// Print JSON.
    #[arg(long, env = "COURTLISTENER_JSON")]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Retry {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The run; the newest unless told.
    #[arg(long, env = "COURTLISTENER_RUN", value_name = "ID")]
    pub(crate) run: Option<String>,
    /// The queue of the schema that dockets wait in.
    #[arg(long, env = "COURTLISTENER_QUEUE", default_value = QUEUE)]
    pub(crate) queue: String,
    /// At most so many.
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    pub(crate) count: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Clean {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Put right what is found; without it nothing is changed.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Keys looked at in a second.
    #[arg(long, default_value_t = quaymaster::clean::RATE, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StandIn {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, env = "STAND_IN_LISTEN", default_value = "127.0.0.1:7440")]
    pub(crate) listen: SocketAddr,
    /// Calls answered in an hour; more get 429. Any number unless told.
    #[arg(long, env = "STAND_IN_QUOTA")]
    pub(crate) quota: Option<u64>,
    /// The token callers must have; none unless told.
    #[arg(long, env = "STAND_IN_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// How long a call takes.
    #[arg(long, env = "STAND_IN_DELAY", default_value = "50ms", value_parser = duration)]
    pub(crate) delay: Duration,
    /// The share of calls answered with 500, from 0 to 1.
    #[arg(long, env = "STAND_IN_FAIL", default_value_t = 0.0, value_parser = share)]
    pub(crate) fail: f64,
    /// Ids divisible by it are answered with 404.
    #[arg(long, env = "STAND_IN_MISSING", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) missing: Option<u64>,
    /// Ids divisible by it are always answered with 500.
    #[arg(long, env = "STAND_IN_BROKEN", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) broken: Option<u64>,
    /// The seconds `Retry-After` says of a 429; the rest of the hour unless told.
    #[arg(long, env = "STAND_IN_RETRY_AFTER")]
    pub(crate) retry_after: Option<u64>,
    /// The same seed fails the same calls.
    #[arg(long, env = "STAND_IN_SEED", default_value_t = 1)]
    pub(crate) seed: u64,
    /// A file that gets a line of JSON for every call.
    #[arg(long, env = "STAND_IN_JOURNAL")]
    pub(crate) journal: Option<PathBuf>,
}

impl StandIn {
    pub(crate) fn temper(&self) -> Temper {
        Temper {
            token: self.token.clone(),
            quota: self.quota,
            delay: self.delay,
            fail: self.fail,
            missing: self.missing,
            broken: self.broken,
            retry_after: self.retry_after,
            seed: self.seed,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = SignedDuration::from_str(text).ok().and_then(|duration| Duration::try_from(duration).ok());
    parsed
        .filter(|duration| !duration.is_zero() || text.starts_with('0'))
        .ok_or_else(|| format!("{text:?} is no duration such as 500ms, 2s or 5m"))
}

fn share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("{text:?} is not from 0 to 1"))
}

/// A part of keys and of file names.
fn node(text: &str) -> Result<String, String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=48).contains(&text.len()) && text.bytes().all(fine) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?}: 1 to 48 letters, digits, `-`, `_` and `.`"))
}

/// Reads the schema; all that is wrong with it at once.
pub(crate) fn schema(file: Option<&Path>) -> anyhow::Result<Schema> {
    let text = match file {
        Some(file) => {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
        }
        None => SCHEMA.to_owned(),
    };
    let name = file.map_or("schema.toml".to_owned(), |file| file.display().to_string());
    let loaded = load(&[Source { name: &name, text: &text }], &|name| std::env::var(name).ok());
    let errors: Vec<String> = loaded
        .diagnostics
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(ToString::to_string)
        .collect();
    loaded.schema.ok_or_else(|| anyhow::anyhow!("{}", errors.join("\n")))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use clap::CommandFactory as _;
    use quaymaster::schema::{Kind, Spec};

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
        assert!(duration("5m").is_ok() && duration("0s").is_ok() && duration("5").is_err());
        assert!(node("worker-1.rack_2").is_ok() && node("a:b").is_err() && node("").is_err());
    }

    #[test]
    fn the_four_variables_have_the_documented_defaults() {
        let read = |values: &[(&str, &str)]| {
            let variable = |name: &str| {
                values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            let loaded = load(&[Source { name: "schema.toml", text: SCHEMA }], &variable);
            let schema = loaded.schema.unwrap();
            let limits = ["courtlistener", "courtlistener_counter"].map(|name| {
                let limit = schema.resource(Kind::Limit, name).unwrap().as_limit().unwrap().clone();
                (limit.effective(), limit.ttl.as_secs() / 3600)
            });
            assert_eq!(limits[0], limits[1]);
            let Spec::Run(run) = &schema.resource(Kind::Run, NAME).unwrap().spec else { panic!() };
            (limits[0], run.state_ttl.as_secs() / 3600)
        };
        assert_eq!(read(&[]), ((4975, 2), 25));
        let all = [
            ("CALL_LIMIT_PER_HOUR", "100"),
            ("COURTLISTENER_SAFETY_BUFFER", "10"),
            ("REDIS_COUNTER_TTL_HOURS", "3"),
            ("REDIS_STATE_TTL_HOURS", "48"),
        ];
        assert_eq!(read(&all), ((90, 3), 48));
    }
}
