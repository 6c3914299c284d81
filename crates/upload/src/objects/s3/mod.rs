//! Objects on S3 and what speaks like it.
//!
//! `object_store` signs, and finds credentials but for those in shared files; the requests are ours, for three reasons:
//! a part streams through instead of lying in memory, the store's own code and message reach the caller, and
//! `ListMultipartUploads` is not among its calls.

mod access;
mod body;
mod client;
mod ini;
mod profile;
mod shared;
mod text;
mod xml;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use md5::{Digest as _, Md5};
use object_store::RetryConfig;
use object_store::aws::AmazonS3ConfigKey;
use tokio::sync::{Mutex, MutexGuard};

use super::Pieces;
use super::answer::{Abort, About, Completed, Cursor, Head, MultipartId, PartBody, PendingPage};
use super::key::Key;
use super::options::{Checksums, ObjectsOptions};
use crate::bytes::Pool;
use crate::ledger::Part;
use crate::sha::hex;
use crate::{Digest, Error, Result, Sha256, Trouble};
use access::Variables;
use client::{Ask, Failure, Payload, Sender};

/// The metadata that says whose object it is.
const TOKEN: &str = "x-amz-meta-quaymaster-token";

/// Longer no upload waits for what is only good to know.
const PROBING: Duration = Duration::from_secs(5);

