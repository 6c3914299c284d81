//! `run processed`, `failed`, `remaining`, `task_start`, `task_finish`.

use std::borrow::Cow;

use futures_util::FutureExt as _;
use quaymaster::Code;
use quaymaster::run::moment;
use quaymaster::schema::Kind;
use serde::Serialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::{Answer, Arg, ArgType, Call, Effect, Input, REQUEST_ID};
use super::{RUN_ID, borrowed, millis, required, text_of, texts_of, written};
use crate::app::App;
use crate::http::json::{self, Fields, Value};
use crate::http::problem::Problem;

const TASK_ID: Arg =
    Arg { name: "task_id", holds: ArgType::Text, required: true, help: "The task's id, without `:`" };

pub(in super::super) const PROCESSED: Call = Call {
    kind: Kind::Run,
    verb: "processed",
    effect: Effect::Writes,
    template: "/v1/run/{name}/processed",
    about: "Note items as processed; each counts once",
    args: &[
        RUN_ID,
        Arg { name: "items", holds: ArgType::Texts, required: true, help: "Up to a thousand items" },
        REQUEST_ID,
    ],
    said_no: |_| false,
    run: |app, input| processed(app, input).boxed(),
};
pub(in super::super) const FAILED: Call = Call {
    kind: Kind::Run,
    verb: "failed",
    effect: Effect::Writes,
    template: "/v1/run/{name}/failed",
    about: "Note that an item failed; it is listed until it is processed",
    args: &[
        RUN_ID,
        Arg { name: "item", holds: ArgType::Text, required: true, help: "The item" },
        Arg { name: "error", holds: ArgType::Text, required: false, help: "Why; 4 KiB of it are kept" },
        REQUEST_ID,
    ],
    said_no: |answer| answer["listed"] == false,
    run: |app, input| failed(app, input).boxed(),
};
pub(in super::super) const REMAINING: Call = Call {
    kind: Kind::Run,
    verb: "remaining",
    effect: Effect::Writes,
    template: "/v1/run/{name}/remaining",
    about: "Which of these items the run has not processed; changes nothing",
    args: &[
        RUN_ID,
        Arg { name: "items", holds: ArgType::Texts, required: true, help: "Any items" },
        REQUEST_ID,
    ],
    said_no: |_| false,
    run: |app, input| remaining(app, input).boxed(),
};
pub(in super::super) const TASK_START: Call = Call {
    kind: Kind::Run,
    verb: "task_start",
    effect: Effect::Writes,
    template: "/v1/run/{name}/task_start",
    about: "Note that a task of a run begins",
    args: &[RUN_ID, TASK_ID, REQUEST_ID],
    said_no: |_| false,
    run: |app, input| task_start(app, input).boxed(),
};
pub(in super::super) const TASK_FINISH: Call = Call {
    kind: Kind::Run,
    verb: "task_finish",
    effect: Effect::Writes,
    template: "/v1/run/{name}/task_finish",
    about: "Note that a task of a run has ended, and learn how long it took",
    args: &[RUN_ID, TASK_ID, REQUEST_ID],
    said_no: |_| false,
    run: |app, input| task_finish(app, input).boxed(),
};

/// What `processed` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunProcessed {
    /// Items that were not processed before.
    added: u64,
    /// Items processed in this run.
    processed_count: u64,
    /// Items that have failed and were not processed since.
    failed_count: u64,
}

/// What `failed` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunFailed {
    /// `false` when the item is processed: nothing was changed.
    listed: bool,
    /// How often it failed.
    attempts: u64,
    /// Items processed in this run.
    processed_count: u64,
    /// Items that have failed and were not processed since.
    failed_count: u64,
}

/// What `remaining` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunRemaining {
    /// Those that are not processed, in their order.
    items: Vec<String>,
}

/// What `task_start` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunTaskStarted {
    /// When it started; the first time if it runs already.
    #[schema(example = "2026-11-16T06:22:05.000001Z")]
    started_at: String,
}

/// What `task_finish` answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunTaskFinished {
    /// How long it took, by the store's clock.
    duration_ms: u64,
}

#[derive(Debug, Default)]
struct ItemsBody<'a> {
    run_id: Option<Cow<'a, str>>,
    items: Option<Vec<&'a RawValue>>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for ItemsBody<'de> {
    const NAMES: &'static [&'static str] = &["run_id", "items", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "run_id" => self.run_id = value.optional_text()?,
            "items" => self.items = value.optional_raws()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct FailedBody<'a> {
    run_id: Option<Cow<'a, str>>,
    item: Option<&'a RawValue>,
    error: Option<Cow<'a, str>>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for FailedBody<'de> {
    const NAMES: &'static [&'static str] = &["run_id", "item", "error", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "run_id" => self.run_id = value.optional_text()?,
            "item" => self.item = Some(value.raw()?),
            "error" => self.error = value.optional_text()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "the names of the body's fields")]
struct TaskBody<'a> {
    run_id: Option<Cow<'a, str>>,
    task_id: Option<Cow<'a, str>>,
    request_id: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for TaskBody<'de> {
    const NAMES: &'static [&'static str] = &["run_id", "task_id", "request_id"];

    fn read<A: MapAccess<'de>>(&mut self, name: &'static str, value: Value<'_, A>) -> Result<(), A::Error> {
        match name {
            "run_id" => self.run_id = value.optional_text()?,
            "task_id" => self.task_id = value.optional_text()?,
            _ => self.request_id = value.optional_text()?,
        }
        Ok(())
    }
}

