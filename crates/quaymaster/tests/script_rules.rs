//! The rules the build enforces on a script, each seen to be enforced.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

#[path = "../build/script.rs"]
mod script;

use std::collections::BTreeMap;

use script::header::{self, Groups};

const GOOD: &str = r#"-- demo.read: say what is there.
--
-- KEYS  1 thing   string  what is read
-- ARGV  1 fallback text   said when nothing is there
-- OUT   "found"  value:bytes; what was read
--       "none"   said:bytes
-- COST  O(1)

--@include shout

local thing = KEYS[1]
local fallback = ARGV[1]
local held = redis.call("GET", thing)
if held then return { "found", shout(held) } end
return { "none", fallback }
"#;

/// Takes keys and words in a row, and judges.
const ROW: &str = r#"-- row: a row of things.
--
-- KEYS  @row
--       first   string  the first of them
--       second  hash
-- ARGV  @row
--       name  text  of one
--       .. counts  int

local function row_check(keys, words)
  local word = "free"
  if keys[1] then
    word = "taken"
  elseif words[1] == "x" then
    return "odd", 0
  end
  return word, 1
end
"#;

const SHOUT: &str = "-- shout: louder.\nlocal function loud(text)\n  return string.upper(text)\nend\n\n\
    local function shout(text)\n  return loud(text)\nend\n\nlocal function unused()\n  return 1\nend\n";

fn includes() -> BTreeMap<String, String> {
    BTreeMap::from([("shout", SHOUT), ("row", ROW)].map(|(name, text)| (name.to_string(), text.to_string())))
}

fn build_as(name: &str, text: &str) -> Result<script::Script, Vec<String>> {
    let commands = script::parse_commands("# comment\nGET read\nSET write  NX\nPUBLISH write\n");
    let groups = script::header::groups(&includes()).expect("good groups");
    script::build(name, text, &includes(), &groups, &commands)
}

fn build(text: &str) -> Result<script::Script, Vec<String>> {
    build_as("demo/read", text)
}

fn complaint(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    build(&GOOD.replace(from, to)).expect_err("must be refused").join("\n")
}

