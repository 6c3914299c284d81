//! What a request holds: fields with their types, bounds and defaults, declared once.

use quaymaster::Code;
use quaymaster::schema::Kind;

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Placeholders of the resource's key and their values: strings and integers by name.
    Key,
    /// A string of so many characters.
    Text {
        /// The fewest.
        min: usize,
        /// The most.
        max: usize,
    },
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number between these.
    Integer {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A number, whole or not.
    Number,
    /// `true` or `false`.
    Truth,
    /// A string, or an integer in place of one, which is how other programs write ids.
    Id,
    /// Any JSON, kept as it was written.
    Json,
    /// An object of any JSON.
    Map,
    /// An object of whole numbers from 0.
    Counts,
    /// So many strings.
    Texts {
        /// The fewest.
        min: usize,
        /// The most.
        max: usize,
    },
    /// So many strings, or integers in place of them.
    Ids {
        /// The fewest.
        min: usize,
        /// The most.
        max: usize,
    },
    /// So many of any JSON.
    Items {
        /// The fewest.
        min: usize,
        /// The most.
        max: usize,
    },
    /// An object of these fields.
    Object(&'static Shape),
    /// So many objects of these fields.
    Objects(&'static Shape, usize),
}

/// An object of declared fields: a request, or a part of one.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its name in documents, `LimitCharge`.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// Its fields.
    pub fields: &'static [Field],
    /// Exactly one of these fields is given; empty where there is no such rule.
    pub one_of: &'static [&'static str],
    /// More of its JSON Schema, as JSON: rules between fields that the resource enforces.
    pub also: &'static str,
    /// The forms it can have, told apart by its first field; empty where it has one.
    pub forms: &'static [Form],
}

/// A form that an object can have. Fields that no form names are there in every one.
#[derive(Debug, PartialEq, Eq)]
pub struct Form {
    /// Its name in documents, `QueueThenPush`.
    pub name: &'static str,
    /// The word in the object's first field.
    pub word: &'static str,
    /// Fields that it needs.
    pub needs: &'static [&'static str],
    /// Fields that it may have.
    pub takes: &'static [&'static str],
}

/// One field.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, `wait_ms`; the flag is `--wait-ms`.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// What it holds and how it is read.
    pub spec: Spec,
}

/// What a field holds and how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Its type and bounds.
    pub holds: Holds,
    /// What it is for, where many requests have the same field.
    pub about: &'static str,
    /// Whether the call is refused without it.
    pub required: bool,
    /// Said after "is missing".
    pub(crate) hint: &'static str,
    /// What is taken where it is not given, as JSON.
    pub default: Option<&'static str>,
    /// An example, as JSON.
    pub example: Option<&'static str>,
    /// The code under which a wrong value is told; the reader itself then refuses a number out of bounds, too.
    pub(crate) code: Option<Code>,
    /// Whether `null` is taken for "not given".
    pub nullable: bool,
    /// Whether a truth in a query is `true` where it has a name and no value.
    pub(crate) bare: bool,
    /// More of its JSON Schema, as JSON: rules that the resource enforces, such as a pattern.
    pub also: &'static str,
    /// What its text is the name of.
    pub(crate) names: Names,
}

/// What a text is the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Nothing that a caller needs a right on.
    Nothing,
    /// A resource of this kind.
    Resource(Kind),
    /// A call on a resource that the next field names: `queue.push`.
    Call,
    /// The resource of the call that the field before names.
    Called,
}

impl Spec {
    /// Something optional.
    pub(crate) const fn of(holds: Holds) -> Self {
        Self {
            holds,
            about: "",
            required: false,
            hint: "",
            default: None,
            example: None,
            code: None,
            nullable: !matches!(holds, Holds::Key | Holds::Json | Holds::Texts { .. }),
            bare: false,
            also: "",
            names: Names::Nothing,
        }
    }

    /// A string of any length.
    pub(crate) const fn text() -> Self {
        Self::of(Holds::Text { min: 0, max: usize::MAX })
    }

