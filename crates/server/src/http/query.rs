//! Query strings and percent-encoding: strict, and every refusal names the parameter.

use std::borrow::Cow;

use quaymaster::Code;

use super::json::KeyValues;
use super::problem::{Problem, excerpt, unknown};

/// Parameters of a call that takes placeholders as `key.<placeholder>=value` and nothing else.
pub(crate) fn key_values(query: &str) -> Result<KeyValues<'_>, Problem> {
    let mut values = KeyValues::new();
    for pair in parameters(query) {
        let (name, value) = pair?;
        let placeholder = match name {
            Cow::Borrowed(name) => name.strip_prefix("key.").map(Cow::Borrowed),
            Cow::Owned(ref name) => name.strip_prefix("key.").map(|rest| Cow::Owned(rest.to_owned())),
        };
        let Some(placeholder) = placeholder else {
            let detail = match name.as_ref() {
                "key" => "key takes its placeholders one by one: key.<placeholder>=value".to_owned(),
                other => {
                    format!("parameter {} is unknown; there are key.<placeholder>=value", excerpt(other))
                }
            };
            return Err(Problem::new(Code::RequestField, detail).field(shown(&name)));
        };
        if values.iter().any(|(known, _)| *known == placeholder) {
            return Err(twice(&name));
        }
        values.push((placeholder, value));
    }
    Ok(values)
}

/// Exactly the parameters `names`, in that order.
pub(crate) fn named<'a, const N: usize>(
    query: &'a str,
    names: [&'static str; N],
) -> Result<[Option<Cow<'a, str>>; N], Problem> {
    let mut found = [const { None }; N];
    for pair in parameters(query) {
        let (name, value) = pair?;
        let Some(at) = names.iter().position(|known| *known == name) else {
            let detail = unknown("parameter", &name, &names);
            return Err(Problem::new(Code::RequestField, detail).field(shown(&name)));
        };
        if found[at].replace(value).is_some() {
            return Err(twice(&name));
        }
    }
    Ok(found)
}

/// Refuses a query on a call that has no parameters.
pub(crate) fn none(query: &str) -> Result<(), Problem> {
    named(query, []).map(|[]| ())
}

fn twice(name: &str) -> Problem {
    Problem::new(Code::RequestInvalid, format!("parameter {} is given twice", excerpt(name)))
        .field(shown(name))
}

fn shown(name: &str) -> String {
    excerpt(name).trim_matches('"').to_owned()
}

fn parameters(query: &str) -> impl Iterator<Item = Result<(Cow<'_, str>, Cow<'_, str>), Problem>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let field = |problem: Problem| problem.field(shown(name));
        let name = decode(name, Plus::Space).map_err(|why| {
            field(Problem::new(
                Code::RequestInvalid,
                format!("the name of parameter {} {why}", excerpt(name)),
            ))
        })?;
        let value = decode(value, Plus::Space).map_err(|why| {
            field(Problem::new(Code::RequestInvalid, format!("parameter {} {why}", excerpt(&name))))
        })?;
        Ok((name, value))
    })
}

/// What a plus sign means: a space in a query, itself in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plus {
    Space,
    Itself,
}

/// Undoes percent-encoding; the error says what is wrong, to follow the name of the thing.
pub(crate) fn decode(text: &str, plus: Plus) -> Result<Cow<'_, str>, String> {
    let encoded = |byte: &u8| *byte == b'%' || (*byte == b'+' && plus == Plus::Space);
    let Some(first) = text.as_bytes().iter().position(encoded) else { return Ok(Cow::Borrowed(text)) };
    let bytes = text.as_bytes();
    let mut out = bytes[..first].to_vec();
    let mut at = first;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'%' => {
                let digit =
                    |offset: usize| bytes.get(at + offset).and_then(|byte| char::from(*byte).to_digit(16));
                let (Some(high), Some(low)) = (digit(1), digit(2)) else {
                    return Err(format!(
                        "has a % at byte {at} that is not followed by two hexadecimal digits"
                    ));
                };
                out.push((high * 16 + low) as u8);
                at += 3;
                continue;
            }
            b'+' if plus == Plus::Space => out.push(b' '),
            byte => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8(out).map(Cow::Owned).map_err(|_| "is not UTF-8 once decoded".into())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn placeholders_are_decoded_and_keep_their_order() {
        let values = key_values("key.a=x%20y&key.b=1+2&key.c=%2B").unwrap();
        let values: Vec<_> = values.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
        assert_eq!(values, [("a", "x y"), ("b", "1 2"), ("c", "+")]);
    }

    #[test]
    fn bad_encodings_name_their_parameter() {
        for (query, field) in [
            ("key.a=%zz", "key.a"),
            ("key.a=%f", "key.a"),
            ("key.a=%ff", "key.a"),
            ("key.a=1&key.a=2", "key.a"),
            ("other=1", "other"),
            ("key=1", "key"),
        ] {
            let problem = key_values(query).unwrap_err();
            assert_eq!(problem.field.as_deref(), Some(field), "{query}");
            assert_eq!(problem.code.http_status(), 400);
        }
    }

    #[test]
    fn a_call_without_parameters_takes_none() {
        assert!(none("").is_ok());
        assert_eq!(none("x=1").unwrap_err().code, Code::RequestField);
    }
}
