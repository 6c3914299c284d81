//! The way of one call: pick a node, send, and decide what a failure allows.
//!
//! A call that certainly did not run is sent again for as long as its deadline lasts. A call whose reply was
//! lost is sent again only if it is [`Repeat::Safe`]; otherwise the caller hears that it may have run.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use redis::{Cmd, Pipeline, Value};

use crate::redis::Inner;
use crate::redis::cluster::Cluster;
use crate::redis::dial::Live;
use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::node::Node;
use crate::redis::options::Address;
use crate::{Code, Error, Invocation, Repeat, Reply, Result, Retry, Workload};

/// Redirects followed without a pause; more than this and the cluster is being rearranged.
const QUICK_REDIRECTS: u32 = 4;

/// Where calls go.
#[derive(Debug)]
pub(super) enum Route {
    Single(Arc<Node>),
    Cluster(Cluster),
}

impl Route {
    pub(super) fn node(&self, key: Option<&[u8]>) -> Result<Arc<Node>, Fault> {
        match self {
            Route::Single(node) => Ok(Arc::clone(node)),
            Route::Cluster(cluster) => cluster.node(key),
        }
    }
}

/// What is sent, in the three forms an attempt may need it.
pub(super) enum Request<'a> {
    /// A script: by its digest, or with its source when the node does not know it.
    Script(&'a Invocation),
    /// Any other command, safe to repeat.
    Plain(&'a Cmd),
}

/// How far the node is known not to know the script.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Digest,
    Load,
    Whole,
}

impl Inner {
    /// Runs a script within the deadline and counts it.
    pub(super) async fn run(&self, call: &Invocation) -> Result<Reply> {
        let started = Instant::now();
        let key = call.keys.word(0);
        let result = self.perform(&Request::Script(call), key, call.workload, call.repeat, started).await;
        self.settle(result, call.script.id, started).and_then(|value| reply(value, call.script.id))
    }

    /// Runs a command that may be repeated.
    pub(super) async fn ask(&self, op: &'static str, command: &Cmd, key: Option<&[u8]>) -> Result<Value> {
        let started = Instant::now();
        let request = Request::Plain(command);
        let result = self.perform(&request, key, Workload::Default, Repeat::Safe, started).await;
        self.settle(result, op, started)
    }

    /// Runs a command that may be repeated on one node of a cluster.
    pub(super) async fn ask_node(&self, op: &'static str, command: &Cmd, node: &Arc<Node>) -> Result<Value> {
        let started = Instant::now();
        let deadline = started + self.shared.options.deadline;
        let mut attempt = 0;
        let result = loop {
            let request = Request::Plain(command);
            let target = Some((Arc::clone(node), false));
            match self
                .attempt(&request, None, Workload::Default, deadline, Source::Digest, target, false)
                .await
            {
                Ok(value) => break Ok(value),
                Err(fault) if fault.then == Then::Report => break Err(fault),
                Err(fault) => {
                    attempt += 1;
                    let next = Instant::now() + self.shared.options.backoff.delay(attempt);
                    if next >= deadline {
                        break Err(fault);
                    }
                    self.shared.counters.retry();
                    tokio::time::sleep_until(next.into()).await;
                }
            }
        };
        self.settle(result, op, started)
    }

    fn settle(&self, result: Result<Value, Fault>, op: &'static str, started: Instant) -> Result<Value> {
        match result {
            Ok(value) => {
                self.shared.counters.success(started.elapsed());
                Ok(value)
            }
            Err(fault) => {
                // What the caller must put right is an answer; what the operator must is a failure.
                if fault.code.retry() == Retry::Useless {
                    self.shared.counters.success(started.elapsed());
                } else {
                    self.shared.counters.failure(started.elapsed());
                }
                Err(fault.into_error(op))
            }
        }
    }

    async fn perform(
        &self,
        request: &Request<'_>,
        key: Option<&[u8]>,
        workload: Workload,
        repeat: Repeat,
        started: Instant,
    ) -> Result<Value, Fault> {
        let options = &self.shared.options;
        let deadline = started + options.deadline;
        let mut source = Source::Digest;
        let mut redirect: Option<(Arc<Node>, bool)> = None;
        let (mut attempt, mut redirects) = (0, 0);
        loop {
            let asking = redirect.as_ref().is_some_and(|(_, asking)| *asking);
            let fault =
                match self.attempt(request, key, workload, deadline, source, redirect.take(), asking).await {
                    Ok(value) => return Ok(value),
                    Err(fault) => fault,
                };
            if fault.then == Then::Report || (fault.ran == Ran::Maybe && repeat == Repeat::Never) {
                return Err(fault);
            }
            let pause = match (&fault.then, &self.route) {
                (Then::LoadScript, _) if source != Source::Whole => {
                    source = if source == Source::Digest { Source::Load } else { Source::Whole };
                    continue;
                }
                (Then::LoadScript, _) => return Err(fault),
                (Then::Moved(to), Route::Cluster(cluster)) => {
                    cluster.suspect();
                    redirects += 1;
                    redirect = self.follow(cluster, to, key, false);
                    redirects > QUICK_REDIRECTS
                }
                (Then::Ask(to), Route::Cluster(cluster)) => {
                    redirects += 1;
                    redirect = self.follow(cluster, to, key, true);
                    redirects > QUICK_REDIRECTS
                }
                // A standalone client on a node of a cluster: nothing it can follow.
                (Then::Moved(_) | Then::Ask(_), Route::Single(_)) => {
                    let detail = format!("{}; the store is a cluster: use redis+cluster://", fault.detail);
                    return Err(Fault { code: Code::ConfigInvalid, detail, ..fault });
                }
                (_, Route::Cluster(cluster)) => {
                    cluster.suspect();
                    true
                }
                // Waiting for the new connection is the pause.
                (Then::Redial, Route::Single(_)) => attempt > 0,
                (_, Route::Single(_)) => true,
            };
            attempt += 1;
            self.shared.counters.retry();
            if pause {
                let next = Instant::now() + options.backoff.delay(attempt);
                if next >= deadline {
                    return Err(fault);
                }
                match &self.route {
                    // A new topology ends the pause early.
                    Route::Cluster(cluster) => {
                        let _ = tokio::time::timeout_at(next.into(), cluster.looked()).await;
                    }
                    Route::Single(_) => tokio::time::sleep_until(next.into()).await,
                }
            } else if Instant::now() >= deadline {
                return Err(fault);
            }
        }
    }

