//! One step of the corpus, and how it is written in a file: a block of lines that a reviewer can read as a diff.
//!
//! ```text
//! # limit.take: cost: null
//! > POST /v1/limit/fixed/take
//! >j {"key":{"id":"a"},"cost":null}
//! < 400 application/problem+json
//! <h cache-control: no-store
//! <b {"type":"urn:quaymaster:error:limit.cost", …
//! ```
//!
//! `>j` is a body that says it is JSON, `>b` any other. `<b` are bytes, `<l` a line with its end, `<e` a line that a
//! command wrote to standard error. Bytes that are no printable text, and the backslash, are `\xNN`; the same byte many
//! times over is `\[N*xNN]`. `${label.path}` in a request is what the answer called `label` has there.

use std::fmt::Write as _;

use quaymaster_testkit::stage::Ask;

/// Whether it has a body that says, before anything else, that it is JSON.
fn is_json(ask: &Ask) -> bool {
    ask.body.is_some() && ask.headers.first().is_some_and(|header| *header == json())
}

fn json() -> (String, String) {
    ("content-type".to_owned(), "application/json".to_owned())
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// Asks, and takes the answer.
    Ask(Ask),
    /// Asks again until the answer has this text: what happens beside the calls needs its time.
    Until(Ask, String),
    /// Asks, takes the answer's head, and keeps the connection under the step's label.
    Open(Ask),
    /// Reads on the connection of this label until this text was heard; `END` is the connection's end.
    Hear(String, String),
    /// Lets this many milliseconds pass on every clock.
    Pass(u64),
    /// A command's words.
    Run(Vec<String>),
}

/// A step, without its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) title: String,
    /// Under what later steps find the answer.
    pub(crate) label: Option<String>,
    pub(crate) act: Act,
}

/// What came of a step, with everything random replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// The status, or a command's exit code.
    pub(crate) status: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// What a command wrote beside its answer.
    pub(crate) beside: Vec<u8>,
}

impl Step {
    pub(crate) fn written(&self) -> String {
        let mut out = format!("# {}\n", escaped(self.title.as_bytes()));
        if let Some(label) = &self.label {
            let _ = writeln!(out, ">as {label}");
        }
        match &self.act {
            Act::Ask(ask) => write_ask(&mut out, ask),
            Act::Until(ask, text) => {
                let _ = writeln!(out, ">until {}", escaped(text.as_bytes()));
                write_ask(&mut out, ask);
            }
            Act::Open(ask) => {
                out.push_str(">open\n");
                write_ask(&mut out, ask);
            }
            Act::Hear(label, text) => {
                let _ = writeln!(out, ">hear {label} {}", escaped(text.as_bytes()));
            }
            Act::Pass(ms) => {
                let _ = writeln!(out, ">pass {ms}");
            }
            Act::Run(words) => {
                let words: Vec<String> =
                    words.iter().map(|word| escaped(word.as_bytes()).replace(' ', "\\x20")).collect();
                let _ = writeln!(out, ">run {}", words.join(" "));
            }
        }
        out
    }
}

fn write_ask(out: &mut String, ask: &Ask) {
    let _ = writeln!(out, "> {} {}", ask.method, escaped(ask.path.as_bytes()));
    let json = is_json(ask);
    for (name, value) in ask.headers.iter().skip(usize::from(json)) {
        let _ = writeln!(out, ">h {name}: {}", escaped(value.as_bytes()));
    }
    if let Some(body) = &ask.body {
        let _ = writeln!(out, "{} {}", if json { ">j" } else { ">b" }, escaped(body));
    }
}

impl Said {
    pub(crate) fn written(&self) -> String {
        let mut out = String::new();
        if !self.status.is_empty() {
            let _ = writeln!(out, "< {}", self.status);
        }
        for header in &self.headers {
            let _ = writeln!(out, "<h {}", escaped(header.as_bytes()));
        }
        write_lines(&mut out, "<l", "<b", &self.body);
        write_lines(&mut out, "<e", "<e", &self.beside);
        out
    }
}

impl Said {
    /// The status and the body of an answer, as written.
    pub(crate) fn read(written: &str) -> Self {
        let mut said = Self::default();
        for line in written.lines() {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("<", status) => status.clone_into(&mut said.status),
                ("<l", line) => said.body.extend([unescaped(line), b"\n".to_vec()].concat()),
                ("<b", piece) => said.body.extend(unescaped(piece)),
                _ => {}
            }
        }
        said
    }
}

/// A longer line is written in pieces, so that a difference in it can be seen.
const LONG: usize = 4_000;

/// Text line by line; `last` marks what has no end, and the pieces of a long line.
fn write_lines(out: &mut String, line: &str, last: &str, bytes: &[u8]) {
    for text in bytes.split_inclusive(|byte| *byte == b'\n') {
        match text.strip_suffix(b"\n") {
            Some(text) => {
                let _ = writeln!(out, "{line} {}", escaped(text));
            }
            None if text.len() > LONG => {
                for piece in text.split_inclusive(|byte| *byte == b',') {
                    let _ = writeln!(out, "{last} {}", escaped(piece));
                }
            }
            None => {
                let _ = writeln!(out, "{last} {}", escaped(text));
            }
        }
    }
}

