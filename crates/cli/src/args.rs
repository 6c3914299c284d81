//! The command line. Every setting of a process has an environment variable `QUAYMASTER_<FLAG>`; the flag wins. Flags of a
//! single call, and destructive ones, have none.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{BoolishValueParser, Resettable};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{
    ArgMatches, Args as ClapArgs, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
};
use quaymaster::store::embedded::Durability;
use quaymaster::{Code, Error};

pub(crate) use crate::calls::Wish;
use crate::remote::Remote;
use crate::{failure, output};

/// Your Redis schema, compiled: check it, serve it, ask it.
#[derive(Debug, Parser)]
#[command(name = "quaymaster", version, arg_required_else_help = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 the answer is no or a check failed, 2 usage, 3 the store cannot be reached, 4 looked \
                  at only a part."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// What the command line and the environment say; ends the process with 2 when they are wrong.
    /// Also answers what `--store` says, if it was the flag that said it.
    pub(crate) fn read() -> (Self, Option<String>) {
        let mut command = without_empty(Self::command(), &|name| std::env::var_os(name));
        let read = command.try_get_matches_from_mut(std::env::args_os()).and_then(|matches| {
            match asked_by_hand(&matches)? {
                Asked::AsGiven => Ok(matches),
                Asked::Here => {
                    command = without_server(without_empty(Self::command(), &|name| std::env::var_os(name)));
                    command.try_get_matches_from_mut(std::env::args_os())
                }
            }
        });
        let parsed = read.and_then(|matches| Ok((Self::from_arg_matches(&matches)?, store_flag(&matches))));
        parsed.unwrap_or_else(|error| wrong_usage(&error))
    }
}

/// Ends the process for what a command line is wrong about, or for help that it asks for.
fn wrong_usage(error: &clap::Error) -> ! {
    if error.use_stderr()
        && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        && json_is_wanted()
    {
        let _ = output::print(&failure::problem(&usage(error).into()));
    }
    error.exit()
}

/// Whether `--json` is there, on a command line that could not be read.
fn json_is_wanted() -> bool {
    let variable = || std::env::var("QUAYMASTER_JSON").unwrap_or_default().to_lowercase();
    let flags = std::env::args_os().skip(1).take_while(|arg| arg != "--");
    flags.into_iter().any(|arg| arg == "--json")
        || ["1", "true", "t", "yes", "y", "on"].contains(&&*variable())
}

/// What is wrong, without the usage below it.
fn usage(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    let end = text.find("\n\nUsage:").or(text.find("\n\nFor more information")).unwrap_or(text.len());
    let words: Vec<&str> = text[..end].trim_start_matches("error: ").split_whitespace().collect();
    let told = Error::new("command", Code::RequestInvalid, words.join(" "));
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) => Some(arg),
        Some(ContextValue::Strings(args)) => args.first(),
        _ => None,
    };
    match flag.and_then(|flag| flag.split_whitespace().next()).filter(|flag| flag.starts_with("--")) {
        Some(flag) => told.field(flag.to_owned()),
        None => told,
    }
}

/// Who is asked.
enum Asked {
    /// Whoever the flags and the environment name.
    AsGiven,
    /// This process: what was typed names a store or a schema, and only the environment a server.
    Here,
}

/// A server and a store, both typed, contradict each other. A store that was typed is meant, whatever server the
/// environment has.
fn asked_by_hand(matches: &ArgMatches) -> Result<Asked, clap::Error> {
    let mut leaf = matches;
    while let Some((_, below)) = leaf.subcommand() {
        leaf = below;
    }
    let source = |name: &str| leaf.try_contains_id(name).ok().and_then(|_| leaf.value_source(name));
    let places = ["store", "data_dir", "durability", "max_memory", "schema", "config", "demo"];
    let typed = places.iter().find(|place| source(place) == Some(ValueSource::CommandLine));
    match (typed, source("server")) {
        (Some(place), Some(ValueSource::CommandLine)) => {
            let place = place.replace('_', "-");
            let told =
                format!("--server and --{place} exclude each other: a server has its own store and schema\n");
            Err(clap::Error::raw(ErrorKind::ArgumentConflict, told))
        }
        (Some(_), Some(_)) => Ok(Asked::Here),
        _ => Ok(Asked::AsGiven),
    }
}

