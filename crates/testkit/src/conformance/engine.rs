//! What every store must do, whatever runs on it.

use std::time::Duration;

use futures_util::StreamExt;
use quaymaster::Code;
use quaymaster_store::{Effect, Invocation, MAX_PIECE, Message, Reply, ScanCursor, Script, Workload};

use super::{command, command_int, command_text};

static HALF: Script = Script {
    id: "testkit.half",
    source: "redis.call(\"SET\", KEYS[1], \"half\")\nerror(\"on purpose\")",
    sha: "d4a70abf3ec21691358c55bc4ce85df786572bb9",
    effect: Effect::Writes,
};

crate::cases! {
    async fn replies_come_back_as_redis_gives_them(subject: &Subject) {
        let engine = &*subject.engine;
        let key = format!("{}k", subject.prefix);
        assert_eq!(command_text(engine, &["GET", &key]).await, None);
        assert_eq!(command_text(engine, &["SET", &key, "v"]).await.as_deref(), Some("OK"));
        assert_eq!(command_int(engine, &["APPEND", &key, "w"]).await, 2);
        let binary = [0u8, 255, b'\r', b'\n', 128];
        command(engine, key.as_bytes(), &[b"SET", key.as_bytes(), &binary]).await.expect("binary");
        let held = command(engine, key.as_bytes(), &[b"GET", key.as_bytes()]).await.expect("binary");
        assert_eq!(held, Reply::Bytes(bytes::Bytes::copy_from_slice(&binary)));
        let list = format!("{}l", subject.prefix);
        assert_eq!(command_int(engine, &["RPUSH", &list, "a", "b"]).await, 2);
        let items = command(engine, list.as_bytes(), &[b"LRANGE", list.as_bytes(), b"0", b"-1"]).await.expect("list");
        assert_eq!(items, Reply::Array(vec![Reply::Bytes("a".into()), Reply::Bytes("b".into())]));
    }

    async fn a_long_string_is_written_and_read_by_pieces(subject: &Subject) {
        let engine = &*subject.engine;
        let key = format!("{}long", subject.prefix);
        let life = Duration::from_secs(60);
        assert_eq!(engine.read_piece(key.as_bytes(), 0, 10).await.expect("read").len(), 0, "there is none");
        let whole: Vec<u8> = (0..MAX_PIECE * 2 + 17).map(|at| (at % 251) as u8).collect();
        for (number, piece) in whole.chunks(MAX_PIECE).enumerate() {
            let at = (number * MAX_PIECE) as u64;
            // A piece whose answer was lost is sent again.
            for _ in 0..2 {
                let length = engine.write_piece(key.as_bytes(), at, piece, life).await.expect("write");
                assert_eq!(length, at + piece.len() as u64);
            }
            let ttl = command_int(engine, &["PTTL", &key]).await;
            assert!((1..=60_000).contains(&ttl), "{ttl}");
        }
        let mut read = Vec::new();
        while read.len() < whole.len() {
            let piece = engine.read_piece(key.as_bytes(), read.len() as u64, MAX_PIECE).await.expect("read");
            read.extend_from_slice(&piece);
        }
        assert!(read == whole, "the bytes come back");
        assert_eq!(engine.read_piece(key.as_bytes(), whole.len() as u64, 5).await.expect("read").len(), 0);
        // The first piece again begins nothing anew: it may be a repetition that came late.
        engine.write_piece(key.as_bytes(), 0, &whole[..5], life).await.expect("write");
        assert_eq!(command_int(engine, &["STRLEN", &key]).await, whole.len() as i64);
        // A piece after a gap, and a key that lost its expiry.
        let gap = format!("{}gap", subject.prefix);
        assert_eq!(engine.write_piece(gap.as_bytes(), 3, b"x", life).await.expect("write"), 4);
        assert_eq!(&engine.read_piece(gap.as_bytes(), 0, 10).await.expect("read")[..], b"\0\0\0x");
        assert_eq!(command_int(engine, &["PERSIST", &gap]).await, 1);
        engine.write_piece(gap.as_bytes(), 4, b"y", life).await.expect("write");
        assert!(command_int(engine, &["PTTL", &gap]).await > 0);
        for (at, length) in [(0, 0), (0, MAX_PIECE + 1)] {
            let error = engine.read_piece(key.as_bytes(), at, length).await.expect_err("refused");
            assert_eq!(error.code, Code::RequestInvalid);
        }
        let error = engine.write_piece(key.as_bytes(), 0, &vec![0; MAX_PIECE + 1], life).await.expect_err("refused");
        assert_eq!(error.code, Code::RequestInvalid);
    }

    async fn the_stores_clock_runs_forward(subject: &Subject) {
        let mut last = subject.time_us().await;
        for _ in 0..50 {
            let now = subject.time_us().await;
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        let kept = subject.engine.now_us();
        assert!((kept - last).abs() < 5_000_000, "kept {kept}, asked {last}");
    }

    async fn a_failing_script_is_an_error_and_the_store_goes_on(subject: &Subject) {
        let key = format!("{}half", subject.prefix);
        let mut call = Invocation::new(&HALF, Workload::Default);
        call.keys.push(&key);
        let error = subject.engine.run(call).await.expect_err("fails");
        assert_eq!(error.code, Code::ScriptFailed, "{error}");
        assert!(format!("{error}").contains("on purpose"), "{error}");
        assert_eq!(command_int(&*subject.engine, &["INCR", &format!("{}n", subject.prefix)]).await, 1);
    }

    async fn messages_reach_every_subscriber(subject: &Subject) {
        let channel = format!("{}channel", subject.prefix);
        let mut one = subject.engine.subscribe(channel.as_bytes()).await.expect("subscribe");
        let mut two = subject.engine.subscribe(channel.as_bytes()).await.expect("subscribe");
        for text in ["first", "second"] {
            command_int(&*subject.engine, &["PUBLISH", &channel, text]).await;
        }
        for stream in [&mut one, &mut two] {
            for text in ["first", "second"] {
                let message = tokio::time::timeout(Duration::from_secs(10), stream.next()).await.expect("in time");
                assert_eq!(message, Some(Message::Data(bytes::Bytes::copy_from_slice(text.as_bytes()))));
            }
        }
    }

    async fn a_waiting_reader_wakes_for_a_push_and_takes_nothing(subject: &Subject) {
        let key = format!("{}list", subject.prefix);
        let engine = subject.engine.clone();
        assert!(!engine.wait_for_item(key.as_bytes(), Duration::from_millis(20)).await.expect("wait"));
        let (woken, pushed) = tokio::join!(engine.wait_for_item(key.as_bytes(), Duration::from_secs(20)), async {
            command_int(&*subject.engine, &["RPUSH", &key, "item"]).await
        });
        assert!(woken.expect("wait"));
        assert_eq!(pushed, 1);
        assert_eq!(command_int(&*engine, &["LLEN", &key]).await, 1);
        assert!(engine.wait_for_item(key.as_bytes(), Duration::from_secs(20)).await.expect("already there"));
    }

    async fn scan_finds_every_key_that_stayed(subject: &Subject) {
        let mut wanted: Vec<String> = (0..300).map(|n| format!("{}scan:{n}", subject.prefix)).collect();
        for key in &wanted {
            command_text(&*subject.engine, &["SET", key, "x"]).await;
        }
        let pattern = format!("{}scan:*", subject.prefix);
        let (mut found, mut cursor): (Vec<String>, Option<ScanCursor>) = (Vec::new(), None);
        for _ in 0..10_000 {
            let page = subject.engine.scan(pattern.as_bytes(), 50, cursor.take()).await.expect("scan");
            found.extend(page.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(cursor.is_none(), "the scan does not end");
        found.sort();
        found.dedup();
        wanted.sort();
        assert_eq!(found, wanted);
    }

    async fn key_facts_tell_type_and_ttl(subject: &Subject) {
        let key = format!("{}facts", subject.prefix);
        assert_eq!(subject.engine.key_facts(key.as_bytes()).await.expect("facts"), None);
        command_int(&*subject.engine, &["HSET", &key, "f", "v"]).await;
        let facts = subject.engine.key_facts(key.as_bytes()).await.expect("facts").expect("there");
        assert_eq!((facts.kind.as_str(), facts.ttl_ms), ("hash", None));
        command_int(&*subject.engine, &["PEXPIRE", &key, "60000"]).await;
        let facts = subject.engine.key_facts(key.as_bytes()).await.expect("facts").expect("there");
        assert!(facts.ttl_ms.is_some_and(|ttl| ttl > 0 && ttl <= 60_000), "{facts:?}");
        assert!(facts.bytes.is_none_or(|bytes| bytes > 0));
    }

    async fn health_and_deployment_tell_the_truth(subject: &Subject) {
        command_int(&*subject.engine, &["INCR", &format!("{}n", subject.prefix)]).await;
        let health = subject.engine.health();
        assert!(health.connected && !health.breaker_open, "{health:?}");
        assert!(health.operations > 0);
        let deployment = subject.engine.deployment().await.expect("deployment");
        assert!(["redis", "valkey", "embedded"].contains(&deployment.product.as_str()), "{deployment:?}");
        assert!(!deployment.version.is_empty() && !deployment.mode.is_empty(), "{deployment:?}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_failing_script_has_its_own_digest() {
        assert_eq!(super::HALF.sha, sha1_smol::Sha1::from(super::HALF.source).digest().to_string());
    }
}
