//! The one table of what [`crate::load`] can say about a schema.

use crate::diagnostic::Severity::{self, Error, Warning};

/// One thing that can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lint {
    /// Its stable code.
    pub code: &'static str,
    /// Whether the schema can be used nevertheless.
    pub severity: Severity,
    /// What was found.
    pub what: &'static str,
    /// Why it matters.
    pub why: &'static str,
}

const fn lint(code: &'static str, severity: Severity, what: &'static str, why: &'static str) -> Lint {
    Lint { code, severity, what, why }
}

/// Every code, grammar first.
pub const LINTS: &[Lint] = &[
    lint("toml-syntax", Error, "the file is not TOML", "nothing can be read from it"),
    lint("too-large", Error, "the file is larger than 1 MiB", "a schema is written and read by people"),
    lint(
        "unknown-kind",
        Error,
        "a table names no kind of resource",
        "a mistyped kind would silently declare nothing",
    ),
    lint(
        "unknown-field",
        Error,
        "the kind has no such field",
        "a mistyped field would silently keep its default",
    ),
    lint("missing-field", Error, "a required field is absent", "there is no safe default for it"),
    lint(
        "wrong-type",
        Error,
        "a field has a value of another type",
        "guessing what was meant hides mistakes",
    ),
    lint(
        "bad-value",
        Error,
        "a value is outside what its field allows",
        "the resource could not work as declared",
    ),
    lint("bad-unit", Error, "a duration or size is not written with a known unit", "60 what?"),
    lint(
        "bad-env",
        Error,
        "an environment variable holds a value its field cannot take",
        "a typing error in a deployment must not become a default",
    ),
    lint(
        "env-unset",
        Error,
        "an environment variable without default is not set",
        "the deployment lacks a setting the schema needs",
    ),
    lint(
        "bad-name",
        Error,
        "a resource's name cannot be part of a URL",
        "every resource is called by its name",
    ),
    lint(
        "duplicate-name",
        Error,
        "two resources of one kind, or two documents, share a name",
        "calls could not tell them apart",
    ),
    lint(
        "unknown-resource",
        Error,
        "a resource refers to one that is not declared",
        "the step it joins could not run",
    ),
    lint("bad-pattern", Error, "a key pattern cannot be read", "no key can be made from it"),
    lint(
        "ambiguous-pattern",
        Error,
        "a placeholder makes a pattern ambiguous",
        "a key could not be read back into its values",
    ),
    lint(
        "reserved-placeholder",
        Error,
        "a key's placeholder is named like one of the resource's other keys",
        "one name would stand for two values of the same key",
    ),
    lint(
        "colocate-placeholder",
        Error,
        "a hash tag needs a value that a key does not have",
        "the key could not be spelled on a cluster",
    ),
    lint(
        "key-overlap",
        Error,
        "two patterns can produce the same key",
        "two resources would overwrite each other",
    ),
    lint(
        "key-overlap-literal",
        Warning,
        "two patterns are told apart by a value that is now forbidden",
        "callers with that value are refused",
    ),
    lint(
        "key-overlap-colon",
        Warning,
        "two patterns are told apart by refusing `:` in a placeholder",
        "callers with such values are refused",
    ),
    lint(
        "side-overlap",
        Error,
        "the side keys of two resources can be the same key",
        "one resource's request ids or leases would be taken for the other's",
    ),
    lint("two-types", Error, "one pattern is declared with two types", "the second writer gets WRONGTYPE"),
    lint(
        "window-not-bucket",
        Error,
        "the window is not as long as the bucket in the key",
        "the key would end before or after what it counts",
    ),
    lint(
        "bucket-in-sliding",
        Error,
        "a sliding or token algorithm has a time bucket in its key",
        "its memory would be cut at every bucket",
    ),
    lint(
        "limit-bounds",
        Error,
        "a limit is outside the arithmetic of its algorithm",
        "counts would be inexact or unbounded",
    ),
    lint("limit-refuses-all", Warning, "the safety buffer swallows the limit", "everything is refused"),
    lint(
        "ttl-shorter-than-window",
        Error,
        "a TTL is shorter than what it must outlive",
        "counts, claims or batches would vanish early",
    ),
    lint(
        "ttl-not-window",
        Error,
        "a fixed window without a bucket has a TTL other than its window",
        "the key's expiry is the window's end",
    ),
    lint("no-ttl", Error, "a key has neither a TTL nor a reason to have none", "the store fills up"),
    lint(
        "matches-everything",
        Warning,
        "a key has no text beside its placeholders",
        "any key of another program looks like one of this resource",
    ),
    lint("no-bound", Warning, "a queue has no max_size", "a stopped consumer fills the store"),
    lint("contradiction", Error, "two fields cannot both hold", "the resource could not work as declared"),
    lint(
        "idle-over-window",
        Warning,
        "a batch's idle time never comes before its window ends",
        "the field has no effect",
    ),
    lint(
        "lease-shorter-than-push",
        Warning,
        "a pushed job may run longer than its lease",
        "it would be sent twice while still running",
    ),
    lint("secret-in-file", Error, "a secret is written in the schema", "schemas are committed and printed"),
    lint(
        "prefix-separator",
        Warning,
        "the prefix does not end in a separator",
        "it runs into the first word of every key",
    ),
    lint(
        "cluster-slots",
        Warning,
        "one step joins resources that a cluster puts in different slots",
        "the step cannot run on a cluster",
    ),
    lint(
        "guard-steps",
        Warning,
        "a cluster puts the parts of a guard in different slots",
        "it takes a round trip per slot, and a crash between them leaves what was taken until it expires",
    ),
    lint(
        "eviction",
        Warning,
        "the declared eviction policy would destroy data that must stay",
        "counts, leases or acknowledged data vanish when memory is full",
    ),
];

/// The lint of this code.
pub fn lint_of(code: &str) -> Option<&'static Lint> {
    LINTS.iter().find(|lint| lint.code == code)
}
