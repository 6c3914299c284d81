//! `Content-Disposition` with the name that a client gave: a download, never anything else, whatever the name says.

use std::fmt::Write as _;

/// The most bytes of a name: what file systems take.
const NAME_MAX: usize = 255;

/// `attachment`, and under which name (RFC 6266): as it is for those who know `filename*`, and for others in letters that
/// mean the same everywhere.
pub(super) fn disposition(name: &str) -> String {
    let name = plain(name);
    if matches!(name.as_str(), "" | "." | "..") {
        return "attachment".to_owned();
    }
    let simple = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '_' | '-' | '(' | ')');
    let fallback: String = name.chars().map(|c| if simple(c) { c } else { '_' }).collect();
    let mut shown = format!("attachment; filename=\"{fallback}\"");
    if fallback != name {
        shown.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            // `attr-char` of RFC 8187.
            if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
                shown.push(char::from(byte));
            } else {
                // Writing into a string cannot fail.
                let _ = write!(shown, "%{byte:02X}");
            }
        }
    }
    shown
}

/// The last part of the name, without what is not seen or turns what is read around: `exe.fdp` must not look like a
/// `pdf`. Too long a name keeps its end, where its kind is told.
fn plain(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let seen: String = last.chars().map(|c| if c.is_control() || turns(c) { '_' } else { c }).collect();
    let least = seen.len().saturating_sub(NAME_MAX);
    let cut = (least..=seen.len()).find(|at| seen.is_char_boundary(*at)).unwrap_or(seen.len());
    seen[cut..].to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_name_is_told_in_both_spellings_and_only_where_they_differ() {
        for (name, wanted) in [
            ("report (2).pdf", "attachment; filename=\"report (2).pdf\""),
            ("naïve.txt", "attachment; filename=\"na_ve.txt\"; filename*=UTF-8''na%C3%AFve.txt"),
            ("100%.txt", "attachment; filename=\"100_.txt\"; filename*=UTF-8''100%25.txt"),
            ("a/b\\c.txt", "attachment; filename=\"c.txt\""),
            ("../..", "attachment"),
            ("", "attachment"),
            ("folder/", "attachment"),
        ] {
            assert_eq!(disposition(name), wanted, "{name}");
        }
    }

    #[test]
    fn no_name_ends_the_header_or_looks_like_another() {
        let hostile = "a\"; filename=evil.exe\r\nset-cookie: x=y\0\u{202e}fdp.exe";
        let shown = disposition(hostile);
        assert_eq!(
            shown,
            "attachment; filename=\"a__ filename_evil.exe__set-cookie_ x_y__fdp.exe\"; \
             filename*=UTF-8''a%22%3B%20filename%3Devil.exe__set-cookie%3A%20x%3Dy__fdp.exe"
        );
        for code in (0..=0x2_0000).filter_map(char::from_u32) {
            let shown = disposition(&format!("a{code}b"));
            assert!(HeaderValue::from_str(&shown).unwrap().to_str().is_ok(), "{shown}");
            assert!(shown.matches('"').count() == 2 || shown == "attachment", "{shown}");
        }
    }

    #[test]
    fn a_name_that_is_too_long_keeps_its_end() {
        let shown = disposition(&format!("{}.pdf", "ü".repeat(40_000)));
        assert!(shown.ends_with("%C3%BC.pdf") && shown.len() < 1200, "{}", shown.len());
    }
}
