//! The rules the build enforces on a script, each seen to be enforced.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

#[path = "../build/script.rs"]
#[expect(dead_code, reason = "the build script uses the rest")]
mod script;

use std::collections::BTreeMap;

const GOOD: &str = r#"-- demo.read: say what is there.
--
-- KEYS  1 thing   string  what is read
-- ARGV  1 fallback text   said when nothing is there
-- OUT   "found"  value
--       "none"   fallback
-- COST  O(1)

--@include shout

local thing = KEYS[1]
local fallback = ARGV[1]
local held = redis.call("GET", thing)
if held then return { "found", shout(held) } end
return { "none", fallback }
"#;

fn build(text: &str) -> Result<script::Script, Vec<String>> {
    let includes = BTreeMap::from([(
        "shout".to_string(),
        "-- shout: louder.\nlocal function loud(text)\n  return string.upper(text)\nend\n\n\
         local function shout(text)\n  return loud(text)\nend\n\nlocal function unused()\n  return 1\nend\n"
            .to_string(),
    )]);
    let commands = script::parse_commands("# comment\nGET read\nSET write  NX\nPUBLISH write\n");
    script::build("demo/read", text, &includes, &commands)
}

fn complaint(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    build(&GOOD.replace(from, to)).expect_err("must be refused").join("\n")
}

#[test]
fn a_good_script_gives_its_facts() {
    let script = build(GOOD).expect("good");
    assert_eq!(script.keys, ["thing"]);
    assert_eq!(script.args, ["fallback"]);
    assert_eq!(script.commands, ["GET"]);
    assert_eq!(script.cost, "O(1)");
    assert!(!script.writes);
    assert!(script.source.contains("string.upper"));
    assert!(!script.source.contains("--@include"));
    assert!(!script.source.contains("unused"), "a function nobody reaches costs a closure per call");
    let writing = GOOD.replace("if held", "redis.call(\"SET\", thing, fallback)\nif held");
    assert!(build(&writing).expect("good").writes);
}

#[test]
fn every_rule_is_enforced() {
    for (from, to, says) in [
        ("demo.read:", "demo.write:", "the first line must be `-- demo.read:"),
        ("-- COST  O(1)\n", "", "no COST section"),
        ("-- KEYS  1 thing   string  what is read\n", "", "no KEYS section"),
        ("-- KEYS  1", "-- KEYS  2", "KEYS 1 expected here"),
        ("-- OUT   ", "-- SAYS  ", "`SAYS` is no section"),
        ("\"GET\"", "\"KEYS\"", "KEYS is not a command both engines have"),
        ("\"GET\"", "command", "needs its command as a literal"),
        ("redis.call(\"GET\"", "redis.call(\"PUBLISH\"", "PUBLISH is called by redis.pcall"),
        ("redis.call(\"GET\"", "redis.pcall(\"GET\"", "every other command by redis.call (GET)"),
        ("local thing = KEYS[1]", "local thing = KEYS[1] or KEYS[2]", "KEYS[2] is not declared"),
        ("local fallback = ARGV[1]", "local fallback = 1", "ARGV 1 (fallback) is declared but never used"),
        ("--@include shout", "--@include whisper", "there is no lua/inc/whisper.lua; there are shout"),
        ("{ \"none\", fallback }", "{ \"nothing\", fallback }", "can answer \"nothing\""),
        (
            "{ \"none\", fallback }",
            "{ \"found\", fallback }",
            "OUT names \"none\", which the script never says",
        ),
        ("shout(held)", "cjson.decode(held)", "`cjson` must not be used"),
        ("local thing", &format!("{}local thing", "\n".repeat(80)), "at most 80 lines"),
    ] {
        let found = complaint(from, to);
        assert!(found.contains(says), "{from} -> {to}\nwanted: {says}\nfound: {found}");
        assert!(found.starts_with("lua/demo/read.lua:"), "{found}");
    }
}

#[test]
fn all_problems_come_at_once() {
    let broken =
        GOOD.replace("demo.read:", "demo.x:").replace("\"GET\"", "\"SCAN\"").replace("shout\n", "x\n");
    assert_eq!(build(&broken).expect_err("must be refused").len(), 3);
}
