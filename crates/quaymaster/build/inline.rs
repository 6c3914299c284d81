//! Puts an include's function where it is called, if it is called once: on every engine a script makes its
//! closures anew with each run, and a call with ten arguments costs as much as the arithmetic in it.
//!
//! Only what is plain enough to be moved as text is moved; everything else stays a call and means the same:
//!
//! - the function has one exit: no `return`, or one as its last line; it makes no functions and has no `...`;
//! - the call is a statement on a line of its own: `f(a)`, `x, y = f(a)` or `local x, y = f(a)`;
//! - no name means something else inside than outside: what is assigned does not occur in the function, a
//!   new local not in the arguments, and nobody hides what the language gives.
//!
//! The arguments become locals of a block, the result is assigned at its end:
//! ```lua
//! local x, y
//! do
//!   local key, cost = counter, ARGV[1]
//!   …
//!   x, y = used, left
//! end
//! ```

/// One function of an include, without comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Names the language and the engines give.
const GLOBALS: &[&str] = &[
    "redis", "string", "math", "table", "tonumber", "tostring", "type", "ipairs", "pairs", "unpack",
    "select", "next", "error", "assert", "pcall", "KEYS", "ARGV",
];

/// Moves what can be moved; returns the functions that stay.
pub(crate) fn inline(mut functions: Vec<Function>, body: &mut String) -> Vec<Function> {
    while let Some(index) = functions.iter().position(|function| {
        let texts = functions.iter().map(|other| &other.text).chain([&*body]);
        // Its own head and one call.
        let named = texts.map(|text| words(text).filter(|word| *word == function.name).count());
        named.sum::<usize>() == 2 && moved(function, &functions, body).is_some()
    }) {
        let function = functions.remove(index);
        let Some((place, text)) = moved(&function, &functions, body) else { break };
        match place {
            Some(other) => functions[other].text = text,
            None => *body = text,
        }
    }
    functions
}

/// Where the call was (another function, or the body) and that text with the function in its place.
fn moved(function: &Function, functions: &[Function], body: &str) -> Option<(Option<usize>, String)> {
    let parts = Parts::of(function)?;
    let texts = functions.iter().enumerate().map(|(index, other)| (Some(index), other.text.as_str()));
    let (place, text) = texts
        .chain([(None, body)])
        .find(|(_, text)| *text != function.text && words(text).any(|word| word == function.name))?;
    if declared(text).any(|name| GLOBALS.contains(&name) || functions.iter().any(|other| other.name == name))
    {
        return None;
    }
    Some((place, parts.put_into(text)?))
}

