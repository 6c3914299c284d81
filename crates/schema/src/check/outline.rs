//! Which patterns are worth comparing: most are told apart by a literal in a known place.
//!
//! Braces stand in no value, so two spellings meet only if they have the same braces, and then between each two of
//! them. There, segments can be counted from the left and from the right as far as the value that may contain `:`.

use std::collections::HashMap;

use crate::pattern::{Piece, Template};

/// Ends a mark that is the whole of a segment, so that it begins no other.
const WHOLE: char = '\0';
/// Pairs are looked up by one of so many marks; the others only confirm.
const LOOKED_UP: usize = 33;

/// What every key of a spelling has in known places.
pub(super) struct Outline {
    braces: String,
    /// By part between braces. Where two spellings meet, of each two marks one begins the other; what is missing
    /// is empty and begins all.
    marks: Vec<Vec<Mark>>,
}

/// A text with its first eight bytes at hand: outlines are compared by the million, and mostly differ there.
struct Mark {
    text: String,
    first: u64,
}

impl Mark {
    fn new(text: String) -> Self {
        let mut first = [0; 8];
        first.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte);
        Self { first: u64::from_be_bytes(first), text }
    }

    /// Whether one begins the other.
    fn agrees(&self, other: &Mark) -> bool {
        let common = self.text.len().min(other.text.len());
        if common == 0 {
            return true;
        }
        let unlike = (self.first ^ other.first).leading_zeros() as usize / 8 < common.min(8);
        !unlike && (common <= 8 || self.text.as_bytes()[..common] == other.text.as_bytes()[..common])
    }
}

#[derive(Default)]
struct Segment {
    before: String,
    /// What follows its last value; `None` while it has no value.
    after: Option<String>,
    wide: bool,
}

impl Segment {
    fn left_mark(&self) -> String {
        let mut mark = self.before.clone();
        mark.extend(self.after.is_none().then_some(WHOLE));
        mark
    }

    fn right_mark(&self) -> String {
        let mut mark: String = self.after.as_ref().unwrap_or(&self.before).chars().rev().collect();
        mark.extend(self.after.is_none().then_some(WHOLE));
        mark
    }
}

impl Outline {
    /// `wide` tells which placeholders may contain `:`.
    pub(super) fn new(template: &Template, wide: &dyn Fn(&str) -> bool) -> Self {
        let mut braces = String::new();
        let mut parts = vec![vec![Segment::default()]];
        let mut segment = Segment::default();
        let value = |segment: &mut Segment, wide: bool| {
            segment.after = Some(String::new());
            segment.wide |= wide;
        };
        for piece in template.pieces() {
            let text = match piece {
                Piece::Text(text) => text,
                Piece::Name(name) => {
                    value(&mut segment, wide(name));
                    continue;
                }
                Piece::Bucket(_) => {
                    value(&mut segment, false);
                    continue;
                }
            };
            for c in text.chars() {
                match c {
                    '{' | '}' => {
                        end(&mut parts, &mut segment);
                        braces.push(c);
                        parts.push(vec![Segment::default()]);
                    }
                    ':' => {
                        end(&mut parts, &mut segment);
                        if let Some(part) = parts.last_mut() {
                            part.push(Segment::default());
                        }
                    }
                    _ => segment.after.as_mut().unwrap_or(&mut segment.before).push(c),
                }
            }
        }
        end(&mut parts, &mut segment);
        Self { braces, marks: parts.iter().map(|part| marks(part)).collect() }
    }

    fn mark(&self, part: usize, index: usize) -> &str {
        self.marks[part].get(index).map_or("", |mark| mark.text.as_str())
    }

    /// Whether nothing here tells the two apart.
    fn agrees(&self, other: &Outline) -> bool {
        let mut parts = self.marks.iter().zip(&other.marks);
        parts.all(|(own, other)| own.iter().zip(other).all(|(a, b)| a.agrees(b)))
    }
}

