//! `<kind> <verb> NAME`: every call of the server's table, with a flag for each of its fields. These flags belong to one
//! call: no environment variable sets them.

use std::io::Read as _;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args as _, FromArgMatches, Subcommand, value_parser};
use quaymaster::schema::Kind;
use quaymaster::{Code, Error};
use quaymaster_server::command::{self, Command, Fields};
use quaymaster_server::{Field, Holds};
use serde_json::value::{RawValue, to_raw_value};

use crate::args::Place;
use crate::command::upload::args::{self as upload, Content, Doctor, Follow, Put};
use crate::remote::Remote;

/// One call, read from the command line.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) command: Command,
    /// The resource.
    pub(crate) name: String,
    /// Placeholders and their values.
    pub(crate) key: Vec<(String, String)>,
    /// Its other fields.
    pub(crate) given: Given,
    pub(crate) place: Place,
    pub(crate) remote: Remote,
}

/// Fields that were given as flags.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    pub(crate) fields: Fields,
    /// Fields that hold JSON, as they were typed; [`Given::read`] makes fields of them.
    typed: Vec<(&'static str, String)>,
}

impl Given {
    pub(crate) fn of(fields: impl Iterator<Item = &'static Field>, given: &ArgMatches) -> Self {
        let mut all = Self::default();
        for field in fields {
            match value(field, given) {
                Some(Value::Known(value)) => {
                    all.fields.insert(field.name.to_owned(), value);
                }
                Some(Value::Typed(text)) => all.typed.push((field.name, text)),
                None => {}
            }
        }
        all
    }

    /// Reads what was typed for fields that hold JSON, from files and standard input too.
    pub(crate) fn read(&mut self) -> Result<(), Error> {
        for (name, typed) in self.typed.drain(..) {
            let flag = format!("--{}", flag(name));
            let wrong = |why| Error::new("command", Code::RequestInvalid, format!("{flag}: {why}"));
            let value = json(&typed).map_err(|why| wrong(why).field(flag.clone()))?;
            self.fields.insert(name.to_owned(), value);
        }
        Ok(())
    }
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
    pub(crate) remote: Remote,
}

/// `wait_ms` is `--wait-ms`.
pub(crate) fn flag(field: &str) -> String {
    field.replace('_', "-")
}

