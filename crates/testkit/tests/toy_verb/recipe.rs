//! The toys: what a contributor writes, file by file in the order of CONTRIBUTING's steps.

use crate::primitive::BERTH;

/// A verb, or a primitive with its first verb.
pub(crate) struct Toy {
    pub(crate) kind: &'static str,
    pub(crate) verb: &'static str,
    /// The section of CONTRIBUTING.
    pub(crate) title: &'static str,
    /// The most files that it may touch.
    pub(crate) most: usize,
    pub(crate) files: &'static [Touched],
}

const fn verb(verb: &'static str, files: &'static [Touched]) -> Toy {
    Toy { kind: "dedupe", verb, title: "How to add a verb", most: 6, files }
}

/// One after the other in the same sources: a plain verb, one that answers with an `outcome` and needs `operate`, and a
/// primitive.
pub(crate) const TOYS: &[Toy] = &[
    verb("forget", FORGET),
    verb("extend", EXTEND),
    Toy { kind: "berth", verb: "take", title: "How to add a primitive", most: 15, files: BERTH },
];

/// One file that the verb touches, and what is done to it.
pub(crate) struct Touched {
    pub(crate) file: &'static str,
    pub(crate) edits: &'static [Edit],
}

/// A change of a file.
pub(crate) enum Edit {
    /// The file is new and holds this.
    New(&'static str),
    /// The second text takes the place of the first, which must be there once.
    Replace(&'static str, &'static str),
    /// The second text is put in front of the first, which must be there once.
    Before(&'static str, &'static str),
    /// This is added at the end.
    Append(&'static str),
}

const FORGET: &[Touched] = &[
    Touched {
        file: "crates/quaymaster/lua/dedupe/forget.lua",
        edits: &[Edit::New(include_str!("forget/forget.lua"))],
    },
    Touched {
        file: "crates/quaymaster/src/dedupe/ops.rs",
        edits: &[
            Edit::Replace(
                "use crate::scripts::dedupe_first;",
                "use crate::scripts::{dedupe_first, dedupe_forget};",
            ),
            Edit::Append(include_str!("forget/ops.rs")),
        ],
    },
    Touched {
        file: "crates/quaymaster/src/dedupe/mod.rs",
        edits: &[Edit::Before("    async fn ask(&self, key: Key<'_>", include_str!("forget/mod.rs"))],
    },
    Touched {
        file: "crates/server/src/call/dedupe.rs",
        edits: &[
            Edit::Replace("CALLS: &[Call] = &[FIRST];", "CALLS: &[Call] = &[FIRST, FORGET];"),
            Edit::Append(include_str!("forget/call.rs")),
        ],
    },
    Touched {
        file: "crates/testkit/src/verbs/mod.rs",
        edits: &[Edit::Before("    writes(\"guard\", \"enter\"", include_str!("forget/row.rs"))],
    },
    Touched {
        file: "crates/testkit/src/conformance/dedupe.rs",
        edits: &[Edit::Replace(
            "        stage.call(\"first with a request\", dedupe.first(A, asked)).await;\n",
            include_str!("forget/scene.rs"),
        )],
    },
];

const EXTEND: &[Touched] = &[
    Touched {
        file: "crates/quaymaster/lua/dedupe/extend.lua",
        edits: &[Edit::New(include_str!("extend/extend.lua"))],
    },
    Touched {
        file: "crates/quaymaster/src/dedupe/ops.rs",
        edits: &[
            Edit::Replace("{dedupe_first, dedupe_forget};", "{dedupe_extend, dedupe_first, dedupe_forget};"),
            Edit::Append(include_str!("extend/ops.rs")),
        ],
    },
    Touched {
        file: "crates/quaymaster/src/dedupe/mod.rs",
        edits: &[Edit::Before("    async fn ask(&self, key: Key<'_>", include_str!("extend/mod.rs"))],
    },
    Touched {
        file: "crates/server/src/call/dedupe.rs",
        edits: &[
            Edit::Replace(
                "use super::{Answer, Call, Input, No, call, pairs, written};",
                "use super::{Answer, Call, Input, Needs, No, call, millis, pairs, written};",
            ),
            Edit::Replace("&[FIRST, FORGET];", "&[FIRST, FORGET, EXTEND];"),
            Edit::Append(include_str!("extend/call.rs")),
        ],
    },
    Touched {
        file: "crates/testkit/src/verbs/mod.rs",
        edits: &[Edit::Before("    writes(\"guard\", \"enter\"", include_str!("extend/row.rs"))],
    },
    Touched {
        file: "crates/testkit/src/conformance/dedupe.rs",
        edits: &[Edit::Before(
            "        stage.call(\"forget\", dedupe.forget(A, None)).await;\n",
            include_str!("extend/scene.rs"),
        )],
    },
];

impl Touched {
    /// What the file holds afterwards; `before` is what it holds now, `None` where there is none.
    pub(crate) fn edited(&self, before: Option<String>) -> String {
        let mut text = before;
        for edit in self.edits {
            text = Some(match (edit, text) {
                (Edit::New(new), None) => (*new).to_owned(),
                (Edit::Replace(old, new), Some(text)) => {
                    self.has_once(&text, old);
                    text.replace(old, new)
                }
                (Edit::Before(anchor, new), Some(text)) => {
                    self.has_once(&text, anchor);
                    text.replace(anchor, &format!("{new}{anchor}"))
                }
                (Edit::Append(new), Some(text)) => text + new,
                (Edit::New(_), Some(_)) => panic!("{} is there already", self.file),
                (_, None) => panic!("{} is not there", self.file),
            });
        }
        text.unwrap()
    }

    fn has_once(&self, text: &str, anchor: &str) {
        assert_eq!(text.matches(anchor).count(), 1, "{}: {anchor:?} must be there once", self.file);
    }
}