fn without_server(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| if arg.get_id() == "server" { arg.env(Resettable::Reset) } else { arg })
        .mut_subcommands(without_server)
}

/// The value of `--store` on the command line, not that of its variable.
fn store_flag(matches: &ArgMatches) -> Option<String> {
    let flag = matches.try_get_one::<String>("store").ok().flatten();
    match flag.filter(|_| matches.value_source("store") == Some(ValueSource::CommandLine)) {
        Some(store) => Some(store.clone()),
        None => store_flag(matches.subcommand()?.1),
    }
}

/// A variable that is set to nothing, as compose files and unit files do for "not set", is not set.
fn without_empty(command: clap::Command, variable: &dyn Fn(&OsStr) -> Option<OsString>) -> clap::Command {
    let empty = |arg: &clap::Arg| arg.get_env().and_then(variable).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| if empty(&arg) { arg.env(Resettable::Reset) } else { arg })
        .mut_subcommands(|command| without_empty(command, variable))
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Global {
    /// Settings; `quaymaster.toml` of the current folder when it is there.
    #[arg(long, global = true, env = "QUAYMASTER_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What is logged to stderr: a level, or a filter such as `quaymaster=debug`.
    #[arg(long, global = true, env = "QUAYMASTER_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// How it is logged.
    #[arg(long, global = true, env = "QUAYMASTER_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Print JSON; also an error, as a problem document on standard output.
    #[arg(long, global = true, env = "QUAYMASTER_JSON", value_parser = BoolishValueParser::new())]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the schema over HTTP.
    Serve(Serve),
    /// Send the jobs of queues with `push` to their HTTP services; ship and complete uploads.
    Worker(Worker),
    /// Check schema files: every problem with its line, code and help.
    Check(Check),
    /// Print the schema as Markdown: resources, keys, types, TTLs, both spellings.
    Docs(Docs),
    /// Say which resource a key belongs to, and what is there.
    Explain(Explain),
    /// Find keys of the schema that are over, lack an end or point nowhere; `--apply` puts them right.
    Clean(Clean),
    /// Find keys of the schema under names of earlier versions; `--apply` renames them.
    Respell(Respell),
    /// Say how the store is.
    Health(Health),
    /// Write a commented schema and settings to start from into the current folder.
    Init(Init),
    /// Print what editors complete and check schema files by.
    Schema(PrintSchema),
    /// Print the HTTP API as an OpenAPI document.
    Openapi,
    /// Print every kind and verb: fields, bounds, defaults, answers, roles.
    Describe,
    #[command(flatten)]
    Wish(Wish),
}

/// Which schema on which store.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Place {
    /// A schema file; several by repeating it, or with commas. None: those of the settings, else the five bundled
    /// systems.
    #[arg(long, env = "QUAYMASTER_SCHEMA", value_name = "FILE", value_delimiter = ',')]
    pub(crate) schema: Vec<PathBuf>,
    /// `embedded`, `memory`, or a `redis://`, `rediss://`, `redis+sentinel://` or `redis+cluster://` URL.
    #[arg(long, env = "QUAYMASTER_STORE", value_name = "STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// The folder of the embedded store [default: ./quaymaster-data].
    #[arg(long, env = "QUAYMASTER_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// When the embedded store acknowledges a change: after its commit, or within a second of it.
    #[arg(long, env = "QUAYMASTER_DURABILITY", value_name = "WHEN")]
    pub(crate) durability: Option<DurabilityArg>,
    /// Data of the embedded store from which on nothing is accepted that could grow it, such as `2GiB`; 0 for no bound
    /// [default: half of the memory there is].
    #[arg(long, env = "QUAYMASTER_MAX_MEMORY", value_name = "SIZE")]
    pub(crate) max_memory: Option<String>,
    /// Go on although the store may evict what the schema holds.
    #[arg(long, env = "QUAYMASTER_ACCEPT_EVICTION", value_parser = BoolishValueParser::new())]
    pub(crate) accept_eviction: bool,
    /// Use the bundled schemas, a demonstration, also on a store that is not embedded.
    #[arg(long, env = "QUAYMASTER_DEMO", value_parser = BoolishValueParser::new())]
    pub(crate) demo: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityArg {
    /// After the commit reached the disk.
    Always,
    /// At once; the disk follows within a second.
    Everysec,
}

