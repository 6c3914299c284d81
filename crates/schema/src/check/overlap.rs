//! Every key belongs to one pattern and one set of values.
//!
//! Each resource starts with one placeholder that may contain `:`. Where two patterns could then spell the same
//! key, three remedies are tried: forbid one value of a placeholder (a literal of the other pattern), take the `:`
//! away from a placeholder, both. What is left is an error.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use super::outline::{self, Outline};
use crate::kind::RedisType;
use crate::pattern::automaton::{Automaton, Rule};
use crate::pattern::{Class, Piece, Template};
use crate::read::draft::Draft;
use crate::read::report::{At, Report};

/// The most pairs that are compared. A schema with more is not finished being written.
const MOST_PAIRS: usize = 50_000;
/// The most steps all comparisons may take together, a few seconds' worth.
const MOST_STEPS: usize = 100_000_000;

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
    /// The automata of an item without forbidden values, until its draft loses its `:`.
    automata: RefCell<Vec<Option<Rc<Vec<Automaton>>>>>,
    steps: Cell<usize>,
}

/// A value of a draft's placeholder.
type Word = (usize, String, String);

/// Two drafts' patterns that were told apart, for the warning.
struct Settlement {
    items: (usize, usize),
    narrowed: Option<(usize, String)>,
    forbidden: Option<Word>,
}

pub(crate) fn overlap(drafts: &mut Vec<Draft>, report: &Report<'_>) {
    let items = items(drafts);
    let automata = RefCell::new(vec![None; items.len()]);
    let board = Board { drafts, items, automata, steps: Cell::new(0) };
    let groups = board.groups();
    let mut told = board.fail_groups(&groups, report);
    let first_of_each: Vec<usize> = groups.iter().filter_map(|group| group.first().copied()).collect();
    let Some(mut pairs) = board.candidates(&first_of_each) else {
        board.give_up(report);
        return;
    };
    let mut settled = Vec::new();
    let mut clashes = Vec::new();
    // Taking `:` away only makes patterns smaller: who is apart stays apart, and whom no remedy helps now, none
    // will help later. So one round settles every pair.
    pairs.retain(|&pair| {
        if board.spent() || !board.meet_with(pair, &[], &[]) {
            return false;
        }
        let options = board.options(pair);
        if board.forbiddable(pair, &[], &[], &options).is_none() {
            for draft in board.narrowable(pair, &options).unwrap_or_default() {
                let name = board.drafts[draft].wide.take();
                board.forget(draft);
                let narrowed = name.map(|name| (draft, name));
                settled.push(Settlement { items: pair, narrowed, forbidden: None });
            }
        }
        true
    });
    let mut forbidden: HashSet<Word> = HashSet::new();
    for &pair in &pairs {
        if board.spent() {
            break;
        }
        if !board.meet_with(pair, &[], &[]) {
            continue;
        }
        let options = board.options(pair);
        let known: Vec<Word> = options.iter().filter(|word| forbidden.contains(*word)).cloned().collect();
        if !known.is_empty() && !board.meet_with(pair, &[], &known) {
            continue;
        }
        if let Some(word) = board.forbiddable(pair, &[], &known, &options) {
            let (draft, name, value) = word.clone();
            board.drafts[draft].forbidden.entry(name).or_default().push(value);
            forbidden.insert(word.clone());
            settled.push(Settlement { items: pair, narrowed: None, forbidden: Some(word) });
        } else if board.meet_with(pair, &[], &board.forbidden(pair)) {
            clashes.push(pair);
        }
    }
    board.warn(&settled, report);
    board.fail(&clashes, &mut told, report);
    if board.spent() {
        board.give_up(report);
    }
}

fn items(drafts: &[Draft]) -> Vec<Item> {
    let mut items = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        for (row_index, row) in draft.rows.iter().enumerate() {
            let mut spellings = vec![draft.single(row)];
            let cluster = draft.cluster(row);
            if cluster != spellings[0] {
                spellings.push(cluster);
            }
            items.push(Item { draft: index, row: Some(row_index), channel: None, spellings });
        }
        for (channel_index, channel) in draft.channels.iter().enumerate() {
            let spellings = vec![draft.channel(channel)];
            items.push(Item { draft: index, row: None, channel: Some(channel_index), spellings });
        }
    }
    items
}

