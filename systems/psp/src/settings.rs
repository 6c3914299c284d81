//! Flags and environment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use quaymaster::schema::{Severity, Source, load};
use quaymaster::{Schema, Seal};
use quaymaster_server::doctor;

/// The system's own schema.
const SCHEMA: &str = include_str!("../schema.toml");

/// A payment gateway that runs nothing twice.
#[derive(Debug, clap::Parser)]
#[command(name = "psp-gateway", version)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, env = "PSP_GATEWAY_LISTEN", default_value = "127.0.0.1:7500")]
    pub(crate) listen: SocketAddr,
    /// `embedded`, `embedded:DIR`, `memory`, or a redis://, rediss://, redis+sentinel:// or redis+cluster:// URL.
    #[arg(long, env = "PSP_GATEWAY_STORE", default_value = "embedded", hide_env_values = true)]
    pub(crate) store: String,
    /// Where the embedded store lies; gateways on one folder work together.
    #[arg(long, env = "PSP_GATEWAY_DATA_DIR", default_value = "psp-data")]
    pub(crate) data_dir: PathBuf,
    /// The payments, `sqlite:FILE`; gateways share it.
    #[arg(long, env = "PSP_GATEWAY_DATABASE", default_value = "sqlite:psp-data/payments.db")]
    pub(crate) database: String,
    /// Another schema than the system's own.
    #[arg(long, env = "PSP_GATEWAY_SCHEMA")]
    pub(crate) schema: Option<PathBuf>,
    /// How long a caller waits for another one that does the same, before it is told to come back.
    #[arg(long, env = "PSP_GATEWAY_WAIT_MS", default_value_t = 10_000)]
    pub(crate) wait_ms: u64,
    /// What is logged, to stderr; `access=info` is a line a request.
    #[arg(long, env = "PSP_GATEWAY_LOG", default_value = "info")]
    pub(crate) log: String,
    /// Folder of a rehearsal: see the README.
    #[arg(long, env = "PSP_GATEWAY_HOLD", hide = true)]
    pub(crate) hold: Option<PathBuf>,
    /// Who may call: `PSP001=token,PSP002=token`. By the environment only, where other users cannot read it.
    #[arg(skip = std::env::var("PSP_TOKENS").ok())]
    pub(crate) psp_tokens: Option<String>,
    /// Keys for what the schema marks `sensitive`; by the environment only.
    #[arg(skip = std::env::var(doctor::SEAL_KEY).ok())]
    pub(crate) seal_keys: Option<String>,
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

/// Keys that encrypt answers and tokens at rest; without any, a warning names what lies open.
pub(crate) fn seal(text: Option<&str>, schema: &Schema) -> anyhow::Result<Seal> {
    let seal = match text {
        Some(text) => Seal::from_text(text)?,
        None => Seal::none(),
    };
    if !seal.is_active()
        && let Some(finding) = doctor::unsealed(schema)
    {
        tracing::warn!("{finding}");
    }
    Ok(seal)
}
