//! From sources to a checked schema.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::check;
use crate::diagnostic::{Diagnostic, Severity, excerpt, nearest};
use crate::kind::Kind;
use crate::pattern::{Blueprint, Pattern, Template};
use crate::read::draft::Draft;
use crate::read::report::{At, Report, Unset};
use crate::schema::{ChannelRow, Colocate, Document, KeyRow, Resource, Schema};

/// One schema file.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// What came of loading.
#[derive(Debug)]
pub struct Loaded {
    /// The schema; `None` if and only if there is an error among the diagnostics.
    pub schema: Option<Schema>,
    /// All problems, in the order of the sources.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the sources together; `env` looks environment variables up.
pub fn load(sources: &[Source<'_>], env: &dyn Fn(&str) -> Option<String>) -> Loaded {
    load_with(sources, env, Unset::Refused)
}

/// The same for whoever uses a part of the schema: a resource one of whose variables is not set is left out, with those
/// that refer to it. A queue is left without `push` where only that lacks a variable.
pub fn load_set(sources: &[Source<'_>], env: &dyn Fn(&str) -> Option<String>) -> Loaded {
    load_with(sources, env, Unset::LeftOut)
}

fn load_with(sources: &[Source<'_>], env: &dyn Fn(&str) -> Option<String>, unset: Unset) -> Loaded {
    let report = Report::new(sources, unset);
    let mut documents: Vec<Document> = Vec::new();
    let mut heads = Vec::new();
    let mut drafts = Vec::new();
    let mut declared = Vec::new();
    let mut broken = false;
    for (index, source) in sources.iter().enumerate() {
        let file = crate::read::read(index, source, env, &report);
        documents.push(file.document);
        heads.push(file.at);
        drafts.extend(file.drafts);
        declared.extend(file.declared);
        broken |= file.broken;
    }
    if sources.is_empty() {
        report.add(At { source: 0, offset: 0 }, "missing-field", "there is no schema to load", None);
    }
    unique_documents(&documents, &heads, &report);
    let mut drafts = unique_names(drafts, &report);
    if !broken {
        references(&drafts, &declared, &report);
    }
    let left_out = leave_out(&mut drafts, &report);
    check::overlap(&mut drafts, &report);
    check::runs(&drafts, &report);
    let cluster_problems = check::slots(&drafts, &report);

    let resources = drafts.iter().map(|draft| Arc::new(resource(draft, &documents))).collect();
    let mut schema = Schema::new(documents, resources, cluster_problems);
    schema.left_out = left_out;
    check::eviction(&schema, &heads, &report);
    let diagnostics = report.finish();
    let failed = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    Loaded { schema: (!failed).then_some(schema), diagnostics }
}

fn unique_documents(documents: &[Document], heads: &[At], report: &Report<'_>) {
    for (index, document) in documents.iter().enumerate() {
        if let Some(first) = documents[..index].iter().find(|before| before.name == document.name) {
            let message = format!("{} is already called {}", excerpt(&first.source), excerpt(&document.name));
            report.add(
                heads[index],
                "duplicate-name",
                message,
                Some("give each `[schema]` its own `name`".to_owned()),
            );
        }
    }
}

/// Reports a name declared twice and keeps the first.
fn unique_names(drafts: Vec<Draft>, report: &Report<'_>) -> Vec<Draft> {
    let mut seen: HashMap<(Kind, String), At> = HashMap::new();
    let mut kept = Vec::with_capacity(drafts.len());
    for draft in drafts {
        if let Some(first) = seen.get(&(draft.kind, draft.name.clone())) {
            let message = format!("[{}] is already declared at {}", draft.label(), report.place(*first));
            report.add(draft.at, "duplicate-name", message, None);
            continue;
        }
        seen.insert((draft.kind, draft.name.clone()), draft.at);
        kept.push(draft);
    }
    kept
}

/// Takes out the resources that lack a variable, and those that refer to one of them.
fn leave_out(drafts: &mut Vec<Draft>, report: &Report<'_>) -> BTreeMap<String, String> {
    loop {
        let before = drafts.len();
        drafts.retain(|draft| {
            let mut wanted =
                draft.references.iter().map(|reference| format!("{}.{}", reference.kind, reference.name));
            let wanting =
                report.wanting(&draft.label()).or_else(|| wanted.find_map(|label| report.wanting(&label)));
            if let Some(variable) = &wanting {
                report.leave_out(&draft.label(), variable);
            }
            wanting.is_none()
        });
        if drafts.len() == before {
            return report.left_out();
        }
    }
}

/// How many undeclared names are compared with every declared one.
const MOST_GUESSES: usize = 32;

fn references(drafts: &[Draft], declared: &[(Kind, String)], report: &Report<'_>) {
    let known: HashSet<(Kind, &str)> = declared.iter().map(|(kind, name)| (*kind, name.as_str())).collect();
    let mut guesses = MOST_GUESSES;
    for draft in drafts {
        for reference in &draft.references {
            if !known.contains(&(reference.kind, reference.name.as_str())) {
                let message = format!(
                    "[{}] refers to {} {}, which is not declared",
                    draft.label(),
                    reference.kind,
                    excerpt(&reference.name)
                );
                let names = known.iter().filter(|(kind, _)| *kind == reference.kind).map(|(_, name)| *name);
                let near = if guesses > 0 { nearest(&reference.name, names) } else { None };
                guesses = guesses.saturating_sub(1);
                let help = near.map(|near| format!("did you mean `{near}`?"));
                report.add(reference.at, "unknown-resource", message, help);
            }
        }
    }
}

fn resource(draft: &Draft, documents: &[Document]) -> Resource {
    let keys: Vec<KeyRow> = draft
        .rows
        .iter()
        .map(|row| {
            let side = draft.side(row);
            let (single, cluster) = (draft.single(row), draft.cluster(row));
            let placeholders = row.template.names().map(|name| draft.placeholder(row, name)).collect();
            let blueprint =
                Blueprint { single: &single, cluster: &cluster, side: [&side[0], &side[1]], placeholders };
            KeyRow {
                role: row.role,
                pattern: Pattern::new(blueprint),
                kind: row.holds,
                ttl: row.ttl.clone(),
                purpose: row.purpose.clone(),
                fields: row.fields.clone(),
                format: row.format.clone(),
            }
        })
        .collect();
    let channels = draft.channels.iter().map(|channel| channel_row(draft, channel)).collect();
    Resource {
        kind: draft.kind,
        name: draft.name.clone(),
        document: documents.get(draft.document).map(|document| document.name.clone()).unwrap_or_default(),
        owner: draft.owner.clone(),
        description: draft.description.clone(),
        on_outage: draft.on_outage,
        colocate: draft.colocate.as_ref().map(|(template, _)| Colocate { template: template.clone() }),
        sensitive: draft.sensitive,
        spec: draft.spec.clone(),
        tag: (!keys.is_empty()).then(|| draft.tag.clone()),
        keys,
        channels,
    }
}

fn channel_row(draft: &Draft, channel: &crate::read::draft::ChannelDraft) -> ChannelRow {
    let template = draft.channel(channel);
    let names = template.names().map(|name| draft.channel_placeholder(name)).collect();
    let none = Template::default();
    let blueprint =
        Blueprint { single: &template, cluster: &template, side: [&none, &none], placeholders: names };
    ChannelRow {
        role: channel.role,
        pattern: Pattern::new(blueprint),
        purpose: channel.purpose.clone(),
        fields: channel.fields.clone(),
    }
}
