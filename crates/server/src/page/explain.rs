//! `key explain`: which resource a key belongs to, and what is there.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Response;
use futures_util::FutureExt as _;
use quaymaster::schema::Kind;
use quaymaster::{Code, Engine, Schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Access, Packs, Page, Place, Visit, json};
use crate::app::App;
use crate::call::{Answers, Handler, Operation, Shows};
use crate::http::problem::Problem;
use crate::request::{Request as _, Spec, query, request};

pub(crate) const PATH: &str = "/v1/key/explain";

pub(crate) static EXPLAIN: Operation = Operation {
    request: KeyAsk::SHAPE,
    shows: Some(Shows::Facts),
    ..Operation::get(
        (Kind::Key, "explain", PATH),
        "Say what a key is, also when no pattern makes it",
        Answers::Json(|generator| generator.subschema_for::<KeyExplained>()),
        Handler::Page(&PAGE),
    )
};

pub(super) const PAGE: Page = Page {
    path: PATH,
    access: Access::Token,
    place: Place::Needed,
    packs: Packs::Never,
    run: |app, visit| explain(app, visit).boxed(),
};

/// The longest key that is looked at; Redis takes longer ones, no pattern of ours makes them.
const KEY_MAX: usize = 8192;

request! {
    /// What `explain` is asked.
    pub(crate) struct KeyAsk<'a> {
        /// The key, as the store spells it.
        key: Cow<'a, str> = Spec::text_of(1, KEY_MAX).required("give it as ?key=…"),
    }
}

/// What a key is. Everything but `actual` is null when no pattern of the schema makes this key.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct KeyExplained {
    /// The pattern that makes it.
    pub pattern: Option<String>,
    /// The resource's kind.
    pub kind: Option<String>,
    /// The resource's name.
    pub name: Option<String>,
    /// Which of the resource's keys it is.
    pub role: Option<String>,
    /// The values of the pattern's placeholders.
    pub values: BTreeMap<String, String>,
    /// Who owns the resource.
    pub owner: Option<String>,
    /// What the resource is for.
    pub description: Option<String>,
    /// The type the schema declares.
    pub r#type: Option<String>,
    /// How long the schema lets it live: `2h`, or `never`.
    pub expected_ttl: Option<String>,
    /// The same in milliseconds; null for `never`.
    pub expected_ttl_ms: Option<u64>,
    /// What the store has under it.
    pub actual: KeyActual,
}

/// What the store has.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct KeyActual {
    /// Whether there is anything.
    pub exists: bool,
    /// `string`, `hash`, `list`, `set`, `zset`.
    pub r#type: Option<String>,
    /// What is left of its life; null when it never ends.
    pub ttl_ms: Option<u64>,
    /// Bytes in memory, as the store estimates them.
    pub bytes: Option<u64>,
}

impl KeyExplained {
    /// Asks the schema and the store about `key`.
    pub async fn look_up(schema: &Schema, engine: &dyn Engine, key: &[u8]) -> quaymaster::Result<Self> {
        let facts = engine.key_facts(key).await.map_err(|error| error.during("key.explain"))?;
        let actual = KeyActual {
            exists: facts.is_some(),
            ttl_ms: facts.as_ref().and_then(|facts| facts.ttl_ms),
            bytes: facts.as_ref().and_then(|facts| facts.bytes),
            r#type: facts.map(|facts| facts.kind),
        };
        Ok(Self::told(schema, key, actual))
    }

    /// Asks the schema alone; of `actual` nothing is known.
    pub fn without_store(schema: &Schema, key: &[u8]) -> Self {
        Self::told(schema, key, KeyActual { exists: false, r#type: None, ttl_ms: None, bytes: None })
    }

    fn told(schema: &Schema, key: &[u8], actual: KeyActual) -> Self {
        let Some(found) = schema.explain(key) else {
            return Self {
                pattern: None,
                kind: None,
                name: None,
                role: None,
                values: BTreeMap::new(),
                owner: None,
                description: None,
                r#type: None,
                expected_ttl: None,
                expected_ttl_ms: None,
                actual,
            };
        };
        Self {
            pattern: Some(found.row.pattern.text().to_owned()),
            kind: Some(found.resource.kind.name().to_owned()),
            name: Some(found.resource.name.clone()),
            role: Some(found.row.role.to_owned()),
            values: found.values.into_iter().collect(),
            owner: found.resource.owner.clone(),
            description: found.resource.description.clone(),
            r#type: Some(found.row.kind.name().to_owned()),
            expected_ttl: Some(found.row.ttl.to_string()),
            expected_ttl_ms: found.row.ttl.duration().map(|ttl| ttl.as_millis() as u64),
            actual,
        }
    }
}

/// Which resource a key belongs to, and what is there.
async fn explain(app: &App, visit: Visit<'_>) -> Result<Response<Body>, Problem> {
    let KeyAsk { key, .. } = KeyAsk::of(query::query(KeyAsk::SHAPE, visit.query)?)?;
    let wrong = |detail: String| Err(Problem::new(Code::RequestInvalid, detail).field("key"));
    if key.is_empty() {
        return wrong("key is empty; give it as ?key=…".into());
    }
    if key.chars().count() > KEY_MAX {
        return wrong(format!("key is longer than {KEY_MAX} characters"));
    }
    let quaymaster = &app.services.quaymaster;
    match quaymaster.schema().explain(key.as_bytes()) {
        Some(found) => visit.rights.need_resource(found.resource.kind, &found.resource.name)?,
        None => visit.rights.need_all("a key that no resource has")?,
    }
    let told = KeyExplained::look_up(quaymaster.schema(), &**quaymaster.engine(), key.as_bytes()).await?;
    Ok(json(&told))
}
