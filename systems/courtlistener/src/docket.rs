//! A docket's id, from wherever it comes.

use std::fmt;

use serde_json::Value;

/// The longest id.
const LONGEST: usize = 64;

/// The id of a docket: letters, digits, `-` and `_`, so that it is one segment of a URL and one name of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Docket(String);

impl Docket {
    /// An id, or what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        match text {
            "" => Err("an empty id".to_owned()),
            _ if text.len() > LONGEST => Err(format!("longer than {LONGEST} bytes")),
            _ if text.bytes().all(fine) => Ok(Self(text.to_owned())),
            _ => Err(format!("{text:?} is no docket id: letters, digits, `-` and `_`")),
        }
    }

    /// The id in a job: `"12345"` or `12345`, as other programs push it.
    pub(crate) fn of_job(payload: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice(payload) {
            Ok(Value::String(id)) => Self::parse(&id),
            Ok(Value::Number(id)) if id.is_u64() => Self::parse(&id.to_string()),
            Ok(other) => Err(format!("a job is a docket id, not {}", excerpt(&other.to_string()))),
            Err(error) => Err(format!("a job is a docket id, and this is no JSON: {error}")),
        }
    }

    /// The job of this docket.
    pub(crate) fn job(&self) -> String {
        // Nothing in it needs escaping.
        format!("\"{}\"", self.0)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Docket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(40).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_segment_of_a_url() {
        for id in ["12345", "scotus-21_476", "A"] {
            assert_eq!(Docket::parse(id).map(|docket| docket.to_string()), Ok(id.to_owned()));
        }
        let long = "1".repeat(65);
        for id in ["", "1 2", "../etc", "1/2", "ü", "1?x", "a.b", long.as_str()] {
            assert!(Docket::parse(id).is_err(), "{id}");
        }
    }

    #[test]
    fn a_job_is_an_id_as_text_or_number() {
        assert_eq!(Docket::of_job(b"\"12345\""), Docket::parse("12345"));
        assert_eq!(Docket::of_job(b" 12345 "), Docket::parse("12345"));
        assert_eq!(
            Docket::parse("12345").map(|docket| docket.job()).and_then(|job| Docket::of_job(job.as_bytes())),
            Docket::parse("12345")
        );
        for job in ["", "1.5", "-1", "[1]", "{\"id\":1}", "null", "\"a b\"", "12 34"] {
            assert!(Docket::of_job(job.as_bytes()).is_err(), "{job}");
        }
    }
}
