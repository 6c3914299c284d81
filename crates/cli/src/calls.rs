//! `<kind> <verb> NAME`: every call of the server's table, with a flag for each of its fields.

use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args as _, FromArgMatches, Subcommand, value_parser};
use quaymaster::schema::Kind;
use quaymaster_server::ArgType;
use quaymaster_server::command::{self, Command, Fields};
use serde_json::value::{RawValue, to_raw_value};

use crate::args::Place;
use crate::command::upload::args::{self as upload, Content, Doctor, Follow, Put};

/// One call, read from the command line.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) command: Command,
    /// The resource.
    pub(crate) name: String,
    /// Placeholders and their values.
    pub(crate) key: Vec<(String, String)>,
    /// Its other fields, those that were given.
    pub(crate) fields: Fields,
    pub(crate) place: Place,
    pub(crate) json: bool,
}

/// What a command line asks for by kind and verb.
#[derive(Debug)]
pub(crate) enum Wish {
    /// A call, answered once.
    Ask(Call),
    /// `event stream`, which has no end.
    Listen(Listen),
    /// `upload put`, which takes files.
    Put(Box<Put>),
    /// `upload content`, which answers with bytes.
    Read(Content),
    /// `upload progress`, which answers until the upload ends.
    Follow(Follow),
    /// `upload doctor`, which looks at everything there is.
    Examine(Doctor),
    /// `stats report --watch`, asked again and again.
    Watch(Watch),
}

/// A call that is asked again and again.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) call: Call,
    pub(crate) every: Duration,
}

/// What is published from now on.
#[derive(Debug)]
pub(crate) struct Listen {
    /// The event.
    pub(crate) name: String,
    /// Placeholders and their values.
    pub(crate) key: Vec<(String, String)>,
    /// How many messages are enough.
    pub(crate) count: Option<u64>,
    pub(crate) place: Place,
}

/// `wait_ms` is `--wait-ms`.
pub(crate) fn flag(field: &str) -> String {
    field.replace('_', "-")
}

fn variable(field: &str) -> String {
    format!("QUAYMASTER_{}", field.to_uppercase())
}

impl Subcommand for Wish {
    fn augment_subcommands(mut parent: clap::Command) -> clap::Command {
        for kind in Kind::ALL {
            let verbs: Vec<Command> = command::commands().filter(|call| call.kind() == *kind).collect();
            if !verbs.is_empty() {
                let of_kind = clap::Command::new(kind.name())
                    .about(command::kind_about(*kind))
                    .subcommand_required(true)
                    .arg_required_else_help(true)
                    .subcommands(verbs.into_iter().map(verb));
                let own = match kind {
                    Kind::Event => vec![stream()],
                    Kind::Upload => upload::commands(),
                    _ => Vec::new(),
                };
                parent = parent.subcommand(of_kind.subcommands(own));
            }
        }
        parent
    }

    fn augment_subcommands_for_update(parent: clap::Command) -> clap::Command {
        Self::augment_subcommands(parent)
    }

    fn has_subcommand(name: &str) -> bool {
        command::commands().any(|call| call.kind().name() == name)
    }
}

/// The resource and its placeholders, which every verb has.
fn on_resource(verb: &'static str, kind: &str) -> clap::Command {
    clap::Command::new(verb)
        .arg(
            Arg::new("NAME")
                .value_name("NAME")
                .required(true)
                .help(format!("The {kind}'s name in the schema")),
        )
        .arg(
            Arg::new("key")
                .long("key")
                .env("QUAYMASTER_KEY")
                .value_name("PLACEHOLDER=VALUE")
                .value_parser(pair)
                .allow_hyphen_values(true)
                .action(ArgAction::Append)
                .help("A placeholder's value; once for each placeholder"),
        )
}

fn stream() -> clap::Command {
    let count = Arg::new("count").long("count").env("QUAYMASTER_COUNT").value_name("N");
    let count = count.value_parser(value_parser!(u64).range(1..)).help("End after so many messages");
    Place::augment_args(on_resource("stream", "event").arg(count))
        .about("Print what is published from now on, a line of JSON each")
        .long_about(None)
}

