//! The one place where Rust and Lua meet through raw pointers.
//!
//! `redis.call` reads its arguments as slices straight from the Lua stack and pushes the answer straight
//! back; a call of two commands has no time for copies and handles. What keeps this sound:
//!
//! - Lua raises errors by `longjmp`. A function here that calls what may raise (anything that allocates in
//!   Lua) owns nothing with a destructor at that moment: buffers live in [`Context`], not on the stack.
//! - Nothing raises outside a protected call: [`Bound`] enters Lua only through `lua_pcall`, with a
//!   function that is already there and arguments that need no allocation.
//! - A Rust panic never crosses a Lua frame: commands run under `catch_unwind`.
//! - The model is reachable through [`Context::model`] only while [`Bound::run`] holds it by `&mut`.
#![expect(unsafe_code, reason = "the C interface of Lua is what this module wraps")]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use std::{ptr, slice};

use bytes::Bytes;
use mlua::ffi;
use mlua::ffi::lua_State;

use super::VmLimits;
use crate::embedded::model::commands;
use crate::embedded::model::{Fault, Model, Out, Part, write_float};
use crate::{Reply, Words};

/// How often the hook looks at the limits.
const HOOK_EVERY: c_int = 100_000;
/// Tables in tables of a reply.
const MAX_DEPTH: usize = 32;
/// Stack slots one level of reply conversion holds.
const SLOTS_PER_LEVEL: c_int = 3;
/// `%.17g` needs at most 24 bytes.
const NUMBER_LEN: usize = 32;
/// Kept for the next call; longer argument buffers are given back.
const KEEP_WORDS: usize = 1 << 12;

/// Why a script was ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    None,
    Endless,
    Panicked,
}

/// How a script failed.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) stop: Stop,
    pub(super) text: String,
    /// The script's line, 0 when unknown.
    pub(super) line: c_int,
}

/// A compiled script: its reference in Lua's registry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compiled(c_int);

/// What C functions need; at one address for as long as the state lives.
struct Context {
    limits: VmLimits,
    model: *mut Model,
    out: Out,
    words: Vec<&'static [u8]>,
    numbers: Vec<u8>,
    fault: Fault,
    job: Job,
    stop: Stop,
    line: c_int,
    /// Since the first time the hook fired in this script.
    started: Option<Instant>,
    fired: u64,
    refs: Refs,
    result: Result<Reply, String>,
}

/// What the protected entry function is to do.
#[derive(Clone, Copy)]
enum Job {
    Idle,
    Run { script: Compiled, keys: *const Words, args: *const Words },
    Compile { name: *const CStr, source: *const [u8] },
}

/// References in Lua's registry to what each run needs, so that getting it allocates nothing.
#[derive(Debug, Clone, Copy, Default)]
struct Refs {
    entry: c_int,
    handler: c_int,
    seen: c_int,
    globals: c_int,
    keys: c_int,
    argv: c_int,
    ok: c_int,
    err: c_int,
}

/// A Lua state with the sandbox in it.
pub(super) struct Bound {
    // Dropped first: closing the state must not find the context gone.
    lua: mlua::Lua,
    state: *mut lua_State,
    context: Box<std::cell::UnsafeCell<Context>>,
    memory_kib: c_int,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").field("used_memory", &self.lua.used_memory()).finish_non_exhaustive()
    }
}

// SAFETY: `lua` is Send (mlua's `send` feature); `state` points into it and is only used through `&mut self`;
// the raw pointers in the context are null or point at what one call borrows.
unsafe impl Send for Bound {}

/// The context's place in the registry, for the hook, which has no upvalues.
static CONTEXT_KEY: u8 = 0;

