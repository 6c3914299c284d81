//! The files that AWS tools share: sections of `key = value`.

use std::collections::BTreeMap;

/// A section's keys, in small letters, and their values; of a key that is there twice, the last one.
pub(super) type Section<'a> = BTreeMap<String, &'a str>;

/// The section that `is_wanted` knows by its name; of several, all together. Whatever is no `key = value` is passed
/// over: other tools write what they like into these files.
pub(super) fn section<'a>(text: &'a str, is_wanted: impl Fn(&str) -> bool) -> Option<Section<'a>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut found, mut is_in_it) = (None::<Section<'a>>, false);
    // How far the last key is from the margin.
    let mut margin = None;
    for line in text.lines() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        // Belongs to the value above it, as settings do under `s3 =`: a key in there is none of the section's.
        if margin.is_some_and(|margin| indent > margin) {
            continue;
        }
        if let Some(rest) = content.strip_prefix('[') {
            // One without its end is nobody's: its keys must not become those of the section before it.
            is_in_it = rest.split_once(']').is_some_and(|(name, _)| is_wanted(name.trim()));
            margin = None;
            if is_in_it {
                found.get_or_insert_default();
            }
            continue;
        }
        margin = Some(indent);
        if let (true, Some(section), Some((key, value))) = (is_in_it, &mut found, content.split_once('=')) {
            section.insert(key.trim().to_ascii_lowercase(), without_comment(value.trim()));
        }
    }
    found
}

/// A comment on the line of a value has a space before it: secrets may have a `#` in them.
fn without_comment(value: &str) -> &str {
    let mut before = None;
    for (at, letter) in value.char_indices() {
        if matches!(letter, '#' | ';') && before.is_none_or(char::is_whitespace) {
            return value[..at].trim_end();
        }
        before = Some(letter);
    }
    value
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn of(text: &str, name: &str) -> Option<Vec<(String, String)>> {
        let owned = |(key, value): (String, &str)| (key, value.to_owned());
        section(text, |found| found == name).map(|found| found.into_iter().map(owned).collect())
    }

    /// What a section is expected to have.
    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_section_has_its_own_keys_and_no_others() {
        let text = "stray = 0\n[one]\na = 1\n[two]\na=2\n[ three ]\n\n[two]\nb = 3\n";
        assert_eq!(of(text, "one").unwrap(), pairs(&[("a", "1")]));
        assert_eq!(of(text, "two").unwrap(), pairs(&[("a", "2"), ("b", "3")]), "both of them");
        assert_eq!(of(text, "three").unwrap(), pairs(&[]));
        assert_eq!(of(text, "four"), None);
        assert_eq!(of(text, ""), None, "what stands before all sections is in none");
    }

    #[test]
    fn spaces_comments_and_line_ends_of_other_systems_do_no_harm() {
        let text = "\u{feff}# first\r\n  ; second\r\n[x] # third\r\nA  =  1 \t# one\r\nb=2;2#2\r\nc = =3=\r\nd =\r\n\
                    e = # nothing\r\nA = 4";
        let wanted = [("a", "4"), ("b", "2;2#2"), ("c", "=3="), ("d", ""), ("e", "")];
        assert_eq!(of(text, "x").unwrap(), pairs(&wanted));
    }

    #[test]
    fn what_is_nested_in_a_value_is_not_the_sections() {
        let text = "[x]\na = 1\ns3 =\n  a = 2\n\n  # still in it\n\tb = 3\n  [y]\nc = 4\n";
        assert_eq!(of(text, "x").unwrap(), pairs(&[("a", "1"), ("c", "4"), ("s3", "")]));
        assert_eq!(of(text, "y"), None);
        let indented = "[x]\n  a = 1\n  b = 2\n    c = 3\n  d = 4\n[y]\n  a = 5\n";
        assert_eq!(of(indented, "x").unwrap(), pairs(&[("a", "1"), ("b", "2"), ("d", "4")]));
        assert_eq!(of(indented, "y").unwrap(), pairs(&[("a", "5")]));
    }

    #[test]
    fn a_section_whose_name_is_torn_gives_its_keys_to_nobody() {
        assert_eq!(of("[x]\na = 1\n[other\na = 2\n", "x").unwrap(), pairs(&[("a", "1")]));
        assert_eq!(of("[x\na = 1\n", "x"), None);
    }

    #[test]
    fn hostile_text_is_read_to_its_end() {
        for text in [
            "",
            "[",
            "]",
            "[]",
            "=",
            "[]\n=\n==",
            "\u{feff}",
            "\0",
            "[x]\n=v\n= =\n\u{85}\u{a0}k\u{3000}=v",
            "[x",
        ] {
            let _ = of(text, "x");
        }
        assert_eq!(of("[]\na = 1", "").unwrap(), pairs(&[("a", "1")]));
        assert_eq!(of("[ü]\nä = ö # ß", "ü").unwrap(), pairs(&[("ä", "ö")]));
        let mut text = "[x]\n".to_owned();
        while text.len() < 1 << 20 {
            text.push_str("k\u{e9}y = [v]\n[z]\n#\n[x]\n");
        }
        assert_eq!(of(&text, "x").unwrap(), pairs(&[("k\u{e9}y", "[v]")]));
        // Every beginning of a file may be all that was written of it yet.
        let whole = "\u{feff}[a]\nk = é # c\r\n[x]\n  k = v\n";
        for (cut, _) in whole.char_indices() {
            let _ = of(&whole[..cut], "x");
        }
    }
}