    fn follow(
        &self,
        cluster: &Cluster,
        to: &Address,
        key: Option<&[u8]>,
        asking: bool,
    ) -> Option<(Arc<Node>, bool)> {
        let from = cluster.node(key).ok()?.live_now(Workload::Default)?.place.clone();
        Some((cluster.at(to, &from), asking))
    }

    #[expect(clippy::too_many_arguments, reason = "one attempt is told everything the loop decided")]
    async fn attempt(
        &self,
        request: &Request<'_>,
        key: Option<&[u8]>,
        workload: Workload,
        deadline: Instant,
        source: Source,
        redirect: Option<(Arc<Node>, bool)>,
        asking: bool,
    ) -> Result<Value, Fault> {
        let options = &self.shared.options;
        let node = match redirect {
            Some((node, _)) => node,
            None => self.route.node(key)?,
        };
        // In a cluster the slot may find another owner meanwhile, so the wait for one node is short.
        let until = match &self.route {
            Route::Single(_) => deadline,
            Route::Cluster(_) => deadline.min(Instant::now() + options.backoff.base * 4),
        };
        let live = node.live(workload, until).await?;
        let sent = Instant::now();
        let limit = deadline.min(sent + options.pools.of(workload).response_timeout);
        let result = match tokio::time::timeout_at(limit.into(), send(&live, request, source, asking)).await {
            Ok(Ok(Value::ServerError(error))) => Err(Fault::server(&error)),
            Ok(Ok(value)) => {
                node.answered();
                return Ok(value);
            }
            Ok(Err(fault)) => Err(fault),
            Err(_) => {
                let fault = Fault::timed_out(&live.place.to_string());
                // Other replies came meanwhile: the server is slow, the connection is not dead.
                if live.heard_since(sent) { Err(Fault { then: Then::Wait, ..fault }) } else { Err(fault) }
            }
        };
        result.inspect_err(|fault| {
            if fault.then == Then::Redial {
                node.lose(&live, fault);
            }
        })
    }
}

async fn send(live: &Live, request: &Request<'_>, source: Source, asking: bool) -> Result<Value, Fault> {
    let call = match request {
        Request::Plain(command) if !asking => return live.send(command).await,
        Request::Script(call) if !asking && source == Source::Digest => {
            return live.send(&evalsha(call)).await;
        }
        Request::Script(call) => Some(call),
        Request::Plain(_) => None,
    };
    let mut pipeline = Pipeline::new();
    if let (Some(call), Source::Load) = (call, source) {
        // SCRIPT LOAD, not EVAL: what EVAL brings along may be evicted by newer servers.
        pipeline.cmd("SCRIPT").arg("LOAD").arg(call.script.source);
    }
    if asking {
        pipeline.cmd("ASKING");
    }
    match (request, source) {
        (Request::Plain(command), _) => pipeline.add_command((*command).clone()),
        (Request::Script(call), Source::Whole) => {
            pipeline.add_command(script("EVAL", call.script.source, call))
        }
        (Request::Script(call), _) => pipeline.add_command(evalsha(call)),
    };
    let mut replies = live.send_all(&pipeline, 1).await?;
    replies
        .pop()
        .ok_or_else(|| Fault::new(Code::StoreProtocol, Ran::Maybe, Then::Redial, "no reply in the pipeline"))
}

fn evalsha(call: &Invocation) -> Cmd {
    script("EVALSHA", call.script.sha, call)
}

fn script(verb: &str, what: &str, call: &Invocation) -> Cmd {
    let words = call.keys.len() + call.args.len();
    let bytes = verb.len() + what.len() + 8 + call.keys.byte_len() + call.args.byte_len();
    let mut command = Cmd::with_capacity(3 + words, bytes);
    command.arg(verb).arg(what).arg(call.keys.len());
    for word in call.keys.iter().chain(call.args.iter()) {
        command.arg(word);
    }
    command
}

/// A reply as the contract knows it; buffers move, nothing is copied.
fn reply(value: Value, op: &'static str) -> Result<Reply> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Bytes(Bytes::from(bytes)),
        Value::SimpleString(text) => Reply::Bytes(Bytes::from(text)),
        Value::Okay => Reply::Bytes(Bytes::from_static(b"OK")),
        Value::Array(parts) => {
            Reply::Array(parts.into_iter().map(|part| reply(part, op)).collect::<Result<_>>()?)
        }
        Value::ServerError(error) => return Err(Fault::server(&error).into_error(op)),
        other => {
            return Err(Error::new(
                op,
                Code::StoreProtocol,
                format!("a reply of a kind scripts do not give: {other:?}"),
            ));
        }
    })
}
