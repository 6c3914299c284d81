//! The calls under `/v1/<kind>/<name>/<verb>`: one table, one function each.

pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod dedupe;
pub(crate) mod event;
pub(crate) mod guard;
pub(crate) mod idempotency;
pub(crate) mod limit;
pub(crate) mod lock;
mod operation;
pub(crate) mod queue;
pub(crate) mod run;
pub(crate) mod stats;
pub(crate) mod upload;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quaymaster::Token;
use quaymaster::schema::{self, Kind, Outage};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::value::RawValue;

pub(crate) use operation::{
    AnswerSchema, Answers, Handler, OPERATIONS, Open, Opening, Operation, Streamed, Takes, find, find_at,
    verbs,
};

use crate::access::Note;
use crate::command::{Fields, Progress};
use crate::http::presence::Presence;
use crate::http::problem::Problem;
use crate::http::rights::Rights;
use crate::request::{self, Request, Shape};
use crate::services::Services;

/// Whether a call only looks. Decides its method, where its input is, and the role it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// `GET`, input in the query.
    Reads,
    /// `POST`, input in a JSON body.
    Writes,
}

/// What a call was given.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// The resource's name.
    pub(crate) name: &'a str,
    pub(crate) given: Given<'a>,
    /// What the caller may do.
    pub(crate) rights: Rights<'a>,
    /// What resources declare.
    pub(crate) schema: &'a schema::Schema,
    /// The policy that answered while the store could not be asked; becomes a header.
    pub(crate) outage: &'a OnceLock<Outage>,
    /// Whoever waits for the answer.
    pub(crate) caller: &'a Presence,
    /// Told how far a long call has come, where somebody watches.
    pub(crate) progress: Option<Progress<'a>>,
    /// Told what the request says, where it is logged.
    pub(crate) note: Option<&'a Note>,
}

/// A request, as it came.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    /// A query, still encoded.
    Query(&'a str),
    /// A body, and how deep it may nest.
    Body(&'a [u8], usize),
    /// The key and the other fields one by one, from a command line.
    Named(&'a [(String, String)], &'a Fields),
}

impl<'a> Input<'a> {
    /// Reads the request, and refuses one that names resources out of the caller's reach.
    pub(crate) fn read<T: Request<'a>>(&self) -> Result<T, Problem> {
        let slots = match self.given {
            Given::Query(query) => request::query::query(T::SHAPE, query)?,
            Given::Body(body, max_depth) => request::read::body(T::SHAPE, body, max_depth)?,
            Given::Named(key, fields) => request::read::named(T::SHAPE, key, fields)?,
        };
        if !self.rights.reach_all() {
            request::touched::check(&slots, self.rights, self.schema)?;
        }
        if let Some(note) = self.note {
            note.read(&slots);
        }
        T::of(slots)
    }

    /// Notes the policy that answered, if one did; its name is the answer's `outage`.
    pub(crate) fn under(&self, policy: Option<Outage>) -> Option<&'static str> {
        let policy = policy?;
        Some(self.outage.get_or_init(|| policy).name())
    }

    /// Tells whoever watches that so many are done.
    pub(crate) fn done(&self, count: u64) {
        if let Some(progress) = self.progress {
            progress(count);
        }
    }
}

/// A call's answer: JSON.
pub(crate) type Answer = Result<Bytes, Problem>;

type Run = for<'a> fn(&'a Services, Input<'a>) -> BoxFuture<'a, Answer>;

impl Call {
    /// Whether this answer of it, as it is written in JSON, is a "no".
    pub(crate) fn is_no(&self, answer: &str) -> bool {
        if self.row.no == No::Never {
            return false;
        }
        let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(answer).unwrap_or_default();
        self.row.no.is_said(|field| fields.get(field).map(|value| value.get()))
    }

    /// Runs it; its errors are [`honest`].
    pub(crate) async fn answer<'a>(&'a self, services: &'a Services, input: Input<'a>) -> Answer {
        let answer = honest(self.kind, self.effect, (self.run)(services, input)).await;
        answer.map_err(|problem| self.own_field(problem))
    }

    /// The same with the field as this call names it.
    fn own_field(&self, problem: Problem) -> Problem {
        match problem.field.as_deref().and_then(|field| field.strip_prefix("key")) {
            // Values of a run's key are fields of their own: its id, a task's.
            Some(value) if self.kind == Kind::Run => {
                let fields = self.row.request.fields;
                let own = fields.iter().find(|field| value.strip_prefix('.') == Some(field.name));
                problem.field(own.map_or("run_id", |field| field.name))
            }
            _ => problem,
        }
    }
}

