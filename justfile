# The front door. Every recipe is one command that works without just.

# List the recipes.
default:
    @just --list

# Everything a change must pass; or only the named steps.
test *steps:
    scripts/test {{ steps }}

# Quick look while editing: formatting and lints.
check:
    scripts/test fmt clippy

# The long suites at their full counts.
soak *filter:
    scripts/soak {{ filter }}

# Side by side with the peers; one Markdown table.
bench *families:
    scripts/bench {{ families }}

# The server on the bundled systems.
serve *args:
    cargo run --release -- serve {{ args }}

# The API documentation of the crates.
docs:
    cargo doc --no-deps --workspace
