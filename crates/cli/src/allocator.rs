//! How much memory the allocator keeps.

/// glibc gives threads that meet heaps of their own, up to eight for each core, and what one of them was given back it does
/// not hand to another: with many uploads at once a third of a server's memory lay idle there. Our buffers are pooled, so
/// few heaps are as quick. Whoever sets `MALLOC_ARENA_MAX` decides otherwise.
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