impl Bound {
    pub(super) fn new(limits: VmLimits) -> mlua::Result<Self> {
        let libraries = mlua::StdLib::STRING | mlua::StdLib::TABLE | mlua::StdLib::MATH;
        let lua = mlua::Lua::new_with(libraries, mlua::LuaOptions::new().catch_rust_panics(false))?;
        let memory_bytes = limits.memory_bytes;
        let context = Box::new(std::cell::UnsafeCell::new(Context {
            limits,
            model: ptr::null_mut(),
            out: Out::default(),
            words: Vec::new(),
            numbers: Vec::new(),
            fault: Fault::UNKNOWN,
            job: Job::Idle,
            stop: Stop::None,
            line: 0,
            started: None,
            fired: 0,
            refs: Refs::default(),
            result: Ok(Reply::Nil),
        }));
        let address = context.get();
        let mut state = ptr::null_mut();
        let mut refs = Refs::default();

        // SAFETY: exec_raw runs its closure in protected mode on a stack it guards; the closures own nothing.
        let functions: (mlua::Function, mlua::Function, mlua::Function) = unsafe {
            lua.exec_raw((), |lua_state| {
                state = lua_state;
                for function in [redis_call as ffi::lua_CFunction, redis_pcall, protected_call] {
                    ffi::lua_pushlightuserdata(lua_state, address.cast());
                    ffi::lua_pushcclosure(lua_state, function, 1);
                }
            })?
        };
        let (seen, globals): (mlua::Table, mlua::Table) =
            lua.load(include_str!("sandbox.lua")).set_name("=sandbox").call(functions)?;
        // SAFETY: as above; `seen` and `globals` lie at 1 and 2. `luaL_ref` pops what it refers to.
        unsafe {
            lua.exec_raw::<()>((seen, globals), |lua_state| {
                let reference = || ffi::luaL_ref(lua_state, ffi::LUA_REGISTRYINDEX);
                refs.globals = reference();
                refs.seen = reference();
                for (function, place) in
                    [(entry as ffi::lua_CFunction, &mut refs.entry), (note_line, &mut refs.handler)]
                {
                    ffi::lua_pushlightuserdata(lua_state, address.cast());
                    ffi::lua_pushcclosure(lua_state, function, 1);
                    *place = reference();
                }
                for (text, place) in [
                    (c"KEYS", &mut refs.keys),
                    (c"ARGV", &mut refs.argv),
                    (c"ok", &mut refs.ok),
                    (c"err", &mut refs.err),
                ] {
                    ffi::lua_pushliteral(lua_state, text);
                    *place = reference();
                }
                ffi::lua_pushlightuserdata(lua_state, (&raw const CONTEXT_KEY).cast_mut().cast());
                ffi::lua_pushlightuserdata(lua_state, address.cast());
                ffi::lua_rawset(lua_state, ffi::LUA_REGISTRYINDEX);
                ffi::lua_sethook(lua_state, Some(hook), ffi::LUA_MASKCOUNT, HOOK_EVERY);
            })?;
            (*address).refs = refs;
        }
        lua.gc_collect()?;
        lua.set_memory_limit(memory_bytes)?;
        let memory_kib = c_int::try_from(memory_bytes >> 10).unwrap_or(c_int::MAX);
        Ok(Self { lua, state, context, memory_kib })
    }

    pub(super) fn is_broken(&self) -> bool {
        // SAFETY: nothing else refers to the context while `&self` is held outside `enter`.
        unsafe { (*self.context.get()).stop == Stop::Panicked }
    }

    pub(super) fn compile(&mut self, name: &str, source: &str) -> Result<Compiled, Ended> {
        let refused = |text: &str| Ended { stop: Stop::None, text: text.to_owned(), line: 0 };
        // Precompiled chunks are not checked by Lua 5.1 and can crash it.
        if source.as_bytes().first() == Some(&ffi::LUA_SIGNATURE[0]) {
            return Err(refused("ERR Error compiling script: bytecode is not accepted"));
        }
        let name = std::ffi::CString::new(format!("@{name}"))
            .map_err(|_| refused("ERR Error compiling script: its name has a NUL"))?;
        let job = Job::Compile { name: name.as_c_str(), source: source.as_bytes() };
        match self.enter(job, ptr::null_mut())? {
            Reply::Int(reference) => Ok(Compiled(reference as c_int)),
            _ => Err(refused("ERR Error compiling script")),
        }
    }

    pub(super) fn forget(&mut self, script: Compiled) {
        // SAFETY: the reference came from `luaL_ref`; putting a number into the freed place of the registry,
        // which exists, allocates nothing.
        unsafe { ffi::luaL_unref(self.state, ffi::LUA_REGISTRYINDEX, script.0) }
    }

    pub(super) fn run(
        &mut self,
        script: Compiled,
        keys: &Words,
        args: &Words,
        model: &mut Model,
    ) -> Result<Reply, Ended> {
        self.enter(Job::Run { script, keys, args }, model)
    }

