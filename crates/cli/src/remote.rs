//! A running server, asked over HTTP instead of opening a store. Calls, streams and uploads share how a request is made,
//! how an answer is read, and what is told of one that is no success.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args as ClapArgs;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use quaymaster::{Code, Error};
use quaymaster_server::KeyExplained;
use quaymaster_server::command::{self, Command, Sent};
use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, redirect};
use serde_json::Value;

use crate::answer::Answered;
use crate::calls::seconds;
use crate::certificates;

/// How long a server may say nothing, beside what a call waits by itself.
const PATIENCE: Duration = Duration::from_secs(120);

/// The most that is read of an answer.
const ANSWER_MAX: usize = 256 << 20;

/// The most that is read of a problem document.
const PROBLEM_MAX: usize = 1 << 20;

/// The most that is shown of an answer that is not understood.
const EXCERPT: usize = 200;

/// The token that a server wants.
const TOKEN: &str = "QUAYMASTER_TOKEN";

/// Which server is asked.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct Remote {
    /// Ask this server over HTTP instead of opening a store. A token is read from QUAYMASTER_TOKEN.
    #[arg(long, env = "QUAYMASTER_SERVER", value_name = "URL", hide_env_values = true)]
    pub(crate) server: Option<String>,
    /// Certificates (PEM) that the server's is checked against, instead of the system's.
    #[arg(long, env = "QUAYMASTER_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The certificate (PEM) to show to a server that wants one of its clients, and those between it and its authority.
    #[arg(long, env = "QUAYMASTER_CERT_FILE", value_name = "FILE", requires = "key_file")]
    pub(crate) cert_file: Option<PathBuf>,
    /// The key (PEM) of that certificate.
    #[arg(long, env = "QUAYMASTER_KEY_FILE", value_name = "FILE", requires = "cert_file")]
    pub(crate) key_file: Option<PathBuf>,
    /// Send the token over plain HTTP although others can read it on its way.
    // Without an environment variable: that of `serve` and `worker` would send the token in clear, too.
    #[arg(long)]
    pub(crate) insecure_http: bool,
    /// How long the server may say nothing, beside what a call waits by itself [default: 120; 60 for uploads].
    #[arg(long, env = "QUAYMASTER_SERVER_TIMEOUT", value_name = "SECS", value_parser = seconds)]
    pub(crate) server_timeout: Option<Duration>,
}

/// The token that the environment has.
fn token() -> Option<String> {
    std::env::var(TOKEN).ok().filter(|token| !token.is_empty())
}

/// Whether a URL leads to this machine alone.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// A server and how it is asked.
pub(crate) struct Client {
    http: reqwest::Client,
    /// Its address, without a slash at its end. It may have a password in it.
    base: String,
    /// The same for people, without a user and a password.
    shown: String,
    token: Option<String>,
    patience: Option<Duration>,
}

impl Remote {
    /// The server's client, where one is named.
    pub(crate) fn client(&self) -> anyhow::Result<Option<Client>> {
        let Some(server) = &self.server else { return Ok(None) };
        let wrong = |why: String| {
            Error::new("server", Code::ConfigInvalid, format!("--server {why}")).field("--server")
        };
        let url = Url::parse(server).map_err(|error| wrong(format!("is no URL: {error}")).because(error))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("is http://host:port or https://host:port".to_owned()).into());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(
                wrong("has a query or a fragment; it ends with the host, or a path".to_owned()).into()
            );
        }
        let mut plain = url.clone();
        if plain.set_username("").and_then(|()| plain.set_password(None)).is_err() {
            return Err(wrong("has a user that cannot be read".to_owned()).into());
        }
        let cut = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
        let (token, shown) = (token(), cut(&plain));
        if token.as_deref().is_some_and(|token| HeaderValue::from_str(token).is_err()) {
            let detail = "QUAYMASTER_TOKEN has a character that no header can hold, such as a line break";
            return Err(Error::new("server", Code::ConfigInvalid, detail).field(TOKEN).into());
        }
        // Who has a token is known by it; else a proxy may want the user and the password.
        let base = if token.is_some() { shown.clone() } else { cut(&url) };
        let secret = token.is_some() || url.password().is_some();
        if secret && url.scheme() == "http" && !is_here(&url) && !self.insecure_http {
            let why = format!(
                "{shown} would be sent a secret that others can read on its way; name it by https://, or pass \
                 --insecure-http where something else encrypts"
            );
            return Err(wrong(why).into());
        }
        if self.cert_file.is_some() && url.scheme() == "http" {
            let why = format!(
                "--cert-file needs https://, and {shown} is plain HTTP: nobody would see the certificate"
            );
            return Err(Error::new("server", Code::ConfigInvalid, why).field("--cert-file").into());
        }
        let own = self.cert_file.as_deref().zip(self.key_file.as_deref());
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            // A redirect would take the token, or the call, to somebody who was not named.
            .redirect(redirect::Policy::none());
        if is_here(&url) {
            // So would a proxy, which need not be on this machine.
            builder = builder.no_proxy();
        }
        let http = certificates::client(builder, self.ca_file.as_deref(), own)?;
        Ok(Some(Client { http, base, shown, token, patience: self.server_timeout }))
    }
}

