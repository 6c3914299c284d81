//! The Rust of a header: a call with a field per key and argument, and an enum of its replies.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::header::{Each, Entry, Groups, Holds, Outcome, Type, Value};

/// `token_bucket` is `TokenBucket`.
fn pascal(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split(['_', '/']).filter(|word| !word.is_empty()).map(capital).collect()
}

/// Which section something belongs to, and how deep the module lies in which it is written.
#[derive(Clone, Copy)]
struct Side<'a> {
    section: &'a str,
    groups: &'a Groups,
    up: &'a str,
}

impl Side<'_> {
    fn group(self, name: &str) -> String {
        let end = if self.section == "KEYS" { "Keys" } else { "Args" };
        format!("{}{end}", pascal(name))
    }

    fn group_type(self, name: &str) -> String {
        let borrows = self.groups.of(self.section).get(name).is_some_and(|members| self.borrows(members));
        format!("{}{}{}", self.up, self.group(name), if borrows { "<'a>" } else { "" })
    }

    /// Whether a struct of these entries borrows anything.
    fn borrows(self, entries: &[Entry]) -> bool {
        entries.iter().any(|entry| match &entry.holds {
            Holds::Word(kind) => !matches!(kind, Type::Int(_)),
            Holds::Group(name) => {
                self.groups.of(self.section).get(name).is_some_and(|group| self.borrows(group))
            }
            Holds::Row(members) => self.borrows(members),
            Holds::Words(_) | Holds::Groups(_) | Holds::Rows(_) => true,
        })
    }

    /// What a variable number of words is put into: it takes nothing else.
    fn list(self, entry: &Entry) -> String {
        let up = self.up;
        match &entry.holds {
            Holds::Groups(name) => format!("{up}{}List", self.group(name)),
            Holds::Words(Type::Key) => format!("{up}KeyList"),
            Holds::Words(Type::Int(_)) => format!("{up}IntList"),
            Holds::Words(Type::Text) => format!("{up}TextList"),
            Holds::Words(Type::Bytes) => format!("{up}BytesList"),
            _ => format!("{}List", pascal(&entry.name)),
        }
    }

    fn field_type(self, entry: &Entry) -> String {
        let up = self.up;
        let plain = match &entry.holds {
            Holds::Word(Type::Key) => format!("{up}KeyBinding<'a>"),
            Holds::Word(Type::Int(_)) => "i64".to_string(),
            Holds::Word(Type::Text) => "&'a str".to_string(),
            Holds::Word(Type::Bytes) => "&'a [u8]".to_string(),
            Holds::Word(Type::Word) => format!("{up}Word<'a>"),
            Holds::Group(name) => self.group_type(name),
            Holds::Row(members) => {
                format!("{}{}", pascal(&entry.name), if self.borrows(members) { "<'a>" } else { "" })
            }
            Holds::Words(_) | Holds::Groups(_) | Holds::Rows(_) if self.section == "KEYS" => {
                format!("&'a dyn Fn(&mut {}<'_, '_>) -> {up}Result<()>", self.list(entry))
            }
            Holds::Words(_) | Holds::Groups(_) | Holds::Rows(_) => {
                format!("&'a dyn Fn(&mut {}<'_>)", self.list(entry))
            }
        };
        if entry.optional { format!("Option<{plain}>") } else { plain }
    }

    fn fields(self, entries: &[Entry], out: &mut String) {
        for entry in entries {
            let _ = writeln!(out, "    pub(crate) {}: {},", entry.name, self.field_type(entry));
        }
    }

    /// The statements that append the entries of `self` to `out`.
    fn puts(self, entries: &[Entry], out: &mut String) {
        for entry in entries {
            let name = &entry.name;
            let put = |value: &str| match (&entry.holds, self.section) {
                (Holds::Word(_), "KEYS") => format!("keys.put({value})?;"),
                (Holds::Word(Type::Int(Some(least))), _) => format!(
                    "debug_assert!({value} >= {least}, \"{name} is at least {least}\"); args.push_int({value});"
                ),
                (Holds::Word(Type::Int(None)), _) => format!("args.push_int({value});"),
                (Holds::Word(Type::Word), _) => format!("{value}.put(args);"),
                (Holds::Word(_), _) => format!("args.push({value});"),
                (Holds::Group(_) | Holds::Row(_), "KEYS") => format!("{value}.put(keys)?;"),
                (Holds::Group(_) | Holds::Row(_), _) => format!("{value}.put(args);"),
                (_, "KEYS") => format!("({value})(&mut {}(keys))?;", self.list(entry)),
                _ => format!("({value})(&mut {}(args));", self.list(entry)),
            };
            let _ = if entry.optional {
                writeln!(out, "        if let Some({name}) = self.{name} {{ {} }}", put(name))
            } else {
                writeln!(out, "        {}", put(&format!("self.{name}")))
            };
        }
    }

    /// A struct of words that stand in a row.
    fn row(self, name: &str, entries: &[Entry], out: &mut String) {
        let (of, anonymous) = if self.borrows(entries) { ("<'a>", "<'_>") } else { ("", "") };
        let _ = writeln!(out, "#[derive(Clone, Copy)]\npub(crate) struct {name}{of} {{");
        self.fields(entries, out);
        let (takes, gives, done) = if self.section == "KEYS" {
            ("keys: &mut Keys<'_>", format!(" -> {}Result<()>", self.up), "        Ok(())\n")
        } else {
            ("args: &mut Words", String::new(), "")
        };
        let takes = takes.replace("&mut ", &format!("&mut {}", self.up));
        // A script's own rows go nowhere but into its call.
        let seen = if self.up.is_empty() { "pub(crate) " } else { "" };
        let _ = writeln!(out, "}}\n\nimpl {name}{anonymous} {{\n    {seen}fn put(self, {takes}){gives} {{");
        self.puts(entries, out);
        let _ = writeln!(out, "{done}    }}\n}}\n");
    }

    fn rows_of(self, entries: &[Entry], out: &mut String) {
        for entry in entries {
            let name = pascal(&entry.name);
            match &entry.holds {
                Holds::Row(members) => self.row(&name, members, out),
                Holds::Rows(members) => {
                    let row = format!("{name}Row");
                    self.row(&row, members, out);
                    self.rows_into(&format!("{name}List"), &row, members, out);
                }
                _ => {}
            }
        }
    }

    /// The struct that takes any number of one row, and nothing else.
    fn rows_into(self, list: &str, row: &str, members: &[Entry], out: &mut String) {
        let (up, of) = (self.up, if self.borrows(members) { "<'_>" } else { "" });
        let (lives, anonymous, holds, gives, put) = if self.section == "KEYS" {
            let holds = format!("&'k mut {up}Keys<'w>");
            ("<'k, 'w>", "<'_, '_>", holds, format!(" -> {up}Result<()>"), "row.put(self.0)")
        } else {
            ("<'w>", "<'_>", format!("&'w mut {up}Words"), String::new(), "row.put(self.0);")
        };
        let _ = writeln!(
            out,
            "pub(crate) struct {list}{lives}({holds});\n\nimpl {list}{anonymous} {{\n    \
             pub(crate) fn put(&mut self, row: {row}{of}){gives} {{\n        {put}\n    }}\n}}\n"
        );
    }
}