/// A bucket, and the folder of it where new objects lie.
pub(super) struct S3 {
    sender: Sender,
    /// Of the keys of new objects: empty, or ends with a slash.
    prefix: String,
    slowest: u64,
    checksums: Checksums,
    compares: Compares,
    /// The memory of parts that are read from files.
    pool: Arc<Pool>,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3")
            .field("bucket", &self.sender.bucket)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl S3 {
    /// `//bucket/prefix`.
    pub(super) fn open(rest: &str, options: &ObjectsOptions) -> Result<Self> {
        const OP: &str = "objects.open";
        let wrong = |detail: String| Error::new(OP, Trouble::Never, format!("objects: {detail}"));
        let place = rest.trim_start_matches("//").trim_end_matches('/');
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty()
            || !bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        {
            return Err(wrong("s3://bucket/prefix wants a bucket".to_owned()));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{}/", Key::new(OP, prefix)?) };

        // One provider of cryptography in the process; whoever was first has chosen it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let variables = Variables::of(options);
        let profile = variables.profile();
        let environment = variables
            .builder()
            .with_bucket_name(bucket)
            .with_retry(RetryConfig { max_retries: options.retries, ..RetryConfig::default() });
        let setting = |key| environment.get_config_value(&key).filter(|value| !value.is_empty());
        let endpoint = options
            .endpoint
            .clone()
            .or_else(|| setting(AmazonS3ConfigKey::S3Endpoint))
            .or_else(|| setting(AmazonS3ConfigKey::Endpoint));
        let known = options.region.clone().filter(|region| !region.is_empty());
        let region = match known.or_else(|| setting(AmazonS3ConfigKey::Region)) {
            Some(region) => region,
            None => profile.region()?.unwrap_or_else(|| "us-east-1".to_owned()),
        };
        let path_style = options.path_style.unwrap_or_else(|| {
            setting(AmazonS3ConfigKey::VirtualHostedStyleRequest)
                .map_or(endpoint.is_some(), |virtual_host| virtual_host != "true")
        });
        let unsigned = setting(AmazonS3ConfigKey::SkipSignature).is_some_and(|skip| skip == "true");
        let credentials = if unsigned {
            None
        } else {
            Some(access::provider(options, environment.with_region(&region), profile)?)
        };
        let client = reqwest::Client::builder()
            .connect_timeout(options.patience.min(Duration::from_secs(10)))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let bucket = bucket_url(endpoint.as_deref(), &region, bucket, path_style)
            .ok_or_else(|| wrong("the endpoint is http://host or https://host, without a path".to_owned()))?;
        let (patience, retries) = (options.patience, options.retries);
        let sender = Sender { client, credentials, region, bucket, patience, retries };
        Ok(Self {
            sender,
            prefix,
            slowest: options.slowest.max(1),
            checksums: options.checksums,
            compares: Compares::default(),
            pool: body::pool(),
        })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) async fn begin(&self, key: &Key, about: &About) -> Result<MultipartId> {
        let id = self.begin_once(key, about).await?;
        let Some(_asking) = self.compares.ask(self.checksums) else { return Ok(id) };
        match self.probe(key, &id).await {
            Probed::Known => Ok(id),
            // What was sent may arrive whenever it likes, and must find nothing.
            Probed::Unsure => {
                let aborted = self.abort(key, &id).await;
                tracing::debug!(?aborted, "a multipart upload with which the object store was tried");
                self.begin_once(key, about).await
            }
        }
    }

    async fn begin_once(&self, key: &Key, about: &About) -> Result<MultipartId> {
        const OP: &str = "objects.begin";
        let mut ask = described(Ask::new(OP, Method::POST, key.as_str()).query("uploads", ""), about)?;
        if self.checksums == Checksums::Sha256 {
            ask = ask.header("x-amz-checksum-algorithm", "SHA256")?;
        }
        let response = self.sender.send(&ask, "").await?;
        let answer = self.sender.document(OP, response).await?;
        xml::upload_id(&answer).map(MultipartId::new).ok_or_else(|| {
            Error::new(OP, Trouble::Passing, "the object store gave no upload id").saying("answer")
        })
    }

    /// Whether the store compares what arrives with `x-amz-checksum-sha256`, or takes anything: asked with a part that
    /// is not what it is said to be, sent as all others would be from then on. Nobody knows the multipart upload yet,
    /// and the part that has this number replaces what a store without the comparison took.
    async fn probe(&self, key: &Key, id: &MultipartId) -> Probed {
        const OP: &str = "objects.probe";
        let Ok(ask) = self.part_ask(OP, key, id, 1, &Sha256::of(b"something else")) else {
            return Probed::Known;
        };
        let patience = self.sender.patience.min(PROBING);
        match self.sender.once(&ask, Payload::ByItsChecksum, Some(1), "?".into(), patience).await {
            Err(Failure { error, status: Some(status), .. }) if status.is_client_error() => {
                // Whatever else it refuses it for, parts as this one are not to be sent.
                self.compares.learn(is_mismatch(&error));
                Probed::Known
            }
            Ok(_) => {
                self.compares.learn(false);
                Probed::Known
            }
            // Asked again with the next upload, but not for ever; meanwhile parts are hashed here.
            Err(Failure { error, may_have_run, .. }) => {
                tracing::debug!(%error, "not known yet whether the object store compares");
                self.compares.unsure();
                if may_have_run { Probed::Unsure } else { Probed::Known }
            }
        }
    }

    fn checksums_of(&self, id: &MultipartId) -> Checksums {
        if id.has_checksums() { self.checksums } else { Checksums::Signature }
    }

    fn part_ask(
        &self,
        op: &'static str,
        key: &Key,
        id: &MultipartId,
        number: u32,
        sha256: &Sha256,
    ) -> Result<Ask> {
        let ask = Ask::new(op, Method::PUT, key.as_str())
            .query("partNumber", number.to_string())
            .query("uploadId", id.as_str());
        match self.checksums_of(id) {
            Checksums::Sha256 => ask.header("x-amz-checksum-sha256", &xml::base64(sha256.as_bytes())),
            Checksums::Signature => Ok(ask),
        }
    }

    pub(super) async fn part(
        &self,
        key: &Key,
        id: &MultipartId,
        number: u32,
        part: PartBody,
    ) -> Result<String> {
        const OP: &str = "objects.part";
        let PartBody { size, digest, source } = part;
        let Digest::Sha256(sha256) = digest else {
            // Another node may know the store that it was begun on.
            let detail =
                format!("S3 compares SHA-256, and the part has only {digest}: begun on another store");
            return Err(Error::new(OP, Trouble::Passing, detail).saying("digest"));
        };
        let sha256 = Sha256::from_bytes(sha256);
        let ask = self.part_ask(OP, key, id, number, &sha256)?;
        let deadline = self.sender.patience + Duration::from_secs(size / self.slowest);
        // Hashed once on either side.
        let (payload, compared) = if id.has_checksums() && self.compares.does() {
            (Payload::ByItsChecksum, None)
        } else {
            (Payload::Signed(sha256), Some(sha256))
        };
        let body = body::body(&self.pool, size, source, compared).await?;
        let response = self
            .sender
            .once(&ask, payload, Some(size), body, deadline)
            .await
            .map_err(|failure| failure.error)?;
        etag(&response)
            .ok_or_else(|| Error::new(OP, Trouble::Passing, "the object store gave no ETag").saying("answer"))
    }

    pub(super) async fn complete(&self, key: &Key, id: &MultipartId, parts: &[Part]) -> Result<Completed> {
        const OP: &str = "objects.complete";
        let ask = Ask::new(OP, Method::POST, key.as_str()).query("uploadId", id.as_str());
        let request = xml::complete_request(parts, self.checksums_of(id));
        let digest = Sha256::of(request.as_bytes());
        let length = Some(request.len() as u64);
        // Once: whether a second one helps is told by a look at the object. The store may be busy for long with many
        // parts, and says nothing meanwhile.
        let deadline = self.sender.patience + Duration::from_millis(10) * parts.len() as u32;
        let response =
            match self.sender.once(&ask, Payload::Signed(digest), length, request.into(), deadline).await {
                Ok(response) => response,
                Err(Failure { error, may_have_run, status }) => {
                    let gone = status == Some(StatusCode::NOT_FOUND) && error.said() != Some("NoSuchBucket");
                    return if may_have_run || gone { Ok(Completed::Unknown(error)) } else { Err(error) };
                }
            };
        let status = response.status();
        Ok(match self.sender.document(OP, response).await {
            Err(error) => Completed::Unknown(error),
            Ok(answer) => match xml::completed_etag(&answer) {
                Some(etag) => Completed::Done { etag: Some(etag) },
                None => Completed::Unknown(client::refused(OP, status, &answer)),
            },
        })
    }

    pub(super) async fn head(&self, key: &Key) -> Result<Option<Head>> {
        const OP: &str = "objects.head";
        let response = match self.sender.send(&Ask::new(OP, Method::HEAD, key.as_str()), "").await {
            // A HEAD has no body to say more in.
            Err(error) if error.said() == Some("404") => return Ok(None),
            answered => answered?,
        };
        let text = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned()).filter(|value| !value.is_empty())
        };
        let size = text("content-length").and_then(|size| size.parse().ok());
        Ok(Some(Head {
            size: size.ok_or_else(|| {
                Error::new(OP, Trouble::Passing, "the object store gave no size").saying("answer")
            })?,
            etag: etag(&response),
            token: text(TOKEN),
            mime_type: text("content-type"),
        }))
    }

