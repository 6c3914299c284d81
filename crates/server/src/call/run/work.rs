//! `run processed`, `failed`, `remaining`, `task_start`, `task_finish`.

use std::borrow::Cow;

use quaymaster::run::{MAX_ITEMS, moment};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::{Answer, Call, Input, Needs, No, Repeat, Shows, call, millis, written};
use super::{ID, RUN_ID, borrowed, text_of, texts_of};
use crate::request::{Holds, REQUEST_ID, REQUEST_ID_UNUSED, Spec, request};
use crate::services::Services;

pub(in super::super) const CALLS: &[Call] = &[TASK_START, TASK_FINISH, PROCESSED, FAILED, REMAINING];

const PROCESSED: Call = call!(
    Run "run" "processed", Writes, RunItems => RunProcessed, processed,
    "Note items as processed; each counts once",
    refusals: &[(429, "the run holds as many items as a run may, or the caller is over a limit of the server")],
);
const FAILED: Call = call!(
    Run "run" "failed", Writes, RunFailure => RunFailed, failed,
    "Note that an item failed; it is listed until it is processed",
    no: No::Truth("listed", false),
    refusals: &[
        (429, "the run lists as many failures as a run may, or the caller is over a limit of the server"),
    ],
);
const REMAINING: Call = call!(
    Run "run" "remaining", Writes, RunCandidates => RunRemaining, remaining,
    "Which of these items the run has not processed; changes nothing",
    needs: Needs::Read, shows: Some(Shows::Facts), repeat: Repeat::Safe,
);
const TASK_START: Call = call!(
    Run "run" "task_start", Writes, RunTaskNote => RunTaskStarted, task_start, "Note that a task of a run begins",
    refusals: &[(429, "the run has as many tasks as a run may, or the caller is over a limit of the server")],
);
const TASK_FINISH: Call = call!(
    Run "run" "task_finish", Writes, RunTaskNote => RunTaskFinished, task_finish,
    "Note that a task of a run has ended, and learn how long it took",
);

request! {
    /// What `processed` is given.
    pub(crate) struct RunItems<'a> {
        run_id: Cow<'a, str> = RUN_ID,
        /// The items: texts of 1 to 512 characters, or integers.
        items: Vec<&'a RawValue> = Spec::of(Holds::Ids { min: 1, max: MAX_ITEMS })
            .required("")
            .example(r#"["12345", "12346"]"#),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `remaining` is given.
    pub(crate) struct RunCandidates<'a> {
        run_id: Cow<'a, str> = RUN_ID,
        /// Any items: texts of 1 to 512 characters, or integers.
        items: Vec<&'a RawValue> = Spec::of(Holds::Ids { min: 0, max: usize::MAX })
            .required("")
            .example(r#"["12345", "12346"]"#),
        #[expect(dead_code, reason = "it is taken and not needed")]
        request_id: Option<Cow<'a, str>> = REQUEST_ID_UNUSED,
    }
}

request! {
    /// What `failed` is given.
    pub(crate) struct RunFailure<'a> {
        run_id: Cow<'a, str> = RUN_ID,
        /// The item: a text of 1 to 512 characters, or an integer.
        item: &'a RawValue = Spec::of(Holds::Id).required("").example(r#""12347""#),
        /// Why; 4 KiB of it are kept.
        error: Option<Cow<'a, str>> = Spec::text().example(r#""HTTP 500""#),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

request! {
    /// What `task_start` and `task_finish` are given.
    pub(crate) struct RunTaskNote<'a> {
        run_id: Cow<'a, str> = RUN_ID,
        /// The task's id, without `:`.
        task_id: Cow<'a, str> = ID
            .required("")
            .also(r#"{"pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f{}*?\\[\\]:]+$"}"#)
            .example(r#""process_docket_123""#),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `processed` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunProcessed {
    /// Items that were not processed before.
    added: u64,
    /// Items processed in this run.
    processed_count: u64,
    /// Items that have failed and were not processed since.
    failed_count: u64,
}

/// What `failed` answers.
#[derive(Debug, Serialize, JsonSchema)]
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
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunRemaining {
    /// Those that are not processed, in their order.
    items: Vec<String>,
}

/// What `task_start` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunTaskStarted {
    /// When it started; the first time if it runs already.
    #[schemars(extend("examples" = ["2026-11-16T06:22:05.000001Z"]))]
    started_at: String,
}

/// What `task_finish` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunTaskFinished {
    /// How long it took, by the store's clock.
    duration_ms: u64,
}

async fn processed(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunItems<'_> = input.read()?;
    let items = texts_of("items", &request.items)?;
    let told = run.processed(&request.run_id, &borrowed(&items), request.request_id.as_deref()).await?;
    Ok(written(&RunProcessed {
        added: told.added,
        processed_count: told.processed_count,
        failed_count: told.failed_count,
    }))
}

async fn failed(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunFailure<'_> = input.read()?;
    let item = text_of("item", request.item)?;
    let (error, request_id) = (request.error.as_deref(), request.request_id.as_deref());
    let told = run.failed(&request.run_id, &item, error, request_id).await?;
    Ok(written(&RunFailed {
        listed: told.listed,
        attempts: told.attempts,
        processed_count: told.processed_count,
        failed_count: told.failed_count,
    }))
}

async fn remaining(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunCandidates<'_> = input.read()?;
    let items = texts_of("items", &request.items)?;
    Ok(written(&RunRemaining { items: run.remaining(&request.run_id, &borrowed(&items)).await? }))
}

async fn task_start(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunTaskNote<'_> = input.read()?;
    let told = run.task_start(&request.run_id, &request.task_id, request.request_id.as_deref()).await?;
    Ok(written(&RunTaskStarted { started_at: moment(told.started_us) }))
}

async fn task_finish(services: &Services, input: Input<'_>) -> Answer {
    let run = services.quaymaster.run(input.name)?;
    let request: RunTaskNote<'_> = input.read()?;
    let told = run.task_finish(&request.run_id, &request.task_id, request.request_id.as_deref()).await?;
    Ok(written(&RunTaskFinished { duration_ms: millis(told.duration) }))
}
