//! A profile in the files that AWS tools share: `~/.aws/credentials` with sections `[NAME]`, and `~/.aws/config` with
//! sections `[profile NAME]` and `[default]`.

use std::path::PathBuf;

use object_store::aws::AwsCredential;

use super::ini::{self, Section};
use super::text::{self, Seen};
use crate::{Error, Result, Trouble};

/// Where else a profile may say that its credentials come from; none of it is followed. What begins with `sso_` too.
const UNFOLLOWED: [&str; 6] = [
    "role_arn",
    "source_profile",
    "credential_source",
    "credential_process",
    "web_identity_token_file",
    "login_session",
];

/// Which profile, and the files that may have it, in the order of their worth.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) name: String,
    pub(super) choice: Choice,
    files: Vec<SharedFile>,
}

/// Who chose a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// `AWS_PROFILE`: nothing else will do.
    Ours,
    /// Nobody, so that it is `default`: welcome if it is there.
    Nobodys,
}

#[derive(Debug)]
struct SharedFile {
    kind: Kind,
    path: PathBuf,
    /// By its variable, instead of lying where they do by default.
    is_named: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Credentials,
    Config,
}

/// A profile's keys.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) credential: AwsCredential,
    /// The file that has them.
    pub(super) from: PathBuf,
}

/// Why there are no keys: the worst reason of all files, and each file's in words.
#[derive(Debug)]
pub(super) struct Lack {
    pub(super) reason: Reason,
    pub(super) detail: String,
}

/// From what is usual to what must not be passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// Nobody said that there are any.
    Nothing,
    /// Somebody did, but of a file that is not there, or in a way that is not followed.
    Unfollowed,
    /// The file cannot be read.
    Unreadable,
    /// There are some, and they cannot be used: half a pair, as in a file that is being written.
    Torn,
}

impl Profile {
    /// As these variables have it; an empty one counts for none.
    pub(super) fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = variable("HOME").map(PathBuf::from);
        let file = |kind: Kind| {
            let named = variable(kind.variable());
            let is_named = named.is_some();
            let path = match (named, &home) {
                (Some(path), Some(home)) => {
                    path.strip_prefix("~/").map_or_else(|| PathBuf::from(&path), |rest| home.join(rest))
                }
                (Some(path), None) => path.into(),
                (None, home) => home.as_ref()?.join(kind.place()),
            };
            Some(SharedFile { kind, path, is_named })
        };
        let files = [Kind::Credentials, Kind::Config].into_iter().filter_map(file).collect();
        match variable("AWS_PROFILE") {
            Some(name) => Self { name, choice: Choice::Ours, files },
            None => Self { name: "default".to_owned(), choice: Choice::Nobodys, files },
        }
    }

    /// The keys in the first file that has them. One that cannot be told to have none ends the search: what comes
    /// after it may be somebody else's.
    pub(super) fn search(&self) -> Result<Found, Lack> {
        let (mut reason, mut details) = (Reason::Nothing, Vec::new());
        for file in &self.files {
            match file.find(&self.name) {
                Ok(found) => return Ok(found),
                Err(lack) => {
                    reason = reason.max(lack.reason);
                    details.push(format!("{} {}", file.path.display(), lack.detail));
                }
            }
            if reason >= Reason::Unreadable {
                break;
            }
        }
        if details.is_empty() {
            details.push(
                "no file to look in, as neither HOME nor AWS_SHARED_CREDENTIALS_FILE is set".to_owned(),
            );
        }
        Err(Lack { reason, detail: details.join("; ") })
    }

    /// The region that its part of the config file names.
    pub(super) fn region(&self) -> Result<Option<String>> {
        let Some(SharedFile { kind, path, .. }) = self.files.iter().find(|file| file.kind == Kind::Config)
        else {
            return Ok(None);
        };
        let text = text::read(path).unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "no region is read from the AWS config file");
            None
        });
        let section = text.as_deref().and_then(|text| kind.section(text, &self.name));
        let Some(region) = section.as_ref().and_then(|section| value(section, "region")) else {
            return Ok(None);
        };
        // It becomes part of a host's name.
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            let detail =
                format!("objects: the region in {} of {} is none", kind.header(&self.name), path.display());
            return Err(Error::new("objects.open", Trouble::Never, detail));
        }
        Ok(Some(region.to_owned()))
    }

    /// What it says of other credentials than keys, in whichever file.
    pub(super) fn unfollowed(&self) -> Option<String> {
        self.files.iter().find_map(|file| {
            let text = text::read(&file.path).ok()??;
            unfollowed(&file.kind.section(&text, &self.name)?)
        })
    }

    /// How its files look now.
    pub(super) fn glance(&self) -> Vec<Seen> {
        self.files.iter().map(|file| text::glance(&file.path)).collect()
    }
}