/// Runs a call or a route to its end. An error after a step that wrote says that it may have run; one of a call that
/// only looks never does.
pub(crate) async fn honest<T>(
    kind: Kind,
    effect: Effect,
    run: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let (answer, wrote) = quaymaster::watched(run).await;
    answer.map_err(|problem| {
        // An upload's database and object store are written before the store is asked.
        let elsewhere = kind == Kind::Upload && problem.code.http_status() >= 500;
        match effect {
            Effect::Reads => problem.only_read(),
            Effect::Writes if elsewhere || wrote.doubts(problem.code) => problem.may_have_run(),
            Effect::Writes => problem,
        }
    })
}

/// One call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) verb: &'static str,
    /// `limit.take`, as errors and OpenAPI name it.
    pub(crate) id: &'static str,
    pub(crate) effect: Effect,
    /// The path as OpenAPI and metrics name it.
    pub(crate) template: &'static str,
    /// What it does, in one line.
    pub(crate) about: &'static str,
    /// What it is given and what it answers.
    pub(crate) row: Row,
    pub(crate) run: Run,
}

/// What everybody can know of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) request: &'static Shape,
    /// The schema of its answer.
    pub(crate) answer: AnswerSchema,
    pub(crate) needs: Needs,
    /// What the answer shows, of a call that needs only the role `read`.
    pub(crate) shows: Option<Shows>,
    pub(crate) reaches: Reaches,
    pub(crate) repeat: Repeat,
    pub(crate) no: No,
    /// Statuses that only some calls answer with, and when.
    pub(crate) refusals: &'static [(u16, &'static str)],
    /// How it is answered with events; most calls are not.
    pub(crate) streamed: Option<Streamed>,
}

/// Of calls whose fields can ask for something that the schema does not declare.
pub(crate) const MISMATCH: (u16, &str) = (422, "the schema does not declare the resource for this");

/// The role that a call needs.
pub(crate) use crate::http::rights::Role as Needs;

/// What the answer of a call that only looks has in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    /// Counts, times, names: also those of a run's items, and what describes an upload.
    Facts,
    /// What programs have stored. Of a `sensitive` resource only those may see it who may also store it.
    Values,
}

/// The role that [`Shows::Values`] needs on a `sensitive` resource.
pub(crate) const SENSITIVE: Needs = Needs::Write;

/// Which resources a call writes beside the one it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaches {
    /// None but those that its request names.
    Named,
    /// Also those that the resource's declaration names: a guard's parts, a batch's queue, where results go.
    Declared,
}

/// Whether a call may be sent again when its answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Always: the second one changes nothing.
    Safe,
    /// With the `request_id` it carried.
    WithRequestId,
}