    /// Does `job` in protected mode. Whatever happens in there, this returns.
    fn enter(&mut self, job: Job, model: *mut Model) -> Result<Reply, Ended> {
        let state = self.state;
        let context = self.context.get();
        // SAFETY: `&mut self` makes this the only user of state and context. Pushing the entry function and
        // calling it need two stack slots, which a state at rest has, and no allocation; what is raised
        // inside ends at this `lua_pcall`.
        unsafe {
            (*context).job = job;
            (*context).model = model;
            (*context).stop = Stop::None;
            (*context).line = 0;
            (*context).started = None;
            (*context).fired = 0;
            ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, (*context).refs.entry);
            let status = ffi::lua_pcall(state, 0, 0, 0);
            (*context).job = Job::Idle;
            (*context).model = ptr::null_mut();
            let result = if status == ffi::LUA_OK {
                std::mem::replace(&mut (*context).result, Ok(Reply::Nil))
            } else {
                // Only memory can fail out here; the message is Lua's own.
                Err(error_text(state, &*context))
            };
            ffi::lua_settop(state, 0);
            // Lua 5.1 does not collect before it gives up for lack of memory: leave no heap of garbage
            // for the next script to trip over.
            if ffi::lua_gc(state, ffi::LUA_GCCOUNT, 0) > self.memory_kib / 2 {
                ffi::lua_gc(state, ffi::LUA_GCCOLLECT, 0);
            }
            let (stop, line) = ((*context).stop, (*context).line);
            match result {
                Ok(reply) if stop == Stop::None => Ok(reply),
                Ok(_) => Err(Ended { stop, text: "ERR the script was stopped".to_owned(), line }),
                Err(text) => Err(Ended { stop, text, line }),
            }
        }
    }
}

/// The context of a C function of ours.
///
/// # Safety
/// The running function must be a closure of ours whose first upvalue is the context.
unsafe fn context_of(state: *mut lua_State) -> *mut Context {
    unsafe { ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast() }
}

/// What [`Bound::enter`] calls in protected mode.
unsafe extern "C-unwind" fn entry(state: *mut lua_State) -> c_int {
    // SAFETY: pushed with the context as upvalue. `job` was set by `enter`, whose caller's borrows last until
    // it returns. No frame from here on owns anything while Lua may raise, see each.
    unsafe {
        let context = context_of(state);
        match (*context).job {
            Job::Run { script, keys, args } => run(state, context, script, keys, args),
            Job::Compile { name, source } => compile(state, context, name, source),
            Job::Idle => {}
        }
    }
    0
}

unsafe fn compile(state: *mut lua_State, context: *mut Context, name: *const CStr, source: *const [u8]) {
    // SAFETY: `name` and `source` outlive the call. `luaL_ref` may raise; nothing is owned here then.
    unsafe {
        let status = ffi::luaL_loadbuffer(state, source.cast::<c_char>(), source.len(), (*name).as_ptr());
        if status == ffi::LUA_OK {
            ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, (*context).refs.seen);
            ffi::lua_setfenv(state, -2);
            let reference = ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX);
            (*context).result = Ok(Reply::Int(i64::from(reference)));
        } else {
            let text = error_text(state, &*context);
            (*context).result = Err(format!("ERR Error compiling script: {text}"));
        }
    }
}

unsafe fn run(
    state: *mut lua_State,
    context: *mut Context,
    script: Compiled,
    keys: *const Words,
    args: *const Words,
) {
    // SAFETY: what may raise (growing the stack, tables, strings) comes before the reply is built, and until
    // then only numbers and pointers are held.
    unsafe {
        let refs = (*context).refs;
        ffi::luaL_checkstack(state, SLOTS_PER_LEVEL * MAX_DEPTH as c_int + 16, ptr::null());
        ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, refs.handler);
        let handler = ffi::lua_gettop(state);
        ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, script.0);
        ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, refs.globals);
        set_words(state, refs.keys, &*keys);
        set_words(state, refs.argv, &*args);
        ffi::lua_settop(state, -2);
        let status = ffi::lua_pcall(state, 0, 1, handler);
        // From here on nothing raises: strings are only read, tables only looked into, and the stack was
        // grown above.
        (*context).result = if status == ffi::LUA_OK {
            let mut budget = Budget::of(&(*context).limits);
            to_reply(state, refs, &mut budget, 0)
        } else {
            Err(error_text(state, &*context))
        };
    }
}

