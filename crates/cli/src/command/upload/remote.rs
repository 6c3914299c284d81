//! A server, asked over HTTP.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use quaymaster::upload::{Last, Status};
use quaymaster::{Code, Error};
use quaymaster_upload::Sha256;
use quaymaster_upload::ingest::{Began, Request};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use super::way::{Seen, Tried, Trying};

/// How long a server may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Remote {
    client: reqwest::Client,
    /// Up to the resource: `http://host:port/v1/upload/documents`.
    base: String,
    token: Option<String>,
}

impl Remote {
    pub(super) fn new(server: &str, resource: &str, token: Option<String>) -> Result<Self, Error> {
        let wrong =
            |detail: String| Error::new("upload.put", Code::ConfigInvalid, format!("--server {detail}"));
        let url = reqwest::Url::parse(server).map_err(|error| wrong(format!("is no URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("is http://host:port or https://host:port".to_owned()));
        }
        let client = reqwest::Client::builder()
            .read_timeout(PATIENCE)
            .connect_timeout(Duration::from_secs(10))
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let base = format!("{}/v1/upload/{resource}", url.as_str().trim_end_matches('/'));
        Ok(Self { client, base, token })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}/{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(super) async fn create(&self, request: &Request) -> Tried<Began> {
        let mut body = json!({ "name": request.name, "size": request.size });
        let fields = [
            ("mime_type", &request.mime_type),
            ("drive", &request.drive),
            ("connector_id", &request.connector_id),
            ("path", &request.path),
            ("parent_id", &request.parent_id),
            ("client_node_id", &request.client_node_id),
            ("idempotency_key", &request.idempotency_key),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                body[name] = json!(value);
            }
        }
        let made = json_of(answered(self.posted("create", &body)).await?).await?;
        let text = |name: &str| made[name].as_str().map(str::to_owned);
        let count = |name: &str| made[name].as_u64();
        let began = (text("upload_id"), text("node_id"), count("chunk_min_bytes"), count("chunk_max_bytes"));
        match began {
            (Some(upload_id), Some(node_id), Some(chunk_min_bytes), Some(chunk_max_bytes)) => {
                Ok(Began { upload_id, node_id, chunk_min_bytes, chunk_max_bytes })
            }
            _ => Err(strange(&made)),
        }
    }

    fn posted(&self, verb: &str, body: &Value) -> RequestBuilder {
        let request = self.request(Method::POST, verb).header("content-type", "application/json");
        request.body(body.to_string())
    }

    pub(super) async fn standing(&self, id: &str) -> Tried<Option<Seen>> {
        let response = match answered(self.request(Method::GET, id)).await {
            Ok(response) => response,
            Err(Trying::Never(error)) if error.code == Code::UploadUnknown => return Ok(None),
            Err(other) => return Err(other),
        };
        let state = json_of(response).await?;
        let numbers = |value: &Value| -> Vec<u32> {
            let list = value.as_array().into_iter().flatten();
            list.filter_map(|number| u32::try_from(number.as_u64()?).ok()).collect()
        };
        let ranges = ["received", "durable"].into_iter().flat_map(|name| {
            let list = state[name].as_array().into_iter().flatten();
            list.filter_map(|pair| match numbers(pair)[..] {
                [from, to] => Some(from..=to),
                _ => None,
            })
        });
        let Some(status) = state["status"].as_str().and_then(Status::parse) else {
            return Err(strange(&state));
        };
        Ok(Some(Seen {
            status,
            aborted: state["aborted"] == true,
            has: ranges.collect(),
            resend: numbers(&state["resend"]),
            error: state["error_message"].as_str().map(str::to_owned),
        }))
    }

    pub(super) async fn chunk(
        &self,
        id: &str,
        number: u32,
        last: Last,
        sha256: Sha256,
        bytes: Bytes,
    ) -> Tried<()> {
        let query = if last == Last::Yes { "?last=true" } else { "" };
        let digest = format!("sha-256=:{}:", BASE64_STANDARD.encode(sha256.as_bytes()));
        let request = self.request(Method::PUT, &format!("{id}/chunk/{number}{query}"));
        let request = request.header("content-digest", digest).body(bytes);
        answered(request).await.map(drop)
    }

    pub(super) async fn resume(&self, id: &str) -> Tried<()> {
        answered(self.posted("resume", &json!({ "upload_id": id }))).await.map(drop)
    }

    pub(super) async fn content(&self, id: &str) -> Tried<BoxStream<'static, Tried<Bytes>>> {
        let response = answered(self.request(Method::GET, &format!("{id}/content"))).await?;
        Ok(response.bytes_stream().map(|piece| piece.map_err(away)).boxed())
    }
}

fn strange(answer: &Value) -> Trying {
    let shown: String = answer.to_string().chars().take(200).collect();
    let detail = format!("this is not what a server of uploads answers: {shown}");
    Trying::Never(Error::new("upload.put", Code::StoreProtocol, detail))
}

fn away(error: reqwest::Error) -> Trying {
    let error = error.without_url();
    let mut detail = format!("the server cannot be reached: {error}");
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        detail = format!("{detail}: {next}");
        cause = next.source();
    }
    Trying::Later(None, Error::new("upload.put", Code::UploadBackend, detail))
}

async fn json_of(response: Response) -> Tried<Value> {
    let body = response.bytes().await.map_err(away)?;
    let shown = || Value::String(String::from_utf8_lossy(&body).into_owned());
    serde_json::from_slice(&body).map_err(|_| strange(&shown()))
}

/// The answer, or the problem that it tells.
async fn answered(request: RequestBuilder) -> Tried<Response> {
    let response = request.send().await.map_err(away)?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let wait = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let wait = wait.map(Duration::from_secs);
    let problem = json_of(response).await?;
    let code = problem["code"].as_str().unwrap_or_default();
    let known = Code::ALL.iter().find(|known| known.name() == code).copied();
    let detail = problem["detail"].as_str().unwrap_or("no detail");
    let error = Error::new(
        "upload.put",
        known.unwrap_or(Code::StoreProtocol),
        format!("the server answers {status}: {detail}"),
    );
    let later = status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
    Err(if later { Trying::Later(wait, error) } else { Trying::Never(error) })
}
