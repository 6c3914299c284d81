//! Long strings by pieces: plain commands on connections of their own.

use std::time::Duration;

use bytes::Bytes;

use crate::piece::{READ, WRITE, check, heard, millis, offset, written};
use crate::redis::Inner;
use crate::redis::resp::words;
use crate::{Reply, Result, Words, Workload};

impl Inner {
    /// The first piece makes the key together with its expiry, and again changes nothing, however late a repetition of
    /// it runs. The others renew the expiry by a command right behind them on the same connection: whoever asked may be
    /// gone, and the key too until the piece makes it anew, and still no string is left to live for ever.
    pub(super) async fn write_piece(&self, key: &[u8], at: u64, piece: &[u8], ttl: Duration) -> Result<u64> {
        check(WRITE, piece.len())?;
        let mut digits = itoa::Buffer::new();
        let life = digits.format(millis(ttl)).as_bytes();
        if at == 0 {
            let begin = command(&[b"SET", key, piece, b"PX", life, b"NX"]);
            if self.ask_on(Workload::Bulk, WRITE, &begin, Some(key)).await? != Reply::Nil {
                return Ok(piece.len() as u64);
            }
        }
        let mut digits = itoa::Buffer::new();
        let write = command(&[b"SETRANGE", key, digits.format(offset(at)).as_bytes(), piece]);
        let renew = command(&[b"PEXPIRE", key, life]);
        written(&self.ask_followed(Workload::Bulk, WRITE, (&write, &renew), key).await?)
    }

    pub(super) async fn read_piece(&self, key: &[u8], at: u64, length: usize) -> Result<Bytes> {
        check(READ, length)?;
        let (mut first, mut last) = (itoa::Buffer::new(), itoa::Buffer::new());
        let end = offset(at).saturating_add(length as i64 - 1);
        let read =
            command(&[b"GETRANGE", key, first.format(offset(at)).as_bytes(), last.format(end).as_bytes()]);
        heard(self.ask_on(Workload::Bulk, READ, &read, Some(key)).await?)
    }
}

fn command(parts: &[&[u8]]) -> Words {
    words(parts)
}
