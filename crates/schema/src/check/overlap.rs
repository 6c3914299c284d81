//! Every key belongs to one pattern and one set of values.
//!
//! Each resource starts with one placeholder that may contain `:`. Where two patterns could then spell the same
//! key, three remedies are tried: forbid one value of a placeholder (a literal of the other pattern), take the `:`
//! away from a placeholder, both. What is left is an error.

use std::collections::BTreeSet;

use crate::pattern::automaton::{Automaton, Rule};
use crate::pattern::{Class, Piece, Placeholder, Template};
use crate::read::draft::Draft;
use crate::read::report::Report;

/// One key or channel of one draft.
struct Item {
    draft: usize,
    /// Its row; channels have none.
    row: Option<usize>,
    channel: Option<usize>,
    /// Its spellings, without repetition.
    spellings: Vec<Template>,
}

struct Board<'d> {
    drafts: &'d mut Vec<Draft>,
    items: Vec<Item>,
}

/// Two drafts' patterns that were told apart, for the warning.
struct Settlement {
    items: (usize, usize),
    narrowed: Option<(usize, String)>,
    forbidden: Option<(usize, String, String)>,
}

pub(crate) fn overlap(drafts: &mut Vec<Draft>, report: &Report<'_>) {
    let items = items(drafts);
    let board = Board { drafts, items };
    let pairs = board.candidates();
    let mut settled = Vec::new();
    let mut clashes = Vec::new();
    // Taking `:` away can only make patterns smaller, so a round without a change is the last.
    loop {
        let mut changed = false;
        for &pair in &pairs {
            if !board.meet(pair) || board.forbiddable(pair).is_some() {
                continue;
            }
            if let Some(narrowed) = board.narrowable(pair) {
                for draft in &narrowed {
                    let name = board.drafts[*draft].wide.take();
                    settled.push(Settlement {
                        items: pair,
                        narrowed: name.map(|name| (*draft, name)),
                        forbidden: None,
                    });
                }
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    for &pair in &pairs {
        if !board.meet(pair) {
            continue;
        }
        match board.forbiddable(pair) {
            Some((draft, name, word)) => {
                board.drafts[draft].forbidden.entry(name.clone()).or_default().push(word.clone());
                settled.push(Settlement {
                    items: pair,
                    narrowed: None,
                    forbidden: Some((draft, name, word)),
                });
            }
            None => clashes.push(pair),
        }
    }
    board.warn(&settled, report);
    board.fail(&clashes, report);
}

fn items(drafts: &[Draft]) -> Vec<Item> {
    let mut items = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        for (row_index, row) in draft.rows.iter().enumerate() {
            let mut spellings = vec![row.template.clone()];
            let cluster = draft.cluster(row);
            if cluster != row.template {
                spellings.push(cluster);
            }
            items.push(Item { draft: index, row: Some(row_index), channel: None, spellings });
        }
        for (channel_index, channel) in draft.channels.iter().enumerate() {
            let spellings = vec![channel.template.clone()];
            items.push(Item { draft: index, row: None, channel: Some(channel_index), spellings });
        }
    }
    items
}

impl Board<'_> {
    /// Pairs whose leading texts do not already tell them apart.
    fn candidates(&self) -> Vec<(usize, usize)> {
        let head = |template: &Template| match template.pieces().first() {
            Some(Piece::Text(text)) => text.clone(),
            _ => String::new(),
        };
        let heads: Vec<Vec<String>> =
            self.items.iter().map(|item| item.spellings.iter().map(head).collect()).collect();
        let near = |a: &String, b: &String| a.starts_with(b.as_str()) || b.starts_with(a.as_str());
        let mut pairs = Vec::new();
        for later in 0..self.items.len() {
            for earlier in 0..later {
                let same_space = self.items[earlier].row.is_some() == self.items[later].row.is_some();
                if same_space && heads[earlier].iter().any(|a| heads[later].iter().any(|b| near(a, b))) {
                    pairs.push((earlier, later));
                }
            }
        }
        pairs
    }

    fn placeholder(&self, item: &Item, name: &str) -> Placeholder {
        let draft = &self.drafts[item.draft];
        match item.row {
            Some(row) => draft.placeholder(&draft.rows[row], name),
            None => draft.channel_placeholder(name),
        }
    }

    fn meet(&self, (a, b): (usize, usize)) -> bool {
        self.meet_with((a, b), &[], None)
    }

    /// Whether the two can spell the same key if the drafts in `narrow` lose their `:` and one more value of one
    /// draft's placeholder is forbidden.
    fn meet_with(
        &self,
        (a, b): (usize, usize),
        narrow: &[usize],
        forbid: Option<(usize, &str, &str)>,
    ) -> bool {
        let automata = |item: &Item| -> Vec<Automaton> {
            let rule = |name: &str| {
                let Placeholder { mut class, mut forbidden, .. } = self.placeholder(item, name);
                let draft = &self.drafts[item.draft];
                if narrow.contains(&item.draft) && draft.wide.as_deref() == Some(name) && class == Class::Wide
                {
                    class = Class::Narrow;
                }
                if let Some((index, placeholder, word)) = forbid
                    && index == item.draft
                    && placeholder == name
                {
                    forbidden.push(word.to_owned());
                }
                Rule { class, forbidden }
            };
            item.spellings.iter().map(|template| Automaton::new(template, &rule)).collect()
        };
        let (left, right) = (automata(&self.items[a]), automata(&self.items[b]));
        left.iter().any(|x| right.iter().any(|y| x.meets(y)))
    }

    /// A value whose absence tells the two apart: the leftmost placeholder that faces a literal.
    fn forbiddable(&self, pair: (usize, usize)) -> Option<(usize, String, String)> {
        self.forbiddable_with(pair, &[])
    }

    fn forbiddable_with(&self, (a, b): (usize, usize), narrow: &[usize]) -> Option<(usize, String, String)> {
        let mut options = Vec::new();
        for (own, other) in [(a, b), (b, a)] {
            let (own, other) = (&self.items[own], &self.items[other]);
            for name in own.spellings[0].names() {
                let Some((before, after, place)) = own.spellings[0].affixes(name) else { continue };
                for segment in other.spellings[0].literal_segments() {
                    let word = segment
                        .strip_prefix(before.as_str())
                        .and_then(|rest| rest.strip_suffix(after.as_str()));
                    if let Some(word) = word.filter(|word| !word.is_empty()) {
                        options.push((place, own.draft, name.to_owned(), word.to_owned()));
                    }
                }
            }
        }
        options.sort();
        options
            .into_iter()
            .find(|(_, draft, name, word)| !self.meet_with((a, b), narrow, Some((*draft, name, word))))
            .map(|(_, draft, name, word)| (draft, name, word))
    }

    /// Drafts that must lose their `:` so that the two are apart, or can be told apart by a forbidden value.
    fn narrowable(&self, (a, b): (usize, usize)) -> Option<Vec<usize>> {
        let may = |item: &Item| {
            let draft = &self.drafts[item.draft];
            !draft.wide_pinned && draft.wide.is_some()
        };
        // A `:` in the middle of a key is given up before one at its end.
        let cost = |item: &Item| {
            let wide = self.drafts[item.draft].wide.as_deref();
            let last = item.spellings[0].pieces().last();
            let at_end = matches!((last, wide), (Some(Piece::Name(name)), Some(wide)) if name == wide);
            (at_end, item.spellings[0].text())
        };
        let mut single: Vec<&Item> =
            [&self.items[a], &self.items[b]].into_iter().filter(|item| may(item)).collect();
        single.sort_by_key(|item| cost(item));
        let drafts: Vec<usize> = single.iter().map(|item| item.draft).collect();
        let mut options: Vec<Vec<usize>> = drafts.iter().map(|draft| vec![*draft]).collect();
        if let [first, second] = drafts.as_slice()
            && first != second
        {
            options.push(vec![*first, *second]);
        }
        options.into_iter().find(|narrow| {
            !self.meet_with((a, b), narrow, None) || self.forbiddable_with((a, b), narrow).is_some()
        })
    }

    fn describe(&self, item: &Item) -> (String, String) {
        (self.drafts[item.draft].label(), item.spellings[0].text())
    }

    fn warn(&self, settled: &[Settlement], report: &Report<'_>) {
        // A value that is forbidden and a `:` that is, in the same placeholder, are one thing to know.
        let narrowed = |draft: usize, name: &str| {
            settled.iter().any(|other| matches!(&other.narrowed, Some((d, n)) if *d == draft && n == name))
        };
        let forbids = |draft: usize, name: &str| {
            settled
                .iter()
                .any(|other| matches!(&other.forbidden, Some((d, n, _)) if *d == draft && n == name))
        };
        let mut told = BTreeSet::new();
        for settlement in settled {
            let (a, b) = (&self.items[settlement.items.0], &self.items[settlement.items.1]);
            if a.draft == b.draft {
                continue;
            }
            let ((a_label, a_text), (b_label, b_text)) = (self.describe(a), self.describe(b));
            let both =
                format!("`{a_text}` of [{a_label}] and `{b_text}` of [{b_label}] could spell the same key");
            let (draft, name, word) = match (&settlement.forbidden, &settlement.narrowed) {
                (Some((draft, name, word)), _) => (*draft, name, Some(word)),
                (None, Some((draft, name))) if !forbids(*draft, name) => (*draft, name, None),
                (None, _) => continue,
            };
            // Side keys repeat what the primary keys already said.
            if !told.insert((draft, name.clone(), word.cloned())) {
                continue;
            }
            let label = self.drafts[draft].label();
            let (code, what, help) = match word {
                Some(word) => {
                    let colon =
                        if narrowed(draft, name) { ", and its values may not contain `:`" } else { "" };
                    let what = format!("so `{word}` is a forbidden value of `{name}` in [{label}]{colon}");
                    ("key-overlap-literal", what, "rename a literal to lift this")
                }
                None => (
                    "key-overlap-colon",
                    format!("so `{name}` in [{label}] may not contain `:`"),
                    "rename a literal to lift this, or say `colon = \"\"` to accept it",
                ),
            };
            report.add(self.drafts[draft].key_at, code, format!("{both}; {what}"), Some(help.to_owned()));
        }
    }

    fn fail(&self, clashes: &[(usize, usize)], report: &Report<'_>) {
        let mut told = BTreeSet::new();
        // Documented keys first: side keys only repeat their clash.
        let is_side = |index: usize| {
            let item = &self.items[index];
            item.row.is_some_and(|row| self.drafts[item.draft].rows[row].side)
        };
        let mut clashes = clashes.to_vec();
        clashes.sort_by_key(|(a, b)| (is_side(*a) || is_side(*b), *b, *a));
        for (a, b) in clashes {
            let side = is_side(a) || is_side(b);
            let (a, b) = (&self.items[a], &self.items[b]);
            if !told.insert((a.draft, b.draft)) {
                continue;
            }
            let ((a_label, a_text), (b_label, b_text)) = (self.describe(a), self.describe(b));
            let place = report.place(self.drafts[a.draft].key_at);
            let at = self.drafts[b.draft].key_at;
            let holds = |item: &Item| item.row.map(|row| self.drafts[item.draft].rows[row].holds);
            if let (true, Some(first), Some(second)) =
                (shape(&a.spellings[0]) == shape(&b.spellings[0]) && holds(a) != holds(b), holds(a), holds(b))
            {
                let message =
                    format!("`{b_text}` is a {second} in [{b_label}] and a {first} in [{a_label}] ({place})");
                report.add(at, "two-types", message, Some("one key holds one type; choose it".to_owned()));
            } else {
                let code = if side { "side-overlap" } else { "key-overlap" };
                let what = if a.channel.is_some() { "the same channel" } else { "the same key" };
                let message = format!(
                    "`{b_text}` of [{b_label}] and `{a_text}` of [{a_label}] ({place}) can be {what}"
                );
                let help = if side {
                    "side keys lie under the key without its time bucket; give one key another literal, as in `rl:day:{id}:{day}`"
                } else {
                    "give one of them a literal of its own"
                };
                report.add(at, code, message, Some(help.to_owned()));
            }
        }
    }
}

/// The pattern with its placeholders' names taken out.
fn shape(template: &Template) -> Vec<Piece> {
    let anonymous = |piece: &Piece| match piece {
        Piece::Name(_) => Piece::Name(String::new()),
        other => other.clone(),
    };
    template.pieces().iter().map(anonymous).collect()
}
