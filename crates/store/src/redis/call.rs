//! The way of one call: pick a node, send, and decide what a failure allows.
//!
//! A call that certainly did not run is sent again for as long as its deadline lasts. A call whose reply was
//! lost is sent again only if it is [`Repeat::Safe`]; otherwise the caller hears that it may have run.

use std::sync::Arc;
use std::time::Instant;

use crate::redis::Inner;
use crate::redis::cluster::Cluster;
use crate::redis::dial::Live;
use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::node::Node;
use crate::redis::options::Address;
use crate::redis::resp;
use crate::{Code, Invocation, Repeat, Reply, Result, Retry, Words, Workload};

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

/// What is sent.
pub(super) enum Request<'a> {
    /// A script: by its digest, or with its source when the node does not know it.
    Script(&'a Invocation),
    /// Any other command, safe to repeat.
    Plain(&'a Words),
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
        self.settle(result, call.script.id, started)
    }

    /// Runs a command that may be repeated.
    pub(super) async fn ask(&self, op: &'static str, command: &Words, key: Option<&[u8]>) -> Result<Reply> {
        let started = Instant::now();
        let request = Request::Plain(command);
        let result = self.perform(&request, key, Workload::Default, Repeat::Safe, started).await;
        self.settle(result, op, started)
    }

    /// Runs a command that may be repeated on one node of a cluster.
    pub(super) async fn ask_node(
        &self,
        op: &'static str,
        command: &Words,
        node: &Arc<Node>,
    ) -> Result<Reply> {
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
                Ok(reply) => break Ok(reply),
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

    fn settle(&self, result: Result<Reply, Fault>, op: &'static str, started: Instant) -> Result<Reply> {
        match result {
            Ok(reply) => {
                self.shared.counters.success(started.elapsed());
                Ok(reply)
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
    ) -> Result<Reply, Fault> {
        let options = &self.shared.options;
        let deadline = started + options.deadline;
        let mut source = Source::Digest;
        let mut redirect: Option<(Arc<Node>, bool)> = None;
        let (mut attempt, mut redirects) = (0, 0);
        loop {
            let asking = redirect.as_ref().is_some_and(|(_, asking)| *asking);
            let fault =
                match self.attempt(request, key, workload, deadline, source, redirect.take(), asking).await {
                    Ok(reply) => return Ok(reply),
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
    ) -> Result<Reply, Fault> {
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
        let mut result = send(&live, request, limit, source, asking).await;
        match &mut result {
            Ok(_) => node.answered(),
            // Other replies came meanwhile: the server is slow, the connection is not dead.
            Err(fault) if fault.code == Code::StoreTimedOut && live.wire.heard_since(sent) => {
                fault.then = Then::Wait
            }
            Err(_) => {}
        }
        result.inspect_err(|fault| {
            if fault.then == Then::Redial {
                node.lose(&live, fault);
            }
        })
    }
}

async fn send(
    live: &Live,
    request: &Request<'_>,
    until: Instant,
    source: Source,
    asking: bool,
) -> Result<Reply, Fault> {
    let loads = source == Source::Load && matches!(request, Request::Script(_));
    let skip = usize::from(loads) + usize::from(asking);
    let answer = live.wire.call(skip, until, |out| {
        if let (Request::Script(call), true) = (request, loads) {
            // SCRIPT LOAD, not EVAL: what EVAL brings along may be evicted by newer servers.
            resp::begin(out, 3);
            resp::word(out, b"SCRIPT");
            resp::word(out, b"LOAD");
            resp::word(out, call.script.source.as_bytes());
        }
        if asking {
            resp::begin(out, 1);
            resp::word(out, b"ASKING");
        }
        match (request, source) {
            (Request::Plain(command), _) => resp::command(out, command),
            (Request::Script(call), Source::Whole) => script(out, "EVAL", call.script.source, call),
            (Request::Script(call), _) => script(out, "EVALSHA", call.script.sha, call),
        }
    });
    Live::heard(answer.await?)
}

fn script(out: &mut Vec<u8>, verb: &str, what: &str, call: &Invocation) {
    resp::begin(out, 3 + call.keys.len() + call.args.len());
    resp::word(out, verb.as_bytes());
    resp::word(out, what.as_bytes());
    resp::word(out, itoa::Buffer::new().format(call.keys.len()).as_bytes());
    for word in call.keys.iter().chain(call.args.iter()) {
        resp::word(out, word);
    }
}
