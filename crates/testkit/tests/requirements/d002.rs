//! Document 002: `systems/home-assistant`.

cases! {}
