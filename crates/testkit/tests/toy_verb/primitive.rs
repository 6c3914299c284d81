//! The toy primitive: `berth`, with the verb `take`.

use crate::recipe::{Edit, Touched};

pub(crate) const BERTH: &[Touched] = &[
    Touched {
        file: "crates/schema/src/kind.rs",
        edits: &[
            Edit::Before(
                "        /// Limits, an idempotency and a lock entered in one step.\n",
                "        /// A place for one ship at a time.\n        Berth \"berth\",\n",
            ),
            Edit::Before(
                "            Self::Guard => \"Enter limits",
                "            Self::Berth => \"Keep a place for one ship at a time\",\n",
            ),
            Edit::Before(
                "            Self::Queue => \"jobs are lost\"",
                "            Self::Berth => \"two ships at one berth\",\n",
            ),
        ],
    },
    Touched { file: "crates/schema/src/field/berth.rs", edits: &[Edit::New(include_str!("berth/field.rs"))] },
    Touched {
        file: "crates/schema/src/field/mod.rs",
        edits: &[
            Edit::Before("pub(crate) mod cache;", "pub(crate) mod berth;\n"),
            Edit::Before(
                "    Guard(spec::GuardSpec), guard",
                "    Berth(berth::BerthSpec), berth, berth::read;\n",
            ),
        ],
    },
    Touched {
        file: "crates/quaymaster/lua/berth/take.lua",
        edits: &[Edit::New(include_str!("berth/take.lua"))],
    },
    Touched { file: "crates/quaymaster/src/berth/ops.rs", edits: &[Edit::New(include_str!("berth/ops.rs"))] },
    Touched { file: "crates/quaymaster/src/berth/mod.rs", edits: &[Edit::New(include_str!("berth/mod.rs"))] },
    Touched {
        file: "crates/quaymaster/src/lib.rs",
        edits: &[Edit::Before("mod bound;\n", "pub mod berth;\n")],
    },
    Touched {
        file: "crates/quaymaster/src/registry.rs",
        edits: &[
            Edit::Before("use crate::bound::Bound;", "use crate::berth::Berth;\n"),
            Edit::Before("    Guard guard guards;", "    Berth berth berths;\n"),
            Edit::Before(
                "                Spec::Batch(spec) => {",
                "                Spec::Berth(spec) => drop(all.berths.insert(name, Berth::new(bound, spec.clone()))),\n",
            ),
        ],
    },
    Touched { file: "crates/server/src/call/berth.rs", edits: &[Edit::New(include_str!("berth/call.rs"))] },
    Touched {
        file: "crates/server/src/call/mod.rs",
        edits: &[
            Edit::Before("pub(crate) mod cache;", "pub(crate) mod berth;\n"),
            Edit::Before("    guard::CALLS,", "    berth::CALLS,\n"),
        ],
    },
    Touched {
        file: "crates/testkit/src/conformance/berth.rs",
        edits: &[Edit::New(include_str!("berth/conformance.rs"))],
    },
    Touched {
        file: "crates/testkit/src/conformance/mod.rs",
        edits: &[
            Edit::Before(
                "#[expect(clippy::expect_used, reason = \"a case that cannot go on has failed\")]\npub mod cache;",
                "#[expect(clippy::expect_used, reason = \"a case that cannot go on has failed\")]\npub mod berth;\n",
            ),
            Edit::Before("        .chain(seal::CASES)", "        .chain(berth::CASES)\n"),
            Edit::Before("        scenes::guard::SCENES,", "        berth::SCENES,\n"),
        ],
    },
    Touched {
        file: "crates/testkit/src/verbs/mod.rs",
        edits: &[
            Edit::Replace("cache dedupe guard queue", "cache dedupe berth guard queue"),
            Edit::Before(
                "    writes(\"guard\", \"enter\"",
                "    writes(\"berth\", \"take\", \"pier\", &[KEY, REQUEST]).tried(&[case(\"pier\", &[], \"{}\")]),\n",
            ),
        ],
    },
    Touched {
        file: "crates/testkit/src/verbs/schema.rs",
        edits: &[
            Edit::Replace("| \"dedupe\" | \"guard\"", "| \"dedupe\" | \"berth\" | \"guard\""),
            Edit::Before("[guard.guard]\n", "[berth.pier]\nkey = \"berth:{id}\"\nttl = \"1h\"\n"),
        ],
    },
    Touched {
        file: "crates/testkit/tests/corpus/schema.toml",
        edits: &[Edit::Before("[guard.all]", "[berth.pier]\nkey = \"berth:{id}\"\nttl = \"1h\"\n\n")],
    },
];
