//! The same mix as the document spells it: separate commands, one after the other, on pooled connections.
//!
//! What the document leaves out is left out here too: a record cannot be finished (there is no command for it), a
//! lock is deleted without looking whose it is, and a refusal half way leaves behind what was taken before. Where it
//! leaves a choice the cheaper reading is taken: the PSP's quota is a counter, not a sorted set.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;

use super::book::Lap;
use super::mix::{AMOUNT, MERCHANT_PROVIDER, Operation, STATUS, Step, TIMESTAMP};
use super::wire::{Pool, Read};

const DAY: &str = "86400";

/// A client of the documented scheme.
#[derive(Debug)]
pub(crate) struct Documented {
    pool: Pool,
    minute: Mutex<(u64, String)>,
}

/// A reply, as far as the scheme looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Ok,
    Nil,
    Int(i64),
    Items(usize),
}

impl Documented {
    pub(crate) fn new(port: u16) -> Self {
        Self { pool: Pool::new(port), minute: Mutex::default() }
    }

    pub(crate) async fn step(&self, step: Step, mut lap: Lap<'_>) -> Result<()> {
        match step {
            Step::Check { psp_id, qr_tx_id } => {
                let key = format!("idem:check:{psp_id}:{MERCHANT_PROVIDER}:{qr_tx_id}:{AMOUNT}");
                self.first(&key, "120").await?;
                lap.done(Operation::Begin);
            }
            Step::Create { psp_id, psp_transaction_id } => {
                self.first(&format!("idem:create:{psp_transaction_id}"), DAY).await?;
                self.psp_quota(&psp_id).await?;
                let lock = format!("lock:process:{psp_transaction_id}");
                self.first(&lock, "60").await?;
                lap.done(Operation::Enter);
                self.delete(&lock).await?;
                lap.done(Operation::Leave);
            }
            Step::Execute { psp_id, transaction_id } => {
                self.first(&format!("idem:execute:{transaction_id}"), DAY).await?;
                self.psp_quota(&psp_id).await?;
                self.transaction_quota(&transaction_id).await?;
                let lock = format!("lock:update:{transaction_id}");
                self.first(&lock, "30").await?;
                lap.done(Operation::Enter);
                self.delete(&lock).await?;
                lap.done(Operation::Leave);
            }
            Step::Update { transaction_id } => {
                self.first(&format!("idem:update:{transaction_id}:{STATUS}"), DAY).await?;
                lap.done(Operation::Begin);
                let lock = format!("lock:update:{transaction_id}");
                self.first(&lock, "30").await?;
                lap.done(Operation::Acquire);
                self.delete(&lock).await?;
                lap.done(Operation::Release);
            }
            Step::Status { transaction_id } => {
                let key = format!("status:{transaction_id}");
                let found = self.run(&["HGETALL", &key]).await?;
                lap.done(Operation::Get);
                match found {
                    Said::Items(6) => {}
                    Said::Items(0) => {
                        let fields: [&str; 8] =
                            ["HSET", &key, "status", "SUCCESS", "amount", AMOUNT, "timestamp", TIMESTAMP];
                        self.run(&fields).await?;
                        self.run(&["EXPIRE", &key, "60"]).await?;
                        lap.done(Operation::Put);
                    }
                    other => bail!("{key}: {other:?}"),
                }
            }
        }
        Ok(())
    }

    /// `SET key 1 NX EX seconds`; in this mix everybody is the first.
    pub(super) async fn first(&self, key: &str, seconds: &str) -> Result<()> {
        let said = self.run(&["SET", key, "1", "NX", "EX", seconds]).await?;
        ensure!(said == Said::Ok, "{key} was there already");
        Ok(())
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let said = self.run(&["DEL", key]).await?;
        ensure!(said == Said::Int(1), "{key} was gone");
        Ok(())
    }

    async fn psp_quota(&self, psp_id: &str) -> Result<()> {
        let key = format!("rl:{psp_id}:{}", self.minute()?);
        let said = self.run(&["INCR", &key]).await?;
        self.run(&["EXPIRE", &key, "60"]).await?;
        ensure!(matches!(said, Said::Int(1..=1000)), "{key}: {said:?}");
        Ok(())
    }

    async fn transaction_quota(&self, transaction_id: &str) -> Result<()> {
        let key = format!("rl:tx:{transaction_id}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let (now, old) = (now.to_string(), (now - 300.0).to_string());
        self.run(&["ZADD", &key, &now, transaction_id]).await?;
        self.run(&["ZREMRANGEBYSCORE", &key, "0", &old]).await?;
        let said = self.run(&["ZCARD", &key]).await?;
        self.run(&["EXPIRE", &key, "300"]).await?;
        ensure!(matches!(said, Said::Int(1..=10)), "{key}: {said:?}");
        Ok(())
    }

    /// `2024-01-15-14-30`, worked out once a minute.
    fn minute(&self) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let mut kept = self.minute.lock();
        if kept.0 != now / 60 {
            let text = jiff::Timestamp::from_second(now as i64)?.strftime("%Y-%m-%d-%H-%M").to_string();
            *kept = (now / 60, text);
        }
        Ok(kept.1.clone())
    }

    async fn run(&self, words: &[&str]) -> Result<Said> {
        let mut request = Vec::with_capacity(160);
        write!(request, "*{}\r\n", words.len())?;
        for word in words {
            write!(request, "${}\r\n{word}\r\n", word.len())?;
        }
        self.pool.ask(&request, read).await
    }
}

fn read(bytes: &[u8]) -> Read<Said> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = std::str::from_utf8(&bytes[..end])?;
    let after = end + 2;
    let (Some(kind), Some(rest)) = (line.get(..1), line.get(1..)) else { bail!("an empty reply") };
    let number = || rest.parse::<i64>().with_context(|| format!("not a number: {line:?}"));
    Ok(match kind {
        "+" => Some((Said::Ok, after)),
        ":" => Some((Said::Int(number()?), after)),
        "$" => match usize::try_from(number()?) {
            Err(_) => Some((Said::Nil, after)),
            Ok(length) => (bytes.len() >= after + length + 2).then_some((Said::Ok, after + length + 2)),
        },
        "*" => {
            let items = usize::try_from(number()?)?;
            let mut length = after;
            for _ in 0..items {
                match read(&bytes[length..])? {
                    Some((_, item)) => length += item,
                    None => return Ok(None),
                }
            }
            Some((Said::Items(items), length))
        }
        _ => bail!("Redis refused: {line}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_whole_or_not_at_all() -> Result<()> {
        let whole: [(&[u8], Said); 6] = [
            (b"+OK\r\n", Said::Ok),
            (b"$-1\r\n", Said::Nil),
            (b":12\r\n", Said::Int(12)),
            (b"$5\r\na\r\nbc\r\n", Said::Ok),
            (b"*0\r\n", Said::Items(0)),
            (b"*2\r\n$1\r\na\r\n:1\r\n", Said::Items(2)),
        ];
        for (bytes, said) in whole {
            assert_eq!(read(bytes)?, Some((said, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut])?, None, "{cut} bytes of {said:?}");
            }
        }
        assert!(read(b"-ERR no\r\n").is_err());
        Ok(())
    }
}
