//! What must be so before a schema is used on a store: no key of it has the name of an earlier version.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use quaymaster_schema::{Document, Schema};
use quaymaster_store::Engine;

use super::{Ask, Mode, What, ops, walk};
use crate::bound::spelling;
use crate::{Code, Error, Result};

const OP: &str = "respell.prepare";

/// Keys of no schema lie under this prefix on the embedded store.
const OWN: &str = "quaymaster:";

/// Pages of a Redis that [`Depth::Scan`] looks at, of a thousand keys each.
const PAGES: u64 = 20;

/// How far a Redis is searched for old names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only those without placeholders, which can be asked for: a round trip.
    Fixed,
    /// Some thousand keys of the store as well.
    Scan,
}

/// Makes sure that no key of `schema` has the name of an earlier version. Call it once, before the first use.
///
/// A data folder of the embedded store is converted. On Redis nothing is changed: old names are an error
/// ([`Code::StoreNames`]), since servers of an earlier version may still use them.
pub async fn prepare(schema: &Schema, engine: &Arc<dyn Engine>, depth: Depth) -> Result<()> {
    if !schema.has_prefixes() {
        return Ok(());
    }
    let facts = match engine.deployment().await {
        // A Redis whose user may not ask.
        Err(error) if error.code == Code::StorePermission => return refuse(schema, engine, depth).await,
        facts => facts.map_err(|error| error.during(OP))?,
    };
    match (facts.product.as_str(), facts.mode.as_str()) {
        ("embedded", "memory") => Ok(()),
        ("embedded", _) => convert(schema, engine).await,
        _ => refuse(schema, engine, depth).await,
    }
}

/// A schema whose keys have no old names, as the store remembers it.
struct Note {
    key: String,
    /// Of the patterns that had other names: another schema under the same name is looked at again.
    digest: String,
}

/// Renames what has an old name, and notes when nothing has one any more: the next opening need not look again.
async fn convert(schema: &Schema, engine: &Arc<dyn Engine>) -> Result<()> {
    let mut missing = Vec::new();
    for note in notes(schema) {
        let reply = engine.run(ops::noted(&note.key)?).await.map_err(|error| error.during(ops::NOTED))?;
        if ops::digest(reply)? != note.digest {
            missing.push(note);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let ask = Ask { mode: Mode::Apply, ..Ask::default() };
    let report = walk(schema, engine, &ask, |_| ()).await?;
    if report.renamed > 0 {
        tracing::info!(keys = report.renamed, "keys of the data folder were given the names of this version");
    }
    if let Some(taken) = report.findings.iter().find(|finding| finding.what == What::Taken) {
        // Without a note: it is said again until somebody has decided.
        tracing::warn!(
            keys = report.taken,
            old = taken.old,
            new = taken.new,
            "keys have both their old name and their new one; the new one is used, `quaymaster respell` lists them"
        );
        return Ok(());
    }
    for note in &missing {
        let noting = engine.run(ops::note(&note.key, &note.digest)?);
        ops::was_noted(noting.await.map_err(|error| error.during(ops::NOTE))?)?;
    }
    Ok(())
}

fn notes(schema: &Schema) -> Vec<Note> {
    let note = |(document, patterns): (&Document, Vec<&str>)| {
        let digest = ring::digest::digest(&ring::digest::SHA256, patterns.join("\n").as_bytes());
        Note { key: format!("{OWN}names:{}", document.name), digest: BASE64.encode(digest) }
    };
    schema.respelled_patterns().into_iter().map(note).collect()
}

async fn refuse(schema: &Schema, engine: &Arc<dyn Engine>, depth: Depth) -> Result<()> {
    let names = schema.old_names(spelling(engine.topology()));
    let (mut found, mut hidden) = (None, false);
    for some in names.chunks(64) {
        let looks = some.iter().map(|name| engine.key_facts(name.as_bytes()));
        for (name, facts) in some.iter().zip(futures_util::future::join_all(looks).await) {
            match facts {
                Ok(Some(_)) => found = found.or_else(|| Some(name.clone())),
                Ok(None) => {}
                // The user may have lost the right since; a scan needs none to the key.
                Err(error) if error.code == Code::StorePermission => hidden = true,
                Err(error) => return Err(error.during(OP)),
            }
        }
    }
    if found.is_none() && (hidden || depth == Depth::Scan) {
        found = scanned(schema, engine).await?;
    }
    let Some(name) = found else { return Ok(()) };
    let detail = format!(
        "`{name}` is a name of an earlier version, today it is `{}`; stop every server and worker of these schemas, run \
         `quaymaster respell --apply`, and start again",
        schema
            .respelled(name.as_bytes())
            .map_or_else(String::new, |new| String::from_utf8_lossy(&new).into_owned())
    );
    Err(Error::new(OP, Code::StoreNames, detail))
}

/// An old name among the first keys of the store.
async fn scanned(schema: &Schema, engine: &Arc<dyn Engine>) -> Result<Option<String>> {
    let mut cursor = None;
    for _ in 0..PAGES {
        let page = match engine.scan(super::OLD, super::PAGE, cursor.take()).await {
            Err(error) if error.code == Code::StorePermission => return Ok(None),
            page => page.map_err(|error| error.during(OP))?,
        };
        if let Some(old) = page.keys.iter().find(|key| schema.respelled(key).is_some()) {
            return Ok(Some(String::from_utf8_lossy(old).into_owned()));
        }
        match page.next {
            None => break,
            next => cursor = next,
        }
    }
    Ok(None)
}
