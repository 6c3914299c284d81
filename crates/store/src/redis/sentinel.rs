//! Asks the sentinels where the primary is, and checks that it says so itself.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::redis::dial::{Dial, Dialer, Live, Place};
use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::options::Address;
use crate::redis::resp::{self, words};
use crate::{Code, Reply};

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
        let question = words(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.service]);
        let answer =
            live.send(&question, Instant::now() + self.timeout).await.map_err(Fault::before_sending)?;
        if answer == Reply::Nil {
            return Err(self.unknown());
        }
        let address = resp::parts(&answer).and_then(|parts| {
            let [host, port] = parts else { return None };
            let port = u16::try_from(resp::number(port)?).ok()?;
            Some(Address { host: resp::text(host)?.to_owned(), port })
        });
        address.ok_or_else(|| {
            let detail = format!("sentinel {place} answered with something that is no address");
            Fault::new(Code::StoreProtocol, Ran::No, Then::Redial, detail)
        })
    }

    fn unknown(&self) -> Fault {
        let detail = format!("no sentinel knows a service `{}`", self.service);
        Fault::new(Code::StoreRefused, Ran::No, Then::Redial, detail)
    }

    /// Right after a failover the sentinels may still name a server that already is a replica.
    pub(super) async fn check_role(&self, live: &Live) -> Result<(), Fault> {
        let role = match live.send(&words(["ROLE"]), Instant::now() + self.timeout).await {
            Ok(role) => role,
            // A user that may not ask: READONLY will tell.
            Err(fault) if fault.code == Code::StorePermission => return Ok(()),
            Err(fault) => return Err(fault.before_sending()),
        };
        match resp::parts(&role).and_then(|parts| resp::text(parts.first()?)) {
            Some(role) if role != "master" => {
                let detail = format!("the sentinels name {}, which is a {role}", live.place);
                Err(Fault::new(Code::StoreReadOnly, Ran::No, Then::Redial, detail))
            }
            _ => Ok(()),
        }
    }
}
