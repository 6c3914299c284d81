//! `run start`, `update`, `finish`, `show`, `list`, `sweep`.

use std::borrow::Cow;

use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::run::{Fields as Set, Items, Outcome, Run, RunState};
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID};
use super::{ITEMS, RUN_ID, RunShown, borrowed, number, required, shown, text_of, texts_of, truth, written};
use crate::app::App;
use crate::http::json::{self, Fields, Value};
use crate::http::problem::Problem;
use crate::http::query;

pub(in super::super) const START: Call = Call {
    kind: Kind::Run,
    verb: "start",
    effect: Effect::Writes,
    template: "/v1/run/{name}/start",
    about: "Begin a run, or go on with one that there is",
    args: &[
        Arg {
            name: "run_id",
            holds: ArgType::Text,
            required: false,
            help: "The run's id; made from the time unless given",
        },
        ITEMS,
        REQUEST_ID,
    ],
    said_no: |_| false,
    run: |app, input| start(app, input).boxed(),
};
pub(in super::super) const UPDATE: Call = Call {
    kind: Kind::Run,
    verb: "update",
    effect: Effect::Writes,
    template: "/v1/run/{name}/update",
    about: "Set a run's status and fields of your own",
    args: &[
        RUN_ID,
        Arg {
            name: "fields",
            holds: ArgType::Json,
            required: true,
            help: "An object: `status`, fields of your own, `dockets_processed` as a list",
        },
        ITEMS,
        REQUEST_ID,
    ],
    said_no: |_| false,
    run: |app, input| update(app, input).boxed(),
};
pub(in super::super) const FINISH: Call = Call {
    kind: Kind::Run,
    verb: "finish",
    effect: Effect::Writes,
    template: "/v1/run/{name}/finish",
    about: "End a run",
    args: &[
        RUN_ID,
        Arg {
            name: "status",
            holds: ArgType::Text,
            required: true,
            help: "How it ended, such as `completed` or `failed`",
        },
        ITEMS,
        REQUEST_ID,
    ],
    said_no: |_| false,
    run: |app, input| finish(app, input).boxed(),
};
pub(in super::super) const SHOW: Call = Call {
    kind: Kind::Run,
    verb: "show",
    effect: Effect::Reads,
    template: "/v1/run/{name}/show",
    about: "Show a run, and bring its documented hash up to date",
    args: &[RUN_ID, ITEMS],
    said_no: |_| false,
    run: |app, input| show(app, input).boxed(),
};
pub(in super::super) const LIST: Call = Call {
    kind: Kind::Run,
    verb: "list",
    effect: Effect::Reads,
    template: "/v1/run/{name}/list",
    about: "List runs, the last active first",
    args: &[
        Arg {
            name: "count",
            holds: ArgType::Positive,
            required: false,
            help: "At most so many, up to 1000; 20 unless given",
        },
        Arg { name: "cursor", holds: ArgType::Text, required: false, help: "The `next` of the page before" },
    ],
    said_no: |_| false,
    run: |app, input| list(app, input).boxed(),
};
pub(in super::super) const SWEEP: Call = Call {
    kind: Kind::Run,
    verb: "sweep",
    effect: Effect::Writes,
    template: "/v1/run/{name}/sweep",
    about: "Mark runs without a sign of life as stale, as every server does by itself",
    args: &[REQUEST_ID],
    said_no: |_| false,
    run: |app, input| sweep(app, input).boxed(),
};

/// What `list` answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunList {
    /// The last active first, without what they have processed.
    runs: Vec<RunShown>,
    /// The `cursor` of the next page, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What `sweep` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunSwept {
    /// Runs found to give no sign of life.
    stale: u64,
    /// Runs forgotten, since their state has expired.
    forgotten: u64,
}

#[derive(Debug, Default)]
struct StateBody<'a> {
    run_id: Option<Cow<'a, str>>,
    items: Option<bool>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for StateBody<'de> {
    const NAMES: &'static [&'static str] = &["run_id", "items", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "run_id" => self.run_id = value.optional_text()?,
            "items" => self.items = value.optional_truth()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct UpdateBody<'a> {
    state: StateBody<'a>,
    fields: Option<&'a RawValue>,
}

