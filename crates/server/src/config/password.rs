//! The store's password, from where no process list shows it.

use std::path::Path;

use quaymaster::store::redis::Secret;

use super::read::RawStore;
use super::{Overrides, WrongSetting};

/// The variable that holds the store's password.
pub const STORE_PASSWORD: &str = "QUAYMASTER_STORE_PASSWORD";

/// The variable that names a file with the store's password.
pub const STORE_PASSWORD_FILE: &str = "QUAYMASTER_STORE_PASSWORD_FILE";

/// The password for a URL; `in_url` when the URL has one itself. The environment wins over the settings, as a flag
/// does.
pub(super) fn resolve(
    raw: &RawStore,
    overrides: &Overrides,
    in_url: bool,
) -> Result<Option<Secret>, WrongSetting> {
    let (password, file) = (&overrides.store_password, &overrides.store_password_file);
    let given = one(STORE_PASSWORD, password.as_deref(), STORE_PASSWORD_FILE, file.as_deref())?;
    if in_url && given.is_some() {
        let why = format!(
            "the URL has a password in it, and {STORE_PASSWORD} or {STORE_PASSWORD_FILE} is set; keep one"
        );
        return Err(WrongSetting::new("store", why));
    }
    if given.is_some() {
        return Ok(given);
    }
    one("store.password", raw.password.as_deref(), "store.password_file", raw.password_file.as_deref())
}

/// Whichever of the two is given.
fn one(
    name: &'static str,
    password: Option<&str>,
    file_name: &'static str,
    file: Option<&Path>,
) -> Result<Option<Secret>, WrongSetting> {
    match (password, file) {
        (Some(_), Some(_)) => {
            let detail = format!("{name} and {file_name} are both set; keep one of them");
            Err(WrongSetting { field: name, detail })
        }
        (Some(password), None) => Ok(Some(Secret(password.to_owned()))),
        (None, Some(file)) => read(file_name, file).map(|text| Some(Secret(text))),
        (None, None) => Ok(None),
    }
}

/// Editors and `echo` end a file with a line feed, which is no part of the password.
fn read(name: &'static str, file: &Path) -> Result<String, WrongSetting> {
    let wrong = |why: &dyn std::fmt::Display| {
        WrongSetting::new(name, format!("cannot read {}: {why}", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() { Err(wrong(&"it is empty")) } else { Ok(password.to_owned()) }
}
