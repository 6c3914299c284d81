//! The `Idempotency-Key` header: a quoted string (as the IETF draft has it) or the bare value.

use http::HeaderMap;

use super::KEY;

/// The key; `None` without the header; an error says what is wrong with it.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err("Idempotency-Key is given twice");
    }
    let Ok(text) = value.to_str() else {
        return Err("Idempotency-Key holds something other than visible ASCII");
    };
    let text = text.trim();
    let bare = match text.strip_prefix('"') {
        Some(quoted) => {
            unquote(quoted).ok_or("Idempotency-Key opens a quote and does not close it as it should")?
        }
        None => text.to_owned(),
    };
    if bare.is_empty() {
        return Err("Idempotency-Key is empty");
    }
    Ok(Some(bare))
}

/// What stands before the closing quote, which must be the last character.
fn unquote(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => return rest.as_str().is_empty().then_some(out),
            '\\' => out.push(rest.next().filter(|c| matches!(c, '"' | '\\'))?),
            c => out.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    fn of(values: &[&str]) -> Result<Option<String>, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(KEY, value.parse().unwrap());
        }
        key(&headers)
    }

    #[test]
    fn a_quoted_key_is_the_same_as_a_bare_one() {
        assert_eq!(of(&["abc-1"]).unwrap().as_deref(), Some("abc-1"));
        assert_eq!(of(&[" \"abc-1\" "]).unwrap().as_deref(), Some("abc-1"));
        assert_eq!(of(&[r#""a\"b\\c""#]).unwrap().as_deref(), Some(r#"a"b\c"#));
        assert_eq!(of(&[]).unwrap(), None);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for values in [&[""][..], &["\"\""], &["\"abc"], &["\"a\"b\""], &[r#""a\x""#], &["a", "b"], &["é"]] {
            assert!(of(values).is_err(), "{values:?}");
        }
    }
}
