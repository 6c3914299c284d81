//! `<kind> <verb> NAME`: every call of the server's table, with a flag for each of its fields.

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args as _, FromArgMatches, Subcommand, value_parser};
use quaymaster_server::ArgType;
use quaymaster_server::command::{self, Command};
use serde_json::{Map, Value};

use crate::args::Place;

/// One call, read from the command line.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) command: Command,
    /// The resource.
    pub(crate) name: String,
    /// Placeholders and their values.
    pub(crate) key: Vec<(String, String)>,
    /// Its other fields, those that were given.
    pub(crate) fields: Map<String, Value>,
    pub(crate) place: Place,
    pub(crate) json: bool,
}

/// `wait_ms` is `--wait-ms`.
pub(crate) fn flag(field: &str) -> String {
    field.replace('_', "-")
}

fn variable(field: &str) -> String {
    format!("QUAYMASTER_{}", field.to_uppercase())
}

impl Subcommand for Call {
    fn augment_subcommands(mut parent: clap::Command) -> clap::Command {
        for kind in quaymaster::schema::Kind::ALL {
            let verbs: Vec<Command> = command::commands().filter(|call| call.kind() == *kind).collect();
            if !verbs.is_empty() {
                let of_kind = clap::Command::new(kind.name())
                    .about(command::kind_about(*kind))
                    .subcommand_required(true)
                    .arg_required_else_help(true)
                    .subcommands(verbs.into_iter().map(verb));
                parent = parent.subcommand(of_kind);
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

fn verb(call: Command) -> clap::Command {
    let kind = call.kind().name();
    let mut verb = clap::Command::new(call.verb())
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
        );
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
            ArgType::Integer => arg.value_name("N").value_parser(value_parser!(u64)),
            ArgType::Positive => arg.value_name("N").value_parser(value_parser!(u64).range(1..)),
            ArgType::Flag => arg.action(ArgAction::SetTrue).value_parser(BoolishValueParser::new()),
        });
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

impl FromArgMatches for Call {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::raw(ErrorKind::MissingSubcommand, "a verb is missing\n");
        let (kind, of_kind) = matches.subcommand().ok_or_else(missing)?;
        let (verb, given) = of_kind.subcommand().ok_or_else(missing)?;
        let command = command::commands()
            .find(|call| call.kind().name() == kind && call.verb() == verb)
            .ok_or_else(missing)?;
        let fields = command.args().iter().filter_map(|field| {
            let text = || given.get_one::<String>(field.name).cloned();
            let value = match field.holds {
                ArgType::Text => Value::from(text()?),
                ArgType::Json => {
                    text().map(|text| serde_json::from_str(&text).unwrap_or(Value::from(text)))?
                }
                ArgType::Integer | ArgType::Positive => Value::from(*given.get_one::<u64>(field.name)?),
                ArgType::Flag => given.get_flag(field.name).then_some(Value::from(true))?,
            };
            Some((field.name.to_owned(), value))
        });
        Ok(Self {
            command,
            name: given.get_one::<String>("NAME").cloned().unwrap_or_default(),
            key: given.get_many("key").into_iter().flatten().cloned().collect(),
            fields: fields.collect(),
            place: Place::from_arg_matches(given)?,
            json: given.get_flag("json"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be PLACEHOLDER=VALUE".into()),
    }
}
