//! A resource between reading and loading.

use std::collections::BTreeMap;

use super::report::At;
use crate::field::Spec;
use crate::keys::RowDraft;
use crate::kind::{Kind, Outage};
use crate::pattern::{Class, Placeholder, Template};
use crate::schema::Field;

/// A name of another resource.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) at: At,
}

#[derive(Debug, Clone)]
pub(crate) struct ChannelDraft {
    pub(crate) role: &'static str,
    pub(crate) template: Template,
    pub(crate) purpose: String,
    pub(crate) fields: Vec<Field>,
}

impl ChannelDraft {
    /// A channel beside the key on which whoever waits is woken: an ACL user must be allowed it.
    pub(crate) fn hint(key: &Template, role: &'static str, purpose: &str) -> Self {
        let template = key.without_bucket().side(role);
        Self { role, template, purpose: purpose.to_owned(), fields: Vec::new() }
    }
}

/// A resource that has been read; its patterns wait for what the other resources leave free.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) document: usize,
    /// The document's prefix; every key begins with it.
    pub(crate) prefix: String,
    /// Its table.
    pub(crate) at: At,
    /// Its key, or its table when the key is a default.
    pub(crate) key_at: At,
    pub(crate) owner: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) on_outage: Outage,
    pub(crate) colocate: Option<(Template, At)>,
    pub(crate) sensitive: bool,
    pub(crate) spec: Spec,
    pub(crate) rows: Vec<RowDraft>,
    pub(crate) channels: Vec<ChannelDraft>,
    /// The hash tag its keys share on a cluster.
    pub(crate) tag: Template,
    pub(crate) references: Vec<Reference>,
    /// The placeholder that may contain `:`.
    pub(crate) wide: Option<String>,
    /// The schema names it itself, so the loader may not take it back.
    pub(crate) wide_pinned: bool,
    /// Values that would spell another resource's key.
    pub(crate) forbidden: BTreeMap<String, Vec<String>>,
}

impl Draft {
    /// `limit.psp`
    pub(crate) fn label(&self) -> String {
        format!("{}.{}", self.kind, self.name)
    }

    /// The alphabet of a placeholder of a row, or of a channel.
    pub(crate) fn class(&self, row: Option<&RowDraft>, name: &str) -> Class {
        let mut known = row.into_iter().flat_map(|row| &row.classes);
        match known.find(|(known, _)| *known == name) {
            Some((_, class)) => *class,
            None if self.wide.as_deref() == Some(name) => Class::Wide,
            None => Class::Narrow,
        }
    }

    /// What a placeholder of a row may hold.
    pub(crate) fn placeholder(&self, row: &RowDraft, name: &str) -> Placeholder {
        let class = self.class(Some(row), name);
        let forbidden = self.forbidden.get(name).cloned().unwrap_or_default();
        Placeholder { name: name.to_owned(), class, forbidden }
    }

    /// What a placeholder of a channel may hold.
    pub(crate) fn channel_placeholder(&self, name: &str) -> Placeholder {
        let class = self.class(None, name);
        let forbidden = self.forbidden.get(name).cloned().unwrap_or_default();
        Placeholder { name: name.to_owned(), class, forbidden }
    }

    /// How one keyspace spells a row.
    pub(crate) fn single(&self, row: &RowDraft) -> Template {
        self.under_prefix(row.template.clone())
    }

    /// How a cluster spells a row.
    pub(crate) fn cluster(&self, row: &RowDraft) -> Template {
        self.under_prefix(self.tagged(row))
    }

    /// The name of a channel.
    pub(crate) fn channel(&self, channel: &ChannelDraft) -> Template {
        self.under_prefix(channel.template.clone())
    }

    /// Puts the prefix in front of a spelling that begins with a hash tag, so that `prefix*` finds every key of the
    /// schema. The tag, and with it the slot, stays.
    fn under_prefix(&self, spelled: Template) -> Template {
        if self.prefix.is_empty() || !spelled.begins_with_tag() {
            return spelled;
        }
        let mut whole = Template::of_text(&self.prefix);
        whole.push(&spelled);
        whole
    }

    /// A row with the hash tag that puts it into its slot.
    fn tagged(&self, row: &RowDraft) -> Template {
        let template = &row.template;
        // A row written by a step of its own lies wherever its own name puts it.
        let tag =
            if row.apart && self.colocate.is_none() { template.without_bucket() } else { self.tag.clone() };
        if *template == tag || row.apart && row.side && self.colocate.is_none() {
            return template.clone();
        }
        if row.side {
            let mut own = tag.braced();
            own.push_text(":");
            if template.text().starts_with(&own.text()) {
                return template.clone();
            }
        } else if let Some(tagged) = template.tagged_in_place(&tag) {
            return tagged;
        }
        let mut spelled = tag.braced();
        spelled.push_text(":");
        spelled.push(template);
        spelled
    }

    /// What side keys begin with on one node and on a cluster: the prefix and `{tag}:`.
    pub(crate) fn side(&self, row: &RowDraft) -> [Template; 2] {
        let own = row.template.without_bucket();
        let mut single = own.braced();
        single.push_text(":");
        let cluster = if own == self.tag {
            single.clone()
        } else {
            let mut cluster = self.tag.braced();
            cluster.push_text(":");
            cluster.push(&single);
            cluster
        };
        [single, cluster].map(|spelled| self.under_prefix(spelled))
    }
}
