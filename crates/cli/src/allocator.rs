//! How much memory the allocator keeps.

/// glibc gives threads that meet heaps of their own, up to eight for each core, and what one of them was given back it does
/// not hand to another: with 64 uploads at once two of them held 40 MiB where the usual number held 49. What it costs in
/// speed was not measured. Whoever sets `MALLOC_ARENA_MAX` decides otherwise.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a setting of the C library, made before there are threads")]
pub(crate) fn settle() {
    const HEAPS: i32 = 2;
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: two integers, which it refuses if it does not like them; no other thread is there yet.
        let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, HEAPS) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) const fn settle() {}