impl Client {
    /// How long it may say nothing: as the caller of the command wants, or `usual`.
    pub(crate) fn patience(&self, usual: Duration) -> Duration {
        self.patience.unwrap_or(usual)
    }

    /// A request to a path of it, with the token.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// The answer of a call that may wait for `wait` by itself, as JSON.
    pub(crate) async fn ask(&self, command: Command, sent: Sent, wait: Duration) -> Result<Answered, Error> {
        let asking = Asking { op: command.id(), changes: !command.only_reads() };
        let body = self.body(asking, &sent, wait).await?;
        let told = Answered::from(String::from_utf8_lossy(&body).into_owned());
        let why = match &told.answer {
            Ok(answer) => command.misfit(|field| answer.field(field)),
            Err(error) => Some(format!("it is no JSON object: {error}")),
        };
        match why {
            None => Ok(told),
            Some(why) => Err(asking.no_answer(&why, &body)),
        }
    }

    /// What the server says of a key.
    pub(crate) async fn explain(&self, key: &str) -> Result<KeyExplained, Error> {
        let asking = Asking { op: "key.explain", changes: false };
        let body = self.body(asking, &command::explain(key), Duration::ZERO).await?;
        serde_json::from_slice(&body)
            .map_err(|error| asking.no_answer(&error.to_string(), &body).because(error))
    }

    /// The JSON that answers a call that may wait for `wait` by itself.
    async fn body(&self, asking: Asking, sent: &Sent, wait: Duration) -> Result<Vec<u8>, Error> {
        let patience = self.patience(PATIENCE);
        let response = self.send(asking, sent, patience.saturating_add(wait), "application/json").await?;
        read(response, patience, ANSWER_MAX).await.map_err(|unread| asking.unread(unread))
    }

    /// A stream of server-sent events.
    pub(crate) async fn listen(&self, op: &'static str, sent: &Sent) -> Result<Response, Error> {
        let asking = Asking { op, changes: false };
        self.send(asking, sent, self.patience(PATIENCE), "text/event-stream").await
    }

