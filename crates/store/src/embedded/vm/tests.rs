#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};

use super::*;
use crate::embedded::clock::Clock;
use crate::embedded::core::Core;

fn core_with(limits: VmLimits) -> Core {
    Core::new(Clock::Manual(Arc::new(AtomicI64::new(1_700_000_000_123_456))), limits).unwrap()
}

fn core() -> Core {
    core_with(VmLimits::default())
}

fn words(list: &[&str]) -> Words {
    let mut words = Words::default();
    for word in list {
        words.push(word);
    }
    words
}

fn run_with(core: &Core, source: &str, keys: &[&str], args: &[&str]) -> Result<Reply> {
    let script = ScriptRef { id: "test.script", sha: source, source };
    core.execute(script, &words(keys), &words(args), drop).map(|(reply, ())| reply)
}

fn run(core: &Core, source: &str) -> Result<Reply> {
    run_with(core, source, &[], &[])
}

fn text(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec().into())
}

fn refused(core: &Core, source: &str) -> (Code, String) {
    let error = run(core, source).unwrap_err();
    (error.code, error.detail)
}

#[test]
fn a_script_reads_its_keys_and_arguments_and_answers() {
    let reply = run_with(
        &core(),
        "redis.call('SET', KEYS[1], ARGV[1])
         return {redis.call('GET', KEYS[1]), redis.call('INCRBY', KEYS[1], 2), #KEYS, #ARGV}",
        &["k"],
        &["40", "\u{ff}"],
    );
    assert_eq!(reply.unwrap(), Reply::Array(vec![text("40"), Reply::Int(42), Reply::Int(1), Reply::Int(2)]));
}

#[test]
fn lua_values_become_replies_as_redis_converts_them() {
    let core = core();
    for (source, expected) in [
        ("return 3.99", Reply::Int(3)),
        ("return -3.99", Reply::Int(-3)),
        ("return 1e30", Reply::Int(i64::MIN)),
        ("return 0/0", Reply::Int(i64::MIN)),
        ("return 'a\\0b'", text("a\0b")),
        ("return true", Reply::Int(1)),
        ("return false", Reply::Nil),
        ("return nil", Reply::Nil),
        ("return", Reply::Nil),
        ("return function() end", Reply::Nil),
        (
            "return {1, 'a', true, false, {}}",
            Reply::Array(vec![Reply::Int(1), text("a"), Reply::Int(1), Reply::Nil, Reply::Array(vec![])]),
        ),
        ("return {1, 2, nil, 4}", Reply::Array(vec![Reply::Int(1), Reply::Int(2)])),
        ("return {ok = 'FINE'}", text("FINE")),
        ("return redis.status_reply('FINE')", text("FINE")),
        ("return redis.call('SET', 'k', 'v')", text("OK")),
        ("return redis.call('SET', 'k', 'v').ok", text("OK")),
        ("return redis.call('GET', 'absent') == false and 'no' or 'yes'", text("no")),
        ("return redis.call('TYPE', 'k')", text("string")),
        ("return redis.call('TYPE', 'k')['ok']", text("string")),
        ("return type(redis.call('EXISTS', 'k'))", text("number")),
        ("return redis.call('MGET', 'k', 'absent')", Reply::Array(vec![text("v"), Reply::Nil])),
        ("return redis.call('TIME')", Reply::Array(vec![text("1700000000"), text("123456")])),
        ("return setmetatable({}, {__index = function() return 1 end})", Reply::Array(vec![])),
    ] {
        assert_eq!(run(&core, source).unwrap(), expected, "{source}");
    }
}

#[test]
fn numbers_reach_a_command_with_all_their_digits() {
    let core = core();
    for (number, expected) in [
        ("1e15", "1000000000000000"),
        ("1763230000123456", "1763230000123456"),
        ("2^53", "9007199254740992"),
        ("0.1", "0.10000000000000001"),
        ("-7", "-7"),
        ("1e17", "1e+17"),
    ] {
        let source = format!("redis.call('SET', 'k', {number}) return redis.call('GET', 'k')");
        assert_eq!(run(&core, &source).unwrap(), text(expected));
    }
}

#[test]
fn errors_name_the_script_the_line_and_what_redis_says() {
    let core = core();
    let cases = [
        (
            "redis.call('SET', 'k', 'v')\nreturn redis.call('LPUSH', 'k', 'x')",
            Code::KeyWrongType,
            "WRONGTYPE Operation against",
            "(script test.script, line 2)",
        ),
        (
            "redis.call('SET', 'k', 'v')\nerror('MALFORMED k: no number', 0)",
            Code::KeyMalformed,
            "k: no number",
            "",
        ),
        ("return { err = 'MALFORMED k: no number' }", Code::KeyMalformed, "k: no number", ""),
        (
            "error('CLOCK 9000000000000000', 0)",
            Code::StoreClock,
            "the store's clock says 9000000000000000 µs since 1970",
            "",
        ),
        (
            "redis.call('SET', 'k', 'v')\nlocal _, raised = pcall(redis.call, 'LPUSH', 'k', 'x')\n\
             redis.pcall('INCR', 'k')\nreturn raised",
            Code::KeyWrongType,
            "WRONGTYPE Operation against",
            "test.script",
        ),
        ("error('WRONGTYPE mine')", Code::ScriptFailed, "WRONGTYPE mine", "line 1"),
        (
            "return redis.call('INCR')",
            Code::ScriptFailed,
            "ERR Wrong number of args calling Redis command from script",
            "line 1",
        ),
        (
            "return redis.call('SCAN', 0)",
            Code::ScriptFailed,
            "ERR Unknown Redis command called from script",
            "line 1",
        ),
        ("return redis.call()", Code::ScriptFailed, "ERR Please specify at least one argument", "line 1"),
        (
            "return redis.call('GET', {})",
            Code::ScriptFailed,
            "ERR Lua redis lib command arguments must be strings or integers",
            "line 1",
        ),
        (
            "redis.call('SET','k','v') return redis.call('INCR', 'k')",
            Code::ScriptFailed,
            "ERR value is not an integer or out of range",
            "line 1",
        ),
        (
            "local x = nil\n\nreturn x.y",
            Code::ScriptFailed,
            "attempt to index local 'x' (a nil value)",
            "line 3",
        ),
        ("error('mine')", Code::ScriptFailed, "ERR test.script:1: mine", "line 1"),
        ("error({err = 'MINE this'})", Code::ScriptFailed, "MINE this", "line 1"),
        ("error({})", Code::ScriptFailed, "a table without err", "line 1"),
        ("error()", Code::ScriptFailed, "neither a string nor a table", "line 1"),
        ("return redis.error_reply('MINE that')", Code::ScriptFailed, "MINE that", "test.script"),
        ("return redis.error_reply('that')", Code::ScriptFailed, "ERR that", "test.script"),
        ("return {1, {err = 'inner'}}", Code::ScriptFailed, "inner", "test.script"),
        ("return +", Code::ScriptFailed, "ERR Error compiling script", "test.script"),
        ("\u{1b}Lua", Code::ScriptFailed, "bytecode is not accepted", "test.script"),
        (
            "return (function() return redis.call('HGET') end)()",
            Code::ScriptFailed,
            "ERR Wrong number",
            "line 1",
        ),
    ];
    for (source, code, detail, place) in cases {
        let (found, said) = refused(&core, source);
        assert_eq!(found, code, "{source}: {said}");
        assert!(said.contains(detail) && said.contains(place), "{source}: {said}");
    }
    assert_eq!(run(&core, "return 1").unwrap(), Reply::Int(1));
}

#[test]
fn pcall_catches_a_command_error_and_the_script_goes_on() {
    let core = core();
    let source = "redis.call('SET', 'k', 'v')
        local answer = redis.pcall('LPUSH', 'k', 'x')
        local ok, raised = pcall(redis.call, 'LPUSH', 'k', 'x')
        local fine, one, two = pcall(function(a) return a, 2 end, 1)
        return {answer.err, ok, raised.err, fine, one, two}";
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let expected = vec![text(wrong), Reply::Nil, text(wrong), Reply::Int(1), Reply::Int(1), Reply::Int(2)];
    assert_eq!(run(&core, source).unwrap(), Reply::Array(expected));
}

#[test]
fn a_failing_script_changes_nothing_and_publishes_nothing() {
    let core = core();
    let mut messages = core.subscribe(b"c");
    run(&core, "redis.call('RPUSH', 'l', 'a', 'b') redis.call('SET', 'k', 'v', 'PX', 5000)").unwrap();
    let mut recorded = false;
    let source = "redis.call('LPOP', 'l') redis.call('DEL', 'k') redis.call('HSET', 'h', 'f', 'v')
        redis.call('PUBLISH', 'c', 'm') error('no')";
    let script = ScriptRef { id: "test.script", sha: source, source };
    let result = core.execute(script, &Words::default(), &Words::default(), |_| recorded = true);
    assert!(result.is_err() && !recorded);
    let state =
        "return {redis.call('LRANGE', 'l', 0, -1), redis.call('PTTL', 'k'), redis.call('EXISTS', 'h')}";
    let expected = vec![Reply::Array(vec![text("a"), text("b")]), Reply::Int(5000), Reply::Int(0)];
    assert_eq!(run(&core, state).unwrap(), Reply::Array(expected));
    assert_eq!(messages.next().now_or_never(), None);
}

#[test]
fn messages_go_out_in_order_after_success_and_count_who_listens() {
    let core = core();
    let mut messages = core.subscribe(b"c");
    let source = "return {redis.call('PUBLISH', 'c', 'one'), redis.call('PUBLISH', 'd', 'x'), redis.call('PUBLISH', 'c', 'two')}";
    let expected = Reply::Array(vec![Reply::Int(1), Reply::Int(0), Reply::Int(1)]);
    assert_eq!(run(&core, source).unwrap(), expected);
    for word in ["one", "two"] {
        assert_eq!(messages.next().now_or_never(), Some(Some(crate::Message::Data(word.into()))));
    }
}

#[test]
fn an_endless_script_is_stopped_whatever_it_catches() {
    let core = core_with(VmLimits { instructions: 1_000_000, ..VmLimits::default() });
    for source in [
        "while true do end",
        "redis.call('SET', 'k', 'v') while true do pcall(function() while true do end end) end",
        "local function f() return pcall(f) end while true do f() end",
        "while true do pcall(pcall, function() while true do end end) end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do pcall(function() return t[1] end) end",
        "for i = 1, 1e12 do redis.pcall('INCR', 'k') end",
        "return table.concat({}, '', 1, 1e9) or (function() while true do end end)()",
        "string.gsub(string.rep('a', 1e6), 'a', function() while true do end end)",
        "table.sort({3, 2, 1}, function() while true do end end)",
        "while true do pcall(error) end",
    ] {
        let (code, said) = refused(&core, source);
        assert!(
            code == Code::ScriptEndless || (code == Code::ScriptFailed && source.contains("concat")),
            "{source}: {said}"
        );
        assert!(said.contains("test.script"), "{said}");
        assert_eq!(run(&core, "return redis.call('EXISTS', 'k')").unwrap(), Reply::Int(0), "{source}");
    }
}

#[test]
fn an_endless_script_is_stopped_by_the_clock_too() {
    let core = core_with(VmLimits {
        instructions: u64::MAX,
        wall: Duration::from_millis(20),
        ..VmLimits::default()
    });
    let (code, said) = refused(&core, "local i = 0\nwhile true do i = i + 1 end");
    assert_eq!(code, Code::ScriptEndless);
    assert!(said.contains("line 2"), "{said}");
}

#[test]
fn a_script_that_wants_all_memory_fails_and_leaves_room_for_the_next() {
    let core = core_with(VmLimits { memory_bytes: 8 << 20, ..VmLimits::default() });
    run(&core, "redis.call('SET', 'long', string.rep('x', 1024 * 1024))").unwrap();
    for source in [
        "redis.call('SET', 'k', 'v') return #string.rep('x', 1e9)",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} for i = 1, 100 do t[i] = redis.call('GET', 'long') .. i end",
        "local t = {} while true do t = {t} end",
    ] {
        let (code, said) = refused(&core, source);
        assert_eq!(code, Code::ScriptFailed, "{source}");
        assert!(said.contains("not enough memory"), "{source}: {said}");
        let next = "local t = {} for i = 1, 3 do t[i] = redis.call('GET', 'long') .. i end
            return redis.call('EXISTS', 'k')";
        assert_eq!(run(&core, next).unwrap(), Reply::Int(0), "{source}");
    }
    for _ in 0..200 {
        run(&core, "local t = {} for i = 1, 3 do t[i] = redis.call('GET', 'long') .. i end").unwrap();
    }
}

