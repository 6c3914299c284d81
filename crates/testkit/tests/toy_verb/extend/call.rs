
const EXTEND: Call = call!(
    Dedupe "dedupe" "extend", Writes, DedupeExtend => DedupeExtended, extend, "Remember the first one for longer",
    needs: Needs::Operate, no: No::Words("outcome", &["absent"]),
);

request! {
    /// What `extend` is given.
    pub(crate) struct DedupeExtend<'a> {
        /// The placeholders of the dedupe's key, by name.
        key: KeyValues<'a> = KEY.example(r#"{"sha256_hash": "9f86d0"}"#),
        request_id: Option<Cow<'a, str>> = REQUEST_ID,
    }
}

/// What `extend` answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum DedupeExtended {
    /// The first one is remembered.
    Extended {
        /// For how long.
        ttl_ms: u64,
    },
    /// Nobody was here before.
    Absent,
}

async fn extend(services: &Services, input: Input<'_>) -> Answer {
    let dedupe = services.quaymaster.dedupe(input.name)?;
    let request: DedupeExtend<'_> = input.read()?;
    let extended = dedupe.extend(&pairs(&request.key), request.request_id.as_deref()).await?;
    Ok(written(&if extended {
        DedupeExtended::Extended { ttl_ms: millis(dedupe.spec().ttl) }
    } else {
        DedupeExtended::Absent
    }))
}
