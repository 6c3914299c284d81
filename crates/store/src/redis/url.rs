//! Store URLs. Messages name what is wrong and never repeat the credentials.

use std::path::PathBuf;
use std::time::Duration;

use crate::redis::options::{Address, Credentials, RedisOptions, Secret, Target};
use crate::{Code, Error, Result};

const OP: &str = "store.connect";
const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

fn invalid(detail: impl Into<String>) -> Error {
    Error::new(OP, Code::ConfigInvalid, detail)
}

/// Reads a store URL; see [`RedisOptions::from_url`] for the grammar.
pub(super) fn parse(url: &str) -> Result<RedisOptions> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| {
        invalid("a store URL begins with redis://, rediss://, redis+sentinel:// or redis+cluster://")
    })?;
    let (tls, kind) = match scheme.split_once('+').unwrap_or((scheme, "")) {
        ("redis" | "valkey", kind) => (false, kind),
        ("rediss" | "valkeys", kind) => (true, kind),
        _ => return Err(invalid(format!("`{scheme}` is not a scheme of a Redis URL"))),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // The last @ divides: an unescaped @ in a password is a common slip and has only one reading.
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (login_of(login)?, hosts),
        None => (Credentials::default(), authority),
    };
    let (target, database) = match kind {
        "" => {
            // `redis://` alone is the server of this machine.
            let hosts = if authority.is_empty() { "localhost" } else { hosts };
            let mut hosts = addresses(hosts, DEFAULT_PORT)?;
            if hosts.len() != 1 {
                return Err(invalid(
                    "redis:// names one host; several need redis+cluster:// or redis+sentinel://",
                ));
            }
            (Target::Standalone(hosts.remove(0)), database_of(path)?)
        }
        "unix" if !tls && hosts.is_empty() => (Target::Unix(PathBuf::from(format!("/{path}"))), 0),
        "sentinel" => {
            let (service, database) = path.split_once('/').unwrap_or((path, ""));
            if service.is_empty() {
                return Err(invalid(
                    "redis+sentinel:// needs the service's name: redis+sentinel://host:26379/service",
                ));
            }
            let service = decode(service)?;
            (
                Target::Sentinel { sentinels: addresses(hosts, SENTINEL_PORT)?, service },
                database_of(database)?,
            )
        }
        "cluster" => {
            if database_of(path)? != 0 {
                return Err(invalid("a cluster has only database 0"));
            }
            (Target::Cluster(addresses(hosts, DEFAULT_PORT)?), 0)
        }
        other => {
            return Err(invalid(format!(
                "`+{other}` is not known; use +sentinel, +cluster or redis+unix:///path"
            )));
        }
    };
    let mut options = RedisOptions::new(target);
    options.tls = tls;
    options.database = database;
    options.credentials = credentials;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        parameter(&mut options, pair)?;
    }
    Ok(options)
}

fn parameter(options: &mut RedisOptions, pair: &str) -> Result<()> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let value = decode(value)?;
    if value.is_empty() {
        return Err(invalid(format!("the parameter `{name}` of the store URL has no value")));
    }
    match name {
        "ca_file" => options.tls_files.ca_file = Some(value.into()),
        "client_cert_file" => options.tls_files.client_cert_file = Some(value.into()),
        "client_key_file" => options.tls_files.client_key_file = Some(value.into()),
        "sentinel_user" => options.sentinel_credentials.user = Some(value),
        "sentinel_password" => options.sentinel_credentials.password = Some(Secret(value)),
        "deadline_ms" => match value.parse() {
            Ok(ms) if ms > 0 => options.deadline = Duration::from_millis(ms),
            _ => return Err(invalid("`deadline_ms` of the store URL is a number of milliseconds above 0")),
        },
        other => {
            return Err(invalid(format!(
                "the store URL has no parameter `{other}`; there are ca_file, client_cert_file, client_key_file, \
                 sentinel_user, sentinel_password, deadline_ms"
            )));
        }
    }
    Ok(())
}

fn login_of(login: &str) -> Result<Credentials> {
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (decode(user)?, Some(Secret(decode(password)?))),
        None => (decode(login)?, None),
    };
    let password = password.filter(|secret| !secret.0.is_empty());
    Ok(Credentials { user: Some(user).filter(|user| !user.is_empty()), password })
}

