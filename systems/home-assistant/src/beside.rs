//! Quaymaster's own server on the instances' store: what `quaymaster serve` does with this schema.

use quaymaster_server::config::{Config, Overrides, RawConfig, Thresholds};
use quaymaster_server::{Listening, Server};
use tokio_util::sync::CancellationToken;

use crate::settings::Serve;

/// Serves until `stop`.
pub(crate) async fn serve(args: Serve, stop: CancellationToken) -> anyhow::Result<()> {
    let overrides = Overrides {
        listen: Some(args.listen.clone()),
        store: Some(args.place.store.clone()),
        data_dir: Some(args.place.data_dir.clone()),
        ..Overrides::default()
    };
    let config = Config::resolve(RawConfig::default(), overrides)?;
    let listening = Listening::bind(config.server).await?;
    let (quaymaster, store) = crate::open(&args.place).await?;
    let server = Server::new(listening, quaymaster, Thresholds::default());
    crate::say(&format!("ha-backend reports on http://{} (store: {store})", server.address()))?;
    Ok(server.run(stop.cancelled_owned()).await?)
}
