//! The header of a script: which keys and arguments it takes, and what it answers. ARCHITECTURE.md has the grammar.

use std::collections::{BTreeMap, BTreeSet};

/// The lines of one section with their numbers in the file.
pub(crate) type Section = Vec<(usize, String)>;

/// What one word is in Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Key,
    /// An integer, and the least that it may be.
    Int(Option<i64>),
    Text,
    Bytes,
    /// Text or integer.
    Word,
}

/// What stands at one place of KEYS or ARGV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holds {
    /// One word.
    Word(Type),
    /// Any number of words.
    Words(Type),
    /// The words that an include declares under a name.
    Group(String),
    /// Any number of such groups.
    Groups(String),
    /// Words declared in the lines below.
    Row(Vec<Entry>),
    /// Any number of such rows.
    Rows(Vec<Entry>),
}

/// One named place of KEYS or ARGV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) optional: bool,
    pub(crate) holds: Holds,
}

/// One value behind a reply's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Int(String),
    Bytes(String),
    Any(String),
    /// All that follows: any number of these.
    Rest(String, Each),
    /// Always the same: nobody reads it.
    Constant,
}

/// One of any number of values behind a reply's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Each {
    Int,
    Bytes,
    Any,
    /// Several values by turns.
    Row(Vec<Value>),
}

/// One line of OUT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) word: String,
    pub(crate) values: Vec<Value>,
}

impl Outcome {
    /// Whether a reply with `count` values behind the word is as declared.
    pub(crate) fn takes(&self, count: usize) -> bool {
        match self.values.split_last() {
            Some((Value::Rest(_, each), before)) => {
                let row = if let Each::Row(row) = each { row.len() } else { 1 };
                count.checked_sub(before.len()).is_some_and(|rest| rest % row == 0)
            }
            _ => count == self.values.len(),
        }
    }

    /// How many values stand behind the word at least.
    pub(crate) fn least(&self) -> usize {
        self.values.len() - usize::from(self.is_open())
    }

    /// The row that the rest is made of, and its name.
    pub(crate) fn row(&self) -> Option<(&str, &[Value])> {
        match self.values.last()? {
            Value::Rest(name, Each::Row(row)) => Some((name, row)),
            _ => None,
        }
    }

    /// Whether the last value is all that follows.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.values.last(), Some(Value::Rest(..)))
    }
}

/// What includes declare for the scripts that hand them keys or arguments in a row, by section and name.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) keys: BTreeMap<String, Vec<Entry>>,
    pub(crate) args: BTreeMap<String, Vec<Entry>>,
}

impl Groups {
    pub(crate) fn of(&self, section: &str) -> &BTreeMap<String, Vec<Entry>> {
        if section == "KEYS" { &self.keys } else { &self.args }
    }
}

/// Reads the groups of every include; all problems at once.
pub(crate) fn groups(includes: &BTreeMap<String, String>) -> Result<Groups, Vec<String>> {
    let (mut groups, mut problems) = (Groups::default(), Vec::new());
    for (name, text) in includes {
        let mut problem =
            |line: usize, what: String| problems.push(format!("lua/inc/{name}.lua:{line}: {what}"));
        for (section, group, lines) in group_lines(text) {
            let members = members(section, &lines, &mut problem);
            let known = if section == "KEYS" { &mut groups.keys } else { &mut groups.args };
            if known.insert(group.clone(), members).is_some() {
                problem(
                    lines.first().map_or(1, |line| line.0),
                    format!("{section} @{group} is declared twice"),
                );
            }
        }
    }
    if problems.is_empty() { Ok(groups) } else { Err(problems) }
}

/// Section, name and lines of each group in an include's comment.
fn group_lines(text: &str) -> Vec<(&'static str, String, Section)> {
    let mut found: Vec<(&'static str, String, Section)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let heads = [("-- KEYS  @", "KEYS"), ("-- ARGV  @", "ARGV")];
        if let Some((name, section)) =
            heads.iter().find_map(|(head, name)| Some((line.strip_prefix(head)?, *name)))
        {
            found.push((section, name.split_whitespace().next().unwrap_or_default().to_string(), Vec::new()));
            open = true;
        } else if let Some(member) = line.strip_prefix("--       ").filter(|_| open) {
            if let Some((_, _, lines)) = found.last_mut() {
                lines.push((index + 1, member.trim().to_string()));
            }
        } else {
            open = false;
        }
    }
    found
}

fn kind(section: &str, text: &str) -> Option<Type> {
    match (section, text) {
        ("KEYS", "any" | "string" | "list" | "hash" | "set" | "zset") => Some(Type::Key),
        ("ARGV", "int") => Some(Type::Int(None)),
        ("ARGV", "int>0") => Some(Type::Int(Some(1))),
        ("ARGV", "int>=0") => Some(Type::Int(Some(0))),
        ("ARGV", "text" | "json") => Some(Type::Text),
        ("ARGV", "bytes") => Some(Type::Bytes),
        ("ARGV", "word") => Some(Type::Word),
        _ => None,
    }
}

