//! Who may call: a PSP's bearer token against the digest in SQL, cached in the store.

use axum::http::{HeaderMap, StatusCode, header};
use quaymaster::cache::Value;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::answer::{self, Failure, Reply};
use crate::app::App;

/// `PSP001=token,PSP002=token`, as the environment gives it.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut tokens = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        // The token itself is not repeated in the message.
        let (psp_id, token) = part
            .split_once('=')
            .ok_or_else(|| anyhow::anyhow!("PSP_TOKENS: `PSP=token,PSP=token` expected"))?;
        if crate::request::check_id("psp_id", psp_id).is_err() || token.len() < 16 {
            anyhow::bail!("PSP_TOKENS: {psp_id}: a plain id and a token of at least 16 characters expected");
        }
        tokens.push((psp_id.to_owned(), sha256(token)));
    }
    Ok(tokens)
}

/// Lets the request through when it carries the PSP's token, or when no PSP has one.
pub(crate) async fn admit(app: &App, psp_id: &str, headers: &HeaderMap) -> Result<(), Reply> {
    if !app.tokens {
        return Ok(());
    }
    let shown = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    let Some(shown) = shown else {
        return Err(Reply::refused(StatusCode::UNAUTHORIZED, "auth.required", "send the PSP's bearer token"));
    };
    let expected = expected(app, psp_id).await.map_err(Reply::from)?;
    // Digests of equal length: comparing them tells nothing about the token.
    if expected.is_some_and(|expected| expected == sha256(shown)) {
        Ok(())
    } else {
        Err(Reply::refused(StatusCode::FORBIDDEN, "auth.forbidden", "this is not the token of this PSP"))
    }
}

fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        use std::fmt::Write as _;
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// 128 bits.
pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    // The system's generator fails only where there is none; a process-wide one is then better than a panic.
    if SystemRandom::new().fill(&mut bytes).is_err() {
        fastrand::fill(&mut bytes);
    }
    bytes
}

/// From the cache; from SQL once a day, and while the store is away.
async fn expected(app: &App, psp_id: &str) -> Result<Option<String>, Failure> {
    let (payments, id) = (app.payments.clone(), psp_id.to_owned());
    let load = move || {
        let (payments, id) = (payments.clone(), id.clone());
        async move { Ok(payments.token_sha256(&id).await?.map(|digest| Value::from(digest.as_str()))) }
    };
    let found = answer::cached(app.quaymaster.cache("token")?, &[("psp_id", psp_id)], load).await?;
    Ok(found.and_then(|found| found.value.text().map(str::to_owned)))
}