/// Fills a fresh `KEYS` or `ARGV` and puts it into the table on top of the stack. Fresh, because a script may
/// do anything with its table, and making one costs less than proving that it did not.
unsafe fn set_words(state: *mut lua_State, name: c_int, words: &Words) {
    // SAFETY: the stack has room (see `run`); only borrowed bytes are held when Lua may raise.
    unsafe {
        ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, name);
        ffi::lua_createtable(state, c_int::try_from(words.len()).unwrap_or(0), 0);
        for (index, word) in words.iter().enumerate() {
            ffi::lua_pushlstring_(state, word.as_ptr().cast(), word.len());
            ffi::lua_rawseti_(state, -2, index as c_int + 1);
        }
        ffi::lua_rawset(state, -3);
    }
}

/// The message handler: remembers where in the script the error came from, and leaves the error alone.
unsafe extern "C-unwind" fn note_line(state: *mut lua_State) -> c_int {
    // SAFETY: a closure with the context; `lua_Debug` is plain data which `lua_getinfo` fills.
    unsafe {
        let context = context_of(state);
        let mut debug: ffi::lua_Debug = std::mem::zeroed();
        let mut level = 0;
        while ffi::lua_getstack(state, level, &raw mut debug) != 0 {
            if ffi::lua_getinfo(state, c"Sl".as_ptr(), &raw mut debug) != 0 && debug.currentline > 0 {
                // Functions of the sandbox itself are not the script's.
                if *debug.source == b'@' as c_char {
                    (*context).line = debug.currentline;
                    break;
                }
            }
            level += 1;
        }
    }
    1
}

/// Fires every [`HOOK_EVERY`] instructions.
unsafe extern "C-unwind" fn hook(state: *mut lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: a hook may use the stack as a C function does. Nothing is owned when the error is raised.
    unsafe {
        ffi::lua_pushlightuserdata(state, (&raw const CONTEXT_KEY).cast_mut().cast());
        ffi::lua_rawget_(state, ffi::LUA_REGISTRYINDEX);
        let context: *mut Context = ffi::lua_touserdata(state, -1).cast();
        ffi::lua_settop(state, -2);
        if context.is_null() {
            return;
        }
        (*context).fired += 1;
        let started = *(*context).started.get_or_insert_with(Instant::now);
        let spent = (*context).fired.saturating_mul(HOOK_EVERY as u64);
        if spent > (*context).limits.instructions || started.elapsed() > (*context).limits.wall {
            (*context).stop = Stop::Endless;
        }
        if (*context).stop != Stop::None {
            raise_stop(state);
        }
    }
}

unsafe fn raise_stop(state: *mut lua_State) -> ! {
    // SAFETY: nothing is owned by the callers or here.
    unsafe {
        ffi::lua_pushliteral(state, c"ERR the script used too many instructions or too much time");
        ffi::lua_error(state)
    }
}

/// `pcall` that cannot swallow a stop.
unsafe extern "C-unwind" fn protected_call(state: *mut lua_State) -> c_int {
    // SAFETY: a closure with the context; owns nothing.
    unsafe {
        let context = context_of(state);
        ffi::luaL_checkany(state, 1);
        let status = ffi::lua_pcall(state, ffi::lua_gettop(state) - 1, ffi::LUA_MULTRET, 0);
        // The results may have filled the stack to the brim.
        ffi::luaL_checkstack(state, 2, ptr::null());
        if (*context).stop != Stop::None {
            raise_stop(state);
        }
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_insert(state, 1);
        ffi::lua_gettop(state)
    }
}

unsafe extern "C-unwind" fn redis_call(state: *mut lua_State) -> c_int {
    // SAFETY: registered as a closure with the context.
    unsafe {
        if command(state) == Verdict::Refused {
            ffi::lua_error(state);
        }
    }
    1
}

unsafe extern "C-unwind" fn redis_pcall(state: *mut lua_State) -> c_int {
    // SAFETY: registered as a closure with the context.
    unsafe { command(state) };
    1
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Answered,
    Refused,
    Panicked,
}

/// Runs one command and pushes its answer, or the error table.
unsafe fn command(state: *mut lua_State) -> Verdict {
    // SAFETY: `execute` returns before anything is pushed; from then on only plain data is held, and what is
    // pushed lies in the context.
    unsafe {
        let context = context_of(state);
        let verdict = execute(state, context);
        match verdict {
            Verdict::Answered => {
                ffi::luaL_checkstack(state, 8, ptr::null());
                let (parts, bytes) = ((*context).out.parts(), (*context).out.bytes());
                let mut at = 0;
                push_part(state, parts, bytes, &mut at);
            }
            Verdict::Refused => {
                let text = &(*context).fault.0;
                ffi::lua_createtable(state, 0, 1);
                ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, (*context).refs.err);
                ffi::lua_pushlstring_(state, text.as_ptr().cast(), text.len());
                ffi::lua_rawset(state, -3);
            }
            Verdict::Panicked => raise_stop(state),
        }
        verdict
    }
}