impl Subcommand for Wish {
    fn augment_subcommands(mut parent: clap::Command) -> clap::Command {
        for kind in Kind::ALL {
            let verbs: Vec<Command> = command::commands().filter(|call| call.kind() == *kind).collect();
            if !verbs.is_empty() {
                let of_kind = clap::Command::new(kind.name())
                    .about(kind.about())
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
                .value_name("PLACEHOLDER=VALUE")
                .value_parser(pair)
                .allow_hyphen_values(true)
                .action(ArgAction::Append)
                .help("A placeholder's value; once for each placeholder"),
        )
}

fn stream() -> clap::Command {
    let count = Arg::new("count").long("count").value_name("N");
    let count = count.value_parser(value_parser!(u64).range(1..)).help("End after so many messages");
    Remote::augment_args(Place::augment_args(on_resource("stream", "event").arg(count)))
        .about("Print what is published from now on, a line of JSON each")
        .long_about(None)
}

fn verb(call: Command) -> clap::Command {
    let kind = call.kind().name();
    let mut verb = on_resource(call.verb(), kind).args(call.fields().map(arg));
    if is_watched(call) {
        verb = verb.arg(
            Arg::new("watch")
                .long("watch")
                .value_name("SECONDS")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("2")
                .value_parser(seconds)
                .help("Ask again every so many seconds (2 unless given) and draw the answer in place"),
        );
    }
    // The flags' own description would take the place of the verb's.
    Remote::augment_args(Place::augment_args(verb)).about(call.about()).long_about(None)
}

/// The flag of a field.
pub(crate) fn arg(field: &'static Field) -> Arg {
    let arg = Arg::new(field.name).long(flag(field.name)).required(field.spec.required).help(help(field));
    // A token, or a JSON number, may begin with a hyphen.
    match field.spec.holds {
        Holds::Text { .. } | Holds::Id => arg.value_name("TEXT").allow_hyphen_values(true),
        Holds::Word(words) => arg.value_name("WORD").value_parser(words.to_vec()),
        Holds::Texts { .. } | Holds::Ids { .. } => {
            arg.value_name("TEXT").allow_hyphen_values(true).action(ArgAction::Append).value_delimiter(',')
        }
        Holds::Integer { min, .. } => {
            arg.value_name("N").value_parser(value_parser!(u64).range(min.min(1)..))
        }
        Holds::Truth if !says_no(field) => {
            arg.action(ArgAction::SetTrue).value_parser(BoolishValueParser::new())
        }
        _ => arg.value_name("JSON").allow_hyphen_values(true),
    }
}

/// Whether a field is `true` unless given: a flag could only say again what is so without it.
fn says_no(field: &Field) -> bool {
    field.spec.default == Some("true")
}

/// What a field is for, and what is taken where it is not given.
fn help(field: &Field) -> String {
    let about = field.about().trim().trim_end_matches('.');
    let more = match field.spec.holds {
        Holds::Texts { .. } | Holds::Ids { .. } => "; repeated, or with commas",
        Holds::Key
        | Holds::Text { .. }
        | Holds::Id
        | Holds::Word(_)
        | Holds::Integer { .. }
        | Holds::Number
        | Holds::Truth => "",
        _ => "; @FILE reads a file, - standard input",
    };
    match field.spec.default {
        Some(default) => format!("{about}{more} [default: {default}]"),
        None => format!("{about}{more}"),
    }
}

impl FromArgMatches for Wish {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::raw(ErrorKind::MissingSubcommand, "a verb is missing\n");
        let (kind, of_kind) = matches.subcommand().ok_or_else(missing)?;
        let (verb, given) = of_kind.subcommand().ok_or_else(missing)?;
        match (kind, verb) {
            ("upload", "put") => {
                let put = Put::from_arg_matches(given)?;
                let fields = Given::of(upload::fields_of_put(), given);
                return Ok(Self::Put(Box::new(Put { given: fields, ..put })));
            }
            ("upload", "content") => return Ok(Self::Read(Content::from_arg_matches(given)?)),
            ("upload", "progress") => return Ok(Self::Follow(Follow::from_arg_matches(given)?)),
            ("upload", "doctor") => return Ok(Self::Examine(Doctor::from_arg_matches(given)?)),
            _ => {}
        }
        let name = given.get_one::<String>("NAME").cloned().unwrap_or_default();
        let key = given.get_many("key").into_iter().flatten().cloned().collect();
        let place = Place::from_arg_matches(given)?;
        let remote = Remote::from_arg_matches(given)?;
        if (kind, verb) == ("event", "stream") {
            let count = given.get_one::<u64>("count").copied();
            return Ok(Self::Listen(Listen { name, key, count, place, remote }));
        }
        let command = command::commands()
            .find(|call| call.kind().name() == kind && call.verb() == verb)
            .ok_or_else(missing)?;
        let watched = is_watched(command).then(|| given.get_one::<Duration>("watch").copied()).flatten();
        let call = Call { command, name, key, given: Given::of(command.fields(), given), place, remote };
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

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let told = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    told.map(Duration::from_secs_f64).ok_or_else(|| "must be a number of seconds from 0.1 to 3600".into())
}

/// The value of a field.
enum Value {
    /// As JSON.
    Known(Box<RawValue>),
    /// JSON, or where it is, as it was typed: reading it can fail.
    Typed(String),
}

/// The value of a field, where it is given.
fn value(field: &Field, given: &ArgMatches) -> Option<Value> {
    let text = || given.get_one::<String>(field.name);
    let value = match field.spec.holds {
        Holds::Text { .. } | Holds::Id | Holds::Word(_) => text().map(to_raw_value),
        Holds::Texts { .. } | Holds::Ids { .. } => {
            given.get_many::<String>(field.name).map(|texts| to_raw_value(&texts.collect::<Vec<_>>()))
        }
        Holds::Integer { .. } => given.get_one::<u64>(field.name).map(to_raw_value),
        Holds::Truth if !says_no(field) => given.get_flag(field.name).then(|| to_raw_value(&true)),
        _ => return text().cloned().map(Value::Typed),
    };
    // Texts and numbers can always be written.
    value.and_then(Result::ok).map(Value::Known)
}

/// The most that is read of a file or of standard input.
const MOST: u64 = 64 << 20;

/// JSON as it was typed, or as a file or standard input has it. What is no JSON, and does not begin like it, is a text.
fn json(typed: &str) -> Result<Box<RawValue>, String> {
    let text = match typed.strip_prefix('@') {
        Some(path) => {
            let file = std::fs::File::open(path).map_err(|error| format!("cannot read {path}: {error}"))?;
            read_all(file).map_err(|error| format!("cannot read {path}: {error}"))?
        }
        None if typed == "-" => {
            read_all(std::io::stdin()).map_err(|error| format!("cannot read standard input: {error}"))?
        }
        None => typed.to_owned(),
    };
    if text.trim().is_empty() && (typed == "-" || typed.starts_with('@')) {
        return Err(format!(
            "there is nothing in {}",
            if typed == "-" { "standard input" } else { &typed[1..] }
        ));
    }
    match RawValue::from_string(text.trim().to_owned()) {
        Ok(raw) => Ok(raw),
        Err(error) if text.trim_start().starts_with(['{', '[', '"']) => {
            Err(format!("it begins like JSON and is not: {error}; a text is written in quotes: '\"…\"'"))
        }
        Err(_) => to_raw_value(&text).map_err(|error| error.to_string()),
    }
}

fn read_all(from: impl std::io::Read) -> Result<String, String> {
    let mut text = String::new();
    from.take(MOST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MOST {
        return Err(format!("it has more than {MOST} bytes"));
    }
    // A byte order mark says how a file is encoded and is no part of what is in it.
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be PLACEHOLDER=VALUE".into()),
    }
}
