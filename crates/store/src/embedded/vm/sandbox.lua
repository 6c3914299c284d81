-- Builds what a script sees, once per VM: `seen` is the environment of every script, `globals` is what it
-- finds there. `seen` itself stays empty and cannot be reached, so nothing a script does outlives it.
local call, pcall_command, protected_call = ...

local function sealed(library)
  local proxy = newproxy(true)
  local meta = getmetatable(proxy)
  meta.__index = library
  meta.__metatable = false
  meta.__newindex = function(_, name)
    error("Attempt to modify a readonly table: '" .. tostring(name) .. "'", 2)
  end
  return proxy
end

-- A string's methods are reached through its metatable: nobody may replace them.
getmetatable("").__metatable = false
string.dump = nil
math.random, math.randomseed = nil, nil

local function reply(field, what)
  return function(text)
    if type(text) ~= "string" then
      error("wrong number or type of arguments", 2)
    end
    if what and not string.find(text, "^-?[A-Z][A-Z]+ ") then
      text = what .. string.gsub(text, "^-", "")
    end
    return { [field] = text }
  end
end

local globals = {
  _VERSION = _VERSION,
  assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next, pairs = pairs,
  pcall = protected_call, rawequal = rawequal, rawget = rawget, select = select, setmetatable = setmetatable,
  tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
  math = sealed(math), string = sealed(string), table = sealed(table),
  redis = sealed({
    call = call, pcall = pcall_command,
    error_reply = reply("err", "ERR "), status_reply = reply("ok"),
  }),
  KEYS = {}, ARGV = {},
}
setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
local seen = setmetatable({}, {
  __index = globals,
  __metatable = false,
  __newindex = function(_, name)
    error("Script attempted to create global variable '" .. tostring(name) .. "'", 2)
  end,
})
return seen, globals
