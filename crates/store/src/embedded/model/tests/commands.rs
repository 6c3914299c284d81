//! Replies and edges, command by command; what Redis 7.0 answers.

use super::*;

const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn strings() {
    script(
        "GET k => nil
        SET k v => 'OK'
        GET k => 'v'
        STRLEN k => 1
        STRLEN absent => 0
        APPEND k alue => 5
        APPEND fresh x => 1
        GETRANGE k 1 -2 => 'alu'
        GETRANGE k -100 1 => 'va'
        GETRANGE k -1 -100 => ''
        GETRANGE k 0 -100 => 'v'
        GETRANGE k 3 1 => ''
        GETRANGE absent 0 -1 => ''
        GETRANGE k a 1 => ERR value is not an integer or out of range
        SETRANGE k 3 er => 5
        GET k => 'valer'
        SETRANGE k 3 ues => 6
        SETRANGE k 4 e => 6
        SETRANGE k 100 '' => 6
        GET k => 'values'
        SETRANGE k 5 d! => 7
        SETRANGE absent 5 '' => 0
        EXISTS absent => 0
        SETRANGE k -1 x => ERR offset is out of range
        SETRANGE k 536870912 x => ERR string exceeds maximum allowed size (proto-max-bulk-len)
        SETRANGE k 9223372036854775807 x => ERR string exceeds maximum allowed size (proto-max-bulk-len)
        SETRANGE k a x => ERR value is not an integer or out of range
        SET k value => 'OK'
        INCR n => 1
        INCRBY n 41 => 42
        DECRBY n 50 => -8
        INCRBY n 9223372036854775807 => 9223372036854775799
        INCRBY n 9 => ERR increment or decrement would overflow
        GET n => '9223372036854775799'
        DECRBY n -9223372036854775808 => ERR decrement would overflow
        INCR k => ERR value is not an integer or out of range
        INCRBY n 1.5 => ERR value is not an integer or out of range
        SETNX k w => 0
        SETNX m w => 1
        MGET k m absent => ['value' 'w' nil]
        GETDEL m => 'w'
        GETDEL m => nil
        INCR => ERR Wrong number of args calling Redis command from script
        GET a b => ERR Wrong number of args calling Redis command from script
        FLUSHALL => ERR Unknown Redis command called from script
        get k => 'value'",
    );
}

#[test]
fn set_options() {
    script(
        "SET k v XX => nil
        SET k v NX => 'OK'
        SET k w NX => nil
        SET k w XX GET => 'v'
        SET k x NX GET => 'w'
        GET k => 'w'
        SET fresh x GET => nil
        SET k v EX 10 => 'OK'
        TTL k => 10
        PTTL k => 10000
        SET k v KEEPTTL => 'OK'
        PTTL k => 10000
        SET k v => 'OK'
        PTTL k => -1
        SET k v px 1500 => 'OK'
        TTL k => 2
        SET k v PXAT 1700000000250 => 'OK'
        PTTL k => 250
        SET k v PX 0 => ERR invalid expire time in 'set' command
        SET k v EX -1 => ERR invalid expire time in 'set' command
        SET k v EX 9223372036854775807 => ERR invalid expire time in 'set' command
        SET k v PX x => ERR value is not an integer or out of range
        SET k v PX => ERR syntax error
        SET k v NX XX => ERR syntax error
        SET k v EX 1 PX 1 => ERR syntax error
        SET k v EX 1 KEEPTTL => ERR syntax error
        SET k v KEEPTTL EX 1 => ERR syntax error
        SET k v OOPS => ERR syntax error
        PTTL k => 250
        SET k v PXAT 1 => 'OK'
        GET k => nil",
    );
}

