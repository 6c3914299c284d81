//! The way of one call: pick a node, send, and decide what a failure allows.
//!
//! A call that certainly did not run is sent again for as long as its deadline lasts. A call whose reply was
//! lost is sent again only if it is [`Repeat::Safe`]; otherwise the caller hears that it may have run.

use std::sync::Arc;
use std::time::Instant;

use crate::redis::Inner;
use crate::redis::cluster::Cluster;
use crate::redis::dial::{Live, Place};
use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::node::Node;
use crate::redis::options::Address;
use crate::redis::resp;
use crate::{Class, Code, Invocation, Repeat, Reply, Result, Retry, Words, Workload};

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
    /// The same, and right behind it on its connection one whose reply nobody needs: it runs if the first one does.
    Followed(&'a Words, &'a Words),
}

/// How the next attempt goes.
#[derive(Default)]
struct Way {
    source: Source,
    /// A node other than the slot's owner as last known.
    redirect: Option<(Arc<Node>, Asking)>,
}

/// How the script is named: by its digest, loaded first, or, to a user that may not load, in full.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Source {
    #[default]
    Digest,
    Load,
    Whole,
}

/// Whether a node must be told that it was asked on purpose for a slot it does not own yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asking {
    No,
    Yes,
}

/// The calls that a plain command is compared with.
fn class_of(workload: Workload) -> Class {
    if workload == Workload::Bulk { Class::Bulk } else { Class::Single }
}

impl Inner {
    /// Runs a script within the deadline and counts it.
    pub(super) async fn run(&self, call: &Invocation) -> Result<Reply> {
        self.clock.check(call.script.id)?;
        let started = Instant::now();
        let key = call.keys.word(0);
        let result = self.perform(&Request::Script(call), key, call.workload, call.repeat, started).await;
        self.settle(result, call.script.id, call.class, started)
    }

    /// Runs a command that may be repeated.
    pub(super) async fn ask(&self, op: &'static str, command: &Words, key: Option<&[u8]>) -> Result<Reply> {
        self.ask_on(Workload::Default, op, command, key).await
    }

    /// The same on the connections of one workload.
    pub(super) async fn ask_on(
        &self,
        workload: Workload,
        op: &'static str,
        command: &Words,
        key: Option<&[u8]>,
    ) -> Result<Reply> {
        let started = Instant::now();
        let result = self.perform(&Request::Plain(command), key, workload, Repeat::Safe, started).await;
        self.settle(result, op, class_of(workload), started)
    }