impl<'de> Fields<'de> for UpdateBody<'de> {
    const NAMES: &'static [&'static str] = &["run_id", "fields", "items", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "fields" => self.fields = Some(value.raw()?),
            _ => self.state.read(name, value)?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct FinishBody<'a> {
    state: StateBody<'a>,
    status: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for FinishBody<'de> {
    const NAMES: &'static [&'static str] = &["run_id", "status", "items", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "status" => self.status = value.optional_text()?,
            _ => self.state.read(name, value)?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct SweepBody;

impl<'de> Fields<'de> for SweepBody {
    const NAMES: &'static [&'static str] = &["request_id"];

    fn read<A: MapAccess<'de>>(&mut self, _: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        value.optional_text().map(drop)
    }
}

/// What `start` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct RunStart {
    /// The run's id; made from the time unless given. One that there is is gone on with.
    #[schema(min_length = 1, max_length = 512)]
    run_id: Option<String>,
    /// `false` leaves the list of what is processed out of the answer.
    #[schema(default = true)]
    items: Option<bool>,
    /// The same id again within ten minutes gets the same run.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `update` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct RunUpdate {
    #[schema(min_length = 1, max_length = 512)]
    run_id: String,
    /// `status`, and fields of your own: texts or integers. `dockets_processed` is a list of items to note as processed.
    #[schema(example = json!({"status": "processing", "node": "a"}))]
    fields: serde_json::Value,
    /// `false` leaves the list of what is processed out of the answer.
    #[schema(default = true)]
    items: Option<bool>,
    /// The same id again within ten minutes sets nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `finish` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct RunFinish {
    #[schema(min_length = 1, max_length = 512)]
    run_id: String,
    /// How it ended.
    #[schema(min_length = 1, max_length = 64, example = "completed")]
    status: String,
    /// `false` leaves the list of what is processed out of the answer.
    #[schema(default = true)]
    items: Option<bool>,
    /// The same id again within ten minutes changes nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `sweep` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct RunSweep {
    /// Taken and not needed: a run is marked once, however often it is swept.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

async fn whole(run: &Run, mut state: RunState, items: Option<bool>, outcome: Option<&'static str>) -> Answer {
    if items.unwrap_or(true) {
        run.load_items(&mut state).await?;
    }
    Ok(written(&shown(state, outcome)))
}

/// Begins a run, or goes on with it.
#[utoipa::path(
    post, path = "/v1/run/{name}/start", operation_id = "run.start", tag = "run",
    params(("name" = String, Path, description = "the run's name in the schema")),
    request_body = RunStart,
    responses((status = 200, body = RunShown, description = "the run"), crate::page::openapi::Problems),
)]
pub(crate) async fn start(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let body: StateBody<'_> = json::read_or_empty(input.body, app.bounds.max_json_depth)?;
    let started = run.start(body.run_id.as_deref(), body.request_id.as_deref()).await?;
    let outcome = match started.outcome {
        Outcome::Started => "started",
        Outcome::Resumed => "resumed",
    };
    whole(run, started.run, body.items, Some(outcome)).await
}

