//! Redis and Valkey: standalone, Sentinel, Cluster; TLS; ACL users.
