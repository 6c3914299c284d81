//! `docs/schema.md`: every table and field of a schema file.

use std::fmt::Write as _;

use super::document::{self, env};
use super::{AnyField, Choice, Form, Holds, Otherwise, Row, Table, Type as _, common, table_of};
use crate::kind::{Kind, Outage};
use crate::lint::LINTS;
use crate::read::{duration_text, size_text};

const HEAD: &str = r#"# Schema files

A schema file is TOML. It declares resources: a table `[KIND.NAME]` for each. Any number of files load together; their resources then share the store and may refer to each other.

```toml
#:schema ./quaymaster.schema.json
[schema]
name = "shop"
owner = "checkout"
prefix = "shop:"

[limit.api]
key = "rl:{customer}:{minute}"
algorithm = "fixed_window"
limit = { env = "API_LIMIT", default = 1000 }
window = "60s"

[queue.mail]
max_size = 10_000
```

`quaymaster init` writes a commented file to start from. `quaymaster check FILE…` names every problem with its line.

Editors that read the `#:schema` line (Taplo, Even Better TOML) complete and check as you type. The line names a JSON Schema: `quaymaster schema --json-schema > quaymaster.schema.json` writes it beside the file.

The code's own declarations of the fields make this page, so that neither can lack a field of the other.

A resource's name has 1 to 64 letters, digits, `_` and `-`. A file has at most 1 MiB.

## Values

### Key patterns

A pattern is text with placeholders: `rl:{customer}:{minute}`. A placeholder has letters, digits and `_`; a call gives its value. `{minute}`, `{hour}` and `{day}` are time buckets in UTC, written `2024-01-15-14-30`, `2024-09-17_14` and `2024-09-17`; a pattern has at most one. Between two placeholders stands a `:`. Text may not contain `*`, `?`, `[`, `]` and `\`. A pattern has at most 512 bytes and 16 placeholders.

### Durations and sizes

A duration is a string of numbers with units, the largest first: `"250ms"`, `"60s"`, `"1h30m"`, `"7d"`. Its units are `ms`, `s`, `m`, `h` and `d`. A size is a number with one unit, `"64KiB"` or `"100MB"`, or a bare number of bytes. Its units are `B`, `KiB`, `MiB`, `GiB`, `TiB`, `KB`, `MB`, `GB` and `TB`. Digits may be grouped: `10_000`.

"#;

/// The page as Markdown.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("### Values from the environment\n\n");
    section(&mut page, &env::TABLE);
    let _ = writeln!(page, "## `[schema]`\n");
    section(&mut page, &document::TABLE);
    let _ = writeln!(page, "## Fields of every resource\n");
    let outage = Row {
        holds: Choice(Outage::ALL).holds(),
        otherwise: Otherwise::Derived("depends on the kind"),
        meaning: "What calls answer while the [store cannot be reached](outages.md); the kinds list what they take.",
        ..common::on_outage(Kind::Limit).row()
    };
    rows(&mut page, common::FIELDS.iter().map(|field| field.row()).chain([outage]));
    for kind in Kind::ALL {
        let table = table_of(*kind);
        let _ = writeln!(page, "## `[{}.NAME]`\n", table.path);
        section(&mut page, table);
        for row in table.fields.iter().map(|field| field.row()) {
            if let Holds::Nested(inner) = row.holds {
                let _ = writeln!(page, "### `[{}]`\n", inner.path);
                section(&mut page, inner);
            }
        }
    }
    lints(&mut page);
    page
}

fn section(page: &mut String, table: &Table) {
    let more = table.page.map_or(String::new(), |page| format!(" [More]({page})."));
    let example = table.example;
    let _ = writeln!(
        page,
        "{}{more}\n\n```toml\n#:schema ./quaymaster.schema.json\n{example}```\n",
        table.meaning
    );
    let outage = table.kind.map(|kind| common::on_outage(kind).row());
    rows(page, table.fields.iter().map(|field| field.row()).chain(outage));
}

fn rows(page: &mut String, rows: impl Iterator<Item = Row>) {
    page.push_str("| field | type | default | meaning | since |\n|---|---|---|---|---|\n");
    for row in rows {
        let cells = [holds(&row.holds), otherwise(&row.otherwise), row.meaning.to_owned()];
        let [holds, otherwise, meaning] = cells.map(|text| text.replace('|', "\\|"));
        let _ = writeln!(page, "| `{}` | {holds} | {otherwise} | {meaning} | {} |", row.name, row.since);
    }
    page.push('\n');
}

fn otherwise(otherwise: &Otherwise) -> String {
    match otherwise {
        Otherwise::Missing => "**required**".to_owned(),
        Otherwise::Nothing => "none".to_owned(),
        Otherwise::Value(value) => format!("`{value}`"),
        Otherwise::Derived(text) => (*text).to_owned(),
    }
}

fn holds(holds: &Holds) -> String {
    match holds {
        Holds::Text(form) => text(form),
        Holds::Boolean => "`true` or `false`".to_owned(),
        Holds::Count { least, most } => format!("integer, {} to {}", grouped(*least), grouped(*most)),
        Holds::Ratio => "number, 0 to 1".to_owned(),
        Holds::Bytes { least, most } => format!("size, `{}` to `{}`", size_text(*least), size_text(*most)),
        Holds::Period { least, most } => {
            format!("duration, `{}` to `{}`", duration_text(*least), duration_text(*most))
        }
        Holds::Expiry { never: true } => "duration or `\"never\"`".to_owned(),
        Holds::Expiry { never: false } => "duration".to_owned(),
        Holds::Choice(words) => one_of(words),
        Holds::Names { kind, most } => {
            let most = most.map_or(String::new(), |most| format!(", at most {most}"));
            format!("list of names of `[{kind}.NAME]`{most}")
        }
        Holds::Strings => "list of strings".to_owned(),
        Holds::Meanings => "table of strings".to_owned(),
        Holds::Secret => "`{ env = \"VARIABLE\" }`, without a default".to_owned(),
        Holds::Nested(table) => format!("table `[{}]`", table.path),
    }
}

fn text(form: &Form) -> String {
    match form {
        Form::Free => "string".to_owned(),
        Form::Filled => "string, not empty".to_owned(),
        Form::Pattern => "pattern".to_owned(),
        Form::Prefix => "string without placeholders".to_owned(),
        Form::Placeholder => "a placeholder's name".to_owned(),
        Form::Resource(kind) => format!("name of a `[{kind}.NAME]`"),
        Form::Target(kinds) => {
            let names: Vec<String> = kinds.iter().map(|kind| format!("{}.NAME", kind.name())).collect();
            one_of(&names.iter().map(String::as_str).collect::<Vec<_>>())
        }
        Form::Url(schemes) => format!("string that begins with {}", one_of(schemes)),
        Form::Label(most) => format!("1 to {most} letters, digits, `.`, `_` and `-`"),
        Form::AsField => "as the field".to_owned(),
        Form::Words(words) => one_of(words),
    }
}

/// `a`, `b` or `c`
fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((end, [])) => end.clone(),
        Some((end, rest)) => format!("{} or {end}", rest.join(", ")),
        None => String::new(),
    }
}

/// 1,000,000
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn lints(page: &mut String) {
    page.push_str(
        "## What `check` finds\n\n\
         An error ends the loading of the schema. A warning does not.\n\n\
         | code | severity | found | why it matters |\n|---|---|---|---|\n",
    );
    for lint in LINTS {
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", lint.code, lint.severity, lint.what, lint.why);
    }
}