/// What `processed` and `remaining` are given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct RunItems {
    #[schema(min_length = 1, max_length = 512)]
    run_id: String,
    /// Texts of 1 to 512 bytes, or integers; `processed` takes a thousand at most.
    #[schema(example = json!(["12345", "12346"]))]
    items: Vec<String>,
    /// The same id again within ten minutes gets the same answer and adds nothing.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `failed` is given.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the shape in OpenAPI")]
pub(crate) struct RunFailure {
    #[schema(min_length = 1, max_length = 512)]
    run_id: String,
    /// A text of 1 to 512 bytes, or an integer.
    #[schema(example = "12347")]
    item: String,
    /// Why; 4 KiB of it are kept.
    #[schema(example = "HTTP 500")]
    error: Option<String>,
    /// The same id again within ten minutes gets the same answer and counts no attempt.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

/// What `task_start` and `task_finish` are given.
#[derive(ToSchema)]
#[expect(dead_code, clippy::struct_field_names, reason = "describes the shape in OpenAPI")]
pub(crate) struct RunTaskNote {
    #[schema(min_length = 1, max_length = 512)]
    run_id: String,
    /// The task's id, without `:`.
    #[schema(min_length = 1, max_length = 512, example = "process_docket_123")]
    task_id: String,
    /// The same id again within ten minutes gets the same answer.
    #[schema(max_length = 128)]
    request_id: Option<String>,
}

fn items_of(items: Option<Vec<&RawValue>>) -> Result<Vec<String>, Problem> {
    let items = items.ok_or_else(|| Problem::new(Code::RequestInvalid, "items is missing").field("items"))?;
    texts_of("items", &items)
}

/// Notes items as processed.
#[utoipa::path(
    post, path = "/v1/run/{name}/processed", operation_id = "run.processed", tag = "run",
    params(("name" = String, Path, description = "the run's name in the schema")),
    request_body = RunItems,
    responses((status = 200, body = RunProcessed, description = "the counts"),
        (status = 429, description = "the run holds as many items as a run may"), crate::page::openapi::Problems),
)]
pub(crate) async fn processed(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let body: ItemsBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let (id, items) = (required("run_id", body.run_id)?, items_of(body.items)?);
    let told = run.processed(&id, &borrowed(&items), body.request_id.as_deref()).await?;
    Ok(written(&RunProcessed {
        added: told.added,
        processed_count: told.processed_count,
        failed_count: told.failed_count,
    }))
}

/// Notes that an item failed.
#[utoipa::path(
    post, path = "/v1/run/{name}/failed", operation_id = "run.failed", tag = "run",
    params(("name" = String, Path, description = "the run's name in the schema")),
    request_body = RunFailure,
    responses((status = 200, body = RunFailed, description = "the counts, also when the item is processed"),
        (status = 429, description = "the run lists as many failures as a run may"), crate::page::openapi::Problems),
)]
pub(crate) async fn failed(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let body: FailedBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let id = required("run_id", body.run_id)?;
    let item =
        body.item.ok_or_else(|| Problem::new(Code::RequestInvalid, "item is missing").field("item"))?;
    let item = text_of("item", item)?;
    let told = run.failed(&id, &item, body.error.as_deref(), body.request_id.as_deref()).await?;
    Ok(written(&RunFailed {
        listed: told.listed,
        attempts: told.attempts,
        processed_count: told.processed_count,
        failed_count: told.failed_count,
    }))
}

/// Which items are not processed yet.
#[utoipa::path(
    post, path = "/v1/run/{name}/remaining", operation_id = "run.remaining", tag = "run",
    params(("name" = String, Path, description = "the run's name in the schema")),
    request_body = RunItems,
    responses((status = 200, body = RunRemaining, description = "those that are not processed"),
        crate::page::openapi::Problems),
)]
pub(crate) async fn remaining(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let body: ItemsBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let (id, items) = (required("run_id", body.run_id)?, items_of(body.items)?);
    Ok(written(&RunRemaining { items: run.remaining(&id, &borrowed(&items)).await? }))
}

/// Notes that a task begins.
#[utoipa::path(
    post, path = "/v1/run/{name}/task_start", operation_id = "run.task_start", tag = "run",
    params(("name" = String, Path, description = "the run's name in the schema")),
    request_body = RunTaskNote,
    responses((status = 200, body = RunTaskStarted, description = "when it started"),
        (status = 429, description = "the run has as many tasks as a run may"), crate::page::openapi::Problems),
)]
pub(crate) async fn task_start(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let body: TaskBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let (id, task) = (required("run_id", body.run_id)?, required("task_id", body.task_id)?);
    let told = run.task_start(&id, &task, body.request_id.as_deref()).await?;
    Ok(written(&RunTaskStarted { started_at: moment(told.started_us) }))
}

/// Notes that a task has ended.
#[utoipa::path(
    post, path = "/v1/run/{name}/task_finish", operation_id = "run.task_finish", tag = "run",
    params(("name" = String, Path, description = "the run's name in the schema")),
    request_body = RunTaskNote,
    responses((status = 200, body = RunTaskFinished, description = "how long it took"),
        crate::page::openapi::Problems),
)]
pub(crate) async fn task_finish(app: &App, input: Input<'_>) -> Answer {
    let run = app.quaymaster.run(input.name)?;
    let body: TaskBody<'_> = json::read(input.body, app.bounds.max_json_depth)?;
    let (id, task) = (required("run_id", body.run_id)?, required("task_id", body.task_id)?);
    let told = run.task_finish(&id, &task, body.request_id.as_deref()).await?;
    Ok(written(&RunTaskFinished { duration_ms: millis(told.duration) }))
}
