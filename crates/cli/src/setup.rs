//! From arguments to settings, schema, store and logs.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quaymaster::respell::{self, Depth};
use quaymaster::schema::{self, BUNDLED, Diagnostic, Loaded, Schema, Severity, Source};
use quaymaster::store::StoreOptions;
use quaymaster::{Engine, Quaymaster, store};
use quaymaster_server::Depot;
use quaymaster_server::config::{self, Config, Overrides, RawConfig};
use quaymaster_server::doctor::SEAL_KEY;
use tracing_subscriber::EnvFilter;

use crate::args::{Args, Command, Global, LogFormat, Place};
use crate::failure::{BadSchema, NoStore, NothingRan, Unreadable};
use crate::output;

/// Logs go to stderr; a server says a little by default, a command only what is wrong.
pub(crate) fn logging(args: &Args) {
    let default =
        if matches!(args.command, Command::Serve(_) | Command::Worker(_)) { "info" } else { "warn" };
    let wanted = args.global.log.as_deref().filter(|filter| !filter.is_empty()).unwrap_or(default);
    let filter = EnvFilter::try_new(wanted).unwrap_or_else(|error| {
        output::error(&format!("--log {wanted:?} is no filter ({error}); logging {default}"));
        EnvFilter::new(default)
    });
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.global.log_format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
}

/// Everybody on the machine can read a command line.
pub(crate) fn warn_of_password(store_flag: Option<&str>) {
    if store_flag.is_some_and(has_password) {
        tracing::warn!(
            "--store has a password in it, and the process list shows it to every user of this machine; \
             leave it out and set {} or {}",
            config::STORE_PASSWORD,
            config::STORE_PASSWORD_FILE
        );
    }
}

fn has_password(url: &str) -> bool {
    let login = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?']).next()?.rsplit_once('@'));
    let inside = login.and_then(|(login, _)| login.split_once(':')).is_some_and(|(_, word)| !word.is_empty());
    inside || url.contains("password=")
}

/// Settings from the file, if there is one, and the flags.
pub(crate) fn config(global: &Global, overrides: Overrides) -> anyhow::Result<Config> {
    let path = match &global.config {
        Some(path) => Some(path.clone()),
        None => Some(PathBuf::from(config::FILE)).filter(|path| path.exists()),
    };
    let raw = match path {
        Some(path) => {
            let text = read(&path)?;
            let folder = path.parent().unwrap_or(Path::new(""));
            RawConfig::parse(&path.display().to_string(), &text, folder, &variable)?
        }
        None => RawConfig::default(),
    };
    Ok(Config::resolve(raw, overrides)?)
}

/// What `place` says, as overrides.
pub(crate) fn overrides(place: Place) -> Overrides {
    Overrides {
        schemas: place.schema,
        store: place.store,
        data_dir: place.data_dir,
        durability: place.durability.map(Into::into),
        max_memory: place.max_memory,
        seal_keys: variable(SEAL_KEY),
        // A variable that is set to nothing is not set.
        store_password: variable(config::STORE_PASSWORD).filter(|text| !text.is_empty()),
        store_password_file: std::env::var_os(config::STORE_PASSWORD_FILE)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from),
        ..Overrides::default()
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn read(path: &Path) -> Result<String, Unreadable> {
    let wrong = |why: &dyn std::fmt::Display| Unreadable(format!("cannot read {}: {why}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| wrong(&error))?;
    String::from_utf8(bytes)
        .map_err(|error| wrong(&format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to())))
}

/// Reads the files, or the bundled systems when there are none.
pub(crate) fn load(files: &[PathBuf]) -> anyhow::Result<Loaded> {
    if files.is_empty() {
        let sources = BUNDLED.map(|(name, text)| Source { name, text });
        return Ok(schema::load(&sources, &variable));
    }
    let mut texts = Vec::new();
    for file in files {
        texts.push((file.display().to_string(), read(file)?));
    }
    let sources: Vec<Source<'_>> = texts.iter().map(|(name, text)| Source { name, text }).collect();
    Ok(schema::load(&sources, &variable))
}

/// The schema, or its errors on stderr.
pub(crate) fn usable(loaded: Loaded) -> Result<Arc<Schema>, BadSchema> {
    let errors: Vec<&Diagnostic> =
        loaded.diagnostics.iter().filter(|problem| problem.severity == Severity::Error).collect();
    match loaded.schema {
        Some(schema) => Ok(Arc::new(schema)),
        None => {
            for problem in &errors {
                eprintln!("{problem}");
            }
            Err(BadSchema { errors: errors.len() })
        }
    }
}

/// What a command does to the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Nothing: then it does not create a store either. A folder that was mistyped must not look healthy.
    Look,
    /// Changes it; an embedded store that is not there yet is created.
    Change,
}

/// Schema and store for a command that runs once.
pub(crate) async fn open(global: &Global, place: Place, intent: Intent) -> anyhow::Result<Quaymaster> {
    Ok(open_all(global, place, intent).await?.0)
}

/// The same, and where uploads lie.
pub(crate) async fn open_all(
    global: &Global,
    place: Place,
    intent: Intent,
) -> anyhow::Result<(Quaymaster, Depot)> {
    open_with(global, overrides(place), intent).await
}

/// The same for `<kind> <verb> NAME`, which says on stderr which store it takes where nobody named one.
pub(crate) async fn open_for_call(
    global: &Global,
    place: Place,
    intent: Intent,
) -> anyhow::Result<(Quaymaster, Depot)> {
    let config = config(global, overrides(place))?;
    let schema = usable(load(&config.schemas)?)?;
    if let (false, StoreOptions::Embedded(dir, _)) = (config.store_is_named, &config.store) {
        output::note(&format!(
            "store: embedded in {} (chosen by default; --store or QUAYMASTER_STORE names another)",
            dir.display()
        ));
    }
    open_configured(config, schema, intent).await
}

/// The same as [`open_all`] with more than a place.
pub(crate) async fn open_with(
    global: &Global,
    overrides: Overrides,
    intent: Intent,
) -> anyhow::Result<(Quaymaster, Depot)> {
    let config = config(global, overrides)?;
    let schema = usable(load(&config.schemas)?)?;
    open_configured(config, schema, intent).await
}

async fn open_configured(
    config: Config,
    schema: Arc<Schema>,
    intent: Intent,
) -> anyhow::Result<(Quaymaster, Depot)> {
    config.check_seal(&schema)?;
    let settings = config.settings();
    let redis = matches!(config.store, StoreOptions::Redis(_));
    let engine = open_store(config.store.for_schema(&schema), intent).await?;
    // A command that only looks must work on a Redis with old names, `respell` above all.
    if !redis || intent == Intent::Change {
        respell::prepare(&schema, &engine, Depth::Fixed).await.map_err(NothingRan::from)?;
    }
    let quaymaster = Quaymaster::with(schema, engine, settings);
    let depot = Depot::new(&quaymaster, &config.uploads);
    Ok((quaymaster, depot))
}

pub(crate) async fn open_store(options: StoreOptions, intent: Intent) -> anyhow::Result<Arc<dyn Engine>> {
    if let (Intent::Look, StoreOptions::Embedded(dir, _)) = (intent, &options)
        && holds_nothing(dir)
    {
        return Err(NoStore(dir.clone()).into());
    }
    Ok(store::open(options).await.map_err(NothingRan::from)?)
}

/// Whether the folder is not there, or empty. What else is wrong with it, opening it says better.
fn holds_nothing(dir: &Path) -> bool {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
