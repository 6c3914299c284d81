//! Makes one connection: TCP, TLS or Unix socket, then AUTH, SELECT, the name, and a PING that must be
//! answered. A connection that exists has answered once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::options::{Address, Credentials};
use crate::redis::resp::{self, Answer, words};
use crate::redis::wire::{Pushes, Wire};
use crate::{Code, Reply, Words};

/// Where a connection leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Tcp(Address),
    Unix(PathBuf),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Tcp(address) => address.fmt(f),
            Place::Unix(path) => path.display().fmt(f),
        }
    }
}

/// How connections are made, the same for all of a store.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) credentials: Credentials,
    pub(super) database: i64,
}

/// A connection that answered. The socket closes when the last holder lets go, also in the middle of a
/// blocking command.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) wire: Arc<Wire>,
    pub(super) place: Place,
    driver: AbortHandle,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Live {
    /// One command, one reply; an error reply is a fault.
    pub(super) async fn send(&self, command: &Words, until: Instant) -> Result<Reply, Fault> {
        Self::heard(self.wire.call(0, until, |out| resp::command(out, command)).await?)
    }

    /// The reply, unless it is an error.
    pub(super) fn heard(answer: Answer) -> Result<Reply, Fault> {
        match answer {
            Answer::Reply(reply) => Ok(reply),
            Answer::Error { word, text } => Err(Fault::said(&word, &text)),
        }
    }
}

/// What to connect, and what to do with it.
pub(super) struct Dial<'a> {
    pub(super) place: &'a Place,
    pub(super) name: &'a str,
    pub(super) timeout: Duration,
    /// Receives the messages of subscriptions.
    pub(super) pushes: Option<Pushes>,
}

impl Dialer {
    /// Connects within the time-out; `ended` runs once when the connection is over.
    pub(super) async fn dial(
        &self,
        dial: Dial<'_>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Live, Fault> {
        let (place, timeout) = (dial.place, dial.timeout);
        match tokio::time::timeout(timeout, self.open(dial, ended)).await {
            Ok(result) => result.map_err(Fault::before_sending),
            Err(_) => {
                let detail = format!("{place} did not answer within {} ms", timeout.as_millis());
                Err(Fault::new(Code::StoreRefused, Ran::No, Then::Redial, detail))
            }
        }
    }

    async fn open(&self, dial: Dial<'_>, ended: impl FnOnce() + Send + 'static) -> Result<Live, Fault> {
        let what = dial.place.to_string();
        match dial.place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| Fault::io(&error, &what))?;
                self.greet(stream, dial, ended).await
            }
            Place::Tcp(address) => {
                let found = tokio::net::lookup_host((address.host.as_str(), address.port)).await;
                let found: Vec<_> = found.map_err(|error| Fault::io(&unknown_host(error), &what))?.collect();
                let stream =
                    TcpStream::connect(&found[..]).await.map_err(|error| Fault::io(&error, &what))?;
                stream.set_nodelay(true).map_err(|error| Fault::io(&error, &what))?;
                let Some(config) = &self.tls else {
                    return self.greet(stream, dial, ended).await;
                };
                let name = address.host.clone().try_into().map_err(|_| {
                    let detail = format!("`{}` cannot be a name in a certificate", address.host);
                    Fault::new(Code::StoreTls, Ran::No, Then::Report, detail)
                })?;
                let stream =
                    TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map_err(|error| {
                        // Whatever ends a handshake is a TLS failure: a plain server answers with an EOF.
                        Fault::new(Code::StoreTls, Ran::No, Then::Redial, format!("{what}: {error}"))
                    })?;
                self.greet(stream, dial, ended).await
            }
        }
    }

    async fn greet<S>(
        &self,
        stream: S,
        dial: Dial<'_>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Live, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (wire, driver) = Wire::new(stream, dial.place.to_string(), dial.pushes);
        let driver = tokio::spawn(async move {
            driver.await;
            ended();
        })
        .abort_handle();
        let live = Live { wire, place: dial.place.clone(), driver };
        self.introduce(&live, dial.name, Instant::now() + dial.timeout).await?;
        Ok(live)
    }

    /// AUTH and SELECT must succeed; the name may be forbidden to a narrow ACL user; PING must be
    /// answered, so that a server that is loading or busy is not taken for one that serves.
    async fn introduce(&self, live: &Live, name: &str, until: Instant) -> Result<(), Fault> {
        let login = async {
            let Some(password) = &self.credentials.password else { return Ok(Reply::Nil) };
            let mut auth = words(["AUTH"]);
            if let Some(user) = &self.credentials.user {
                auth.push(user);
            }
            auth.push(&password.0);
            live.send(&auth, until).await
        };
        let select = async {
            if self.database == 0 {
                return Ok(Reply::Nil);
            }
            live.send(&words(["SELECT", &self.database.to_string()]), until).await
        };
        // Joined, they are posted in this order and share one round trip.
        let (named, ping) = (words(["CLIENT", "SETNAME", name]), words(["PING"]));
        let (login, select, _, ping) =
            tokio::join!(biased; login, select, live.send(&named, until), live.send(&ping, until));
        login.map_err(|fault| match fault.code {
            // "AUTH called without any password configured" has no code of its own.
            Code::ScriptFailed => Fault { code: Code::StoreAuth, ..fault },
            _ => fault,
        })?;
        select.map_err(|fault| match fault.code {
            Code::ScriptFailed => {
                let detail = format!("database {}: {}", self.database, fault.detail);
                Fault::new(Code::ConfigInvalid, Ran::No, Then::Report, detail)
            }
            _ => fault,
        })?;
        match ping {
            Ok(_) => Ok(()),
            // A user that may not PING may still run scripts.
            Err(fault) if fault.code == Code::StorePermission => Ok(()),
            // An error we have no code for: not a server we know.
            Err(fault) if fault.code == Code::ScriptFailed => {
                Err(Fault { code: Code::StoreProtocol, ..fault })
            }
            Err(fault) => Err(fault),
        }
    }
}

/// A name that was looked up and does not resolve comes without an error kind of its own.
fn unknown_host(error: std::io::Error) -> std::io::Error {
    if error.raw_os_error().is_none() {
        return std::io::Error::new(std::io::ErrorKind::NotFound, error);
    }
    error
}
