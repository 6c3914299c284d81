//! Asks the sentinels where the primary is, and checks that it says so itself.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;

use crate::Code;
use crate::redis::dial::{Dial, Dialer, Live, Place};
use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::options::Address;

/// The sentinels of one service.
#[derive(Debug)]
pub(super) struct Sentinels {
    pub(super) addresses: Vec<Address>,
    pub(super) service: String,
    pub(super) dialer: Dialer,
    pub(super) name: String,
    pub(super) timeout: Duration,
}

impl Sentinels {
    /// The primary, as the first sentinel that answers sees it.
    pub(super) async fn primary(&self) -> Result<Address, Fault> {
        let mut asked: FuturesUnordered<_> = self.addresses.iter().map(|address| self.ask(address)).collect();
        let mut last = None;
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(address) => return Ok(address),
                Err(fault) => last = Some(fault),
            }
        }
        Err(last.unwrap_or_else(|| self.unknown()))
    }

    async fn ask(&self, sentinel: &Address) -> Result<Address, Fault> {
        let place = Place::Tcp(sentinel.clone());
        let dial = Dial { place: &place, name: &self.name, timeout: self.timeout, pushes: None };
        let live = self.dialer.dial(dial, || ()).await?;
        let question = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service).to_owned();
        let answer = tokio::time::timeout(self.timeout, live.send(&question))
            .await
            .map_err(|_| Fault::timed_out(&place.to_string()).before_sending())??;
        match redis::from_redis_value::<Option<(String, u16)>>(answer) {
            Ok(Some((host, port))) => Ok(Address { host, port }),
            Ok(None) => Err(self.unknown()),
            Err(error) => {
                let detail = format!("sentinel {place}: {error}");
                Err(Fault::new(Code::StoreProtocol, Ran::No, Then::Redial, detail))
            }
        }
    }

    fn unknown(&self) -> Fault {
        let detail = format!("no sentinel knows a service `{}`", self.service);
        Fault::new(Code::StoreRefused, Ran::No, Then::Redial, detail)
    }

    /// Right after a failover the sentinels may still name a server that already is a replica.
    pub(super) async fn check_role(&self, live: &Live) -> Result<(), Fault> {
        let role = tokio::time::timeout(self.timeout, live.send(&redis::cmd("ROLE")))
            .await
            .map_err(|_| Fault::timed_out(&live.place.to_string()).before_sending())??;
        let Value::Array(parts) = role else {
            // A user that may not ask: READONLY will tell.
            return Ok(());
        };
        match parts.first() {
            Some(Value::BulkString(role)) if role != b"master" => {
                let detail = format!("the sentinels name {}, which is a replica", live.place);
                Err(Fault::new(Code::StoreReadOnly, Ran::No, Then::Redial, detail))
            }
            _ => Ok(()),
        }
    }
}
