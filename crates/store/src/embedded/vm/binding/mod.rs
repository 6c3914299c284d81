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

mod calls;
mod replies;

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::time::Instant;

use mlua::ffi;
use mlua::ffi::lua_State;

use self::calls::{hook, protected_call, redis_call, redis_pcall};
use self::replies::{Budget, MAX_DEPTH, SLOTS_PER_LEVEL, raised, to_reply};
use super::VmLimits;
use crate::embedded::model::{Fault, Model, Out};
use crate::{Reply, Words};

/// How often the hook looks at the limits.
const HOOK_EVERY: c_int = 100_000;
/// `KEYS` and `ARGV` up to this length are used again.
const MAX_REUSED: usize = 16;

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
    pub(super) fault: Fault,
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
    /// Words that the last call left in `KEYS` and `ARGV`, if those tables may be used again.
    keys_left: Option<usize>,
    argv_left: Option<usize>,
    result: Result<Reply, Fault>,
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

/// Under which key an error table has the class of a command's refusal: an address, which no script can name.
static CLASS_KEY: u8 = 0;

fn class_key() -> *mut std::ffi::c_void {
    (&raw const CLASS_KEY).cast_mut().cast()
}

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
            keys_left: None,
            argv_left: None,
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
            lua.load(include_str!("../sandbox.lua")).set_name("=sandbox").call(functions)?;
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
        let refused = |text| Ended { stop: Stop::None, fault: Fault::text(text), line: 0 };
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
                Err(raised(state, &*context))
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
                Ok(_) => Err(Ended { stop, fault: Fault::text("ERR the script was stopped"), line }),
                Err(fault) => Err(Ended { stop, fault, line }),
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
            let text = raised(state, &*context).text;
            (*context).result = Err(Fault::raised(format!("ERR Error compiling script: {text}")));
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
        (*context).keys_left = set_words(state, refs.keys, (*context).keys_left, &*keys);
        (*context).argv_left = set_words(state, refs.argv, (*context).argv_left, &*args);
        ffi::lua_settop(state, -2);
        let status = ffi::lua_pcall(state, 0, 1, handler);
        // From here on nothing raises: strings are only read, tables only looked into, and the stack was
        // grown above.
        (*context).result = if status == ffi::LUA_OK {
            let mut budget = Budget::of(&(*context).limits);
            to_reply(state, refs, &mut budget, 0)
        } else {
            Err(raised(state, &*context))
        };
    }
}

/// Fills `KEYS` or `ARGV` in the table on top of the stack; how many words the next call will find there.
/// The table of the last call is used again if its script left it as it got it, with `left` words.
unsafe fn set_words(state: *mut lua_State, name: c_int, left: Option<usize>, words: &Words) -> Option<usize> {
    // SAFETY: the stack has room (see `run`); only borrowed bytes are held when Lua may raise.
    unsafe {
        ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, name);
        ffi::lua_rawget_(state, -2);
        let before = left.filter(|left| is_untouched(state, *left));
        if before.is_none() {
            ffi::lua_settop(state, -2);
            ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, name);
            ffi::lua_createtable(state, c_int::try_from(words.len()).unwrap_or(0), 0);
        }
        for (index, word) in words.iter().enumerate() {
            ffi::lua_pushlstring_(state, word.as_ptr().cast(), word.len());
            ffi::lua_rawseti_(state, -2, index as c_int + 1);
        }
        for index in words.len()..before.unwrap_or(0) {
            ffi::lua_pushnil(state);
            ffi::lua_rawseti_(state, -2, index as c_int + 1);
        }
        match before {
            Some(_) => ffi::lua_settop(state, -2),
            None => ffi::lua_rawset(state, -3),
        }
        // Looking through a long table costs more than making one.
        Some(words.len()).filter(|len| *len <= MAX_REUSED)
    }
}

/// Whether the table on top of the stack holds exactly the indexes 1 to `left` and has no metatable.
unsafe fn is_untouched(state: *mut lua_State, left: usize) -> bool {
    // SAFETY: pops what it pushes; walking an unchanged table raises nothing and allocates nothing.
    unsafe {
        if ffi::lua_getmetatable(state, -1) != 0 {
            ffi::lua_settop(state, -2);
            return false;
        }
        let mut found = 0;
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, -2) != 0 {
            ffi::lua_settop(state, -2);
            let is_index = ffi::lua_type(state, -1) == ffi::LUA_TNUMBER
                && (1.0..=left as f64).contains(&ffi::lua_tonumber(state, -1));
            if !is_index {
                ffi::lua_settop(state, -2);
                return false;
            }
            found += 1;
        }
        found == left
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