/// Reads the arguments where they lie and runs the command. Raises nothing.
unsafe fn execute(state: *mut lua_State, context: *mut Context) -> Verdict {
    // SAFETY: strings on the stack stay where they are until the function returns, and nothing in between
    // touches Lua; the slices are gone before that. `model` is set while a script runs. Numbers are written
    // into a buffer with room for all of them, so it does not move.
    unsafe {
        let context = &mut *context;
        let count = ffi::lua_gettop(state);
        context.words.clear();
        context.numbers.clear();
        context.numbers.reserve(NUMBER_LEN * count as usize);
        for index in 1..=count {
            let word = match ffi::lua_type(state, index) {
                ffi::LUA_TSTRING => {
                    let mut len = 0;
                    let text = ffi::lua_tolstring(state, index, &raw mut len);
                    slice::from_raw_parts(text.cast::<u8>(), len)
                }
                ffi::LUA_TNUMBER => {
                    let start = context.numbers.len();
                    write_float(ffi::lua_tonumber(state, index), &mut context.numbers);
                    slice::from_raw_parts(context.numbers.as_ptr().add(start), context.numbers.len() - start)
                }
                _ => {
                    context.fault =
                        Fault::text("ERR Lua redis lib command arguments must be strings or integers");
                    return Verdict::Refused;
                }
            };
            context.words.push(word);
        }
        if count == 0 {
            context.fault =
                Fault::text("ERR Please specify at least one argument for this redis.call() call");
            return Verdict::Refused;
        }
        let Some(model) = context.model.as_mut() else {
            context.fault = Fault::text("ERR no script is running");
            return Verdict::Refused;
        };
        let (words, out) = (&context.words, &mut context.out);
        let ran = catch_unwind(AssertUnwindSafe(|| commands::run(model, words, out)));
        context.words.clear();
        context.words.shrink_to(KEEP_WORDS);
        match ran {
            Ok(Ok(())) => Verdict::Answered,
            Ok(Err(fault)) => {
                context.fault = fault;
                Verdict::Refused
            }
            Err(_) => {
                context.stop = Stop::Panicked;
                Verdict::Panicked
            }
        }
    }
}

/// Pushes the part at `at` with all that belongs to it, as Redis converts replies for Lua.
unsafe fn push_part(state: *mut lua_State, parts: &[Part], bytes: &[u8], at: &mut usize) {
    // SAFETY: the caller has grown the stack; commands nest arrays no deeper than two. Only borrowed data is
    // held when Lua may raise.
    unsafe {
        let part = parts.get(*at).copied().unwrap_or(Part::Nil);
        *at += 1;
        match part {
            Part::Nil => ffi::lua_pushboolean(state, 0),
            Part::Int(value) => ffi::lua_pushnumber(state, value as f64),
            Part::Bulk(start, end) => {
                let text = bytes.get(start..end).unwrap_or_default();
                ffi::lua_pushlstring_(state, text.as_ptr().cast(), text.len());
            }
            Part::Status(word) => {
                ffi::lua_createtable(state, 0, 1);
                ffi::lua_pushlstring_(state, c"ok".as_ptr(), 2);
                ffi::lua_pushlstring_(state, word.as_ptr().cast(), word.len());
                ffi::lua_rawset(state, -3);
            }
            Part::Array(len) => {
                ffi::lua_createtable(state, c_int::try_from(len).unwrap_or(0), 0);
                for index in 1..=len {
                    push_part(state, parts, bytes, at);
                    ffi::lua_rawseti_(state, -2, index as c_int);
                }
            }
        }
    }
}

/// What a reply may still hold.
struct Budget {
    bytes: usize,
    elements: usize,
}

impl Budget {
    fn of(limits: &VmLimits) -> Self {
        Self { bytes: limits.reply_bytes, elements: limits.reply_elements }
    }
}