    pub(super) async fn abort(&self, key: &Key, id: &MultipartId) -> Result<Abort> {
        let ask = Ask::new("objects.abort", Method::DELETE, key.as_str()).query("uploadId", id.as_str());
        match self.sender.send(&ask, "").await {
            Ok(_) => Ok(Abort::Done),
            Err(error) if matches!(error.said(), Some("NoSuchUpload" | "404")) => Ok(Abort::Gone),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn read(&self, key: &Key, range: Option<Range<u64>>) -> Result<Option<Pieces>> {
        const OP: &str = "objects.read";
        let mut ask = Ask::new(OP, Method::GET, key.as_str());
        if let Some(range) = &range {
            if range.is_empty() {
                return Ok(Some(stream::empty().boxed()));
            }
            ask = ask.header("range", &format!("bytes={}-{}", range.start, range.end - 1))?;
        }
        let response = match self.sender.send(&ask, "").await {
            Err(error) if matches!(error.said(), Some("NoSuchKey" | "404")) => return Ok(None),
            answered => answered?,
        };
        if range.is_some() && response.status() != StatusCode::PARTIAL_CONTENT {
            return Err(
                Error::new(OP, Trouble::Never, "the object store does not read ranges").saying("answer")
            );
        }
        let patience = self.sender.patience;
        let pieces = stream::try_unfold(response, move |mut response| async move {
            let piece = tokio::time::timeout(patience, response.chunk()).await.map_err(|_| {
                let detail = format!("the object stopped for {} ms", patience.as_millis());
                Error::new(OP, Trouble::Passing, detail).saying("timeout")
            })?;
            Ok(piece.map_err(|error| client::unsent(OP, error).error)?.map(|piece| (piece, response)))
        });
        Ok(Some(pieces.boxed()))
    }

    pub(super) async fn put_empty(&self, key: &Key, about: &About) -> Result<()> {
        let ask = described(Ask::new("objects.put_empty", Method::PUT, key.as_str()), about)?;
        self.sender.send(&ask, "").await.map(drop)
    }

    pub(super) async fn pending(&self, prefix: &str, after: Option<&Cursor>) -> Result<PendingPage> {
        const OP: &str = "objects.pending";
        let mut ask = Ask::new(OP, Method::GET, "")
            .query("uploads", "")
            .query("prefix", prefix)
            .query("max-uploads", "1000");
        if let Some(Cursor { key, id }) = after {
            ask = ask.query("key-marker", key).query("upload-id-marker", id);
        }
        let response = self.sender.send(&ask, "").await?;
        let answer = self.sender.document(OP, response).await?;
        let page = xml::pending(&answer).map_err(|error| {
            Error::new(OP, Trouble::Passing, format!("no list of uploads: {error}"))
                .saying("answer")
                .because(error)
        })?;
        // Some stores go on by the id alone.
        let nowhere = |next: &Cursor| next.key.is_empty() && next.id.is_empty();
        if page.next.as_ref().is_some_and(|next| nowhere(next) || Some(next) == after) {
            let detail = "the list of uploads goes on where it was: it would never end";
            return Err(Error::new(OP, Trouble::Passing, detail).saying("answer"));
        }
        Ok(page)
    }
}

/// How a trial of the store ended.
enum Probed {
    /// Nothing of it is under way.
    Known,
    /// It may still be.
    Unsure,
}

/// What is known of a store's comparison of parts with their checksums: so many vain questions, or an answer.
#[derive(Debug, Default)]
struct Compares {
    known: AtomicU8,
    asking: Mutex<()>,
}

impl Compares {
    /// Vain questions after which it is taken for a no.
    const NO: u8 = 3;
    const YES: u8 = u8::MAX;

    /// Whether it is to be asked now, by whoever gets this: one at a time.
    fn ask(&self, checksums: Checksums) -> Option<MutexGuard<'_, ()>> {
        let open = checksums == Checksums::Sha256 && self.known.load(Relaxed) < Self::NO;
        open.then(|| self.asking.try_lock().ok()).flatten()
    }

    fn does(&self) -> bool {
        self.known.load(Relaxed) == Self::YES
    }

    fn learn(&self, does: bool) {
        tracing::debug!(does, "whether the object store compares parts with their checksums");
        self.known.store(if does { Self::YES } else { Self::NO }, Relaxed);
    }

    /// Under the guard of [`Compares::ask`].
    fn unsure(&self) {
        self.known.fetch_add(1, Relaxed);
    }
}

/// Whether a store refused bytes because they are not those of their checksum.
fn is_mismatch(error: &Error) -> bool {
    matches!(error.said(), Some("BadDigest" | "XAmzContentChecksumMismatch"))
}

/// With the object's own description.
fn described(mut ask: Ask, about: &About) -> Result<Ask> {
    if !about.token.is_empty() {
        ask = ask.header(TOKEN, &about.token)?;
    }
    if !about.mime_type.is_empty() {
        ask = ask.header("content-type", &about.mime_type)?;
    }
    for (name, value) in &about.custom {
        ask = ask.header(&format!("x-amz-meta-{name}"), value)?;
    }
    Ok(ask)
}

/// The ETag of an object of these parts: a digest of their digests, and how many there are. `None` where they are none of
/// MD5, as with some keys of a customer's.
pub(super) fn etag_of(parts: &[Part]) -> Option<String> {
    let mut md5 = Md5::new();
    for part in parts {
        let hex = part.etag.trim_matches('"');
        if hex.len() != 32 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for at in (0..hex.len()).step_by(2) {
            md5.update([u8::from_str_radix(&hex[at..at + 2], 16).ok()?]);
        }
    }
    Some(format!("\"{}-{}\"", hex(&md5.finalize()), parts.len()))
}

fn etag(response: &reqwest::Response) -> Option<String> {
    response.headers().get(http::header::ETAG)?.to_str().ok().map(str::to_owned)
}

/// Where the bucket is, without a slash at the end.
fn bucket_url(endpoint: Option<&str>, region: &str, bucket: &str, path_style: bool) -> Option<String> {
    let amazon = format!("https://s3.{region}.amazonaws.com");
    let endpoint = endpoint.unwrap_or(&amazon).trim_end_matches('/');
    let (scheme, host) = endpoint.split_once("://")?;
    if !matches!(scheme, "http" | "https") || host.is_empty() || host.contains(['/', '?', '#', '@']) {
        return None;
    }
    Some(if path_style { format!("{endpoint}/{bucket}") } else { format!("{scheme}://{bucket}.{host}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_found_at_amazon_or_at_an_endpoint() {
        let url = |endpoint, path_style| bucket_url(endpoint, "eu-west-1", "b", path_style);
        assert_eq!(url(None, true).as_deref(), Some("https://s3.eu-west-1.amazonaws.com/b"));
        assert_eq!(url(None, false).as_deref(), Some("https://b.s3.eu-west-1.amazonaws.com"));
        assert_eq!(url(Some("http://127.0.0.1:8333/"), true).as_deref(), Some("http://127.0.0.1:8333/b"));
        assert_eq!(url(Some("https://s3.example"), false).as_deref(), Some("https://b.s3.example"));
        for wrong in ["127.0.0.1:8333", "ftp://x", "http://", "http://x/path", "http://user@x"] {
            assert_eq!(url(Some(wrong), true), None, "{wrong}");
        }
    }
}
