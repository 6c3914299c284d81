//! How far a file is: a bar on a terminal, plain lines elsewhere, and nothing for what is quick.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::output;

/// Nothing is shown before this.
const QUICK: Duration = Duration::from_millis(500);
/// Between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(2);

/// What is done with the bytes of a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Doing {
    Sending,
    Comparing,
    Reading,
}

impl Doing {
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Sending => ("sending", "sent"),
            Self::Comparing => ("comparing", "compared"),
            Self::Reading => ("reading", "read"),
        }
    }
}

pub(super) struct Bar {
    doing: Doing,
    name: String,
    size: u64,
    done: AtomicU64,
    state: Mutex<State>,
}

struct State {
    /// When something is shown next.
    next: Instant,
    bar: Option<ProgressBar>,
    /// The bar says what is waited for.
    waits: bool,
}

impl Bar {
    pub(super) fn new(doing: Doing, name: impl Into<String>, size: u64) -> Self {
        let state = State { next: Instant::now() + QUICK, bar: None, waits: false };
        Self { doing, name: name.into(), size, done: AtomicU64::new(0), state: Mutex::new(state) }
    }

    pub(super) fn more(&self, bytes: u64) {
        self.moved(0, bytes);
    }

    /// A part of it that was at `before` is at `now`, which is less when it begins anew.
    pub(super) fn moved(&self, before: u64, now: u64) {
        let step = now.wrapping_sub(before);
        let done = self.done.fetch_add(step, Relaxed).wrapping_add(step);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = std::mem::take(&mut state.waits);
        if let Some(bar) = &state.bar {
            if waited {
                bar.set_message(self.message());
            }
            bar.set_position(done);
        } else if Instant::now() >= state.next {
            if std::io::stderr().is_terminal() {
                state.bar = Some(self.drawn(done));
            } else {
                let (name, done, size) = (&self.name, HumanBytes(done), HumanBytes(self.size));
                let _ = writeln!(std::io::stderr(), "{name}: {done} of {size} {}", self.doing.words().1);
                state.next = Instant::now() + LINES;
            }
        }
    }

    /// Says what is waited for: a line, and on a terminal a word beside the bar until it moves again.
    pub(super) fn waits(&self, what: &str, line: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waits = true;
        let line = format!("{}: {line}", self.name);
        match &state.bar {
            Some(bar) => {
                bar.suspend(|| output::error(&line));
                bar.set_message(format!("{}: {what}", self.name));
            }
            None => output::error(&line),
        }
    }

    fn message(&self) -> String {
        format!("{} {}", self.doing.words().0, self.name)
    }

    fn drawn(&self, done: u64) -> ProgressBar {
        let template = "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        let shown = ProgressBar::new(self.size).with_message(self.message());
        if let Ok(style) = ProgressStyle::with_template(template) {
            shown.set_style(style);
        }
        shown.set_position(done);
        shown
    }

    pub(super) fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = state.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    /// Also where a signal broke off what it shows.
    fn drop(&mut self) {
        self.end();
    }
}
