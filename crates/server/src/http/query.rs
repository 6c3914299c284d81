//! Query strings and percent-encoding: strict, and every refusal names the parameter.

use std::borrow::Cow;

use quaymaster::Code;

use super::problem::{Problem, excerpt, unknown};

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

pub(crate) fn twice(name: &str) -> Problem {
    Problem::new(Code::RequestInvalid, format!("parameter {} is given twice", excerpt(name)))
        .field(shown(name))
}

pub(crate) fn shown(name: &str) -> String {
    excerpt(name).trim_matches('"').to_owned()
}

pub(crate) fn parameters(query: &str) -> impl Iterator<Item = Result<(Cow<'_, str>, Cow<'_, str>), Problem>> {
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
    fn a_call_without_parameters_takes_none() {
        assert!(none("").is_ok());
        assert_eq!(none("x=1").unwrap_err().code, Code::RequestField);
    }
}
