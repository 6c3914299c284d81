//! A door with TLS, and with a password if it is asked for, in front of a mock broker that knows neither.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::servers::{any_port, own_ip};

const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
const SASL_AUTHENTICATE: i16 = 36;
const SASL_AUTHENTICATION_FAILED: i16 = 58;

/// Ends with the runtime of its test.
pub(crate) struct SecureBroker {
    pub(crate) address: String,
    /// What a client must trust.
    pub(crate) ca: PathBuf,
    _folder: TempDir,
}

impl SecureBroker {
    /// In front of the one broker at `plain`. With a password, SASL PLAIN comes before everything else.
    pub(crate) async fn start(plain: String, password: Option<(&str, &str)>) -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([own_ip().to_string()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(any_port()).await.unwrap();
        let ours = listener.local_addr().unwrap();
        let wanted = password.map(|(user, password)| format!("\0{user}\0{password}").into_bytes());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, plain, wanted) = (acceptor.clone(), plain.clone(), wanted.clone());
                // A client that goes away, or that is not let in, ends its own connection and nothing else.
                tokio::spawn(async move {
                    let client = acceptor.accept(client).await?;
                    passed_on(client, TcpStream::connect(&plain).await?, wanted, ours).await
                });
            }
        });
        Self { address: ours.to_string(), ca, _folder: folder }
    }
}

async fn passed_on<C: AsyncRead + AsyncWrite>(
    client: C,
    mut broker: TcpStream,
    mut wanted: Option<Vec<u8>>,
    ours: SocketAddr,
) -> Result<()> {
    let (mut asks, mut hears) = tokio::io::split(client);
    let (theirs, ours) = (named(broker.peer_addr()?), named(ours));
    while let Some(request) = frame(&mut asks).await? {
        let (api, correlation) = (number(&request), &request[4..8]);
        match (api, &wanted) {
            (SASL_HANDSHAKE, _) => {
                let plain = [correlation, &[0, 0], &1_i32.to_be_bytes(), &5_i16.to_be_bytes(), b"PLAIN"];
                send(&mut hears, &plain.concat()).await?;
            }
            (SASL_AUTHENTICATE, Some(token)) => {
                let right = request.ends_with(token);
                let error = if right { 0 } else { SASL_AUTHENTICATION_FAILED };
                let no_message = (-1_i16).to_be_bytes();
                let answer = [correlation, &error.to_be_bytes(), &no_message, &[0; 4]];
                send(&mut hears, &answer.concat()).await?;
                wanted.take_if(|_| right);
            }
            (API_VERSIONS, _) => {
                send(&mut broker, &request).await?;
                let Some(mut answer) = frame(&mut broker).await? else { break };
                // Newer forms of the request are refused by the mock; of the older ones the answer is a plain list.
                if number(&answer[4..]) == 0 {
                    let count = u32::from_be_bytes([answer[6], answer[7], answer[8], answer[9]]) + 2;
                    let versions = |api: i16, latest: i16| [api, 0, latest].map(i16::to_be_bytes).concat();
                    let added = [versions(SASL_HANDSHAKE, 1), versions(SASL_AUTHENTICATE, 0)].concat();
                    answer.splice(6..10, [count.to_be_bytes().to_vec(), added].concat());
                }
                send(&mut hears, &answer).await?;
            }
            (_, Some(_)) => return Err(Error::from(ErrorKind::PermissionDenied)),
            (_, None) => {
                send(&mut broker, &request).await?;
                let Some(mut answer) = frame(&mut broker).await? else { break };
                rename(&mut answer, &theirs, &ours);
                send(&mut hears, &answer).await?;
            }
        }
    }
    Ok(())
}

/// How a broker is named to clients: host, then port.
fn named(broker: SocketAddr) -> Vec<u8> {
    [broker.ip().to_string().as_bytes(), &i32::from(broker.port()).to_be_bytes()].concat()
}

/// Names another broker, wherever `theirs` stands. The last byte of a host's length stands before it; newer forms of an
/// answer count one more than there is.
fn rename(answer: &mut Vec<u8>, theirs: &[u8], ours: &[u8]) {
    let mut at = 1;
    while at + theirs.len() <= answer.len() {
        if answer[at..].starts_with(theirs) {
            answer[at - 1] = answer[at - 1] + ours.len() as u8 - theirs.len() as u8;
            answer.splice(at..at + theirs.len(), ours.iter().copied());
            at += ours.len();
        } else {
            at += 1;
        }
    }
}

fn number(bytes: &[u8]) -> i16 {
    i16::from_be_bytes([bytes[0], bytes[1]])
}

async fn frame(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if from.read_exact(&mut length).await.is_err() {
        return Ok(None);
    }
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut bytes).await?;
    Ok(Some(bytes))
}

async fn send(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<()> {
    to.write_all(&(bytes.len() as u32).to_be_bytes()).await?;
    to.write_all(bytes).await?;
    to.flush().await
}
