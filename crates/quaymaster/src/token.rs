//! Tokens: who holds a lease.
//!
//! Without a `request_id` a token is 128 random bits, unguessable and never used twice. With one it is derived from
//! the operation, its key and the id, so that every repetition finds it again: whoever knows those three knows the
//! token, and an id that nobody can guess keeps it so.
//!
//! A token that a policy gave out is `away~<fence>~<fingerprint>~<macs>~<token>`. The MACs bind it to the resource, the
//! key, the fence, the fingerprint and the token in it. They are made with a key derived from the seal key; without
//! one, with a key of this process alone, and no other process then honours it.

use std::fmt;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use ring::hmac;

use crate::bound::{Bound, Key};
use crate::{Code, Error, Result};

/// What tokens given out by a policy begin with; no owner's name does.
pub(crate) const AWAY: &str = "away~";

/// Longest token a caller may hand in.
const MAX_BYTES: usize = 192;

/// The characters of one MAC in a token: 128 bits.
const MAC_CHARS: usize = 22;

/// What stands for a fingerprint where none was given.
pub(crate) const NO_PRINT: &str = "-";

/// Signs what a policy gives out where there is no seal key.
static PROCESS_KEY: LazyLock<hmac::Key> =
    LazyLock::new(|| hmac::Key::new(hmac::HMAC_SHA256, &[random(), random()].concat()));

/// A token that a policy gave out, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Away {
    /// The token as the store knows it, if it knows it: the call that a policy answered may have run.
    pub(crate) token: Token,
    /// The fence that went with it; 0 where there is none.
    pub(crate) fence: u64,
    /// The request's fingerprint as a record keeps it.
    pub(crate) print: String,
}

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
        Self(encode(context.finish().as_ref()))
    }

    /// A token handed in by a caller; refused when none of ours could look like it.
    pub fn parse(op: &'static str, text: &str) -> Result<Self> {
        let fine = |c: u8| c.is_ascii_graphic();
        if text.is_empty() || text.len() > MAX_BYTES || !text.bytes().all(fine) {
            let detail =
                format!("token: 1 to {MAX_BYTES} visible ASCII characters, as the lease's call gave it");
            return Err(Error::new(op, Code::RequestInvalid, detail).field("token"));
        }
        let token = Self(text.to_owned());
        if token.is_away() && token.fields().is_none() {
            let detail = format!("token: none of ours begins with {AWAY:?} and goes on like this");
            return Err(Error::new(op, Code::RequestInvalid, detail).field("token"));
        }
        Ok(token)
    }

    /// The same, given out by a policy for `key` of every one of `places`, each of which will honour it.
    pub(crate) fn away(&self, places: &[(&Bound, Key<'_>)], fence: u64, print: &str) -> Self {
        let away = Away { token: self.clone(), fence, print: print.to_owned() };
        let macs: String = places
            .iter()
            .map(|(bound, key)| {
                let keys = bound.shared.seal.away_keys();
                encode(hmac::sign(keys.first().unwrap_or(&PROCESS_KEY), &away.text(bound, key)).as_ref())
            })
            .collect();
        Self(format!("{AWAY}{fence:x}~{print}~{macs}~{}", self.0))
    }

    /// Whether it says of itself that a policy gave it out.
    pub(crate) fn is_away(&self) -> bool {
        self.0.starts_with(AWAY)
    }

    /// What a policy gave out for `key` of `bound`; `None` when it did not.
    pub(crate) fn open_away(&self, bound: &Bound, key: Key<'_>) -> Option<Away> {
        let (away, macs) = self.fields()?;
        let text = away.text(bound, key);
        let mut keys = bound.shared.seal.away_keys();
        if keys.is_empty() {
            keys.push(PROCESS_KEY.clone());
        }
        let wanted: Vec<String> = keys.iter().map(|key| encode(hmac::sign(key, &text).as_ref())).collect();
        let given = macs.as_bytes().chunks(MAC_CHARS);
        let mut pairs = given.flat_map(|mac| wanted.iter().map(move |wanted| (mac, wanted.as_bytes())));
        pairs.any(|(mac, wanted)| same(mac, wanted)).then_some(away)
    }

    /// The parts of a token that a policy may have given out, and its MACs; nothing is proved by that.
    fn fields(&self) -> Option<(Away, &str)> {
        let mut fields = self.0.strip_prefix(AWAY)?.splitn(4, '~');
        let fence = u64::from_str_radix(fields.next()?, 16).ok()?;
        let (print, macs, token) = (fields.next()?, fields.next()?, fields.next()?);
        let whole = !print.is_empty() && !macs.is_empty() && macs.len() % MAC_CHARS == 0;
        if !whole || token.is_empty() || token.starts_with(AWAY) {
            return None;
        }
        Some((Away { token: Self(token.to_owned()), fence, print: print.to_owned() }, macs))
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

impl Away {
    /// What is signed.
    fn text(&self, bound: &Bound, key: Key<'_>) -> Vec<u8> {
        let fence = self.fence.to_le_bytes();
        let resource = &bound.resource;
        let mut values = key.to_vec();
        values.sort_unstable();
        let mut parts: Vec<&[u8]> = vec![resource.kind.name().as_bytes(), resource.name.as_bytes()];
        parts.extend([&fence[..], self.print.as_bytes(), self.token.0.as_bytes()]);
        parts.extend(values.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
        let mut out = Vec::new();
        for part in parts {
            out.extend_from_slice(&(part.len() as u64).to_le_bytes());
            out.extend_from_slice(part);
        }
        out
    }
}

/// 128 bits of a digest as text.
fn encode(digest: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(&digest[..16])
}

/// Compares without telling by its time where they differ.
fn same(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && one.iter().zip(two).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    bytes
}

/// Fills `bytes` with what nobody can guess.
pub(crate) fn fill(bytes: &mut [u8]) {
    use ring::rand::SecureRandom as _;
    // The system's generator fails only where there is none; a process-wide one is then better than a panic.
    if ring::rand::SystemRandom::new().fill(bytes).is_err() {
        fastrand::fill(bytes);
    }
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
    fn a_token_that_cannot_be_ours_is_refused() {
        let macs = "m".repeat(22);
        let (empty, cut) = (format!("away~1~-~{macs}~"), format!("away~1~-~{macs}"));
        let (twice, short) = (format!("away~1~-~{macs}~away~x"), format!("away~1~-~{}~x", &macs[1..]));
        let fine = format!("away~1~-~{macs}~x~y");
        assert!(Token::parse("lock.renew", &fine).is_ok(), "it may be one of ours");
        for text in
            ["", "a b", "ä", &"x".repeat(193), "away~", "away~x", "away~1~x", &empty, &cut, &twice, &short]
        {
            assert!(Token::parse("lock.renew", text).is_err(), "{text:?}");
        }
    }
}