#[test]
fn wrong_types_are_refused_and_change_nothing() {
    let mut model = Model::new();
    for (make, key) in
        [("SET s v", "s"), ("RPUSH l a", "l"), ("HSET h f v", "h"), ("SADD t a", "t"), ("ZADD z 1 a", "z")]
    {
        say(&mut model, make);
        assert_eq!(say(&mut model, &format!("EXISTS {key}")), "1");
    }
    let before = snapshot(&model);
    for (commands, keys) in [
        ("GET# APPEND#x SETRANGE#0 x INCR# GETRANGE#0 1 STRLEN# GETDEL# SET#v GET", "l h t z"),
        (
            "LPUSH#x LLEN# LPOP# LRANGE#0 1 LREM#0 x LSET#0 x LTRIM#0 1 LINDEX#0 LMOVE#s LEFT LEFT LMOVE#l LEFT LEFT",
            "s h t z",
        ),
        ("HSET#f v HGET#f HDEL#f HGETALL# HLEN# HINCRBY#f 1 HMGET#f HSETNX#f v HEXISTS#f", "s l t z"),
        ("SADD#a SREM#a SCARD# SISMEMBER#a SMEMBERS#", "s l h z"),
        (
            "ZADD#1 a ZREM#a ZCARD# ZSCORE#a ZRANGE#0 1 ZINCRBY#1 a ZPOPMIN# ZCOUNT#0 1 ZRANK#a ZREMRANGEBYRANK#0 1 ZREMRANGEBYSCORE#0 1",
            "s l h t",
        ),
    ] {
        for key in keys.split(' ') {
            let mut command = String::new();
            for word in commands.split(' ').chain(["END#"]) {
                if word.contains('#') && !command.is_empty() {
                    assert_eq!(say(&mut model, &command), WRONG, "{command}");
                    command.clear();
                }
                let separator = if command.is_empty() { "" } else { " " };
                command += separator;
                command += word.replace('#', &format!(" {key} ")).trim();
            }
        }
    }
    assert_eq!(say(&mut model, "LMOVE l s LEFT LEFT"), WRONG);
    assert_eq!(snapshot(&model), before);
}

#[test]
fn lists() {
    script(
        "LPUSH l c b a => 3
        RPUSH l d e => 5
        LRANGE l 0 -1 => ['a' 'b' 'c' 'd' 'e']
        LRANGE l -2 100 => ['d' 'e']
        LRANGE l 3 1 => []
        LRANGE absent 0 -1 => []
        LINDEX l 0 => 'a'
        LINDEX l -1 => 'e'
        LINDEX l 5 => nil
        LINDEX absent x => nil
        LSET l 1 B => 'OK'
        LSET l -1 E => 'OK'
        LSET l 9 x => ERR index out of range
        LSET absent 0 x => ERR no such key
        LLEN l => 5
        LPOP l => 'a'
        RPOP l => 'E'
        LPOP l 0 => []
        LPOP l 2 => ['B' 'c']
        LPOP l -1 => ERR value is out of range, must be positive
        LPOP l x => ERR value is out of range, must be positive
        LPOP l 1 1 => ERR wrong number of arguments for 'lpop' command
        RPOP l 9 => ['d']
        EXISTS l => 0
        LPOP l => nil
        LPOP l 3 => nil
        RPUSH l x a x b x c x => 7
        LREM l 1 x => 1
        LRANGE l 0 -1 => ['a' 'x' 'b' 'x' 'c' 'x']
        LREM l -2 x => 2
        LRANGE l 0 -1 => ['a' 'x' 'b' 'c']
        LREM l 0 x => 1
        LREM l 0 x => 0
        LREM absent 0 x => 0
        LTRIM l 1 -1 => 'OK'
        LRANGE l 0 -1 => ['b' 'c']
        LTRIM l 5 9 => 'OK'
        EXISTS l => 0
        LTRIM l 0 0 => 'OK'
        RPUSH a 1 2 3 => 3
        LMOVE a b LEFT RIGHT => '1'
        LMOVE a b RIGHT LEFT => '3'
        LRANGE b 0 -1 => ['3' '1']
        LMOVE a a LEFT RIGHT => '2'
        LMOVE a b LEFT LEFT => '2'
        EXISTS a => 0
        LMOVE a b LEFT LEFT => nil
        LMOVE a b UP LEFT => ERR syntax error
        LMOVE b b LEFT RIGHT => '2'
        LRANGE b 0 -1 => ['3' '1' '2']",
    );
}

#[test]
fn moving_a_list_s_only_item_onto_itself_keeps_its_expiry() {
    script(
        "RPUSH l a => 1
        PEXPIRE l 1000 => 1
        LMOVE l l LEFT LEFT => 'a'
        PTTL l => 1000",
    );
}

#[test]
fn hashes() {
    script(
        "HSET h f 1 g 2 => 2
        HSET h f 3 i 4 => 1
        HSET h f => ERR Wrong number of args calling Redis command from script
        HSET h f 1 g => ERR wrong number of arguments for 'hset' command
        HGET h f => '3'
        HGET h absent => nil
        HGET absent f => nil
        HMGET h f absent g => ['3' nil '2']
        HMGET absent f => [nil]
        HLEN h => 3
        HEXISTS h f => 1
        HEXISTS h absent => 0
        HSETNX h f 9 => 0
        HSETNX h j 9 => 1
        HINCRBY h f 4 => 7
        HINCRBY h new -4 => -4
        HINCRBY h f 9223372036854775807 => ERR increment or decrement would overflow
        HSET h text x => 1
        HINCRBY h text 1 => ERR hash value is not an integer
        HINCRBY h f x => ERR value is not an integer or out of range
        HGETALL absent => []
        HDEL h f g absent => 2
        HDEL h i j new text => 4
        EXISTS h => 0
        HDEL h f => 0
        HSET one f v => 1
        HGETALL one => ['f' 'v']",
    );
}