#[test]
fn recursion_and_replies_are_bounded() {
    let core = core_with(VmLimits { reply_bytes: 1000, reply_elements: 100, ..VmLimits::default() });
    for (source, said) in [
        ("local function f() return 1 + f() end return f()", "stack overflow"),
        ("local function f() return 1 + select(2, pcall(f)) end return f()", ""),
        ("local t = {} t[1] = t return t", "ERR reached lua stack limit"),
        ("local t = {} for i = 1, 101 do t[i] = i end return t", "too many elements"),
        ("local s = string.rep('x', 501) return {s, s}", "too long"),
        ("return unpack({}, 1, 1e8)", "too many results to unpack"),
    ] {
        let (_, found) = refused(&core, source);
        assert!(found.contains(said), "{source}: {found}");
    }
    let deep = "local t = {1} for i = 1, 30 do t = {t} end return t";
    assert!(run(&core, deep).is_ok());
}

#[test]
fn the_sandbox_has_what_scripts_need_and_nothing_else() {
    let core = core();
    for absent in [
        "os",
        "io",
        "debug",
        "package",
        "coroutine",
        "require",
        "module",
        "print",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "_G",
        "getfenv",
        "setfenv",
        "newproxy",
        "rawset",
        "xpcall",
        "collectgarbage",
        "gcinfo",
        "cjson",
        "undefined",
    ] {
        let (_, said) = refused(&core, &format!("return {absent}"));
        let expected = format!("Script attempted to access nonexistent global variable '{absent}'");
        assert!(said.contains(&expected), "{said}");
    }
    for absent in ["string.dump", "math.random", "math.randomseed", "redis.sha1hex", "table.nothing"] {
        assert_eq!(
            run(&core, &format!("return {absent} == nil and 1 or 0")).unwrap(),
            Reply::Int(1),
            "{absent}"
        );
    }
    let uses = "local t = {}
        for i, v in ipairs({'b', 'a'}) do table.insert(t, v .. i) end
        for k, v in pairs({x = 1}) do table.insert(t, k .. v) end
        table.sort(t)
        assert(type(next({})) == 'nil' and select('#', unpack(t)) == 3 and tonumber('7') == 7)
        assert(rawequal(t, t) and rawget(t, 1) == 'a2' and getmetatable(t) == nil and tostring(1) == '1')
        return string.format('%s %.0f %d', table.concat(t, ','), 1763230000123456, math.floor(2.7))
            .. ('x'):rep(2)";
    assert_eq!(run(&core, uses).unwrap(), text("a2,b1,x1 1763230000123456 2xx"));
}

