//! `[uploads]`: where uploads lie and how object stores and databases are reached. What is not given comes from the
//! usual environment variables, as their own tools read them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quaymaster::store::StoreOptions;
use quaymaster_upload::Options;
use quaymaster_upload::ledger::{LedgerOptions, NodeTable};
use quaymaster_upload::objects::{Checksums, Credentials, Fsync, ObjectsOptions};

use super::WrongSetting;
use super::walk::{Scalar, Table};
use crate::depot::{ChunkPlace, UploadConfig};
use crate::doctor::Eviction;

/// `[uploads]` as it is written.
#[derive(Debug, Clone, Default)]
pub(super) struct RawUploads {
    folder: Option<PathBuf>,
    spool: Option<PathBuf>,
    lease: Option<Duration>,
    attempts: Option<u32>,
    keep_events: Option<Duration>,
    min_bytes_per_second: Option<u64>,
    slow_after: Option<Duration>,
    objects: ObjectsOptions,
    database: LedgerOptions,
}

/// The most a setting of attempts or retries may be.
const TRIES_MAX: u64 = 1000;

pub(super) fn read(root: &Table<'_, '_>, folder: &Path) -> RawUploads {
    let known = [
        "folder",
        "spool",
        "fsync",
        "lease",
        "attempts",
        "keep_events",
        "min_bytes_per_second",
        "slow_after",
        "s3",
        "database",
    ];
    let Some(table) = root.table("uploads", &known) else { return RawUploads::default() };
    let path = |scalar: &Scalar| scalar.text().map(|text| folder.join(text));
    let fsync = table.get("fsync", |scalar| match scalar.text()?.as_str() {
        "always" => Ok(Fsync::Always),
        "never" => Ok(Fsync::Never),
        _ => Err("must be \"always\" or \"never\"".into()),
    });
    RawUploads {
        folder: table.get("folder", path),
        spool: table.get("spool", path),
        lease: table.get("lease", lease),
        attempts: table.get("attempts", |scalar| tries(scalar, 1)),
        keep_events: table.get("keep_events", keep_events),
        min_bytes_per_second: table.get("min_bytes_per_second", Scalar::bytes),
        slow_after: table.get("slow_after", Scalar::duration),
        objects: ObjectsOptions { fsync: fsync.unwrap_or_default(), ..s3(&table) },
        database: database(&table),
    }
}

/// Renewed three times in it, and a chunk's lease is at most a quarter of an hour.
fn lease(scalar: &Scalar) -> Result<Duration, String> {
    let lease = scalar.duration()?;
    let range = Duration::from_secs(1)..=Duration::from_secs(900);
    if range.contains(&lease) { Ok(lease) } else { Err("must be from \"1s\" to \"15m\"".into()) }
}

/// A reader that was away for a night finds them all the same.
fn keep_events(scalar: &Scalar) -> Result<Duration, String> {
    let keep = scalar.duration()?;
    if keep >= Duration::from_secs(86_400) { Ok(keep) } else { Err("must be at least \"1d\"".into()) }
}

fn tries(scalar: &Scalar, low: u64) -> Result<u32, String> {
    let number = scalar.integer(low)?;
    let tries = u32::try_from(number).ok().filter(|_| number <= TRIES_MAX);
    tries.ok_or_else(|| format!("must be at most {TRIES_MAX}"))
}

fn s3(uploads: &Table<'_, '_>) -> ObjectsOptions {
    let default = ObjectsOptions::default();
    let known = [
        "endpoint",
        "region",
        "path_style",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "checksums",
        "timeout",
        "min_bytes_per_second",
        "retries",
    ];
    let Some(table) = uploads.table("s3", &known) else { return default };
    ObjectsOptions {
        endpoint: table.get("endpoint", endpoint),
        region: table.get("region", Scalar::text),
        path_style: table.get("path_style", Scalar::bool),
        credentials: credentials(&table),
        checksums: table
            .get("checksums", |scalar| match scalar.text()?.as_str() {
                "sha256" => Ok(Checksums::Sha256),
                "signature" => Ok(Checksums::Signature),
                _ => Err("must be \"sha256\" or \"signature\"".into()),
            })
            .unwrap_or(default.checksums),
        patience: table.get("timeout", Scalar::duration).unwrap_or(default.patience),
        slowest: table.get("min_bytes_per_second", Scalar::bytes).unwrap_or(default.slowest),
        retries: table
            .get("retries", |scalar| tries(scalar, 0))
            .map_or(default.retries, |many| many as usize),
        ..default
    }
}

