//! The grammar of a script file and the rules it must keep. Shared by the build script and its tests.

#[path = "header.rs"]
pub(crate) mod header;
#[path = "inline.rs"]
mod inline;
#[path = "reply.rs"]
mod reply;
#[path = "rust.rs"]
pub(crate) mod rust;

use std::collections::{BTreeMap, BTreeSet};

use header::{Entry, Groups, Holds, Outcome, Section};
use inline::{Function, inline, words};

/// At most this many lines in one operation's own file, under its header.
const MAX_LINES: usize = 80;

/// Words that would make a script differ between engines or runs.
const FORBIDDEN: &[&str] =
    &["cjson", "cmsgpack", "loadstring", "math.random", "os.", "io.", "struct.", "bit.", "redis[", "goto "];

/// Publishing cannot abort a script and comes last in it: `redis.pcall`, after every write.
const PUBLISH: &str = "PUBLISH";

/// Whether a command writes, by its name.
pub(crate) type Commands = BTreeMap<String, bool>;

/// One operation: its header's facts and its resolved source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) id: String,
    pub(crate) about: String,
    pub(crate) keys: Vec<Entry>,
    pub(crate) args: Vec<Entry>,
    pub(crate) outcomes: Vec<Outcome>,
    /// The lines of OUT as they stand in the header.
    pub(crate) replies: Vec<String>,
    pub(crate) cost: String,
    pub(crate) commands: Vec<String>,
    pub(crate) writes: bool,
    pub(crate) source: String,
}

/// Reads `commands.txt`: a name and `read` or `write` per line.
pub(crate) fn parse_commands(text: &str) -> Commands {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_string(), words.next()? == "write"))
        })
        .collect()
}

