//! How much memory there is: the machine's, or what this process's control group may use of it.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Half of the memory this process may use; 0 where nobody can tell.
pub(super) fn half() -> u64 {
    static HALF: OnceLock<u64> = OnceLock::new();
    *HALF.get_or_init(|| usable(Path::new("/proc"), Path::new("/sys/fs/cgroup")).unwrap_or(0) / 2)
}

/// The smaller of the machine's memory and the limits of the control group and those above it.
fn usable(proc: &Path, cgroup: &Path) -> Option<u64> {
    let machine = fs::read_to_string(proc.join("meminfo")).ok().and_then(|text| total(&text));
    let groups = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| limit(line, cgroup));
    machine.into_iter().chain(limits).min()
}

/// `MemTotal:  16384 kB`
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The lowest limit on the way from a group up; `line` is `0::/path` (version 2) or `5:memory:/path` (version 1).
/// Inside a container the path may be the host's: then the root is the container's own group.
fn limit(line: &str, cgroup: &Path) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (root, file) = if controllers.is_empty() {
        (cgroup.to_owned(), "memory.max")
    } else if controllers.split(',').any(|name| name == "memory") {
        (cgroup.join("memory"), "memory.limit_in_bytes")
    } else {
        return None;
    };
    let group = root.join(path.trim_start_matches('/'));
    let up = group.ancestors().take_while(|group| group.starts_with(&root));
    // `max` is no limit, and is no number either.
    up.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A machine with these files: a folder with `proc` and `cgroup` in it.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn usable_of(files: &[(&str, &str)]) -> Option<u64> {
        let folder = machine(files);
        usable(&folder.path().join("proc"), &folder.path().join("cgroup"))
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       16384 kB\nMemFree:         100 kB\n");

    #[test]
    fn the_machines_memory_counts_where_there_is_no_lower_limit() {
        assert_eq!(usable_of(&[]), None);
        assert_eq!(usable_of(&[MEMINFO]), Some(16 << 20));
        let group = ("proc/self/cgroup", "0::/a\n");
        assert_eq!(usable_of(&[MEMINFO, group, ("cgroup/a/memory.max", "max\n")]), Some(16 << 20));
        assert_eq!(usable_of(&[MEMINFO, group, ("cgroup/a/memory.max", "99999999999\n")]), Some(16 << 20));
    }

    #[test]
    fn the_lowest_limit_of_the_groups_counts_in_both_versions() {
        let group = ("proc/self/cgroup", "0::/a/b\n");
        let (own, above) = (("cgroup/a/b/memory.max", "9000000\n"), ("cgroup/a/memory.max", "8000000\n"));
        assert_eq!(usable_of(&[MEMINFO, group, own]), Some(9_000_000));
        assert_eq!(usable_of(&[MEMINFO, group, own, above]), Some(8_000_000));
        let first = ("proc/self/cgroup", "7:cpu:/x\n5:memory,hugetlb:/a\n");
        let limit = ("cgroup/memory/a/memory.limit_in_bytes", "7000000\n");
        assert_eq!(usable_of(&[MEMINFO, first, limit]), Some(7_000_000));
        // In a container the path is the host's, and the limit lies at the root.
        let host = ("proc/self/cgroup", "0::/system.slice/docker-1.scope\n");
        assert_eq!(usable_of(&[MEMINFO, host, ("cgroup/memory.max", "6000000\n")]), Some(6_000_000));
    }
}
