//! The schema as Markdown: what a team would otherwise write by hand and let drift.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::kind::{Kind, RedisType, Spelling};
use crate::read::duration_text;
use crate::schema::{Document, Resource, Schema, Ttl};
use crate::spec::{
    BatchSpec, EventSpec, GuardSpec, IdempotencySpec, LimitSpec, QueueSpec, RunSpec, StatsSpec, UploadSpec,
};

/// The head of the keys that belong to no schema, unless the settings say otherwise.
pub const OWN_PREFIX: &str = "quaymaster:";

/// The whole schema as one Markdown document; keys that belong to no schema begin with `own_prefix`.
pub fn docs(schema: &Schema, own_prefix: &str) -> String {
    let mut out = String::new();
    for document in schema.documents() {
        let resources: Vec<&Resource> = schema
            .resources()
            .map(AsRef::as_ref)
            .filter(|resource| resource.document == document.name)
            .collect();
        head(&mut out, document);
        resource_table(&mut out, &resources);
        key_table(&mut out, &resources);
        field_tables(&mut out, &resources);
        channel_table(&mut out, &resources);
        value_rules(&mut out, &resources);
    }
    access(&mut out, schema, own_prefix);
    out
}

/// Text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn line(out: &mut String, text: impl AsRef<str>) {
    out.push_str(text.as_ref());
    out.push('\n');
}

fn head(out: &mut String, document: &Document) {
    line(out, format!("# {}\n", document.name));
    if let Some(description) = &document.description {
        line(out, format!("{description}\n"));
    }
    if let Some(owner) = &document.owner {
        line(out, format!("- owner: {owner}"));
    }
    if !document.prefix.is_empty() {
        line(out, format!("- prefix: `{}`", document.prefix));
    }
    line(out, format!("- source: `{}`\n", document.source));
}

fn resource_table(out: &mut String, resources: &[&Resource]) {
    line(out, "## Resources\n");
    line(out, "| resource | what it is | settings | on outage | owner |");
    line(out, "|---|---|---|---|---|");
    for resource in resources {
        let mut settings = resource.spec.in_words();
        if resource.sensitive {
            settings.push_str(", sensitive");
        }
        let what = resource.description.as_deref().unwrap_or("");
        let owner = resource.owner.as_deref().unwrap_or("");
        line(
            out,
            format!(
                "| `{}.{}` | {} | {} | {} | {} |",
                resource.kind,
                resource.name,
                cell(what),
                cell(&settings),
                resource.on_outage,
                cell(owner)
            ),
        );
    }
    out.push('\n');
}

impl LimitSpec {
    pub(crate) fn in_words(&self) -> String {
        let mut words = format!("{}, {} per {}", self.algorithm, self.limit, duration_text(self.window));
        if self.safety_buffer > 0 {
            let _ = write!(words, ", {} usable after a buffer of {}", self.effective(), self.safety_buffer);
        }
        words
    }
}

impl IdempotencySpec {
    pub(crate) fn in_words(&self) -> String {
        let (ttl, claim) = (duration_text(self.ttl), duration_text(self.in_progress_ttl));
        if self.compact {
            format!("remembered for {ttl}, claims for {claim}, no response kept")
        } else {
            let max = self.max_response;
            format!("replayed for {ttl}, claims for {claim}, responses up to {max} bytes")
        }
    }
}

impl GuardSpec {
    pub(crate) fn in_words(&self) -> String {
        let limits = self.limits.iter().map(|name| format!("limit.{name}"));
        let idempotency = self.idempotency.iter().map(|name| format!("idempotency.{name}"));
        let lock = self.lock.iter().map(|name| format!("lock.{name}"));
        let parts: Vec<String> = limits.chain(idempotency).chain(lock).collect();
        format!("enters {} in one step", parts.join(", "))
    }
}

impl QueueSpec {
    pub(crate) fn in_words(&self) -> String {
        let mut words = match self.max_size {
            Some(size) => format!("{}, at most {size}, then {}", self.order, self.overflow),
            None => format!("{}, unbounded", self.order),
        };
        let retry = &self.retry;
        let _ = write!(
            words,
            ", lease {}, {} attempts from {} to {}, pressure at {}",
            duration_text(self.lease),
            retry.max_attempts,
            duration_text(retry.base),
            duration_text(retry.max),
            self.pressure_at
        );
        if let Some(bytes) = self.compress_over {
            let _ = write!(words, ", compressed over {bytes} bytes");
        }
        if let Some(push) = &self.push {
            let _ = write!(words, ", pushed {} at once", push.concurrency);
        }
        words
    }
}