/// Checks one file and resolves its includes; all problems at once.
pub(crate) fn build(
    name: &str,
    text: &str,
    includes: &BTreeMap<String, String>,
    groups: &Groups,
    commands: &Commands,
) -> Result<Script, Vec<String>> {
    let file = format!("lua/{name}.lua");
    let mut problems = Vec::new();
    let mut problem = |line: usize, what: String| problems.push(format!("{file}:{line}: {what}"));

    let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
    let body_at = header.len() + 1;
    if text.lines().count() > MAX_LINES + header.len() {
        problem(
            MAX_LINES + body_at,
            format!("an operation has at most {MAX_LINES} lines under its header; move a part into lua/inc"),
        );
    }
    let expected_id = name.replace('/', ".");
    let (id, about) = header
        .first()
        .and_then(|line| line.strip_prefix("-- "))
        .and_then(|line| line.split_once(": "))
        .unwrap_or(("", ""));
    if id != expected_id || about.is_empty() {
        problem(1, format!("the first line must be `-- {expected_id}: what it does`"));
    }
    let sections = sections(&header, &mut problem);
    for wanted in ["KEYS", "ARGV", "OUT", "COST"] {
        if !sections.contains_key(wanted) {
            problem(1, format!("the header has no {wanted} section"));
        }
    }
    let entries = |section: &str| sections.get(section).cloned().unwrap_or_default();
    let (keys, key_places) = header::entries("KEYS", &entries("KEYS"), groups, &mut problem);
    let (args, arg_places) = header::entries("ARGV", &entries("ARGV"), groups, &mut problem);
    let names = |entry: &Entry| entry.name.clone();
    for name in keys.iter().map(names).filter(|name| args.iter().any(|arg| arg.name == *name)) {
        problem(1, format!("both a key and an argument are named {name}"));
    }
    let outcomes = header::outcomes(&entries("OUT"), &mut problem);
    let rows = |entry: &Entry| matches!(entry.holds, Holds::Rows(_)).then(|| entry.name.clone());
    for name in keys.iter().chain(&args).filter_map(rows) {
        if outcomes.iter().filter_map(Outcome::row).any(|(row, _)| row == name) {
            problem(1, format!("OUT and what it is asked with both have rows named {name}"));
        }
    }
    let replies: Vec<String> = entries("OUT").into_iter().map(|(_, text)| text).collect();
    let cost = entries("COST").into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ");

    let (mut included, mut body) = (Vec::new(), String::new());
    for (index, line) in text.lines().enumerate() {
        match line.strip_prefix("--@include ") {
            Some(wanted) => match includes.get(wanted.trim()) {
                Some(include) if include.contains("--@include") => {
                    problem(
                        index + 1,
                        format!("lua/inc/{wanted}.lua includes another file; includes are flat"),
                    );
                }
                Some(include) if code(include).any(|line| line.contains("KEYS") || line.contains("ARGV")) => {
                    problem(
                        index + 1,
                        format!("lua/inc/{wanted}.lua uses KEYS or ARGV; give it what it needs"),
                    );
                }
                Some(include) => match functions(include) {
                    Ok(functions) => included.extend(functions),
                    Err(what) => problem(index + 1, format!("lua/inc/{wanted}.lua: {what}")),
                },
                None => {
                    let known = includes.keys().cloned().collect::<Vec<_>>().join(", ");
                    problem(index + 1, format!("there is no lua/inc/{wanted}.lua; there are {known}"));
                }
            },
            None if index + 1 < body_at => {}
            None => {
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    let said = reply::said(text, &included);
    let stay = inline(reached(included, &body), &mut body);
    let source = stay.iter().map(|function| function.text.as_str()).collect::<String>() + body.trim_start();

    for (what, places) in [("KEYS", key_places), ("ARGV", arg_places)] {
        let declared = header::names(if what == "KEYS" { &keys } else { &args }, groups.of(what));
        let (used, in_a_row) = indexes(text, what);
        for (line, index) in used.iter().filter(|(_, index)| *index > places) {
            problem(*line, format!("{what}[{index}] is not declared in the header"));
        }
        // Where the script hands them on in a row, nobody can tell here which of them are read.
        let unused = |index: &usize| !in_a_row && !used.iter().any(|(_, seen)| seen == index);
        for (index, name) in (1..=places).filter(unused).map(|index| (index, &declared[index - 1])) {
            // A group comes whole, whether or not all of it is wanted.
            if !name.contains('.') {
                problem(1, format!("{what} {index} ({name}) is declared but never used"));
            }
        }
        if !in_a_row && declared.len() > places {
            problem(1, format!("{what} {} is declared but never read in a row", declared[places]));
        }
    }
    let mut used_commands = BTreeSet::new();
    for (line, command, protected) in calls(&source) {
        match command {
            // A user without the channel must not end a script after its writes; nothing else is let fail unseen.
            Some(command) if protected != (command == PUBLISH) => {
                problem(
                    line,
                    format!(
                        "{PUBLISH} is called by redis.pcall, every other command by redis.call ({command})"
                    ),
                );
            }
            Some(command) if commands.contains_key(&command) => {
                used_commands.insert(command);
            }
            Some(command) => {
                problem(
                    line,
                    format!("{command} is not a command both engines have; see store/commands.txt"),
                );
            }
            None => problem(line, "redis.call needs its command as a literal".to_string()),
        }
    }
    for word in FORBIDDEN {
        if let Some(at) = source.find(word) {
            let line = source[..at].lines().count();
            problem(
                line,
                format!("`{}` must not be used in a script (line of the resolved source)", word.trim()),
            );
        }
    }
    if outcomes.is_empty() {
        problem(1, "OUT must name the status words in quotes".to_string());
    }
    for Outcome { word, .. } in &outcomes {
        if !source.contains(&format!("\"{word}\"")) {
            problem(1, format!("OUT names \"{word}\", which the script never says"));
        }
    }
    for reply::Said { line, word, most } in said {
        match (outcomes.iter().find(|outcome| outcome.word == word), most) {
            (None, _) => {
                problem(line, format!("the script can answer \"{word}\", which OUT does not name"));
            }
            (Some(outcome), Some(most)) if outcome.least() > most => {
                let least = outcome.least();
                problem(line, format!("OUT has {least} values behind \"{word}\", the script at most {most}"));
            }
            _ => {}
        }
    }
    for (line, word, count) in reply::counts(text) {
        if let Some(outcome) = outcomes.iter().find(|outcome| outcome.word == word && !outcome.takes(count)) {
            let declared = match outcome.row() {
                Some((_, row)) => format!("{} and rows of {}", outcome.least(), row.len()),
                None => outcome.values.len().to_string(),
            };
            problem(line, format!("OUT has {declared} values behind \"{word}\", the script {count}"));
        }
    }

    if !problems.is_empty() {
        return Err(problems);
    }
    let writes = used_commands.iter().any(|command| commands.get(command).copied().unwrap_or(true));
    Ok(Script {
        id: expected_id,
        about: about.to_string(),
        keys,
        args,
        outcomes,
        replies,
        cost,
        commands: used_commands.into_iter().collect(),
        writes,
        source,
    })
}

/// Splits header lines into sections; a line without a section word continues the one before.
fn sections<'a>(header: &[&'a str], problem: &mut impl FnMut(usize, String)) -> BTreeMap<&'a str, Section> {
    let mut found: BTreeMap<&str, Section> = BTreeMap::new();
    let mut current = "";
    for (index, line) in header.iter().enumerate().skip(1) {
        let text = line.trim_start_matches("--");
        if text.trim().is_empty() {
            continue;
        }
        let first = text.split_whitespace().next().unwrap_or_default();
        let continues = text.starts_with("       ");
        if !continues {
            if !["KEYS", "ARGV", "OUT", "COST"].contains(&first) {
                problem(index + 1, format!("`{first}` is no section; there are KEYS, ARGV, OUT, COST"));
                continue;
            }
            current = first;
        }
        let rest = if continues { text.trim() } else { text.trim()[first.len()..].trim() };
        if current.is_empty() {
            problem(index + 1, "this line belongs to no section".to_string());
        } else {
            found.entry(current).or_default().push((index + 1, rest.to_string()));
        }
    }
    found
}

