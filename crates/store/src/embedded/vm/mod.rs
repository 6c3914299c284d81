//! Lua 5.1 in process: compiles scripts once, runs them on the model, stops those that will not end.

mod binding;

#[cfg(test)]
mod tests;

use std::time::Duration;

use hashbrown::HashMap;

use self::binding::{Bound, Ended, Stop};
use super::model::{Fault, FaultClass, Model};
use crate::script::too_late;
use crate::{Code, Error, Reply, Result, Words};

/// The operation of errors that no caller has renamed yet.
pub(super) const OP: &str = "script.run";

/// Compiled scripts that are kept; more than any schema needs. Beyond it all are dropped and made anew.
const MAX_SCRIPTS: usize = 1024;

/// What one script may use before it is stopped and undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmLimits {
    /// Lua instructions; counted in steps of a hundred thousand.
    pub instructions: u64,
    /// Time on the wall; looked at every hundred thousand instructions.
    pub wall: Duration,
    /// Memory of the whole VM, in bytes.
    pub memory_bytes: usize,
    /// Bytes of all strings of one reply.
    pub reply_bytes: usize,
    /// Elements of one reply.
    pub reply_elements: usize,
}

impl Default for VmLimits {
    fn default() -> Self {
        Self {
            instructions: 500_000_000,
            wall: Duration::from_secs(2),
            memory_bytes: 256 << 20,
            reply_bytes: 64 << 20,
            reply_elements: 1 << 20,
        }
    }
}

/// A script to run. It is compiled once for each `sha`, which must be that of `source`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptRef<'a> {
    pub(crate) id: &'a str,
    pub(crate) sha: &'a str,
    pub(crate) source: &'a str,
}

/// One Lua state and the scripts compiled in it.
#[derive(Debug)]
pub(crate) struct Vm {
    bound: Bound,
    scripts: HashMap<Box<str>, binding::Compiled>,
}

impl Vm {
    pub(crate) fn new(limits: VmLimits) -> Result<Self> {
        let bound = Bound::new(limits).map_err(|error| {
            Error::new(OP, Code::Internal, "the Lua virtual machine could not be made").because(error)
        })?;
        Ok(Self { bound, scripts: HashMap::new() })
    }

    /// Runs a script on the model. The caller rolls the model back when this fails.
    pub(crate) fn run(
        &mut self,
        script: ScriptRef<'_>,
        keys: &Words,
        args: &Words,
        model: &mut Model,
    ) -> Result<Reply> {
        let compiled = match self.scripts.get(script.sha) {
            Some(compiled) => *compiled,
            None => self.compile(script)?,
        };
        self.bound.run(compiled, keys, args, model).map_err(|ended| failure(script, ended))
    }

    fn compile(&mut self, script: ScriptRef<'_>) -> Result<binding::Compiled> {
        if self.scripts.len() >= MAX_SCRIPTS {
            for (_, compiled) in self.scripts.drain() {
                self.bound.forget(compiled);
            }
        }
        let compiled =
            self.bound.compile(script.id, script.source).map_err(|ended| failure(script, ended))?;
        self.scripts.insert(script.sha.into(), compiled);
        Ok(compiled)
    }

    /// Whether a command panicked: what it left behind cannot be trusted.
    pub(crate) fn is_broken(&self) -> bool {
        self.bound.is_broken()
    }
}

fn failure(script: ScriptRef<'_>, ended: Ended) -> Error {
    let Fault { class, text } = ended.fault;
    let code = match (ended.stop, class) {
        (Stop::Endless, _) => Code::ScriptEndless,
        (Stop::Panicked, _) => Code::Internal,
        // A key that is not ours; the script looked before it wrote.
        (Stop::None, FaultClass::Malformed) => return Error::new(OP, Code::KeyMalformed, text),
        (Stop::None, FaultClass::Clock) => return Error::new(OP, Code::StoreClock, too_late(text)),
        (Stop::None, FaultClass::WrongType) => Code::KeyWrongType,
        (Stop::None, FaultClass::Full) => Code::StoreOom,
        (Stop::None, FaultClass::Other) => Code::ScriptFailed,
    };
    let place = match ended.line {
        0 => format!("(script {})", script.id),
        line => format!("(script {}, line {line})", script.id),
    };
    Error::new(OP, code, format!("{text} {place}"))
}
