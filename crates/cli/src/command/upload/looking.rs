//! Where a command looks that changes nothing: at a server, or straight at the store.

use std::process::ExitCode;

use quaymaster::schema::Kind;
use tokio::signal::unix::{SignalKind, signal};

use super::INTERRUPTED;
use super::remote::Remote;
use super::way::Way;
use crate::args::{Global, Place};
use crate::command::serve::signalled;
use crate::failure::NothingRan;
use crate::setup::{self, Intent};

/// Does something on the way to the upload resource `name`, until a signal; the store is closed behind it.
pub(super) async fn look(
    asked: &crate::remote::Remote,
    name: &str,
    place: Place,
    global: &Global,
    act: impl AsyncFnOnce(&Way) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let interrupted = || Ok(ExitCode::from(INTERRUPTED));
    if let Some(client) = asked.client()? {
        let way = Way::Server(Remote::new(client, name).map_err(NothingRan::from)?);
        return tokio::select! {
            acted = act(&way) => acted,
            _ = signalled(&mut terminate, &mut interrupt) => interrupted(),
        };
    }
    let (quaymaster, depot) =
        setup::open_for_call(global, place, Intent::Look, Kind::Upload, Some(name)).await?;
    let acting = async {
        let way = Way::Store(depot.open(name).await.map_err(NothingRan::from)?);
        act(&way).await
    };
    let acted = tokio::select! {
        acted = acting => acted,
        _ = signalled(&mut terminate, &mut interrupt) => interrupted(),
    };
    let closed = quaymaster.engine().close().await;
    let code = acted?;
    closed?;
    Ok(code)
}