#[test]
fn sets() {
    script(
        "SADD s a b a => 2
        SADD s a => 0
        SCARD s => 2
        SISMEMBER s a => 1
        SISMEMBER s x => 0
        SREM s a x => 1
        SMEMBERS s => ['b']
        SREM s b => 1
        EXISTS s => 0
        SMEMBERS s => []
        SCARD s => 0",
    );
}

#[test]
fn sorted_sets() {
    script(
        "ZADD z 2 b 1 a 2 aa 3 c => 4
        ZRANGE z 0 -1 => ['a' 'aa' 'b' 'c']
        ZRANGE z 0 -1 REV => ['c' 'b' 'aa' 'a']
        ZRANGE z -1 -1 => ['c']
        ZRANGE z 1 2 WITHSCORES => ['aa' '2' 'b' '2']
        ZREVRANGE z 0 1 WITHSCORES => ['c' '3' 'b' '2']
        ZREVRANGE z 0 1 REV => ERR syntax error
        ZRANGE z 2 2 => ['b']
        ZRANGE z 1 1 REV => ['b']
        ZRANGE z (1 3 BYSCORE => ['aa' 'b' 'c']
        ZRANGE z (1 (3 BYSCORE WITHSCORES => ['aa' '2' 'b' '2']
        ZRANGE z +inf -inf BYSCORE REV LIMIT 1 2 => ['b' 'aa']
        ZRANGE z -inf +inf BYSCORE LIMIT 1 -1 => ['aa' 'b' 'c']
        ZRANGE z -inf +inf BYSCORE LIMIT -1 2 => []
        ZRANGE z 0 -1 LIMIT 0 1 => ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX
        ZRANGE z 0 x => ERR value is not an integer or out of range
        ZRANGE z 0 x BYSCORE => ERR min or max is not a float
        ZRANGE z 0 1 OOPS => ERR syntax error
        ZRANGEBYSCORE z 2 2 LIMIT 0 1 => ['aa']
        ZRANGEBYSCORE z (2 2 => []
        ZRANGEBYSCORE z 3 1 => []
        ZRANGEBYSCORE z (inf inf => []
        ZRANGEBYSCORE z -inf (-inf => []
        ZRANGEBYSCORE z 1 2 REV => ERR syntax error
        ZCOUNT z (1 +inf => 3
        ZCOUNT absent 0 1 => 0
        ZCARD z => 4
        ZRANK z c => 3
        ZRANK z absent => nil
        ZRANK absent c => nil
        ZSCORE z aa => '2'
        ZSCORE z absent => nil
        ZINCRBY z 0.5 aa => '2.5'
        ZINCRBY z -inf n => '-inf'
        ZINCRBY z +inf n => ERR resulting score is not a number (NaN)
        ZREM z n absent => 1
        ZPOPMIN z => ['a' '1']
        ZPOPMAX z 2 => ['c' '3' 'aa' '2.5']
        ZPOPMIN z 0 => []
        ZPOPMIN z 1 1 => ERR syntax error
        ZPOPMIN z -1 => ERR value is out of range, must be positive
        ZPOPMIN z 5 => ['b' '2']
        EXISTS z => 0
        ZPOPMIN z => []
        ZADD z 1 a 2 b 3 c 4 d 5 e => 5
        ZREMRANGEBYSCORE z (1 2 => 1
        ZREMRANGEBYRANK z -1 -1 => 1
        ZREMRANGEBYRANK z 1 1 => 1
        ZRANGE z 0 -1 => ['a' 'd']
        ZREMRANGEBYRANK z 5 9 => 0
        ZREMRANGEBYSCORE z -inf +inf => 2
        EXISTS z => 0
        ZREMRANGEBYSCORE z x 1 => ERR min or max is not a float",
    );
}

#[test]
fn zadd_flags() {
    script(
        "ZADD z XX 1 a => 0
        EXISTS z => 0
        ZADD z NX 1 a => 1
        ZADD z NX 2 a 3 b => 1
        ZSCORE z a => '1'
        ZADD z XX CH 2 a 9 x => 1
        ZADD z GT CH 1 a => 0
        ZADD z GT CH 5 a 1 new => 2
        ZADD z LT CH 9 a => 0
        ZADD z LT CH 4 a => 1
        ZADD z CH 4 a => 0
        ZADD z 7 a => 0
        ZSCORE z a => '7'
        ZADD z NX XX 1 a => ERR XX and NX options at the same time are not compatible
        ZADD z GT LT 1 a => ERR GT, LT, and/or NX options at the same time are not compatible
        ZADD z NX GT 1 a => ERR GT, LT, and/or NX options at the same time are not compatible
        ZADD z x a => ERR value is not a valid float
        ZADD z nan a => ERR value is not a valid float
        ZADD z 1 a 2 => ERR syntax error
        ZADD z NX CH => ERR syntax error
        ZADD z 1 a nan b => ERR value is not a valid float
        ZSCORE z a => '7'
        ZADD z inf top -inf bottom => 2
        ZRANGE z 0 0 WITHSCORES => ['bottom' '-inf']
        ZRANGE z -1 -1 WITHSCORES => ['top' 'inf']",
    );
}

#[test]
fn keys() {
    script(
        "TYPE k => 'none'
        SET k v => 'OK'
        TYPE k => 'string'
        HSET h f v => 1
        TYPE h => 'hash'
        RPUSH l a => 1
        TYPE l => 'list'
        SADD s a => 1
        TYPE s => 'set'
        ZADD z 1 a => 1
        TYPE z => 'zset'
        EXISTS k k h absent => 3
        DEL k k absent => 1
        TTL k => -2
        PTTL h => -1
        EXPIRE h 10 => 1
        TTL h => 10
        PEXPIRE h 1499 => 1
        TTL h => 1
        PEXPIRE h 1500 => 1
        TTL h => 2
        PEXPIREAT h 1700000000300 => 1
        PTTL h => 300
        PERSIST h => 1
        PERSIST h => 0
        PERSIST absent => 0
        PTTL h => -1
        EXPIRE absent 10 => 0
        EXPIRE h x => ERR value is not an integer or out of range
        EXPIRE h 9223372036854775807 => ERR invalid expire time in 'expire' command
        PEXPIRE h 9223372036854775807 => ERR invalid expire time in 'pexpire' command
        PEXPIREAT h 9223372036854775807 => 1
        PTTL h => 9223370336854775807
        EXPIRE h 0 => 1
        EXISTS h => 0
        PEXPIRE l -5 => 1
        EXISTS l => 0
        PEXPIREAT s 1 => 1
        EXISTS s => 0
        RENAME absent k => ERR no such key
        SET a 1 PX 500 => 'OK'
        SET b 2 => 'OK'
        RENAME a b => 'OK'
        GET b => '1'
        PTTL b => 500
        EXISTS a => 0
        RENAME b b => 'OK'
        RENAME b z => 'OK'
        TYPE z => 'string'
        PUBLISH c m => 0
        TIME => ['1700000000' '0']
        '' => ERR Unknown Redis command called from script
        SET '' empty => 'OK'
        GET '' => 'empty'",
    );
}

#[test]
fn writing_keeps_the_expiry_of_what_is_changed_in_place() {
    let mut model = Model::new();
    for (make, write) in [
        ("SET k 1", "INCR k"),
        ("SET k 1", "APPEND k x"),
        ("SET k 1", "SETRANGE k 0 x"),
        ("HSET k f 1", "HINCRBY k f 1"),
        ("RPUSH k a", "RPUSH k b"),
        ("SADD k a", "SADD k b"),
        ("ZADD k 1 a", "ZADD k 2 b"),
        ("RPUSH k a b", "LSET k 0 c"),
    ] {
        say(&mut model, "DEL k");
        say(&mut model, make);
        say(&mut model, "PEXPIRE k 5000");
        say(&mut model, write);
        assert_eq!(say(&mut model, "PTTL k"), "5000", "{write}");
    }
}

#[test]
fn a_long_string_grows_in_place() {
    let mut model = Model::new();
    let piece = vec![b'x'; 1 << 20];
    for round in 1..=64_i64 {
        model.begin(START_US);
        let words: [&[u8]; 3] = [b"APPEND", b"k", &piece];
        assert_eq!(call(&mut model, &words), Ok(Reply::Int(round << 20)));
        model.commit();
    }
    model.begin(START_US);
    call(&mut model, &[b"APPEND", b"k", b"tail"]).unwrap();
    model.rollback();
    assert_eq!(say(&mut model, "STRLEN k"), (64 << 20).to_string());
}
