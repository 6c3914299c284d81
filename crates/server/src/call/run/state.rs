//! `run start`, `update`, `finish`, `show`, `list`, `sweep`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use quaymaster::Code;
use quaymaster::run::{
    Fields as Set, Items, MAX_FIELDS, MAX_KEPT, MAX_STATUS_CHARS, Outcome, PAGE_MAX, Run, RunState, StartAsk,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::{Answer, Call, Input, Needs, Repeat, Shows, call, written};
use super::{CURSOR, ID, ITEMS, RUN_ID, RunShown, borrowed, shown, text_of, texts_of};
use crate::http::problem::Problem;
use crate::request::{Holds, REQUEST_ID, REQUEST_ID_UNUSED, Spec, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[START, UPDATE, FINISH, SHOW, LIST, SWEEP];

const START: Call = call!(
    Run "run" "start", Writes, RunStart => RunStarted, start, "Begin a run, or go on with one that there is",
    needs: Needs::Operate,
);
const UPDATE: Call = call!(
    Run "run" "update", Writes, RunUpdate => RunShown, update, "Set a run's status and fields of your own",
    refusals: &[
        (422, "a field that callers do not set"),
        (429, "the run has as many fields as a run may, or the caller is over a limit of the server"),
    ],
);
const FINISH: Call = call!(
    Run "run" "finish", Writes, RunFinish => RunShown, finish, "End a run",
    needs: Needs::Operate,
    refusals: &[(422, "a status that callers do not set")],
);
const SHOW: Call = call!(
    Run "run" "show", Reads, RunShow => RunShown, show, "Show a run, and bring its documented hash up to date",
    shows: Some(Shows::Facts),
);
const LIST: Call = call!(
    Run "run" "list", Reads, RunListAsk => RunList, list, "List runs, the last active first",
    shows: Some(Shows::Facts),
);
const SWEEP: Call = call!(
    Run "run" "sweep", Writes, RunSweep => RunSwept, sweep,
    "Mark runs without a sign of life as stale, as every server does by itself",
    repeat: Repeat::Safe,
);

/// A status is text that can be seen.
const STATUS: &str = r#"{"pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$"}"#;

/// What `update` sets.
const FIELDS: &str = r#"{
    "minProperties": 1, "maxProperties": 32,
    "propertyNames": {"pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]+$", "maxLength": 64},
    "properties": {
        "status": {
            "type": ["string", "integer"], "minLength": 1, "maxLength": 64,
            "minimum": -9223372036854775808, "maximum": 18446744073709551615,
            "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$"
        }
    },
    "additionalProperties": {"anyOf": [
        {"type": ["string", "integer"], "maxLength": 4096,
            "minimum": -9223372036854775808, "maximum": 18446744073709551615},
        {"type": "array", "items": {"type": ["string", "integer"], "minLength": 1, "maxLength": 512,
            "minimum": -9223372036854775808, "maximum": 18446744073709551615}}
    ]}
}"#;

request! {
    /// What `start` is given.
    pub(crate) struct RunStart<'a> {
        /// The run's id; made from the time unless given.
        run_id: Option<Cow<'a, str>> = ID,
        /// How long the run is kept after its last sign of life; as long as the schema says unless given.
        ttl_hours: Option<u64> = Spec::integer(1, MAX_KEPT.as_secs() / 3600).example("25"),
        items: bool = ITEMS,
        /// The same id again within ten minutes gets the same run.
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `update` is given.
    pub(crate) struct RunUpdate<'a> {
        run_id: Cow<'a, str> = RUN_ID,
        /// `status`, and fields of your own: texts or integers. The schema's `processed_field`
        /// is a list of items to note as processed.
        fields: &'a RawValue =
            Spec::of(Holds::Map).required("").also(FIELDS).example(r#"{"status": "processing", "node": "a"}"#),
        items: bool = ITEMS,
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `finish` is given.
    pub(crate) struct RunFinish<'a> {
        run_id: Cow<'a, str> = RUN_ID,
        /// How it ended, such as `completed` or `failed`.
        status: Cow<'a, str> =
            Spec::text_of(1, MAX_STATUS_CHARS).required("").also(STATUS).example(r#""completed""#),
        items: bool = ITEMS,
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `show` is given.
    pub(crate) struct RunShow<'a> {
        run_id: Cow<'a, str> = RUN_ID,
        items: bool = ITEMS,
    }
}

request! {
    /// What `list` is given.
    pub(crate) struct RunListAsk<'a> {
        /// At most so many.
        count: u64 = Spec::integer(1, PAGE_MAX).default("20"),
        cursor: Option<Cow<'a, str>> = CURSOR,
    }
}

request! {
    /// What `sweep` is given: a run is marked once, however often it is swept.
    pub(crate) struct RunSweep<'a> {
        #[expect(dead_code, reason = "it is taken and not needed")]
        request_id: Option<Cow<'a, str>> = REQUEST_ID_UNUSED,
    }
}