impl BatchSpec {
    pub(crate) fn in_words(&self) -> String {
        format!(
            "by {}, window {}, idle {}, to queue.{}",
            self.by,
            duration_text(self.window),
            duration_text(self.idle),
            self.to
        )
    }
}

impl EventSpec {
    pub(crate) fn in_words(&self) -> String {
        let mut words = format!("channel `{}`", self.channel);
        if let Some(status) = &self.status {
            let _ = write!(words, ", a status every {}", duration_text(status.every));
        }
        words
    }
}

impl RunSpec {
    pub(crate) fn in_words(&self) -> String {
        let mut words =
            format!("state {}, hour lists {}", duration_text(self.state_ttl), duration_text(self.hour_ttl));
        let _ = write!(words, ", stale after {}", duration_text(self.stale_after));
        if let Some(limit) = &self.limit {
            let _ = write!(words, ", counts limit.{limit}");
        }
        words
    }
}

impl StatsSpec {
    pub(crate) fn in_words(&self) -> String {
        format!(
            "{} endpoints, {} samples each, flushed every {}",
            self.max_endpoints,
            self.samples,
            duration_text(self.flush)
        )
    }
}

impl UploadSpec {
    pub(crate) fn in_words(&self) -> String {
        format!(
            "{} workers, chunks {} to {} bytes, {} bytes in flight, kept {} after the end",
            self.workers,
            self.chunk_min,
            self.chunk_max,
            self.max_bytes_in_flight,
            duration_text(self.keep_after_done)
        )
    }
}

fn key_table(out: &mut String, resources: &[&Resource]) {
    if resources.iter().all(|resource| resource.keys.is_empty()) {
        return;
    }
    line(out, "## Keys\n");
    line(out, "| resource | key | on a cluster | type | TTL | purpose |");
    line(out, "|---|---|---|---|---|---|");
    for resource in resources {
        for row in &resource.keys {
            let single = row.pattern.spelled(Spelling::Single);
            let cluster = match row.pattern.spelled(Spelling::Cluster) {
                same if same == single => "the same".to_owned(),
                other => format!("`{}`", cell(other)),
            };
            let ttl = match &row.ttl {
                Ttl::Never(why) => format!("never: {why}"),
                Ttl::For(length) => duration_text(*length),
            };
            let purpose = match &row.format {
                Some(format) => format!("{}: {format}", row.purpose),
                None => row.purpose.clone(),
            };
            line(
                out,
                format!(
                    "| `{}.{}` {} | `{}` | {cluster} | {} | {} | {} |",
                    resource.kind,
                    resource.name,
                    row.role,
                    cell(single),
                    row.kind,
                    cell(&ttl),
                    cell(&purpose)
                ),
            );
        }
    }
    line(
        out,
        "\n`{hour}` is `YYYY-MM-DD_HH`, `{minute}` is `YYYY-MM-DD-HH-MM`, `{day}` is `YYYY-MM-DD`, all UTC. In a",
    );
    line(
        out,
        "spelling with braces around more than a placeholder, the outer braces are written: they are the hash tag.\n",
    );
}

fn field_tables(out: &mut String, resources: &[&Resource]) {
    for resource in resources {
        let rows = resource.keys.iter().map(|row| (row.pattern.text(), row.kind, &row.fields));
        for (pattern, kind, fields) in rows.filter(|(_, _, fields)| !fields.is_empty()) {
            let what = if kind == RedisType::Hash { "Fields" } else { "JSON fields" };
            line(out, format!("### {what} of `{pattern}`\n"));
            line(out, "| field | meaning |");
            line(out, "|---|---|");
            for field in fields {
                line(out, format!("| `{}` | {} |", cell(&field.name), cell(&field.meaning)));
            }
            out.push('\n');
        }
    }
}