#[test]
fn a_good_script_gives_its_facts() {
    let script = build(GOOD).expect("good");
    let groups = Groups::default();
    assert_eq!(header::names(&script.keys, &groups.keys), ["thing"]);
    assert_eq!(header::names(&script.args, &groups.args), ["fallback"]);
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
        ("1 thing   string", "1 thing   blob", "KEYS lines are `place name type what`"),
        ("1 thing   string", "1 Thing   string", "`Thing` is no name"),
        ("1 thing   string", "1.. things string", "KEYS[1] is not declared"),
        ("1 thing   string", "1.. things string", "KEYS things.. is declared but never read in a row"),
        ("1 thing   string", "1-2 things @heap", "no include declares KEYS @heap"),
        ("1 thing   string", "1 things @row", "KEYS 1-2 expected here, not 1"),
        ("1 thing   string", "1 fallback string", "both a key and an argument are named fallback"),
        ("value:bytes", "value:text", "a value of OUT is `name`, `name:bytes` or `name:any`, and at the end"),
        ("value:bytes", "rows(id:bytes at:any)..", "`name(value value)..`, not `rows(id:bytes at:any)..`"),
        ("value:bytes", "rows(id:bytes", "`name(value value)..`, not `rows(id:bytes`"),
        ("value:bytes", "rows()..", "`name(value value)..`, not `rows()..`"),
        ("value:bytes", "rows(id at:bytes id)..", "two values of \"found\" have one name"),
        ("1 fallback text ", "1.. fallback word", "any number of words have one type, which `word` is not"),
        ("value:bytes", "rest.. value", "behind the rest of \"found\" nothing can follow"),
        ("value:bytes", "value value", "two values of \"found\" have one name"),
        ("\"none\"   said:bytes", "\"found\"", "OUT names \"found\" twice"),
        ("OUT   \"found\"", "OUT   found", "OUT lines are `\"word\" value value; what they mean`"),
        ("--@include shout", "--@include whisper", "there is no lua/inc/whisper.lua; there are row, shout"),
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

/// Hands its keys and arguments on in a row, and answers what it was told.
const ROWS: &str = r#"-- demo.rows: judge things.
--
-- KEYS  1-2 row     @row
--       3 request?  string  what was answered before
--       4.. more    hash    any number
--       + last?     string
-- ARGV  1- words  @row
--       +.. pairs  each  any number
--           key   text
--           size  int>0
-- OUT   "taken"     count  rest(key:bytes
--                   size)..; and more
--       "odd"       0
--       "kept"
--       "conflict"
-- COST  O(1)

--@include row

local kept = KEYS[3] and replay_read(KEYS[3], "demo", "^kept$")
if kept then return kept end
local word, x = row_check(KEYS, ARGV)
if word ~= "free" then return { word, x } end
local kinds = { "kept", "conflict" }
return { "taken", 0 }
"#;

const TAKEN: &str =
    "OUT   \"taken\"     count  rest(key:bytes\n--                   size)..; and more\n--       ";

fn rows(from: &str, to: &str) -> Result<script::Script, String> {
    assert!(ROWS.contains(from), "{from}");
    build_as("demo/rows", &ROWS.replace(from, to)).map_err(|problems| problems.join("\n"))
}

#[test]
fn words_that_come_from_functions_and_records_must_be_in_out() {
    rows("COST", "COST").expect("good");
    for (from, to, missing) in [
        ("--       \"odd\"       0\n", "", "odd"),
        (TAKEN, "OUT   ", "taken"),
        ("--       \"kept\"\n", "", "kept"),
        ("--       \"conflict\"\n", "", "conflict"),
        ("word ~= \"free\"", "word ~= \"odd\"", "free"),
        ("if word ~= \"free\" then", "if word then", "free"),
    ] {
        let found = rows(from, to).expect_err(missing);
        assert!(found.contains(&format!("can answer \"{missing}\", which OUT does not name")), "{found}");
    }
    // An error reply is no answer, and a comparison tells which words get that far.
    let refused = "if kept and kept.err then return kept end\n";
    let found = rows("if kept then return kept end\n", refused).expect("good");
    assert!(found.source.contains("kept.err"));
    let conflicts = "if kept and kept[1] == \"conflict\" then return kept end\n";
    rows("if kept then return kept end\n", conflicts).expect("good");
}

#[test]
fn a_word_is_followed_by_the_values_that_out_declares() {
    let last = "return { \"taken\", 0 }";
    for (line, word, count, declared) in [
        ("return { \"taken\" }", "taken", 0, "1 and rows of 2"),
        ("return { \"taken\", 0, 1, 2, 3 }", "taken", 4, "1 and rows of 2"),
        ("return { \"odd\", f(1, 2), 0 }", "odd", 2, "1"),
        ("return { \"odd\", { 1, 2 },\n  -- and\n  0 }", "odd", 2, "1"),
        ("if word then return { \"kept\", x } end", "kept", 1, "0"),
    ] {
        let found = rows(last, line).expect_err(line);
        let says = format!("OUT has {declared} values behind \"{word}\", the script {count}");
        assert!(found.contains(&says), "{says}\n{found}");
    }
    for good in [
        "{ \"taken\", 0 }",
        "{ \"taken\", 0, 1, 2 }",
        "{ \"taken\", 0,\n  1, 2 }",
        "{ \"taken\", f(0) }",
        "{ \"odd\", redis.call(\"GET\", x) }",
    ] {
        rows(last, &format!("return {good}")).expect(good);
    }
    // One that stands in a variable may be followed by nothing, which ends the reply, but never by more.
    let found = rows("count  rest(key:bytes", "count  more  rest(key:bytes").expect_err("too few");
    assert!(found.contains("OUT has 2 values behind \"taken\", the script at most 1"), "{found}");
}

#[test]
fn a_call_has_a_field_for_every_key_and_argument_and_a_variant_for_every_word() {
    let script = rows("COST", "COST").expect("good");
    let groups = header::groups(&includes()).expect("good groups");
    let keys = ["row.first", "row.second", "request?", "more..", "last?"];
    assert_eq!(header::names(&script.keys, &groups.keys), keys);
    let rust = in_rust(&script);
    for wanted in [
        "pub(crate) mod demo_rows",
        "pub(crate) struct RowKeys<'a> {\n    pub(crate) first: KeyBinding<'a>,\n    pub(crate) second: KeyBinding<'a>,\n}",
        "pub(crate) struct RowArgs<'a> {\n    pub(crate) name: &'a str,\n    \
         pub(crate) counts: &'a dyn Fn(&mut IntList<'_>),\n}",
        "    pub(crate) more: &'a dyn Fn(&mut super::KeyList<'_, '_>) -> super::Result<()>,\n",
        "    pub(crate) pairs: &'a dyn Fn(&mut PairsList<'_>),\n",
        "pub(crate) struct PairsRow<'a> {\n    pub(crate) key: &'a str,\n    pub(crate) size: i64,\n}",
        "impl PairsList<'_> {\n    pub(crate) fn put(&mut self, row: PairsRow<'_>) {\n        row.put(self.0);\n    }\n}",
        "        debug_assert!(self.size >= 1, \"size is at least 1\"); args.push_int(self.size);\n",
        "        self.row.put(keys)?;\n        if let Some(request) = self.request { keys.put(request)?; }\n        \
         (self.more)(&mut super::KeyList(keys))?;\n        if let Some(last) = self.last { keys.put(last)?; }\n",
        "        self.words.put(args);\n        (self.pairs)(&mut PairsList(args));\n",
        "pub(crate) struct RestRow {\n    pub(crate) key: super::Bytes,\n    pub(crate) size: i64,\n}",
        "let key = parts.bytes()?; let size = parts.int()?; Ok(Self { key, size })",
        "Taken { count: i64, rest: Vec<RestRow> },",
        "b\"taken\" => { let count = parts.int()?; let rest = super::rest(parts, RestRow::read)?; \
         Self::Taken { count, rest } }",
        "b\"odd\" => { parts.int()?; parts.end()?; Self::Odd }",
        "other => return Err(super::unknown(op, other)),",
    ] {
        assert!(rust.contains(wanted), "{wanted}\n---\n{rust}");
    }
}

fn in_rust(script: &script::Script) -> String {
    let groups = header::groups(&includes()).expect("good groups");
    let entries = script.keys.iter().chain(&script.args);
    script.to_rust(&groups) + &script::rust::groups(&groups, entries)
}

#[test]
fn any_number_of_groups_go_into_a_list_of_their_own() {
    let pairs = "pairs  each  any number\n--           key   text\n--           size  int>0\n";
    let rust = in_rust(&rows(pairs, "given  @row\n").expect("good"));
    for wanted in [
        "    pub(crate) given: &'a dyn Fn(&mut super::RowArgsList<'_>),\n",
        "        (self.given)(&mut super::RowArgsList(args));\n",
        "pub(crate) struct RowArgsList<'w>(&'w mut Words);",
        "    pub(crate) fn put(&mut self, row: RowArgs<'_>) {\n        row.put(self.0);\n",
    ] {
        assert!(rust.contains(wanted), "{wanted}\n---\n{rust}");
    }
    assert!(
        !in_rust(&rows("COST", "COST").expect("good")).contains("RowArgsList"),
        "nobody takes any number"
    );
}

#[test]
fn a_rest_is_what_stands_in_front_of_its_dots() {
    let groups = header::groups(&includes()).expect("good groups");
    for (rest, field, step) in [
        ("ids..", "ids: Vec<i64>", "let ids = super::rest(parts, super::Parts::int)?;"),
        ("ids:bytes..", "ids: Vec<super::Bytes>", "let ids = super::rest(parts, super::Parts::bytes)?;"),
        ("ids:any..", "ids: super::Parts", "let ids = parts;"),
    ] {
        let rust = build(&GOOD.replace("value:bytes", rest)).expect(rest).to_rust(&groups);
        assert!(rust.contains(&format!("Found {{ {field} }},")) && rust.contains(step), "{rest}\n{rust}");
    }
}

#[test]
fn rows_of_one_name_are_one_struct() {
    let same = "\"odd\"       0  rest(key:bytes size)..";
    let groups = header::groups(&includes()).expect("good groups");
    let rust = rows("\"odd\"       0", same).expect("two words share a row").to_rust(&groups);
    assert_eq!(rust.matches("pub(crate) struct RestRow {").count(), 1, "{rust}");
    for (from, to, says) in [
        (
            "\"odd\"       0",
            "\"odd\"       0  rest(key size)..",
            "lua/demo/rows.lua:13: OUT has two rows named rest",
        ),
        (
            "count  rest(",
            "count  pairs(",
            "lua/demo/rows.lua:1: OUT and what it is asked with both have rows named pairs",
        ),
    ] {
        let found = rows(from, to).expect_err(says);
        assert!(found.contains(says), "{says}\n{found}");
    }
}

#[test]
fn a_group_is_declared_once_and_names_each_word() {
    for (from, to, says) in [
        (
            "first   string",
            "first",
            "lua/inc/row.lua:4: a word of KEYS is `name type what`, not `first  the first of them`",
        ),
        ("name  text  of one", "name  string", "lua/inc/row.lua:7: a word of ARGV is `name type what`"),
        (".. counts  int", ".. counts  word", "lua/inc/row.lua:8: any number of words have one type"),
        (
            ".. counts  int",
            ".. counts  int\n--       last text",
            "any number of words is possible only at the end",
        ),
        ("-- ARGV  @row", "-- KEYS  @row", "KEYS @row is declared twice"),
    ] {
        assert!(ROW.contains(from), "{from}");
        let changed = BTreeMap::from([("row".to_string(), ROW.replacen(from, to, 1))]);
        let found = header::groups(&changed).expect_err("must be refused").join("\n");
        assert!(found.contains(says), "{says}\n{found}");
    }
}

/// Whoever calls these goes on whatever became of it.
const UNREAD: &[&str] = &["cache_leave", "cache_renew", "lock_leave", "upload_rest"];

#[test]
fn every_script_is_called_by_its_names_and_its_reply_is_read() {
    let mut sources = String::new();
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                sources.push_str(&std::fs::read_to_string(path).expect("a source"));
            }
        }
    }
    for operation in quaymaster::operations() {
        let name = operation.script.id.replace('.', "_");
        assert!(sources.contains(&format!("{name}::Call")), "{name} is not called by its names");
        // The limits' are read by macros.
        let ways = [
            format!("{name}::Reply"),
            format!("judges {name},"),
            format!("refunds {name},"),
            format!("added!({name})"),
        ];
        let read = ways.iter().any(|way| sources.contains(way.as_str()));
        assert!(read != UNREAD.contains(&name.as_str()), "whether the reply of {name} is read");
    }
    let by_place = ["call.keys.push", "call.args.push"].into_iter().find(|way| sources.contains(way));
    assert_eq!(by_place, None, "a call is built by the places of its words");
}