    /// A string of so many characters.
    pub(crate) const fn text_of(min: usize, max: usize) -> Self {
        Self::of(Holds::Text { min, max })
    }

    /// A whole number between these.
    pub(crate) const fn integer(min: u64, max: u64) -> Self {
        Self::of(Holds::Integer { min, max })
    }

    /// The call is refused without it; `hint` says where it comes from.
    pub(crate) const fn required(mut self, hint: &'static str) -> Self {
        (self.required, self.hint, self.nullable) = (true, hint, false);
        self
    }

    /// What is taken where it is not given, as JSON.
    pub(crate) const fn default(mut self, json: &'static str) -> Self {
        self.default = Some(json);
        self
    }

    /// An example, as JSON.
    pub(crate) const fn example(mut self, json: &'static str) -> Self {
        self.example = Some(json);
        self
    }

    /// A wrong value is told under this code, and `null` is one.
    pub(crate) const fn code(mut self, code: Code) -> Self {
        (self.code, self.nullable) = (Some(code), false);
        self
    }

    /// The reader itself refuses a number out of bounds; elsewhere the resource does.
    pub(crate) const fn strict(self) -> Self {
        self.code(Code::RequestInvalid)
    }

    /// In a query the name alone says `true`.
    pub(crate) const fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    /// Adds rules that the resource enforces to the schema in documents.
    pub(crate) const fn also(mut self, json: &'static str) -> Self {
        self.also = json;
        self
    }

    /// Its text is the name of this. Callers need the right on resources that a request names.
    pub(crate) const fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// The same for every request that has it.
    pub(crate) const fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }
}

/// The key of a resource. Which placeholders it has is the schema's business: the resource itself refuses what is
/// missing.
pub(crate) const KEY: Spec = Spec { required: true, ..Spec::of(Holds::Key) };

/// Any JSON.
pub(crate) const JSON: Spec = Spec::of(Holds::Json);

/// Milliseconds.
pub(crate) const MILLIS: Spec = Spec::integer(0, u64::MAX);

/// Text that can be a part of a key: no control characters, and nothing that a scan or a hash tag would read.
pub(crate) const KEY_PART: &str = r#"{"pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f{}*?\\[\\]]+$"}"#;

/// ASCII characters that can be seen.
pub(crate) const VISIBLE: &str = r#"{"pattern": "^[!-~]+$"}"#;

/// What every call that writes may carry.
pub(crate) const REQUEST_ID: Spec = Spec::text_of(1, 128)
    .also(KEY_PART)
    .about("The same id again within ten minutes gets the same answer and changes nothing.");

/// The same, where the call is safe to repeat without it.
pub(crate) const REQUEST_ID_UNUSED: Spec =
    Spec::text().about("Taken, as by every call that writes, and not needed: this call is safe to repeat.");

impl Field {
    /// What it is for: its own words, or those of every field like it.
    pub fn about(&self) -> &'static str {
        if self.about.is_empty() { self.spec.about } else { self.about.trim_ascii() }
    }
}

impl Shape {
    /// Whether a call can do without it altogether.
    pub(crate) fn is_optional(&self) -> bool {
        self.one_of.is_empty() && !self.fields.iter().any(|field| field.spec.required)
    }

    /// The fields that not every form has and this one does.
    pub(crate) fn only_of(&self, form: &Form) -> impl Iterator<Item = &'static Field> {
        self.fields.iter().filter(|field| form.names(field.name))
    }

    /// Whether every form has this field.
    pub(crate) fn is_common(&self, field: &Field) -> bool {
        !self.forms.iter().any(|form| form.names(field.name))
    }
}

impl Form {
    fn names(&self, field: &str) -> bool {
        self.needs.contains(&field) || self.takes.contains(&field)
    }

    /// Whether it is refused without this field.
    pub(crate) fn needs(&self, field: &Field) -> bool {
        field.spec.required || self.needs.contains(&field.name)
    }
}
