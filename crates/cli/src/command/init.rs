//! `init [NAME]`: a commented schema and settings to start from, in the current folder.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use quaymaster::schema::json_schema;
use quaymaster_server::config;
use serde_json::json;

use crate::args::{Global, Init};
use crate::failure::Unreadable;
use crate::output;

/// The schema, valid as it stands; its name and its prefix are the caller's.
const SCHEMA: &str = include_str!("starter/schema.toml");
const SETTINGS: &str = include_str!("starter/quaymaster.toml");

const NEXT: [&str; 3] =
    ["quaymaster check schema.toml", "quaymaster limit take api --key customer=ann", "quaymaster serve"];

pub(crate) fn run(args: &Init, global: &Global) -> anyhow::Result<ExitCode> {
    let files = [
        ("schema.toml", named(&args.name)),
        (config::FILE, SETTINGS.to_owned()),
        ("quaymaster.schema.json", json_schema()),
    ];
    if !args.force {
        refuse_existing(&files.each_ref().map(|(name, _)| *name))?;
    }
    for (name, text) in &files {
        write(name, text, args.force)?;
    }
    let names = files.map(|(name, _)| name);
    if global.json {
        let report = json!({ "name": args.name, "files": names, "next": NEXT });
        return output::print(&serde_json::to_string_pretty(&report)?);
    }
    let wrote = names.map(|name| format!("wrote {name}\n")).concat();
    let next = NEXT.map(|command| format!("  {command}\n")).concat();
    output::print(&format!("{wrote}next:\n{next}"))
}

/// A schema's name is part of its prefix, so it has what a key may have.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=64).contains(&text.len()) && text.chars().all(plain) {
        return Ok(text.to_owned());
    }
    Err("a name has 1 to 64 letters, digits, `_` and `-`".to_owned())
}

fn named(name: &str) -> String {
    SCHEMA
        .replace("name = \"shop\"", &format!("name = \"{name}\""))
        .replace("prefix = \"shop:\"", &format!("prefix = \"{name}:\""))
}

/// Nothing is written when one of the files is there.
fn refuse_existing(names: &[&str]) -> Result<(), Unreadable> {
    // A link to nowhere is there too.
    let there = |name: &&&str| Path::new(**name).symlink_metadata().is_ok();
    let found: Vec<&str> = names.iter().filter(there).copied().collect();
    match found.as_slice() {
        [] => Ok(()),
        found => Err(exists(&found.join(", "))),
    }
}

fn exists(names: &str) -> Unreadable {
    let help = "Run it in another folder, or with --force to overwrite.";
    Unreadable::new(format!("{names}: already there\n  help: {help}"))
}

fn write(name: &str, text: &str, force: bool) -> Result<(), Unreadable> {
    let mut how = OpenOptions::new();
    // Another process may have written it since.
    how.write(true).create(force).truncate(force).create_new(!force);
    let written = how.open(name).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => exists(name),
        _ => Unreadable::because(format_args!("cannot write {name}"), error),
    })
}