fn database_of(path: &str) -> Result<i64> {
    match path.trim_end_matches('/') {
        "" => Ok(0),
        digits => match digits.parse() {
            Ok(number) if number >= 0 => Ok(number),
            _ => Err(invalid(format!("`{path}` is not a database number"))),
        },
    }
}

fn addresses(hosts: &str, default_port: u16) -> Result<Vec<Address>> {
    hosts.split(',').map(|host| address(host, default_port)).collect()
}

/// `host`, `host:port`, `[::1]:port`; also what a cluster says in MOVED.
pub(super) fn address(text: &str, default_port: u16) -> Result<Address> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) =
            rest.split_once(']').ok_or_else(|| invalid("an IPv6 address is written [::1]:6379"))?;
        (host, port.strip_prefix(':'))
    } else {
        match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(invalid("the store URL has an empty host"));
    }
    let port = match port {
        None => default_port,
        Some(digits) => digits
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| invalid(format!("the port of `{host}` is not a number from 1 to 65535")))?,
    };
    Ok(Address { host: host.to_owned(), port })
}

fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let hex = tail
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok())
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            .ok_or_else(|| invalid("a % in the store URL is not followed by two hexadecimal digits"))?;
        bytes.push(hex);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| invalid("a part of the store URL is not UTF-8 after decoding"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed parse is the test's failure")]
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    #[test]
    fn every_kind_of_url_is_understood() {
        let plain = parse("redis://localhost").unwrap();
        assert_eq!(plain.target, Target::Standalone(at("localhost", 6379)));
        assert!(!plain.tls);
        assert_eq!(parse("redis://").unwrap().target, plain.target);
        assert_eq!(parse("redis:///5").unwrap().database, 5);

        let full =
            parse("rediss://worker:p%40ss@[::1]:7000/3?ca_file=%2Fetc%2Fca.pem&deadline_ms=250").unwrap();
        assert_eq!(full.target, Target::Standalone(at("::1", 7000)));
        assert!(full.tls);
        assert_eq!(full.database, 3);
        assert_eq!(full.credentials.user.as_deref(), Some("worker"));
        assert_eq!(full.credentials.password, Some(Secret("p@ss".into())));
        assert_eq!(full.tls_files.ca_file, Some("/etc/ca.pem".into()));
        assert_eq!(full.deadline, Duration::from_millis(250));

        let sentinel = parse("redis+sentinel://:pw@a:1,b/main/2?sentinel_password=x").unwrap();
        let sentinels = vec![at("a", 1), at("b", 26379)];
        assert_eq!(sentinel.target, Target::Sentinel { sentinels, service: "main".into() });
        assert_eq!((sentinel.database, sentinel.credentials.user), (2, None));
        assert_eq!(sentinel.sentinel_credentials.password, Some(Secret("x".into())));

        let cluster = parse("rediss+cluster://a:1,b:2").unwrap();
        assert_eq!(cluster.target, Target::Cluster(vec![at("a", 1), at("b", 2)]));
        assert!(cluster.tls);

        assert_eq!(parse("redis+unix:///run/r.sock").unwrap().target, Target::Unix("/run/r.sock".into()));
    }

    #[test]
    fn bad_urls_are_configuration_errors_that_keep_the_password() {
        for url in [
            "localhost:6379",
            "http://hunter2@x",
            "redis://:hunter2@",
            "redis://:hunter2@host:0",
            "redis://:hunter2@host:99999",
            "redis://:hunter2@host:port",
            "redis://:hunter2@a,b",
            "redis://:hunter2@host/x",
            "redis://:hunter2@host/-1",
            "redis://:hunter2@host?nope=hunter2",
            "redis://:hunter2@host?ca_file",
            "redis://:hunter2@host?deadline_ms=0",
            "redis://:hunter2%zz@host",
            "redis+sentinel://:hunter2@host:1",
            "redis+cluster://:hunter2@host:1/1",
            "redis+ring://:hunter2@host",
            "rediss+unix:///x",
        ] {
            let Err(error) = parse(url) else { panic!("{url} was taken") };
            assert_eq!(error.code, Code::ConfigInvalid, "{url}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(parse("redis://u@h").unwrap().credentials.check().is_err(), "its password is still to come");
        let options = parse("redis://u:hunter2@h?sentinel_password=hunter2").unwrap();
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