fn verb(call: Command) -> clap::Command {
    let kind = call.kind().name();
    let mut verb = on_resource(call.verb(), kind);
    for field in call.args() {
        let arg = Arg::new(field.name)
            .long(flag(field.name))
            .env(variable(field.name))
            .required(field.required)
            .help(field.help);
        verb = verb.arg(match field.holds {
            // A token, or a JSON number, may begin with a hyphen.
            ArgType::Text => arg.value_name("TEXT").allow_hyphen_values(true),
            ArgType::Json => arg.value_name("JSON").allow_hyphen_values(true),
            ArgType::Texts => arg
                .value_name("TEXT")
                .allow_hyphen_values(true)
                .action(ArgAction::Append)
                .value_delimiter(','),
            ArgType::Integer => arg.value_name("N").value_parser(value_parser!(u64)),
            ArgType::Positive => arg.value_name("N").value_parser(value_parser!(u64).range(1..)),
            ArgType::Flag => arg.action(ArgAction::SetTrue).value_parser(BoolishValueParser::new()),
        });
    }
    if is_watched(call) {
        verb = verb.arg(
            Arg::new("watch")
                .long("watch")
                .env("QUAYMASTER_WATCH")
                .value_name("SECONDS")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("2")
                .value_parser(seconds)
                .help("Ask again every so many seconds (2 unless given) and draw the answer in place"),
        );
    }
    // The flags' own description would take the place of the verb's.
    Place::augment_args(verb).about(call.about()).long_about(None).arg(
        Arg::new("json")
            .long("json")
            .env("QUAYMASTER_JSON")
            .action(ArgAction::SetTrue)
            .value_parser(BoolishValueParser::new())
            .help("Print JSON, as the HTTP API answers"),
    )
}

impl FromArgMatches for Wish {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::raw(ErrorKind::MissingSubcommand, "a verb is missing\n");
        let (kind, of_kind) = matches.subcommand().ok_or_else(missing)?;
        let (verb, given) = of_kind.subcommand().ok_or_else(missing)?;
        match (kind, verb) {
            ("upload", "put") => return Ok(Self::Put(Box::new(Put::from_arg_matches(given)?))),
            ("upload", "content") => return Ok(Self::Read(Content::from_arg_matches(given)?)),
            ("upload", "progress") => return Ok(Self::Follow(Follow::from_arg_matches(given)?)),
            ("upload", "doctor") => return Ok(Self::Examine(Doctor::from_arg_matches(given)?)),
            _ => {}
        }
        let name = given.get_one::<String>("NAME").cloned().unwrap_or_default();
        let key = given.get_many("key").into_iter().flatten().cloned().collect();
        let place = Place::from_arg_matches(given)?;
        if (kind, verb) == ("event", "stream") {
            let count = given.get_one::<u64>("count").copied();
            return Ok(Self::Listen(Listen { name, key, count, place }));
        }
        let command = command::commands()
            .find(|call| call.kind().name() == kind && call.verb() == verb)
            .ok_or_else(missing)?;
        let fields = command.args().iter().filter_map(|field| {
            let text = || given.get_one::<String>(field.name).cloned();
            let value = match field.holds {
                ArgType::Text => to_raw_value(&text()?),
                ArgType::Json => json(text()?),
                ArgType::Texts => {
                    to_raw_value(&given.get_many::<String>(field.name)?.collect::<Vec<&String>>())
                }
                ArgType::Integer | ArgType::Positive => to_raw_value(given.get_one::<u64>(field.name)?),
                ArgType::Flag => given.get_flag(field.name).then(|| to_raw_value(&true))?,
            };
            // Texts and numbers can always be written.
            Some((field.name.to_owned(), value.ok()?))
        });
        let (fields, json) = (fields.collect(), given.get_flag("json"));
        let watched = is_watched(command).then(|| given.get_one::<Duration>("watch").copied()).flatten();
        let call = Call { command, name, key, fields, place, json };
        Ok(match watched {
            Some(every) => Self::Watch(Watch { call, every }),
            None => Self::Ask(call),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What changes while one looks at it.
fn is_watched(call: Command) -> bool {
    (call.kind(), call.verb()) == (Kind::Stats, "report")
}

fn seconds(text: &str) -> Result<Duration, String> {
    let told = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    told.map(Duration::from_secs_f64).ok_or_else(|| "must be a number of seconds from 0.1 to 3600".into())
}

/// JSON as it was typed; what is not JSON is a text.
fn json(text: String) -> serde_json::Result<Box<RawValue>> {
    match RawValue::from_string(text.trim().to_owned()) {
        Ok(raw) => Ok(raw),
        Err(_) => to_raw_value(&text),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be PLACEHOLDER=VALUE".into()),
    }
}
