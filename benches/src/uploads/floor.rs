//! The floors: `object_store` multipart straight to the disk or to the object store, with nothing in between and nothing
//! remembered.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use futures_util::TryStreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload};
use tokio::sync::Mutex;

use super::load::{Digest, Load};
use super::seaweed::{BUCKET, KEY_ID, SECRET};
use super::senders::together;
use crate::sample::Sample;

pub(super) const NAME: &str = "floor";

/// To a folder. Every part is synced before the next one is taken, as our chunks are, and the whole at the end.
pub(super) async fn to_disk(folder: &Path, load: &Load, senders: usize) -> Result<Sample> {
    let store = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
    // Where it collects the parts until they are whole.
    let staged = folder.join(format!("{NAME}#1"));
    multipart(&store, load, senders, move || {
        let staged = staged.clone();
        async move {
            tokio::task::spawn_blocking(move || std::fs::File::open(staged)?.sync_data()).await??;
            Ok(())
        }
    })
    .await
}

/// Reads what somebody stored under a name.
pub(super) async fn verify_disk(folder: &Path, name: &str, load: &Load) -> Result<()> {
    check(&LocalFileSystem::new_with_prefix(folder)?, name, load).await
}

/// What the store is told of a part beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    /// Nothing to compare it with.
    None,
    /// Its SHA-256.
    Sha256,
}

/// To S3.
pub(super) async fn to_s3(port: u16, checks: Checks, load: &Load, senders: usize) -> Result<Sample> {
    multipart(&s3(port, checks)?, load, senders, || std::future::ready(Ok(()))).await
}

/// Reads what somebody stored under a name.
pub(super) async fn verify_s3(port: u16, name: &str, load: &Load) -> Result<()> {
    check(&s3(port, Checks::None)?, name, load).await
}

fn s3(port: u16, checks: Checks) -> Result<AmazonS3> {
    // Its client wants a provider of cryptography even where nothing is encrypted; whoever was first has chosen it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = AmazonS3Builder::new();
    if checks == Checks::Sha256 {
        builder = builder.with_checksum_algorithm(Checksum::SHA256);
    }
    Ok(builder
        .with_endpoint(format!("http://127.0.0.1:{port}"))
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name(BUCKET)
        .with_access_key_id(KEY_ID)
        .with_secret_access_key(SECRET)
        .build()?)
}

async fn multipart<F>(
    store: &dyn ObjectStore,
    load: &Load,
    senders: usize,
    after_each: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> Result<Sample>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let began = Instant::now();
    let upload: Box<dyn MultipartUpload> = store.put_multipart(&Key::from(NAME)).await?;
    let upload = Arc::new(Mutex::new((upload, 0)));
    together(senders, load.chunks, |numbers| {
        let (upload, load, after_each) = (Arc::clone(&upload), load.clone(), after_each.clone());
        async move {
            while numbers.take().is_some() {
                // Parts are numbered in the order in which they are asked for.
                let part = {
                    let mut upload = upload.lock().await;
                    let number = upload.1;
                    upload.1 += 1;
                    upload.0.put_part(PutPayload::from_iter(load.chunk(number)))
                };
                part.await?;
                after_each().await?;
            }
            Ok(())
        }
    })
    .await?;
    upload.lock().await.0.complete().await?;
    Ok(Sample::new(load.mib(), began.elapsed()))
}

async fn check(store: &dyn ObjectStore, name: &str, load: &Load) -> Result<()> {
    let mut digest = Digest::new();
    let mut pieces = store.get(&Key::from(name)).await?.into_stream();
    while let Some(piece) = pieces.try_next().await? {
        digest.update(&piece);
    }
    load.check(name, digest)
}
