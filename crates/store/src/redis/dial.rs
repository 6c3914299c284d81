//! Makes one connection: TCP, TLS or Unix socket, then AUTH, SELECT, the name, and a PING that must be
//! answered. A connection that exists has answered once.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, ProtocolVersion, RedisConnectionInfo, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

use crate::Code;
use crate::redis::fault::{Fault, Ran, Then};
use crate::redis::options::{Address, Credentials};

/// Calls that wait in the connection's channel before senders are held back.
const CHANNEL: usize = 4096;
/// Bytes gathered before a write is forced; calls that come together leave together.
const WRITE_BOUNDARY: usize = 64 * 1024;

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
    connection: MultiplexedConnection,
    pub(super) place: Place,
    made: Instant,
    /// Microseconds from `made` to the last reply heard.
    heard_us: AtomicU64,
    closed: Arc<AtomicBool>,
    driver: AbortHandle,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Live {
    /// Whether the connection ended.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Whether anything was heard after `moment`.
    pub(super) fn heard_since(&self, moment: Instant) -> bool {
        self.made + Duration::from_micros(self.heard_us.load(Relaxed)) > moment
    }

    /// One command, one reply, without a time-out of its own.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        let reply = self.connection.clone().send_packed_command(command).await;
        self.hear(reply)
    }

    /// Several commands in one write; the last `keep` replies, errors among them as values.
    pub(super) async fn send_all(&self, commands: &Pipeline, keep: usize) -> Result<Vec<Value>, Fault> {
        let skip = commands.len() - keep;
        let replies = self.connection.clone().send_packed_commands(commands, skip, keep).await;
        self.hear(replies)
    }

    /// Subscribes on a connection made for pushes.
    pub(super) async fn subscribe(&self, channels: &[Vec<u8>]) -> Result<(), Fault> {
        let done = self.connection.clone().subscribe(channels).await;
        self.hear(done)
    }

    /// Ends a subscription.
    pub(super) async fn unsubscribe(&self, channel: &[u8]) -> Result<(), Fault> {
        let done = self.connection.clone().unsubscribe(channel).await;
        self.hear(done)
    }

    fn hear<T>(&self, result: redis::RedisResult<T>) -> Result<T, Fault> {
        match result {
            Ok(reply) => {
                self.heard_us.store(self.made.elapsed().as_micros() as u64, Relaxed);
                Ok(reply)
            }
            Err(error) => Err(Fault::client(&error, &self.place.to_string())),
        }
    }
}

/// What to connect, and what to do with it.
pub(super) struct Dial<'a> {
    pub(super) place: &'a Place,
    pub(super) name: &'a str,
    pub(super) timeout: Duration,
    /// Receives pushes; such a connection speaks RESP3.
    pub(super) pushes: Option<Arc<dyn AsyncPushSender>>,
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
                let stream = TcpStream::connect((address.host.as_str(), address.port))
                    .await
                    .map_err(|error| Fault::io(&unknown_host(error), &what))?;
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
        let what = dial.place.to_string();
        // No response time-out here: every caller has its own deadline.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(CHANNEL)
            .set_write_backpressure_boundary(WRITE_BOUNDARY);
        let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(pushes) = dial.pushes {
            config = config.set_push_sender(pushes);
            // RESP3 is negotiated with the login in one command, which the crate sends.
            info = info.set_protocol(ProtocolVersion::RESP3);
            if let Some(password) = &self.credentials.password {
                info = info.set_password(&password.0);
                info = info.set_username(self.credentials.user.as_deref().unwrap_or("default"));
            }
        }
        let resp3 = info.protocol() == ProtocolVersion::RESP3;
        let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(|error| Fault::client(&error, &what))?;
        let closed = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&closed);
        let driver = tokio::spawn(async move {
            driver.await;
            seen.store(true, Relaxed);
            ended();
        })
        .abort_handle();
        let made = Instant::now();
        let heard_us = AtomicU64::new(0);
        let live = Live { connection, place: dial.place.clone(), made, heard_us, closed, driver };
        self.introduce(&live, dial.name, resp3).await?;
        Ok(live)
    }

    /// AUTH and SELECT must succeed; the name may be forbidden to a narrow ACL user; PING must be
    /// answered, so that a server that is loading or busy is not taken for one that serves.
    async fn introduce(&self, live: &Live, name: &str, authenticated: bool) -> Result<(), Fault> {
        let mut pipeline = Pipeline::new();
        let mut musts = Vec::with_capacity(5);
        if let (Some(password), false) = (&self.credentials.password, authenticated) {
            let auth = pipeline.cmd("AUTH");
            if let Some(user) = &self.credentials.user {
                auth.arg(user);
            }
            auth.arg(&password.0);
            musts.push(true);
        }
        if self.database != 0 {
            pipeline.cmd("SELECT").arg(self.database);
            musts.push(true);
        }
        pipeline.cmd("CLIENT").arg("SETNAME").arg(name);
        musts.push(false);
        pipeline.cmd("PING");
        musts.push(false);
        let replies = live.send_all(&pipeline, musts.len()).await?;
        let last = replies.len().saturating_sub(1);
        for (index, (reply, must)) in replies.iter().zip(musts).enumerate() {
            let Value::ServerError(error) = reply else { continue };
            let fault = Fault::server(error);
            // A user that may not PING may still run scripts.
            let serves = index == last && fault.code == Code::StorePermission;
            let unnamed = index < last && !must;
            match fault.code {
                _ if serves || unnamed => {}
                Code::ScriptFailed if must && self.database != 0 => {
                    let detail = format!("database {}: {}", self.database, fault.detail);
                    return Err(Fault::new(Code::ConfigInvalid, Ran::No, Then::Report, detail));
                }
                // PING answered with an error we have no code for: not a server we know.
                Code::ScriptFailed => {
                    return Err(Fault::new(Code::StoreProtocol, Ran::No, Then::Report, fault.detail));
                }
                _ => return Err(fault),
            }
        }
        Ok(())
    }
}

/// A name that does not resolve comes without an error kind of its own.
fn unknown_host(error: std::io::Error) -> std::io::Error {
    if error.raw_os_error().is_none() && error.to_string().contains("lookup") {
        return std::io::Error::new(std::io::ErrorKind::NotFound, error);
    }
    error
}
