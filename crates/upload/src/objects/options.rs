//! How an object store is reached.

use std::fmt;
use std::time::Duration;

/// Whether the local store waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fsync {
    /// What was acknowledged survives a power cut.
    #[default]
    Always,
    /// It survives a killed process only.
    Never,
}

/// How S3 is told what the bytes of a part must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksums {
    /// By `x-amz-checksum-sha256`, declared when the upload begins: compared by every store that knows it.
    #[default]
    Sha256,
    /// Only by the signature's own digest, which some stores do not compare with what arrives. For stores that
    /// refuse the other.
    Signature,
}

/// Settings of an object store; what is `None` comes from the environment.
#[derive(Clone)]
pub struct ObjectsOptions {
    /// Whether the local store waits for the disk.
    pub fsync: Fsync,
    /// S3: where, if not at Amazon: `http://127.0.0.1:8333`.
    pub endpoint: Option<String>,
    /// S3: region.
    pub region: Option<String>,
    /// S3: `http://host/bucket/key` instead of `http://bucket.host/key`. By default where an endpoint is given.
    pub path_style: Option<bool>,
    /// S3: key id, secret, and the session token of temporary credentials.
    pub credentials: Option<Credentials>,
    /// S3: the variables that everything else comes from, `AWS_…` and `HOME`; by default the process's own.
    pub environment: Option<Vec<(String, String)>>,
    /// S3: how a part is compared with its digest on arrival.
    pub checksums: Checksums,
    /// S3: no answer and no progress for so long is a failure.
    pub patience: Duration,
    /// S3: the slowest pace at which a part may be sent, in bytes a second.
    pub slowest: u64,
    /// S3: how often a request is repeated here, on errors that may pass, before the caller hears of it.
    pub retries: usize,
}

impl Default for ObjectsOptions {
    fn default() -> Self {
        Self {
            fsync: Fsync::default(),
            endpoint: None,
            region: None,
            path_style: None,
            credentials: None,
            environment: None,
            checksums: Checksums::default(),
            patience: Duration::from_secs(30),
            slowest: 64 * 1024,
            retries: 2,
        }
    }
}

impl fmt::Debug for ObjectsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectsOptions")
            .field("fsync", &self.fsync)
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("path_style", &self.path_style)
            .finish_non_exhaustive()
    }
}

/// Credentials that were configured.
#[derive(Clone)]
pub struct Credentials {
    /// `AWS_ACCESS_KEY_ID`.
    pub key_id: String,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret: String,
    /// `AWS_SESSION_TOKEN`.
    pub token: Option<String>,
}

/// Never shows the secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}
