//! A history: steps on a few keys, each at its moment.

use std::fmt;

use quaymaster_store::{Invocation, Workload};

use super::scripts;

/// How many keys a history has.
pub const KEYS: u8 = 8;

/// One argument of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    /// Bytes.
    Text(Vec<u8>),
    /// A number as Lua holds it, spelled so that Lua reads it back.
    Number(String),
    /// One of the history's own keys.
    Key(u8),
    /// The moment of the step plus this many milliseconds.
    Moment(i64),
}

/// A command and its arguments.
pub type Command = Vec<Word>;

/// One script run.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Commands one after the other, each told as Lua sees it.
    Each(Vec<Command>),
    /// One command, answered as it answers.
    Call(Command),
    /// Commands, then a failure: the embedded store forgets them, so the other one never sees them.
    Doomed(Vec<Command>),
    /// A value built in Lua and returned.
    Value(Vec<String>),
    /// Lua's arithmetic and spelling of numbers.
    Numbers(Vec<String>),
}

/// An action at a moment, in microseconds after the history's beginning.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// When.
    pub at_us: i64,
    /// What.
    pub action: Action,
}

/// Steps in the order of their moments.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// What it was made from.
    pub seed: u64,
    /// What happens.
    pub steps: Vec<Step>,
}

impl Word {
    /// The word as commands get it.
    pub fn bytes(&self, prefix: &str, now_ms: i64) -> Vec<u8> {
        match self {
            Word::Text(text) => text.clone(),
            Word::Number(digits) => digits.clone().into_bytes(),
            Word::Key(index) => format!("{prefix}k{index}").into_bytes(),
            Word::Moment(delta_ms) => now_ms.saturating_add(*delta_ms).to_string().into_bytes(),
        }
    }
}

impl Step {
    /// The call this step is for a history whose keys begin with `prefix` and which began at `start_us`.
    pub fn call(&self, prefix: &str, start_us: i64) -> Invocation {
        let now_ms = (start_us + self.at_us).div_euclid(1000);
        let (script, commands): (_, &[Command]) = match &self.action {
            Action::Each(commands) => (&*scripts::EACH, commands),
            Action::Call(command) => (&*scripts::CALL, std::slice::from_ref(command)),
            Action::Doomed(commands) => (&*scripts::DOOMED, commands),
            Action::Value(_) => (&*scripts::VALUE, &[]),
            Action::Numbers(_) => (&*scripts::NUMBERS, &[]),
        };
        let mut call = Invocation::new(script, Workload::Default);
        for key in 0..KEYS {
            call.keys.push(Word::Key(key).bytes(prefix, now_ms));
        }
        if let Action::Value(words) | Action::Numbers(words) = &self.action {
            for word in words {
                call.args.push(word);
            }
        }
        for command in commands {
            call.args.push_int(command.len() as i64);
            for word in command {
                let mut tagged = vec![if matches!(word, Word::Number(_)) { b'n' } else { b's' }];
                tagged.extend_from_slice(&word.bytes(prefix, now_ms));
                call.args.push(&tagged);
            }
        }
        call
    }

    /// The commands of this step, in order.
    pub fn commands(&self) -> &[Command] {
        match &self.action {
            Action::Each(commands) | Action::Doomed(commands) => commands,
            Action::Call(command) => std::slice::from_ref(command),
            Action::Value(_) | Action::Numbers(_) => &[],
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Text(text) if text.len() > 60 => {
                write!(f, "\"{}…\"({} bytes)", text[..8].escape_ascii(), text.len())
            }
            Word::Text(text) if !text.is_empty() && text.iter().all(u8::is_ascii_graphic) => {
                f.write_str(&String::from_utf8_lossy(text))
            }
            Word::Text(text) => write!(f, "\"{}\"", text.escape_ascii()),
            Word::Number(digits) => write!(f, "number({digits})"),
            Word::Key(index) => write!(f, "k{index}"),
            Word::Moment(delta_ms) => write!(f, "now{delta_ms:+}ms"),
        }
    }
}

/// A command as one would type it.
pub fn spell(command: &[Word]) -> String {
    command.iter().map(Word::to_string).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "history of seed {}:", self.seed)?;
        for step in &self.steps {
            let spelled =
                |commands: &[Command]| commands.iter().map(|c| spell(c)).collect::<Vec<_>>().join("; ");
            let what = match &step.action {
                Action::Each(commands) => format!("each   {}", spelled(commands)),
                Action::Call(command) => format!("call   {}", spell(command)),
                Action::Doomed(commands) => format!("doomed {}", spelled(commands)),
                Action::Value(words) => format!("value  {words:?}"),
                Action::Numbers(words) => format!("number {words:?}"),
            };
            writeln!(f, "  {:>12.3} ms  {what}", step.at_us as f64 / 1000.0)?;
        }
        Ok(())
    }
}
