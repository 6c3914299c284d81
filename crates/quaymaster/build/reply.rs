//! Which words a script can put at the head of its reply, and how many values follow, as far as its text tells.
//!
//! A word comes from the table that is returned, from a variable, from a function that answers it, or from the record of
//! a repeated request. Comparisons with the variable tell which of its words get that far.

use std::collections::BTreeSet;

use super::inline::{Function, words};

/// Calls within calls that are looked into.
const DEPTH: usize = 6;

/// A word that a script can answer.
pub(crate) struct Said {
    pub(crate) line: usize,
    pub(crate) word: String,
    /// How many values can follow, where the word stands in a variable: one that is nil ends the reply.
    pub(crate) most: Option<usize>,
}

/// The words with the lines they are returned in.
pub(crate) fn said(text: &str, functions: &[Function]) -> Vec<Said> {
    let mut found = Vec::new();
    let mut end = 0;
    for (line, code) in text.lines().enumerate() {
        // What is assigned further down is not what is returned here.
        end += code.len() + 1;
        let script = Text { text: text.get(..end).unwrap_or(text), functions };
        let Some((before, returned)) = code.split_once("return ").filter(|_| !is_comment(code)) else {
            continue;
        };
        let returned = returned.trim_end_matches(" end");
        // `return kept or { word }`
        let (either, or) =
            returned.split_once(" or { ").filter(|(either, _)| is_name(either)).unwrap_or((returned, ""));
        for expression in [either, or].into_iter().filter(|expression| !expression.is_empty()) {
            let table = expression.strip_prefix("{ ").unwrap_or(expression);
            let head = first(table);
            let most = table.strip_suffix(" }").filter(|_| is_name(head));
            let most = most.and_then(|table| behind(&table[head.len()..]));
            let said = script.words_of(head, DEPTH);
            // One that was asked for before may have been answered there, with other values.
            let asked = |word: &str| {
                let mut lines = text.lines().take(line).filter(|line| !is_comment(line));
                lines.any(|line| compared(line, head, "==").contains(word))
            };
            let said = script.reaching(before, head, said).into_iter();
            found.extend(said.map(|word| Said {
                line: line + 1,
                most: most.filter(|_| !asked(&word)),
                word,
            }));
        }
    }
    found
}

/// The line of each returned table that begins with a word, the word, and how many values follow it. Left out are tables
/// that end with a function's results: nobody knows how many these are.
pub(crate) fn counts(text: &str) -> Vec<(usize, String, usize)> {
    let counted = |(line, table): (usize, String)| {
        let table = table.trim_end_matches(" end").strip_suffix(" }")?;
        let (word, rest) = table.strip_prefix('"')?.split_once('"')?;
        Some((line, word.to_owned(), behind(rest)?))
    };
    tables(text).into_iter().filter_map(counted).collect()
}

/// Every table that is returned, in one line, with the line it begins in.
fn tables(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (line, code) in text.lines().enumerate().filter(|(_, line)| !is_comment(line)) {
        match (found.last_mut().filter(|_| open), code.split_once("return { ")) {
            (Some((_, table)), _) => *table = format!("{table} {}", code.trim_start()),
            (None, Some((_, table))) => found.push((line + 1, table.to_owned())),
            (None, None) => continue,
        }
        let braces = |which| found.last().map_or(0, |(_, table)| table.matches(which).count());
        open = braces('{') >= braces('}');
    }
    found
}

/// How many values follow, each behind a comma; none where the last is a function's results.
fn behind(mut rest: &str) -> Option<usize> {
    let mut count = 0;
    while let Some(values) = rest.strip_prefix(", ") {
        let value = first(values);
        rest = &values[value.len()..];
        if rest.is_empty() && value.split_once('(').is_some_and(|(name, _)| is_name(name)) {
            return None;
        }
        count += 1;
    }
    rest.is_empty().then_some(count)
}

/// The first of several expressions: up to a comma outside of brackets.
fn first(list: &str) -> &str {
    let mut depth = 0;
    for (at, c) in list.char_indices() {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            ',' if depth == 0 => return &list[..at],
            _ => {}
        }
        if depth < 0 {
            return list[..at].trim();
        }
    }
    list.trim()
}

fn literals(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("--")
}

fn is_name(text: &str) -> bool {
    words(text).eq([text])
}

