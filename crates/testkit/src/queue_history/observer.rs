//! What the store holds of a queue at one moment, read by one script: every job in exactly one place.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use quaymaster::schema::{Kind, Overflow, Schema, Spec, Spelling};
use quaymaster::store::{Effect, Engine, Invocation, Reply, Script, Topology, Workload};
use serde_json::Value;

use super::job_of;

/// The keys it reads, by their roles in the schema.
const ROLES: [&str; 7] = ["items", "dead", "overflow", "jobs", "held", "leases", "delayed"];

static LOOK: LazyLock<Script> = LazyLock::new(|| {
    let source = r#"
local now = redis.call("TIME")
local ranked = redis.call("TYPE", KEYS[1]).ok == "zset"
return {
  now[1], now[2],
  redis.call(ranked and "ZRANGE" or "LRANGE", KEYS[1], 0, -1),
  redis.call("LRANGE", KEYS[2], 0, -1),
  redis.call("LRANGE", KEYS[3], 0, -1),
  redis.call("HGETALL", KEYS[4]),
  redis.call("HGETALL", KEYS[5]),
  redis.call("ZRANGE", KEYS[6], 0, -1, "WITHSCORES"),
  redis.call("ZRANGE", KEYS[7], 0, -1, "WITHSCORES"),
}
"#;
    let sha = sha1_smol::Sha1::from(source).digest().to_string().leak();
    Script { id: "testkit.queue", source, sha, effect: Effect::Reads }
});

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// What the last attempt said.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Where {
    Waiting,
    Delayed,
    Leased,
    Dead(Dead),
    Overflow,
}

/// What a queue held at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Which queue.
    pub queue: String,
    /// When, by the store's clock.
    pub time: i64,
    pub(super) jobs: HashMap<String, Where>,
}

impl Snapshot {
    fn has(&self, place: &Where) -> bool {
        self.jobs.values().any(|other| other == place)
    }

    fn waiting(&self) -> usize {
        self.jobs.values().filter(|place| **place == Where::Waiting).count()
    }

    /// Leaves out what was dead or moved out already when `known` was last told, so that thousands of looks fit into
    /// memory. Here nothing brings such a job back: one that is not there any more is told.
    pub fn leave_out(&mut self, known: &mut HashSet<String>) -> Result<(), String> {
        for job in known.iter() {
            match self.jobs.remove(job) {
                Some(Where::Dead(_) | Where::Overflow) => {}
                other => {
                    return Err(format!("{}: {job} was dead or moved out, and is {other:?}", self.queue));
                }
            }
        }
        let ended = self.jobs.iter().filter(|(_, place)| matches!(place, Where::Dead(_) | Where::Overflow));
        known.extend(ended.map(|(job, _)| job.clone()));
        Ok(())
    }

    /// How many jobs are waiting, delayed or leased: what a drain has still to do.
    pub fn live(&self) -> usize {
        self.jobs.values().filter(|place| !matches!(place, Where::Dead(_) | Where::Overflow)).count()
    }
}

/// Looks at queues from outside, without a call of theirs.
#[derive(Debug, Clone)]
pub struct Observer {
    engine: Arc<dyn Engine>,
    schema: Arc<Schema>,
}

impl Observer {
    /// On the store, with the schema that names the keys.
    pub fn new(engine: Arc<dyn Engine>, schema: Arc<Schema>) -> Self {
        Self { engine, schema }
    }

    /// What `queue` holds now; what must not be, when a job is in two places or in none that has its record.
    ///
    /// `Ok(Err(…))` is a finding, `Err(…)` a store that did not answer.
    pub async fn look(&self, queue: &str) -> quaymaster::Result<Result<Snapshot, String>> {
        let spelling = match self.engine.topology() {
            Topology::Single => Spelling::Single,
            Topology::Cluster => Spelling::Cluster,
        };
        let resource = self.schema.resource(Kind::Queue, queue).expect("declared");
        let mut call = Invocation::new(&LOOK, Workload::Default);
        for role in ROLES {
            let row = resource.key(role).unwrap_or_else(|| panic!("queues have no key {role}"));
            let mut key = Vec::new();
            row.pattern.render(&[], 0, spelling, &mut key).expect("a queue's keys have no placeholders");
            call.keys.push(key);
        }
        let reply = self.engine.run(call).await?;
        let Spec::Queue(spec) = &resource.spec else { unreachable!("it is a queue") };
        let bound = spec.max_size.map_or(usize::MAX, |most| most as usize);
        let found = read(queue, reply).and_then(|look| match look.waiting() {
            waiting if waiting > bound => Err(format!("{waiting} wait in a queue of {bound}")),
            _ if spec.overflow == Overflow::Reject && look.has(&Where::Overflow) => {
                Err("something was moved out of a queue that rejects".to_owned())
            }
            _ => Ok(look),
        });
        Ok(found.map_err(|wrong| format!("{queue}: {wrong}")))
    }
}

