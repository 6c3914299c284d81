//! How much memory the allocator keeps.

/// glibc gives threads that meet heaps of their own, up to eight for each core, and what one of them was given back it does
/// not hand to another. It also learns that what is large and short-lived should come from these heaps, and keeps what is
/// free at their end; pieces of chunks are such, and little of it is used again. So there is a heap for every two cores,
/// eight at most, and whatever is large goes straight back to the system. Whoever sets one of these by its variable
/// (`MALLOC_ARENA_MAX`, `MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_`), or anything in `GLIBC_TUNABLES`, decides
/// otherwise. On more than two cores it was not measured.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "settings of the C library, made before there are threads")]
pub(crate) fn settle() {
    const LARGE: i32 = 128 * 1024;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let heaps = i32::try_from(cores / 2).map_or(8, |heaps| heaps.clamp(1, 8));
    let settings = [
        ("MALLOC_ARENA_MAX", libc::M_ARENA_MAX, heaps),
        ("MALLOC_MMAP_THRESHOLD_", libc::M_MMAP_THRESHOLD, LARGE),
        ("MALLOC_TRIM_THRESHOLD_", libc::M_TRIM_THRESHOLD, LARGE),
    ];
    for (variable, setting, value) in settings {
        if std::env::var_os(variable).or_else(|| std::env::var_os("GLIBC_TUNABLES")).is_none() {
            // SAFETY: two integers, which it refuses if it does not like them; no other thread is there yet.
            let _ = unsafe { libc::mallopt(setting, value) };
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) const fn settle() {}