/// Every step of a file with what it is to be answered, as written.
pub(crate) fn parse(text: &str) -> Vec<(Step, String)> {
    text.split("\n\n").filter(|block| !block.trim().is_empty()).map(parse_block).collect()
}

fn parse_block(block: &str) -> (Step, String) {
    let (mut title, mut label, mut until, mut open) = (String::new(), None, None, false);
    let (mut ask, mut act, mut words, mut said) = (Ask::default(), None, Vec::new(), String::new());
    for line in block.trim_start_matches('\n').lines() {
        let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
        match mark {
            "#" => title = text(rest),
            ">as" => label = Some(rest.to_owned()),
            ">until" => until = Some(text(rest)),
            ">open" => open = true,
            ">" => {
                let (method, path) =
                    rest.split_once(' ').unwrap_or_else(|| panic!("a method and a path: {line}"));
                (ask.method, ask.path) = (method.to_owned(), text(path));
            }
            ">h" => {
                let (name, value) = rest.split_once(": ").unwrap_or((rest.trim_end_matches(':'), ""));
                ask.headers.push((name.to_owned(), text(value)));
            }
            ">b" => ask.body = Some(unescaped(rest)),
            ">j" => {
                ask.body = Some(unescaped(rest));
                ask.headers.insert(0, json());
            }
            ">hear" => {
                let (label, heard) = rest.split_once(' ').unwrap_or((rest, ""));
                act = Some(Act::Hear(label.to_owned(), text(heard)));
            }
            ">pass" => act = Some(Act::Pass(rest.parse().unwrap_or_else(|error| panic!("{line}: {error}")))),
            ">run" => words = rest.split(' ').map(text).collect(),
            _ => {
                said.push_str(line);
                said.push('\n');
            }
        }
    }
    let act = match (act, until) {
        (Some(act), _) => act,
        _ if !words.is_empty() => Act::Run(words),
        (None, Some(until)) => Act::Until(ask, until),
        (None, None) if open => Act::Open(ask),
        (None, None) => Act::Ask(ask),
    };
    (Step { title, label, act }, said)
}

/// So many times the same byte is written once.
const RUN: usize = 24;

pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(first) = rest.chars().next() {
            let run = rest.chars().take_while(|other| *other == first).count();
            if run >= RUN && first.is_ascii() {
                let _ = write!(out, "\\[{run}*x{:02x}]", first as u32);
                rest = &rest[run..];
                continue;
            }
            if first.is_control() || first == '\\' || first == '\u{2028}' {
                let mut buffer = [0; 4];
                for byte in first.encode_utf8(&mut buffer).bytes() {
                    let _ = write!(out, "\\x{byte:02x}");
                }
            } else {
                out.push(first);
            }
            rest = &rest[first.len_utf8()..];
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    // A space at the end of a line is lost in many an editor.
    if let Some(cut) = out.strip_suffix(' ') {
        return format!("{cut}\\x20");
    }
    out
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let hex =
            |digits: &str| u8::from_str_radix(digits, 16).unwrap_or_else(|error| panic!("{text}: {error}"));
        if let Some(run) = rest.strip_prefix('[') {
            let (run, after) = run.split_once(']').unwrap_or_else(|| panic!("no end: {text}"));
            let (count, byte) = run.split_once("*x").unwrap_or_else(|| panic!("no byte: {text}"));
            let count: usize = count.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            out.resize(out.len() + count, hex(byte));
            rest = after;
        } else {
            out.push(hex(&rest[1..3]));
            rest = &rest[3..];
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

fn text(written: &str) -> String {
    String::from_utf8(unescaped(written)).unwrap_or_else(|error| panic!("{written}: {error}"))
}

#[test]
fn what_is_written_is_read_again() {
    let body = [b"{\"a\\\":\xff".to_vec(), vec![b'x'; 5000], " \u{1f600}\n ".as_bytes().to_vec()].concat();
    let ask = Ask {
        method: "POST".to_owned(),
        path: "/v1/x?y=\\".to_owned(),
        headers: vec![("a".to_owned(), "b: c".to_owned()), ("empty".to_owned(), String::new())],
        body: Some(body),
    };
    for act in [
        Act::Ask(ask.clone()),
        Act::Until(ask.clone(), "\"done\" ".to_owned()),
        Act::Open(ask),
        Act::Hear("s".to_owned(), "data: 1\n".to_owned()),
        Act::Pass(7),
        Act::Run(vec!["limit".to_owned(), String::new(), "a b".to_owned()]),
    ] {
        let step = Step { title: "a case".to_owned(), label: Some("s".to_owned()), act };
        let said = Said {
            status: "200".to_owned(),
            headers: vec!["content-type: x".to_owned()],
            body: b"line\n\nlast".to_vec(),
            beside: b"note\n".to_vec(),
        };
        let read = Said::read(&said.written());
        assert_eq!((&read.status, &read.body), (&said.status, &said.body));
        let block = format!("{}{}", step.written(), said.written());
        assert_eq!(parse(&format!("{block}\n{block}")), vec![(step.clone(), said.written()); 2], "{block}");
    }
}