/// The structs of what includes declare; with a list of those that one of these entries is any number of.
pub(crate) fn groups<'e>(groups: &Groups, entries: impl Iterator<Item = &'e Entry>) -> String {
    let many = |entry: &'e Entry| match &entry.holds {
        Holds::Groups(name) => Some(name.as_str()),
        _ => None,
    };
    let listed: BTreeSet<&str> = entries.filter_map(many).collect();
    let mut out = String::new();
    for section in ["KEYS", "ARGV"] {
        let side = Side { section, groups, up: "" };
        for (name, members) in groups.of(section) {
            let _ = writeln!(out, "/// {section} of `{name}` in a row.");
            let row = side.group(name);
            side.row(&row, members, &mut out);
            if listed.contains(name.as_str()) {
                side.rows_into(&format!("{row}List"), &row, members, &mut out);
            }
        }
    }
    out
}

/// The module of one script.
pub(crate) fn module(
    id: &str,
    about: &str,
    keys: &[Entry],
    args: &[Entry],
    outcomes: &[Outcome],
    groups: &Groups,
) -> String {
    let (name, constant) = (id.replace('.', "_"), id.replace('.', "_").to_uppercase());
    let keyed = Side { section: "KEYS", groups, up: "super::" };
    let argued = Side { section: "ARGV", groups, up: "super::" };
    let mut out = format!("/// `{id}`: {about}\npub(crate) mod {name} {{\n");
    keyed.rows_of(keys, &mut out);
    argued.rows_of(args, &mut out);
    let borrows = keyed.borrows(keys) || argued.borrows(args);
    let (of, anonymous) = if borrows { ("<'a>", "<'_>") } else { ("", "") };
    let _ = writeln!(out, "pub(crate) struct Call{of} {{");
    keyed.fields(keys, &mut out);
    argued.fields(args, &mut out);
    let _ = writeln!(
        out,
        "}}\n\nimpl Call{anonymous} {{\n    pub(crate) fn on(self, at: super::At) -> \
         super::Result<super::Invocation> {{\n        let mut call = at.begin(&super::{constant}.script);"
    );
    if !keys.is_empty() {
        let _ = writeln!(out, "        let keys = &mut at.keys(&mut call.keys);");
        keyed.puts(keys, &mut out);
    }
    if !args.is_empty() {
        let _ = writeln!(out, "        let args = &mut call.args;");
        argued.puts(args, &mut out);
    }
    let _ = writeln!(out, "        Ok(call)\n    }}\n}}\n");
    replies(outcomes, &mut out);
    out.push_str("}\n\n");
    out
}

