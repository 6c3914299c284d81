//! The grammar of a script file and the rules it must keep. Shared by the build script and its tests.

#[path = "inline.rs"]
mod inline;

use std::collections::{BTreeMap, BTreeSet};

use inline::{Function, inline, words};

/// At most this many lines in one operation's own file.
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
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<String>,
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
    commands: &Commands,
) -> Result<Script, Vec<String>> {
    let file = format!("lua/{name}.lua");
    let mut problems = Vec::new();
    let mut problem = |line: usize, what: String| problems.push(format!("{file}:{line}: {what}"));

    if text.lines().count() > MAX_LINES {
        problem(
            MAX_LINES + 1,
            format!("an operation has at most {MAX_LINES} lines; move a part into lua/inc"),
        );
    }
    let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
    let body_at = header.len() + 1;
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
    let (keys, many_keys) = numbered("KEYS", &entries("KEYS"), &mut problem);
    let (args, many_args) = numbered("ARGV", &entries("ARGV"), &mut problem);
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
                Some(include) if include.contains("KEYS") || include.contains("ARGV") => {
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
    let stay = inline(reached(included, &body), &mut body);
    let source = stay.iter().map(|function| function.text.as_str()).collect::<String>() + body.trim_start();

    for (what, names, many) in [("KEYS", &keys, many_keys), ("ARGV", &args, many_args)] {
        let used = indexes(text, what);
        for (line, index) in &used {
            if !many && *index > names.len() {
                problem(*line, format!("{what}[{index}] is not declared in the header"));
            }
        }
        for index in 1..=names.len() {
            if !many && !used.iter().any(|(_, seen)| *seen == index) {
                problem(1, format!("{what} {index} ({}) is declared but never used", names[index - 1]));
            }
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
    let words: Vec<&str> = replies.iter().filter_map(|reply| reply.split('"').nth(1)).collect();
    if words.is_empty() {
        problem(1, "OUT must name the status words in quotes".to_string());
    }
    for word in &words {
        if !source.contains(&format!("\"{word}\"")) {
            problem(1, format!("OUT names \"{word}\", which the script never says"));
        }
    }
    for literal in source.split("return { \"").skip(1).filter_map(|rest| rest.split('"').next()) {
        if !words.contains(&literal) {
            problem(1, format!("the script can answer \"{literal}\", which OUT does not name"));
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
        replies,
        cost,
        commands: used_commands.into_iter().collect(),
        writes,
        source,
    })
}

type Section = Vec<(usize, String)>;

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

/// Names of a numbered section, and whether it is open-ended (`1..`).
fn numbered(what: &str, entries: &Section, problem: &mut impl FnMut(usize, String)) -> (Vec<String>, bool) {
    let mut names = Vec::new();
    let mut many = false;
    for (line, text) in entries {
        if text == "none" && entries.len() == 1 {
            return (names, false);
        }
        let mut words = text.split_whitespace();
        let number = words.next().unwrap_or_default();
        let (Some(name), Some(_kind)) = (words.next(), words.next()) else {
            problem(*line, format!("{what} lines are `number name type what`, or `none`"));
            continue;
        };
        if number == format!("{}..", names.len() + 1) {
            many = true;
        } else if number != (names.len() + 1).to_string() {
            problem(*line, format!("{what} {} expected here, not {number}", names.len() + 1));
        }
        names.push(name.to_string());
    }
    (names, many)
}

/// Literal indexes of `KEYS[n]` or `ARGV[n]` with their lines.
fn indexes(text: &str, what: &str) -> Vec<(usize, usize)> {
    let opening = format!("{what}[");
    let mut found = Vec::new();
    for (line, text) in text.lines().enumerate().filter(|(_, text)| !text.starts_with("--")) {
        for rest in text.split(&opening).skip(1) {
            if let Some(index) = rest.split(']').next().and_then(|inner| inner.parse().ok()) {
                found.push((line + 1, index));
            }
        }
    }
    found
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

    /// The static item this script becomes.
    pub(crate) fn to_rust(&self) -> String {
        let sha = sha1_smol::Sha1::from(&self.source).digest().to_string();
        let effect = if self.writes { "Writes" } else { "Reads" };
        format!(
            "/// {about}\npub(crate) static {name}: Operation = Operation {{\n    script: Script {{ id: {id:?}, \
             source: {source:?}, sha: {sha:?}, effect: Effect::{effect} }},\n    about: {about:?},\n    \
             keys: &{keys:?},\n    args: &{args:?},\n    replies: &{replies:?},\n    cost: {cost:?},\n    \
             commands: &{commands:?},\n}};\n",
            about = self.about,
            name = self.const_name(),
            id = self.id,
            source = self.source,
            keys = self.keys,
            args = self.args,
            replies = self.replies,
            cost = self.cost,
            commands = self.commands,
        )
    }
}