fn end(parts: &mut [Vec<Segment>], segment: &mut Segment) {
    if let Some(last) = parts.last_mut().and_then(|part| part.last_mut()) {
        *last = std::mem::take(segment);
    }
}

/// How many segments there are, then the segments from the left and from the right in turns.
fn marks(part: &[Segment]) -> Vec<Mark> {
    let open = part.iter().any(|segment| segment.wide);
    let mut marks = vec![if open { String::new() } else { format!("{}{WHOLE}", part.len()) }];
    let (mut left, mut right) = (true, true);
    for (a, b) in part.iter().zip(part.iter().rev()) {
        marks.push(if left { a.left_mark() } else { String::new() });
        marks.push(if right { b.right_mark() } else { String::new() });
        left &= !a.wide;
        right &= !b.wide;
        if !left && !right {
            break;
        }
    }
    marks.into_iter().map(Mark::new).collect()
}

/// The pairs of owners whose outlines agree, each once and the smaller first; `None` when there are more than
/// `most`.
pub(super) fn agreeing(outlines: Vec<(usize, bool, Outline)>, most: usize) -> Option<Vec<(usize, usize)>> {
    let mut groups: HashMap<(bool, String), Vec<(usize, Outline)>> = HashMap::new();
    for (owner, space, outline) in outlines {
        groups.entry((space, outline.braces.clone())).or_default().push((owner, outline));
    }
    let mut pairs = Vec::new();
    for group in groups.values() {
        let parts = group.first().map_or(0, |(_, outline)| outline.marks.len());
        let places = (0..parts).flat_map(|part| {
            let most = group.iter().map(|(_, outline)| outline.marks[part].len()).max().unwrap_or(0);
            (0..most.min(LOOKED_UP)).map(move |index| (part, index))
        });
        let looked_up = places.map(|(part, index)| {
            let order = sorted(group, part, index);
            let mut count = 0;
            sweep(group, &order, part, index, &mut |before, _| {
                count += before.len();
                true
            });
            (count, part, index, order)
        });
        let Some((_, part, index, order)) = looked_up.min_by_key(|(count, ..)| *count) else { continue };
        let finished = sweep(group, &order, part, index, &mut |before, this| {
            let (owner, outline) = &group[this];
            for (other, agrees) in before.iter().map(|&at| (group[at].0, group[at].1.agrees(outline))) {
                if agrees && other != *owner {
                    pairs.push((other.min(*owner), other.max(*owner)));
                }
            }
            pairs.len() <= 4 * most
        });
        if !finished {
            return None;
        }
    }
    pairs.sort_unstable_by_key(|(a, b)| (*b, *a));
    pairs.dedup();
    (pairs.len() <= most).then_some(pairs)
}

fn sorted(group: &[(usize, Outline)], part: usize, index: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..group.len()).collect();
    order.sort_by_key(|&at| group[at].1.mark(part, index));
    order
}