/// The literals that `code` compares `name` with, by `==` or `~=`.
fn compared<'t>(code: &'t str, name: &str, with: &str) -> BTreeSet<&'t str> {
    let mut found = BTreeSet::new();
    for operand in [name.to_string(), format!("{name}[1]")] {
        let asked = format!("{operand} {with} \"");
        for (at, _) in code.match_indices(&asked) {
            let alone = !code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            found.extend(code[at + asked.len()..].split('"').next().filter(|_| alone));
        }
    }
    found
}

#[derive(Clone, Copy)]
struct Text<'t> {
    text: &'t str,
    functions: &'t [Function],
}

impl Text<'_> {
    fn code(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !is_comment(line))
    }

    /// Those of `said` that the condition in front of a return, and what was returned before, let through.
    fn reaching(&self, condition: &str, head: &str, said: BTreeSet<String>) -> BTreeSet<String> {
        // An error reply is no answer: the engine tells it.
        if condition.ends_with(&format!("{head}.err then ")) && !condition.contains('"') {
            return BTreeSet::new();
        }
        let only = compared(condition, head, "==");
        let but = compared(condition, head, "~=");
        let elsewhere: BTreeSet<&str> = self.code().flat_map(|line| compared(line, head, "==")).collect();
        said.into_iter()
            .filter(|word| match (only.is_empty(), but.is_empty()) {
                (false, _) => only.contains(word.as_str()),
                (_, false) => !but.contains(word.as_str()),
                _ => !elsewhere.contains(word.as_str()),
            })
            .collect()
    }

    /// What an expression can be.
    fn words_of(self, expression: &str, depth: usize) -> BTreeSet<String> {
        // What a key holds is no word of ours, an error reply no answer, and of an empty record it is one.
        let none = expression.contains("redis.") || expression.starts_with("err = ");
        if depth == 0 || none || (expression.starts_with("replay_refused(") && expression.contains("\"\"")) {
            return BTreeSet::new();
        }
        if let Some(rest) = expression.split_once("replay_read(").map(|(_, rest)| rest) {
            // What a record holds, by its pattern, or that it belongs to another call.
            let shapes = literals(rest).filter_map(|shape| words(shape.strip_prefix('^')?).next());
            let shapes = shapes.filter(|word| expression.contains(&format!("\"^{word}")));
            return shapes.chain(["conflict"]).map(str::to_owned).collect();
        }
        if let Some((name, arguments)) = expression.split_once('(').filter(|(name, _)| is_name(name)) {
            let Some(function) = self.functions.iter().find(|function| function.name == name) else {
                return BTreeSet::new();
            };
            let answered = Text { text: &function.text, functions: self.functions }.answers(depth - 1);
            if !answered.is_empty() {
                return answered;
            }
            // A function that is told the word.
            let told = arguments.split(", ").map(|argument| self.words_of(first(argument), depth - 1));
            return told.flatten().collect();
        }
        if is_name(expression) {
            return self.code().flat_map(|line| self.assigned(line, expression, depth)).collect();
        }
        // `known and "known" or "shipped"`, without what is only compared.
        let said = expression.split(" == ").flat_map(|part| {
            let skipped = usize::from(part.starts_with('"') && !expression.starts_with(part));
            literals(part).skip(skipped)
        });
        said.map(str::to_owned).collect()
    }

    /// What a line assigns to `name`, or puts at the head of the table it is.
    fn assigned(self, line: &str, name: &str, depth: usize) -> BTreeSet<String> {
        // Also behind a condition: `if counted then word = "allowed" end`.
        let line = line.rsplit_once(" then ").map_or(line, |(_, behind)| behind.trim_end_matches(" end"));
        let line = line.trim_start().trim_start_matches("local ");
        let Some((targets, values)) = line.split_once(" = ") else { return BTreeSet::new() };
        let mut rest = values;
        for target in targets.split(", ") {
            let value = first(rest);
            if target == name || target == format!("{name}[1]") {
                let value = value.strip_prefix("{ ").map_or(value, first);
                let value = value.strip_prefix("request and ").unwrap_or(value);
                return self.words_of(value, depth - 1);
            }
            rest = rest[value.len()..].trim_start_matches([',', ' ']);
        }
        BTreeSet::new()
    }

    /// What a function's first result can be.
    fn answers(self, depth: usize) -> BTreeSet<String> {
        let head =
            |rest: &str| first(rest.strip_prefix("{ ").unwrap_or(rest).trim_end_matches(" end")).to_owned();
        let returned = self.code().filter_map(|line| line.split_once("return ").map(|(_, rest)| rest));
        returned.flat_map(|rest| self.words_of(&head(rest), depth)).collect()
    }
}