/// Sets the status and fields of the caller's own.
#[utoipa::path(
    post, path = "/v1/run/{name}/update", operation_id = "run.update", tag = "run",
    params(("name" = String, Path, description = "the run's name in the schema")),
    request_body = RunUpdate,
    responses((status = 200, body = RunShown, description = "the run"),
        (status = 422, description = "a field that callers do not set"),
        (status = 429, description = "the run has as many fields as a run may"), crate::page::openapi::Problems),
)]
pub(crate) async fn update(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let body: UpdateBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let id = required("run_id", body.state.run_id)?;
    let invalid = |detail: &str| Problem::new(Code::RequestInvalid, detail.to_owned()).field("fields");
    let fields = body.fields.ok_or_else(|| invalid("fields is missing"))?;
    let fields: std::collections::BTreeMap<String, &RawValue> =
        serde_json::from_str(fields.get()).map_err(|_| invalid("fields must be an object"))?;
    if fields.is_empty() {
        return Err(invalid("fields has none"));
    }
    let (mut status, mut processed, mut own) = (None, Vec::new(), Vec::new());
    for (name, value) in &fields {
        let path = format!("fields.{name}");
        match name.as_str() {
            "status" => status = Some(text_of(&path, value)?),
            "dockets_processed" => {
                let items: Vec<&RawValue> = serde_json::from_str(value.get()).map_err(|_| {
                    let detail =
                        "fields.dockets_processed must be a list of items, which are noted as processed";
                    Problem::new(Code::RunField, detail).field(path.clone())
                })?;
                processed = texts_of(&path, &items)?;
            }
            _ => own.push((name.as_str(), text_of(&path, value)?)),
        }
    }
    let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let set = Set { status: status.as_deref(), processed: &borrowed(&processed), own: &own };
    let state = run.update(&id, &set, body.state.request_id.as_deref()).await?;
    whole(run, state, body.state.items, None).await
}

/// Ends a run.
#[utoipa::path(
    post, path = "/v1/run/{name}/finish", operation_id = "run.finish", tag = "run",
    params(("name" = String, Path, description = "the run's name in the schema")),
    request_body = RunFinish,
    responses((status = 200, body = RunShown, description = "the run"), crate::page::openapi::Problems),
)]
pub(crate) async fn finish(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let body: FinishBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let (id, status) = (required("run_id", body.state.run_id)?, required("status", body.status)?);
    let state = run.finish(&id, &status, body.state.request_id.as_deref()).await?;
    whole(run, state, body.state.items, None).await
}

/// A run as it is.
#[utoipa::path(
    get, path = "/v1/run/{name}/show", operation_id = "run.show", tag = "run",
    params(
        ("name" = String, Path, description = "the run's name in the schema"),
        ("run_id" = String, Query, description = "the run's id"),
        ("items" = Option<bool>, Query, description = "`false` leaves out what it has processed"),
    ),
    responses((status = 200, body = RunShown, description = "the run"), crate::page::openapi::Problems),
)]
pub(crate) async fn show(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let [id, items] = query::named(input.query, ["run_id", "items"])?;
    let id = required("run_id", id)?;
    let items = if truth(items.as_deref(), "items", true)? { Items::With } else { Items::Without };
    let state = run.show(&id, items).await?.ok_or_else(|| {
        Problem::new(Code::RunMissing, format!("there is no run {:?}", id.as_ref())).field("run_id")
    })?;
    Ok(written(&shown(state, None)))
}

/// Runs, the last active first.
#[utoipa::path(
    get, path = "/v1/run/{name}/list", operation_id = "run.list", tag = "run",
    params(
        ("name" = String, Path, description = "the run's name in the schema"),
        ("count" = Option<u64>, Query, description = "at most so many; 20 unless given", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "the `next` of the page before"),
    ),
    responses((status = 200, body = RunList, description = "a page of them"), crate::page::openapi::Problems),
)]
pub(crate) async fn list(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let [count, cursor] = query::named(input.query, ["count", "cursor"])?;
    let page = run.list(number(count.as_deref(), "count", 20)?, cursor.as_deref()).await?;
    let runs = page.runs.into_iter().map(|state| shown(state, None)).collect();
    Ok(written(&RunList { runs, next: page.next }))
}

/// Marks runs without a sign of life as stale.
#[utoipa::path(
    post, path = "/v1/run/{name}/sweep", operation_id = "run.sweep", tag = "run",
    params(("name" = String, Path, description = "the run's name in the schema")),
    request_body = RunSweep,
    responses((status = 200, body = RunSwept, description = "what was done"), crate::page::openapi::Problems),
)]
pub(crate) async fn sweep(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let SweepBody = json::read_or_empty(input.body, app.bounds.max_json_depth)?;
    let swept = run.sweep().await?;
    Ok(written(&RunSwept { stale: swept.stale, forgotten: swept.forgotten }))
}