impl Board<'_> {
    /// Items of one shape, which nothing can tell apart; most are alone.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut places: HashMap<(bool, String), usize> = HashMap::new();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, item) in self.items.iter().enumerate() {
            let place =
                *places.entry((item.row.is_some(), shape(&item.spellings[0]))).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(group) => group.push(index),
                None => groups.push(vec![index]),
            }
        }
        groups
    }

    /// Pairs that no literal in a known place tells apart; `None` when they are too many.
    fn candidates(&self, among: &[usize]) -> Option<Vec<(usize, usize)>> {
        let outlines = among.iter().flat_map(|&index| {
            let item = &self.items[index];
            let wide = |name: &str| self.class(item, name) == Class::Wide;
            let outline = move |template| (index, item.row.is_some(), Outline::new(template, &wide));
            item.spellings.iter().map(outline)
        });
        outline::agreeing(outlines.collect(), MOST_PAIRS)
    }

    fn class(&self, item: &Item, name: &str) -> Class {
        let draft = &self.drafts[item.draft];
        draft.class(item.row.map(|row| &draft.rows[row]), name)
    }

    fn spent(&self) -> bool {
        self.steps.get() > MOST_STEPS
    }

    /// Drops what is remembered of a draft that has changed.
    fn forget(&self, draft: usize) {
        // Items stand in the order of their drafts.
        let start = self.items.partition_point(|item| item.draft < draft);
        let end = self.items.partition_point(|item| item.draft <= draft);
        self.automata.borrow_mut()[start..end].fill(None);
    }

    fn automata(&self, index: usize, narrow: &[usize], words: &[Word]) -> Rc<Vec<Automaton>> {
        let item = &self.items[index];
        let plain = !narrow.contains(&item.draft) && words.iter().all(|(draft, ..)| *draft != item.draft);
        if let (true, Some(known)) = (plain, &self.automata.borrow()[index]) {
            return known.clone();
        }
        let rule = |name: &str| {
            let mut class = self.class(item, name);
            let draft = &self.drafts[item.draft];
            if narrow.contains(&item.draft) && draft.wide.as_deref() == Some(name) && class == Class::Wide {
                class = Class::Narrow;
            }
            let own = words.iter().filter(|(draft, here, _)| *draft == item.draft && here == name);
            Rule { class, forbidden: own.map(|(.., word)| word.clone()).collect() }
        };
        let built: Vec<Automaton> =
            item.spellings.iter().map(|template| Automaton::new(template, &rule)).collect();
        self.steps.set(self.steps.get() + built.iter().map(Automaton::size).sum::<usize>());
        let built = Rc::new(built);
        if plain {
            self.automata.borrow_mut()[index] = Some(built.clone());
        }
        built
    }

    /// Whether the two can spell the same key if the drafts in `narrow` lose their `:` and `words` are forbidden.
    fn meet_with(&self, (a, b): (usize, usize), narrow: &[usize], words: &[Word]) -> bool {
        let (left, right) = (self.automata(a, narrow, words), self.automata(b, narrow, words));
        left.iter().any(|x| right.iter().any(|y| x.meets(y, &self.steps)))
    }

    /// All values forbidden so far in the drafts of the two.
    fn forbidden(&self, (a, b): (usize, usize)) -> Vec<Word> {
        let drafts = BTreeSet::from([self.items[a].draft, self.items[b].draft]);
        let of = |draft: usize| {
            let names = self.drafts[draft].forbidden.iter();
            names.flat_map(move |(name, words)| words.iter().map(move |w| (draft, name.clone(), w.clone())))
        };
        drafts.into_iter().flat_map(of).collect()
    }

    /// Values whose absence might tell the two apart: the leftmost placeholder that faces a literal first.
    fn options(&self, (a, b): (usize, usize)) -> Vec<Word> {
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
        options.dedup();
        options.into_iter().map(|(_, draft, name, word)| (draft, name, word)).collect()
    }

    /// The first option that, with the words in `known`, tells the two apart.
    fn forbiddable(
        &self,
        pair: (usize, usize),
        narrow: &[usize],
        known: &[Word],
        options: &[Word],
    ) -> Option<Word> {
        options
            .iter()
            .find(|word| !self.meet_with(pair, narrow, &[known, &[(*word).clone()]].concat()))
            .cloned()
    }

    /// Drafts that must lose their `:` so that the two are apart, or can be told apart by a forbidden value.
    fn narrowable(&self, (a, b): (usize, usize), words: &[Word]) -> Option<Vec<usize>> {
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
            !self.meet_with((a, b), narrow, &[]) || self.forbiddable((a, b), narrow, &[], words).is_some()
        })
    }

    fn describe(&self, item: &Item) -> (String, String) {
        (self.drafts[item.draft].label(), item.spellings[0].text())
    }

    fn warn(&self, settled: &[Settlement], report: &Report<'_>) {
        // A value that is forbidden and a `:` that is, in the same placeholder, are one thing to know.
        let narrowed: HashSet<&(usize, String)> =
            settled.iter().filter_map(|settlement| settlement.narrowed.as_ref()).collect();
        let forbids: HashSet<(usize, &str)> = settled
            .iter()
            .filter_map(|settlement| {
                settlement.forbidden.as_ref().map(|(draft, name, _)| (*draft, name.as_str()))
            })
            .collect();
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
                (None, Some((draft, name))) if !forbids.contains(&(*draft, name.as_str())) => {
                    (*draft, name, None)
                }
                (None, _) => continue,
            };
            // Side keys repeat what the primary keys already said.
            if !told.insert((draft, name.clone(), word.cloned())) {
                continue;
            }
            let label = self.drafts[draft].label();
            let (code, what, help) = match word {
                Some(word) => {
                    let colon = if narrowed.contains(&(draft, name.clone())) {
                        ", and its values may not contain `:`"
                    } else {
                        ""
                    };
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

    fn is_side(&self, index: usize) -> bool {
        let item = &self.items[index];
        item.row.is_some_and(|row| self.drafts[item.draft].rows[row].side)
    }

    fn holds(&self, index: usize) -> Option<RedisType> {
        let item = &self.items[index];
        item.row.map(|row| self.drafts[item.draft].rows[row].holds)
    }

    /// Reports each shape that several items have, once for each type, and returns whose clash is told.
    fn fail_groups(&self, groups: &[Vec<usize>], report: &Report<'_>) -> Told {
        let mut told = Told { same: (0..self.drafts.len()).collect(), pairs: BTreeSet::new() };
        let mut groups: Vec<&Vec<usize>> = groups.iter().filter(|group| group.len() > 1).collect();
        // Documented keys first: side keys only repeat their clash.
        groups.sort_by_key(|group| (self.is_side(group[0]), group[0]));
        for group in groups {
            let first = group[0];
            let draft = self.items[first].draft;
            let mut by_type: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
            for &other in &group[1..] {
                let its = self.items[other].draft;
                if its == draft || told.same[its] != told.same[draft] {
                    by_type.entry(self.holds(other).map(|holds| holds.name())).or_default().push(other);
                    told.same[its] = told.same[draft];
                }
            }
            for others in by_type.values() {
                self.fail_pair((first, others[0]), &others[1..], report);
            }
        }
        told
    }

    fn fail(&self, clashes: &[(usize, usize)], told: &mut Told, report: &Report<'_>) {
        let mut clashes = clashes.to_vec();
        clashes.sort_by_key(|(a, b)| (self.is_side(*a) || self.is_side(*b), *b, *a));
        for (a, b) in clashes {
            let drafts = (self.items[a].draft, self.items[b].draft);
            let same = (told.same[drafts.0], told.same[drafts.1]);
            if (drafts.0 == drafts.1 || same.0 != same.1) && told.pairs.insert(same) {
                self.fail_pair((a, b), &[], report);
            }
        }
    }

    /// Reports that two can be the same key, and as many more with the second.
    fn fail_pair(&self, (first, second): (usize, usize), more: &[usize], report: &Report<'_>) {
        const NAMED: usize = 5;
        let (a, b) = (&self.items[first], &self.items[second]);
        let ((a_label, a_text), (b_label, b_text)) = (self.describe(a), self.describe(b));
        let place = report.place(self.drafts[a.draft].key_at);
        let at = self.drafts[b.draft].key_at;
        let labels: Vec<String> = more
            .iter()
            .take(NAMED)
            .map(|&index| format!("[{}]", self.drafts[self.items[index].draft].label()))
            .collect();
        let more = match more.len() {
            0 => String::new(),
            count => {
                let rest = if count > NAMED { ", …" } else { "" };
                format!("; so it is in {count} more: {}{rest}", labels.join(", "))
            }
        };
        if let (true, Some(one), Some(other)) = (
            shape(&a.spellings[0]) == shape(&b.spellings[0]) && self.holds(first) != self.holds(second),
            self.holds(first),
            self.holds(second),
        ) {
            let message =
                format!("`{b_text}` is a {other} in [{b_label}] and a {one} in [{a_label}] ({place}){more}");
            report.add(at, "two-types", message, Some("one key holds one type; choose it".to_owned()));
            return;
        }
        let side = self.is_side(first) || self.is_side(second);
        let code = if side { "side-overlap" } else { "key-overlap" };
        let what = if a.channel.is_some() { "the same channel" } else { "the same key" };
        let message =
            format!("`{b_text}` of [{b_label}] and `{a_text}` of [{a_label}] ({place}) can be {what}{more}");
        let help = if side {
            "side keys lie under the key without its time bucket; give one key another literal, as in `rl:day:{id}:{day}`"
        } else {
            "give one of them a literal of its own"
        };
        report.add(at, code, message, Some(help.to_owned()));
    }

    /// What was not compared may overlap, so the schema is refused.
    fn give_up(&self, report: &Report<'_>) {
        let at = self.drafts.first().map_or(At { source: 0, offset: 0 }, |draft| draft.key_at);
        let message = "so many patterns could spell each other's keys that they were not compared to the end";
        let help = "begin the patterns with literals of their own, as in `orders:{id}`";
        report.add(at, "key-overlap", message, Some(help.to_owned()));
    }
}

/// Whose clash has been reported.
struct Told {
    /// Drafts with the same number share a key.
    same: Vec<usize>,
    pairs: BTreeSet<(usize, usize)>,
}

/// The pattern with its placeholders' names taken out.
fn shape(template: &Template) -> String {
    let mut shape = String::new();
    for piece in template.pieces() {
        match piece {
            Piece::Text(text) => shape.push_str(text),
            // No text has control characters.
            Piece::Name(_) => shape.push('\0'),
            Piece::Bucket(unit) => {
                shape.push('\u{1}');
                shape.push_str(unit.name());
            }
        }
    }
    shape
}
