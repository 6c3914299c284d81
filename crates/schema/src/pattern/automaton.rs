//! Whether two patterns can spell the same key: the two languages' intersection, searched for a common word.

use std::cell::Cell;
use std::collections::HashSet;

use super::template::{Piece, Template};
use super::value::{Class, admits};

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bytes([u64; 4]);

impl Bytes {
    const NONE: Bytes = Bytes([0; 4]);

    fn of(admits: impl Fn(u8) -> bool) -> Self {
        let mut set = Self::NONE;
        for byte in 0..=u8::MAX {
            if admits(byte) {
                set.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
            }
        }
        set
    }

    fn one(byte: u8) -> Self {
        let mut set = Self::NONE;
        set.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
        set
    }

    fn without(self, byte: u8) -> Self {
        let mut set = self;
        set.0[usize::from(byte >> 6)] &= !(1 << (byte & 63));
        set
    }

    fn has(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }

    fn meets(self, other: Self) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| a & b != 0)
    }
}

/// A nondeterministic automaton that accepts the keys of one spelling; state 0 is its start.
#[derive(Debug)]
pub(crate) struct Automaton {
    steps: Vec<Vec<(Bytes, usize)>>,
    /// The states in which a key may end.
    ends: HashSet<usize>,
}

/// What is known of a placeholder while the automaton is built.
pub(crate) struct Rule {
    pub(crate) class: Class,
    pub(crate) forbidden: Vec<String>,
}

impl Automaton {
    /// A placeholder that occurs twice is taken as two: at worst two patterns are found to overlap that do not.
    pub(crate) fn new(template: &Template, rule: &dyn Fn(&str) -> Rule) -> Self {
        let mut builder = Builder { steps: vec![Vec::new()], heads: vec![0] };
        for piece in template.pieces() {
            match piece {
                Piece::Text(text) => text.bytes().for_each(|byte| builder.step(Bytes::one(byte))),
                Piece::Bucket(unit) => {
                    for sample in unit.format().bytes() {
                        match sample {
                            b'-' | b'_' => builder.step(Bytes::one(sample)),
                            _ => builder.step(Bytes::of(|byte| byte.is_ascii_digit())),
                        }
                    }
                }
                Piece::Name(name) => builder.value(&rule(name)),
            }
        }
        Automaton { ends: builder.heads.into_iter().collect(), steps: builder.steps }
    }

    /// The number of its states.
    pub(crate) fn size(&self) -> usize {
        self.steps.len()
    }

    /// Whether some key is accepted by both; adds what the search took to `taken`.
    pub(crate) fn meets(&self, other: &Automaton, taken: &Cell<usize>) -> bool {
        let width = other.steps.len();
        let mut seen = vec![0_u64; (self.steps.len() * width).div_ceil(64)];
        let mut todo = vec![(0, 0)];
        let mut steps = seen.len();
        let met = loop {
            let Some((a, b)) = todo.pop() else { break false };
            if self.ends.contains(&a) && other.ends.contains(&b) {
                break true;
            }
            steps += self.steps[a].len() * other.steps[b].len();
            for (on_a, next_a) in &self.steps[a] {
                for (on_b, next_b) in &other.steps[b] {
                    let at = next_a * width + next_b;
                    if on_a.meets(*on_b) && seen[at / 64] & (1 << (at % 64)) == 0 {
                        seen[at / 64] |= 1 << (at % 64);
                        todo.push((*next_a, *next_b));
                    }
                }
            }
        };
        taken.set(taken.get() + steps);
        met
    }
}

struct Builder {
    steps: Vec<Vec<(Bytes, usize)>>,
    /// The states in which what has been built so far may end.
    heads: Vec<usize>,
}

impl Builder {
    fn state(&mut self) -> usize {
        self.steps.push(Vec::new());
        self.steps.len() - 1
    }

    fn step(&mut self, on: Bytes) {
        let next = self.state();
        for head in std::mem::take(&mut self.heads) {
            self.steps[head].push((on, next));
        }
        self.heads = vec![next];
    }

    /// One or more bytes of the class that are, as a whole, none of the forbidden words.
    fn value(&mut self, rule: &Rule) {
        let class = Bytes::of(|byte| admits(rule.class, byte));
        let heads = std::mem::take(&mut self.heads);
        let free = self.state();
        self.steps[free].push((class, free));
        let mut exits = vec![free];
        // A trie of the forbidden words: as long as the value is the beginning of one it is tracked there.
        let mut nodes: Vec<(Option<usize>, Vec<&[u8]>)> =
            vec![(None, rule.forbidden.iter().map(String::as_bytes).collect())];
        while let Some((state, words)) = nodes.pop() {
            let mut other = class;
            let mut out = Vec::new();
            let mut nexts: Vec<u8> = words.iter().filter_map(|word| word.first().copied()).collect();
            nexts.sort_unstable();
            nexts.dedup();
            for byte in nexts.into_iter().filter(|byte| class.has(*byte)) {
                let next = self.state();
                let rest: Vec<&[u8]> =
                    words.iter().filter(|word| word.first() == Some(&byte)).map(|word| &word[1..]).collect();
                if !rest.iter().any(|word| word.is_empty()) {
                    exits.push(next);
                }
                nodes.push((Some(next), rest));
                out.push((Bytes::one(byte), next));
                other = other.without(byte);
            }
            out.push((other, free));
            match state {
                Some(state) => self.steps[state].extend(out),
                None => heads.iter().for_each(|head| self.steps[*head].extend(out.iter().copied())),
            }
        }
        self.heads = exits;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn meet(a: &str, b: &str, wide: &[&str], forbidden: &[(&str, &str)]) -> bool {
        let rule = |name: &str| Rule {
            class: if wide.contains(&name) { Class::Wide } else { Class::Narrow },
            forbidden: forbidden.iter().filter(|f| f.0 == name).map(|f| f.1.to_owned()).collect(),
        };
        let automaton = |text: &str| Automaton::new(&Template::parse(text).unwrap(), &rule);
        automaton(a).meets(&automaton(b), &Cell::new(0))
    }

    #[test]
    fn literals_and_lengths_keep_patterns_apart() {
        assert!(!meet("a:{x}", "b:{y}", &[], &[]));
        assert!(!meet("a:{x}", "a:{y}:z", &[], &[]));
        assert!(meet("a:{x}", "a:{y}:z", &["x"], &[]), "x may be `1:z`");
        assert!(meet("a:{x}", "a:b", &[], &[]));
        assert!(!meet("rl:{p}:{minute}", "rl:{p}:{day}", &[], &[]));
        assert!(meet("rl:{p}:{minute}", "rl:{p}:{q}", &[], &[]));
    }

    #[test]
    fn a_forbidden_word_takes_exactly_that_word_out() {
        let words = [("p", "tx")];
        assert!(!meet("rl:{p}:{minute}", "rl:tx:{t}", &["t"], &words));
        assert!(meet("rl:{p}:{minute}", "rl:txx:{t}", &[], &words));
        assert!(meet("rl:{p}:{minute}", "rl:t:{t}", &[], &words));
        let two = [("p", "tx"), ("p", "t")];
        assert!(!meet("rl:{p}", "rl:t", &[], &two));
        assert!(!meet("rl:{p}", "rl:tx", &[], &two));
        assert!(meet("rl:{p}", "rl:tz", &[], &two));
    }
}
