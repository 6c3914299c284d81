//! What is wrong with an upload is told when a server starts, and not by the first upload.

use std::sync::Arc;

use quaymaster::store::embedded::{EmbeddedOptions, EmbeddedStore};
use quaymaster::store::{StoreOptions, open};
use quaymaster::{Code, Quaymaster, Result};
use quaymaster_server::config::{Config, Overrides, RawConfig};
use quaymaster_server::doctor::Eviction;
use quaymaster_server::{ChunkPlace, Depot, UploadConfig};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use tempfile::TempDir;

use crate::fixture::schema;
use crate::uploads::config_in;

/// The uploads of a server that nobody has uploaded to.
async fn depot(fields: &str, config: &UploadConfig) -> Depot {
    let text = format!(
        "[schema]\nname = \"test\"\nowner = \"tests\"\n[upload.files]\nkey = \"upload:{{upload_id}}:state\"\n{fields}\n"
    );
    let engine = Arc::new(EmbeddedStore::memory(EmbeddedOptions::default()).await.unwrap());
    Depot::new(&Quaymaster::new(schema(&text), engine), config)
}

async fn started(fields: &str, chunks: ChunkPlace) -> Result<()> {
    let folder = TempDir::new().unwrap();
    let checked = depot(fields, &config_in(folder.path(), chunks)).await.check().await;
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is made before it is needed");
    checked
}

#[tokio::test]
async fn events_that_cannot_be_sent_are_told_before_anybody_uploads() {
    for url in ["outbox:a b", "kafka://", "kafka://me:hunter2@host/t"] {
        let refused = started(&format!("events = \"{url}\""), ChunkPlace::Spool).await.unwrap_err();
        assert_eq!(refused.code, Code::ConfigInvalid, "{refused}");
        assert!(refused.detail.contains("events:") && !refused.detail.contains("hunter2"), "{refused}");
    }
    started("events = \"outbox:files.done\"", ChunkPlace::Spool).await.unwrap();
    // Also where something else is only away.
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("uploads.db"), "").unwrap();
    let both = "events = \"outbox:a b\"\nchunks = \"redis://127.0.0.1:1\"";
    let refused = depot(both, &config_in(folder.path(), ChunkPlace::Spool)).await.check().await;
    assert_eq!(refused.unwrap_err().code, Code::ConfigInvalid);
}

#[tokio::test]
async fn a_chunk_larger_than_a_string_of_redis_is_refused_unless_it_is_spooled() {
    let large = "chunk_max = 536870913\nmax_bytes_in_flight = \"1GiB\"";
    let apart = format!("{large}\nchunks = \"redis://127.0.0.1:1\"");
    for (fields, chunks) in [(large, ChunkPlace::Store), (&*apart, ChunkPlace::Spool)] {
        let refused = started(fields, chunks).await.unwrap_err();
        assert_eq!(refused.code, Code::ConfigInvalid, "{refused}");
        assert!(refused.detail.contains("chunk_max") && refused.detail.contains("512MiB"), "{refused}");
        // A command does not start: it finds the same when it opens them.
        let folder = TempDir::new().unwrap();
        let opened = depot(large, &config_in(folder.path(), ChunkPlace::Store)).await.open("files").await;
        assert_eq!(opened.unwrap_err().code, Code::ConfigInvalid);
    }
    let spooled = format!("{large}\nchunks = \"file:here\"");
    started(large, ChunkPlace::Spool).await.unwrap();
    started(&spooled, ChunkPlace::Store).await.unwrap();
    let most = "chunk_max = \"512MiB\"\nmax_bytes_in_flight = \"1GiB\"";
    started(most, ChunkPlace::Store).await.unwrap();
}

#[tokio::test]
async fn a_store_of_chunks_that_evicts_is_refused_unless_accepted() {
    // What has a TTL is evicted by either, and every chunk has one.
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let redis = RedisServer::start(RedisConfig::default().line(format!("maxmemory-policy {policy}")));
        let chunks = format!("chunks = \"{}\"", redis.url());
        let refused = started(&chunks, ChunkPlace::Store).await.unwrap_err();
        assert_eq!(refused.code, Code::StoreUnsafe, "{refused}");
        for word in [policy, "upload.files", "--accept-eviction"] {
            assert!(refused.detail.contains(word), "{refused}");
        }
        let folder = TempDir::new().unwrap();
        let accepts =
            UploadConfig { eviction: Eviction::Accepted, ..config_in(folder.path(), ChunkPlace::Store) };
        let accepted = depot(&chunks, &accepts).await;
        accepted.check().await.unwrap();
        accepted.open("files").await.unwrap();
        // One that is in use is examined all the same.
        let refused = depot(&chunks, &config_in(folder.path(), ChunkPlace::Store)).await.check().await;
        assert_eq!(refused.unwrap_err().code, Code::StoreUnsafe);
        // A command that runs once takes the store as it is, as it does the other.
        depot(&chunks, &config_in(folder.path(), ChunkPlace::Store)).await.open("files").await.unwrap();
    }
    let redis = RedisServer::start(RedisConfig::default());
    started(&format!("chunks = \"{}\"", redis.url()), ChunkPlace::Store).await.unwrap();
    started("chunks = \"redis://127.0.0.1:1\"", ChunkPlace::Store)
        .await
        .expect("one that is away may come back");
}

#[tokio::test]
async fn whoever_takes_chunks_without_a_server_refuses_a_store_that_evicts() {
    let redis = RedisServer::start(RedisConfig::default().line("maxmemory-policy allkeys-lru"));
    let options = StoreOptions::from_url(&redis.url(), ".".as_ref()).unwrap();
    let text = "[schema]\nname = \"test\"\n[upload.files]\nkey = \"upload:{upload_id}:state\"\n";
    let quaymaster = Quaymaster::new(schema(text), open(options).await.unwrap());
    let folder = TempDir::new().unwrap();
    for (eviction, refuses) in [(Eviction::Refused, true), (Eviction::Accepted, false)] {
        let config = UploadConfig { eviction, ..config_in(folder.path(), ChunkPlace::Store) };
        let examined = Depot::new(&quaymaster, &config).examine(&quaymaster).await;
        assert_eq!(examined.err().map(|error| error.code), refuses.then_some(Code::StoreUnsafe));
    }
}

#[test]
fn eviction_is_accepted_for_chunks_where_it_is_for_the_store() {
    let resolved = |toml: &str, accept_eviction: bool| {
        let raw = RawConfig::parse("test.toml", toml, std::path::Path::new(""), &|_| None).unwrap();
        let overrides = Overrides { accept_eviction, ..Overrides::default() };
        Config::resolve(raw, overrides).unwrap().uploads.eviction
    };
    assert_eq!(resolved("", false), Eviction::Refused);
    assert_eq!(resolved("", true), Eviction::Accepted);
    assert_eq!(resolved("[store]\naccept_eviction = true\n", false), Eviction::Accepted);
}