/// The rows that replies are made of; two words may share one.
fn rows_of_replies(outcomes: &[Outcome], out: &mut String) {
    let mut made: Vec<&str> = Vec::new();
    for (name, row) in outcomes.iter().filter_map(Outcome::row) {
        if made.contains(&name) {
            continue;
        }
        made.push(name);
        let (name, fields) = (pascal(name), row.iter().filter_map(declared).collect::<Vec<_>>());
        let (steps, names): (Vec<String>, Vec<&str>) =
            (row.iter().map(step).collect(), row.iter().filter_map(Value::name).collect());
        let fields =
            fields.iter().map(|field| format!("    pub(crate) {field},\n")).collect::<Vec<_>>().concat();
        let _ = writeln!(
            out,
            "#[derive(Debug)]\npub(crate) struct {name}Row {{\n{fields}}}\n\nimpl {name}Row {{\n    \
             fn read(parts: &mut super::Parts) -> super::Result<Self> {{\n        {} Ok(Self {{ {} }})\n    }}\n}}\n",
            steps.join(" "),
            names.join(", ")
        );
    }
}

fn replies(outcomes: &[Outcome], out: &mut String) {
    rows_of_replies(outcomes, out);
    out.push_str("#[derive(Debug)]\npub(crate) enum Reply {\n");
    for Outcome { word, values } in outcomes {
        let fields: Vec<String> = values.iter().filter_map(declared).collect();
        let _ = if fields.is_empty() {
            writeln!(out, "    {},", pascal(word))
        } else {
            writeln!(out, "    {} {{ {} }},", pascal(word), fields.join(", "))
        };
    }
    out.push_str(
        "}\n\nimpl Reply {\n    pub(crate) fn read(op: &'static str, reply: super::AnyReply) -> super::Result<Self> \
         {\n        Self::of(op, reply.parts(op)?)\n    }\n\n    pub(crate) fn of(op: &'static str, mut parts: \
         super::Parts) -> super::Result<Self> {\n        Ok(match &parts.bytes()?[..] {\n",
    );
    for outcome in outcomes {
        let Outcome { word, values } = outcome;
        let mut steps: Vec<String> = values.iter().map(step).collect();
        // A reply with more values than the header declares was not understood.
        if !outcome.is_open() {
            steps.push("parts.end()?;".to_string());
        }
        let names: Vec<&str> = values.iter().filter_map(Value::name).collect();
        let made = if names.is_empty() { String::new() } else { format!(" {{ {} }}", names.join(", ")) };
        let _ =
            writeln!(out, "            b{word:?} => {{ {} Self::{}{made} }}", steps.join(" "), pascal(word));
    }
    out.push_str("            other => return Err(super::unknown(op, other)),\n        })\n    }\n}\n");
}

fn declared(value: &Value) -> Option<String> {
    let (name, kind) = match value {
        Value::Int(name) => (name, "i64"),
        Value::Bytes(name) => (name, "super::Bytes"),
        Value::Any(name) => (name, "Option<super::AnyReply>"),
        Value::Rest(name, Each::Int) => (name, "Vec<i64>"),
        Value::Rest(name, Each::Bytes) => (name, "Vec<super::Bytes>"),
        Value::Rest(name, Each::Any) => (name, "super::Parts"),
        Value::Rest(name, Each::Row(_)) => return Some(format!("{name}: Vec<{}Row>", pascal(name))),
        Value::Constant => return None,
    };
    Some(format!("{name}: {kind}"))
}

fn step(value: &Value) -> String {
    match value {
        Value::Int(name) => format!("let {name} = parts.int()?;"),
        Value::Bytes(name) => format!("let {name} = parts.bytes()?;"),
        Value::Any(name) => format!("let {name} = parts.any();"),
        Value::Rest(name, Each::Int) => format!("let {name} = super::rest(parts, super::Parts::int)?;"),
        Value::Rest(name, Each::Bytes) => format!("let {name} = super::rest(parts, super::Parts::bytes)?;"),
        Value::Rest(name, Each::Any) => format!("let {name} = parts;"),
        Value::Rest(name, Each::Row(_)) => {
            format!("let {name} = super::rest(parts, {}Row::read)?;", pascal(name))
        }
        Value::Constant => "parts.int()?;".to_string(),
    }
}
