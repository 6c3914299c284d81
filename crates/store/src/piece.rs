//! Long strings by pieces, for stores without plain commands: the same meaning in two small scripts.
//!
//! A piece is at most [`MAX_PIECE`] bytes. Through a script a byte costs Redis three times as much as by a plain
//! command, so its engine overrides these.

use std::time::Duration;

use bytes::Bytes;

use crate::{Code, Effect, Error, Invocation, Reply, Result, Script, Workload};

/// The longest piece: what a store may be busy with while others wait.
pub const MAX_PIECE: usize = 1 << 20;

pub(crate) const WRITE: &str = "store.write_piece";
pub(crate) const READ: &str = "store.read_piece";

static WRITE_SCRIPT: Script = Script {
    id: WRITE,
    source: "local length = redis.call(\"SETRANGE\", KEYS[1], ARGV[1], ARGV[2])\n\
             redis.call(\"PEXPIRE\", KEYS[1], ARGV[3])\nreturn length",
    sha: "9adc6c4e33d6a46bda76d8418a2f73156853cdf6",
    effect: Effect::Writes,
};

static READ_SCRIPT: Script = Script {
    id: READ,
    source: "return redis.call(\"GETRANGE\", KEYS[1], ARGV[1], ARGV[2])",
    sha: "dfbe124ac1778a76cba8ffac909fc8168cf0bbdc",
    effect: Effect::Reads,
};

/// Refuses a piece that is empty or too long.
pub(crate) fn check(op: &'static str, length: usize) -> Result<()> {
    if length == 0 || length > MAX_PIECE {
        let detail = format!("a piece has 1 to {MAX_PIECE} bytes, not {length}");
        return Err(Error::new(op, Code::RequestInvalid, detail));
    }
    Ok(())
}

pub(crate) fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX / 4).max(1)
}

pub(crate) fn offset(at: u64) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

/// The call that writes a piece. The same piece again at the same place changes nothing.
pub(crate) fn write(key: &[u8], at: u64, piece: &[u8], ttl: Duration) -> Result<Invocation> {
    check(WRITE, piece.len())?;
    let mut call = Invocation::new(&WRITE_SCRIPT, Workload::Bulk).repeat_safe();
    call.keys.push(key);
    call.args.push_int(offset(at));
    call.args.push(piece);
    call.args.push_int(millis(ttl));
    Ok(call)
}

/// The call that reads one.
pub(crate) fn read(key: &[u8], at: u64, length: usize) -> Result<Invocation> {
    check(READ, length)?;
    let mut call = Invocation::new(&READ_SCRIPT, Workload::Bulk);
    call.keys.push(key);
    call.args.push_int(offset(at));
    call.args.push_int(offset(at).saturating_add(length as i64 - 1));
    Ok(call)
}

/// What a piece's write answered: the length of the whole.
pub(crate) fn written(reply: &Reply) -> Result<u64> {
    match reply {
        Reply::Int(length) if *length >= 0 => Ok(*length as u64),
        other => Err(Error::new(WRITE, Code::StoreReply, format!("expected a length, got {other:?}"))),
    }
}

/// What a read answered.
pub(crate) fn heard(reply: Reply) -> Result<Bytes> {
    match reply {
        Reply::Bytes(bytes) => Ok(bytes),
        other => Err(Error::new(READ, Code::StoreReply, format!("expected bytes, got {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_have_their_own_digests() {
        for script in [&WRITE_SCRIPT, &READ_SCRIPT] {
            assert_eq!(
                script.sha,
                sha1_smol::Sha1::from(script.source).digest().to_string(),
                "{}",
                script.id
            );
        }
    }

    #[test]
    fn a_piece_is_neither_empty_nor_too_long() {
        let life = Duration::from_secs(1);
        assert!(write(b"k", 0, b"", life).is_err());
        assert!(write(b"k", 0, &vec![0; MAX_PIECE + 1], life).is_err());
        assert!(write(b"k", 0, &vec![0; MAX_PIECE], life).is_ok());
        assert!(read(b"k", 0, MAX_PIECE + 1).is_err());
    }
}