/// Which answers are a "no".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum No {
    /// None.
    Never,
    /// Those whose field is this truth.
    Truth(&'static str, bool),
    /// Those whose field is one of these words.
    Words(&'static str, &'static [&'static str]),
    /// Those whose field is more than 0.
    Some(&'static str),
    /// Those whose list is empty.
    Empty(&'static str),
}

impl No {
    /// Whether this answer is one.
    /// `answer` gives a field as it is written in JSON.
    pub(crate) fn is_said<'a>(self, answer: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Never => false,
            Self::Truth(field, truth) => answer(field) == Some(if truth { "true" } else { "false" }),
            Self::Words(field, words) => {
                answer(field).is_some_and(|word| words.contains(&word.trim_matches('"')))
            }
            Self::Some(field) => answer(field).is_some_and(|count| count != "0"),
            Self::Empty(field) => answer(field) == Some("[]"),
        }
    }
}

/// A call: `call!(Limit "limit" "take", Writes, LimitCharge => LimitAnswer, take, "Count a call if it may go ahead")`.
macro_rules! call {
    ($kind:ident $word:literal $verb:literal, $effect:ident, $request:ident => $answer:ty, $run:path, $about:literal
        $(, $field:ident: $value:expr)* $(,)?) => {
        $crate::call::Call {
            kind: quaymaster::schema::Kind::$kind,
            verb: $verb,
            id: concat!($word, ".", $verb),
            effect: $crate::call::Effect::$effect,
            template: concat!("/v1/", $word, "/{name}/", $verb),
            about: $about,
            row: $crate::call::Row {
                $($field: $value,)*
                ..$crate::call::Row::of(
                    $crate::call::Effect::$effect,
                    <$request<'static> as $crate::request::Request<'static>>::SHAPE,
                    |generator| generator.subschema_for::<$answer>(),
                )
            },
            run: |services, input| futures_util::FutureExt::boxed($run(services, input)),
        }
    };
}
pub(crate) use call;

impl Row {
    /// What most calls are.
    pub(crate) const fn of(effect: Effect, request: &'static Shape, answer: AnswerSchema) -> Self {
        let (needs, repeat) = match effect {
            Effect::Reads => (Needs::Read, Repeat::Safe),
            Effect::Writes => (Needs::Write, Repeat::WithRequestId),
        };
        Self {
            request,
            answer,
            needs,
            shows: None,
            reaches: Reaches::Named,
            repeat,
            no: No::Never,
            refusals: &[],
            streamed: None,
        }
    }
}

/// The calls of every file, in the order in which they are told.
const FILES: &[&[Call]] = &[
    limit::CALLS,
    lock::CALLS,
    idempotency::CALLS,
    cache::CALLS,
    dedupe::CALLS,
    guard::CALLS,
    batch::CALLS,
    event::CALLS,
    queue::push::CALLS,
    queue::claim::CALLS,
    queue::settle::CALLS,
    queue::state::CALLS,
    queue::scores::CALLS,
    queue::dead::CALLS,
    run::state::CALLS,
    run::work::CALLS,
    run::failures::CALLS,
    stats::CALLS,
    upload::create::CALLS,
    upload::state::CALLS,
    upload::events::CALLS,
];

/// Every call on a resource.
pub(crate) static CALLS: [Call; count()] = all();

const fn count() -> usize {
    let (mut count, mut file) = (0, 0);
    while file < FILES.len() {
        count += FILES[file].len();
        file += 1;
    }
    count
}

/// The lists of [`FILES`], one behind the other.
const fn all() -> [Call; count()] {
    let mut all = [FILES[0][0]; count()];
    let (mut place, mut file) = (0, 0);
    while file < FILES.len() {
        let mut row = 0;
        while row < FILES[file].len() {
            all[place] = FILES[file][row];
            place += 1;
            row += 1;
        }
        file += 1;
    }
    all
}

/// Borrows owned pairs the way primitives take them.
pub(crate) fn pairs<'a>(
    values: &'a [(Cow<'_, str>, Cow<'_, str>)],
) -> smallvec::SmallVec<[(&'a str, &'a str); 4]> {
    values.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect()
}

/// An answer as it is sent.
pub(crate) fn written(answer: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(160);
    // Texts, numbers and JSON that was read as JSON cannot fail to be written into memory.
    let _ = serde_json::to_writer(&mut out, answer);
    Bytes::from(out)
}

/// What a lease's call answered, handed in again.
pub(crate) fn token(op: &'static str, text: &str) -> Result<Token, Problem> {
    Token::parse(op, text).map_err(|error| Problem::from(error).field("token"))
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The schema of the policies that can answer while the store cannot be asked.
pub(crate) struct Policy;

impl JsonSchema for Policy {
    fn schema_name() -> Cow<'static, str> {
        "OutagePolicy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Outage::ALL.iter().map(|policy| policy.name()).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Holds, Names};

    /// A contract with callers: the role of each call that changes something, and of the one with a body that does not.
    /// New verbs are not in it.
    const ROLES: [(Needs, &[&str]); 3] = [
        (Needs::Read, &["run.remaining"]),
        (
            Needs::Operate,
            &[
                "limit.reset",
                "cache.delete",
                "batch.close",
                "queue.pause",
                "queue.resume",
                "queue.redrive",
                "queue.purge",
                "queue.trim",
                "run.start",
                "run.finish",
                "upload.abort",
                "upload.resume",
                "upload.delete",
            ],
        ),
        (
            Needs::Write,
            &[
                "limit.take",
                "limit.refund",
                "lock.acquire",
                "lock.renew",
                "lock.release",
                "idempotency.begin",
                "idempotency.finish",
                "idempotency.abandon",
                "cache.put",
                "dedupe.first",
                "guard.enter",
                "guard.leave",
                "batch.add",
                "batch.sweep",
                "event.publish",
                "event.report",
                "queue.push",
                "queue.claim",
                "queue.ack",
                "queue.nack",
                "queue.extend",
                "run.update",
                "run.sweep",
                "run.task_start",
                "run.task_finish",
                "run.processed",
                "run.failed",
                "run.retry",
                "stats.record",
                "stats.sweep",
                "upload.create",
                "upload.chunk",
            ],
        ),
    ];

    #[test]
    fn calls_keep_the_role_that_the_contract_gives_them() {
        for (role, ids) in ROLES {
            for id in ids {
                let is_it = |one: &&Operation| format!("{}.{}", one.kind, one.verb) == *id;
                let found = OPERATIONS.iter().find(is_it).map(|one| one.needs);
                assert_eq!(found, Some(role), "{id}");
            }
        }
    }

    /// An operation with the role `read` that nobody decided about would show a `sensitive` resource to every token.
    #[test]
    fn operations_that_need_only_read_say_what_they_show_and_no_others_do() {
        for operation in OPERATIONS.iter() {
            let reads = operation.needs == Needs::Read;
            assert_eq!(operation.shows.is_some(), reads, "{}.{}", operation.kind, operation.verb);
        }
    }

    /// That a call changes nothing where `read` is enough is tried on a store, with every other verb (`verbs` in the
    /// testkit).
    #[test]
    fn calls_that_look_need_the_least_role_and_others_need_it_only_where_they_are_safe_to_repeat() {
        for call in &CALLS {
            let row = &call.row;
            let fits = match call.effect {
                Effect::Reads => row.needs == Needs::Read,
                Effect::Writes => row.needs != Needs::Read || row.repeat == Repeat::Safe,
            };
            assert!(fits, "{}.{} needs {:?}", call.kind, call.verb, row.needs);
        }
    }

    /// A resource that a request names and nobody looks at would be open to every token.
    #[test]
    fn names_in_parts_of_requests_say_what_they_name() {
        fn parts(shape: &'static Shape, found: &mut Vec<&'static Shape>) {
            for field in shape.fields {
                if let Holds::Object(part) | Holds::Objects(part, _) = field.spec.holds {
                    found.push(part);
                    parts(part, found);
                }
            }
        }
        let mut found = Vec::new();
        for call in CALLS {
            parts(call.row.request, &mut found);
        }
        let named = found.iter().flat_map(|part| part.fields).filter(|field| field.name == "name");
        let named: Vec<Names> = named.map(|field| field.spec.names).collect();
        assert_eq!(named, [Names::Resource(Kind::Dedupe), Names::Called]);
    }

    /// A type that only describes an answer drifts from the one that writes it.
    #[test]
    fn no_type_of_an_answer_is_dead_code() {
        fn look(folder: &std::path::Path, described: &mut usize) {
            for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    look(&path, described);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                for (derived, rest) in
                    text.split("#[derive(").skip(1).filter_map(|item| item.split_once(")]"))
                {
                    let attributes = rest.split("\npub").next().unwrap_or_default();
                    if derived.contains("JsonSchema") {
                        *described += 1;
                        assert!(!attributes.contains("dead_code"), "{}: {rest:.90}", path.display());
                    }
                }
            }
        }
        let mut described = 0;
        look(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut described);
        assert!(described > 50, "{described} types were found");
    }

    #[test]
    fn the_description_lists_the_roles_from_the_least_to_the_most() {
        let described = crate::describe();
        let roles = described["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names: Vec<_> = roles.iter().filter_map(|role| role["role"].as_str()).collect();
        assert_eq!(names, ["read", "operate", "write", "admin"]);
        assert!(roles.iter().all(|role| role["about"].as_str().is_some_and(|about| !about.is_empty())));
        // docs/configuration.md and what is told of the role say so.
        let needed = described["kinds"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|kind| kind["verbs"].as_array())
            .flatten();
        assert!(needed.map(|verb| &verb["role"]).all(|role| role != "admin"), "no call needs `admin`");
    }
}
