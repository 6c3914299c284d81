//! The checked schema: documents, resources, keys.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::diagnostic::{Diagnostic, nearest};
use crate::explain::Index;
use crate::field::Spec;
use crate::kind::{Kind, Outage, RedisType};
use crate::pattern::Pattern;
use crate::spec::LimitSpec;

/// One schema file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// `[schema] name`, or the file's name.
    pub name: String,
    /// Who owns what it declares.
    pub owner: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// In front of every key and channel.
    pub prefix: String,
    /// The eviction policy it declares to run under.
    pub eviction: Option<String>,
    /// The file, as [`crate::Source::name`] gave it.
    pub source: String,
}

/// How long a key lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ttl {
    /// For ever, and why that is fine.
    Never(String),
    /// At most so long after its last change.
    For(Duration),
}

impl Ttl {
    /// The duration, if there is one.
    pub fn duration(&self) -> Option<Duration> {
        match self {
            Ttl::Never(_) => None,
            Ttl::For(duration) => Some(*duration),
        }
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ttl::Never(_) => f.write_str("never"),
            Ttl::For(duration) => f.write_str(&crate::read::duration_text(*duration)),
        }
    }
}

/// A field of a hash, or of the JSON a key or channel carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub meaning: String,
}

/// One key of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// What part it plays: `limit`, `request`, `leases` …
    pub role: &'static str,
    /// How it is named.
    pub pattern: Pattern,
    /// What it holds.
    pub kind: RedisType,
    /// How long it lives.
    pub ttl: Ttl,
    /// What it is for.
    pub purpose: String,
    /// Its hash fields, or the fields of the JSON it holds.
    pub fields: Vec<Field>,
    /// What a value, member or item looks like, where that is fixed.
    pub format: Option<String>,
}

/// A pub/sub channel of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelRow {
    /// What part it plays.
    pub role: &'static str,
    /// How it is named; channels are spelled alike on every topology.
    pub pattern: Pattern,
    /// What it is for.
    pub purpose: String,
    /// The fields of its JSON messages.
    pub fields: Vec<Field>,
}

/// The hash-tag template that puts a resource's keys into one slot with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Colocate {
    pub(crate) template: crate::pattern::Template,
}

impl Colocate {
    /// As the schema file writes it.
    pub fn text(&self) -> String {
        self.template.text()
    }
}

/// One declared resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// What it is.
    pub kind: Kind,
    /// Its name, unique within its kind.
    pub name: String,
    /// The document that declares it.
    pub document: String,
    /// Who owns it; the document's owner unless it names another.
    pub owner: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What it answers while the store cannot be reached.
    pub on_outage: Outage,
    /// Its declared hash tag.
    pub colocate: Option<Colocate>,
    /// Whether its values are secret.
    pub sensitive: bool,
    /// What its kind declares.
    pub spec: Spec,
    /// Its keys, the primary first; guards have none, and those of an event are all beside its channel.
    pub keys: Vec<KeyRow>,
    /// Its channels.
    pub channels: Vec<ChannelRow>,
    /// The hash tag its primary key has on a cluster.
    pub(crate) tag: Option<crate::pattern::Template>,
}

impl Resource {
    /// The documented key.
    pub fn primary(&self) -> Option<&KeyRow> {
        self.keys.first()
    }

    /// The key that plays `role`.
    pub fn key(&self, role: &str) -> Option<&KeyRow> {
        self.keys.iter().find(|row| row.role == role)
    }

    /// The channel that plays `role`.
    pub fn channel(&self, role: &str) -> Option<&ChannelRow> {
        self.channels.iter().find(|row| row.role == role)
    }

    /// The hash tag under which its keys lie on a cluster, as a template.
    pub fn tag_text(&self) -> Option<String> {
        self.tag.as_ref().map(|tag| tag.text())
    }

    /// The limit's specification, if this is a limit.
    pub fn as_limit(&self) -> Option<&LimitSpec> {
        match &self.spec {
            Spec::Limit(spec) => Some(spec),
            _ => None,
        }
    }
}

