//! Where credentials and region come from: the settings, the environment, a web identity, a profile in shared files,
//! the container, the instance; the first that has them.

use std::sync::Arc;

use object_store::StaticCredentialProvider;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};

use super::super::options::{Credentials, ObjectsOptions};
use super::profile::ProfileCredentials;
use super::shared::Profile;
use crate::{Error, Result, Trouble};

/// What the environment says.
pub(super) struct Variables(Vec<(String, String)>);

impl Variables {
    /// The process's own, unless there are others in the options.
    pub(super) fn of(options: &ObjectsOptions) -> Self {
        let own = || {
            let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
                Some((name.into_string().ok()?, value.into_string().ok()?))
            };
            std::env::vars_os().filter_map(text).collect()
        };
        let mut variables = options.environment.clone().unwrap_or_else(own);
        // One that is set to nothing is not set, as AWS tools have it.
        variables.retain(|(name, value)| (name.starts_with("AWS_") || name == "HOME") && !value.is_empty());
        Self(variables)
    }

    pub(super) fn profile(&self) -> Profile {
        let find = |name: &str| self.0.iter().find(|(known, _)| known == name);
        Profile::of(|name| find(name).map(|(_, value)| value.clone()))
    }

    /// With everything that it takes from the environment by itself.
    pub(super) fn builder(&self) -> AmazonS3Builder {
        self.0.iter().fold(AmazonS3Builder::new(), |builder, (name, value)| {
            match name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            }
        })
    }
}

pub(super) fn provider(
    options: &ObjectsOptions,
    environment: AmazonS3Builder,
    profile: Profile,
) -> Result<AwsCredentialProvider> {
    if let Some(Credentials { key_id, secret, token }) = options.credentials.clone() {
        // None of the environment's own: its token belongs to other keys.
        let credential = AwsCredential { key_id, secret_key: secret, token };
        return Ok(Arc::new(StaticCredentialProvider::new(credential)));
    }
    if !is_enough(&environment)
        && let Some(credentials) = ProfileCredentials::open(profile)?
    {
        return Ok(Arc::new(credentials));
    }
    let wrong = |error: object_store::Error| {
        Error::new("objects.open", Trouble::Never, format!("objects: {error}")).because(error)
    };
    Ok(Arc::clone(environment.build().map_err(wrong)?.credentials()))
}

/// Whether there are keys, or half of them, which is refused, or a web identity.
fn is_enough(environment: &AmazonS3Builder) -> bool {
    use AmazonS3ConfigKey::{AccessKeyId, RoleArn, SecretAccessKey, WebIdentityTokenFile};
    let has = |key| environment.get_config_value(&key).is_some();
    has(AccessKeyId) || has(SecretAccessKey) || (has(WebIdentityTokenFile) && has(RoleArn))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::super::S3;
    use super::*;

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "env"), ("AWS_SECRET_ACCESS_KEY", "s")];
    const WEB: [(&str, &str); 2] = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere"), ("AWS_ROLE_ARN", "arn:x")];
    const CONTAINER: [(&str, &str); 1] = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")];

    fn open(home: &str, variables: &[&[(&str, &str)]], options: ObjectsOptions) -> Result<S3> {
        let home = ("HOME", home);
        let all = variables.concat().into_iter().chain([home]);
        let environment = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        S3::open("//bucket", &ObjectsOptions { environment: Some(environment), ..options })
    }

    /// Who gives credentials, as it shows itself.
    fn who(home: &str, variables: &[&[(&str, &str)]], options: ObjectsOptions) -> String {
        format!("{:?}", open(home, variables, options).unwrap().sender.credentials)
    }

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let text = "[default]\naws_access_key_id = file\naws_secret_access_key = s\n[bare]\n";
        std::fs::write(home.path().join(".aws/credentials"), text).unwrap();
        std::fs::write(home.path().join(".aws/config"), "[default]\nregion = file-1\n").unwrap();
        home
    }

    #[test]
    fn the_first_that_has_credentials_gives_them() {
        let (home, none) = (home(), ObjectsOptions::default);
        let there = home.path().to_str().unwrap();
        let settings = || {
            let credentials =
                Credentials { key_id: "settings".to_owned(), secret: "s".to_owned(), token: None };
            ObjectsOptions { credentials: Some(credentials), ..none() }
        };
        let token = [("AWS_SESSION_TOKEN", "t")];
        let said = who(there, &[&KEYS, &WEB, &CONTAINER, &token], settings());
        assert!(said.contains("key_id: \"settings\"") && said.contains("token: None"), "{said}");
        let said = who(there, &[&KEYS, &WEB, &CONTAINER, &token], none());
        assert!(said.contains("key_id: \"env\"") && said.contains("token: Some"), "{said}");
        let said = who(there, &[&WEB, &CONTAINER], none());
        assert!(said.contains("WebIdentityProvider"), "{said}");
        let said = who(there, &[&CONTAINER], none());
        assert!(said.contains("ProfileCredentials"), "{said}");
        let unset = [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", ""), ("AWS_PROFILE", "")];
        let said = who(there, &[&unset, &WEB[..1]], none());
        assert!(said.contains("ProfileCredentials"), "what is empty or half an identity is none: {said}");
        let said = who("/nowhere", &[&CONTAINER], none());
        assert!(said.contains("TaskCredentialProvider"), "{said}");
        let said = who("/nowhere", &[], none());
        assert!(said.contains("InstanceCredentialProvider"), "{said}");
    }

    #[test]
    fn a_chosen_profile_matters_only_where_files_are_looked_at() {
        let (home, none) = (home(), ObjectsOptions::default);
        let there = home.path().to_str().unwrap();
        let bare = [("AWS_PROFILE", "bare")];
        let error = open(there, &[&bare, &CONTAINER], none()).unwrap_err();
        assert_eq!(error.trouble(), Trouble::Never);
        assert!(error.to_string().contains("\"bare\""), "{error}");
        for before in [&KEYS[..], &WEB, &[("AWS_SKIP_SIGNATURE", "true")]] {
            open(there, &[&bare, before], none()).unwrap();
        }
        let error = open(there, &[&KEYS[..1]], none()).unwrap_err();
        assert!(error.to_string().to_lowercase().contains("secret"), "half of a pair is none: {error}");
    }

    #[test]
    fn a_region_comes_from_the_settings_else_the_environment_else_the_profile() {
        let (home, none) = (home(), ObjectsOptions::default);
        let there = home.path().to_str().unwrap();
        let region = |home, variables: &[&[(&str, &str)]], options| {
            open(home, variables, options).unwrap().sender.region
        };
        let settings = ObjectsOptions { region: Some("settings-1".to_owned()), ..none() };
        let environment = [("AWS_REGION", "env-1"), ("AWS_DEFAULT_REGION", "env-2")];
        assert_eq!(region(there, &[&environment], settings), "settings-1");
        assert_eq!(region(there, &[&environment], none()), "env-1");
        assert_eq!(region(there, &[&environment[1..]], none()), "env-2");
        assert_eq!(region(there, &[], none()), "file-1");
        assert_eq!(region(there, &[&KEYS], none()), "file-1", "whoever gives the credentials");
        assert_eq!(region("/nowhere", &[], none()), "us-east-1");
    }
}
