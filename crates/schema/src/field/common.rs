//! The fields of every resource.

use super::{Boolean, Choice, Derived, Field, Form, Meanings, Optional, Or, Text, field, fields};
use crate::kind::{Kind, Outage};

type OnOutage = Field<Choice<Outage>, Or<Outage>>;

const ANSWER: &str = "What calls answer while the store cannot be reached.";

const COUNTED: OnOutage = on(
    &[Outage::Deny, Outage::Allow, Outage::Local, Outage::Database],
    "What calls answer while the store cannot be reached: `deny` refuses, `allow` lets through, `local` counts in the \
     process, `database` counts in the SQL database of the settings.",
);
const GUARDED: OnOutage = on(
    &[Outage::Deny, Outage::Allow],
    "What calls answer while the store cannot be reached: `deny` refuses, `allow` goes ahead unguarded.",
);
const CACHED: OnOutage = on(
    &[Outage::Miss, Outage::Error],
    "What calls answer while the store cannot be reached: `miss` finds nothing, `error` is an error.",
);
const REFUSED: OnOutage = on(&[Outage::Deny], ANSWER);

const fn on(words: &'static [Outage], meaning: &'static str) -> OnOutage {
    field("on_outage", Choice(words), Or(words[0]), meaning).since("0.1.0")
}

/// The policies of a kind; the first is the default.
pub(crate) fn on_outage(kind: Kind) -> &'static OnOutage {
    match kind {
        Kind::Limit => &COUNTED,
        Kind::Idempotency | Kind::Lock => &GUARDED,
        Kind::Cache => &CACHED,
        _ => &REFUSED,
    }
}

/// The explanation of a key without an end.
pub(super) const WHY: Field<Text, Optional> = field(
    "why",
    Text(Form::Free),
    Optional,
    "Why `ttl = \"never\"` is safe: what bounds the key. Required with it.",
);

/// The documented form of a value.
pub(super) const VALUE: Field<Text, Optional> =
    field("value", Text(Form::Free), Optional, "What a value looks like, for the documents.");

/// The documented fields of a value.
pub(super) const MEANINGS: Field<Meanings, Optional> = field(
    "fields",
    Meanings,
    Optional,
    "A table of the value's fields and what each means, for the documents: `status = \"the order's status\"`.",
);

fields! {
    since "0.1.0":
    OWNER: Field<Text, Derived> = field(
        "owner",
        Text(Form::Free),
        Derived("`owner` of `[schema]`"),
        "Who owns the resource; `explain` and `docs` show it.",
    );
    DESCRIPTION: Field<Text, Optional> =
        field("description", Text(Form::Free), Optional, "What the resource is for; `explain` and `docs` show it.");
    SENSITIVE: Field<Boolean, Or<bool>> =
        field("sensitive", Boolean, Or(false), "Whether values are secret: they are sealed with the seal key.");
    COLOCATE: Field<Text, Derived> = field(
        "colocate",
        Text(Form::Pattern),
        Derived("the key without its time bucket"),
        "The hash tag of the keys on a cluster. Resources with the same tag lie in one slot, so that one step can join \
         them. It may use placeholders that every key of the resource has.",
    );
    COLON: Field<Text, Derived> = field(
        "colon",
        Text(Form::Free),
        Derived("the last placeholder, unless keys would overlap"),
        "The one placeholder of the key whose values may contain `:`; `\"\"` for none.",
    );
}
