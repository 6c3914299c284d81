//! How far a long command has come: a bar on a terminal, plain lines elsewhere, and nothing for what is quick.

use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Nothing is shown before this.
const QUICK: Duration = Duration::from_millis(500);
/// Between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(2);

pub(crate) struct Progress {
    verb: &'static str,
    state: Mutex<State>,
}

struct State {
    /// When something is shown next.
    next: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn new(verb: &'static str) -> Self {
        Self { verb, state: Mutex::new(State { next: Instant::now() + QUICK, bar: None }) }
    }

    /// So many are done.
    pub(crate) fn told(&self, done: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = &state.bar {
            bar.set_position(done);
        } else if Instant::now() >= state.next {
            if std::io::stderr().is_terminal() {
                let style = ProgressStyle::with_template("{spinner} {msg}: {human_pos} done, {per_sec}");
                let bar = ProgressBar::new_spinner().with_message(self.verb);
                if let Ok(style) = style {
                    bar.set_style(style);
                }
                bar.set_position(done);
                state.bar = Some(bar);
            } else {
                eprintln!("{}: {done} done", self.verb);
                state.next = Instant::now() + LINES;
            }
        }
    }

    /// The answer follows.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = state.bar.take() {
            bar.finish_and_clear();
        }
    }
}
