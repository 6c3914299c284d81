//! Document 003: `systems/cameras`.

cases! {}