impl Kind {
    fn variable(self) -> &'static str {
        match self {
            Self::Credentials => "AWS_SHARED_CREDENTIALS_FILE",
            Self::Config => "AWS_CONFIG_FILE",
        }
    }

    /// By default, in the home folder.
    fn place(self) -> &'static str {
        match self {
            Self::Credentials => ".aws/credentials",
            Self::Config => ".aws/config",
        }
    }

    /// How a profile is spelled in such a file.
    fn header(self, profile: &str) -> String {
        match self {
            Self::Config if profile != "default" => format!("[profile {profile}]"),
            _ => format!("[{profile}]"),
        }
    }

    fn section<'a>(self, text: &'a str, profile: &str) -> Option<Section<'a>> {
        let plain = || ini::section(text, |name| name == profile);
        match self {
            Self::Credentials => plain(),
            // `[profile default]` hides `[default]`.
            Self::Config => ini::section(text, |name| is_profile(name, profile))
                .or_else(|| if profile == "default" { plain() } else { None }),
        }
    }
}

/// Whether a section of the config file is this profile's: `profile NAME`, in quotes if it has spaces.
fn is_profile(section: &str, profile: &str) -> bool {
    let name =
        section.strip_prefix("profile").filter(|rest| rest.starts_with(char::is_whitespace)).map(str::trim);
    name.is_some_and(|name| {
        let quoted = |quote| name.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        quoted('"').or_else(|| quoted('\'')).unwrap_or(name) == profile
    })
}

impl SharedFile {
    fn find(&self, profile: &str) -> Result<Found, Lack> {
        let header = self.kind.header(profile);
        let lack = |reason, detail: String| Err(Lack { reason, detail });
        let text = match text::read(&self.path) {
            Ok(Some(text)) => text,
            Ok(None) => {
                let reason = if self.is_named { Reason::Unfollowed } else { Reason::Nothing };
                return lack(reason, "is not there".to_owned());
            }
            Err(error) => return lack(Reason::Unreadable, format!("cannot be read: {error}")),
        };
        let Some(section) = self.kind.section(&text, profile) else {
            return lack(Reason::Nothing, format!("has no {header}"));
        };
        match (keys(&section), unfollowed(&section)) {
            (Ok(Some(credential)), _) => Ok(Found { credential, from: self.path.clone() }),
            (Ok(None), Some(key)) => {
                lack(Reason::Unfollowed, format!("has {header} with {key}, which is not supported"))
            }
            (Ok(None), None) => lack(Reason::Nothing, format!("has {header} without keys")),
            (Err(what), _) => lack(Reason::Torn, format!("has {header} with {what}")),
        }
    }
}

/// What is there and not empty.
fn value<'a>(section: &Section<'a>, key: &str) -> Option<&'a str> {
    section.get(key).copied().filter(|value| !value.is_empty())
}

fn unfollowed(section: &Section<'_>) -> Option<String> {
    section.keys().find(|key| key.starts_with("sso_") || UNFOLLOWED.contains(&key.as_str())).cloned()
}

