//! What a script calls: `redis.call`, `redis.pcall`, `pcall`, and the hook that ends what does not end.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use std::{ptr, slice};

use mlua::ffi;
use mlua::ffi::lua_State;

use super::{CONTEXT_KEY, Context, HOOK_EVERY, Stop, class_key, context_of};
use crate::embedded::model::{Fault, Part, commands, write_float};

/// `%.17g` needs at most 24 bytes.
const NUMBER_LEN: usize = 32;
/// Kept for the next call; longer argument buffers are given back.
const KEEP_WORDS: usize = 1 << 12;

/// Fires every [`HOOK_EVERY`] instructions.
pub(super) unsafe extern "C-unwind" fn hook(state: *mut lua_State, _: *mut ffi::lua_Debug) {
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
pub(super) unsafe extern "C-unwind" fn protected_call(state: *mut lua_State) -> c_int {
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

pub(super) unsafe extern "C-unwind" fn redis_call(state: *mut lua_State) -> c_int {
    // SAFETY: registered as a closure with the context.
    unsafe {
        if command(state) == Verdict::Refused {
            ffi::lua_error(state);
        }
    }
    1
}

pub(super) unsafe extern "C-unwind" fn redis_pcall(state: *mut lua_State) -> c_int {
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
                let Fault { class, text } = &(*context).fault;
                ffi::lua_createtable(state, 0, 2);
                ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, (*context).refs.err);
                ffi::lua_pushlstring_(state, text.as_ptr().cast(), text.len());
                ffi::lua_rawset(state, -3);
                ffi::lua_pushlightuserdata(state, class_key());
                ffi::lua_pushnumber(state, f64::from(*class as u8));
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
