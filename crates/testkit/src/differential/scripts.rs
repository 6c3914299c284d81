//! The scripts that histories run on both engines.

use std::sync::LazyLock;

use quaymaster_store::{Effect, Script};

fn script(id: &'static str, source: &'static str) -> Script {
    let sha = sha1_smol::Sha1::from(source).digest().to_string();
    Script { id, source, sha: Box::leak(sha.into_boxed_str()), effect: Effect::Writes }
}

macro_rules! scripts {
    ($($(#[$meta:meta])* $name:ident $id:literal $source:expr;)*) => {
        $($(#[$meta])* pub(super) static $name: LazyLock<Script> = LazyLock::new(|| script($id, $source));)*
    };
}

/// A word is `s` and its bytes, or `n` and a number that Lua hands over as a number.
const COMMANDS: &str = r#"
local at = 1
local function command()
  local words = {}
  local count = tonumber(ARGV[at])
  for index = 1, count do
    local word = ARGV[at + index]
    local rest = string.sub(word, 2)
    if string.sub(word, 1, 1) == "n" then words[index] = tonumber(rest) else words[index] = rest end
  end
  at = at + 1 + count
  return unpack(words)
end
"#;

/// Says how Lua sees a value: its type and its digits, so that nothing hides in a conversion.
const TELL: &str = r#"
local function tell(value)
  local kind = type(value)
  if kind == "number" then return { "number", string.format("%.17g", value) } end
  if kind == "string" then return { "string", value } end
  if kind ~= "table" then return { kind, tostring(value) } end
  if value.ok then return { "ok", value.ok } end
  if value.err then return { "err", value.err } end
  local told = { "table" }
  for index = 1, #value do told[index + 1] = tell(value[index]) end
  return told
end
"#;

scripts! {
    /// Runs commands one after the other; an error is told and the next one runs.
    EACH "testkit.each" concat(&[COMMANDS, TELL, "
local told = {}
while at <= #ARGV do told[#told + 1] = tell(redis.pcall(command())) end
return told
"]);
    /// Runs one command and answers as it answers.
    CALL "testkit.call" concat(&[COMMANDS, "return redis.call(command())\n"]);
    /// Runs commands and fails then, whatever they did.
    DOOMED "testkit.doomed" concat(&[COMMANDS, r#"
while at <= #ARGV do redis.pcall(command()) end
error("on purpose")
"#]);
    /// Answers a value that the words describe: `n` number, `s` string, `t` true, `f` false, `z` nil,
    /// `o` status, `e` error, `h` a table with names instead of places, `[` a table of that many values.
    VALUE "testkit.value" r#"
local at = 0
local function build()
  at = at + 1
  local kind, rest = string.sub(ARGV[at], 1, 1), string.sub(ARGV[at], 2)
  if kind == "n" then return tonumber(rest) end
  if kind == "s" then return rest end
  if kind == "t" then return true end
  if kind == "f" then return false end
  if kind == "o" then return { ok = rest } end
  if kind == "e" then return { err = rest } end
  if kind == "h" then return { name = rest } end
  if kind == "[" then
    local value = {}
    for index = 1, tonumber(rest) do value[index] = build() end
    return value
  end
  return nil
end
return build()
"#;
    /// What Lua makes of numbers: spelled, read back, rounded.
    NUMBERS "testkit.numbers" concat(&[TELL, r#"
local told = {}
for index = 1, #ARGV do
  local value = tonumber(ARGV[index])
  if value then
    told[index] = tell({
      tostring(value), value .. "", string.format("%.0f", value), string.format("%.17g", value),
      math.floor(value), math.ceil(value), value % 7, value * 3 / 2, value == math.floor(value),
      math.max(value, 0), -value, value > 9007199254740992, tonumber(tostring(value)) == value,
    })
  else
    told[index] = tell(false)
  end
end
return told
"#]);
    /// Everything there is to see of the keys.
    DUMP "testkit.dump" r#"
local told = {}
for index, key in ipairs(KEYS) do
  local kind = redis.call("TYPE", key).ok
  local held = false
  if kind == "string" then held = redis.call("GET", key) end
  if kind == "hash" then held = redis.call("HGETALL", key) end
  if kind == "list" then held = redis.call("LRANGE", key, 0, -1) end
  if kind == "set" then held = redis.call("SMEMBERS", key) end
  if kind == "zset" then held = redis.call("ZRANGE", key, 0, -1, "WITHSCORES") end
  told[index] = { kind, redis.call("PTTL", key), held }
end
return told
"#;
    /// Removes the keys.
    CLEAR "testkit.clear" r#"
local gone = 0
for _, key in ipairs(KEYS) do gone = gone + redis.call("DEL", key) end
return gone
"#;
}

fn concat(parts: &[&str]) -> &'static str {
    Box::leak(parts.concat().into_boxed_str())
}