/// Literal indexes of `KEYS[n]` or `ARGV[n]` with their lines, and whether it is used otherwise too.
fn indexes(text: &str, what: &str) -> (Vec<(usize, usize)>, bool) {
    let (mut found, mut in_a_row) = (Vec::new(), false);
    for (line, text) in text.lines().enumerate().filter(|(_, text)| !text.trim_start().starts_with("--")) {
        for rest in text.split(what).skip(1) {
            let index = rest.strip_prefix('[').and_then(|rest| rest.split(']').next());
            match index.and_then(|inner| inner.parse().ok()) {
                Some(index) => found.push((line + 1, index)),
                None => in_a_row = true,
            }
        }
    }
    (found, in_a_row)
}

/// The lines that are not comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("--"))
}

/// The command of every `redis.call(` and `redis.pcall(`, and whether it is the second; `None` when it is not an
/// upper-case literal.
fn calls(source: &str) -> Vec<(usize, Option<String>, bool)> {
    let mut found = Vec::new();
    for (line, text) in source.lines().enumerate() {
        let called = text.split("redis.call").skip(1).map(|rest| (rest, false));
        for (rest, protected) in called.chain(text.split("redis.pcall").skip(1).map(|rest| (rest, true))) {
            let command = rest
                .strip_prefix("(\"")
                .and_then(|rest| rest.split('"').next())
                .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase()))
                .map(str::to_string);
            found.push((line + 1, command, protected));
        }
    }
    found
}

/// The functions of an include; anything else at its top level is a mistake.
fn functions(include: &str) -> Result<Vec<Function>, String> {
    let mut found: Vec<Function> = Vec::new();
    let mut inside = false;
    for (index, line) in include.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with("--") {
            continue;
        }
        if let Some(name) = line.strip_prefix("local function ").and_then(|rest| rest.split('(').next()) {
            found.push(Function { name: name.to_string(), text: String::new() });
            inside = true;
        }
        match found.last_mut().filter(|_| inside) {
            Some(function) => {
                function.text.push_str(line);
                function.text.push('\n');
            }
            None => {
                return Err(format!(
                    "line {}: an include holds `local function`s and nothing else",
                    index + 1
                ));
            }
        }
        inside = line != "end";
    }
    Ok(found)
}

/// Keeps the functions that `body` reaches: making a closure that nobody calls costs as much as one that is.
fn reached(functions: Vec<Function>, body: &str) -> Vec<Function> {
    let mut wanted = vec![false; functions.len()];
    let mut texts = vec![body];
    while let Some(text) = texts.pop() {
        for (index, function) in functions.iter().enumerate() {
            if !wanted[index] && words(text).any(|word| word == function.name) {
                wanted[index] = true;
                texts.push(&function.text);
            }
        }
    }
    let wanted = wanted.into_iter();
    functions.into_iter().zip(wanted).filter_map(|(function, wanted)| wanted.then_some(function)).collect()
}

impl Script {
    /// `limit.take.fixed_window` is `LIMIT_TAKE_FIXED_WINDOW`.
    pub(crate) fn const_name(&self) -> String {
        self.id.replace('.', "_").to_uppercase()
    }

    /// The static item this script becomes, and the module of its calls.
    pub(crate) fn to_rust(&self, groups: &Groups) -> String {
        let sha = sha1_smol::Sha1::from(&self.source).digest().to_string();
        let effect = if self.writes { "Writes" } else { "Reads" };
        let module = rust::module(&self.id, &self.about, &self.keys, &self.args, &self.outcomes, groups);
        format!(
            "/// {about}\npub(crate) static {name}: Operation = Operation {{\n    script: Script {{ id: {id:?}, \
             source: {source:?}, sha: {sha:?}, effect: Effect::{effect} }},\n    about: {about:?},\n    \
             keys: &{keys:?},\n    args: &{args:?},\n    replies: &{replies:?},\n    cost: {cost:?},\n    \
             commands: &{commands:?},\n}};\n\n{module}",
            about = self.about,
            name = self.const_name(),
            id = self.id,
            source = self.source,
            keys = header::names(&self.keys, &groups.keys),
            args = header::names(&self.args, &groups.args),
            replies = self.replies,
            cost = self.cost,
            commands = self.commands,
        )
    }
}
