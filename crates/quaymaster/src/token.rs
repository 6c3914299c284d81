//! Tokens: who holds a lease, unguessable and never used twice.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{Code, Error, Result};

/// What tokens given out by a policy begin with; no owner's name does.
pub(crate) const AWAY: &str = "away~";

/// Longest token a caller may hand in.
const MAX_BYTES: usize = 192;

/// What proves that a lease is ours. Scripts compare it; a stale holder's is not found any more.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(String);

impl Token {
    /// A fresh token: 22 characters, 128 bits.
    pub(crate) fn random() -> Self {
        Self(URL_SAFE_NO_PAD.encode(random()))
    }

    /// The token every repetition of the same call derives: a repeated call is recognised by its lease.
    pub(crate) fn derived(parts: &[&[u8]]) -> Self {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        Self(URL_SAFE_NO_PAD.encode(&context.finish().as_ref()[..16]))
    }

    /// A token handed in by a caller; refused when none of ours could look like it.
    pub fn parse(op: &'static str, text: &str) -> Result<Self> {
        let fine = |c: u8| c.is_ascii_graphic();
        if text.is_empty() || text.len() > MAX_BYTES || !text.bytes().all(fine) {
            let detail =
                format!("token: 1 to {MAX_BYTES} visible ASCII characters, as the lease's call gave it");
            return Err(Error::new(op, Code::RequestInvalid, detail));
        }
        Ok(Self(text.to_owned()))
    }

    /// The same, given out by a policy while the store could not be asked, with the fence that went with it.
    pub(crate) fn away(&self, fence: u64) -> Self {
        Self(format!("{AWAY}{fence:x}~{}", self.in_store()))
    }

    /// The fence of a token that a policy gave out.
    pub(crate) fn away_fence(&self) -> Option<u64> {
        let (fence, _) = self.0.strip_prefix(AWAY)?.split_once('~')?;
        u64::from_str_radix(fence, 16).ok()
    }

    /// The token as the store knows it, if it knows it: the call that a policy answered may have run.
    pub(crate) fn in_store(&self) -> &str {
        match self.away_fence() {
            Some(_) => self.0.splitn(3, '~').nth(2).unwrap_or(&self.0),
            None => &self.0,
        }
    }

    /// The text of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    /// Enough to tell two apart in a log, not enough to use it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.chars().take(4).collect();
        write!(f, "Token({shown}…)")
    }
}

fn random() -> [u8; 16] {
    use ring::rand::SecureRandom as _;
    let mut bytes = [0; 16];
    // The system's generator fails only where there is none; a process-wide one is then better than a panic.
    if ring::rand::SystemRandom::new().fill(&mut bytes).is_err() {
        fastrand::fill(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_do_not_show_themselves() {
        let (one, two) = (Token::random(), Token::random());
        assert_ne!(one, two);
        assert_eq!(one.as_str().len(), 22);
        assert!(!format!("{one:?}").contains(one.as_str()));
    }

    #[test]
    fn derived_tokens_depend_on_every_part_and_its_borders() {
        let token = Token::derived(&[b"ab", b"c"]);
        assert_eq!(token, Token::derived(&[b"ab", b"c"]));
        assert_ne!(token, Token::derived(&[b"a", b"bc"]));
    }

    #[test]
    fn a_token_of_a_policy_says_so_and_what_the_store_may_know() {
        let token = Token::parse("lock.acquire", "me~you.abc").unwrap_or_else(|_| Token::random());
        let away = token.away(0xfe);
        assert_eq!((away.away_fence(), away.in_store()), (Some(0xfe), "me~you.abc"));
        assert_eq!(away.away(7).in_store(), "me~you.abc", "marked once");
        assert_eq!((token.away_fence(), token.in_store()), (None, "me~you.abc"));
    }

    #[test]
    fn a_token_that_cannot_be_ours_is_refused() {
        for text in ["", "a b", "ä", &"x".repeat(193)] {
            assert!(Token::parse("lock.renew", text).is_err(), "{text:?}");
        }
    }
}
