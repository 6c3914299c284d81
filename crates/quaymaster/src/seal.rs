//! Encrypts values marked `sensitive`: AES-256-GCM, bound to the key they lie under.
//!
//! A sealed value is `version, key id, nonce, ciphertext and tag`. The first key seals, every key opens, so that a
//! key is changed by putting the new one in front and dropping the old one when its values have expired.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac};

use crate::{Code, Error, Result};

const VERSION: u8 = 1;
const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 4;
const HEAD: usize = 1 + ID_BYTES + NONCE_LEN;

#[derive(Clone)]
struct SealKey {
    id: [u8; ID_BYTES],
    aead: LessSafeKey,
    mac: hmac::Key,
}

/// The keys of this process; without any, values are kept as they are.
#[derive(Clone, Default)]
pub struct Seal {
    keys: Vec<SealKey>,
    required: bool,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seal({} keys)", self.keys.len())
    }
}

impl Seal {
    /// No key: nothing is encrypted.
    pub fn none() -> Self {
        Self::default()
    }

    /// Keys as the environment gives them: base64 of 32 bytes each, separated by commas, the sealing one first.
    pub fn from_text(text: &str) -> Result<Self> {
        use base64::Engine as _;
        let wrong = |what: String| Error::new("seal", Code::ConfigInvalid, what);
        let mut keys = Vec::new();
        for (index, part) in text.split(',').map(str::trim).filter(|part| !part.is_empty()).enumerate() {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(part)
                .ok()
                .filter(|bytes| bytes.len() == KEY_BYTES)
                .ok_or_else(|| {
                    wrong(format!(
                        "seal key {}: base64 of {KEY_BYTES} bytes expected; `head -c 32 /dev/urandom | base64` makes one",
                        index + 1
                    ))
                })?;
            let unbound = UnboundKey::new(&AES_256_GCM, &bytes)
                .map_err(|_| wrong(format!("seal key {}: not usable", index + 1)))?;
            let mut id = [0; ID_BYTES];
            id.copy_from_slice(&digest::digest(&digest::SHA256, &bytes).as_ref()[..ID_BYTES]);
            let mac = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
            keys.push(SealKey { id, aead: LessSafeKey::new(unbound), mac });
        }
        Ok(Self { keys, required: false })
    }

    /// Whether there is a key to seal with.
    pub fn is_active(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The same, and what is not sealed is not believed: anybody who can write to the store could have put it there.
    pub fn required(self) -> Self {
        Self { required: true, ..self }
    }

    /// Whether values that are not sealed are refused.
    pub(crate) fn is_required(&self) -> bool {
        self.required && self.is_active()
    }

    /// Encrypts `plain` for the place `at`; `None` without a key.
    pub(crate) fn seal(&self, at: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let key = self.keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut out = Vec::with_capacity(HEAD + plain.len() + AES_256_GCM.tag_len());
        out.push(VERSION);
        out.extend_from_slice(&key.id);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(plain);
        let mut body = out.split_off(HEAD);
        key.aead
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(at), &mut body)
            .ok()?;
        out.append(&mut body);
        Some(out)
    }

    /// Whether `value` begins and is long enough as a sealed one.
    pub(crate) fn looks_sealed(value: &[u8]) -> bool {
        value.len() >= HEAD + AES_256_GCM.tag_len() && value[0] == VERSION
    }

    /// Decrypts what lies at `at`.
    pub(crate) fn open(&self, op: &'static str, at: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
        let wrong = |code: Code, what: &str| Error::new(op, code, what.to_owned());
        if sealed.len() < HEAD + AES_256_GCM.tag_len() || sealed[0] != VERSION {
            return Err(wrong(Code::KeyMalformed, "the sealed value is cut short or of another version"));
        }
        let id = &sealed[1..=ID_BYTES];
        let Some(key) = self.keys.iter().find(|key| key.id == id) else {
            return Err(wrong(Code::SealKey, "no configured seal key opens this value"));
        };
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&sealed[1 + ID_BYTES..HEAD]);
        let mut body = sealed[HEAD..].to_vec();
        let plain = key
            .aead
            .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(at), &mut body)
            .map_err(|_| {
                wrong(Code::KeyMalformed, "the sealed value was changed, or moved from another key")
            })?
            .len();
        body.truncate(plain);
        Ok(body)
    }

    /// The digests `text` may have been given before: by every key, and without one.
    pub(crate) fn fingerprints<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = [u8; 32]> + 'a {
        let sealed = self.keys.iter().map(|key| hmac::sign(&key.mac, text));
        sealed
            .map(|tag| {
                let mut out = [0; 32];
                out.copy_from_slice(tag.as_ref());
                out
            })
            .chain(std::iter::once_with(|| Self::none().fingerprint(text)))
    }

    /// Keys for tokens that a policy gives out, the first one for new ones; none without a seal key. They are derived,
    /// so that no fingerprint can be taken for one.
    pub(crate) fn away_keys(&self) -> Vec<hmac::Key> {
        let derive = |key: &SealKey| hmac::sign(&key.mac, b"quaymaster: tokens given out by a policy");
        self.keys.iter().map(|key| hmac::Key::new(hmac::HMAC_SHA256, derive(key).as_ref())).collect()
    }

    /// A digest of `text` that only holders of the key can compute; a plain one without a key.
    pub(crate) fn fingerprint(&self, text: &[u8]) -> [u8; 32] {
        let mut out = [0; 32];
        match self.keys.first() {
            Some(key) => out.copy_from_slice(hmac::sign(&key.mac, text).as_ref()),
            None => out.copy_from_slice(digest::digest(&digest::SHA256, text).as_ref()),
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    const ONE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const TWO: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

    #[test]
    fn what_is_sealed_opens_only_under_its_own_key_and_unchanged() {
        let seal = Seal::from_text(ONE).unwrap();
        let sealed = seal.seal(b"token:psp:A", b"secret").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_eq!(seal.open("cache.get", b"token:psp:A", &sealed).unwrap(), b"secret");
        assert_eq!(seal.open("cache.get", b"token:psp:B", &sealed).unwrap_err().code, Code::KeyMalformed);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(seal.open("cache.get", b"token:psp:A", &changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_old_key_still_opens_and_a_missing_one_is_named() {
        let old = Seal::from_text(ONE).unwrap().seal(b"k", b"v").unwrap();
        let both = Seal::from_text(&format!("{TWO},{ONE}")).unwrap();
        assert_eq!(both.open("cache.get", b"k", &old).unwrap(), b"v");
        let new = Seal::from_text(TWO).unwrap();
        assert_eq!(new.open("cache.get", b"k", &old).unwrap_err().code, Code::SealKey);
    }

    #[test]
    fn a_key_of_another_length_is_refused() {
        for text in ["AAEC", "not base64!", &format!("{ONE},AAEC")] {
            assert!(Seal::from_text(text).is_err(), "{text}");
        }
        assert!(!Seal::from_text(" ").unwrap().is_active());
    }
}
