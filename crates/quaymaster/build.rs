//! Turns `lua/` into checked, static scripts. A script that breaks a rule fails the build with file and line.

#[path = "build/script.rs"]
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let commands_file = root.join("../store/commands.txt");
    // The folders for files that are added or removed, each file by name for the test that looks for a stale binary.
    for folder in ["lua", "build"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    for file in ["header", "inline", "reply", "rust", "script"] {
        println!("cargo::rerun-if-changed=build/{file}.rs");
    }
    println!("cargo::rerun-if-changed={}", commands_file.display());

    let mut problems = Vec::new();
    let commands = script::parse_commands(&read(&commands_file, &mut problems));
    let mut includes = BTreeMap::new();
    for path in lua_files(&root.join("lua/inc"), &mut problems) {
        includes.insert(stem(&path, &root.join("lua/inc")), read(&path, &mut problems));
    }
    let mut texts = Vec::new();
    for path in lua_files(&root.join("lua"), &mut problems) {
        if !path.starts_with(root.join("lua/inc")) {
            texts.push((stem(&path, &root.join("lua")), read(&path, &mut problems)));
        }
    }
    let names = replayed(&texts);
    match includes.get_mut("replay") {
        Some(replay) if replay.contains("@replayed") && !names.is_empty() => {
            *replay = replay.replace("@replayed", &names);
        }
        _ => problems.push(
            "lua/inc/replay.lua wants the word @replayed, and scripts that call replay_read(request, \"name\", …): \
             otherwise no record of a request_id is known as ours"
                .to_owned(),
        ),
    }
    let groups = script::header::groups(&includes).unwrap_or_else(|found| {
        problems.extend(found);
        script::header::Groups::default()
    });
    let mut scripts = Vec::new();
    for (name, text) in &texts {
        match script::build(name, text, &includes, &groups, &commands) {
            Ok(script) => scripts.push(script),
            Err(found) => problems.extend(found),
        }
    }
    if !problems.is_empty() {
        for problem in &problems {
            println!("cargo::error={problem}");
        }
        process::exit(1);
    }
    let items: String = scripts.iter().map(|script| script.to_rust(&groups)).collect();
    let names: Vec<String> = scripts.iter().map(|script| format!("&{}", script.const_name())).collect();
    let entries = scripts.iter().flat_map(|script| script.keys.iter().chain(&script.args));
    let generated = format!(
        "{}{items}/// Every script with the facts of its header.\n\
         pub(crate) static ALL: &[&Operation] = &[{}];\n",
        script::rust::groups(&groups, entries),
        names.join(", ")
    );
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("scripts.rs");
    if let Err(error) = fs::write(&out, generated) {
        println!("cargo::error=cannot write {}: {error}", out.display());
        process::exit(1);
    }
}

/// The names under which scripts keep their answer for a repeated request, so that `replay` knows our records.
fn replayed(texts: &[(String, String)]) -> String {
    let reads = texts.iter().flat_map(|(_, text)| text.split("replay_read(").skip(1));
    let quoted = |word: &'_ str| word.trim().strip_prefix('"')?.strip_suffix('"').map(str::to_owned);
    let names: BTreeSet<String> = reads.filter_map(|read| quoted(read.split(',').nth(1)?)).collect();
    names.into_iter().collect::<Vec<_>>().join(" ")
}

fn read(path: &Path, problems: &mut Vec<String>) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| {
        problems.push(format!("cannot read {}: {error}", path.display()));
        String::new()
    })
}

/// `lua/limit/take.fixed_window.lua` is `limit/take.fixed_window`.
fn stem(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).with_extension("").to_string_lossy().replace('\\', "/")
}

fn lua_files(folder: &Path, problems: &mut Vec<String>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            problems.push(format!("cannot list {}: {error}", folder.display()));
            return found;
        }
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(lua_files(&path, problems));
        } else if path.extension().is_some_and(|ext| ext == "lua") {
            println!("cargo::rerun-if-changed={}", path.display());
            found.push(path);
        }
    }
    found.sort();
    found
}