#[test]
fn nothing_a_script_does_outlives_it() {
    let core = core();
    for (source, said) in [
        ("x = 1", "Script attempted to create global variable 'x'"),
        ("function f() end", "Script attempted to create global variable 'f'"),
        ("KEYS = {}", "Script attempted to create global variable 'KEYS'"),
        ("tonumber = nil", "Script attempted to create global variable 'tonumber'"),
        ("string = nil", "Script attempted to create global variable 'string'"),
        ("string.upper = nil", "Attempt to modify a readonly table"),
        ("redis.call = nil", "Attempt to modify a readonly table"),
        ("table.insert(table, 1)", "table expected"),
        ("setmetatable(string, {})", "table expected"),
        ("getmetatable('').__index = nil", "attempt to index"),
        ("getmetatable(redis).__index = nil", "attempt to index"),
        ("getmetatable(redis.call)", ""),
    ] {
        let answer = run(&core, source);
        if !said.is_empty() {
            let found = answer.unwrap_err().detail;
            assert!(found.contains(said), "{source}: {found}");
        }
    }
    run_with(
        &core,
        "KEYS[3] = 'x' KEYS.y = 1 setmetatable(ARGV, {__len = 1}) table.insert(ARGV, 'z')",
        &["a"],
        &[],
    )
    .unwrap();
    let clean =
        "return {#KEYS, #ARGV, KEYS.y == nil, getmetatable(ARGV) == nil, ('a'):upper(), string.upper('b')}";
    let expected = vec![Reply::Int(1), Reply::Int(0), Reply::Int(1), Reply::Int(1), text("A"), text("B")];
    assert_eq!(run_with(&core, clean, &["k"], &[]).unwrap(), Reply::Array(expected));
}

#[test]
fn more_scripts_than_are_kept_still_run() {
    let core = core();
    for round in 0..2 {
        for number in 0..(MAX_SCRIPTS as i64 + 10) {
            let reply = run(&core, &format!("return {number}")).unwrap();
            assert_eq!(reply, Reply::Int(number), "round {round}");
        }
    }
}

#[test]
fn time_stands_still_while_a_script_runs() {
    let core = Core::new(Clock::System, VmLimits::default()).unwrap();
    let source = "local a = redis.call('TIME') for i = 1, 1e6 do end local b = redis.call('TIME')
        return a[1] == b[1] and a[2] == b[2]";
    assert_eq!(run(&core, source).unwrap(), Reply::Int(1));
    let before = core.now_us();
    assert!(core.now_us() >= before);
}