/// Only one type can be put into a list.
const NO_WORDS: &str = "any number of words have one type, which `word` is not";

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// `name type what`, or `.. name type what` for any number at the end.
fn members(section: &str, lines: &Section, problem: &mut impl FnMut(usize, String)) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    for (line, text) in lines {
        let (many, rest) = text.strip_prefix(".. ").map_or((false, text.as_str()), |rest| (true, rest));
        let mut words = rest.split_whitespace();
        let (name, holds) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match kind(section, holds) {
            Some(Type::Word) if many => problem(*line, NO_WORDS.to_string()),
            Some(kind) if is_name(name) => {
                let holds = if many { Holds::Words(kind) } else { Holds::Word(kind) };
                found.push(Entry { name: name.to_string(), optional: false, holds });
            }
            _ => problem(*line, format!("a word of {section} is `name type what`, not `{text}`")),
        }
    }
    if found.iter().rev().skip(1).any(|entry| matches!(entry.holds, Holds::Words(_))) {
        problem(lines[0].0, "any number of words is possible only at the end".to_string());
    }
    found
}

/// How many words an entry is, if that is always the same; for a group, how many come first.
fn size(holds: &Holds, groups: &BTreeMap<String, Vec<Entry>>) -> (usize, bool) {
    let fixed = |members: &[Entry]| {
        let words = members.iter().filter(|member| matches!(member.holds, Holds::Word(_))).count();
        (words, words == members.len())
    };
    match holds {
        Holds::Word(_) => (1, true),
        Holds::Row(members) => fixed(members),
        Holds::Group(name) => groups.get(name).map_or((0, false), |members| fixed(members)),
        Holds::Words(_) | Holds::Groups(_) | Holds::Rows(_) => (0, false),
    }
}

/// The entries of KEYS or ARGV, and how many places have a number of their own.
pub(crate) fn entries(
    section: &str,
    lines: &Section,
    groups: &Groups,
    problem: &mut impl FnMut(usize, String),
) -> (Vec<Entry>, usize) {
    if lines.len() == 1 && lines[0].1 == "none" {
        return (Vec::new(), 0);
    }
    let mut found: Vec<Entry> = Vec::new();
    let (mut next, mut counted) = (1, true);
    let mut rest = lines.iter().peekable();
    while let Some((line, text)) = rest.next() {
        let mut words = text.split_whitespace();
        let (at, name, holds) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let mut below = Vec::new();
        while let Some(member) = rest.next_if(|(_, text)| !is_place(text)) {
            below.push(member.clone());
        }
        let (many, optional) = (at.ends_with(".."), name.ends_with('?'));
        let name = name.trim_end_matches('?');
        let holds = match (holds, kind(section, holds)) {
            ("each", _) if !below.is_empty() => {
                let row = members(section, &below, problem);
                if many { Holds::Rows(row) } else { Holds::Row(row) }
            }
            (_, Some(kind)) if below.is_empty() => {
                if many && kind == Type::Word {
                    problem(*line, NO_WORDS.to_string());
                }
                if many { Holds::Words(kind) } else { Holds::Word(kind) }
            }
            _ => match holds.strip_prefix('@') {
                Some(group) if below.is_empty() && groups.of(section).contains_key(group) => {
                    if many {
                        Holds::Groups(group.to_string())
                    } else {
                        Holds::Group(group.to_string())
                    }
                }
                Some(group) => {
                    problem(*line, format!("no include declares {section} @{group}"));
                    continue;
                }
                None => {
                    problem(
                        *line,
                        format!(
                            "{section} lines are `place name type what`, or `none`; `each` has its words below"
                        ),
                    );
                    continue;
                }
            },
        };
        if !is_name(name) || (optional && many) {
            problem(*line, format!("`{name}` is no name"));
        }
        if found.iter().any(|entry| entry.name == name) {
            problem(*line, format!("{section} has two places named {name}"));
        }
        let (length, fixed) = size(&holds, groups.of(section));
        let wanted = match (counted, fixed, many) {
            (true, true, _) if length == 1 => next.to_string(),
            (true, true, _) => format!("{next}-{}", next + length - 1),
            (true, false, true) => format!("{next}.."),
            (true, false, false) => format!("{next}-"),
            (false, _, true) => "+..".to_string(),
            (false, _, false) => "+".to_string(),
        };
        if at != wanted {
            problem(*line, format!("{section} {wanted} expected here, not {at}"));
        }
        if counted {
            next += length;
        }
        counted &= fixed;
        found.push(Entry { name: name.to_string(), optional, holds });
    }
    (found, next - 1)
}

/// Whether a line begins an entry: it says where in KEYS or ARGV it stands.
fn is_place(text: &str) -> bool {
    text.starts_with('+') || text.starts_with(|c: char| c.is_ascii_digit())
}

