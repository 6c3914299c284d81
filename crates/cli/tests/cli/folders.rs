//! The data folder is its user's alone: what others can write or have put there is refused, nothing is followed out of it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use crate::process::{Said, Served, any_port, folder, run, said};

const UPLOADS: &str =
    "[schema]\nname = \"test\"\nowner = \"tests\"\n[upload.files]\nkey = \"up:{upload_id}:state\"\n";

fn take(folder: &Path) -> Said {
    run(folder, &["limit", "take", "courtlistener", "--json"])
}

fn refused(said: &Said, part: &str) {
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.err.contains("store.folder") && said.err.contains(part), "{said:?}");
}

#[test]
fn a_folder_that_others_can_write_is_refused_and_nothing_is_put_there() {
    let folder = folder(&[]);
    let data = folder.path().join("quaymaster-data");
    fs::create_dir(&data).unwrap();
    for mode in [0o777, 0o1777, 0o775, 0o702] {
        fs::set_permissions(&data, Permissions::from_mode(mode)).unwrap();
        refused(&take(folder.path()), "chmod go-w");
    }
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(take(folder.path()).code, 0);
}

#[test]
fn no_link_in_the_folder_is_followed() {
    for name in ["lock", "acknowledged", "acknowledged.new", "damaged", "data", "data.new"] {
        let folder = folder(&[("victim", "precious")]);
        let data = folder.path().join("quaymaster-data");
        fs::create_dir(&data).unwrap();
        symlink(folder.path().join("victim"), data.join(name)).unwrap();
        refused(&take(folder.path()), &format!("{name} is a symbolic link"));
        assert_eq!(fs::read_to_string(folder.path().join("victim")).unwrap(), "precious", "{name}");
        fs::remove_file(data.join(name)).unwrap();
        let after = take(folder.path());
        assert_eq!(after.code, 0, "{name}: {after:?}");
    }
    // Nor one among the database's own files.
    let folder = folder(&[]);
    assert_eq!(take(folder.path()).code, 0);
    let version = folder.path().join("quaymaster-data/data/version");
    fs::rename(&version, folder.path().join("version")).unwrap();
    symlink(folder.path().join("version"), &version).unwrap();
    refused(&take(folder.path()), "version is a symbolic link");
}

#[test]
fn what_is_made_is_its_users_alone_whatever_the_umask() {
    let folder = folder(&[]);
    let data = folder.path().join("quaymaster-data");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 0; exec setpriv --pdeathsig KILL -- \"$0\" serve --listen \"$1\""]);
    shell.arg(env!("CARGO_BIN_EXE_quaymaster")).arg(any_port()).current_dir(folder.path()).env_clear();
    let served = Served::spawn(shell.env("PATH", std::env::var_os("PATH").unwrap()));
    assert_eq!((mode(&data), mode(&data.join("data"))), (0o700, 0o700));
    for name in ["lock", "socket", "acknowledged"] {
        assert_eq!(mode(&data.join(name)), 0o600, "{name}");
    }
    assert_eq!(served.stop().code, 0);
}

/// Everything below `path`, folders too, with its mode; a server may remove some of it meanwhile.
fn modes(path: &Path) -> Vec<(String, u32)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(found) = entry.metadata() else { continue };
        all.push((entry.path().display().to_string(), found.permissions().mode() & 0o777));
        if found.is_dir() {
            all.extend(modes(&entry.path()));
        }
    }
    all
}

