//! The little JSON the primitives need: whether a text is some, and a string of it.

/// Why a text is no JSON, and where.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotJson {
    #[error("not UTF-8 at byte {}", .0.valid_up_to())]
    Bytes(#[from] std::str::Utf8Error),
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
}

/// Whether `text` is one JSON value, without keeping any of it.
pub(crate) fn check(text: &[u8]) -> Result<(), NotJson> {
    // What is skipped is not looked at closely enough to find bytes that are no text.
    let text = std::str::from_utf8(text)?;
    Ok(serde_json::from_str::<serde::de::IgnoredAny>(text).map(drop)?)
}

/// Appends `text` as a JSON string.
pub(crate) fn push_text(out: &mut String, text: &str) {
    // A string cannot fail to be written into memory.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}
