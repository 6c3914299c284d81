//! The Rust of a header: a call with a field per key and argument, and an enum of its replies.

use std::fmt::Write as _;

use super::header::{Entry, Groups, Holds, Outcome, Type, Value};

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
            Holds::Word(kind) => *kind != Type::Int,
            Holds::Group(name) => {
                self.groups.of(self.section).get(name).is_some_and(|group| self.borrows(group))
            }
            Holds::Row(members) => self.borrows(members),
            Holds::Words(_) | Holds::Groups(_) | Holds::Rows(_) => true,
        })
    }

    fn field_type(self, entry: &Entry) -> String {
        let up = self.up;
        let plain = match &entry.holds {
            Holds::Word(Type::Key) => format!("{up}KeyBinding<'a>"),
            Holds::Word(Type::Int) => "i64".to_string(),
            Holds::Word(Type::Text) => "&'a str".to_string(),
            Holds::Word(Type::Bytes) => "&'a [u8]".to_string(),
            Holds::Word(Type::Word) => format!("{up}Word<'a>"),
            Holds::Group(name) => self.group_type(name),
            Holds::Row(members) => {
                format!("{}{}", pascal(&entry.name), if self.borrows(members) { "<'a>" } else { "" })
            }
            Holds::Words(_) | Holds::Groups(_) | Holds::Rows(_) if self.section == "KEYS" => {
                format!("{up}ManyKeys<'a>")
            }
            Holds::Words(_) | Holds::Groups(_) | Holds::Rows(_) => format!("{up}Many<'a>"),
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
                (Holds::Word(Type::Int), _) => format!("args.push_int({value});"),
                (Holds::Word(Type::Word), _) => format!("{value}.put(args);"),
                (Holds::Word(_), _) => format!("args.push({value});"),
                (Holds::Group(_) | Holds::Row(_), "KEYS") => format!("{value}.put(keys)?;"),
                (Holds::Group(_) | Holds::Row(_), _) => format!("{value}.put(args);"),
                (_, "KEYS") => format!("({value})(keys)?;"),
                _ => format!("({value})(args);"),
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
        let _ =
            writeln!(out, "}}\n\nimpl {name}{anonymous} {{\n    pub(crate) fn put(self, {takes}){gives} {{");
        self.puts(entries, out);
        let _ = writeln!(out, "{done}    }}\n}}\n");
    }

    fn rows_of(self, entries: &[Entry], out: &mut String) {
        for entry in entries {
            if let Holds::Row(members) | Holds::Rows(members) = &entry.holds {
                self.row(&pascal(&entry.name), members, out);
            }
        }
    }
}

/// The structs of what includes declare.
pub(crate) fn groups(groups: &Groups) -> String {
    let mut out = String::new();
    for section in ["KEYS", "ARGV"] {
        let side = Side { section, groups, up: "" };
        for (name, members) in groups.of(section) {
            let _ = writeln!(out, "/// {section} of `{name}` in a row.");
            side.row(&side.group(name), members, &mut out);
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

fn replies(outcomes: &[Outcome], out: &mut String) {
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
        Value::Rest(name) => (name, "super::Parts"),
        Value::Constant => return None,
    };
    Some(format!("{name}: {kind}"))
}

fn step(value: &Value) -> String {
    match value {
        Value::Int(name) => format!("let {name} = parts.int()?;"),
        Value::Bytes(name) => format!("let {name} = parts.bytes()?;"),
        Value::Any(name) => format!("let {name} = parts.any();"),
        Value::Rest(name) => format!("let {name} = parts;"),
        Value::Constant => "parts.int()?;".to_string(),
    }
}