fn words(reply: Option<Reply>) -> Vec<Bytes> {
    let Some(Reply::Array(parts)) = reply else { panic!("a list was asked for, got {reply:?}") };
    let word = |part| match part {
        Reply::Bytes(bytes) => bytes,
        Reply::Int(number) => number.to_string().into(),
        other => panic!("a word was asked for, got {other:?}"),
    };
    parts.into_iter().map(word).collect()
}

fn pairs(reply: Option<Reply>) -> BTreeMap<Bytes, Bytes> {
    let all = words(reply);
    all.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn read(queue: &str, reply: Reply) -> Result<Snapshot, String> {
    let mut parts = reply.parts("testkit.queue").map_err(|error| error.to_string())?;
    let time = parts.int().map_err(|error| error.to_string())? * 1_000_000
        + parts.int().map_err(|error| error.to_string())?;
    let (items, dead, overflow) = (words(parts.any()), words(parts.any()), words(parts.any()));
    let (jobs, held) = (pairs(parts.any()), pairs(parts.any()));
    let (leases, delayed) = (pairs(parts.any()), pairs(parts.any()));

    let known = |ids: &BTreeMap<Bytes, Bytes>| ids.keys().cloned().collect::<BTreeSet<Bytes>>();
    if let Some(id) = known(&leases).intersection(&known(&delayed)).next() {
        return Err(format!("job {id:?} is leased and delayed at once"));
    }
    let all: BTreeSet<Bytes> = known(&leases).union(&known(&delayed)).cloned().collect();
    for (name, records) in [("payload", known(&jobs)), ("record", known(&held))] {
        if let Some(id) = all.symmetric_difference(&records).next() {
            let there = records.contains(id);
            return Err(format!(
                "job {id:?} has {} {name}, {leases:?} {delayed:?}",
                if there { "only a" } else { "no" }
            ));
        }
    }
    let mut found = HashMap::new();
    let mut place = |payload: &[u8], place: Where| -> Result<(), String> {
        let job = job_of(payload)
            .ok_or_else(|| format!("nobody pushed {:?}", payload.escape_ascii().to_string()))?;
        match found.insert(job.clone(), place.clone()) {
            None => Ok(()),
            Some(other) => Err(format!("{job} is {place:?} and {other:?} at once")),
        }
    };
    for item in &items {
        // Members of a priority queue have a number before their payload.
        let start = item.iter().position(|byte| *byte == b'{').unwrap_or(0);
        place(&item[start..], Where::Waiting)?;
    }
    for (id, payload) in &jobs {
        place(payload, if leases.contains_key(id) { Where::Leased } else { Where::Delayed })?;
    }
    for letter in &dead {
        let (payload, letter) = letter_of(queue, letter)?;
        place(payload.as_bytes(), Where::Dead(letter))?;
    }
    for item in &overflow {
        place(item, Where::Overflow)?;
    }
    Ok(Snapshot { queue: queue.to_owned(), time, jobs: found })
}

/// The documented item: its job, and what became of it.
fn letter_of(queue: &str, item: &[u8]) -> Result<(String, Dead), String> {
    let text = String::from_utf8_lossy(item);
    let value: Value =
        serde_json::from_slice(item).map_err(|_| format!("a dead letter is no JSON: {text}"))?;
    let string = |name: &str| value[name].as_str().map(str::to_owned).filter(|text| !text.is_empty());
    let fields = (
        string("error"),
        value["attempt_count"].as_u64(),
        string("first_failed_at"),
        string("last_failed_at"),
    );
    let (Some(error), Some(attempts), Some(first), Some(last)) = fields else {
        return Err(format!("a dead letter lacks a field: {text}"));
    };
    // Written alike and in one zone, moments compare as text.
    if first > last || value["queue_name"].as_str() != Some(queue) || !value["original_job"].is_object() {
        return Err(format!("a dead letter is wrong: {text}"));
    }
    Ok((value["original_job"].to_string(), Dead { error, attempts: attempts as u32 }))
}