/// All documents loaded together, checked.
#[derive(Debug, Clone)]
pub struct Schema {
    pub(crate) documents: Vec<Document>,
    pub(crate) resources: Vec<Arc<Resource>>,
    pub(crate) by_name: HashMap<Kind, HashMap<String, Arc<Resource>>>,
    pub(crate) index: Index,
    pub(crate) cluster_problems: Vec<Diagnostic>,
    /// Whether it is the bundled schemas, which nobody named.
    pub(crate) demonstration: bool,
    /// Resources that were left out, `limit.api`, and the variable that is not set.
    pub(crate) left_out: BTreeMap<String, String>,
}

/// What a key is, according to the schema.
#[derive(Debug, Clone)]
pub struct Explained<'s> {
    /// The resource that owns it.
    pub resource: &'s Arc<Resource>,
    /// Which of its keys it is.
    pub row: &'s KeyRow,
    /// How it is spelled; keys that both topologies spell alike count as single.
    pub spelling: crate::kind::Spelling,
    /// The placeholders' values.
    pub values: Vec<(String, String)>,
    /// The bucket it covers.
    pub bucket: Option<crate::pattern::Bucket>,
}

impl Schema {
    pub(crate) fn new(
        documents: Vec<Document>,
        resources: Vec<Arc<Resource>>,
        cluster_problems: Vec<Diagnostic>,
    ) -> Self {
        let mut by_name: HashMap<Kind, HashMap<String, Arc<Resource>>> = HashMap::new();
        for resource in &resources {
            by_name.entry(resource.kind).or_default().insert(resource.name.clone(), resource.clone());
        }
        let index = Index::new(&resources);
        Self {
            documents,
            resources,
            by_name,
            index,
            cluster_problems,
            demonstration: false,
            left_out: BTreeMap::new(),
        }
    }

    /// The files this schema was made of.
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// Whether it is the bundled schemas, loaded since nobody named one.
    pub fn is_demonstration(&self) -> bool {
        self.demonstration
    }

    /// The variable for want of which [`crate::load_set`] left this resource out.
    pub fn left_out(&self, kind: Kind, name: &str) -> Option<&str> {
        self.left_out.get(&format!("{kind}.{name}")).map(String::as_str)
    }

    /// Every resource that was left out, such as `limit.api`, and the variable that is not set.
    pub fn all_left_out(&self) -> impl Iterator<Item = (&str, &str)> {
        self.left_out.iter().map(|(label, variable)| (label.as_str(), variable.as_str()))
    }

    /// Every resource, in the order of the files.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter()
    }

    /// The resource of this kind and name.
    pub fn resource(&self, kind: Kind, name: &str) -> Option<&Arc<Resource>> {
        self.by_name.get(&kind)?.get(name)
    }

    /// The oldest Redis its scripts run on, major and minor: queues (and batches, which end in one) need `LMOVE`,
    /// `BLMOVE`, `ZADD … GT` and `LPOP` with a count, which came with 6.2.
    pub fn oldest_redis(&self) -> (u32, u32) {
        let queues = self.resources.iter().any(|resource| matches!(resource.kind, Kind::Queue | Kind::Batch));
        if queues { (6, 2) } else { (6, 0) }
    }

    /// The name somebody most likely meant.
    pub fn nearest(&self, kind: Kind, name: &str) -> Option<&str> {
        nearest(name, self.by_name.get(&kind)?.keys().map(String::as_str))
    }

    /// Which resource a key belongs to, in either spelling.
    pub fn explain(&self, key: &[u8]) -> Option<Explained<'_>> {
        self.index.explain(&self.resources, key)
    }

    /// Resources that one step joins and that a cluster would put into different slots; errors on a cluster.
    pub fn cluster_problems(&self) -> Vec<Diagnostic> {
        self.cluster_problems.clone()
    }
}
