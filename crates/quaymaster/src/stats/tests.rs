//! Buckets, names, pieces.
