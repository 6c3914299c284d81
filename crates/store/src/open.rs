//! From what an operator writes (`embedded`, `memory`, `redis://…`) to a store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quaymaster_schema::Schema;

use crate::embedded::{EmbeddedOptions, EmbeddedStore};
use crate::redis::{RedisOptions, RedisStore, Target};
use crate::{Code, Engine, Error, Result, Topology};

/// Which store, and everything it is opened with.
#[derive(Debug, Clone)]
pub enum StoreOptions {
    /// In process, nothing on disk.
    Memory(EmbeddedOptions),
    /// In process, with a journal in this folder; attached when another process owns the folder.
    Embedded(PathBuf, EmbeddedOptions),
    /// Redis or Valkey.
    Redis(Box<RedisOptions>),
}

impl StoreOptions {
    /// Reads `embedded`, `embedded:DIR`, `memory`, or a Redis URL; `embedded` alone lies in `data_dir`.
    pub fn from_url(url: &str, data_dir: &Path) -> Result<Self> {
        match url.split_once(':') {
            None if url == "memory" => Ok(Self::Memory(EmbeddedOptions::default())),
            None if url == "embedded" => Ok(Self::Embedded(data_dir.into(), EmbeddedOptions::default())),
            Some(("embedded", dir)) if !dir.is_empty() => {
                Ok(Self::Embedded(dir.into(), EmbeddedOptions::default()))
            }
            _ if url.contains("://") => {
                RedisOptions::from_url(url).map(|options| Self::Redis(Box::new(options)))
            }
            _ => Err(Error::new(
                "store.open",
                Code::ConfigInvalid,
                // The text is not repeated: it may be a URL with a password whose scheme was mistyped.
                "the store is `embedded`, `embedded:DIR`, `memory`, or a redis://, rediss://, redis+sentinel:// \
                 or redis+cluster:// URL",
            )),
        }
    }

    /// The same, for one schema: a Redis as old as its scripts allow is not refused.
    pub fn for_schema(mut self, schema: &Schema) -> Self {
        if let Self::Redis(options) = &mut self {
            options.oldest = schema.oldest_redis();
        }
        self
    }

    /// Which store it is, as far as its address tells: the same for every node that names it alike, whatever its
    /// credentials, TLS or order of seeds; another for every logical database.
    pub fn identity(&self) -> String {
        let joined = |addresses: &[crate::redis::Address]| {
            let mut all: Vec<String> =
                addresses.iter().map(|address| address.to_string().to_lowercase()).collect();
            all.sort_unstable();
            all.join(",")
        };
        match self {
            Self::Memory(_) => "memory".to_owned(),
            Self::Embedded(dir, _) => {
                let dir = dir.canonicalize().or_else(|_| std::path::absolute(dir)).unwrap_or(dir.clone());
                format!("embedded {}", dir.display())
            }
            Self::Redis(options) => {
                let place = match &options.target {
                    Target::Standalone(address) => joined(std::slice::from_ref(address)),
                    Target::Unix(path) => format!("unix {}", path.display()),
                    Target::Sentinel { sentinels, service } => {
                        format!("sentinel {} {service}", joined(sentinels))
                    }
                    Target::Cluster(nodes) => format!("cluster {}", joined(nodes)),
                };
                format!("redis {place} {}", options.database)
            }
        }
    }

    /// The head of the keys that belong to no schema; the embedded store writes none.
    pub fn own_prefix(&self) -> &str {
        match self {
            Self::Redis(options) => &options.own_prefix,
            Self::Memory(_) | Self::Embedded(..) => quaymaster_schema::OWN_PREFIX,
        }
    }

    /// How keys will be spelled on it; known before it is opened.
    pub fn topology(&self) -> Topology {
        match self {
            Self::Redis(options) if matches!(options.target, Target::Cluster(_)) => Topology::Cluster,
            _ => Topology::Single,
        }
    }
}

/// Names the store without its credentials.
impl fmt::Display for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(_) => f.write_str("memory"),
            Self::Embedded(dir, _) => write!(f, "embedded {}", dir.display()),
            Self::Redis(options) => {
                let scheme = if options.tls { "rediss" } else { "redis" };
                let list = |f: &mut fmt::Formatter<'_>, addresses: &[crate::redis::Address]| {
                    for (at, address) in addresses.iter().enumerate() {
                        write!(f, "{}{address}", if at == 0 { "" } else { "," })?;
                    }
                    Ok(())
                };
                match &options.target {
                    Target::Standalone(address) => write!(f, "{scheme}://{address}"),
                    Target::Unix(path) => write!(f, "{scheme}+unix://{}", path.display()),
                    Target::Sentinel { sentinels, service } => {
                        write!(f, "{scheme}+sentinel://")?;
                        list(f, sentinels)?;
                        write!(f, "/{service}")
                    }
                    Target::Cluster(nodes) => {
                        write!(f, "{scheme}+cluster://")?;
                        list(f, nodes)
                    }
                }
            }
        }
    }
}

/// Opens the store; fails when it cannot be reached.
pub async fn open(options: StoreOptions) -> Result<Arc<dyn Engine>> {
    Ok(match options {
        StoreOptions::Memory(options) => Arc::new(EmbeddedStore::memory(options).await?),
        StoreOptions::Embedded(dir, options) => Arc::new(EmbeddedStore::open(&dir, options).await?),
        StoreOptions::Redis(options) => Arc::new(RedisStore::connect(*options).await?),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn named(url: &str) -> String {
        StoreOptions::from_url(url, Path::new("data")).unwrap().to_string()
    }

    #[test]
    fn a_store_is_the_same_however_it_is_logged_into_and_another_by_its_database() {
        let identity = |url| StoreOptions::from_url(url, Path::new("data")).unwrap().identity();
        assert_eq!(identity("redis://user:hunter2@db:7000/3"), identity("rediss://DB:7000/3"));
        assert_ne!(identity("redis://db:7000/3"), identity("redis://db:7000/4"));
        assert_ne!(identity("redis://db:7000"), identity("redis://db:7001"));
        assert_eq!(identity("redis+cluster://a:1,b:2"), identity("redis+cluster://b:2,a:1"));
        assert_ne!(identity("embedded"), identity("embedded:other"));
        assert!(!identity("redis://user:hunter2@db").contains("hunter2"));
    }

    #[test]
    fn every_store_has_a_name_without_its_password() {
        assert_eq!(named("memory"), "memory");
        assert_eq!(named("embedded"), "embedded data");
        assert_eq!(named("embedded:/srv/q"), "embedded /srv/q");
        assert_eq!(named("redis://user:hunter2@db:7000/3"), "redis://db:7000");
        assert_eq!(named("rediss+cluster://:hunter2@a:1,b:2"), "rediss+cluster://a:1,b:2");
        assert_eq!(named("redis+sentinel://a:1,b:2/main"), "redis+sentinel://a:1,b:2/main");
    }

    #[test]
    fn a_store_nobody_knows_is_refused_without_repeating_it() {
        for url in ["", "disk", "redis:hunter2@db", "embedded:", "postgres://u:hunter2@db", "http://hunter2"]
        {
            let error = StoreOptions::from_url(url, Path::new("data")).unwrap_err();
            assert_eq!(error.code, Code::ConfigInvalid, "{url}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