/// Converts the value on top of the stack and pops it, as Redis does. Raises nothing; needs
/// [`SLOTS_PER_LEVEL`] slots per level.
unsafe fn to_reply(
    state: *mut lua_State,
    refs: Refs,
    budget: &mut Budget,
    depth: usize,
) -> Result<Reply, String> {
    // SAFETY: `lua_tolstring` is called on strings only, which it does not convert; raw access runs no
    // metamethod; `run` has grown the stack for MAX_DEPTH levels.
    unsafe {
        let reply = match ffi::lua_type(state, -1) {
            ffi::LUA_TSTRING => bulk(state, budget),
            ffi::LUA_TNUMBER => Ok(Reply::Int(truncate(ffi::lua_tonumber(state, -1)))),
            ffi::LUA_TBOOLEAN if ffi::lua_toboolean(state, -1) != 0 => Ok(Reply::Int(1)),
            ffi::LUA_TTABLE if depth >= MAX_DEPTH => Err("ERR reached lua stack limit".to_owned()),
            ffi::LUA_TTABLE => table(state, refs, budget, depth),
            _ => Ok(Reply::Nil),
        };
        ffi::lua_settop(state, -2);
        reply
    }
}

unsafe fn table(
    state: *mut lua_State,
    refs: Refs,
    budget: &mut Budget,
    depth: usize,
) -> Result<Reply, String> {
    // SAFETY: as `to_reply`.
    unsafe {
        if let Some(text) = string_field(state, refs.err) {
            return Err(text);
        }
        ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, refs.ok);
        ffi::lua_rawget_(state, -2);
        if ffi::lua_type(state, -1) == ffi::LUA_TSTRING {
            let status = bulk(state, budget);
            ffi::lua_settop(state, -2);
            return status;
        }
        ffi::lua_settop(state, -2);
        let mut parts = Vec::with_capacity(ffi::lua_objlen(state, -1).min(budget.elements));
        for index in 1.. {
            ffi::lua_rawgeti_(state, -1, index);
            if ffi::lua_type(state, -1) == ffi::LUA_TNIL {
                ffi::lua_settop(state, -2);
                break;
            }
            match budget.elements.checked_sub(1) {
                Some(left) => budget.elements = left,
                None => {
                    ffi::lua_settop(state, -2);
                    return Err("ERR the reply has too many elements".to_owned());
                }
            }
            parts.push(to_reply(state, refs, budget, depth + 1)?);
        }
        Ok(Reply::Array(parts))
    }
}

unsafe fn bulk(state: *mut lua_State, budget: &mut Budget) -> Result<Reply, String> {
    // SAFETY: the value on top is a string; its bytes are copied before it is popped.
    unsafe {
        let mut len = 0;
        let text = ffi::lua_tolstring(state, -1, &raw mut len);
        budget.bytes = budget.bytes.checked_sub(len).ok_or("ERR the reply is too long")?;
        Ok(Reply::Bytes(Bytes::copy_from_slice(slice::from_raw_parts(text.cast(), len))))
    }
}

/// The string in a field of the table on top of the stack.
unsafe fn string_field(state: *mut lua_State, name: c_int) -> Option<String> {
    // SAFETY: as `to_reply`; pops what it pushes.
    unsafe {
        ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, name);
        ffi::lua_rawget_(state, -2);
        let text = top_text(state);
        ffi::lua_settop(state, -2);
        text
    }
}

unsafe fn top_text(state: *mut lua_State) -> Option<String> {
    // SAFETY: only a string is read, and copied.
    unsafe {
        if ffi::lua_type(state, -1) != ffi::LUA_TSTRING {
            return None;
        }
        let mut len = 0;
        let text = ffi::lua_tolstring(state, -1, &raw mut len);
        Some(String::from_utf8_lossy(slice::from_raw_parts(text.cast(), len)).into_owned())
    }
}

/// What the error value on top of the stack says: its `err`, or the string itself under Redis' `ERR`.
unsafe fn error_text(state: *mut lua_State, context: &Context) -> String {
    // SAFETY: as `to_reply`.
    unsafe {
        if ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
            return string_field(state, context.refs.err)
                .unwrap_or_else(|| "ERR the script raised a table without err".to_owned());
        }
        match top_text(state) {
            Some(text) if text.starts_with("ERR ") => text,
            Some(text) => format!("ERR {text}"),
            None => "ERR the script raised neither a string nor a table".to_owned(),
        }
    }
}

/// As a C cast on the machines Redis runs on: towards zero, and the lowest number for what does not fit.
fn truncate(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}