fn channel_table(out: &mut String, resources: &[&Resource]) {
    if resources.iter().all(|resource| resource.channels.is_empty()) {
        return;
    }
    line(out, "## Channels\n");
    line(out, "| resource | channel | purpose | message fields |");
    line(out, "|---|---|---|---|");
    for resource in resources {
        for channel in &resource.channels {
            let fields: Vec<String> =
                channel.fields.iter().map(|field| format!("`{}`: {}", field.name, field.meaning)).collect();
            let (name, purpose) = (channel.pattern.text(), &channel.purpose);
            line(
                out,
                format!(
                    "| `{}.{}` | `{name}` | {} | {} |",
                    resource.kind,
                    resource.name,
                    cell(purpose),
                    cell(&fields.join("; "))
                ),
            );
        }
    }
    out.push('\n');
}

fn value_rules(out: &mut String, resources: &[&Resource]) {
    line(out, "## Values\n");
    line(
        out,
        "A value is 1 to 512 characters, without control characters and `{ } * ? [ ]`, and without `:` unless named here.\n",
    );
    for resource in resources {
        let mut rules: Vec<String> = Vec::new();
        for row in &resource.keys {
            let colon = row.pattern.colon_placeholder().map(|name| format!("`{name}` may contain `:`"));
            let forbidden =
                row.pattern.forbidden().map(|(name, word)| format!("`{name}` may not be `{word}`"));
            for rule in colon.into_iter().chain(forbidden) {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
        if !rules.is_empty() {
            line(out, format!("- `{}.{}`: {}", resource.kind, resource.name, rules.join("; ")));
        }
    }
    out.push('\n');
}

/// Commands beside those of the types: what the store, its health and its audit ask for.
const COMMANDS: &str = "+@connection +eval +evalsha +script|load +script|exists +set +del +unlink +exists +expire +pexpire \
                        +pexpireat +persist +ttl +pttl +type +rename +scan +memory|usage +time +wait";
/// `-@dangerous` takes these away with the others; they only read.
const SAFE: &str = "+acl|whoami +acl|dryrun +info +role +config|get +cluster|slots +cluster|shards +cluster|nodes +cluster|info";

fn access(out: &mut String, schema: &Schema, own_prefix: &str) {
    line(out, "# Access\n");
    line(
        out,
        "What an ACL user needs: these commands, keys and channels, and nothing else. Set a password of your own.\n",
    );
    line(out, "```");
    let mut kinds: BTreeSet<RedisType> =
        schema.resources().flat_map(|r| r.keys.iter().map(|row| row.kind)).collect();
    let foreign_only =
        |kind| schema.resources().all(|r| r.kind == Kind::Key || r.keys.iter().all(|row| row.kind != kind));
    kinds.retain(|kind| !foreign_only(*kind));
    let types: Vec<&str> = kinds.into_iter().map(category).collect();
    line(
        out,
        format!(
            "ACL SETUSER quaymaster on resetkeys resetchannels -@all {} +@pubsub {COMMANDS} -@dangerous {SAFE}",
            types.join(" ")
        ),
    );
    line(out, format!("ACL SETUSER quaymaster {}", quoted(&format!("~{own_prefix}*"))));
    let globs = |spelling| -> BTreeSet<String> {
        schema.resources().flat_map(|r| r.keys.iter().map(move |row| row.pattern.glob(spelling))).collect()
    };
    let (single, cluster) = (globs(Spelling::Single), globs(Spelling::Cluster));
    for glob in &single {
        line(out, format!("ACL SETUSER quaymaster {}", quoted(&format!("~{glob}"))));
    }
    let channels: BTreeSet<String> = schema
        .resources()
        .flat_map(|r| r.channels.iter().map(|row| row.pattern.glob(Spelling::Single)))
        .collect();
    for glob in channels {
        line(out, format!("ACL SETUSER quaymaster {}", quoted(&format!("&{glob}"))));
    }
    line(out, "```\n");
    let more: Vec<&String> = cluster.difference(&single).collect();
    if !more.is_empty() {
        line(out, "On a cluster also:\n");
        line(out, "```");
        for glob in more {
            line(out, format!("ACL SETUSER quaymaster {}", quoted(&format!("~{glob}"))));
        }
        line(out, "```");
    }
}

fn category(kind: RedisType) -> &'static str {
    match kind {
        RedisType::String => "+@string",
        RedisType::Hash => "+@hash",
        RedisType::List => "+@list",
        RedisType::Set => "+@set",
        RedisType::Zset => "+@sortedset",
        RedisType::Stream => "+@stream",
    }
}

/// redis-cli splits at spaces.
fn quoted(word: &str) -> String {
    if word.contains([' ', '"', '\'']) { format!("{word:?}") } else { word.to_owned() }
}
