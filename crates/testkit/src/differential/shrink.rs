//! Cuts a history down to what still differs.

use super::history::{Action, Command, History, Word};
use super::{Mismatch, Pair, Tally};

/// Most re-runs of one shrinking; each takes a few milliseconds.
const TRIES: usize = 4000;

/// Leaves out halves, quarters, … single steps of a history for as long as `differs` still tells a difference.
pub(super) async fn fewer_steps<H: Clone, S>(
    history: H,
    difference: String,
    steps: impl Fn(&mut H) -> &mut Vec<S>,
    differs: impl AsyncFn(&[H; 1]) -> Option<(usize, String)>,
) -> (H, String) {
    let (mut best, mut difference) = (history, difference);
    let mut width = steps(&mut best).len() / 2;
    while width > 0 {
        let mut at = 0;
        while at < steps(&mut best).len() {
            let mut candidate = best.clone();
            let left = steps(&mut candidate);
            left.drain(at..(at + width).min(left.len()));
            let tried = [candidate];
            match differs(&tried).await {
                Some((_, other)) => {
                    let [candidate] = tried;
                    (best, difference) = (candidate, other);
                }
                None => at += width,
            }
        }
        width /= 2;
    }
    (best, difference)
}

struct Search<'a> {
    pair: &'a Pair,
    best: History,
    difference: String,
    tries: usize,
}

/// The smallest history found that still differs, and how it differs.
pub(super) async fn shrink(pair: &Pair, history: History, difference: String) -> Mismatch {
    let difference = format!("(among others, not alone)\n{difference}");
    let mut search = Search { pair, best: history.clone(), difference, tries: 0 };
    if search.differs(history).await {
        while search.fewer_steps().await || search.fewer_commands().await || search.fewer_words().await {}
    }
    Mismatch { history: search.best, difference: search.difference }
}

impl Search<'_> {
    /// Keeps the candidate if the two still differ on it.
    async fn differs(&mut self, candidate: History) -> bool {
        self.tries += 1;
        if self.tries > TRIES {
            return false;
        }
        let histories = [candidate];
        match self.pair.run(&histories, &mut Tally::default()).await {
            Some((_, difference)) => {
                let [candidate] = histories;
                (self.best, self.difference) = (candidate, difference);
                true
            }
            None => false,
        }
    }

    /// Halves, quarters, … single steps left out.
    async fn fewer_steps(&mut self) -> bool {
        let mut better = false;
        let mut width = self.best.steps.len() / 2;
        while width > 0 {
            let mut at = 0;
            while at < self.best.steps.len() {
                let mut candidate = self.best.clone();
                candidate.steps.drain(at..(at + width).min(candidate.steps.len()));
                if !candidate.steps.is_empty() && self.differs(candidate).await {
                    better = true;
                } else {
                    at += width;
                }
            }
            width /= 2;
        }
        better
    }

    async fn fewer_commands(&mut self) -> bool {
        let mut better = false;
        for step in 0..self.best.steps.len() {
            let mut command = 0;
            while command < self.best.steps[step].commands().len() {
                let mut candidate = self.best.clone();
                let left = match &mut candidate.steps[step].action {
                    Action::Each(commands) | Action::Doomed(commands) => {
                        commands.remove(command);
                        commands.len()
                    }
                    _ => 0,
                };
                if left > 0 && self.differs(candidate).await {
                    better = true;
                } else {
                    command += 1;
                }
            }
        }
        better
    }

    async fn fewer_words(&mut self) -> bool {
        let mut better = false;
        for step in 0..self.best.steps.len() {
            for command in 0..self.best.steps[step].commands().len() {
                let mut word = self.best.steps[step].commands()[command].len();
                while word > 1 {
                    word -= 1;
                    let mut candidate = self.best.clone();
                    let Some(words) = command_mut(&mut candidate, step, command) else { break };
                    if matches!(words[word], Word::Key(_)) {
                        continue;
                    }
                    let simpler = Word::Text(b"a".to_vec());
                    let long = matches!(&words[word], Word::Text(text) if text.len() > 40);
                    if long {
                        words[word] = simpler;
                    } else {
                        words.remove(word);
                    }
                    better |= self.differs(candidate).await;
                }
            }
        }
        better
    }
}

fn command_mut(history: &mut History, step: usize, command: usize) -> Option<&mut Command> {
    match &mut history.steps[step].action {
        Action::Each(commands) | Action::Doomed(commands) => commands.get_mut(command),
        Action::Call(words) => Some(words),
        Action::Value(_) | Action::Numbers(_) => None,
    }
}