/// A section's keys, or what is wrong with them.
fn keys(section: &Section<'_>) -> Result<Option<AwsCredential>, &'static str> {
    let of = |key| value(section, key);
    let (key_id, secret) = match (of("aws_access_key_id"), of("aws_secret_access_key")) {
        (Some(key_id), Some(secret)) => (key_id, secret),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err("aws_access_key_id and no aws_secret_access_key"),
        (None, Some(_)) => return Err("aws_secret_access_key and no aws_access_key_id"),
    };
    let token = of("aws_session_token");
    // Whoever signs takes it for granted that headers can be made of these.
    let is_visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_visible(key_id) || !token.is_none_or(is_visible) {
        return Err("an aws_access_key_id or aws_session_token of letters that none has");
    }
    let owned = str::to_owned;
    Ok(Some(AwsCredential { key_id: owned(key_id), secret_key: owned(secret), token: token.map(owned) }))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;

    /// A home folder with these two files, of which an empty one is not there.
    fn home(credentials: &str, config: &str) -> TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".aws")).unwrap();
        for (name, text) in [("credentials", credentials), ("config", config)] {
            if !text.is_empty() {
                fs::write(home.path().join(".aws").join(name), text).unwrap();
            }
        }
        home
    }

    fn profile(home: &Path, chosen: &str) -> Profile {
        with(&[("HOME", home.to_str().unwrap()), ("AWS_PROFILE", chosen)])
    }

    fn with(variables: &[(&str, &str)]) -> Profile {
        Profile::of(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn pair(key: &str) -> String {
        format!("aws_access_key_id = {key}\naws_secret_access_key = {key}-secret\n")
    }

    /// The id of the keys, and the name of the file that has them.
    fn found(profile: &Profile) -> (String, String) {
        let Found { credential, from } = profile.search().unwrap();
        assert_eq!(credential.secret_key, format!("{}-secret", credential.key_id));
        (credential.key_id, from.file_name().unwrap().to_str().unwrap().to_owned())
    }

    fn lack(profile: &Profile) -> (Reason, String) {
        let Lack { reason, detail } = profile.search().unwrap_err();
        (reason, detail)
    }

    #[test]
    fn files_are_where_their_variables_say_else_at_home() {
        let paths =
            |profile: Profile| -> Vec<_> { profile.files.into_iter().map(|file| file.path).collect() };
        let at_home = ["/h/.aws/credentials", "/h/.aws/config"].map(PathBuf::from);
        assert_eq!(paths(with(&[("HOME", "/h"), ("AWS_CONFIG_FILE", "")])), at_home);
        let named =
            with(&[("HOME", "/h"), ("AWS_SHARED_CREDENTIALS_FILE", "/a"), ("AWS_CONFIG_FILE", "~/b")]);
        assert_eq!(paths(named), ["/a", "/h/b"].map(PathBuf::from));
        assert_eq!(paths(with(&[("AWS_CONFIG_FILE", "b")])), [PathBuf::from("b")]);
        assert_eq!(lack(&with(&[])).0, Reason::Nothing);
        for (variables, name, choice) in [
            (&[][..], "default", Choice::Nobodys),
            (&[("AWS_PROFILE", "")], "default", Choice::Nobodys),
            (&[("AWS_PROFILE", "default")], "default", Choice::Ours),
            (&[("AWS_PROFILE", "p")], "p", Choice::Ours),
        ] {
            let profile = with(variables);
            assert_eq!((profile.name.as_str(), profile.choice), (name, choice));
        }
    }

    #[test]
    fn keys_are_those_of_the_credentials_file_else_of_the_config_file() {
        let (one, two, three) = (pair("one"), pair("two"), pair("three"));
        let home = home(
            &format!("[default]\n{one}[both]\n{two}[profile odd]\n{one}"),
            &format!(
                "[profile both]\n{three}[profile  'only here' ]\n{three}[odd]\n{one}[profile default]\n{two}"
            ),
        );
        let of = |chosen| found(&profile(home.path(), chosen));
        let is = |key: &str, file: &str| (key.to_owned(), file.to_owned());
        assert_eq!(of(""), is("one", "credentials"));
        assert_eq!(of("both"), is("two", "credentials"));
        assert_eq!(of("only here"), is("three", "config"));
        let (reason, detail) = lack(&profile(home.path(), "odd"));
        assert_eq!(reason, Reason::Nothing, "each file has its own spelling");
        assert!(detail.contains("credentials has no [odd]; "), "{detail}");
        assert!(detail.ends_with("config has no [profile odd]"), "{detail}");
    }

    #[test]
    fn a_token_belongs_to_its_keys() {
        let home = home(&format!("[default]\n{}AWS_Session_Token=t+/=\n", pair("one")), "");
        assert_eq!(profile(home.path(), "").search().unwrap().credential.token.as_deref(), Some("t+/="));
        let other = self::home(&format!("[default]\n{}aws_session_token =\n", pair("one")), "");
        assert_eq!(profile(other.path(), "").search().unwrap().credential.token, None);
    }

    #[test]
    fn of_two_defaults_in_the_config_file_the_one_with_its_full_name_counts() {
        let (one, two) = (pair("one"), pair("two"));
        let both = home("", &format!("[profile default]\n{two}[default]\n{one}region = r-1\n"));
        assert_eq!(found(&profile(both.path(), "")).0, "two");
        assert_eq!(profile(both.path(), "").region().unwrap(), None);
        let plain = home("", &format!("[default]\n{one}region = r-1\n"));
        assert_eq!(found(&profile(plain.path(), "")).0, "one");
        assert_eq!(profile(plain.path(), "").region().unwrap().as_deref(), Some("r-1"));
    }

    #[test]
    fn a_region_is_the_config_files_and_none_that_leads_elsewhere() {
        let config = "[default]\nregion = eu-1\n[profile p]\nregion = us-2 # here\ns3 =\n  region = no-3\n";
        let home =
            home("[default]\nregion = not-read\n[q]\n", &format!("{config}[profile q]\nregion = a.b/c\n"));
        let of = |chosen| profile(home.path(), chosen).region();
        assert_eq!(of("").unwrap().as_deref(), Some("eu-1"));
        assert_eq!(of("p").unwrap().as_deref(), Some("us-2"));
        assert_eq!(of("nobody").unwrap(), None);
        let error = of("q").unwrap_err();
        assert_eq!(error.trouble(), Trouble::Never);
        assert!(error.to_string().contains("[profile q]"), "{error}");
    }

    #[test]
    fn half_a_pair_and_keys_that_no_header_takes_are_torn() {
        for section in [
            "aws_access_key_id = one\n",
            "aws_access_key_id = one\naws_secret_acc",
            "aws_secret_access_key = hush\naws_access_key_id =\n",
            "aws_access_key_id = o ne\naws_secret_access_key = hush\n",
            "aws_access_key_id = \u{f6}ne\naws_secret_access_key = hush\n",
            "aws_access_key_id = one\naws_secret_access_key = hush\naws_session_token = hu\u{1}sh\n",
        ] {
            let home = home(&format!("[default]\n{section}"), &format!("[default]\n{}", pair("two")));
            let (reason, detail) = lack(&profile(home.path(), ""));
            assert_eq!(reason, Reason::Torn, "{section:?}: {detail}");
            let (told, shown) = (detail.contains("credentials has [default] with "), detail.contains("hush"));
            assert!(told && !shown, "{detail}");
        }
    }

    #[test]
    fn a_profile_that_leads_to_other_credentials_is_not_followed() {
        for key in ["role_arn", "source_profile", "credential_process", "sso_session", "SSO_Start_URL"] {
            let home = home(
                &format!("[own]\n{}", pair("one")),
                &format!("[profile p]\n{key} = x\n[profile own]\n{key} = x\n"),
            );
            let (reason, detail) = lack(&profile(home.path(), "p"));
            assert_eq!(reason, Reason::Unfollowed);
            assert!(detail.contains(&key.to_lowercase()) && detail.contains("[profile p]"), "{detail}");
            let own = profile(home.path(), "own");
            assert_eq!(found(&own).0, "one", "it has keys of its own");
            assert_eq!(own.unfollowed(), Some(key.to_lowercase()));
        }
        let home = home("[p]\n", "[profile p]\nregion = x\n");
        assert_eq!(lack(&profile(home.path(), "p")).0, Reason::Nothing);
        assert_eq!(profile(home.path(), "p").unfollowed(), None);
    }

    #[test]
    fn what_cannot_be_read_ends_the_search() {
        let home = home("\0", &format!("[default]\n{}", pair("one")));
        let (reason, detail) = lack(&profile(home.path(), ""));
        assert_eq!(reason, Reason::Unreadable);
        assert!(detail.ends_with("credentials cannot be read: it is not text"), "{detail}");
        fs::remove_file(home.path().join(".aws/credentials")).unwrap();
        assert_eq!(found(&profile(home.path(), "")).1, "config");
    }

    #[test]
    fn a_file_that_was_named_and_is_not_there_is_told() {
        let named = with(&[("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/credentials")]);
        assert_eq!(lack(&named), (Reason::Unfollowed, "/nowhere/credentials is not there".to_owned()));
        for home in ["/nowhere", "/dev/null"] {
            assert_eq!(lack(&with(&[("HOME", home)])).0, Reason::Nothing, "{home}");
        }
    }
}
