//! The mix through a server: one HTTP call an operation on keep-alive connections.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::book::Lap;
use super::mix::{AMOUNT, MERCHANT_PROVIDER, Operation, RESPONSE, STATUS, Step, TIMESTAMP};
use super::wire::{Pool, Read};

/// A client of `quaymaster serve`.
#[derive(Debug)]
pub(crate) struct OverHttp {
    pool: Pool,
}

/// What the mix looks at in an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    outcome: Option<String>,
    token: Option<String>,
    hit: Option<bool>,
    stored: Option<bool>,
    outage: Option<serde_json::Value>,
}

impl OverHttp {
    pub(crate) fn new(port: u16) -> Self {
        Self { pool: Pool::new(port) }
    }

    pub(crate) async fn step(&self, step: Step, mut lap: Lap<'_>) -> Result<()> {
        match step {
            Step::Check { psp_id, qr_tx_id } => {
                let key = format!(
                    r#"{{"psp_id":"{psp_id}","merchant_provider":"{MERCHANT_PROVIDER}","qr_tx_id":"{qr_tx_id}","amount":"{AMOUNT}"}}"#
                );
                let token = self.take("idempotency/check/begin", &key, &asked(&qr_tx_id), "started").await?;
                lap.done(Operation::Begin);
                self.give("idempotency/check/finish", &key, &token, &kept(), "finished").await?;
                lap.done(Operation::Finish);
            }
            Step::Create { psp_id, psp_transaction_id } => {
                let key = format!(r#"{{"psp_id":"{psp_id}","psp_transaction_id":"{psp_transaction_id}"}}"#);
                self.guarded("guard/create", &key, &psp_transaction_id, lap).await?;
            }
            Step::Execute { psp_id, transaction_id } => {
                let key = format!(r#"{{"psp_id":"{psp_id}","transaction_id":"{transaction_id}"}}"#);
                self.guarded("guard/execute", &key, &transaction_id, lap).await?;
            }
            Step::Update { transaction_id } => {
                let record = format!(r#"{{"transaction_id":"{transaction_id}","status":"{STATUS}"}}"#);
                let lock = format!(r#"{{"transaction_id":"{transaction_id}"}}"#);
                let claim = self
                    .take("idempotency/update/begin", &record, &asked(&transaction_id), "started")
                    .await?;
                lap.done(Operation::Begin);
                let lease = self.take("lock/update/acquire", &lock, "", "ours").await?;
                lap.done(Operation::Acquire);
                self.give("lock/update/release", &lock, &lease, "", "released").await?;
                lap.done(Operation::Release);
                self.give("idempotency/update/finish", &record, &claim, &kept(), "finished").await?;
                lap.done(Operation::Finish);
            }
            Step::Status { transaction_id } => {
                let path = format!("cache/status/get?key.transaction_id={transaction_id}");
                let found = self.call("GET", &path, "").await?;
                lap.done(Operation::Get);
                if !found.hit.with_context(|| format!("{path}: neither hit nor miss"))? {
                    let body = format!(
                        r#"{{"key":{{"transaction_id":"{transaction_id}"}},"value":{{"status":"SUCCESS","amount":{AMOUNT},"timestamp":"{TIMESTAMP}"}}}}"#
                    );
                    let put = self.call("POST", "cache/status/put", &body).await?;
                    ensure!(put.stored == Some(true), "not stored: {put:?}");
                    lap.done(Operation::Put);
                }
            }
        }
        Ok(())
    }

    async fn guarded(&self, guard: &str, key: &str, request: &str, mut lap: Lap<'_>) -> Result<()> {
        let token = self.take(&format!("{guard}/enter"), key, &asked(request), "entered").await?;
        lap.done(Operation::Enter);
        self.give(&format!("{guard}/leave"), key, &token, &kept(), "finished").await?;
        lap.done(Operation::Leave);
        Ok(())
    }

    /// A call that hands out a token.
    async fn take(&self, path: &str, key: &str, more: &str, outcome: &str) -> Result<String> {
        let answer = self.call("POST", path, &format!(r#"{{"key":{key}{more}}}"#)).await?;
        ensure!(answer.outcome.as_deref() == Some(outcome), "{path}: {answer:?}");
        answer.token.with_context(|| format!("{path}: no token"))
    }

    /// A call that gives a token back.
    async fn give(&self, path: &str, key: &str, token: &str, more: &str, outcome: &str) -> Result<()> {
        let body = format!(r#"{{"key":{key},"token":"{token}"{more}}}"#);
        let answer = self.call("POST", path, &body).await?;
        ensure!(answer.outcome.as_deref() == Some(outcome), "{path}: {answer:?}");
        Ok(())
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let mut request = String::with_capacity(160 + body.len());
        write!(request, "{method} /v1/{path} HTTP/1.1\r\nhost: 127.0.0.1\r\n")?;
        if method == "POST" {
            write!(request, "content-type: application/json\r\ncontent-length: {}\r\n", body.len())?;
        }
        request.push_str("\r\n");
        request.push_str(body);
        let answer =
            self.pool.ask(request.as_bytes(), read).await.with_context(|| format!("{method} {path}"))?;
        ensure!(answer.outage.is_none(), "{path} was answered by an outage policy");
        Ok(answer)
    }
}

/// What was asked, by which a repetition with other content is told apart.
fn asked(request: &str) -> String {
    format!(r#","fingerprint":"{request}""#)
}

/// The answer to keep.
fn kept() -> String {
    format!(r#","response":{RESPONSE}"#)
}

fn read(bytes: &[u8]) -> Read<Answer> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let (head, body) = (std::str::from_utf8(&bytes[..end])?, &bytes[end + 4..]);
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let length: usize = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .with_context(|| format!("an answer without its length: {head}"))?
        .1
        .trim()
        .parse()?;
    if body.len() < length {
        return Ok(None);
    }
    let body = &body[..length];
    if !status.starts_with("HTTP/1.1 200") {
        bail!("{status}: {}", String::from_utf8_lossy(body));
    }
    Ok(Some((serde_json::from_slice(body)?, end + 4 + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_once_all_of_it_is_there() -> Result<()> {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n{\"outcome\":\"ours\",\"token\":\"t\"}  ";
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut])?.is_none(), "{cut} bytes");
        }
        let (answer, length) = read(bytes)?.context("no answer")?;
        assert_eq!((answer.token.as_deref(), length), (Some("t"), bytes.len()));
        assert!(read(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}").is_err());
        Ok(())
    }
}
