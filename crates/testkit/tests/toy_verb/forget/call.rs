
const FORGET: Call = call!(
    Dedupe "dedupe" "forget", Writes, DedupeForget => DedupeForgotten, forget, "Let the next one be the first again",
    no: No::Truth("forgotten", false),
);

request! {
    /// What `forget` is given.
    pub(crate) struct DedupeForget<'a> {
        /// The placeholders of the dedupe's key, by name.
        key: KeyValues<'a> = KEY.example(r#"{"sha256_hash": "9f86d0"}"#),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `forget` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DedupeForgotten {
    /// Whether there was something to forget.
    forgotten: bool,
}

async fn forget(services: &Services, input: Input<'_>) -> Answer {
    let dedupe = services.quaymaster.dedupe(input.name)?;
    let request: DedupeForget<'_> = input.read()?;
    let forgotten = dedupe.forget(&pairs(&request.key), request.request_id.as_deref()).await?;
    Ok(written(&DedupeForgotten { forgotten }))
}
