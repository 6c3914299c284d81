//! What a script answers: Lua values become replies as Redis converts them. Nothing in here raises.

use std::ffi::c_int;
use std::slice;

use bytes::Bytes;
use mlua::ffi;
use mlua::ffi::lua_State;

use super::super::VmLimits;
use super::{Context, Refs, class_key};
use crate::Reply;
use crate::embedded::model::{Fault, FaultClass};

/// Tables in tables of a reply.
pub(super) const MAX_DEPTH: usize = 32;
/// Stack slots one level of conversion holds.
pub(super) const SLOTS_PER_LEVEL: c_int = 3;

/// What a reply may still hold.
pub(super) struct Budget {
    bytes: usize,
    elements: usize,
}

impl Budget {
    pub(super) fn of(limits: &VmLimits) -> Self {
        Self { bytes: limits.reply_bytes, elements: limits.reply_elements }
    }
}

/// Converts the value on top of the stack and pops it, as Redis does. Raises nothing; needs
/// [`SLOTS_PER_LEVEL`] slots per level.
pub(super) unsafe fn to_reply(
    state: *mut lua_State,
    refs: Refs,
    budget: &mut Budget,
    depth: usize,
) -> Result<Reply, Fault> {
    // SAFETY: `lua_tolstring` is called on strings only, which it does not convert; raw access runs no
    // metamethod; `run` has grown the stack for MAX_DEPTH levels.
    unsafe {
        let reply = match ffi::lua_type(state, -1) {
            ffi::LUA_TSTRING => bulk(state, budget),
            ffi::LUA_TNUMBER => Ok(Reply::Int(truncate(ffi::lua_tonumber(state, -1)))),
            ffi::LUA_TBOOLEAN if ffi::lua_toboolean(state, -1) != 0 => Ok(Reply::Int(1)),
            ffi::LUA_TTABLE if depth >= MAX_DEPTH => Err(Fault::text("ERR reached lua stack limit")),
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
) -> Result<Reply, Fault> {
    // SAFETY: as `to_reply`.
    unsafe {
        if let Some(fault) = error_table(state, refs) {
            return Err(fault);
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
                    return Err(Fault::text("ERR the reply has too many elements"));
                }
            }
            parts.push(to_reply(state, refs, budget, depth + 1)?);
        }
        Ok(Reply::Array(parts))
    }
}

unsafe fn bulk(state: *mut lua_State, budget: &mut Budget) -> Result<Reply, Fault> {
    // SAFETY: the value on top is a string; its bytes are copied before it is popped.
    unsafe {
        let mut len = 0;
        let text = ffi::lua_tolstring(state, -1, &raw mut len);
        budget.bytes = budget.bytes.checked_sub(len).ok_or(Fault::text("ERR the reply is too long"))?;
        Ok(Reply::Bytes(Bytes::copy_from_slice(slice::from_raw_parts(text.cast(), len))))
    }
}

/// What the table on top of the stack says in its `err`, if it has one.
unsafe fn error_table(state: *mut lua_State, refs: Refs) -> Option<Fault> {
    // SAFETY: as `to_reply`; pops what it pushes.
    unsafe {
        ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, refs.err);
        ffi::lua_rawget_(state, -2);
        let text = top_text(state);
        ffi::lua_settop(state, -2);
        let text = text?;
        ffi::lua_pushlightuserdata(state, class_key());
        ffi::lua_rawget_(state, -2);
        let class = (ffi::lua_type(state, -1) == ffi::LUA_TNUMBER).then(|| ffi::lua_tonumber(state, -1));
        ffi::lua_settop(state, -2);
        let refusals = [FaultClass::WrongType, FaultClass::Full];
        Some(match refusals.into_iter().find(|known| class == Some(f64::from(*known as u8))) {
            Some(class) => Fault { class, text: text.into() },
            None => Fault::raised(text),
        })
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
pub(super) unsafe fn raised(state: *mut lua_State, context: &Context) -> Fault {
    // SAFETY: as `to_reply`.
    unsafe {
        if ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
            return error_table(state, context.refs)
                .unwrap_or(Fault::text("ERR the script raised a table without err"));
        }
        let Some(text) = top_text(state) else {
            return Fault::text("ERR the script raised neither a string nor a table");
        };
        let has_code = text.starts_with("ERR ");
        let fault = Fault::raised(text);
        match fault.class {
            FaultClass::Other if !has_code => Fault::raised(format!("ERR {}", fault.text)),
            _ => fault,
        }
    }
}

/// As a C cast on the machines Redis runs on: towards zero, and the lowest number for what does not fit.
fn truncate(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}
