//! From a key back to its values.

use super::value::{Class, Placeholder, admits};
use super::{Bucket, Parsed, Part, bucket};

/// Longer keys are nobody's that this schema could have made.
const LONGEST_KEY: usize = 16 * 1024;

pub(super) fn parse(parts: &[Part], placeholders: &[Placeholder], key: &[u8]) -> Option<Parsed> {
    if key.len() > LONGEST_KEY {
        return None;
    }
    let mut search = Search { placeholders, key, found: vec![None; placeholders.len()], bucket: None };
    if !search.from(parts, 0) {
        return None;
    }
    let mut values = Vec::with_capacity(placeholders.len());
    for (placeholder, range) in placeholders.iter().zip(&search.found) {
        let (start, end) = (*range)?;
        let value = std::str::from_utf8(&key[start..end]).ok()?;
        placeholder.check(value).ok()?;
        values.push((placeholder.name.clone(), value.to_owned()));
    }
    Some(Parsed { values, bucket: search.bucket })
}

struct Search<'a> {
    placeholders: &'a [Placeholder],
    key: &'a [u8],
    found: Vec<Option<(usize, usize)>>,
    bucket: Option<Bucket>,
}

impl Search<'_> {
    /// Whether `parts` spell the rest of the key. Within braces, and outside them, at most one value may contain
    /// the separator, so at most one split fits and the first one found is it.
    fn from(&mut self, parts: &[Part], at: usize) -> bool {
        let Some((part, rest)) = parts.split_first() else {
            return at == self.key.len();
        };
        match part {
            Part::Text(text) => {
                self.key[at..].starts_with(text.as_bytes()) && self.from(rest, at + text.len())
            }
            Part::Bucket(unit) => {
                let end = at + unit.format().len();
                let Some(bucket) = self.key.get(at..end).and_then(|text| bucket::parse(*unit, text)) else {
                    return false;
                };
                self.bucket = Some(bucket);
                self.from(rest, end)
            }
            Part::Value(index) => self.value(*index, rest, at),
        }
    }

    fn value(&mut self, index: usize, rest: &[Part], at: usize) -> bool {
        let Some(placeholder) = self.placeholders.get(index) else {
            return false;
        };
        if let Some((start, end)) = self.found[index] {
            // The same value again, as in `{tag}:key`.
            let known = &self.key[start..end];
            return self.key[at..].starts_with(known) && self.from(rest, at + (end - start));
        }
        let run = self.key[at..].iter().take_while(|byte| admits(placeholder.class, **byte)).count();
        let first = if placeholder.class == Class::Digits { run } else { 1 };
        for length in (first.max(1)..=run).rev() {
            let end = at + length;
            let fits = match rest.first() {
                None => end == self.key.len(),
                Some(Part::Text(text)) => self.key[end..].starts_with(text.as_bytes()),
                Some(_) => true,
            };
            if fits {
                self.found[index] = Some((at, end));
                if self.from(rest, end) {
                    return true;
                }
                self.found[index] = None;
            }
        }
        false
    }
}