    /// The pieces of a stream, and an error where it breaks off or nothing comes, not even a heartbeat.
    pub(crate) fn pieces(
        &self,
        op: &'static str,
        response: Response,
    ) -> BoxStream<'static, Result<Bytes, Error>> {
        let asking = Asking { op, changes: false };
        speaking(response, self.patience(PATIENCE))
            .map(move |piece| piece.map_err(|why| asking.unread(why)))
            .boxed()
    }

    /// A success of the wanted content type.
    async fn send(
        &self,
        asking: Asking,
        sent: &Sent,
        patience: Duration,
        wanted: &str,
    ) -> Result<Response, Error> {
        let request = match &sent.body {
            None => self.request(Method::GET, &sent.path),
            Some(body) => self
                .request(Method::POST, &sent.path)
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone()),
        };
        let response = match tokio::time::timeout(patience, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_connect() => {
                let help =
                    if is_distrust(&error) { "; --ca-file names the certificates to trust" } else { "" };
                let detail = format!("{}: {}{help}", self.shown, root(&error));
                let error = error.without_url();
                return Err(Error::new(asking.op, Code::StoreRefused, detail).because(error));
            }
            Ok(Err(error)) => return Err(asking.unread(Unread::Broke(error))),
            Err(_) => return Err(asking.unread(Unread::Silent(patience))),
        };
        if !response.status().is_success() {
            return Err(asking.refused(&Refusal::read(response, self.patience(PATIENCE)).await));
        }
        let found = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let found = found.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim().to_owned();
        if found.eq_ignore_ascii_case(wanted) {
            return Ok(response);
        }
        let status = response.status();
        let with =
            if found.is_empty() { "without a content type".to_owned() } else { format!("with {found}") };
        let body = beginning(response, self.patience(PATIENCE), 4 * EXCERPT).await;
        let detail = format!("the server answers {status} {with} instead of {wanted}");
        Err(asking.strange(with_excerpt(detail, &body)))
    }
}

/// A call on its way to a server.
#[derive(Clone, Copy)]
struct Asking {
    op: &'static str,
    /// Whether it may change something.
    changes: bool,
}

impl Asking {
    /// It was answered, and nobody can tell what that means.
    fn strange(self, detail: String) -> Error {
        Error::new(self.op, Code::ServerAnswer, detail).ran(self.changes)
    }

    /// The same of JSON that answers something else.
    fn no_answer(self, why: &str, body: &[u8]) -> Error {
        self.strange(format!("this is no answer to the call: {why}: {}", excerpt(body)))
    }

    fn unread(self, unread: Unread) -> Error {
        let detail = unread.to_string();
        let error = |code| Error::new(self.op, code, detail).ran(self.changes);
        match unread {
            Unread::Silent(_) => error(Code::StoreTimedOut),
            // The URL has the values of keys in it.
            Unread::Broke(cause) => error(Code::StoreLost).because(cause.without_url()),
            Unread::Long(_) => error(Code::ServerAnswer),
        }
    }

    fn refused(self, refusal: &Refusal) -> Error {
        let status = refusal.status;
        let error = match (refusal.code(), refusal.detail()) {
            (Some(code), Some(detail)) => Error::new(self.op, code, detail).ran(refusal.may_have_run()),
            // A proxy that lost the server does not know whether the call ran, and a newer server may know and say it in
            // words that are not known here.
            _ => {
                let newer = refusal.has_code();
                let code = match status.as_u16() {
                    408 | 429 => Code::ServerBusy,
                    400..500 if newer => Code::RequestInvalid,
                    _ => Code::ServerAnswer,
                };
                let ran = refusal.may_have_run() || (self.changes && status.is_server_error());
                Error::new(self.op, code, refusal.to_string()).ran(ran)
            }
        };
        let error = match refusal.field() {
            Some(field) => error.field(field.to_owned()),
            None => error,
        };
        match refusal.wait {
            Some(wait) => error.after(wait),
            None => error,
        }
    }
}

/// Why the body of an answer is not there.
#[derive(Debug)]
pub(crate) enum Unread {
    /// Nothing came for so long.
    Silent(Duration),
    /// The connection.
    Broke(reqwest::Error),
    /// It has more bytes than this.
    Long(usize),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(patience) => write!(f, "the server said nothing for {} s", patience.as_secs_f64()),
            // Only the causes: the error itself has the URL in it, and that the values of keys.
            Self::Broke(error) => write!(f, "the server's answer did not come: {}", root(error)),
            Self::Long(most) => write!(f, "the server's answer has more than {most} bytes"),
        }
    }
}