/// The lines of OUT: a word in quotes, its values, and what they mean behind a semicolon.
pub(crate) fn outcomes(lines: &Section, problem: &mut impl FnMut(usize, String)) -> Vec<Outcome> {
    let mut joined: Section = Vec::new();
    for (line, text) in lines {
        match joined.last_mut().filter(|_| !text.starts_with('"')) {
            Some((_, before)) => *before = format!("{before} {text}"),
            None => joined.push((*line, text.clone())),
        }
    }
    let mut found: Vec<Outcome> = Vec::new();
    for (line, text) in joined {
        let told = text.split(';').next().unwrap_or_default();
        let Some((word, values)) = told.strip_prefix('"').and_then(|rest| rest.split_once('"')) else {
            problem(line, "OUT lines are `\"word\" value value; what they mean`".to_string());
            continue;
        };
        if found.iter().any(|outcome| outcome.word == word) {
            problem(line, format!("OUT names \"{word}\" twice"));
        }
        let values: Vec<Value> = together(values)
            .iter()
            .filter_map(|text| {
                let known = value(text);
                if known.is_none() {
                    problem(line, format!("{VALUES}, not `{text}`"));
                }
                known
            })
            .collect();
        let outcome = Outcome { word: word.to_string(), values };
        let row = outcome.row().map_or(&[][..], |(_, row)| row);
        if [&outcome.values[..], row].into_iter().any(same_names) {
            problem(line, format!("two values of \"{word}\" have one name"));
        }
        if outcome.values.iter().rev().skip(1).any(|value| matches!(value, Value::Rest(..))) {
            problem(line, format!("behind the rest of \"{word}\" nothing can follow"));
        }
        if let Some((name, row)) = outcome.row()
            && found.iter().filter_map(Outcome::row).any(|(other, known)| other == name && known != row)
        {
            problem(line, format!("OUT has two rows named {name}"));
        }
        found.push(outcome);
    }
    found
}

/// What a value of OUT can be.
const VALUES: &str = "a value of OUT is `name`, `name:bytes` or `name:any`, and at the end any number of one, \
                      `name..`, or of several by turns, `name(value value)..`";

fn same_names(values: &[Value]) -> bool {
    let names: Vec<&str> = values.iter().filter_map(Value::name).collect();
    names.iter().collect::<BTreeSet<_>>().len() < names.len()
}

/// The words of a line; those between brackets stay together.
fn together(values: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in values.split_whitespace() {
        match found.last_mut().filter(|before| before.contains('(') && !before.contains(')')) {
            Some(before) => *before = format!("{before} {word}"),
            None => found.push(word.to_string()),
        }
    }
    found
}

fn value(text: &str) -> Option<Value> {
    if text.parse::<i64>().is_ok() {
        return Some(Value::Constant);
    }
    if let Some(one) = text.strip_suffix("..") {
        if let Some((name, row)) = one.strip_suffix(')').and_then(|one| one.split_once('(')) {
            let row: Vec<Value> = row.split_whitespace().map(value).collect::<Option<_>>()?;
            let plain = |value: &Value| matches!(value, Value::Int(_) | Value::Bytes(_));
            let sound = is_name(name) && !row.is_empty() && row.iter().all(plain);
            return sound.then(|| Value::Rest(name.to_string(), Each::Row(row)));
        }
        return match value(one)? {
            Value::Int(name) => Some(Value::Rest(name, Each::Int)),
            Value::Bytes(name) => Some(Value::Rest(name, Each::Bytes)),
            Value::Any(name) => Some(Value::Rest(name, Each::Any)),
            Value::Rest(..) | Value::Constant => None,
        };
    }
    let (name, made): (&str, fn(String) -> Value) = if let Some(name) = text.strip_suffix(":bytes") {
        (name, Value::Bytes)
    } else if let Some(name) = text.strip_suffix(":any") {
        (name, Value::Any)
    } else {
        (text, Value::Int)
    };
    is_name(name).then(|| made(name.to_string()))
}

impl Value {
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Int(name) | Self::Bytes(name) | Self::Any(name) | Self::Rest(name, _) => Some(name),
            Self::Constant => None,
        }
    }
}

/// The names of all words, those of groups and rows behind their own.
pub(crate) fn names(entries: &[Entry], groups: &BTreeMap<String, Vec<Entry>>) -> Vec<String> {
    let mut found = Vec::new();
    for entry in entries {
        let mark = if entry.optional { "?" } else { "" };
        let within = |members: &[Entry], many: &str| -> Vec<String> {
            members.iter().map(|member| format!("{}{many}.{}{mark}", entry.name, member.name)).collect()
        };
        match &entry.holds {
            Holds::Word(_) => found.push(format!("{}{mark}", entry.name)),
            Holds::Words(_) => found.push(format!("{}..", entry.name)),
            Holds::Group(name) => found.extend(within(groups.get(name).map_or(&[], |group| group), "")),
            Holds::Groups(name) => found.extend(within(groups.get(name).map_or(&[], |group| group), "..")),
            Holds::Row(members) => found.extend(within(members, "")),
            Holds::Rows(members) => found.extend(within(members, "..")),
        }
    }
    found
}