/// What `start` answers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunStarted {
    /// Whether there was none under this id.
    outcome: RunOutcome,
    /// The run.
    #[serde(flatten)]
    run: RunShown,
}

/// Whether a run is a new one.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunOutcome {
    Started,
    Resumed,
}

/// What `list` answers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunList {
    /// The last active first, without what they have processed.
    runs: Vec<RunShown>,
    /// The `cursor` of the next page, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    next: Option<String>,
}

/// What `sweep` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunSwept {
    /// Runs found to give no sign of life.
    stale: u64,
    /// Runs forgotten, since their state has expired.
    forgotten: u64,
}

async fn whole(run: &Run, mut state: RunState, items: bool) -> Result<RunShown, Problem> {
    if items {
        run.load_items(&mut state).await?;
    }
    Ok(shown(state))
}

async fn start(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunStart<'_> = input.read()?;
    let ask = StartAsk {
        run_id: request.run_id.as_deref(),
        kept: request.ttl_hours.map(|hours| Duration::from_secs(hours.saturating_mul(3600))),
        request_id: request.request_id.as_deref(),
    };
    let started = run.start_as(ask).await?;
    let outcome = match started.outcome {
        Outcome::Started => RunOutcome::Started,
        Outcome::Resumed => RunOutcome::Resumed,
    };
    Ok(written(&RunStarted { outcome, run: whole(run, started.run, request.items).await? }))
}

async fn update(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunUpdate<'_> = input.read()?;
    let invalid = |detail: &str| Problem::new(Code::RequestInvalid, detail.to_owned()).field("fields");
    let fields: BTreeMap<String, &RawValue> =
        serde_json::from_str(request.fields.get()).map_err(|_| invalid("fields must be an object"))?;
    if fields.is_empty() {
        return Err(invalid("fields has none"));
    }
    if fields.len() > MAX_FIELDS {
        return Err(invalid(&format!("fields: {MAX_FIELDS} at most in one call, got {}", fields.len())));
    }
    let (mut status, mut processed, mut own) = (None, Vec::new(), Vec::new());
    for (name, value) in &fields {
        let path = format!("fields.{name}");
        match name.as_str() {
            "status" => status = Some(text_of(&path, value)?),
            name if name == run.spec().processed_field => processed = items_of(&path, value)?,
            _ if value.get().starts_with('[') => {
                let list = &run.spec().processed_field;
                let detail = format!("{path} must be a string or an integer; the list of items is `{list}`");
                return Err(Problem::new(Code::RunField, detail).field(path));
            }
            _ => own.push((name.as_str(), text_of(&path, value)?)),
        }
    }
    let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let set = Set { status: status.as_deref(), processed: &borrowed(&processed), own: &own };
    let state = run.update(&request.run_id, &set, request.request_id.as_deref()).await?;
    Ok(written(&whole(run, state, request.items).await?))
}

/// The items of the documented list.
fn items_of(path: &str, value: &RawValue) -> Result<Vec<String>, Problem> {
    let items: Vec<&RawValue> = serde_json::from_str(value.get()).map_err(|_| {
        let detail = format!("{path} must be a list of items, which are noted as processed");
        Problem::new(Code::RunField, detail).field(path.to_owned())
    })?;
    texts_of(path, &items)
}

async fn finish(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunFinish<'_> = input.read()?;
    let state = run.finish(&request.run_id, &request.status, request.request_id.as_deref()).await?;
    Ok(written(&whole(run, state, request.items).await?))
}

async fn show(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunShow<'_> = input.read()?;
    let items = if request.items { Items::With } else { Items::Without };
    let state = run.show(&request.run_id, items).await?.ok_or_else(|| {
        let detail = format!("there is no run {:?}", request.run_id.as_ref());
        Problem::new(Code::RunMissing, detail).field("run_id")
    })?;
    Ok(written(&shown(state)))
}

async fn list(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunListAsk<'_> = input.read()?;
    let page = run.list(request.count, request.cursor.as_deref()).await?;
    Ok(written(&RunList { runs: page.runs.into_iter().map(shown).collect(), next: page.next }))
}

async fn sweep(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let _: RunSweep<'_> = input.read()?;
    let swept = run.sweep().await?;
    Ok(written(&RunSwept { stale: swept.stale, forgotten: swept.forgotten }))
}
