//! Flags and environment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use quaymaster::Schema;
use quaymaster::schema::{Severity, Source, load};

/// The system's own schema.
const SCHEMA: &str = include_str!("../schema.toml");

/// A web backend of several instances: one count of requests, one limit per caller.
///
/// Without a command it is one instance; start as many as you like on one store.
#[derive(Debug, clap::Parser)]
#[command(name = "ha-backend", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: Run,
    /// What is logged, to stderr.
    #[arg(long, env = "HA_LOG", default_value = "info", global = true)]
    pub(crate) log: String,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// One instance of the backend (the default).
    Run(Run),
    /// Quaymaster's own server on the same store: the report over HTTP, Prometheus, and a place for records of
    /// programs in other languages.
    Serve(Serve),
    /// Calls instances, counts the answers by itself, and compares its count with the report.
    Load(Load),
}

/// Which store, which schema.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Place {
    /// `embedded`, `embedded:DIR`, `memory`, or a redis://, rediss://, redis+sentinel:// or redis+cluster:// URL.
    #[arg(long, env = "HA_STORE", default_value = "embedded", hide_env_values = true)]
    pub(crate) store: String,
    /// Where the embedded store lies; instances on one folder work together.
    #[arg(long, env = "HA_DATA_DIR", default_value = "ha-data")]
    pub(crate) data_dir: PathBuf,
    /// Another schema than the system's own.
    #[arg(long, env = "HA_SCHEMA")]
    pub(crate) schema: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, env = "HA_LISTEN", default_value = "127.0.0.1:7460")]
    pub(crate) listen: SocketAddr,
    /// What this instance is called in the report; PM2's number, or `instance-` and the moment it started unless told.
    #[arg(long, env = "HA_INSTANCE")]
    pub(crate) instance: Option<String>,
    /// Proxies in front of the instances, addresses or ranges, whose X-Forwarded-For is believed; separated by commas.
    #[arg(long, env = "HA_PROXIES", value_delimiter = ',')]
    pub(crate) proxies: Vec<String>,
    /// A file that gets a line for every request: how long it took, measured by a clock of its own.
    #[arg(long, env = "HA_JOURNAL", hide = true)]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, env = "HA_SERVE_LISTEN", default_value = "127.0.0.1:7469")]
    pub(crate) listen: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    /// An instance, `http://127.0.0.1:7460`; give it once for each.
    #[arg(long = "to", env = "HA_TO", value_delimiter = ',', required = true)]
    pub(crate) to: Vec<String>,
    /// Requests in all.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) requests: u64,
    /// Connections to each instance, each with one request at a time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) connections: u16,
    /// Callers it pretends to be, by X-Forwarded-For: the instances must be told to trust it.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) callers: u32,
    /// The same seed asks the same questions.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Quaymaster's server, `http://127.0.0.1:7469`: its report must have grown by exactly what was counted here.
    #[arg(long)]
    pub(crate) compare: Option<String>,
    /// Seconds that the instances may take to bring in what they counted.
    #[arg(long, default_value_t = 30)]
    pub(crate) patience: u64,
    /// A file for what was counted, as JSON; `-` is stdout.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
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
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }
}
