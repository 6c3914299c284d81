use super::*;

fn at(model: &mut Model, ms: i64, line: &str) -> String {
    model.now_us = START_US + ms * 1000;
    say(model, line)
}

#[test]
fn a_key_lives_through_its_last_millisecond() {
    let mut model = Model::new();
    at(&mut model, 0, "SET k v PX 100");
    assert_eq!(at(&mut model, 100, "GET k"), "'v'");
    assert_eq!(at(&mut model, 100, "PTTL k"), "0");
    assert_eq!(at(&mut model, 101, "GET k"), "nil");
    assert_eq!(at(&mut model, 101, "PTTL k"), "-2");
    assert_eq!(at(&mut model, 101, "TYPE k"), "'none'");
    assert_eq!(at(&mut model, 101, "EXISTS k"), "0");
}

#[test]
fn reading_an_expired_key_changes_nothing_and_writing_it_starts_afresh() {
    let mut model = Model::new();
    at(&mut model, 0, "HSET k f 1");
    at(&mut model, 0, "PEXPIRE k 100");
    let first = snapshot(&model).keys[b"k".as_slice()].generation;
    model.begin(START_US + 200_000);
    assert_eq!(call(&mut model, &[b"HGET", b"k", b"f"]), Ok(Reply::Nil));
    assert!(model.commit().changes.is_empty());
    assert_eq!(model.len(), 1);
    model.begin(START_US + 200_000);
    assert_eq!(call(&mut model, &[b"HINCRBY", b"k", b"f", b"5"]), Ok(Reply::Int(5)));
    let changes = model.commit().changes;
    assert_eq!(changes[0], Change::Remove { key: "k".into(), generation: first });
    let entry = snapshot(&model).keys[b"k".as_slice()].clone();
    assert_ne!(entry.generation, first);
    assert_eq!(entry.expires_at, None);
}

#[test]
fn active_expiry_is_bounded_and_removes_exactly_what_has_expired() {
    let mut model = Model::new();
    for number in 0..1000 {
        at(&mut model, 0, &format!("SET k{number} v PX {}", 1 + number * 10));
        at(&mut model, 0, &format!("RPUSH l{number} a b c"));
    }
    let now_ms = START_US / 1000 + 7000;
    let mut removed = 0;
    loop {
        let effects = model.expire_some(now_ms, 64);
        assert!(effects.changes.len() <= 64);
        assert!(effects.published.is_empty() && effects.pushed.is_empty());
        if effects.changes.is_empty() {
            break;
        }
        removed += effects.changes.len();
    }
    // Up to a bucket may be late, none may be early.
    assert!((590..=700).contains(&removed), "{removed}");
    assert_eq!(model.len(), 2000 - removed);
    for number in 0..1000 {
        let expected = if 1 + number * 10 < 7000 { "nil" } else { "'v'" };
        assert_eq!(at(&mut model, 7000, &format!("GET k{number}")), expected, "{number}");
    }
}

#[test]
fn an_expired_collection_is_one_change() {
    let mut model = Model::new();
    at(&mut model, 0, "RPUSH l a b c d e f");
    at(&mut model, 0, "PEXPIRE l 10");
    let generation = snapshot(&model).keys[b"l".as_slice()].generation;
    let changes = model.expire_some(START_US / 1000 + 10_000, 10).changes;
    assert_eq!(changes, [Change::Remove { key: "l".into(), generation }]);
}

#[test]
fn a_persisted_or_prolonged_key_survives_its_old_time() {
    let mut model = Model::new();
    at(&mut model, 0, "SET a v PX 10");
    at(&mut model, 0, "SET b v PX 10");
    at(&mut model, 0, "PERSIST a");
    at(&mut model, 0, "PEXPIRE b 60000");
    assert!(model.expire_some(START_US / 1000 + 30_000, 100).changes.is_empty());
    assert_eq!(model.expire_some(START_US / 1000 + 90_000, 100).changes.len(), 1);
    assert_eq!(at(&mut model, 90_000, "GET a"), "'v'");
    assert_ne!(NEVER, 0);
}

#[test]
fn a_scan_misses_no_key_that_stays() {
    let mut model = Model::new();
    for number in 0..500 {
        at(&mut model, 0, &format!("SET stay:{number} v"));
        at(&mut model, 0, &format!("SET go:{number} v"));
    }
    let (mut found, mut cursor, mut round) = (Vec::new(), None, 0);
    loop {
        let page = model.scan(b"stay:*", 7, cursor.as_ref(), START_US / 1000);
        found.extend(page.keys);
        // Keys come and go meanwhile.
        at(&mut model, 0, &format!("DEL go:{round}"));
        at(&mut model, 0, &format!("SET new:{round} v"));
        round += 1;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 500);
    let facts = model.facts(b"stay:1", START_US / 1000).unwrap();
    assert_eq!((facts.kind.as_str(), facts.ttl_ms), ("string", None));
    assert!(facts.bytes.is_some_and(|bytes| bytes > 6));
    assert_eq!(model.facts(b"go:1", START_US / 1000), None);
}