fn endpoint(scalar: &Scalar) -> Result<String, String> {
    let text = scalar.text()?;
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let fine = host.is_some_and(|host| {
        let host = host.trim_end_matches('/');
        !host.is_empty() && !host.contains(['/', '?', '#', '@', ' '])
    });
    // Not shown: it may have a password in it.
    if fine {
        Ok(text)
    } else {
        Err("must be http://host:port or https://host:port, and nothing else".into())
    }
}

/// All that is needed, or nothing; the secrets only from the environment.
fn credentials(table: &Table<'_, '_>) -> Option<Credentials> {
    let key_id = table.get("access_key_id", Scalar::text);
    let secret = table.secret("secret_access_key");
    let token = table.secret("session_token");
    match (key_id, secret, token) {
        (Some(key_id), Some(secret), token) => Some(Credentials { key_id, secret, token }),
        (None, None, None) => None,
        _ => {
            // A secret that could not be read has been told of already.
            for (field, needs) in
                [("access_key_id", "secret_access_key"), ("secret_access_key", "access_key_id")]
            {
                if table.has(field) && !table.has(needs) {
                    table.report(field, &format!("is of no use without {needs}"), None);
                }
            }
            if table.has("session_token") && !table.has("access_key_id") && !table.has("secret_access_key") {
                let why = "is of no use without access_key_id and secret_access_key";
                table.report("session_token", why, None);
            }
            None
        }
    }
}

fn database(uploads: &Table<'_, '_>) -> LedgerOptions {
    let default = LedgerOptions::default();
    let Some(table) = uploads.table("database", &["connections", "deadline", "nodes"]) else {
        return default;
    };
    LedgerOptions {
        nodes: nodes(&table),
        connections: table
            .get("connections", |scalar| tries(scalar, 1))
            .map_or(default.connections, |many| many as usize),
        deadline: table.get("deadline", Scalar::duration).unwrap_or(default.deadline),
        ..default
    }
}

/// The table of documents: its name, with a schema before a dot if need be, and the names of its columns.
fn nodes(database: &Table<'_, '_>) -> NodeTable {
    let name = |scalar: &Scalar| {
        let text = scalar.text()?;
        NodeTable::refuse(&text).map_or(Ok(text), |why| Err(why.to_owned()))
    };
    let in_schema = |scalar: &Scalar| {
        let text = scalar.text()?;
        let refused = text.splitn(2, '.').find_map(NodeTable::refuse);
        refused.map_or(Ok(text), |why| Err(format!("{why}, with a schema before a dot if need be")))
    };
    let Some(table) = database.table("nodes", &["table", "columns"]) else { return NodeTable::default() };
    let known: Vec<&str> = NodeTable::columns().collect();
    let columns = table.table("columns", &known).map(|columns| {
        let named = |column: &&str| Some(((*column).to_owned(), columns.get(column, name)?));
        known.iter().filter_map(named).collect()
    });
    NodeTable { table: table.get("table", in_schema), columns: columns.unwrap_or_default() }
}

/// Beside the embedded store unless told; elsewhere in the data folder, with the chunks in the store.
pub(super) fn resolve(
    raw: RawUploads,
    store: Option<&StoreOptions>,
    data_dir: &Path,
    eviction: Eviction,
    problems: &mut Vec<WrongSetting>,
) -> UploadConfig {
    let chunks = match store {
        Some(StoreOptions::Redis(_)) => ChunkPlace::Store,
        _ => ChunkPlace::Spool,
    };
    if chunks == ChunkPlace::Store && raw.spool.is_some() {
        let why = "a setting of the embedded store; with Redis chunks wait there, or where the schema's `chunks` says";
        problems.push(WrongSetting::new("uploads.spool", why));
    }
    let beside = match store {
        Some(StoreOptions::Embedded(dir, _)) => dir.clone(),
        _ => data_dir.into(),
    };
    let (default, paces) = (Options::default(), UploadConfig::default());
    UploadConfig {
        folder: raw.folder.unwrap_or(beside),
        chunks,
        // From here on, not from `folder`.
        spool: raw.spool.map(|path| std::path::absolute(&path).unwrap_or(path)),
        objects: raw.objects,
        database: raw.database,
        lease: raw.lease.unwrap_or(default.lease),
        attempts: raw.attempts.unwrap_or(default.attempts),
        keep_events: raw.keep_events,
        min_bytes_per_second: raw.min_bytes_per_second.unwrap_or(paces.min_bytes_per_second),
        slow_after: raw.slow_after.unwrap_or(paces.slow_after),
        eviction,
        retry: default.away,
    }
}
