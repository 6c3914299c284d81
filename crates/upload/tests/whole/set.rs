//! The servers that uploads run on where they are not embedded: Redis, SeaweedFS and PostgreSQL.

use std::path::Path;

use crate::redis::Redis;
use crate::rig::Place;
use crate::seaweed::Seaweed;
use crate::servers::PostgresServer;

pub struct Servers {
    pub redis: Redis,
    pub postgres: PostgresServer,
    pub seaweed: Seaweed,
}

impl Servers {
    /// One of each, of its own.
    pub async fn start() -> Self {
        let others = tokio::task::spawn_blocking(|| (Redis::start(), PostgresServer::start()));
        let (seaweed, others) = tokio::join!(Seaweed::start(), others);
        let (redis, postgres) = others.unwrap();
        Self { redis, postgres, seaweed }
    }

    /// Uploads on them; `folder` is for what is nowhere else.
    pub fn place(&self, folder: &Path) -> Place {
        Place {
            store: self.redis.url(),
            database: self.postgres.url(),
            ..Place::behind(folder, self.seaweed.address())
        }
    }
}

/// So many in an ordinary run, so many under `QUAYMASTER_SOAK=1`; `QUAYMASTER_ROUNDS` overrides both.
pub fn rounds(few: u64, many: u64) -> u64 {
    let wanted = std::env::var("QUAYMASTER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    wanted.unwrap_or(if soak() { many } else { few })
}

/// Whether the long suites run at their full counts.
pub fn soak() -> bool {
    std::env::var_os("QUAYMASTER_SOAK").is_some()
}
