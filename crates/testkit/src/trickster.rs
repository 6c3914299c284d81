//! A store that runs scripts or does not, and says something else of it: what a connection does to a Redis, for any store.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use quaymaster_store::{Code, Engine, Error, Invocation, Reply, Result};

use crate::passing::passes_on;

/// What happens to a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trick {
    /// It runs, and the reply is lost.
    Lose,
    /// It does not run: the store refuses connections.
    Refuse,
    /// It does not run: the store is out of memory.
    Full,
    /// It runs, and this word is said in place of its reply.
    Say(&'static str),
    /// It runs and fails half-way, as a store without an undo list tells it.
    Half,
    /// It fails and changes nothing, as a store with one tells it.
    Fail,
}

#[derive(Debug, Clone, Copy)]
struct Order {
    trick: Trick,
    /// It is for this script; for any if there is none.
    of: Option<&'static str>,
    /// Scripts that still pass before it.
    after: u64,
}

#[derive(Debug, Default)]
struct State {
    order: Option<Order>,
    scripts: u64,
    played: u64,
}

/// Passes everything on but the script that a trick is for.
#[derive(Debug)]
pub struct Trickster {
    inner: Arc<dyn Engine>,
    state: Mutex<State>,
}

impl Trickster {
    /// In front of `inner`, still honest.
    pub fn new(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::default() })
    }

    /// The script after the next `after` ones meets `trick`; those behind it pass.
    pub fn play(&self, trick: Trick, after: u64) {
        self.state.lock().order = Some(Order { trick, of: None, after });
    }

    /// The same for the scripts of one operation, `upload.accept`.
    pub fn play_on(&self, trick: Trick, operation: &'static str, after: u64) {
        self.state.lock().order = Some(Order { trick, of: Some(operation), after });
    }

    /// Everything passes again.
    pub fn heal(&self) {
        self.state.lock().order = None;
    }

    /// Scripts asked for since the last time this was asked.
    pub fn scripts(&self) -> u64 {
        std::mem::take(&mut self.state.lock().scripts)
    }

    /// Tricks played since the last time this was asked.
    pub fn played(&self) -> u64 {
        std::mem::take(&mut self.state.lock().played)
    }

    fn trick(&self, operation: &str) -> Option<Trick> {
        let mut state = self.state.lock();
        state.scripts += 1;
        let order = state.order.as_mut().filter(|order| order.of.is_none_or(|of| of == operation))?;
        if order.after > 0 {
            order.after -= 1;
            return None;
        }
        let trick = order.trick;
        state.order = None;
        state.played += 1;
        Some(trick)
    }
}

impl Engine for Trickster {
    fn run(&self, call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        let id = call.script.id;
        let trick = self.trick(id);
        let told = move |code, ran| Err(Error::new(id, code, "so it is told on purpose").ran(ran));
        Box::pin(async move {
            match trick {
                Some(Trick::Refuse) => return told(Code::StoreRefused, false),
                Some(Trick::Full) => return told(Code::StoreOom, false),
                Some(Trick::Fail) => return told(Code::ScriptFailed, false),
                Some(Trick::Lose | Trick::Say(_) | Trick::Half) | None => {}
            }
            let reply = self.inner.run(call).await;
            match trick {
                Some(Trick::Lose) => told(Code::StoreLost, true),
                Some(Trick::Half) => told(Code::ScriptFailed, true),
                Some(Trick::Say(word)) => {
                    Ok(Reply::Array(vec![Reply::Bytes(Bytes::from_static(word.as_bytes()))]))
                }
                _ => reply,
            }
        })
    }
    passes_on!(now_us key_facts rest);
}
