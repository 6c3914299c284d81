//! How far the run is: a bar on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::gate::Waiting;

/// Between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(30);

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    pub(crate) processed: u64,
    pub(crate) failed: u64,
    /// Waiting, being fetched, or to be tried again.
    pub(crate) left: u64,
}

#[derive(Debug)]
pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines { next: Instant, last: Option<(Standing, Waiting)> },
}

impl Progress {
    pub(crate) fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines { next: Instant::now() + LINES, last: None };
        }
        Self::Bar(ProgressBar::new(0))
    }

    pub(crate) fn told(&mut self, standing: Standing, waiting: Waiting) {
        let text = spoken(standing, waiting);
        match self {
            Self::Bar(bar) => {
                // Whoever waits has no pace to tell the end by.
                let template = match waiting {
                    Waiting::Not => "{bar:30} {human_pos} of {human_len}, {eta} to go{msg}",
                    _ => "{bar:30} {human_pos} of {human_len}{msg}",
                };
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style);
                }
                bar.set_length(standing.processed + standing.failed + standing.left);
                bar.set_position(standing.processed + standing.failed);
                bar.set_message(text);
            }
            Self::Lines { next, last } => {
                // What a node waits for is said at once, the rest now and then and only when it has changed.
                let turned = last.is_some_and(|(_, before)| before != waiting);
                if turned || (Instant::now() >= *next && *last != Some((standing, waiting))) {
                    let _ = writeln!(
                        std::io::stderr(),
                        "{} processed, {} left{text}",
                        standing.processed,
                        standing.left
                    );
                    *next = Instant::now() + LINES;
                    *last = Some((standing, waiting));
                } else if last.is_none() {
                    *last = Some((standing, waiting));
                }
            }
        }
    }

    pub(crate) fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn spoken(standing: Standing, waiting: Waiting) -> String {
    let failed = if standing.failed > 0 { format!(", {} failed", standing.failed) } else { String::new() };
    match waiting {
        Waiting::Not => failed,
        Waiting::Quota(until) => format!("{failed}; the quota is used up until {until}"),
        Waiting::Api(until) => format!("{failed}; the API asked to be left alone until {until}"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn it_is_said_until_when_is_waited() {
        let until: jiff::Timestamp = "2026-11-16T07:00:00Z".parse().unwrap();
        let standing = Standing { processed: 1, failed: 2, left: 3 };
        assert_eq!(
            spoken(standing, Waiting::Quota(until)),
            ", 2 failed; the quota is used up until 2026-11-16T07:00:00Z"
        );
        assert_eq!(spoken(Standing::default(), Waiting::Not), "");
    }
}