/// A function taken apart.
struct Parts<'a> {
    function: &'a Function,
    parameters: &'a str,
    lines: Vec<&'a str>,
    result: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(function: &'a Function) -> Option<Self> {
        let mut lines: Vec<&str> = function.text.lines().collect();
        let head = lines.first()?.strip_prefix("local function ")?.strip_prefix(function.name.as_str())?;
        let parameters = head.strip_prefix('(')?.strip_suffix(')')?;
        if lines.pop() != Some("end") || function.text.contains("...") {
            return None;
        }
        lines.remove(0);
        let count = |wanted| lines.iter().flat_map(|line| words(line)).filter(|word| *word == wanted).count();
        if count("function") > 0 {
            return None;
        }
        let result = match count("return") {
            0 => None,
            1 => Some(lines.pop()?.strip_prefix("  return ")?),
            _ => return None,
        };
        Some(Self { function, parameters, lines, result })
    }

    /// `text` with its one call replaced.
    fn put_into(&self, text: &str) -> Option<String> {
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| words(line).any(|word| word == self.function.name))?;
        let depth: i64 = lines[..at].iter().map(|line| opened(code(line))).sum();
        let before = lines[..at].iter().rev().map(|line| code(line)).find(|line| !line.is_empty());
        let after = lines[at + 1..].iter().map(|line| code(line)).find(|line| !line.is_empty());
        if depth != 0
            || before.is_some_and(|line| !ends_statement(line))
            || after.is_some_and(|line| !begins_statement(line))
            || lines[at].contains("--")
        {
            return None;
        }
        let call = lines[at].trim_start();
        let indent = &lines[at][..lines[at].len() - call.len()];
        let (head, rest) = call.split_once(self.function.name.as_str())?;
        let arguments = rest.strip_prefix('(')?.strip_suffix(')')?;
        if !balanced(arguments) {
            return None;
        }
        let (local, targets) = match (head.strip_suffix(" = "), self.result) {
            (None, None) if head.is_empty() => (false, ""),
            (Some(targets), Some(_)) => match targets.strip_prefix("local ") {
                Some(targets) => (true, targets),
                None => (false, targets),
            },
            _ => return None,
        };
        let names = || targets.split(", ").filter(|name| !name.is_empty());
        if !names().all(is_name)
            || names().any(|name| words(&self.function.text).any(|word| word == name))
            || (local && names().any(|name| words(arguments).any(|word| word == name)))
        {
            return None;
        }

        let mut out: Vec<String> = lines[..at].iter().map(|line| (*line).to_string()).collect();
        if local {
            out.push(format!("{indent}local {targets}"));
        }
        out.push(format!("{indent}do"));
        match (self.parameters, arguments) {
            ("", "") => {}
            // Nobody uses them, but they may do something.
            ("", arguments) => out.push(format!("{indent}  local _ = {arguments}")),
            (parameters, "") => out.push(format!("{indent}  local {parameters}")),
            (parameters, arguments) => out.push(format!("{indent}  local {parameters} = {arguments}")),
        }
        out.extend(self.lines.iter().map(|line| format!("{indent}{line}")));
        if let Some(result) = self.result {
            out.push(format!("{indent}  {targets} = {result}"));
        }
        out.push(format!("{indent}end"));
        out.extend(lines[at + 1..].iter().map(|line| (*line).to_string()));
        Some(out.join("\n") + "\n")
    }
}

pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn is_name(word: &str) -> bool {
    words(word).eq([word]) && !word.starts_with(|c: char| c.is_ascii_digit())
}

/// Names that `local`, `for` and parameters declare.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let line = line.trim_start();
        let listed = ["local function ", "local ", "for "].iter().find_map(|head| line.strip_prefix(head));
        let names = listed.and_then(|list| list.split(['=', ')']).next()?.split(" in ").next());
        names.map(words).into_iter().flatten()
    })
}

/// A line without its comment; a string with two dashes in it is taken for one.
fn code(line: &str) -> &str {
    line.find("--").map_or(line, |at| &line[..at]).trim()
}

/// Brackets opened less those closed, outside of strings.
fn opened(line: &str) -> i64 {
    outside_strings(line).fold(0, |depth, c| match c {
        '(' | '{' | '[' => depth + 1,
        ')' | '}' | ']' => depth - 1,
        _ => depth,
    })
}

/// Whether every bracket in it is closed in it, none before it was opened.
fn balanced(text: &str) -> bool {
    let mut depth = 0;
    for c in outside_strings(text) {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' if depth == 0 => return false,
            ')' | '}' | ']' => depth -= 1,
            _ => {}
        }
    }
    depth == 0
}

fn outside_strings(text: &str) -> impl Iterator<Item = char> {
    let mut quote = None;
    let mut escaped = false;
    text.chars().filter(move |c| {
        let inside = quote.is_some();
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if *c == '\\' => escaped = true,
            Some(mark) if *c == mark => quote = None,
            None if *c == '"' || *c == '\'' => quote = Some(*c),
            _ => {}
        }
        !inside && quote.is_none()
    })
}

/// Whether a line can be the last of a statement, or opens a block.
fn ends_statement(line: &str) -> bool {
    let last = words(line).last().unwrap_or_default();
    let open_ended = ["and", "or", "not", "return", "in", "local"].contains(&last);
    line.ends_with([')', ']', '}', '"', '\'']) || (!last.is_empty() && line.ends_with(last) && !open_ended)
}

/// Whether a line cannot continue the statement before it.
fn begins_statement(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && !words(line).next().is_some_and(|word| word == "and" || word == "or")
}
