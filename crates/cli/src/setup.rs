//! From arguments to settings, schema, store and logs.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quaymaster::respell::{self, Depth};
use quaymaster::schema::{self, Diagnostic, Kind, Loaded, Schema, Severity, Source};
use quaymaster::store::StoreOptions;
use quaymaster::{Code, Engine, Quaymaster, store};
use quaymaster_server::Depot;
use quaymaster_server::config::{self, Config, Needs, Overrides, RawConfig};
use quaymaster_server::doctor::{self, SEAL_KEY, Scope};
use tracing_subscriber::EnvFilter;

use crate::args::{Args, Command, Files, Global, LogFormat, Place};
use crate::failure::{BadSchema, NoStore, NothingRan, Unreadable};
use crate::output;

/// Logs go to stderr; a server says a little by default, a command only what is wrong.
pub(crate) fn logging(args: &Args) {
    let serves = matches!(args.command, Command::Serve(_) | Command::Worker(_));
    // Whoever gives up a job by hand is told by the answer.
    let default = if serves { "info" } else { "warn,quaymaster::dead_letters=off" };
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

/// Settings from the file, if there is one, and the flags; of its variables those that the command needs.
pub(crate) fn config(global: &Global, overrides: Overrides, needs: Needs) -> anyhow::Result<Config> {
    let path = match &global.config {
        Some(path) => Some(path.clone()),
        None => Some(PathBuf::from(config::FILE)).filter(|path| path.exists()),
    };
    let raw = match path {
        Some(path) => {
            let text = read(&path)?;
            let folder = path.parent().unwrap_or(Path::new(""));
            RawConfig::parse_for(needs, &path.display().to_string(), &text, folder, &variable)?
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
        accept_eviction: place.accept_eviction,
        demo: place.demo,
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
    let what = format!("cannot read {}", path.display());
    let bytes = std::fs::read(path).map_err(|error| Unreadable::because(&what, error))?;
    String::from_utf8(bytes).map_err(|error| {
        Unreadable::because(&what, format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
    })
}

/// Reads the files, or the bundled systems when there are none.
pub(crate) fn load(files: &[PathBuf]) -> anyhow::Result<Loaded> {
    load_by(files, schema::load)
}

/// The same for a command that uses a part of the schema: the rest may lack its variables.
pub(crate) fn load_part(files: &[PathBuf]) -> anyhow::Result<Loaded> {
    let loaded = load(files)?;
    let wrong = || loaded.diagnostics.iter().filter(|problem| problem.severity == Severity::Error);
    if loaded.schema.is_none() && wrong().all(|problem| problem.code == "env-unset") {
        return load_by(files, schema::load_set);
    }
    Ok(loaded)
}

/// Reads schema files with the variables that it is given.
type Loading = fn(&[Source<'_>], &dyn Fn(&str) -> Option<String>) -> Loaded;

fn load_by(files: &[PathBuf], load: Loading) -> anyhow::Result<Loaded> {
    if files.is_empty() {
        return Ok(schema::load_bundled(&variable));
    }
    let mut texts = Vec::new();
    for file in files {
        texts.push((file.display().to_string(), read(file)?));
    }
    let sources: Vec<Source<'_>> = texts.iter().map(|(name, text)| Source { name, text }).collect();
    Ok(load(&sources, &variable))
}

/// The schema files that a command means which needs nothing else.
pub(crate) fn schema_files(global: &Global, given: &Files) -> anyhow::Result<Vec<PathBuf>> {
    if !given.files.is_empty() {
        return Ok(given.files.clone());
    }
    let overrides = Overrides { schemas: given.schema.clone(), ..Overrides::default() };
    Ok(config(global, overrides, Needs::SCHEMA)?.schemas)
}

/// The schema, or its errors on stderr.
pub(crate) fn usable(loaded: Loaded) -> Result<Arc<Schema>, BadSchema> {
    let Some(schema) = loaded.schema else {
        let is_error = |problem: &Diagnostic| problem.severity == Severity::Error;
        let errors: Vec<Diagnostic> = loaded.diagnostics.into_iter().filter(is_error).collect();
        for problem in &errors {
            eprintln!("{problem}");
        }
        return Err(BadSchema { errors });
    };
    Ok(Arc::new(schema))
}

/// What a command does to the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Nothing: then it does not create a store either. A folder that was mistyped must not look healthy. `clean` and
    /// `respell` open like this with `--apply`, too: they change only what is there.
    Look,
    /// Changes it; an embedded store that is not there yet is created.
    Change,
}

/// Schema and store for a command that runs once and is about the whole schema.
pub(crate) async fn open(global: &Global, place: Place) -> anyhow::Result<Quaymaster> {
    Ok(open_with(global, overrides(place), Needs::STORE).await?.0)
}

/// What calls of a kind need of the settings.
fn needs(kind: Kind) -> Needs {
    match kind {
        Kind::Limit | Kind::Guard => Needs::LIMITS,
        Kind::Upload => Needs::UPLOADS,
        _ => Needs::STORE,
    }
}

/// Schema, store and uploads for a command on one resource; without a name it is the only one of its kind. Says on stderr
/// which store it takes where nobody named one.
pub(crate) async fn open_for_call(
    global: &Global,
    place: Place,
    intent: Intent,
    kind: Kind,
    name: Option<&str>,
) -> anyhow::Result<(Quaymaster, Depot)> {
    let config = config(global, overrides(place), needs(kind))?;
    let schema = usable(load_part(&config.schemas)?)?;
    if let (false, StoreOptions::Embedded(dir, _)) = (config.store_is_named, &config.store) {
        output::note(&format!(
            "store: embedded in {} (chosen by default; --store or QUAYMASTER_STORE names another)",
            dir.display()
        ));
    }
    let only =
        schema.resources().find(|resource| resource.kind == kind).map(|resource| resource.name.clone());
    let name = name.map(str::to_owned).or(only).unwrap_or_default();
    open_configured(config, schema, intent, Scope::Resource(kind, &name)).await
}

/// The same for more than a place.
pub(crate) async fn open_with(
    global: &Global,
    overrides: Overrides,
    needs: Needs,
) -> anyhow::Result<(Quaymaster, Depot)> {
    let config = config(global, overrides, needs)?;
    let schema = usable(load(&config.schemas)?)?;
    open_configured(config, schema, Intent::Look, Scope::Schema).await
}

/// The same for `explain`, which reads no values: the bundled schemas may look anywhere, and no seal key is needed.
pub(crate) async fn open_to_explain(config: Config, schema: Arc<Schema>) -> anyhow::Result<Quaymaster> {
    open_checked(config, schema, Intent::Look, Scope::Schema).await
}

async fn open_configured(
    config: Config,
    schema: Arc<Schema>,
    intent: Intent,
    scope: Scope<'_>,
) -> anyhow::Result<(Quaymaster, Depot)> {
    config.check_demo()?;
    config.check_seal(&schema)?;
    let uploads = config.uploads.clone();
    let quaymaster = open_checked(config, schema, intent, scope).await?;
    let depot = Depot::new(&quaymaster, &uploads);
    Ok((quaymaster, depot))
}

/// On Redis a call that changes something asks first whether its user may, as far as `scope` goes. `clean --apply` and
/// `respell --apply` do not ask: they need other rights than the scripts of the schema's resources, on which
/// `doctor::rights` decides.
async fn open_checked(
    config: Config,
    schema: Arc<Schema>,
    intent: Intent,
    scope: Scope<'_>,
) -> anyhow::Result<Quaymaster> {
    let (settings, eviction) = (config.settings(), config.eviction());
    let redis = matches!(config.store, StoreOptions::Redis(_));
    let engine = open_store(config.store.for_schema(&schema), intent).await?;
    if redis && intent == Intent::Change {
        let mut findings = match doctor::examine(&schema, &*engine, eviction).await {
            // A user who may not ask may well do what the call does.
            Err(error) if error.code == Code::StorePermission => Vec::new(),
            findings => findings.map_err(NothingRan::from)?,
        };
        findings.extend(doctor::rights(&schema, &*engine, scope).await.map_err(NothingRan::from)?);
        if let Some(refusal) = doctor::refusal(&findings) {
            let _ = engine.close().await;
            return Err(NothingRan::from(refusal).into());
        }
    }
    // A command that only looks must work on a Redis with old names, `respell` above all.
    if !redis || intent == Intent::Change {
        respell::prepare(&schema, &engine, Depth::Fixed).await.map_err(NothingRan::from)?;
    }
    Ok(Quaymaster::with(schema, engine, settings))
}

pub(crate) async fn open_store(options: StoreOptions, intent: Intent) -> anyhow::Result<Arc<dyn Engine>> {
    if let (Intent::Look, StoreOptions::Embedded(dir, _)) = (intent, &options)
        && holds_nothing(dir)
    {
        return Err(NoStore(dir.clone()).into());
    }
    Ok(store::open(options).await.map_err(NothingRan::from)?)
}

/// Whether there is no store to ask: nobody named one, and the folder that is taken by default holds nothing.
pub(crate) fn has_no_store(config: &Config) -> bool {
    let named = config.store_is_named || config.data_dir_is_named;
    !named && matches!(&config.store, StoreOptions::Embedded(dir, _) if holds_nothing(dir))
}

/// Whether the folder is not there, or empty. What else is wrong with it, opening it says better.
fn holds_nothing(dir: &Path) -> bool {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