impl From<DurabilityArg> for Durability {
    fn from(arg: DurabilityArg) -> Self {
        match arg {
            DurabilityArg::Always => Durability::Always,
            DurabilityArg::Everysec => Durability::EverySec,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Where to listen [default: 127.0.0.1:7420]; port 0 takes a free one; `unix:PATH` is a socket file.
    #[arg(long, env = "QUAYMASTER_LISTEN", value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Listen on an address others reach although no token is configured.
    #[arg(long, env = "QUAYMASTER_INSECURE_LISTEN", value_parser = BoolishValueParser::new())]
    pub(crate) insecure_listen: bool,
    /// Listen on an address others reach without TLS although tokens can be read there on their way.
    #[arg(long, env = "QUAYMASTER_INSECURE_HTTP", value_parser = BoolishValueParser::new())]
    pub(crate) insecure_http: bool,
    /// Also send the jobs of queues with `push` to their HTTP services.
    #[arg(long, env = "QUAYMASTER_WORKERS", value_parser = BoolishValueParser::new())]
    pub(crate) workers: bool,
    /// Append a line of JSON for each call to this file; `-` is standard output.
    #[arg(long, env = "QUAYMASTER_ACCESS_LOG", value_name = "FILE")]
    pub(crate) access_log: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Worker {
    #[command(flatten)]
    pub(crate) place: Place,
    /// A queue to work on; several by repeating it, or with commas. None: every queue that declares `push`, unless uploads
    /// are named.
    #[arg(long, env = "QUAYMASTER_QUEUE", value_name = "NAME", value_delimiter = ',')]
    pub(crate) queue: Vec<String>,
    /// An upload to ship and complete; several by repeating it, or with commas. None: every upload, unless queues are
    /// named.
    #[arg(long, env = "QUAYMASTER_UPLOAD", value_name = "NAME", value_delimiter = ',')]
    pub(crate) upload: Vec<String>,
    /// Answer `/healthz`, `/readyz` and `/metrics` there, and nothing else; port 0 takes a free one [default: nowhere].
    #[arg(long, env = "QUAYMASTER_METRICS", value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
    /// Answer on an address others reach although no token is configured.
    #[arg(long, env = "QUAYMASTER_INSECURE_LISTEN", value_parser = BoolishValueParser::new())]
    pub(crate) insecure_listen: bool,
    /// Answer on an address others reach without TLS although tokens can be read there on their way.
    #[arg(long, env = "QUAYMASTER_INSECURE_HTTP", value_parser = BoolishValueParser::new())]
    pub(crate) insecure_http: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) files: Files,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Docs {
    #[command(flatten)]
    pub(crate) files: Files,
}

/// Schema files, read without a store.
#[derive(Debug, ClapArgs)]
pub(crate) struct Files {
    /// Schema files, read together. None: those of `--schema`, else of the settings, else the five bundled systems.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The same, where no FILE is given; several by repeating it, or with commas.
    #[arg(long, env = "QUAYMASTER_SCHEMA", value_name = "FILE", value_delimiter = ',')]
    pub(crate) schema: Vec<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Init {
    /// The schema's name: 1 to 64 letters, digits, `_` and `-`. Its keys begin with it.
    #[arg(value_name = "NAME", default_value = "shop", value_parser = crate::command::init::name)]
    pub(crate) name: String,
    /// Overwrite files that are there. Only by hand: no environment variable sets it.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PrintSchema {
    /// As a JSON Schema (draft 7); editors find it by a first line `#:schema PATH`.
    #[arg(long, required = true)]
    pub(crate) json_schema: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Explain {
    /// The key, as the store spells it.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Clean {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Put right what is found; without it nothing is changed. Only by hand: no environment variable sets it.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Only this resource, such as `limit.courtlistener`.
    #[arg(long, value_name = "KIND.NAME")]
    pub(crate) only: Option<String>,
    /// Keys looked at in a second.
    #[arg(long, env = "QUAYMASTER_RATE", value_name = "KEYS", default_value_t = quaymaster::clean::RATE,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Stop after about so many keys, and say where to go on.
    #[arg(long, value_name = "KEYS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) most: Option<u64>,
    /// Go on where an earlier `clean` stopped.
    #[arg(long, value_name = "PLACE")]
    pub(crate) from: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Respell {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Rename them; without it nothing is changed. Only by hand: no environment variable sets it.
    #[arg(long)]
    pub(crate) apply: bool,
}

impl Command {
    /// Whether it writes files that are its user's to share, outside of the data folder.
    pub(crate) fn writes_for_others(&self) -> bool {
        matches!(self, Self::Init(_) | Self::Wish(Wish::Read(_)))
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Health {
    #[command(flatten)]
    pub(crate) place: Place,
}

#[cfg(test)]
mod tests {
    use quaymaster::schema::Kind;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        // Also that no field of a call has the name of a flag that every call has.
        Args::command().debug_assert();
    }

    /// Flags that must not be left on by accident, what one `clean` looks at, and one that is required anyway.
    const ONLY_BY_HAND: [&str; 7] = ["apply", "repair", "force", "only", "most", "from", "json-schema"];

    #[test]
    fn every_command_has_json() {
        fn look(command: &clap::Command) {
            let mut below = command.get_subcommands().filter(|below| below.get_name() != "help").peekable();
            if below.peek().is_none() {
                let has = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
                assert!(has, "{}", command.get_bin_name().unwrap_or_default());
            }
            below.for_each(look);
        }
        let mut command = Args::command();
        command.build();
        look(&command);
    }

    #[test]
    fn every_verb_can_be_asked_of_a_server_and_prints_json() {
        let mut command = Args::command();
        command.build();
        let mut verbs = Vec::new();
        for kind in command.get_subcommands().filter(|kind| kind.get_name().parse::<Kind>().is_ok()) {
            for verb in kind.get_subcommands().filter(|verb| verb.get_name() != "help") {
                let name = format!("{} {}", kind.get_name(), verb.get_name());
                let has = |flag| verb.get_arguments().any(|arg| arg.get_long() == Some(flag));
                assert!(has("json"), "{name}");
                // The doctor looks into the store, the ledger and the objects itself.
                let asks = name != "upload doctor";
                assert_eq!((has("server"), has("ca-file")), (asks, asks), "{name}");
                verbs.push(name);
            }
        }
        for call in quaymaster_server::command::commands() {
            let name = format!("{} {}", call.kind().name(), call.verb());
            assert!(verbs.contains(&name), "{name} is no verb of the command line");
        }
        for name in ["event stream", "upload put", "upload content", "upload progress", "upload doctor"] {
            assert!(verbs.iter().any(|verb| verb == name), "{name}");
        }
    }

    #[test]
    fn settings_have_an_environment_variable_and_flags_of_one_call_have_none() {
        fn look(command: &clap::Command, of_call: &dyn Fn(&str) -> bool) {
            let asks_a_server = command.get_arguments().any(|arg| arg.get_long() == Some("server"));
            for arg in command.get_arguments() {
                let Some(long) = arg.get_long().filter(|long| !matches!(*long, "help" | "version")) else {
                    continue;
                };
                let wanted = format!("QUAYMASTER_{}", long.replace('-', "_").to_uppercase());
                let by_hand = ONLY_BY_HAND.contains(&long) || (long == "insecure-http" && asks_a_server);
                let wanted = (!by_hand && !of_call(long)).then_some(wanted);
                let found = arg.get_env().map(|name| name.to_string_lossy().into_owned());
                assert_eq!(found, wanted, "{} --{long}", command.get_name());
            }
        }
        fn all(command: &clap::Command) {
            look(command, &|_| false);
            for below in command.get_subcommands() {
                let calls: Vec<_> = quaymaster_server::command::commands()
                    .filter(|call| call.kind().name() == below.get_name())
                    .collect();
                if calls.is_empty() {
                    all(below);
                    continue;
                }
                for verb in below.get_subcommands() {
                    // A verb of the command line alone has flags for fields of its kind's calls.
                    let own = calls.iter().all(|call| call.verb() != verb.get_name());
                    let of_verb = calls.iter().filter(|call| own || call.verb() == verb.get_name());
                    let fields: Vec<String> = of_verb
                        .flat_map(|call| call.fields().map(|field| crate::calls::flag(field.name)))
                        .chain(["key", "watch", "count"].map(str::to_owned))
                        .collect();
                    let own = crate::command::upload::args::OF_ONE_CALL;
                    look(verb, &|long| fields.iter().any(|field| field == long) || own.contains(&long));
                }
            }
        }
        all(&Args::command());
    }
}
