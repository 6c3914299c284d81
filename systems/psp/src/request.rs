//! What callers send. Every value is bounded before anything is asked or written.

use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::answer::Reply;

/// The largest body.
pub(crate) const MAX_BODY_BYTES: usize = 16 * 1024;
/// The longest identifier.
const MAX_ID_BYTES: usize = 128;
/// In minor units; beyond this JSON readers elsewhere lose digits.
const MAX_AMOUNT: i64 = 9_007_199_254_740_991;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check {
    pub(crate) psp_id: String,
    pub(crate) merchant_provider: String,
    pub(crate) qr_tx_id: String,
    pub(crate) amount: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Create {
    pub(crate) psp_transaction_id: String,
    pub(crate) psp_id: String,
    pub(crate) merchant_provider: String,
    pub(crate) qr_tx_id: String,
    pub(crate) amount: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Execute {
    pub(crate) psp_id: String,
    pub(crate) transaction_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Update {
    pub(crate) psp_id: String,
    pub(crate) transaction_id: String,
    pub(crate) status: i64,
}

/// A body whose values can be checked.
pub(crate) trait Body: DeserializeOwned + Serialize {
    /// Who calls.
    fn psp_id(&self) -> &str;

    /// Identifiers by name, and the amount if there is one.
    fn parts(&self) -> (Vec<(&'static str, &str)>, Option<i64>);

    /// The same for the same request however it was spaced or ordered.
    fn fingerprint(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Body for Check {
    fn psp_id(&self) -> &str {
        &self.psp_id
    }
    fn parts(&self) -> (Vec<(&'static str, &str)>, Option<i64>) {
        let ids = vec![
            ("psp_id", &*self.psp_id),
            ("merchant_provider", &self.merchant_provider),
            ("qr_tx_id", &self.qr_tx_id),
        ];
        (ids, Some(self.amount))
    }
}

impl Body for Create {
    fn psp_id(&self) -> &str {
        &self.psp_id
    }
    fn parts(&self) -> (Vec<(&'static str, &str)>, Option<i64>) {
        let ids = vec![
            ("psp_transaction_id", &*self.psp_transaction_id),
            ("psp_id", &self.psp_id),
            ("merchant_provider", &self.merchant_provider),
            ("qr_tx_id", &self.qr_tx_id),
        ];
        (ids, Some(self.amount))
    }
}

impl Body for Execute {
    fn psp_id(&self) -> &str {
        &self.psp_id
    }
    fn parts(&self) -> (Vec<(&'static str, &str)>, Option<i64>) {
        (vec![("psp_id", &*self.psp_id), ("transaction_id", &self.transaction_id)], None)
    }
}

impl Body for Update {
    fn psp_id(&self) -> &str {
        &self.psp_id
    }
    fn parts(&self) -> (Vec<(&'static str, &str)>, Option<i64>) {
        (vec![("psp_id", &*self.psp_id), ("transaction_id", &self.transaction_id)], None)
    }
}

/// Reads a body, or says which field is wrong.
pub(crate) fn read<B: Body>(bytes: &[u8]) -> Result<B, Reply> {
    let body: B = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
    let (ids, amount) = body.parts();
    for (name, value) in ids {
        check_id(name, value)?;
    }
    if let Some(amount) = amount
        && !(1..=MAX_AMOUNT).contains(&amount)
    {
        return Err(bad(format!("amount: an integer from 1 to {MAX_AMOUNT}, in minor units, got {amount}")));
    }
    Ok(body)
}

/// An identifier as it may stand in a key and in a row.
pub(crate) fn check_id(name: &str, value: &str) -> Result<(), Reply> {
    let fine = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    if value.is_empty() || value.len() > MAX_ID_BYTES || !value.bytes().all(fine) {
        let detail = format!("{name}: 1 to {MAX_ID_BYTES} letters, digits, '-', '_' or '.'");
        return Err(bad(detail));
    }
    Ok(())
}

fn bad(detail: String) -> Reply {
    Reply::refused(StatusCode::BAD_REQUEST, "request.invalid", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(bytes: &str) -> String {
        match read::<Create>(bytes.as_bytes()) {
            Ok(body) => format!("{body:?}"),
            Err(reply) => reply.answer.body["detail"].as_str().unwrap_or_default().to_owned(),
        }
    }

    fn body(id: &str, amount: &str) -> String {
        format!(
            r#"{{"psp_transaction_id":"{id}","psp_id":"PSP001","merchant_provider":"M","qr_tx_id":"Q","amount":{amount}}}"#
        )
    }

    #[test]
    fn a_refusal_names_the_field() {
        assert!(detail(&body("", "5")).starts_with("psp_transaction_id: "));
        assert!(detail(&body("a b", "5")).starts_with("psp_transaction_id: "));
        assert!(detail(&body("a:b", "5")).starts_with("psp_transaction_id: "));
        assert!(detail(&body(&"x".repeat(129), "5")).starts_with("psp_transaction_id: "));
        assert!(detail(&body("a", "0")).starts_with("amount: "));
        assert!(detail(&body("a", "-5")).starts_with("amount: "));
        assert!(detail(&body("a", "\"5\"")).contains("invalid type"));
        assert!(detail(&body("a", "5.5")).contains("invalid type"));
        assert!(detail(r#"{"psp_id":"P"}"#).contains("missing field"));
        assert!(
            detail(&body("a", "5").replace("\"amount\"", "\"extra\":1,\"amount\"")).contains("unknown field")
        );
    }

    #[test]
    fn spaces_and_order_do_not_make_another_request() {
        let one = read::<Execute>(br#"{"psp_id":"P","transaction_id":"t"}"#).map(|body| body.fingerprint());
        let two =
            read::<Execute>(br#" { "transaction_id": "t", "psp_id": "P" } "#).map(|body| body.fingerprint());
        assert_eq!(one.ok(), two.ok());
    }
}
