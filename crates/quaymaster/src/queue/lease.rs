//! A lease on a job: which job, which attempt, and the token that proves it.

use std::fmt;
use std::sync::Arc;

use crate::{Code, Error, Result, Token};

/// The longest lease a caller may hand in.
const MAX_BYTES: usize = 96;

/// What proves that a job is ours: `<job>.<attempt>.<token>`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    id: u64,
    attempt: u32,
    token: Arc<str>,
}

impl Lease {
    pub(super) fn new(id: u64, attempt: u32, token: Arc<str>) -> Self {
        Self { id, attempt, token }
    }

    /// A lease handed in by a caller; refused when none of ours could look like it.
    pub fn parse(op: &'static str, text: &str) -> Result<Self> {
        let parsed = || {
            let mut parts = text.splitn(3, '.');
            let id = number(parts.next()?, 16)?;
            let attempt = u32::try_from(number(parts.next()?, 9)?).ok()?;
            let token = parts.next()?;
            let fine = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
            let sound =
                text.len() <= MAX_BYTES && !token.is_empty() && token.bytes().all(fine) && token != "-";
            sound.then(|| Self { id, attempt, token: token.into() })
        };
        parsed().ok_or_else(|| {
            let detail = "lease: none of ours looks like this; give it back as the claim gave it";
            Error::new(op, Code::RequestInvalid, detail).field("lease")
        })
    }

    /// The job's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The attempt it was given for.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    pub(super) fn token(&self) -> &Arc<str> {
        &self.token
    }

    /// How the record of a job begins that this lease holds.
    pub(super) fn prefix(&self) -> String {
        format!("{} {} ", self.token, self.attempt)
    }
}

fn number(text: &str, most: usize) -> Option<u64> {
    let sound = !text.is_empty() && text.len() <= most && text.bytes().all(|c| c.is_ascii_digit());
    // One spelling per lease, so that two that differ are two.
    let plain = text.len() == 1 || !text.starts_with('0');
    (sound && plain).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.id, self.attempt, self.token)
    }
}

impl fmt::Debug for Lease {
    /// Enough to tell two apart in a log, not enough to use it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.token.chars().take(4).collect();
        write!(f, "Lease({}.{}.{shown}…)", self.id, self.attempt)
    }
}

/// The token of one claim, shared by its leases.
pub(super) fn token(name: &str, request_id: Option<&str>) -> Arc<str> {
    let token = match request_id {
        None => Token::random(),
        Some(id) => Token::derived(&[b"queue", name.as_bytes(), id.as_bytes()]),
    };
    token.as_str().into()
}
