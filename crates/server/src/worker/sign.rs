//! Signs a call, so that the service can tell that it is ours and not old.

use std::fmt::Write as _;

use quaymaster::schema::Secret;
use ring::hmac;

/// Seconds since the epoch, when the call was made.
pub(super) const TIMESTAMP: &str = "quaymaster-timestamp";
/// `v1=` and the HMAC-SHA256 of `<timestamp>.<body>` under the queue's secret, in hexadecimal.
pub(super) const SIGNATURE: &str = "quaymaster-signature";

/// A queue's secret.
#[derive(Debug)]
pub(super) struct Signer(hmac::Key);

impl Signer {
    pub(super) fn new(secret: &Secret) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes()))
    }

    /// The signature's header.
    pub(super) fn sign(&self, timestamp: &str, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(timestamp.as_bytes());
        context.update(b".");
        context.update(body);
        let mut text = String::with_capacity(3 + 64);
        text.push_str("v1=");
        for byte in context.sign().as_ref() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}
