//! The little JSON the primitives need: whether a text is some, and a string of it.

/// Whether `text` is one JSON value, without keeping any of it; the error says where it is not.
pub(crate) fn check(text: &[u8]) -> Result<(), String> {
    // What is skipped is not looked at closely enough to find bytes that are no text.
    let text =
        std::str::from_utf8(text).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).map(drop).map_err(|error| error.to_string())
}

/// Appends `text` as a JSON string.
pub(crate) fn push_text(out: &mut String, text: &str) {
    // A string cannot fail to be written into memory.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}