/// All of a body: of at most `most` bytes, and never silent for longer than `patience`.
pub(crate) async fn read(response: Response, patience: Duration, most: usize) -> Result<Vec<u8>, Unread> {
    let (mut body, mut pieces) = (Vec::new(), speaking(response, patience));
    while let Some(piece) = pieces.next().await.transpose()? {
        if body.len() + piece.len() > most {
            return Err(Unread::Long(most));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// The pieces of a body, and an error behind the last one of a server that says nothing more.
pub(crate) fn speaking(response: Response, patience: Duration) -> BoxStream<'static, Result<Bytes, Unread>> {
    stream::unfold(Some(response), move |response| async move {
        let mut response = response?;
        match tokio::time::timeout(patience, response.chunk()).await {
            Err(_) => Some((Err(Unread::Silent(patience)), None)),
            Ok(Err(error)) => Some((Err(Unread::Broke(error)), None)),
            Ok(Ok(piece)) => piece.map(|piece| (Ok(piece), Some(response))),
        }
    })
    .boxed()
}

/// The beginning of a body, as far as it comes.
async fn beginning(response: Response, patience: Duration, most: usize) -> Vec<u8> {
    let (mut body, mut pieces) = (Vec::new(), speaking(response, patience));
    while body.len() < most
        && let Some(Ok(piece)) = pieces.next().await
    {
        body.extend_from_slice(&piece);
    }
    body
}

/// The beginning of a text that somebody else wrote, on one line and without what could steer a terminal.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT)]);
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect()
}

fn with_excerpt(detail: String, body: &[u8]) -> String {
    match excerpt(body) {
        shown if shown.is_empty() => detail,
        shown => format!("{detail}: {shown}"),
    }
}

/// The innermost cause: "connection refused" says more than "error sending request".
pub(crate) fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match cause.downcast_ref::<reqwest::Error>() {
        // It has no cause, and its own words would have the URL in them.
        Some(error) if error.is_decode() || error.is_body() => "the answer broke off".to_owned(),
        Some(_) => "the request could not be sent".to_owned(),
        None => cause.to_string(),
    }
}

/// Whether the server's certificate is the cause.
fn is_distrust(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return true;
        }
        // What an I/O error holds is not its source.
        let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = held.map(|held| held as &(dyn std::error::Error + 'static)).or(error.source());
    }
    false
}

/// An answer that is no success: what its problem document says, and what can be said of one that has none.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// How long to wait before the next attempt.
    pub(crate) wait: Option<Duration>,
    /// Where it points.
    location: Option<String>,
    problem: Value,
    /// What it says where it is no problem document.
    said: Vec<u8>,
}

impl Refusal {
    /// Reads what there is of it; the status says enough.
    pub(crate) async fn read(response: Response, patience: Duration) -> Self {
        let status = response.status();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let location = header(LOCATION).filter(|_| status.is_redirection()).map(str::to_owned);
        let seconds = header(RETRY_AFTER).and_then(|seconds| seconds.parse().ok());
        let said = beginning(response, patience, PROBLEM_MAX).await;
        let problem: Value = serde_json::from_slice(&said).unwrap_or_default();
        let wait = problem["retry_after_ms"].as_u64().map(Duration::from_millis);
        let wait = wait.or(seconds.map(Duration::from_secs));
        Self { status, wait, location, problem, said }
    }

    /// Its code, if there is such a code here.
    pub(crate) fn code(&self) -> Option<Code> {
        self.problem["code"].as_str().and_then(Code::named)
    }

    /// Whether it has a code, perhaps one that is not known here.
    fn has_code(&self) -> bool {
        self.problem["code"].is_string()
    }

    fn detail(&self) -> Option<&str> {
        self.problem["detail"].as_str()
    }

    /// The field that is wrong.
    pub(crate) fn field(&self) -> Option<&str> {
        self.problem["field"].as_str()
    }

    /// Whether the call may have changed something.
    pub(crate) fn may_have_run(&self) -> bool {
        self.problem["may_have_run"] == true
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answers {}", self.status)?;
        if let Some(location) = &self.location {
            let to = excerpt(location.as_bytes());
            return write!(
                f,
                " and points to {to}; redirects are not followed: give the right URL to --server"
            );
        }
        if let (None, Some(code)) = (self.code(), self.problem["code"].as_str()) {
            write!(f, " ({})", excerpt(code.as_bytes()))?;
        }
        let shown = self.detail().map_or_else(|| excerpt(&self.said), str::to_owned);
        if shown.is_empty() { Ok(()) } else { write!(f, ": {shown}") }
    }
}