#[test]
fn what_is_uploaded_is_its_users_alone_in_a_folder_that_others_may_read() {
    for remote in [false, true] {
        let folder = folder(&[("a.txt", "for nobody else"), ("schema.toml", UPLOADS)]);
        let data = folder.path().join("quaymaster-data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
        let shell = |words: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.arg("-c").arg(format!("umask 022; exec setpriv --pdeathsig KILL -- \"$0\" {words}"));
            shell.arg(env!("CARGO_BIN_EXE_quaymaster")).current_dir(folder.path()).env_clear();
            shell.env("PATH", std::env::var_os("PATH").unwrap());
            shell
        };
        let served = remote.then(|| {
            Served::spawn(&mut shell(&format!("serve --schema schema.toml --listen {}", any_port())))
        });
        let place = match &served {
            Some(served) => format!("--resource files --server http://{}", served.address),
            None => "--schema schema.toml".to_owned(),
        };
        let put = said(&mut shell(&format!("upload put a.txt --json {place}")));
        assert_eq!(put.code, 0, "{put:?}");
        assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o755, "it is the operator's");
        let modes = modes(&data);
        for name in ["uploads.db", "spool", "objects"] {
            assert!(
                modes.iter().any(|(path, _)| path.ends_with(&format!("quaymaster-data/{name}"))),
                "{modes:?}"
            );
        }
        let readable: Vec<_> = modes.iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
        assert!(readable.is_empty(), "{readable:?}");
        // A file that is asked for is the user's to share.
        let id = put.json()["files"][0]["upload_id"].as_str().unwrap().to_owned();
        if let Some(served) = served {
            assert_eq!(served.stop().code, 0);
        }
        let words = format!("upload content files --upload-id {id} --schema schema.toml --output b.txt");
        let read = said(&mut shell(&words));
        assert_eq!(read.code, 0, "{read:?}");
        assert_eq!(fs::metadata(folder.path().join("b.txt")).unwrap().permissions().mode() & 0o777, 0o644);
    }
}

#[test]
fn no_link_among_what_is_uploaded_is_followed() {
    for name in ["spool", "spool/files", "objects", "objects/uploads", "uploads.db", "uploads.db-wal"] {
        let folder = folder(&[("a.txt", "for nobody else"), ("schema.toml", UPLOADS)]);
        let (link, victim) = (folder.path().join("quaymaster-data").join(name), folder.path().join("victim"));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        fs::create_dir(&victim).unwrap();
        let points_at = if name.contains(".db") { victim.join("file") } else { victim.clone() };
        symlink(&points_at, &link).unwrap();
        let put = || run(folder.path(), &["upload", "put", "a.txt", "--schema", "schema.toml"]);
        refused(&put(), &format!("{name} is a symbolic link"));
        let serve = run(folder.path(), &["serve", "--listen", &any_port(), "--schema", "schema.toml"]);
        refused(&serve, &format!("{name} is a symbolic link"));
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{name}");
        fs::remove_file(&link).unwrap();
        let after = put();
        assert_eq!(after.code, 0, "{name}: {after:?}");
    }
}

#[test]
fn a_place_outside_of_the_folder_may_be_a_link() {
    let folder = folder(&[("a.txt", "for nobody else")]);
    fs::create_dir(folder.path().join("disk")).unwrap();
    symlink(folder.path().join("disk"), folder.path().join("objects")).unwrap();
    let objects = format!("objects = \"file:{}\"\n", folder.path().join("objects").display());
    fs::write(folder.path().join("schema.toml"), format!("{UPLOADS}{objects}")).unwrap();
    let put = run(folder.path(), &["upload", "put", "a.txt", "--schema", "schema.toml"]);
    assert_eq!(put.code, 0, "{put:?}");
    assert!(folder.path().join("disk/objects").is_dir());
}

#[test]
fn a_folder_of_another_user_is_refused() {
    // Only root can make one.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = folder(&[]);
    let data = folder.path().join("quaymaster-data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    chown(&data, Some(65534), None).unwrap();
    refused(&take(folder.path()), "belongs to user 65534");
    // And its owner is let in, though not by us.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("quaymaster");
    fs::copy(env!("CARGO_BIN_EXE_quaymaster"), &program).unwrap();
    let mut owner = std::process::Command::new("setpriv");
    owner.args(["--reuid", "65534", "--clear-groups", "--"]).arg(&program).args([
        "limit",
        "take",
        "courtlistener",
    ]);
    let owner =
        said(owner.current_dir(folder.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap()));
    assert_eq!(owner.code, 0, "{owner:?}");
}