/// Visits each outline with those before it in `order` whose mark begins its own, until `visit` has enough.
fn sweep(
    group: &[(usize, Outline)],
    order: &[usize],
    part: usize,
    index: usize,
    visit: &mut dyn FnMut(&[usize], usize) -> bool,
) -> bool {
    let mut before: Vec<usize> = Vec::new();
    for &this in order {
        let mark = group[this].1.mark(part, index);
        while before.last().is_some_and(|&last| !mark.starts_with(group[last].1.mark(part, index))) {
            before.pop();
        }
        if !visit(&before, this) {
            return false;
        }
        before.push(this);
    }
    true
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::pattern::Class;
    use crate::pattern::automaton::{Automaton, Rule};

    fn outline(text: &str) -> Outline {
        Outline::new(&Template::parse(text).unwrap(), &|name| name.starts_with('w'))
    }

    fn agree(a: &str, b: &str) -> bool {
        let pairs = agreeing(vec![(0, true, outline(a)), (1, true, outline(b))], 9).unwrap();
        assert_eq!(outline(a).agrees(&outline(b)), !pairs.is_empty());
        !pairs.is_empty()
    }

    #[test]
    fn literals_in_known_places_tell_patterns_apart() {
        assert!(!agree("a:{x}", "b:{x}"));
        assert!(!agree("a:{w}:n1", "a:{w}:n11"));
        assert!(!agree("a:{x}:n1:{w}", "a:{x}:n2:{w}"));
        assert!(!agree("a:{x}", "a:{x}:{y}"));
        assert!(!agree("ab{x}", "ac{x}"));
        assert!(!agree("{x}ab", "{x}cb"));
        assert!(!agree("a", "ab"));
    }

    #[test]
    fn marks_agree_if_one_begins_the_other() {
        let texts =
            ["", "a", "ab", "b", "abcdefgh", "abcdefgi", "abcdefghi", "abcdefghj", "abcdefghijk", "ä"];
        for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
            let agree = Mark::new((*a).to_owned()).agrees(&Mark::new((*b).to_owned()));
            assert_eq!(agree, a.starts_with(b) || b.starts_with(a), "{a} {b}");
        }
    }

    #[test]
    fn what_could_be_one_key_is_not_told_apart() {
        assert!(agree("a:{x}", "a:b"));
        assert!(agree("{w}", "a:b:c"));
        assert!(agree("a:{w}:c", "a:{x}:c:c"));
        assert!(agree("a:{w}", "a:{w2}:n1"));
        assert!(agree("ab{x}", "a{x}"));
        assert!(agree("{x}:{minute}", "{x}:{y}"));
        assert!(agree("n1:{w}", "{w}:n1"));
    }

    #[test]
    fn many_patterns_are_looked_up_and_too_many_are_refused() {
        let all = |keys: Vec<String>, most: usize| {
            let outlines = keys.iter().enumerate().map(|(n, key)| (n, true, outline(key))).collect();
            agreeing(outlines, most)
        };
        let tails = (0..5000).map(|n| format!("rl:{{w}}:n{n}")).collect();
        assert_eq!(all(tails, 10), Some(vec![]));
        let one = (0..5000).map(|n| format!("rl:n{n}:{{x}}")).chain(["rl:{x}:{w}".to_owned()]).collect();
        assert_eq!(all(one, 5000).map(|pairs| pairs.len()), Some(5000));
        let each = (0..5000).map(|n| format!("{}{{w}}", "x".repeat(n % 500))).collect();
        assert_eq!(all(each, 1000), None);
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, cases: 4000, ..Default::default() })]

        #[test]
        fn no_two_patterns_that_meet_are_told_apart(a in pattern(), b in pattern()) {
            let rule = |name: &str| Rule {
                class: if name.starts_with('w') { Class::Wide } else { Class::Narrow },
                forbidden: Vec::new(),
            };
            let outline = |t: &Template| Outline::new(t, &|name| name.starts_with('w'));
            let automaton = |t: &Template| Automaton::new(t, &rule);
            let meet = automaton(&a).meets(&automaton(&b), &Cell::new(0));
            let (left, right) = (outline(&a), outline(&b));
            let agree = left.braces == right.braces && left.agrees(&right);
            proptest::prop_assert!(agree || !meet, "{} {}", a.text(), b.text());
        }
    }

    /// Few words, so that many pairs meet; at most one value that may contain `:` between two braces.
    fn pattern() -> impl Strategy<Value = Template> {
        let word =
            prop::sample::select(vec!["a", "ab", "", "{x}", "{w}", "a{x}", "{x}b", "{w}b", "{day}", "2"]);
        let part = prop::collection::vec(word, 1..5).prop_map(|words| words.join(":"));
        (part.clone(), part, any::<bool>()).prop_filter_map("not a pattern", |(first, second, side)| {
            let first = Template::parse(&first).ok()?;
            if !side {
                return Some(first);
            }
            let mut template = first.braced();
            template.push_text(":");
            template.push(&Template::parse(&second).ok()?);
            Some(template)
        })
    }
}
