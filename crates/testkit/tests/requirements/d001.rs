//! Document 001: `systems/uploads`.

cases! {}
