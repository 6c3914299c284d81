//! Builds the preloaded clock of `differential::HeldClock`; `cc` is there because the Lua we vendor needs it.

use std::path::PathBuf;
use std::process::{Command, exit};

fn main() {
    let source = "clock/held_clock.c";
    println!("cargo::rerun-if-changed={source}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("held_clock.so");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(&cc)
        .args(["-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&out)
        .arg(source)
        .status();
    match built {
        Ok(status) if status.success() => println!("cargo::rustc-env=HELD_CLOCK_LIBRARY={}", out.display()),
        other => {
            println!("cargo::error={cc} {source}: {other:?}");
            exit(1);
        }
    }
}