    /// The same with a command that follows it on the same connection, whatever becomes of the caller.
    pub(super) async fn ask_followed(
        &self,
        workload: Workload,
        op: &'static str,
        (command, then): (&Words, &Words),
        key: &[u8],
    ) -> Result<Reply> {
        let (started, request) = (Instant::now(), Request::Followed(command, then));
        let result = self.perform(&request, Some(key), workload, Repeat::Safe, started).await;
        self.settle(result, op, class_of(workload), started)
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
            let way = Way { redirect: Some((Arc::clone(node), Asking::No)), ..Way::default() };
            match self.attempt(&request, None, Workload::Default, deadline, &way).await {
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
        // Whoever names a node looks through all of them: scans, facts, clocks.
        self.settle(result, op, Class::Compound, started)
    }

    /// Runs two commands that may be repeated on one connection to one node; says where that was. What the first one
    /// answers may be a refusal.
    pub(super) async fn ask_both(
        &self,
        op: &'static str,
        first: &Words,
        second: &Words,
        node: &Arc<Node>,
    ) -> Result<(Place, Result<Reply>, Reply)> {
        let started = Instant::now();
        let deadline = started + self.shared.options.deadline;
        let patience = self.shared.options.pools.default.response_timeout;
        let mut attempt = 0;
        let result = loop {
            let fault = match node.live(Workload::Default, deadline).await {
                Ok(live) => {
                    let until = deadline.min(Instant::now() + patience);
                    // Joined, they are posted in this order and share one round trip.
                    let (one, two) = tokio::join!(biased; live.send(first, until), live.send(second, until));
                    match two {
                        Ok(reply) => {
                            node.answered();
                            break Ok((live.place.clone(), one.map_err(|fault| fault.into_error(op)), reply));
                        }
                        Err(fault) => {
                            if fault.then == Then::Redial {
                                node.lose(&live, &fault);
                            }
                            fault
                        }
                    }
                }
                Err(fault) => fault,
            };
            attempt += 1;
            let next = Instant::now() + self.shared.options.backoff.delay(attempt);
            if fault.then == Then::Report || next >= deadline {
                break Err(fault);
            }
            self.shared.counters.retry();
            tokio::time::sleep_until(next.into()).await;
        };
        self.settle(result, op, Class::Compound, started)
    }

    fn settle<T>(
        &self,
        result: Result<T, Fault>,
        op: &'static str,
        class: Class,
        started: Instant,
    ) -> Result<T> {
        match result {
            Ok(reply) => {
                self.shared.counters.success(class, started);
                Ok(reply)
            }
            Err(fault) => {
                // What the caller must put right is an answer; what the operator must is a failure.
                if fault.code.retry() == Retry::Useless {
                    self.shared.counters.success(class, started);
                } else {
                    self.shared.counters.failure(class, fault.code, started);
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
        // An attempt that cannot be answered any more would only leave in doubt whether it ran.
        let last_start = deadline.checked_sub(options.deadline / 10).unwrap_or(deadline);
        let mut way = Way::default();
        let mut doubt: Option<Fault> = None;
        let (mut attempt, mut redirects) = (0, 0);
        loop {
            let fault = match self.attempt(request, key, workload, deadline, &way).await {
                Ok(reply) => return Ok(reply),
                Err(fault) => fault,
            };
            if fault.then == Then::Report || (fault.ran == Ran::Maybe && repeat == Repeat::Never) {
                return Err(told(fault, doubt));
            }
            if fault.ran == Ran::Maybe {
                doubt.get_or_insert_with(|| fault.clone());
            }
            way.redirect = None;
            let pause = match (&fault.then, &self.route) {
                (Then::LoadScript, _) => {
                    way.source = match way.source {
                        Source::Digest => Source::Load,
                        Source::Load => Source::Whole,
                        Source::Whole => return Err(told(fault, doubt)),
                    };
                    false
                }
                (Then::Moved(to), Route::Cluster(cluster)) => {
                    cluster.suspect();
                    redirects += 1;
                    way.redirect = follow(cluster, to, key, Asking::No);
                    redirects > QUICK_REDIRECTS
                }
                (Then::Ask(to), Route::Cluster(cluster)) => {
                    redirects += 1;
                    way.redirect = follow(cluster, to, key, Asking::Yes);
                    redirects > QUICK_REDIRECTS
                }
                // A standalone client on a node of a cluster: nothing it can follow.
                (Then::Moved(_) | Then::Ask(_), Route::Single(_)) => {
                    let detail = format!("{}; the store is a cluster: use redis+cluster://", fault.detail);
                    return Err(told(Fault { code: Code::ConfigInvalid, detail, ..fault }, doubt));
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
            let next = if pause { Instant::now() + options.backoff.delay(attempt) } else { Instant::now() };
            if next >= last_start {
                return Err(told(fault, doubt));
            }
            self.shared.counters.retry();
            match &self.route {
                _ if !pause => {}
                // A new topology ends the pause early.
                Route::Cluster(cluster) => {
                    let _ = tokio::time::timeout_at(next.into(), cluster.looked()).await;
                }
                Route::Single(_) => tokio::time::sleep_until(next.into()).await,
            }
        }
    }

    async fn attempt(
        &self,
        request: &Request<'_>,
        key: Option<&[u8]>,
        workload: Workload,
        deadline: Instant,
        way: &Way,
    ) -> Result<Reply, Fault> {
        let options = &self.shared.options;
        let node = match &way.redirect {
            Some((node, _)) => Arc::clone(node),
            None => self.route.node(key)?,
        };
        // In a cluster the slot may find another owner meanwhile, so the wait for one node is short.
        let until = match &self.route {
            Route::Single(_) => deadline,
            Route::Cluster(_) => deadline.min(Instant::now() + options.backoff.base * 4),
        };
        let live = node.live(workload, until).await?;
        let sent = Instant::now();
        let patience = options.pools.of(workload).response_timeout;
        let limit = deadline.min(sent + patience);
        let mut result = send(&live, request, limit, way).await;
        match &mut result {
            Ok(_) => node.answered(),
            // Other replies came meanwhile, or there was hardly any time to answer: the server is slow, the
            // connection is not dead.
            Err(fault)
                if fault.code == Code::StoreTimedOut
                    && (live.wire.heard_since(sent) || limit - sent < patience.min(options.deadline) / 2) =>
            {
                fault.then = Then::Wait;
            }
            Err(fault) if fault.then == Then::Redial => node.lose(&live, fault),
            Err(_) => {}
        }
        result
    }
}

/// The fault the caller hears. A call that may have run in an earlier attempt is not reported as one that
/// did not; a call that never left is not reported as one that may have.
fn told(fault: Fault, doubt: Option<Fault>) -> Fault {
    match doubt {
        Some(doubt) if fault.ran == Ran::No && fault.code.retry() != Retry::Useless => {
            Fault { detail: format!("{}; then {}", doubt.detail, fault.detail), ..doubt }
        }
        // The repetition was refused for good; what the first attempt did stays.
        Some(_) => Fault { ran: Ran::Maybe, ..fault },
        None if fault.ran == Ran::No => fault.before_sending(),
        _ => fault,
    }
}

fn follow(
    cluster: &Cluster,
    to: &Address,
    key: Option<&[u8]>,
    asking: Asking,
) -> Option<(Arc<Node>, Asking)> {
    let from = cluster.node(key).ok()?.live_now(Workload::Default)?.place.clone();
    Some((cluster.at(to, &from), asking))
}

async fn send(live: &Live, request: &Request<'_>, until: Instant, way: &Way) -> Result<Reply, Fault> {
    let source = way.source;
    let asking = matches!(way.redirect, Some((_, Asking::Yes)));
    let loads = source == Source::Load && matches!(request, Request::Script(_));
    let skip = usize::from(loads) + usize::from(asking);
    let trail = if matches!(request, Request::Followed(..)) { 1 + usize::from(asking) } else { 0 };
    let ask = |out: &mut Vec<u8>| {
        if asking {
            resp::begin(out, 1);
            resp::word(out, b"ASKING");
        }
    };
    let answer = live.wire.call_among(skip, trail, until, |out| {
        if let (Request::Script(call), true) = (request, loads) {
            // SCRIPT LOAD, not EVAL: what EVAL brings along may be evicted by newer servers.
            resp::begin(out, 3);
            resp::word(out, b"SCRIPT");
            resp::word(out, b"LOAD");
            resp::word(out, call.script.source.as_bytes());
        }
        ask(out);
        match (request, source) {
            (Request::Plain(command), _) => resp::command(out, command),
            (Request::Followed(command, then), _) => {
                resp::command(out, command);
                ask(out);
                resp::command(out, then);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: Code, ran: Ran) -> Fault {
        Fault::new(code, ran, Then::Redial, "x")
    }

    #[test]
    fn what_the_caller_hears_is_true_of_all_attempts() {
        let heard = |last, doubt: Option<Fault>| {
            let in_doubt = doubt.is_some();
            let told = told(last, doubt);
            assert!(!in_doubt || told.ran == Ran::Maybe, "{told:?}");
            told.code
        };
        let lost = || Some(fault(Code::StoreLost, Ran::Maybe));
        // It never left: it did not run, whatever ended the connection.
        assert_eq!(heard(fault(Code::StoreLost, Ran::No), None), Code::StoreRefused);
        assert_eq!(heard(fault(Code::StoreLoading, Ran::No), None), Code::StoreLoading);
        // It may have run before the store went away for good.
        assert_eq!(heard(fault(Code::StoreRefused, Ran::No), lost()), Code::StoreLost);
        assert_eq!(heard(fault(Code::StoreBreaker, Ran::No), lost()), Code::StoreLost);
        assert_eq!(heard(fault(Code::StoreProtocol, Ran::No), lost()), Code::StoreLost);
        // The repetition was answered: that is the answer.
        assert_eq!(heard(fault(Code::KeyWrongType, Ran::No), lost()), Code::KeyWrongType);
        assert_eq!(heard(fault(Code::StoreTimedOut, Ran::Maybe), lost()), Code::StoreTimedOut);
    }
}
